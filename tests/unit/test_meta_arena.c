/*
 * The state machine's rules about the arena: extents, and how much of it each user may have.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/run_suite.h"
#include "meta/fsm_settings.h"
#include "meta/journal_segments.h"
#include "meta_rules.h"

/* ---- extents ------------------------------------------------------------------------------- */

START_TEST(extents_are_powers_of_two_and_never_overlap)
{
	uint64_t taken[60][2];
	unsigned int seed = 3;
	char name[16];
	int i, k;

	for (i = 0; i < 60; i++) {
		struct meta_reply r;

		snprintf(name, sizeof(name), "f%d", i);
		r = extent(created(1, name), (uint64_t)(rand_r(&seed) % 400) * MIB);
		ck_assert_int_eq(r.result, 0);
		ck_assert_uint_ge(r.extent_len, RAMP_EXTENT_MIN);
		ck_assert_uint_eq(r.extent_len & (r.extent_len - 1), 0);
		ck_assert_uint_eq(r.extent_addr % r.extent_len, 0);
		taken[i][0] = r.extent_addr;
		taken[i][1] = r.extent_addr + r.extent_len;
		for (k = 0; k < i; k++)
			ck_assert(taken[i][0] >= taken[k][1] || taken[k][0] >= taken[i][1]);
	}
}
END_TEST

START_TEST(an_extent_is_four_times_size_or_mapping_and_for_life)
{
	ramp_segment_t id = created(1, "x");
	struct meta_reply first = extent(id, 20 * MIB), again;

	ck_assert_uint_eq(first.extent_len, 128 * MIB);
	again = extent(id, 900 * MIB);
	ck_assert_int_eq(again.result, 0);
	ck_assert_uint_eq(again.extent_addr, first.extent_addr);
	ck_assert_uint_eq(again.extent_len, first.extent_len);
	ck_assert_int_eq(extent(12, 1).result, -ENOENT);
}
END_TEST

/* As asked by an owner that still has the file open, with the facts of its record. */
static struct meta_reply extent_of_unlinked(ramp_segment_t id, ramp_node_t node,
					    ramp_incarnation_t inc)
{
	struct meta_command c = {
		.type = META_EXTENT, .id = id, .node = node, .node_inc = inc, .epoch = 1};

	c.map_len = 1;
	c.attr.mode = 0604;
	c.attr.uid = 7;
	c.attr.size = 99;
	c.attr.pages = SEGMENT_PAGES_SMALL;
	return apply(c);
}

/* ---- extents from level 1 on --------------------------------------------------------------- */

static void raise_level(void)
{
	struct meta_command c = {.type = META_LEVEL_UP, .value = META_LEVEL_ARENA_USER};

	ck_assert_int_eq(apply(c).result, 0);
}

static int set_arena_user_max(uint64_t bytes)
{
	return apply((struct meta_command){
			     .type = META_SET, .setting = META_ARENA_USER_MAX, .value = bytes})
		.result;
}

static ramp_segment_t created_by(uint32_t uid, uint64_t asked)
{
	struct meta_command c = {.type = META_SETATTR, .flags = META_SET_UID | META_SET_EXTENT};
	char name[16];

	snprintf(name, sizeof(name), "u%llu", (unsigned long long)t.unique);
	c.id = created(1, name);
	c.attr.uid = uid;
	c.attr.extent_asked = asked;
	ck_assert_int_eq(apply(c).result, 0);
	return c.id;
}

static uint64_t use_of(uint32_t uid)
{
	uint64_t bytes;

	ck_assert_int_eq(journal_arena_use(t.j, uid, &bytes), 0);
	return bytes;
}

