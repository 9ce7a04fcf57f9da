/*
 * The state machine's rules, one by one: segments, members, retries, levels.
 */
#include <errno.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/transfer_mode.h"
#include "lib/run_suite.h"
#include "meta/fsm_level.h"
#include "meta/fsm_members.h"
#include "meta/journal_dump.h"
#include "meta/journal_results.h"
#include "meta_rules.h"

/* ---- create, unlink, rename, setattr ------------------------------------------------------- */

START_TEST(create_gives_a_row_and_a_name)
{
	ramp_segment_t id = created(2, "x");
	struct segment_row row = row_of(id);

	ck_assert_uint_ge(id, RAMP_SEGMENT_ID_MIN);
	ck_assert_int_eq(row.phase, SEGMENT_STABLE);
	ck_assert_uint_eq(row.node, 2);
	ck_assert_uint_eq(row.node_inc, 12);
	ck_assert_uint_eq(row.mode, 0640);
	ck_assert_int_eq(row.mtime.sec, (int64_t)t.unique);
	ck_assert_uint_eq(named(2, "x"), id);
	ck_assert_uint_eq(named(1, "x"), 0);
	ck_assert_uint_gt(created(2, "y"), id);
}
END_TEST

START_TEST(create_refuses)
{
	struct meta_command c = {.type = META_CREATE, .node = 2, .node_inc = 99, .name = "y"};

	created(2, "x");
	ck_assert_int_eq(create(2, "x").result, -EEXIST);
	ck_assert_int_eq(create(9, "x").result, -ENOENT);
	ck_assert_int_eq(apply(c).result, -EHOSTDOWN);
	ck_assert_int_eq(fence(2, 12), 0);
	ck_assert_int_eq(create(2, "z").result, -EHOSTDOWN);
}
END_TEST

START_TEST(unlink_without_an_extent_is_at_once)
{
	ramp_segment_t id = created(1, "x");

	ck_assert_int_eq(do_unlink(id, "y"), -ENOENT);
	ck_assert_int_eq(do_unlink(id, "x"), 0);
	ck_assert(is_gone(id));
	ck_assert_uint_eq(named(1, "x"), 0);
	ck_assert_int_eq(do_unlink(id, "x"), -ENOENT);
	ck_assert_uint_ne(created(1, "x"), id);
}
END_TEST

START_TEST(unlink_with_an_extent_leaves_an_orphan_until_freed)
{
	ramp_segment_t id = created(1, "x");
	uint64_t addr = extent(id, 1).extent_addr;
	struct segment_row row;

	ck_assert_int_eq(do_unlink(id, "x"), 0);
	row = row_of(id);
	ck_assert_int_eq(row.phase, SEGMENT_ORPHAN);
	ck_assert_uint_eq(row.node, 1);
	ck_assert_uint_eq(row.node_inc, 11);
	ck_assert_uint_eq(named(1, "x"), 0);
	ck_assert_int_eq(do_unlink(id, "x"), -ENOENT);
	ck_assert_int_eq(rename_to(id, "x", "y", 0).result, -ENOENT);

	/* No other segment gets its addresses meanwhile. */
	ck_assert_uint_ne(extent(created(1, "x"), 1).extent_addr, addr);
	ck_assert_int_eq(apply((struct meta_command){.type = META_FREED, .id = id}).result, 0);
	ck_assert(is_gone(id));
	ck_assert_uint_eq(extent(created(1, "z"), 1).extent_addr, addr);
	ck_assert_int_eq(apply((struct meta_command){.type = META_FREED, .id = id}).result,
			 -ESTALE);
	id = created(1, "w");
	ck_assert_int_eq(apply((struct meta_command){.type = META_FREED, .id = id}).result,
			 -ESTALE);
}
END_TEST

START_TEST(orphans_go_with_their_incarnation)
{
	ramp_segment_t early = created(2, "x"), fenced = created(3, "y"), late = created(2, "z");
	uint64_t addr = extent(early, 1).extent_addr;

	extent(fenced, 1);
	extent(late, 1);
	ck_assert_int_eq(do_unlink(early, "x"), 0);
	ck_assert_int_eq(do_unlink(fenced, "y"), 0);
	ck_assert_int_eq(node_up(2, 12, 102), 0); /* the same incarnation: a daemon's restart */
	ck_assert(!is_gone(early));
	ck_assert_int_eq(node_up(2, 22, 102), 0); /* another one: the machine's restart */
	ck_assert(is_gone(early));
	ck_assert(!is_gone(fenced));
	ck_assert_int_eq(fence(3, 13), 0);
	ck_assert(is_gone(fenced));
	/* A segment that was lost with it and is unlinked only now. */
	ck_assert_int_eq(do_unlink(late, "z"), 0);
	ck_assert(is_gone(late));
	ck_assert_uint_eq(extent(created(1, "w"), 1).extent_addr, addr);
}
END_TEST

