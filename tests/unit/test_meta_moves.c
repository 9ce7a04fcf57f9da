/*
 * The state machine's rules about migrations: prepare, taken, settled, abort and its proofs.
 */
#include <errno.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/run_suite.h"
#include "meta_rules.h"

/* ---- migration ----------------------------------------------------------------------------- */

START_TEST(a_migration_from_end_to_end)
{
	uint64_t e;
	ramp_segment_t id = moving("x", "z", &e);
	struct segment_row row = row_of(id);

	ck_assert_int_eq(row.phase, SEGMENT_MOVING);
	ck_assert_uint_eq(row.epoch, 2);
	ck_assert_uint_eq(row.k_epoch, e);
	ck_assert_uint_eq(e, 2);
	ck_assert_uint_eq(named(1, "x"), id);
	ck_assert_uint_eq(named(2, "z"), 0);

	ck_assert_int_eq(step_k(META_TAKEN, id, e, K).result, 0);
	row = row_of(id);
	ck_assert_int_eq(row.phase, SEGMENT_PULLING);
	ck_assert_uint_eq(row.epoch, 3);
	ck_assert_uint_eq(row.k_epoch, e);
	ck_assert_uint_eq(row.node, 2);
	ck_assert_uint_eq(row.node_inc, 12);
	ck_assert_uint_eq(row.src, 1);
	ck_assert_uint_eq(row.src_inc, 11);
	ck_assert_uint_eq(named(1, "x"), 0);
	ck_assert_uint_eq(named(2, "z"), id);

	ck_assert_int_eq(step_k(META_SETTLED, id, e, K).result, 0);
	row = row_of(id);
	ck_assert_int_eq(row.phase, SEGMENT_STABLE);
	ck_assert_uint_eq(row.epoch, 4);
	ck_assert_uint_eq(row.src, 0);
	ck_assert_uint_eq(row.k.source_id, 0);
}
END_TEST

START_TEST(prepare_compares_epoch_owner_and_both_incarnations)
{
	ramp_segment_t id = created(1, "x");
	struct meta_command c = {.type = META_PREPARE,
				 .id = id,
				 .epoch = 1,
				 .k = K,
				 .node = 2,
				 .node_inc = 99,
				 .src = 1,
				 .src_inc = 11};

	ck_assert_int_eq(prepare(id, 2, K, 1, 2, "").result, -ESTALE);
	ck_assert_int_eq(prepare(id, 1, K, 3, 2, "").result, -ESTALE);
	ck_assert_int_eq(prepare(id, 1, K, 1, 1, "").result, -EINVAL);
	ck_assert_int_eq(prepare(77, 1, K, 1, 2, "").result, -ESTALE);
	ck_assert_int_eq(apply(c).result, -EHOSTDOWN);
	ck_assert_int_eq(fence(2, 12), 0);
	ck_assert_int_eq(prepare(id, 1, K, 1, 2, "").result, -EHOSTDOWN);
	/* A source that was restarted has lost the bytes: its row has another incarnation. */
	ck_assert_int_eq(node_up(1, 21, 101), 0);
	c.node = 3;
	c.node_inc = 13;
	c.src_inc = 21;
	ck_assert_int_eq(apply(c).result, -ESTALE);
	c.src_inc = 11;
	ck_assert_int_eq(apply(c).result, -EHOSTDOWN);
}
END_TEST

START_TEST(prepare_reserves_the_name)
{
	uint64_t e;
	ramp_segment_t id, other = created(2, "y");

	ck_assert_int_eq(prepare(created(1, "q"), 1, K, 1, 2, "y").result, -EEXIST);
	id = moving("x", "", &e);
	ck_assert_int_eq(create(2, "x").result, -EEXIST);
	ck_assert_int_eq(rename_to(other, "y", "x", 0).result, -EBUSY);
	ck_assert_int_eq(rename_to(other, "y", "x", RENAME_NOREPLACE).result, -EEXIST);
	ck_assert_int_eq(prepare(created(3, "x"), 1, K2, 3, 2, "").result, -EEXIST);
	ck_assert_int_eq(abort_k(id, e, PROOF_NONE, 0, 0), 0);
	ck_assert_int_eq(create(2, "x").result, 0);
	ck_assert_uint_eq(named(1, "x"), id);
}
END_TEST