START_TEST(what_was_asked_for_is_taken_as_it_is)
{
	ramp_segment_t before = created_by(0, 64 * MIB);

	/* The rules of level 0 hold for the entries before it, on every node. */
	ck_assert_uint_eq(extent(before, 60 * MIB).extent_len, 256 * MIB);
	raise_level();
	ck_assert_uint_eq(extent(before, 60 * MIB).extent_len, 256 * MIB);
	ck_assert_uint_eq(extent(created_by(0, 64 * MIB), 60 * MIB).extent_len, 64 * MIB);
	ck_assert_uint_eq(extent(created_by(0, 128 * MIB), 128 * MIB).extent_len, 128 * MIB);
	/* Less than the mapping: as much as that needs. Nothing: by rule. */
	ck_assert_uint_eq(extent(created_by(0, 64 * MIB), 65 * MIB).extent_len, 128 * MIB);
	ck_assert_uint_eq(extent(created_by(0, 0), 60 * MIB).extent_len, 256 * MIB);
	/* More than half of the arena. */
	ck_assert_uint_eq(extent(created_by(0, UINT64_C(1) << 39), UINT64_C(3) << 37).extent_len,
			  UINT64_C(1) << 39);
}
END_TEST

START_TEST(a_users_addresses_are_bounded)
{
	ramp_segment_t first, other;

	/* Below that level there is no bound, and none can be set. */
	ck_assert_int_eq(set_arena_user_max(128 * MIB), -EOPNOTSUPP);
	first = created_by(7, 64 * MIB);
	ck_assert_int_eq(extent(first, 1).result, 0);
	raise_level();
	ck_assert_int_eq(set_arena_user_max(192 * MIB), 0);
	ck_assert_uint_eq(use_of(7), 64 * MIB);
	other = created_by(7, 256 * MIB);
	ck_assert_int_eq(extent(other, 1).result, -EDQUOT);
	ck_assert_uint_eq(row_of(other).extent_len, 0);
	ck_assert_int_eq(extent(created_by(7, 128 * MIB), 1).result, 0);
	ck_assert_int_eq(extent(created_by(7, 64 * MIB), 1).result, -EDQUOT);
	ck_assert_int_eq(extent(first, 1).result, 0); /* it has one */
	ck_assert_int_eq(extent(created_by(8, 64 * MIB), 1).result, 0);
	ck_assert_int_eq(extent(created_by(0, 512 * MIB), 1).result, 0);
	ck_assert_uint_eq(use_of(7), 192 * MIB);

	/* Root gave one of them to another user. */
	ck_assert_int_eq(apply((struct meta_command){.type = META_SETATTR,
						     .id = first,
						     .flags = META_SET_UID,
						     .attr.uid = 9})
				 .result,
			 0);
	ck_assert_uint_eq(use_of(7), 128 * MIB);
	ck_assert_uint_eq(use_of(9), 64 * MIB);
	ck_assert_int_eq(extent(created_by(7, 64 * MIB), 1).result, 0);
}
END_TEST

START_TEST(an_orphans_addresses_are_its_users_until_they_are_free)
{
	ramp_segment_t id[2], open;
	int i;

	raise_level();
	ck_assert_int_eq(set_arena_user_max(128 * MIB), 0);
	for (i = 0; i < 2; i++) {
		id[i] = created_by(7, 64 * MIB);
		ck_assert_int_eq(extent(id[i], 1).result, 0);
		ck_assert_int_eq(do_unlink(id[i], row_of(id[i]).name), 0);
		ck_assert_int_eq(row_of(id[i]).phase, SEGMENT_ORPHAN);
	}
	ck_assert_uint_eq(use_of(7), 128 * MIB);
	ck_assert_int_eq(extent(created_by(7, 64 * MIB), 1).result, -EDQUOT);
	/* Nor does one get more whose name goes before it is mapped. */
	open = created(1, "open");
	ck_assert_int_eq(do_unlink(open, "open"), 0);
	ck_assert_int_eq(extent_of_unlinked(open, 1, 11).result, -EDQUOT);
	ck_assert(is_gone(open));

	ck_assert_int_eq(apply((struct meta_command){.type = META_FREED, .id = id[0]}).result, 0);
	ck_assert_int_eq(extent_of_unlinked(open, 1, 11).result, 0);
	ck_assert_uint_eq(use_of(7), 128 * MIB);
	ck_assert_int_eq(node_up(1, 21, 101), 0); /* R12: both orphans were of 11 */
	ck_assert_uint_eq(use_of(7), 0);
}
END_TEST

