/*
 * The state machine's rules, one by one, each command against the rows that it finds.
 */
#include <check.h>
#include <errno.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "fsm.h"
#include "journal.h"

#define MIB   (UINT64_C(1) << 20)
#define ARENA UINT64_C(0x200000000000)

/* ---- a journal with three nodes that are up: 1, 2 and 3 with incarnations 11, 12, 13 -----------
 */

static struct {
	char dir[160], path[200];
	struct journal *j;
	uint64_t index, unique;
	char fatal[300];
} t;

static void on_fatal(void *arg, const char *text)
{
	(void)arg;
	snprintf(t.fatal, sizeof(t.fatal), "%s", text);
}

static void open_journal(const char *path, struct journal **j)
{
	struct journal_config config = {.path = path, .fatal = on_fatal};
	struct ramp_err err = {0};

	ck_assert_msg(journal_open(&config, j, &err) == 0, "%s", err.text);
}

static void make_journal(const char *path, ramp_node_t self, size_t nodes, uint64_t arena_len)
{
	struct node_row rows[3] = {0};
	struct meta_founding f = {.instance = 100 + self,
				  .self = self,
				  .arena_addr = ARENA,
				  .arena_len = arena_len,
				  .nodes = rows,
				  .n_nodes = nodes};
	struct ramp_err err = {0};
	size_t i;

	for (i = 0; i < nodes; i++) {
		rows[i].node = (ramp_node_t)i + 1;
		snprintf(rows[i].name, sizeof(rows[i].name), "%c", 'a' + (int)i);
		rows[i].role = NODE_VOTER;
	}
	ck_assert_msg(journal_create(path, NULL, &f, &err) == 0, "%s", err.text);
}

/* Applies one command in a turn of its own. */
static struct fsm_result apply_from(const struct meta_origin *origin, const struct meta_command *c)
{
	uint8_t buf[META_COMMAND_BYTES];
	size_t len = command_encode(origin, c, buf, sizeof(buf));
	struct raft_entry e = {.term = 1, .type = RAFT_COMMAND};
	struct fsm_result res;

	ck_assert_uint_gt(len, 0);
	e.data = raft_data_make(buf, len);
	ck_assert_int_eq(journal_begin(t.j, false), 0);
	ck_assert_int_eq(fsm_apply(t.j, &e, &res), 0);
	ck_assert_int_eq(journal_put_applied(t.j, ++t.index, 1), 0);
	ck_assert_int_eq(journal_commit(t.j), 0);
	raft_data_unref(e.data);
	return res;
}

static struct meta_reply apply(struct meta_command c)
{
	struct meta_origin nobody = {0};

	c.cid = (struct meta_command_id){.client = 5, .unique = ++t.unique};
	c.now.sec = (int64_t)t.unique;
	return apply_from(&nobody, &c).reply;
}

static void apply_conf(const struct raft_conf *conf)
{
	struct raft_entry e = {.term = 1, .type = RAFT_CONF, .data = raft_conf_encode(conf)};
	struct fsm_result res;

	ck_assert_int_eq(journal_begin(t.j, false), 0);
	ck_assert_int_eq(fsm_apply(t.j, &e, &res), 0);
	ck_assert_int_eq(journal_put_applied(t.j, ++t.index, 1), 0);
	ck_assert_int_eq(journal_commit(t.j), 0);
	raft_data_unref(e.data);
}

static int node_up(ramp_node_t node, ramp_incarnation_t inc, uint64_t instance)
{
	return apply((struct meta_command){.type = META_NODE_UP,
					   .node = node,
					   .node_inc = inc,
					   .instance = instance,
					   .capacity = 1000,
					   .address = "h:1"})
		.result;
}

