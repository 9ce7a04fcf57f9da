/*
 * The state machine's rules about callers: what a kernel permitted, in which directory, when
 * another node's command was committed first.
 */
#include <errno.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/run_suite.h"
#include "meta_rules.h"

static struct meta_command by_owner(enum meta_command_type type, ramp_segment_t id,
				    const char *name)
{
	struct meta_command c = {.type = type,
				 .id = id,
				 .flags = META_IN_NODE | META_OF_OWNER,
				 .node = 1,
				 .owner = 7,
				 .other_owner = 7};

	snprintf(c.name, sizeof(c.name), "%s", name);
	snprintf(c.new_name, sizeof(c.new_name), "y");
	return c;
}

static ramp_segment_t created_by(uint32_t uid, ramp_node_t node, const char *name)
{
	struct meta_command c = {.type = META_CREATE, .node = node, .attr.uid = uid};

	snprintf(c.name, sizeof(c.name), "%s", name);
	return apply(c).id;
}

START_TEST(a_name_is_changed_only_in_the_directory_where_it_was_seen)
{
	ramp_segment_t x = created_by(7, 1, "x"), y = created_by(7, 2, "y");
	uint64_t e = prepare(x, 1, K, 1, 2, "x").epoch;
	struct meta_command rename = by_owner(META_RENAME, x, "x");
	struct meta_command unlink = by_owner(META_UNLINK, x, "x");

	ck_assert_int_eq(apply(rename).result, -EBUSY);
	ck_assert_int_eq(apply(unlink).result, -EBUSY);
	ck_assert_int_eq(step_k(META_TAKEN, x, e, K).result, 0);
	ck_assert_int_eq(apply(rename).result, -ENOENT);
	ck_assert_int_eq(apply(unlink).result, -ENOENT);
	ck_assert_uint_eq(named(2, "x"), x);
	ck_assert_uint_eq(named(2, "y"), y);
	rename.node = unlink.node = 2;
	ck_assert_int_eq(apply(rename).result, 0);
	ck_assert(is_gone(y));
	strcpy(unlink.name, "y");
	ck_assert_int_eq(apply(unlink).result, 0);
	ck_assert_uint_eq(named(2, "y"), 0);
}
END_TEST

START_TEST(a_name_is_taken_away_only_from_its_owner)
{
	ramp_segment_t x = created_by(7, 1, "x"), y = created_by(8, 1, "y");
	struct meta_command rename = by_owner(META_RENAME, x, "x");
	struct meta_command unlink = by_owner(META_UNLINK, y, "y");

	ck_assert_int_eq(apply(unlink).result, -EPERM);
	ck_assert_int_eq(apply(rename).result, -EPERM);
	ck_assert_uint_eq(named(1, "x"), x);
	ck_assert_uint_eq(named(1, "y"), y);
	ck_assert_uint_eq(row_of(x).epoch, 1);
	rename.flags |= RENAME_NOREPLACE;
	ck_assert_int_eq(apply(rename).result, -EEXIST);
	rename.flags &= ~(uint32_t)RENAME_NOREPLACE;
	rename.owner = 6;
	rename.other_owner = 8;
	ck_assert_int_eq(apply(rename).result, -EPERM);
	rename.owner = 7;
	ck_assert_int_eq(apply(rename).result, 0);
	ck_assert(is_gone(y));
	unlink.id = x;
	ck_assert_int_eq(apply(unlink).result, 0);
	ck_assert(is_gone(x));
	/* A caller that may change any user's segment gives no owner. */
	x = created_by(7, 1, "x");
	y = created_by(8, 1, "y");
	rename.id = x;
	rename.flags = unlink.flags = META_IN_NODE;
	ck_assert_int_eq(apply(rename).result, 0);
	unlink.id = x;
	ck_assert_int_eq(apply(unlink).result, 0);
}
END_TEST

START_TEST(what_was_done_is_not_refused_when_it_is_asked_again)
{
	ramp_segment_t x = created_by(7, 1, "x"), y = created_by(7, 1, "y");
	struct meta_command rename = by_owner(META_RENAME, x, "x");
	struct meta_command mode = by_owner(META_SETATTR, x, "");
	struct meta_origin nobody = {0};

	rename.cid = (struct meta_command_id){99, 1};
	mode.cid = (struct meta_command_id){99, 2};
	mode.flags = META_OF_OWNER | META_SET_MODE;
	mode.attr.mode = 0600;
	ck_assert_int_eq(apply_from(&nobody, &rename).reply.result, 0);
	ck_assert_int_eq(apply_from(&nobody, &mode).reply.result, 0);
	ck_assert(is_gone(y));
	ck_assert_int_eq(
		apply((struct meta_command){
			      .type = META_SETATTR, .id = x, .flags = META_SET_UID, .attr.uid = 8})
			.result,
		0);
	ck_assert_int_eq(apply_from(&nobody, &rename).reply.result, 0);
	ck_assert_int_eq(apply_from(&nobody, &mode).reply.result, 0);
	rename.id = 0; /* the next daemon does not find the name */
	ck_assert_int_eq(apply_from(&nobody, &rename).reply.result, 0);
	mode.cid.unique = 3;
	ck_assert_int_eq(apply_from(&nobody, &mode).reply.result, -EPERM);
}
END_TEST

START_TEST(a_former_owner_sets_nothing)
{
	ramp_segment_t id = created_by(7, 1, "x");
	struct meta_command chmod = {.type = META_SETATTR,
				     .id = id,
				     .flags = META_SET_MODE | META_SET_CTIME | META_OF_OWNER,
				     .owner = 7,
				     .attr = {.mode = 04777, .ctime = {5000, 0}}};
	struct meta_command chown = {.type = META_SETATTR,
				     .id = id,
				     .flags = META_SET_UID | META_SET_MODE,
				     .attr = {.mode = 0600, .uid = 0}};
	struct segment_row before;

	ck_assert_int_eq(apply(chmod).result, 0);
	ck_assert_int_eq(apply(chown).result, 0);
	before = row_of(id);
	ck_assert_int_eq(apply(chmod).result, -EPERM);
	ck_assert_uint_eq(row_of(id).mode, 0600);
	ck_assert_uint_eq(row_of(id).uid, 0);
	ck_assert_int_eq(row_of(id).ctime.sec, before.ctime.sec);
	chmod.flags &= ~META_OF_OWNER;
	ck_assert_int_eq(apply(chmod).result, 0);
	ck_assert_uint_eq(row_of(id).mode, 04777);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("meta_callers");
	TCase *callers = tcase_create("callers");

	tcase_add_checked_fixture(callers, rules_setup, rules_teardown);
	suite_add_tcase(s, callers);
	tcase_add_test(callers, a_name_is_changed_only_in_the_directory_where_it_was_seen);
	tcase_add_test(callers, a_name_is_taken_away_only_from_its_owner);
	tcase_add_test(callers, what_was_done_is_not_refused_when_it_is_asked_again);
	tcase_add_test(callers, a_former_owner_sets_nothing);
	return s;
}

int main(void)
{
	return run_suite(suite());
}