/* In an arena of four times 64 MiB, an eighth of which is less than one extent: one it is. */
START_TEST(a_bound_is_an_eighth_of_the_arena_until_it_is_set)
{
	ramp_segment_t id[4], first = created_by(7, 64 * MIB);
	int round, i;

	raise_level();
	ck_assert_int_eq(extent(first, 1).result, 0);
	ck_assert_int_eq(extent(created_by(7, 64 * MIB), 1).result, -EDQUOT);
	ck_assert_int_eq(do_unlink(first, row_of(first).name), 0);
	apply((struct meta_command){.type = META_FREED, .id = first});
	ck_assert_int_eq(set_arena_user_max(1024 * MIB), 0);
	/* All that was freed is given out again, and again. */
	for (round = 0; round < 3; round++) {
		for (i = 0; i < 4; i++) {
			id[i] = created_by(7, 64 * MIB);
			ck_assert_uint_eq(extent(id[i], 1).extent_addr,
					  ARENA + (uint64_t)i * 64 * MIB);
		}
		ck_assert_int_eq(extent(created_by(7, 64 * MIB), 1).result, -ENOSPC);
		for (i = 0; i < 4; i++) {
			ck_assert_int_eq(do_unlink(id[i], row_of(id[i]).name), 0);
			apply((struct meta_command){.type = META_FREED, .id = id[i]});
		}
		ck_assert_uint_eq(use_of(7), 0);
	}
	ck_assert_int_eq(set_arena_user_max(META_DEFAULT), 0);
	ck_assert_int_eq(extent(created_by(7, 128 * MIB), 1).result, -EDQUOT);
}
END_TEST

START_TEST(a_full_arena_is_enospc_until_something_is_freed)
{
	ramp_segment_t id[4], big = created(1, "big");
	char name[16];
	int i;

	ck_assert_int_eq(extent(big, 100 * MIB).result, -ENOSPC);
	for (i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		id[i] = created(1, name);
		ck_assert_int_eq(extent(id[i], 1).result, 0);
	}
	ck_assert_int_eq(extent(big, 1).result, -ENOSPC);
	ck_assert_int_eq(do_unlink(id[0], "f0"), 0);
	ck_assert_int_eq(do_unlink(id[2], "f2"), 0);
	ck_assert_int_eq(extent(big, 1).result, -ENOSPC);
	apply((struct meta_command){.type = META_FREED, .id = id[0]});
	apply((struct meta_command){.type = META_FREED, .id = id[2]});
	/* Two holes of 64 MiB do not hold an extent of 128. */
	ck_assert_int_eq(extent(big, 32 * MIB).result, -ENOSPC);
	do_unlink(id[1], "f1");
	apply((struct meta_command){.type = META_FREED, .id = id[1]});
	ck_assert_int_eq(extent(big, 32 * MIB).result, 0);
	ck_assert_uint_eq(row_of(big).extent_addr, ARENA);
}
END_TEST

START_TEST(an_extent_lies_in_the_arena_wherever_that_begins)
{
	ramp_segment_t small = created(1, "small"), big = created(1, "big");
	struct meta_reply r = extent(small, 1);

	ck_assert_uint_eq(r.extent_addr, ODD_ARENA);
	ck_assert_uint_eq(extent(big, 32 * MIB).extent_addr, ODD_ARENA + 64 * MIB);
	ck_assert_int_eq(do_unlink(small, "small"), 0);
	apply((struct meta_command){.type = META_FREED, .id = small});
	r = extent(created(1, "other"), 32 * MIB);
	ck_assert_int_eq(r.result, 0);
	ck_assert_uint_eq(r.extent_addr, ODD_ARENA + 192 * MIB);
	r = extent(created(1, "third"), 1);
	ck_assert_uint_eq(r.extent_addr, ODD_ARENA);
}
END_TEST