static void setup_with(uint64_t arena_len)
{
	ramp_node_t n;

	memset(&t, 0, sizeof(t));
	snprintf(t.dir, sizeof(t.dir), "%s/test_meta_fsm.XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(t.dir));
	snprintf(t.path, sizeof(t.path), "%s/journal.db", t.dir);
	make_journal(t.path, 1, 3, arena_len);
	open_journal(t.path, &t.j);
	t.index = 1;
	for (n = 1; n <= 3; n++)
		ck_assert_int_eq(node_up(n, 10 + n, 100 + n), 0);
}

static void setup(void)
{
	setup_with(UINT64_C(1) << 40);
}

static void setup_small_arena(void)
{
	setup_with(256 * MIB);
}

static void teardown(void)
{
	char command[256];

	journal_close(t.j);
	snprintf(command, sizeof(command), "rm -rf %s", t.dir);
	ck_assert_int_eq(system(command), 0);
}

/* ---- the commands in short ---------------------------------------------------------------------
 */

static struct meta_reply create(ramp_node_t node, const char *name)
{
	struct meta_command c = {.type = META_CREATE, .node = node, .attr.mode = 0640};

	snprintf(c.name, sizeof(c.name), "%s", name);
	return apply(c);
}

static ramp_segment_t created(ramp_node_t node, const char *name)
{
	struct meta_reply r = create(node, name);

	ck_assert_int_eq(r.result, 0);
	ck_assert_uint_eq(r.epoch, 1);
	return r.id;
}

static int do_unlink(ramp_segment_t id, const char *name)
{
	struct meta_command c = {.type = META_UNLINK, .id = id};

	snprintf(c.name, sizeof(c.name), "%s", name);
	return apply(c).result;
}

static struct meta_reply rename_to(ramp_segment_t id, const char *from, const char *to,
				   uint32_t flags)
{
	struct meta_command c = {.type = META_RENAME, .id = id, .flags = flags};

	snprintf(c.name, sizeof(c.name), "%s", from);
	snprintf(c.new_name, sizeof(c.new_name), "%s", to);
	return apply(c);
}

static struct meta_reply extent(ramp_segment_t id, uint64_t map_len)
{
	return apply((struct meta_command){.type = META_EXTENT, .id = id, .map_len = map_len});
}

static const struct ramp_attempt K = {.source_id = 71, .ticket = 72};
static const struct ramp_attempt K2 = {.source_id = 71, .ticket = 73};

static struct meta_reply prepare(ramp_segment_t id, uint64_t epoch, struct ramp_attempt k,
				 ramp_node_t src, ramp_node_t dst, const char *name)
{
	struct meta_command c = {.type = META_PREPARE,
				 .id = id,
				 .epoch = epoch,
				 .k = k,
				 .node = dst,
				 .node_inc = 10 + dst,
				 .src = src,
				 .src_inc = 10 + src};

	snprintf(c.new_name, sizeof(c.new_name), "%s", name);
	return apply(c);
}

static struct meta_reply step_k(enum meta_command_type type, ramp_segment_t id, uint64_t epoch,
				struct ramp_attempt k)
{
	return apply((struct meta_command){.type = type, .id = id, .epoch = epoch, .k = k});
}

static int abort_k(ramp_segment_t id, uint64_t epoch, enum meta_proof proof, ramp_node_t node,
		   ramp_incarnation_t inc)
{
	return apply((struct meta_command){.type = META_ABORT,
					   .id = id,
					   .epoch = epoch,
					   .k = K,
					   .proof = proof,
					   .proof_node = node,
					   .proof_inc = inc})
		.result;
}

static int fence(ramp_node_t node, ramp_incarnation_t inc)
{
	return apply((struct meta_command){.type = META_NODE_FENCE, .node = node, .node_inc = inc})
		.result;
}

static struct segment_row row_of(ramp_segment_t id)
{
	struct segment_row row;

	ck_assert_int_eq(journal_get_segment(t.j, id, &row), 0);
	return row;
}

static bool is_gone(ramp_segment_t id)
{
	struct segment_row row;

	return journal_get_segment(t.j, id, &row) == -ENOENT;
}

/* The segment that a directory lists under a name; 0: none. */
static ramp_segment_t named(ramp_node_t node, const char *name)
{
	ramp_segment_t id;
	bool reserved;

	if (journal_get_name(t.j, node, name, &id, &reserved) < 0 || reserved)
		return 0;
	return id;
}

/* A segment of node 1 on its way to node 2, prepared by K; returns the prepare's epoch. */
static ramp_segment_t moving(const char *name, const char *as, uint64_t *e)
{
	ramp_segment_t id = created(1, name);
	struct meta_reply r = prepare(id, 1, K, 1, 2, as);

	ck_assert_int_eq(r.result, 0);
	*e = r.epoch;
	return id;
}

static ramp_segment_t pulling(const char *name, uint64_t *e)
{
	ramp_segment_t id = moving(name, "", e);

	ck_assert_int_eq(step_k(META_TAKEN, id, *e, K).result, 0);
	return id;
}

/* ---- create, unlink, rename, setattr -----------------------------------------------------------
 */

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

	/* Its addresses are nobody else's meanwhile. */
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

	c.flags = META_SET_EXTENT;
	c.attr.extent_asked = 1024 * MIB;
	ck_assert_int_eq(apply(c).result, 0);
	ck_assert_uint_eq(extent(id, 1).extent_len, 1024 * MIB);
	ck_assert_int_eq(apply(c).result, -EBUSY);
	c.id = 1;
	ck_assert_int_eq(apply(c).result, -ENOENT);
}
END_TEST