START_TEST(in_moving_everything_else_is_busy)
{
	struct meta_command set = {.type = META_SETATTR, .flags = META_SET_MODE};
	uint64_t e;
	ramp_segment_t id = moving("x", "", &e), y = created(1, "y");

	set.id = id;
	ck_assert_int_eq(apply(set).result, -EBUSY);
	ck_assert_int_eq(do_unlink(id, "x"), -EBUSY);
	ck_assert_int_eq(rename_to(id, "x", "z", 0).result, -EBUSY);
	ck_assert_int_eq(rename_to(y, "y", "x", 0).result, -EBUSY);
	ck_assert_int_eq(extent(id, 1).result, -EBUSY);
	ck_assert_int_eq(prepare(id, 2, K2, 1, 3, "").result, -EBUSY);
	/* The same attempt under another command id is the same attempt. */
	ck_assert_uint_eq(prepare(id, 1, K, 1, 2, "").epoch, e);
	ck_assert_uint_eq(row_of(id).epoch, e);
}
END_TEST

START_TEST(late_and_foreign_steps_are_stale)
{
	uint64_t e;
	ramp_segment_t id = moving("x", "", &e);

	ck_assert_int_eq(step_k(META_TAKEN, id, e - 1, K).result, -ESTALE);
	ck_assert_int_eq(step_k(META_TAKEN, id, e, K2).result, -ESTALE);
	ck_assert_int_eq(step_k(META_SETTLED, id, e, K).result, -ESTALE);
	ck_assert_int_eq(step_k(META_TAKEN, id, e, K).result, 0);
	ck_assert_int_eq(step_k(META_TAKEN, id, e, K).result, -ESTALE);
	ck_assert_int_eq(abort_k(id, e, PROOF_REFUSED, 0, 0), -ESTALE);
	ck_assert_int_eq(step_k(META_SETTLED, id, e, K2).result, -ESTALE);
	ck_assert_int_eq(step_k(META_SETTLED, id, e, K).result, 0);
	ck_assert_int_eq(abort_k(id, e, PROOF_OVER, 2, 12), -ESTALE);
}
END_TEST

START_TEST(a_proof_must_be_one)
{
	uint64_t e;
	ramp_segment_t id = pulling("x", &e);

	ck_assert_int_eq(abort_k(id, e, PROOF_OVER, 2, 12), -EPERM);
	ck_assert_int_eq(abort_k(id, e, PROOF_OVER, 3, 13), -EPERM);
	ck_assert_int_eq(abort_k(id, e, PROOF_OVER, 2, 99), -EPERM);
	ck_assert_int_eq(node_up(2, 22, 102), 0);
	ck_assert_int_eq(abort_k(id, e, PROOF_OVER, 2, 22), -EPERM);
	ck_assert_int_eq(abort_k(id, e, PROOF_OVER, 2, 12), 0);
	ck_assert_uint_eq(row_of(id).node, 1);
	ck_assert_uint_eq(row_of(id).node_inc, 11);
	ck_assert_uint_eq(named(1, "x"), id);
	ck_assert_uint_eq(named(2, "x"), 0);
}
END_TEST

START_TEST(a_fence_is_a_proof)
{
	uint64_t e;
	ramp_segment_t id = pulling("x", &e);

	ck_assert_int_eq(fence(2, 99), -ESTALE);
	ck_assert_int_eq(fence(2, 12), 0);
	ck_assert_int_eq(abort_k(id, e, PROOF_OVER, 2, 12), 0);
	ck_assert_int_eq(row_of(id).phase, SEGMENT_STABLE);
}
END_TEST

START_TEST(the_target_gives_up_when_the_source_is_over)
{
	uint64_t e;
	ramp_segment_t id = moving("x", "", &e);

	ck_assert_int_eq(abort_k(id, e, PROOF_OVER, 1, 11), -EPERM);
	ck_assert_int_eq(node_up(1, 21, 101), 0);
	ck_assert_int_eq(abort_k(id, e, PROOF_OVER, 1, 11), 0);
	ck_assert_uint_eq(row_of(id).node_inc, 11); /* its bytes are lost */
}
END_TEST