START_TEST(one_that_is_open_gets_an_extent_after_its_name_has_gone)
{
	ramp_segment_t id = created(1, "x");
	struct segment_row row;
	struct meta_reply r;

	ck_assert_int_eq(do_unlink(id, "x"), 0);
	ck_assert_int_eq(extent(id, 1).result, -ENOENT); /* no owner asks */
	ck_assert_int_eq(extent_of_unlinked(id, 1, 10).result, -EHOSTDOWN);
	ck_assert_int_eq(extent_of_unlinked(id, 9, 19).result, -EHOSTDOWN);
	ck_assert_int_eq(extent_of_unlinked(id + 1, 1, 11).result, -ENOENT); /* never was */
	ck_assert_int_eq(extent_of_unlinked(RAMP_SEGMENT_ID_MIN - 1, 1, 11).result, -ENOENT);
	ck_assert(is_gone(id));
	r = extent_of_unlinked(id, 1, 11);
	ck_assert_int_eq(r.result, 0);
	row = row_of(id);
	ck_assert_int_eq(row.phase, SEGMENT_ORPHAN);
	ck_assert(row.unlinked);
	ck_assert_uint_eq(row.node, 1);
	ck_assert_uint_eq(row.node_inc, 11);
	ck_assert_uint_gt(row.epoch, 1);
	ck_assert_uint_eq(row.mode, 0604);
	ck_assert_uint_eq(row.uid, 7);
	ck_assert_uint_eq(row.size, 99);
	ck_assert_int_eq(row.pages, SEGMENT_PAGES_SMALL);
	ck_assert_uint_eq(row.extent_len, RAMP_EXTENT_MIN);
	ck_assert_uint_eq(extent_of_unlinked(id, 1, 11).extent_addr, row.extent_addr);
	/* It is found by no name, and can only be freed. */
	ck_assert_uint_eq(named(1, ""), 0);
	ck_assert_int_eq(rename_to(id, "x", "y", 0).result, -ENOENT);
	ck_assert_int_eq(prepare(id, row.epoch, K, 1, 2, "x").result, -ESTALE);
	ck_assert_uint_ne(created(1, "x"), id);
}
END_TEST

START_TEST(what_was_asked_for_before_the_unlink_is_given_after_it)
{
	ramp_segment_t id = created(1, "x");
	struct meta_command ask = {.type = META_SETATTR, .id = id, .flags = META_SET_EXTENT};

	ask.attr.extent_asked = 128 * MIB;
	ck_assert_int_eq(apply(ask).result, 0);
	ck_assert_int_eq(do_unlink(id, "x"), 0);
	ck_assert_int_eq(row_of(id).phase, SEGMENT_ORPHAN);
	ck_assert_uint_eq(extent_of_unlinked(id, 1, 11).extent_len, 128 * MIB);
	ck_assert_uint_eq(row_of(id).mode, 0640); /* the row's own */
	ck_assert_int_eq(apply((struct meta_command){.type = META_FREED, .id = id}).result, 0);
	ck_assert(is_gone(id));
}
END_TEST