/* ---- extents -----------------------------------------------------------------------------------
 */

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
	/* Two holes of 64 MiB are no place for 128. */
	ck_assert_int_eq(extent(big, 32 * MIB).result, -ENOSPC);
	do_unlink(id[1], "f1");
	apply((struct meta_command){.type = META_FREED, .id = id[1]});
	ck_assert_int_eq(extent(big, 32 * MIB).result, 0);
	ck_assert_uint_eq(row_of(big).extent_addr, ARENA);
}
END_TEST

/* ---- migration ---------------------------------------------------------------------------------
 */

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
	/* A source that came up anew has lost the bytes: its row says another incarnation. */
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
	/* The same attempt, asked again under another command id, is the same attempt. */
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
	ck_assert_uint_eq(row_of(id).node_inc, 11); /* whose bytes are lost */
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

/* ---- nodes and members --------------------------------------------------------------------------
 */

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

static struct meta_reply add_member(const char *name)
{
	struct meta_command c = {.type = META_MEMBER_ADD, .address = "h:4"};

	snprintf(c.new_name, sizeof(c.new_name), "%s", name);
	return apply(c);
}

static int change_member(enum meta_command_type type, ramp_node_t node)
{
	return apply((struct meta_command){.type = type, .node = node}).result;
}

/* What the leader does: proposes the next configuration, until the tables are content. */
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
	ck_assert_int_eq(add_member("e").result, -EBUSY);
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
	/* Neither its number nor its place in the tables is given again; its name may be. */
	r = add_member("c");
	ck_assert_int_eq(r.result, 0);
	ck_assert_uint_eq(r.node, 5);
	ck_assert_int_eq(node_up(3, 77, 103), -EPERM);
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

/* ---- retries -----------------------------------------------------------------------------------
 */

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
	o.number = o.lowest = 9; /* was late */
	c.cid.unique = 2;
	ck_assert(!apply_from(&o, &c).command);
	o.life = 2; /* of a daemon that died */
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

	for (i = 1; i <= META_RESULTS_KEPT + 10; i++) {
		struct meta_command c = {.type = META_FREED, .id = i};

		c.cid = (struct meta_command_id){.client = 9, .unique = i};
		apply_from(&nobody, &c);
	}
	ck_assert_int_eq(journal_get_result(t.j, (struct meta_command_id){9, 10}, &reply), -ENOENT);
	ck_assert_int_eq(journal_get_result(t.j, (struct meta_command_id){9, 11}, &reply), 0);
	ck_assert_int_eq(reply.result, -ESTALE);
	for (i = 1; i <= 300; i++) { /* more clients than are remembered */
		struct meta_command c = {.type = META_FREED, .cid = {1000 + i, 1}};

		apply_from(&nobody, &c);
	}
	ck_assert_int_eq(journal_get_result(t.j, (struct meta_command_id){9, 11}, &reply), -ENOENT);
	ck_assert_int_eq(journal_get_result(t.j, (struct meta_command_id){1300, 1}, &reply), 0);
}
END_TEST