START_TEST(rename_replaces_or_refuses)
{
	ramp_segment_t x = created(1, "x"), y = created(1, "y");
	struct meta_reply r;

	ck_assert_int_eq(rename_to(x, "x", "y", RENAME_NOREPLACE).result, -EEXIST);
	ck_assert_int_eq(rename_to(x, "q", "z", 0).result, -ENOENT);
	r = rename_to(x, "x", "y", 0);
	ck_assert_int_eq(r.result, 0);
	ck_assert_uint_eq(r.other, y);
	ck_assert(is_gone(y));
	ck_assert_uint_eq(named(1, "y"), x);
	ck_assert_uint_eq(named(1, "x"), 0);
	ck_assert_str_eq(row_of(x).name, "y");
}
END_TEST

START_TEST(rename_over_a_mapped_segment_leaves_an_orphan)
{
	ramp_segment_t x = created(1, "x"), y = created(1, "y");

	extent(y, 1);
	ck_assert_int_eq(rename_to(x, "x", "y", 0).result, 0);
	ck_assert_int_eq(row_of(y).phase, SEGMENT_ORPHAN);
	ck_assert_uint_eq(named(1, "y"), x);
}
END_TEST

START_TEST(setattr_sets_what_its_mask_says)
{
	ramp_segment_t id = created(1, "x");
	struct meta_command c = {.type = META_SETATTR, .id = id};
	struct segment_row before = row_of(id), after;

	c.flags = META_SET_UID | META_SET_SIZE | META_SET_MTIME | META_SET_PAGES;
	c.attr.uid = 7;
	c.attr.gid = 8;
	c.attr.size = 12345;
	c.attr.mtime = (struct meta_time){.sec = -3, .nsec = 4};
	c.attr.pages = SEGMENT_PAGES_SMALL;
	ck_assert_int_eq(apply(c).result, 0);
	after = row_of(id);
	ck_assert_uint_eq(after.uid, 7);
	ck_assert_uint_eq(after.gid, before.gid);
	ck_assert_uint_eq(after.size, 12345);
	ck_assert_int_eq(after.mtime.sec, -3);
	ck_assert_uint_eq(after.mtime.nsec, 4);
	ck_assert_int_eq(after.pages, SEGMENT_PAGES_SMALL);
	ck_assert_uint_eq(after.epoch, before.epoch);

	c.flags = META_SET_MODE;
	c.attr.mode = 06751;
	ck_assert_int_eq(apply(c).result, 0);
	c.flags = META_CLEAR_SGID;
	ck_assert_int_eq(apply(c).result, 0);
	ck_assert_uint_eq(row_of(id).mode, 04751);
	c.flags = META_CLEAR_SUID;
	ck_assert_int_eq(apply(c).result, 0);
	ck_assert_uint_eq(row_of(id).mode, 0751);

	c.flags = META_SET_EXTENT;
	c.attr.extent_asked = 1024 * MIB;
	ck_assert_int_eq(apply(c).result, 0);
	ck_assert_uint_eq(extent(id, 1).extent_len, 1024 * MIB);
	ck_assert_int_eq(apply(c).result, -EBUSY);
	c.id = 1;
	ck_assert_int_eq(apply(c).result, -ENOENT);
}
END_TEST

/* An owner's hint of size and times, sent before the segment left, arrives when another node owns
   it, which would take the old times from the row. */