/* The arena holds four. */
START_TEST(extents_of_the_unlinked_are_given_back_by_freed_and_by_the_incarnations_end)
{
	ramp_segment_t id[4];
	int i, round;

	for (round = 0; round < 3; round++) {
		for (i = 0; i < 4; i++) {
			id[i] = created(2, "x");
			ck_assert_int_eq(do_unlink(id[i], "x"), 0);
			ck_assert_int_eq(extent_of_unlinked(id[i], 2, 12).result, 0);
		}
		ck_assert_int_eq(extent(created(1, "none"), 1).result, -ENOSPC);
		ck_assert_int_eq(do_unlink(named(1, "none"), "none"), 0);
		for (i = 0; i < 4; i++)
			ck_assert_int_eq(
				apply((struct meta_command){.type = META_FREED, .id = id[i]})
					.result,
				0);
	}
	/* A late proposal, when the bytes were gone: it can be freed like any other. */
	ck_assert_int_eq(extent_of_unlinked(id[0], 2, 12).result, 0);
	ck_assert_int_eq(extent_of_unlinked(id[1], 2, 12).result, 0);
	ck_assert_int_eq(apply((struct meta_command){.type = META_FREED, .id = id[0]}).result, 0);
	ck_assert_int_eq(node_up(2, 22, 102), 0);
	ck_assert(is_gone(id[1]));
	for (i = 0; i < 4; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%d", i);
		ck_assert_int_eq(extent(created(1, name), 1).result, 0);
	}
}
END_TEST

/* ---- extents given back --------------------------------------------------------------------- */

static int unextent(ramp_segment_t id, uint64_t epoch, uint64_t addr)
{
	struct meta_command c = {.type = META_UNEXTENT, .id = id, .epoch = epoch, .value = addr};

	return apply(c).result;
}

static void raise_to(uint64_t level)
{
	struct meta_command c = {.type = META_LEVEL_UP, .value = level};

	ck_assert_int_eq(apply(c).result, 0);
}

START_TEST(an_extent_that_was_given_back_is_free_for_others)
{
	ramp_segment_t id = created_by(7, 64 * MIB);
	uint64_t addr = extent(id, 1).extent_addr;
	struct segment_row row = row_of(id);

	raise_level();
	ck_assert_int_eq(unextent(id, row.epoch, addr), -EOPNOTSUPP);
	ck_assert_uint_eq(row_of(id).extent_addr, addr);
	raise_to(META_LEVEL_UNEXTENT);
	ck_assert_int_eq(unextent(id, row.epoch, addr), 0);
	ck_assert_uint_eq(row_of(id).extent_len, 0);
	ck_assert_uint_eq(row_of(id).extent_addr, 0);
	ck_assert_uint_eq(row_of(id).epoch, row.epoch + 1);
	ck_assert_uint_eq(row_of(id).extent_asked, 64 * MIB);
	ck_assert_uint_eq(use_of(7), 0);
	ck_assert_int_eq(unextent(id, row.epoch + 1, addr), -ENODATA);
	/* Another one gets the place, and this one another. */
	ck_assert_uint_eq(extent(created_by(8, 64 * MIB), 1).extent_addr, addr);
	ck_assert_uint_eq(extent(id, 1).extent_addr, addr + 64 * MIB);
	ck_assert_uint_eq(use_of(7), 64 * MIB);
}
END_TEST

START_TEST(a_row_that_has_changed_keeps_its_extent)
{
	ramp_segment_t id;
	uint64_t addr, e;

	raise_to(META_LEVEL_UNEXTENT);
	id = created(1, "x");
	addr = extent(id, 1).extent_addr;
	e = row_of(id).epoch;
	ck_assert_int_eq(unextent(id, e + 1, addr), -ESTALE);
	ck_assert_int_eq(unextent(id, e, addr + 64 * MIB), -ESTALE);
	ck_assert_int_eq(unextent(12, e, addr), -ESTALE);
	/* A move that began before, and one that is pulling; settled, its epoch is another. */
	ck_assert_int_eq(prepare(id, e, K, 1, 2, "").result, 0);
	ck_assert_int_eq(unextent(id, e, addr), -EBUSY);
	ck_assert_int_eq(unextent(id, e + 1, addr), -EBUSY);
	ck_assert_int_eq(step_k(META_TAKEN, id, e + 1, K).result, 0);
	ck_assert_int_eq(unextent(id, row_of(id).epoch, addr), -ESTALE);
	ck_assert_int_eq(step_k(META_SETTLED, id, e + 1, K).result, 0);
	ck_assert_int_eq(unextent(id, e, addr), -ESTALE);
	ck_assert_uint_eq(row_of(id).extent_addr, addr);
	/* It is given back first: a prepare by the row before comes too late. */
	e = row_of(id).epoch;
	ck_assert_int_eq(unextent(id, e, addr), 0);
	ck_assert_int_eq(prepare(id, e, K2, 2, 1, "").result, -ESTALE);
	/* An orphan's stays until it is freed. */
	addr = extent(id, 1).extent_addr;
	ck_assert_int_eq(do_unlink(id, "x"), 0);
	ck_assert_int_eq(unextent(id, row_of(id).epoch, addr), -ESTALE);
}
END_TEST

