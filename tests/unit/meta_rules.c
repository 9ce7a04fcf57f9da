#include "meta_rules.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "meta/journal_create.h"
#include "meta/journal_segments.h"

/* ---- a journal with three nodes that are up: 1, 2 and 3 with incarnations 11, 12, 13 ------- */

struct rules t;

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

static void make_journal(const char *path, ramp_node_t self, size_t nodes, uint64_t arena_addr,
			 uint64_t arena_len)
{
	struct node_row rows[3] = {0};
	struct meta_founding f = {.instance = 100 + self,
				  .self = self,
				  .arena_addr = arena_addr,
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
struct fsm_result apply_from(const struct meta_origin *origin, const struct meta_command *c)
{
	uint8_t buf[META_COMMAND_BYTES];
	size_t len = command_encode(origin, c, buf, sizeof(buf));
	struct raft_entry e = {.term = 1, .type = RAFT_COMMAND};
	struct fsm_result res;

	ck_assert_uint_gt(len, 0);
	e.data = raft_data_make(buf, len);
	ck_assert_int_eq(journal_begin(t.j, false), 0);
	ck_assert_int_eq(fsm_apply(t.j, ++t.index, &e, &res), 0);
	ck_assert_int_eq(journal_put_applied(t.j, t.index, 1), 0);
	ck_assert_int_eq(journal_commit(t.j), 0);
	raft_data_unref(e.data);
	return res;
}

struct meta_reply apply(struct meta_command c)
{
	struct meta_origin nobody = {0};

	c.cid = (struct meta_command_id){.client = 5, .unique = ++t.unique};
	c.now.sec = (int64_t)t.unique;
	return apply_from(&nobody, &c).reply;
}

void apply_conf(const struct raft_conf *conf)
{
	struct raft_entry e = {.term = 1, .type = RAFT_CONF, .data = raft_conf_encode(conf)};
	struct fsm_result res;

	ck_assert_int_eq(journal_begin(t.j, false), 0);
	ck_assert_int_eq(fsm_apply(t.j, ++t.index, &e, &res), 0);
	ck_assert_int_eq(journal_put_applied(t.j, t.index, 1), 0);
	ck_assert_int_eq(journal_commit(t.j), 0);
	raft_data_unref(e.data);
}

int node_up(ramp_node_t node, ramp_incarnation_t inc, uint64_t instance)
{
	return apply((struct meta_command){.type = META_NODE_UP,
					   .node = node,
					   .node_inc = inc,
					   .instance = instance,
					   .capacity = 1000,
					   .address = "h:1"})
		.result;
}

static void setup_with(uint64_t arena_addr, uint64_t arena_len)
{
	ramp_node_t n;

	memset(&t, 0, sizeof(t));
	snprintf(t.dir, sizeof(t.dir), "%s/test_meta_fsm.XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(t.dir));
	snprintf(t.path, sizeof(t.path), "%s/journal.db", t.dir);
	make_journal(t.path, 1, 3, arena_addr, arena_len);
	open_journal(t.path, &t.j);
	t.index = 1;
	for (n = 1; n <= 3; n++)
		ck_assert_int_eq(node_up(n, 10 + n, 100 + n), 0);
}

void rules_setup(void)
{
	setup_with(ARENA, UINT64_C(1) << 40);
}

void rules_setup_small_arena(void)
{
	setup_with(ARENA, 256 * MIB);
}

void rules_setup_odd_arena(void)
{
	setup_with(ODD_ARENA, UINT64_C(1) << 40);
}

void rules_teardown(void)
{
	char command[256];

	journal_close(t.j);
	snprintf(command, sizeof(command), "rm -rf %s", t.dir);
	ck_assert_int_eq(system(command), 0);
}

/* ---- the commands in short ----------------------------------------------------------------- */

struct meta_reply create(ramp_node_t node, const char *name)
{
	struct meta_command c = {.type = META_CREATE, .node = node, .attr.mode = 0640};

	snprintf(c.name, sizeof(c.name), "%s", name);
	return apply(c);
}

ramp_segment_t created(ramp_node_t node, const char *name)
{
	struct meta_reply r = create(node, name);

	ck_assert_int_eq(r.result, 0);
	ck_assert_uint_eq(r.epoch, 1);
	return r.id;
}

int do_unlink(ramp_segment_t id, const char *name)
{
	struct meta_command c = {.type = META_UNLINK, .id = id};

	snprintf(c.name, sizeof(c.name), "%s", name);
	return apply(c).result;
}

struct meta_reply rename_to(ramp_segment_t id, const char *from, const char *to, uint32_t flags)
{
	struct meta_command c = {.type = META_RENAME, .id = id, .flags = flags};

	snprintf(c.name, sizeof(c.name), "%s", from);
	snprintf(c.new_name, sizeof(c.new_name), "%s", to);
	return apply(c);
}

struct meta_reply extent(ramp_segment_t id, uint64_t map_len)
{
	return apply((struct meta_command){.type = META_EXTENT, .id = id, .map_len = map_len});
}

const struct ramp_attempt K = {.source_id = 71, .ticket = 72};
const struct ramp_attempt K2 = {.source_id = 71, .ticket = 73};

struct meta_reply prepare(ramp_segment_t id, uint64_t epoch, struct ramp_attempt k, ramp_node_t src,
			  ramp_node_t dst, const char *name)
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

struct meta_reply step_k(enum meta_command_type type, ramp_segment_t id, uint64_t epoch,
			 struct ramp_attempt k)
{
	return apply((struct meta_command){.type = type, .id = id, .epoch = epoch, .k = k});
}

int abort_k(ramp_segment_t id, uint64_t epoch, enum meta_proof proof, ramp_node_t node,
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

int fence(ramp_node_t node, ramp_incarnation_t inc)
{
	return apply((struct meta_command){.type = META_NODE_FENCE, .node = node, .node_inc = inc})
		.result;
}

struct segment_row row_of(ramp_segment_t id)
{
	struct segment_row row;

	ck_assert_int_eq(journal_get_segment(t.j, id, &row), 0);
	return row;
}

bool is_gone(ramp_segment_t id)
{
	struct segment_row row;

	return journal_get_segment(t.j, id, &row) == -ENOENT;
}

/* Returns the segment that a directory lists under a name; 0: none. */
ramp_segment_t named(ramp_node_t node, const char *name)
{
	ramp_segment_t id;
	bool reserved;

	if (journal_get_name(t.j, node, name, &id, &reserved) < 0 || reserved)
		return 0;
	return id;
}

/* Makes a segment of node 1 that moves to node 2, prepared by K. Returns its id, and the prepare's
   epoch in *e. */
ramp_segment_t moving(const char *name, const char *as, uint64_t *e)
{
	ramp_segment_t id = created(1, name);
	struct meta_reply r = prepare(id, 1, K, 1, 2, as);

	ck_assert_int_eq(r.result, 0);
	*e = r.epoch;
	return id;
}

ramp_segment_t pulling(const char *name, uint64_t *e)
{
	ramp_segment_t id = moving(name, "", e);

	ck_assert_int_eq(step_k(META_TAKEN, id, *e, K).result, 0);
	return id;
}