START_TEST(a_late_hint_is_nobodys)
{
	struct meta_command hint = {.type = META_SETATTR,
				    .epoch = 1,
				    .flags = META_SET_SIZE | META_SET_MTIME | META_AT_EPOCH,
				    .attr = {.size = 100, .mtime = {.sec = 1000}}};
	struct meta_command utimens = {.type = META_SETATTR, .flags = META_SET_MTIME};
	struct segment_row row;
	uint64_t e;

	hint.id = utimens.id = created(1, "x");
	ck_assert_int_eq(apply(hint).result, 0);
	ck_assert_uint_eq(row_of(hint.id).size, 100);
	ck_assert_int_eq(prepare(hint.id, 1, K, 1, 2, "x").result, 0);
	e = row_of(hint.id).epoch;
	ck_assert_int_eq(apply(hint).result, -EBUSY);
	ck_assert_int_eq(step_k(META_TAKEN, hint.id, e, K).result, 0);
	/* The new owner has written to it. */
	hint.epoch = row_of(hint.id).epoch;
	hint.attr.size = 200;
	hint.attr.mtime.sec = 2000;
	ck_assert_int_eq(apply(hint).result, 0);
	hint.epoch = 1;
	hint.attr.size = 100;
	hint.attr.mtime.sec = 1000;
	ck_assert_int_eq(apply(hint).result, -ESTALE);
	row = row_of(hint.id);
	ck_assert_uint_eq(row.size, 200);
	ck_assert_int_eq(row.mtime.sec, 2000);
	/* Nor when it is back at the first owner. */
	ck_assert_int_eq(step_k(META_SETTLED, hint.id, e, K).result, 0);
	e = prepare(hint.id, row_of(hint.id).epoch, K2, 2, 1, "x").epoch;
	ck_assert_int_eq(step_k(META_TAKEN, hint.id, e, K2).result, 0);
	ck_assert_uint_eq(row_of(hint.id).node, 1);
	ck_assert_int_eq(apply(hint).result, -ESTALE);
	ck_assert_int_eq(row_of(hint.id).mtime.sec, 2000);
	/* A user's request has no epoch. */
	utimens.attr.mtime.sec = 500;
	ck_assert_int_eq(apply(utimens).result, 0);
	ck_assert_int_eq(row_of(hint.id).mtime.sec, 500);
}
END_TEST

START_TEST(a_hint_does_not_undo_what_its_owner_has_not_seen)
{
	struct meta_command hint = {.type = META_SETATTR,
				    .epoch = 1,
				    .flags = META_SET_SIZE | META_SET_MTIME | META_AT_EPOCH,
				    .attr = {.size = 100, .mtime = {.sec = 1000}}};
	struct meta_command utimens = {.type = META_SETATTR,
				       .flags = META_SET_MTIME | META_SET_CTIME,
				       .attr = {.mtime = {.sec = 500}, .ctime = {5000, 7}}};

	hint.id = utimens.id = created(1, "x");
	hint.attr.ctime = row_of(hint.id).ctime;
	ck_assert(hint.attr.ctime.sec || hint.attr.ctime.nsec);
	ck_assert_int_eq(apply(hint).result, 0);
	ck_assert_int_eq(row_of(hint.id).mtime.sec, 1000);
	ck_assert_int_eq(apply(utimens).result, 0);
	ck_assert_int_eq(apply(hint).result, -ESTALE);
	ck_assert_int_eq(row_of(hint.id).mtime.sec, 500);
	hint.attr.ctime = row_of(hint.id).ctime;
	ck_assert_int_eq(apply(hint).result, 0);
	ck_assert_int_eq(row_of(hint.id).ctime.sec, 5000);
}
END_TEST

START_TEST(a_hint_raises_ctime_and_never_lowers_it)
{
	struct meta_command hint = {.type = META_SETATTR,
				    .epoch = 1,
				    .flags = META_SET_SIZE | META_RAISE_CTIME | META_AT_EPOCH,
				    .attr.size = 100,
				    .file_ctime = {5000, 7}};

	hint.id = created(1, "x");
	hint.attr.ctime = row_of(hint.id).ctime;
	ck_assert_int_eq(apply(hint).result, 0);
	ck_assert_int_eq(row_of(hint.id).ctime.sec, 5000);
	ck_assert_uint_eq(row_of(hint.id).ctime.nsec, 7);
	ck_assert_int_eq(apply(hint).result, -ESTALE);
	hint.attr.ctime = row_of(hint.id).ctime;
	hint.file_ctime = (struct meta_time){5000, 6};
	ck_assert_int_eq(apply(hint).result, 0);
	ck_assert_uint_eq(row_of(hint.id).ctime.nsec, 7);
	/* As older versions proposed it. */
	hint.flags &= ~META_RAISE_CTIME;
	hint.file_ctime.sec = 9000;
	ck_assert_int_eq(apply(hint).result, 0);
	ck_assert_int_eq(row_of(hint.id).ctime.sec, 5000);
}
END_TEST