/* The owner's daemon was killed with an UNEXTENT under way, and the next one's attach asks for the extent:
   whichever is applied first, no extent goes that has been told to the attach. */
START_TEST(an_extent_that_was_asked_for_since_is_not_given_back)
{
	struct meta_origin before = {.node = 1, .life = 3, .number = 9, .lowest = 9};
	struct meta_origin after = {.node = 1, .life = 4, .number = 1, .lowest = 1};
	struct meta_command give = {.type = META_UNEXTENT}, ask = {.type = META_EXTENT};
	struct fsm_result res;

	raise_to(META_LEVEL_UNEXTENT);
	give.id = ask.id = created(1, "x");
	give.value = extent(ask.id, 1).extent_addr;
	give.epoch = row_of(ask.id).epoch;
	give.cid = (struct meta_command_id){77, 1};
	ask.cid = (struct meta_command_id){77, 2};
	ask.map_len = 1;
	res = apply_from(&after, &ask);
	ck_assert(res.command);
	ck_assert_uint_eq(res.reply.extent_addr, give.value);
	res = apply_from(&before, &give);
	ck_assert(!res.command);
	ck_assert_uint_eq(row_of(ask.id).extent_addr, give.value);

	/* In one life: it was given up, and is below the lowest number that its node waits for. */
	before = (struct meta_origin){.node = 1, .life = 4, .number = 2, .lowest = 2};
	after = (struct meta_origin){.node = 1, .life = 4, .number = 3, .lowest = 3};
	give.cid = (struct meta_command_id){77, 3};
	ask.cid = (struct meta_command_id){77, 4};
	ck_assert_uint_eq(apply_from(&after, &ask).reply.extent_addr, give.value);
	ck_assert(!apply_from(&before, &give).command);
	ck_assert_uint_eq(row_of(ask.id).extent_addr, give.value);
}
END_TEST

/* ---- created with an extent ------------------------------------------------------------------ */

static struct meta_reply create_with(const char *name, uint32_t uid, uint64_t size, uint64_t asked)
{
	struct meta_command c = {.type = META_CREATE, .flags = META_WITH_EXTENT, .node = 1};

	snprintf(c.name, sizeof(c.name), "%s", name);
	c.attr = (struct segment_row){.mode = 0604,
				      .uid = uid,
				      .size = size,
				      .extent_asked = asked,
				      .pages = SEGMENT_PAGES_SMALL};
	return apply(c);
}