START_TEST(back_at_the_source_its_name_may_be_taken)
{
	uint64_t e;
	ramp_segment_t id = pulling("x", &e), other = created(1, "x");
	char name[32];

	ck_assert_int_eq(fence(2, 12), 0);
	ck_assert_int_eq(abort_k(id, e, PROOF_OVER, 2, 12), 0);
	snprintf(name, sizeof(name), "x~%llu", (unsigned long long)id);
	ck_assert_str_eq(row_of(id).name, name);
	ck_assert_uint_eq(named(1, name), id);
	ck_assert_uint_eq(named(1, "x"), other);
}
END_TEST

START_TEST(unlinked_while_pulling_goes_when_settled)
{
	uint64_t e, e2;
	ramp_segment_t bare = pulling("x", &e), mapped = created(1, "m");
	struct segment_row row;

	ck_assert_int_eq(do_unlink(bare, "x"), 0);
	row = row_of(bare);
	ck_assert_int_eq(row.phase, SEGMENT_PULLING);
	ck_assert(row.unlinked);
	ck_assert_uint_eq(row.src, 1);
	ck_assert_uint_eq(named(2, "x"), 0);
	ck_assert_int_eq(do_unlink(bare, "x"), -ENOENT);
	ck_assert_int_eq(create(2, "x").result, 0); /* the name is free */
	ck_assert_int_eq(step_k(META_SETTLED, bare, e, K).result, 0);
	ck_assert(is_gone(bare));
	ck_assert_uint_ne(named(2, "x"), 0);

	extent(mapped, 1);
	e2 = prepare(mapped, 1, K, 1, 2, "").epoch;
	ck_assert_int_eq(step_k(META_TAKEN, mapped, e2, K).result, 0);
	ck_assert_int_eq(do_unlink(mapped, "m"), 0);
	ck_assert_int_eq(step_k(META_SETTLED, mapped, e2, K).result, 0);
	row = row_of(mapped);
	ck_assert_int_eq(row.phase, SEGMENT_ORPHAN);
	ck_assert_uint_eq(row.node, 2);
}
END_TEST

START_TEST(unlinked_while_pulling_and_reverted_is_dropped_at_the_source)
{
	uint64_t e;
	ramp_segment_t id = created(1, "m");
	struct segment_row row;

	extent(id, 1);
	e = prepare(id, 1, K, 1, 2, "").epoch;
	step_k(META_TAKEN, id, e, K);
	do_unlink(id, "m");
	fence(2, 12);
	ck_assert_int_eq(abort_k(id, e, PROOF_OVER, 2, 12), 0);
	row = row_of(id);
	ck_assert_int_eq(row.phase, SEGMENT_ORPHAN);
	ck_assert_uint_eq(row.node, 1);
	ck_assert_uint_eq(row.node_inc, 11);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("meta_moves");
	TCase *moves = tcase_create("moves");

	tcase_add_checked_fixture(moves, rules_setup, rules_teardown);
	suite_add_tcase(s, moves);
	tcase_add_test(moves, a_migration_from_end_to_end);
	tcase_add_test(moves, prepare_compares_epoch_owner_and_both_incarnations);
	tcase_add_test(moves, prepare_reserves_the_name);
	tcase_add_test(moves, in_moving_everything_else_is_busy);
	tcase_add_test(moves, late_and_foreign_steps_are_stale);
	tcase_add_test(moves, a_proof_must_be_one);
	tcase_add_test(moves, a_fence_is_a_proof);
	tcase_add_test(moves, the_target_gives_up_when_the_source_is_over);
	tcase_add_test(moves, back_at_the_source_its_name_may_be_taken);
	tcase_add_test(moves, unlinked_while_pulling_goes_when_settled);
	tcase_add_test(moves, unlinked_while_pulling_and_reverted_is_dropped_at_the_source);
	return s;
}

int main(void)
{
	return run_suite(suite());
}