/* ---- nodes and members --------------------------------------------------------------------- */

START_TEST(no_incarnation_comes_back)
{
	ck_assert_int_eq(node_up(2, 12, 102), 0);
	ck_assert_int_eq(node_up(2, 22, 102), 0);
	ck_assert_int_eq(node_up(2, 12, 102), -EPERM);
	ck_assert_int_eq(node_up(2, 32, 999), -EPERM);
	ck_assert_int_eq(node_up(9, 19, 109), -ENOENT);
	ck_assert_int_eq(fence(2, 22), 0);
	ck_assert_int_eq(node_up(2, 22, 102), -EPERM);
	ck_assert_int_eq(node_up(2, 32, 102), 0);
	ck_assert_int_eq(create(2, "x").result, 0);
}
END_TEST

static struct meta_reply add_member_at(const char *name, const char *address)
{
	struct meta_command c = {.type = META_MEMBER_ADD};

	snprintf(c.new_name, sizeof(c.new_name), "%s", name);
	snprintf(c.address, sizeof(c.address), "%s", address);
	return apply(c);
}

static struct meta_reply add_member(const char *name)
{
	return add_member_at(name, "h:4");
}

static int change_member(enum meta_command_type type, ramp_node_t node)
{
	return apply((struct meta_command){.type = type, .node = node}).result;
}

/* Does what the leader does: proposes the next configuration, until it is what the tables want. */
static int follow_tables(struct raft_conf *conf)
{
	struct raft_conf next;
	ramp_node_t subject;
	int steps = 0;

	while (fsm_next_conf(t.j, conf, &next, &subject) == 1) {
		ck_assert(raft_conf_single(conf, &next));
		*conf = next;
		apply_conf(conf);
		steps++;
	}
	return steps;
}

START_TEST(members_change_one_at_a_time)
{
	struct raft_conf conf = {.n = 3, .member = {{1, 0}, {2, 0}, {3, 0}}};
	struct meta_reply r = add_member("d");

	ck_assert_int_eq(r.result, 0);
	ck_assert_uint_eq(r.node, 4);
	ck_assert_int_eq(fsm_member_settled(t.j, 4), 0);
	r = add_member("e");
	ck_assert_int_eq(r.result, -EBUSY);
	ck_assert_uint_eq(r.node, 4); /* its change is under way */
	ck_assert_int_eq(add_member("d").result, -EEXIST);
	ck_assert_int_eq(change_member(META_MEMBER_REMOVE, 3), -EBUSY);
	ck_assert_int_eq(follow_tables(&conf), 1);
	ck_assert_int_eq(conf.member[3].role, RAFT_LEARNER);
	ck_assert_int_eq(fsm_member_settled(t.j, 4), 1);

	ck_assert_int_eq(change_member(META_MEMBER_PROMOTE, 4), 0);
	ck_assert_int_eq(change_member(META_MEMBER_REMOVE, 3), -EBUSY);
	ck_assert_int_eq(follow_tables(&conf), 1);
	ck_assert_uint_eq(raft_conf_voters(&conf), 4);
	ck_assert_int_eq(change_member(META_MEMBER_PROMOTE, 9), -ENOENT);
	ck_assert_int_eq(change_member(META_MEMBER_REMOVE, 3), 0);
	ck_assert_int_eq(follow_tables(&conf), 1);
	ck_assert_ptr_null(raft_conf_find(&conf, 3));
	/* Its number and its row are not given again; its name may be. */
	r = add_member_at("c", "h:5");
	ck_assert_int_eq(r.result, 0);
	ck_assert_uint_eq(r.node, 5);
	ck_assert_int_eq(node_up(3, 77, 103), -EPERM);
}
END_TEST

START_TEST(no_two_members_have_one_address)
{
	struct raft_conf conf = {.n = 3, .member = {{1, 0}, {2, 0}, {3, 0}}};
	struct meta_reply r = add_member_at("d", "h:4");

	ck_assert_int_eq(r.result, 0);
	follow_tables(&conf);
	r = add_member_at("e", "h:4");
	ck_assert_int_eq(r.result, -EADDRINUSE);
	ck_assert_uint_eq(r.node, 4);
	ck_assert_int_eq(add_member_at("e", "h:5").result, 0);
	follow_tables(&conf);
	/* A removed node has none. */
	ck_assert_int_eq(change_member(META_MEMBER_REMOVE, 4), 0);
	follow_tables(&conf);
	ck_assert_int_eq(add_member_at("d", "h:4").result, 0);
}
END_TEST