START_TEST(a_segment_is_made_with_its_extent_at_once)
{
	struct meta_reply r;
	struct segment_row row;

	raise_level();
	ck_assert_int_eq(create_with("early", 0, MIB, 0).result, -EOPNOTSUPP);
	ck_assert_uint_eq(named(1, "early"), 0);
	raise_to(META_LEVEL_CREATE_EXTENT);
	r = create_with("x", 7, 20 * MIB, 0);
	ck_assert_int_eq(r.result, 0);
	row = row_of(r.id);
	ck_assert_uint_eq(named(1, "x"), r.id);
	ck_assert_uint_eq(row.size, 20 * MIB);
	ck_assert_uint_eq(row.epoch, 1);
	ck_assert_uint_eq(row.mode, 0604);
	ck_assert_uint_eq(row.pages, SEGMENT_PAGES_SMALL);
	ck_assert_uint_eq(row.extent_len, 128 * MIB);
	ck_assert_uint_eq(r.extent_addr, row.extent_addr);
	ck_assert_uint_eq(r.extent_len, row.extent_len);
	ck_assert_uint_eq(use_of(7), 128 * MIB);
	/* An attach that asks has the same; what was asked for is taken as it is; no two overlap. */
	ck_assert_uint_eq(extent(r.id, 1).extent_addr, row.extent_addr);
	r = create_with("y", 7, 20 * MIB, 64 * MIB);
	ck_assert_uint_eq(r.extent_len, 64 * MIB);
	ck_assert_uint_eq(row_of(r.id).extent_asked, 64 * MIB);
	ck_assert_uint_eq(r.extent_addr, row.extent_addr + 128 * MIB);
	ck_assert_uint_eq(create_with("z", 7, 65 * MIB, 64 * MIB).extent_len, 128 * MIB);
	/* It goes as any mapped one does, and its place is free then. */
	ck_assert_int_eq(do_unlink(r.id, "y"), 0);
	ck_assert_int_eq(row_of(r.id).phase, SEGMENT_ORPHAN);
	ck_assert_int_eq(apply((struct meta_command){.type = META_FREED, .id = r.id}).result, 0);
	ck_assert_uint_eq(create_with("y", 7, 1, 64 * MIB).extent_addr, r.extent_addr);
}
END_TEST

/* The number of the next segment tells that nothing else was made of it either. */
START_TEST(a_segment_that_gets_no_extent_is_not_made)
{
	ramp_segment_t first, last;
	uint64_t len = UINT64_C(1) << 39; /* half of the arena */

	raise_to(META_LEVEL_CREATE_EXTENT);
	first = created(1, "x");
	ck_assert_int_eq(set_arena_user_max(128 * MIB), 0);
	ck_assert_int_eq(create_with("x", 0, MIB, 0).result, -EEXIST);
	ck_assert_int_eq(create_with("a", 7, MIB, 256 * MIB).result, -EDQUOT);
	ck_assert_int_eq(create_with("a", 7, 33 * MIB, 0).result, -EDQUOT);
	ck_assert_int_eq(create_with("a", 0, MIB, UINT64_C(1) << 60).result, -ENOSPC);
	ck_assert_int_eq(create_with("a", 0, UINT64_MAX, 0).result, -ENOSPC);
	ck_assert_uint_eq(named(1, "a"), 0);
	ck_assert_uint_eq(use_of(7) + use_of(0), 0);
	ck_assert_int_eq(create_with("a", 7, MIB, 128 * MIB).result, 0);
	ck_assert_int_eq(create_with("b", 7, MIB, 64 * MIB).result, -EDQUOT);
	ck_assert_int_eq(create_with("b", 0, MIB, len).result, 0);
	ck_assert_int_eq(create_with("c", 0, MIB, len).result, -ENOSPC);
	ck_assert_uint_eq(named(1, "c"), 0);
	last = created(1, "last");
	ck_assert_uint_eq(last, first + 3);
}
END_TEST