START_TEST(an_entry_that_cant_be_read_changes_nothing)
{
	struct raft_entry e = {
		.term = 1, .type = RAFT_COMMAND, .data = raft_data_make("nonsense", 8)};
	struct fsm_result res;
	uint64_t before, after;

	ck_assert_int_eq(journal_tables_sum(t.j, &before), 0);
	ck_assert_int_eq(journal_begin(t.j, false), 0);
	ck_assert_int_eq(fsm_apply(t.j, &e, &res), 0);
	ck_assert_int_eq(journal_commit(t.j), 0);
	ck_assert(!res.command);
	ck_assert_int_eq(journal_tables_sum(t.j, &after), 0);
	ck_assert_uint_eq(before, after);
	raft_data_unref(e.data);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("meta_fsm");
	TCase *rules = tcase_create("rules"), *small = tcase_create("small arena");

	tcase_add_checked_fixture(rules, setup, teardown);
	tcase_add_checked_fixture(small, setup_small_arena, teardown);
	suite_add_tcase(s, rules);
	suite_add_tcase(s, small);
	tcase_add_test(rules, create_gives_a_row_and_a_name);
	tcase_add_test(rules, create_refuses);
	tcase_add_test(rules, unlink_without_an_extent_is_at_once);
	tcase_add_test(rules, unlink_with_an_extent_leaves_an_orphan_until_freed);
	tcase_add_test(rules, rename_replaces_or_refuses);
	tcase_add_test(rules, rename_over_a_mapped_segment_leaves_an_orphan);
	tcase_add_test(rules, setattr_sets_what_its_mask_says);
	tcase_add_test(rules, extents_are_powers_of_two_and_never_overlap);
	tcase_add_test(rules, an_extent_is_four_times_size_or_mapping_and_for_life);
	tcase_add_test(small, a_full_arena_is_enospc_until_something_is_freed);
	tcase_add_test(rules, a_migration_from_end_to_end);
	tcase_add_test(rules, prepare_compares_epoch_owner_and_both_incarnations);
	tcase_add_test(rules, prepare_reserves_the_name);
	tcase_add_test(rules, in_moving_everything_else_is_busy);
	tcase_add_test(rules, late_and_foreign_steps_are_stale);
	tcase_add_test(rules, a_proof_must_be_one);
	tcase_add_test(rules, a_fence_is_a_proof);
	tcase_add_test(rules, the_target_gives_up_when_the_source_is_over);
	tcase_add_test(rules, back_at_the_source_its_name_may_be_taken);
	tcase_add_test(rules, unlinked_while_pulling_goes_when_settled);
	tcase_add_test(rules, unlinked_while_pulling_and_reverted_is_dropped_at_the_source);
	tcase_add_test(rules, no_incarnation_comes_back);
	tcase_add_test(rules, members_change_one_at_a_time);
	tcase_add_test(rules, who_holds_segments_or_is_the_last_voter_stays);
	tcase_add_test(rules, a_retry_is_answered_with_the_first_result);
	tcase_add_test(rules, copies_below_the_floor_are_dropped);
	tcase_add_test(rules, the_last_results_of_each_client_are_kept);
	tcase_add_test(rules, an_entry_that_cant_be_read_changes_nothing);
	return s;
}

int main(void)
{
	SRunner *runner = srunner_create(suite());
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