START_TEST(who_holds_segments_or_is_the_last_voter_stays)
{
	struct raft_conf conf = {.n = 3, .member = {{1, 0}, {2, 0}, {3, 0}}};
	uint64_t e;

	pulling("x", &e);
	ck_assert_int_eq(change_member(META_MEMBER_REMOVE, 1), -EBUSY); /* source */
	ck_assert_int_eq(change_member(META_MEMBER_REMOVE, 2), -EBUSY); /* owner */
	ck_assert_int_eq(change_member(META_MEMBER_REMOVE, 3), 0);
	follow_tables(&conf);
	ck_assert_int_eq(step_k(META_SETTLED, RAMP_SEGMENT_ID_MIN, e, K).result, 0);
	ck_assert_int_eq(change_member(META_MEMBER_REMOVE, 1), 0);
	follow_tables(&conf);
	ck_assert_int_eq(do_unlink(RAMP_SEGMENT_ID_MIN, "x"), 0);
	ck_assert_int_eq(change_member(META_MEMBER_REMOVE, 2), -EBUSY); /* last voter */
}
END_TEST

/* ---- retries ------------------------------------------------------------------------------- */

START_TEST(a_retry_is_answered_with_the_first_result)
{
	struct meta_origin nobody = {0};
	struct meta_command c = {
		.type = META_CREATE, .cid = {.client = 9, .unique = 1}, .node = 1, .name = "x"};
	struct fsm_result first = apply_from(&nobody, &c), again;

	ck_assert(first.first);
	do_unlink(first.reply.id, "x");
	again = apply_from(&nobody, &c);
	ck_assert(!again.first);
	ck_assert_uint_eq(again.reply.id, first.reply.id);
	ck_assert_uint_eq(named(1, "x"), 0);
}
END_TEST

START_TEST(copies_below_the_floor_are_dropped)
{
	struct meta_origin o = {.node = 1, .life = 3, .number = 10, .lowest = 10};
	struct meta_command c = {
		.type = META_CREATE, .cid = {.client = 9, .unique = 1}, .node = 1, .name = "x"};
	struct fsm_result res = apply_from(&o, &c);

	ck_assert_int_eq(res.reply.result, 0);
	do_unlink(res.reply.id, "x");
	o.number = o.lowest = 9; /* a late one */
	c.cid.unique = 2;
	ck_assert(!apply_from(&o, &c).command);
	o.life = 2; /* a life that ended */
	o.number = o.lowest = 50;
	ck_assert(!apply_from(&o, &c).command);
	ck_assert_uint_eq(named(1, "x"), 0);
	o.life = 4;
	o.number = o.lowest = 1;
	ck_assert(apply_from(&o, &c).command);
	ck_assert_uint_ne(named(1, "x"), 0);
}
END_TEST

START_TEST(the_last_results_of_each_client_are_kept)
{
	struct meta_origin nobody = {0};
	struct meta_reply reply;
	uint64_t i;

	for (i = 1; i <= 3 * META_RESULTS_KEPT; i++) {
		struct meta_command c = {.type = META_FREED, .id = i};

		c.cid = (struct meta_command_id){.client = 9, .unique = i};
		apply_from(&nobody, &c);
		if (i <= META_RESULTS_KEPT)
			continue;
		c.cid.unique = i - META_RESULTS_KEPT + 1;
		ck_assert_int_eq(journal_get_result(t.j, c.cid, &reply), 0);
		ck_assert_int_eq(reply.result, -ESTALE);
		c.cid.unique = i > 2 * META_RESULTS_KEPT ? i - 2 * META_RESULTS_KEPT : 0;
		ck_assert_int_eq(journal_get_result(t.j, c.cid, &reply), -ENOENT);
	}
	for (i = 1; i <= 300; i++) { /* more clients than are kept */
		struct meta_command c = {.type = META_FREED, .cid = {1000 + i, 1}};

		apply_from(&nobody, &c);
		c.cid = (struct meta_command_id){1001, 2}; /* this one is used again */
		if (i == 200)
			apply_from(&nobody, &c);
	}
	ck_assert_int_eq(
		journal_get_result(t.j, (struct meta_command_id){9, 3 * META_RESULTS_KEPT}, &reply),
		-ENOENT);
	ck_assert_int_eq(journal_get_result(t.j, (struct meta_command_id){1002, 1}, &reply),
			 -ENOENT);
	ck_assert_int_eq(journal_get_result(t.j, (struct meta_command_id){1001, 1}, &reply), 0);
	ck_assert_int_eq(journal_get_result(t.j, (struct meta_command_id){1300, 1}, &reply), 0);
}
END_TEST