/* A log of before has CREATEs without, and they are what they were. */
START_TEST(a_create_without_an_extent_has_the_bytes_of_before)
{
	struct meta_origin origin = {.node = 1, .life = 2, .number = 3, .lowest = 3}, o;
	struct meta_command c = {.type = META_CREATE, .node = 1, .node_inc = 11, .name = "x"}, d;
	uint8_t bytes[META_COMMAND_BYTES], with[META_COMMAND_BYTES];
	size_t len, more;

	c.attr = (struct segment_row){.mode = 0600, .uid = 7, .gid = 8};
	len = command_encode(&origin, &c, bytes, sizeof(bytes));
	/* Version, type, origin, id of the command, time; node, incarnation, owner, name. */
	ck_assert_uint_eq(len, 1 + 1 + 28 + 16 + 12 + 4 + 8 + 12 + 4 + 1);
	c.attr.size = MIB;
	c.attr.extent_asked = 64 * MIB;
	c.attr.pages = SEGMENT_PAGES_SMALL;
	ck_assert_uint_eq(command_encode(&origin, &c, with, sizeof(with)), len);
	ck_assert_mem_eq(with, bytes, len);
	ck_assert_int_eq(command_decode(bytes, len, &o, &d), 0);
	ck_assert_uint_eq(d.flags, 0);
	ck_assert_uint_eq(d.attr.size + d.attr.extent_asked, 0);
	c.flags = META_WITH_EXTENT;
	more = command_encode(&origin, &c, with, sizeof(with));
	ck_assert_uint_eq(more, len + 4 + 8 + 8 + 1);
	ck_assert_mem_eq(with, bytes, len);
	ck_assert_int_eq(command_decode(with, more, &o, &d), 0);
	ck_assert_uint_eq(d.flags, META_WITH_EXTENT);
	ck_assert_uint_eq(d.attr.size, MIB);
	ck_assert_uint_eq(d.attr.extent_asked, 64 * MIB);
	ck_assert_uint_eq(d.attr.pages, SEGMENT_PAGES_SMALL);
	for (size_t cut = len + 1; cut < more; cut++)
		ck_assert_int_eq(command_decode(with, cut, &o, &d), -EPROTO);
	with[more - 1] = SEGMENT_PAGES_HUGE + 1;
	ck_assert_int_eq(command_decode(with, more, &o, &d), -EPROTO);
	with[more - 1] = 0;
	memset(with + len, 0, 4);
	ck_assert_int_eq(command_decode(with, more, &o, &d), -EPROTO);
	c.flags = META_WITH_EXTENT | META_IN_NODE;
	ck_assert_uint_eq(command_encode(&origin, &c, with, sizeof(with)), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("meta_arena");
	TCase *rules = tcase_create("rules");
	TCase *small = tcase_create("small");
	TCase *odd = tcase_create("odd");

	tcase_add_checked_fixture(rules, rules_setup, rules_teardown);
	suite_add_tcase(s, rules);
	tcase_add_test(rules, extents_are_powers_of_two_and_never_overlap);
	tcase_add_test(rules, an_extent_is_four_times_size_or_mapping_and_for_life);
	tcase_add_test(rules, what_was_asked_for_is_taken_as_it_is);
	tcase_add_test(rules, a_users_addresses_are_bounded);
	tcase_add_test(rules, an_orphans_addresses_are_its_users_until_they_are_free);
	tcase_add_test(rules, one_that_is_open_gets_an_extent_after_its_name_has_gone);
	tcase_add_test(rules, what_was_asked_for_before_the_unlink_is_given_after_it);
	tcase_add_test(rules, an_extent_that_was_given_back_is_free_for_others);
	tcase_add_test(rules, a_row_that_has_changed_keeps_its_extent);
	tcase_add_test(rules, an_extent_that_was_asked_for_since_is_not_given_back);
	tcase_add_test(rules, a_segment_is_made_with_its_extent_at_once);
	tcase_add_test(rules, a_segment_that_gets_no_extent_is_not_made);
	tcase_add_test(rules, a_create_without_an_extent_has_the_bytes_of_before);
	tcase_add_checked_fixture(small, rules_setup_small_arena, rules_teardown);
	suite_add_tcase(s, small);
	tcase_add_test(small, a_bound_is_an_eighth_of_the_arena_until_it_is_set);
	tcase_add_test(small, a_full_arena_is_enospc_until_something_is_freed);
	tcase_add_test(small,
		       extents_of_the_unlinked_are_given_back_by_freed_and_by_the_incarnations_end);
	tcase_add_checked_fixture(odd, rules_setup_odd_arena, rules_teardown);
	suite_add_tcase(s, odd);
	tcase_add_test(odd, an_extent_lies_in_the_arena_wherever_that_begins);
	return s;
}

int main(void)
{
	return run_suite(suite());
}