static void refuse_entry(enum raft_entry_type type, const void *bytes, size_t len)
{
	struct raft_entry e = {.term = 1, .type = type, .data = raft_data_make(bytes, len)};
	struct fsm_result res;
	uint64_t before, after;

	ck_assert(!fsm_knows(&e));
	ck_assert_int_eq(journal_tables_sum(t.j, &before), 0);
	ck_assert_int_eq(journal_begin(t.j, false), 0);
	ck_assert_int_eq(fsm_apply(t.j, t.index + 1, &e, &res), -EPROTO);
	ck_assert_int_eq(journal_commit(t.j), 0);
	ck_assert(!res.command);
	ck_assert_int_eq(journal_tables_sum(t.j, &after), 0);
	ck_assert_uint_eq(before, after);
	raft_data_unref(e.data);
}

/* Skipped, it would leave these tables different from those of a program that knows it. */
START_TEST(an_entry_of_a_newer_program_is_refused_not_skipped)
{
	struct meta_command c = {.type = META_LEVEL_UP, .value = META_LEVEL_KNOWN + 1};
	struct meta_origin nobody = {0};
	uint8_t buf[META_COMMAND_BYTES];
	size_t len = command_encode(&nobody, &c, buf, sizeof(buf));

	refuse_entry(RAFT_COMMAND, "nonsense", 8);
	refuse_entry(RAFT_CONF, "nonsense", 8);
	refuse_entry((enum raft_entry_type)9, "", 0);
	refuse_entry(RAFT_COMMAND, buf, len);
	buf[1] = 200; /* a type of command that there is not yet */
	refuse_entry(RAFT_COMMAND, buf, len);
}
END_TEST

/* It shares a byte with user.ramp.mmap, in which an older program knows nothing else. */
START_TEST(a_mode_needs_its_level_and_keeps_what_is_beside_it)
{
	ramp_segment_t id = created(1, "x");
	struct meta_command c = {.type = META_SETATTR,
				 .id = id,
				 .flags = META_SET_MOVE,
				 .attr = {.move = 1 + TRANSFER_PRECOPY}};
	struct meta_command map = {.type = META_SETATTR,
				   .id = id,
				   .flags = META_SET_MMAP,
				   .attr = {.mmap = SEGMENT_MMAP_PASSTHROUGH}};
	struct meta_origin origin = {0};
	uint8_t buf[META_COMMAND_BYTES];

	ck_assert_int_eq(apply(c).result, -EOPNOTSUPP);
	ck_assert_uint_eq(row_of(id).move, 0);
	ck_assert_int_eq(
		apply((struct meta_command){.type = META_LEVEL_UP, .value = META_LEVEL_MOVE})
			.result,
		0);
	ck_assert_int_eq(apply(c).result, 0);
	ck_assert_int_eq(apply(map).result, 0);
	ck_assert_uint_eq(row_of(id).move, 1 + TRANSFER_PRECOPY);
	ck_assert_uint_eq(row_of(id).mmap, SEGMENT_MMAP_PASSTHROUGH);
	c.attr.move = 0;
	ck_assert_int_eq(apply(c).result, 0);
	ck_assert_uint_eq(row_of(id).move, 0);
	ck_assert_uint_eq(row_of(id).mmap, SEGMENT_MMAP_PASSTHROUGH);
	c.attr.move = 1 + TRANSFER_MODES;
	ck_assert_uint_eq(command_encode(&origin, &c, buf, sizeof(buf)), 0);
}
END_TEST

/* It shares a number with user.ramp.extent, in which an older program knows nothing else. */
START_TEST(a_prefill_needs_its_level_and_keeps_what_is_beside_it)
{
	ramp_segment_t id = created(1, "x");
	struct meta_command c = {.type = META_SETATTR,
				 .id = id,
				 .flags = META_SET_PREFILL,
				 .attr = {.prefill = 2, .prefill_mib_s = 200}};
	struct meta_command extent = {.type = META_SETATTR,
				      .id = id,
				      .flags = META_SET_EXTENT,
				      .attr = {.extent_asked = UINT64_C(1) << 45}};

	ck_assert_int_eq(apply(c).result, -EOPNOTSUPP);
	ck_assert_uint_eq(row_of(id).prefill, 0);
	ck_assert_int_eq(
		apply((struct meta_command){.type = META_LEVEL_UP, .value = META_LEVEL_PREFILL})
			.result,
		0);
	ck_assert_int_eq(apply(c).result, 0);
	ck_assert_int_eq(apply(extent).result, 0);
	ck_assert_uint_eq(row_of(id).prefill, 2);
	ck_assert_uint_eq(row_of(id).prefill_mib_s, 200);
	ck_assert_uint_eq(row_of(id).extent_asked, UINT64_C(1) << 45);
	c.attr.prefill = SEGMENT_PREFILL_NODES;
	c.attr.prefill_mib_s = SEGMENT_PREFILL_MIB_S;
	ck_assert_int_eq(apply(c).result, 0);
	ck_assert_uint_eq(row_of(id).prefill, SEGMENT_PREFILL_NODES);
	ck_assert_uint_eq(row_of(id).prefill_mib_s, SEGMENT_PREFILL_MIB_S);
	ck_assert_uint_eq(row_of(id).extent_asked, UINT64_C(1) << 45);
	c.attr.prefill = c.attr.prefill_mib_s = 0;
	ck_assert_int_eq(apply(c).result, 0);
	ck_assert_uint_eq(row_of(id).prefill + row_of(id).prefill_mib_s, 0);
	ck_assert_uint_eq(row_of(id).extent_asked, UINT64_C(1) << 45);
}
END_TEST

START_TEST(the_level_only_rises)
{
	uint64_t level;

	ck_assert_int_eq(fsm_level(t.j, &level), 0);
	ck_assert_uint_eq(level, 0);
	ck_assert_int_eq(apply((struct meta_command){.type = META_LEVEL_UP, .value = 1}).result, 0);
	ck_assert_int_eq(apply((struct meta_command){.type = META_LEVEL_UP, .value = 0}).result, 0);
	ck_assert_int_eq(fsm_level(t.j, &level), 0);
	ck_assert_uint_eq(level, 1);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("meta_fsm");
	TCase *rules = tcase_create("rules");

	tcase_add_checked_fixture(rules, rules_setup, rules_teardown);
	suite_add_tcase(s, rules);
	tcase_add_test(rules, create_gives_a_row_and_a_name);
	tcase_add_test(rules, create_refuses);
	tcase_add_test(rules, unlink_without_an_extent_is_at_once);
	tcase_add_test(rules, unlink_with_an_extent_leaves_an_orphan_until_freed);
	tcase_add_test(rules, orphans_go_with_their_incarnation);
	tcase_add_test(rules, rename_replaces_or_refuses);
	tcase_add_test(rules, rename_over_a_mapped_segment_leaves_an_orphan);
	tcase_add_test(rules, setattr_sets_what_its_mask_says);
	tcase_add_test(rules, a_late_hint_is_nobodys);
	tcase_add_test(rules, a_hint_does_not_undo_what_its_owner_has_not_seen);
	tcase_add_test(rules, a_hint_raises_ctime_and_never_lowers_it);
	tcase_add_test(rules, no_incarnation_comes_back);
	tcase_add_test(rules, members_change_one_at_a_time);
	tcase_add_test(rules, no_two_members_have_one_address);
	tcase_add_test(rules, who_holds_segments_or_is_the_last_voter_stays);
	tcase_add_test(rules, a_retry_is_answered_with_the_first_result);
	tcase_add_test(rules, copies_below_the_floor_are_dropped);
	tcase_add_test(rules, the_last_results_of_each_client_are_kept);
	tcase_add_test(rules, an_entry_of_a_newer_program_is_refused_not_skipped);
	tcase_add_test(rules, a_mode_needs_its_level_and_keeps_what_is_beside_it);
	tcase_add_test(rules, a_prefill_needs_its_level_and_keeps_what_is_beside_it);
	tcase_add_test(rules, the_level_only_rises);
	return s;
}

int main(void)
{
	return run_suite(suite());
}
