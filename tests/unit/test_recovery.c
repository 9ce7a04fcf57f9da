/*
 * A quorum that is lost for good: what a survivor's journal becomes (meta/recovery.h), what records
 * tell the new tables (RECOVERED), and the certificate.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/run_suite.h"
#include "meta/fsm_members.h"
#include "meta/journal_keys.h"
#include "meta/journal_nodes.h"
#include "meta/journal_reader.h"
#include "meta/journal_recovery.h"
#include "meta/journal_segments.h"
#include "meta/recovery.h"
#include "meta_rules.h"
#include "rampfs/tools/certificate.h"

#define GENERATION (UINT64_C(1) << 32)

/* ---- RECOVERED ----------------------------------------------------------------------------- */

static struct meta_command owned(ramp_segment_t id, ramp_node_t node, uint64_t epoch)
{
	struct meta_command c = {.type = META_RECOVERED,
				 .id = id,
				 .node = node,
				 .node_inc = 10 + node,
				 .epoch = epoch};

	c.attr.mode = 0640;
	c.attr.uid = 7;
	c.attr.size = 12345;
	return c;
}

static struct meta_command taken(ramp_segment_t id, ramp_node_t node, uint64_t epoch,
				 ramp_node_t src)
{
	struct meta_command c = owned(id, node, epoch);

	c.k = K;
	c.src = src;
	c.src_inc = 10 + src;
	return c;
}

static void end_generation(void)
{
	ck_assert_int_eq(journal_begin(t.j, true), 0);
	ck_assert_int_eq(journal_end_generation(t.j), 0);
	ck_assert_int_eq(journal_commit(t.j), 0);
}

START_TEST(no_id_of_the_old_cluster_is_given_again)
{
	ramp_segment_t last = created(1, "x"), next;
	struct journal_reader *reader;
	struct ramp_err err = {0};

	ck_assert_int_eq(do_unlink(last, "x"), 0);
	end_generation();
	next = created(1, "y");
	ck_assert_uint_ge(next, GENERATION);
	ck_assert_int_eq(journal_segment_was(t.j, last), 1);
	ck_assert_int_eq(journal_segment_was(t.j, last + 1), 0);
	ck_assert_int_eq(journal_segment_was(t.j, next), 1);
	ck_assert_int_eq(journal_segment_was(t.j, next + 1), 0);
	ck_assert_int_eq(journal_segment_was(t.j, 2 * GENERATION), 0);
	ck_assert_int_eq(journal_segment_was(t.j, 1), 0);
	end_generation(); /* a second recovery */
	ck_assert_uint_ge(created(1, "z"), 2 * GENERATION);
	ck_assert_int_eq(journal_segment_was(t.j, last), 1);
	ck_assert_int_eq(journal_segment_was(t.j, last + 1), 0);
	ck_assert_int_eq(journal_segment_was(t.j, next), 1);
	ck_assert_int_eq(journal_segment_was(t.j, next + 1), 0);
	ck_assert_msg(journal_reader_open(t.path, NULL, &reader, &err) == 0, "%s", err.text);
	ck_assert_int_eq(journal_read_segment_was(reader, last), 1);
	ck_assert_int_eq(journal_read_segment_was(reader, last + 1), 0);
	journal_reader_close(reader);
}
END_TEST

START_TEST(a_record_without_a_row_becomes_a_segment)
{
	ramp_segment_t id = created(1, "x") + 3;
	struct segment_row row;
	char name[40];

	end_generation();
	ck_assert_int_eq(apply(owned(id, 2, 5)).result, 0);
	row = row_of(id);
	snprintf(name, sizeof(name), "recovered-%llu", (unsigned long long)id);
	ck_assert_str_eq(row.name, name);
	ck_assert_uint_eq(named(2, name), id);
	ck_assert_int_eq(row.phase, SEGMENT_STABLE);
	ck_assert_uint_eq(row.node, 2);
	ck_assert_uint_eq(row.node_inc, 12);
	ck_assert_uint_eq(row.epoch, 6);
	ck_assert_uint_eq(row.mode, 0640);
	ck_assert_uint_eq(row.uid, 7);
	ck_assert_uint_eq(row.size, 12345);
	ck_assert_int_eq(apply(owned(id, 2, 5)).result, 0);
	ck_assert_uint_eq(row_of(id).epoch, 6);
	/* Once it is unlinked it does not come back. */
	ck_assert_int_eq(do_unlink(id, name), 0);
	ck_assert_int_eq(apply(owned(id, 2, 5)).result, -ENOENT);
	ck_assert(is_gone(id));
}
END_TEST

START_TEST(a_name_that_is_taken_is_not_replaced)
{
	ramp_segment_t id = created(1, "x") + 3, other;
	char name[40];

	end_generation();
	snprintf(name, sizeof(name), "recovered-%llu", (unsigned long long)id);
	other = created(2, name);
	ck_assert_int_eq(apply(owned(id, 2, 5)).result, 0);
	ck_assert_uint_eq(named(2, name), other);
	ck_assert_str_ne(row_of(id).name, name);
	ck_assert_uint_eq(named(2, row_of(id).name), id);
}
END_TEST

START_TEST(a_noted_name_is_taken_where_it_is_free)
{
	ramp_segment_t id = created(1, "x") + 3;
	struct meta_command c = owned(id, 2, 5);
	char name[40];

	created(2, "taken");
	end_generation();
	snprintf(c.new_name, sizeof(c.new_name), "noted");
	ck_assert_int_eq(apply(c).result, 0);
	ck_assert_str_eq(row_of(id).name, "noted");
	ck_assert_uint_eq(named(2, "noted"), id);
	c = owned(id + 1, 2, 5);
	snprintf(c.new_name, sizeof(c.new_name), "taken");
	ck_assert_int_eq(apply(c).result, 0);
	snprintf(name, sizeof(name), "recovered-%llu", (unsigned long long)id + 1);
	ck_assert_uint_eq(named(2, name), id + 1);
	ck_assert_uint_ne(named(2, "taken"), id + 1);
}
END_TEST

START_TEST(a_record_taken_proves_the_lost_prepare)
{
	ramp_segment_t id = created(1, "x");
	struct segment_row row;

	ck_assert_int_eq(apply(taken(id, 2, 2, 1)).result, 0);
	row = row_of(id);
	ck_assert_int_eq(row.phase, SEGMENT_PULLING);
	ck_assert_uint_eq(row.node, 2);
	ck_assert_uint_eq(row.src, 1);
	ck_assert_uint_eq(row.src_inc, 11);
	ck_assert_uint_eq(row.k_epoch, 2);
	ck_assert_uint_eq(row.epoch, 3);
	ck_assert_uint_eq(named(1, "x"), 0);
	ck_assert_uint_eq(named(2, "x"), id);
	ck_assert_int_eq(apply(taken(id, 2, 2, 1)).result, 0);
	ck_assert_uint_eq(row_of(id).epoch, 3);
	ck_assert_int_eq(step_k(META_SETTLED, id, 2, K).result, 0);
	ck_assert_uint_eq(row_of(id).node, 2);
	ck_assert_int_eq(apply(taken(id, 2, 2, 1)).result, -ESTALE);
}
END_TEST

/* The source is lost, and a user renamed its segment since the recovery. */
START_TEST(a_rename_in_between_gives_no_second_owner)
{
	ramp_segment_t id = created(1, "x");

	ck_assert_int_eq(rename_to(id, "x", "y", 0).result, 0);
	ck_assert_int_eq(rename_to(id, "y", "z", 0).result, 0);
	ck_assert_uint_eq(row_of(id).epoch, 3);
	ck_assert_int_eq(apply(taken(id, 2, 2, 1)).result, 0);
	ck_assert_uint_eq(row_of(id).node, 2);
	ck_assert_uint_eq(row_of(id).epoch, 4);
	ck_assert_uint_eq(named(2, "z"), id);
}
END_TEST

START_TEST(an_older_attempt_in_the_row_gives_way)
{
	uint64_t e;
	ramp_segment_t id = moving("x", "as", &e);
	struct meta_command c = taken(id, 3, e + 4, 1);

	c.k = K2;
	ck_assert_int_eq(apply(c).result, 0);
	ck_assert_uint_eq(row_of(id).node, 3);
	ck_assert(ramp_attempt_equal(row_of(id).k, K2));
	ck_assert_uint_eq(named(3, "x"), id);
	ck_assert_int_eq(create(2, "as").result, 0); /* the name that was reserved is free */
}
END_TEST

START_TEST(recovered_refuses)
{
	ramp_segment_t id = created(1, "x"), gone = created(1, "gone"), third;
	struct meta_command c = taken(id, 2, 2, 1);
	uint64_t e;

	ck_assert_int_eq(do_unlink(gone, "gone"), 0);
	ck_assert_int_eq(apply(taken(gone, 2, 2, 1)).result, -ENOENT);
	ck_assert_int_eq(apply(owned(gone, 1, 1)).result, -ENOENT);
	ck_assert_int_eq(apply(owned(id, 1, 1)).result, 0); /* so it is */
	ck_assert_uint_eq(row_of(id).epoch, 1);
	ck_assert_int_eq(apply(owned(id, 2, 1)).result, -ESTALE); /* the row is as new */
	c.node_inc = 99;
	ck_assert_int_eq(apply(c).result, -EHOSTDOWN);
	ck_assert_int_eq(fence(2, 12), 0);
	ck_assert_int_eq(apply(taken(id, 2, 2, 1)).result, -EHOSTDOWN);
	ck_assert_int_eq(apply(taken(id, 1, 2, 1)).result, -EINVAL);
	ck_assert_uint_eq(row_of(id).node, 1);
	/* R5: aborted because the target is over; a row that others have made newer. */
	third = created(3, "y");
	ck_assert_int_eq(prepare(third, 1, K, 3, 1, "").result, 0);
	e = row_of(third).epoch;
	ck_assert_int_eq(step_k(META_TAKEN, third, e, K).result, 0);
	ck_assert_int_eq(step_k(META_SETTLED, third, e, K).result, 0);
	ck_assert_int_eq(apply(owned(third, 3, 1)).result, -ESTALE);
	ck_assert_uint_eq(row_of(third).node, 1);
}
END_TEST

START_TEST(a_source_that_no_table_knows_is_over)
{
	ramp_segment_t id = created(1, "x") + 1;
	struct node_row row;
	struct meta_command add = {
		.type = META_MEMBER_ADD, .new_name = "new", .address = "h:9", .capacity = 1};
	struct raft_conf conf = {.n = 3,
				 .member = {{1, RAFT_VOTER}, {2, RAFT_VOTER}, {3, RAFT_VOTER}}};

	apply_conf(&conf);
	ck_assert_uint_eq(apply(add).node, 4);
	conf.member[conf.n++] = (struct raft_member){4, RAFT_LEARNER};
	apply_conf(&conf);
	end_generation();
	ck_assert_int_eq(apply(taken(id, 2, 2, 6)).result, 0);
	ck_assert_int_eq(journal_get_node(t.j, 6, &row), 0);
	ck_assert_int_eq(row.role, NODE_REMOVED);
	ck_assert_uint_eq(row.fenced, 16);
	ck_assert_uint_eq(row.incarnation, 16);
	add.new_name[0] = 'N';
	add.address[2] = '8';
	ck_assert_uint_eq(apply(add).node, 7);
}
END_TEST

/* ---- addresses ------------------------------------------------------------------------------- */

static void told(ramp_node_t node, const char *address)
{
	struct node_row row;

	ck_assert_int_eq(journal_get_node(t.j, node, &row), 0);
	ck_assert_int_eq(journal_begin(t.j, true), 0);
	ck_assert_int_eq(journal_put_address(t.j, &row, address), 0);
	ck_assert_int_eq(journal_commit(t.j), 0);
}

static bool is_told(ramp_node_t node, const char *text)
{
	struct journal_reader *reader;
	struct ramp_err err = {0};
	char found[600] = "";

	ck_assert_msg(journal_reader_open(t.path, NULL, &reader, &err) == 0, "%s", err.text);
	if (journal_read_address(reader, node, found, sizeof(found)) < 0)
		found[0] = '\0';
	journal_reader_close(reader);
	return strcmp(found, text) == 0;
}

START_TEST(an_address_counts_until_its_node_has_committed_one)
{
	struct meta_command up = {.type = META_NODE_UP,
				  .node = 2,
				  .node_inc = 12,
				  .instance = 102,
				  .capacity = 1,
				  .address = "new:2"};
	struct node_row row;

	told(2, "new:2");
	ck_assert(is_told(2, "h:1 new:2"));
	ck_assert(is_told(3, ""));
	ck_assert_int_eq(journal_get_node(t.j, 2, &row), 0);
	ck_assert_str_eq(row.address, "h:1"); /* no row is edited */
	ck_assert_int_eq(node_up(2, 12, 102), 0);
	ck_assert(is_told(2, "h:1 new:2")); /* it has committed the old one */
	ck_assert_int_eq(apply(up).result, 0);
	ck_assert(is_told(2, ""));
}
END_TEST

/* ---- journals -------------------------------------------------------------------------------- */

static void append_command(uint64_t index, const struct meta_command *c)
{
	const struct meta_origin origin = {0};
	uint8_t buf[META_COMMAND_BYTES];
	struct raft_entry e = {.term = 3, .type = RAFT_COMMAND};

	e.data = raft_data_make(buf, command_encode(&origin, c, buf, sizeof(buf)));
	ck_assert_int_eq(journal_append(t.j, index, &e), 0);
	raft_data_unref(e.data);
}

/* A log with a CREATE that no node has said to be committed. Returns its index. */
static uint64_t with_a_tail(void)
{
	struct meta_command c = {.type = META_CREATE, .cid = {77, 1}, .node = 1, .name = "tail"};
	struct journal_state s;
	struct raft_conf conf = {.n = 3,
				 .member = {{1, RAFT_VOTER}, {2, RAFT_VOTER}, {3, RAFT_VOTER}}};
	struct raft_data *data = raft_conf_encode(&conf);

	ck_assert_int_eq(journal_begin(t.j, true), 0);
	ck_assert_int_eq(journal_put_members(t.j, &conf), 0);
	ck_assert_int_eq(journal_compact(t.j, t.index, 1, data, t.index), 0);
	ck_assert_int_eq(journal_put_hard_state(t.j, 3, 2, true), 0);
	append_command(t.index + 1, &c);
	ck_assert_int_eq(journal_commit(t.j), 0);
	raft_data_unref(data);
	journal_state(t.j, &s);
	return s.last_index;
}

static void on_fatal_here(void *arg, const char *text)
{
	(void)arg;
	ck_abort_msg("%s", text);
}

static void open_again(void)
{
	struct journal_config config = {.path = t.path, .fatal = on_fatal_here};
	struct ramp_err err = {0};

	ck_assert_msg(journal_open(&config, &t.j, &err) == 0, "%s", err.text);
}

static int same_row(void *arg, const struct node_row *row)
{
	struct node_row *rows = arg;

	rows[row->node] = *row;
	return 0;
}

static int count_rows(void *arg, const struct segment_row *row)
{
	*(int *)arg += strcmp(row->name, "tail") == 0;
	return 0;
}

START_TEST(a_survivor_becomes_the_only_voter)
{
	uint64_t last, committed;
	const ramp_node_t gone[] = {2};
	const struct recovery_address to = {.node = 3, .address = "new:3"};
	struct recovery_change change = {.cluster_id = {1, 2, 3},
					 .certificate = "certificate\n",
					 .addresses = &to,
					 .n_addresses = 1,
					 .lost = gone,
					 .n_lost = 1};
	struct node_row rows[5] = {0};
	struct recovery_facts facts;
	struct recovery *r;
	struct journal_state s, before;
	struct ramp_err err = {0};
	struct raft_conf conf;
	struct raft_data *data;
	char copy[240], *text;
	int tails = 0;

	created(2, "theirs");
	last = with_a_tail();
	journal_state(t.j, &before);
	committed = before.applied;
	journal_close(t.j);
	snprintf(copy, sizeof(copy), "%s/copy.db", t.dir);
	change.copy = copy;

	ck_assert_msg(recovery_open(t.path, &r, &err) == 0, "%s", err.text);
	recovery_facts(r, &facts);
	ck_assert_uint_eq(facts.last.term, 3);
	ck_assert_uint_eq(facts.last.index, last);
	ck_assert(!facts.founded);
	ck_assert_int_eq(recovery_each_segment(r, count_rows, &tails), 0);
	ck_assert_uint_lt(committed, last);
	ck_assert_int_eq(tails, 1); /* as after all of the log */
	recovery_close(r);	    /* nothing is changed */
	open_again();
	journal_state(t.j, &s);
	ck_assert_uint_eq(s.applied, committed);
	ck_assert_mem_eq(s.cluster_id, before.cluster_id, 32);
	journal_close(t.j);

	ck_assert_msg(recovery_open(t.path, &r, &err) == 0, "%s", err.text);
	ck_assert_msg(recovery_found(r, &change, &err) == 0, "%s", err.text);
	recovery_close(r);
	ck_assert_int_eq(access(copy, F_OK), 0);

	open_again();
	journal_state(t.j, &s);
	ck_assert_mem_eq(s.cluster_id, change.cluster_id, 32);
	ck_assert_uint_eq(s.term, 4);
	ck_assert_uint_eq(s.vote, 0);
	ck_assert(s.confirmed);
	ck_assert_uint_gt(s.applied, last);
	ck_assert_uint_eq(s.applied, s.snap_index);
	ck_assert_uint_eq(s.last_index, s.snap_index);
	data = journal_snap_conf(t.j);
	ck_assert_int_eq(raft_conf_decode(data->bytes, data->len, &conf), 0);
	raft_data_unref(data);
	ck_assert_uint_eq(conf.n, 3);
	ck_assert_uint_eq(raft_conf_voters(&conf), 1);
	ck_assert_int_eq(raft_conf_find(&conf, 1)->role, RAFT_VOTER);
	ck_assert_int_eq(journal_walk_nodes(t.j, same_row, rows), 0);
	ck_assert_uint_eq(rows[2].fenced, 12);
	ck_assert_uint_eq(rows[3].fenced, 0);
	ck_assert_int_eq(rows[1].role, NODE_VOTER);
	ck_assert_int_eq(rows[2].role, NODE_STANDBY);
	ck_assert_int_eq(rows[3].role, NODE_STANDBY);
	/* The leader has no change of members to propose. */
	ck_assert_int_eq(fsm_member_settled(t.j, 1), 1);
	ck_assert_int_eq(fsm_member_settled(t.j, 2), 1);
	ck_assert(is_told(3, "h:1 new:3"));
	ck_assert_uint_ne(named(1, "tail"), 0);
	ck_assert_uint_ne(named(2, "theirs"), 0);
	ck_assert_uint_ge(created(1, "new"), GENERATION);
	ck_assert_int_eq(journal_get_certificate(t.j, &text), 0);
	ck_assert_str_eq(text, "certificate\n");
	free(text);
}
END_TEST

START_TEST(a_second_run_finds_it_done_until_a_daemon_has_run)
{
	struct recovery_change change = {.cluster_id = {9}, .certificate = "c\n"};
	struct raft_entry noop = {.term = 5, .type = RAFT_NOOP};
	struct recovery_facts facts;
	struct recovery *r;
	struct journal_state s;
	struct ramp_err err = {0};

	with_a_tail();
	journal_close(t.j);
	ck_assert_msg(recovery_open(t.path, &r, &err) == 0, "%s", err.text);
	ck_assert_msg(recovery_found(r, &change, &err) == 0, "%s", err.text);
	recovery_close(r);
	ck_assert_int_eq(recovery_open(t.path, &r, &err), 0);
	recovery_facts(r, &facts);
	ck_assert(facts.founded);
	recovery_close(r);
	open_again();
	journal_state(t.j, &s);
	ck_assert_int_eq(journal_begin(t.j, true), 0);
	ck_assert_int_eq(journal_append(t.j, s.last_index + 1, &noop), 0);
	ck_assert_int_eq(journal_commit(t.j), 0);
	journal_close(t.j);
	ck_assert_int_eq(recovery_open(t.path, &r, &err), 0);
	recovery_facts(r, &facts);
	ck_assert(!facts.founded);
	recovery_close(r);
	open_again();
}
END_TEST

START_TEST(an_adopted_survivor_begins_with_nothing_but_itself)
{
	struct node_row members[] = {{.node = 2, .name = "b", .address = "h:2", .role = NODE_VOTER},
				     {.node = 1, .name = "a", .address = "h:1"}};
	struct recovery_change change = {
		.cluster_id = {7}, .certificate = "c\n", .members = members, .n_members = 2};
	struct journal_state before, s;
	struct recovery *r;
	struct ramp_err err = {0};
	struct node_row rows[5] = {0};

	created(1, "x");
	with_a_tail();
	ck_assert_int_eq(journal_begin(t.j, true), 0);
	ck_assert_int_eq(journal_put_restored(t.j, 5),
			 0); /* an old copy: no vote in the old cluster */
	ck_assert_int_eq(journal_commit(t.j), 0);
	journal_state(t.j, &before);
	journal_close(t.j);
	ck_assert_msg(recovery_open(t.path, &r, &err) == 0, "%s", err.text);
	ck_assert_msg(recovery_adopt(r, &change, &err) == 0, "%s", err.text);
	recovery_close(r);
	open_again();
	journal_state(t.j, &s);
	ck_assert_mem_eq(s.cluster_id, change.cluster_id, 32);
	ck_assert_uint_eq(s.self, before.self);
	ck_assert_uint_eq(s.instance, before.instance);
	ck_assert_uint_gt(s.life, 5); /* commands of earlier lives are not taken for new ones */
	ck_assert_uint_eq(s.term, 0);
	ck_assert_uint_eq(s.applied, 0);
	ck_assert_uint_eq(s.last_index, 0);
	ck_assert(!s.restored);
	ck_assert(!s.confirmed);
	ck_assert_ptr_null(journal_snap_conf(t.j));
	ck_assert_int_eq(journal_walk_nodes(t.j, same_row, rows), 0);
	ck_assert_str_eq(rows[2].name, "b");
	ck_assert_uint_eq(rows[3].node, 0);
	ck_assert_uint_eq(named(1, "x"), 0);
}
END_TEST

START_TEST(addresses_alone_change_nothing_else)
{
	const struct recovery_address to[] = {{.node = 1, .address = "new:1"},
					      {.node = 2, .address = "h:1"}}; /* as it is */
	struct recovery_change change = {.addresses = to, .n_addresses = 2};
	struct journal_state before, s;
	struct recovery *r;
	struct ramp_err err = {0};

	with_a_tail();
	journal_state(t.j, &before);
	journal_close(t.j);
	ck_assert_msg(recovery_open(t.path, &r, &err) == 0, "%s", err.text);
	ck_assert_msg(recovery_readdress(r, &change, &err) == 0, "%s", err.text);
	recovery_close(r);
	open_again();
	journal_state(t.j, &s);
	ck_assert_mem_eq(s.cluster_id, before.cluster_id, 32);
	ck_assert_uint_eq(s.term, before.term);
	ck_assert_uint_eq(s.vote, before.vote);
	ck_assert_uint_eq(s.applied, before.applied);
	ck_assert_uint_eq(s.last_index, before.last_index);
	ck_assert(is_told(1, "h:1 new:1"));
	ck_assert(is_told(2, ""));
}
END_TEST

START_TEST(positions_are_compared_by_term_first)
{
	struct recovery_position a = {.term = 2, .index = 9}, b = {.term = 3, .index = 1};

	ck_assert(recovery_is_before(a, b));
	ck_assert(!recovery_is_before(b, a));
	ck_assert(!recovery_is_before(a, a));
	b.term = 2;
	ck_assert(recovery_is_before(b, a));
}
END_TEST

/* ---- the certificate ------------------------------------------------------------------------- */

static const uint8_t the_key[STATEDIR_KEY_BYTES] = {1, 2, 3}, another_key[STATEDIR_KEY_BYTES] = {4};

static char *written(struct certificate *c)
{
	struct ramp_err err = {0};
	char *text;

	*c = (struct certificate){.cluster = "local",
				  .from = {0xab},
				  .by = 1,
				  .last = {.term = 5, .index = 77},
				  .n_members = 2};
	c->members[0].row = (struct node_row){
		.node = 1, .name = "a", .address = "h:1", .instance = 9, .capacity = 5};
	c->members[1].row = (struct node_row){.node = 2, .name = "b", .address = "[::1]:2"};
	c->members[1].fate = FATE_LOST;
	ck_assert_int_eq(certificate_make_id(c, the_key, &err), 0);
	ck_assert_int_eq(certificate_write(c, the_key, &text, &err), 0);
	return text;
}

START_TEST(a_certificate_comes_back_as_it_went)
{
	struct certificate c, back;
	struct ramp_err err = {0};
	char *text = written(&c);

	ck_assert_msg(certificate_parse(text, the_key, &back, &err) == 0, "%s", err.text);
	ck_assert_mem_eq(back.from, c.from, 32);
	ck_assert_mem_eq(back.to, c.to, 32);
	ck_assert_str_eq(back.cluster, "local");
	ck_assert_uint_eq(back.last.term, 5);
	ck_assert_uint_eq(back.last.index, 77);
	ck_assert_uint_eq(back.n_members, 2);
	ck_assert_uint_eq(certificate_find(&back, 1)->row.instance, 9);
	ck_assert_uint_eq(certificate_find(&back, 1)->row.capacity, 5);
	ck_assert_str_eq(certificate_find(&back, 2)->row.address, "[::1]:2");
	ck_assert_int_eq(certificate_find(&back, 2)->fate, FATE_LOST);
	ck_assert_int_eq(certificate_parse(text, another_key, &back, &err), -EKEYREJECTED);
	free(text);
}
END_TEST

START_TEST(an_altered_certificate_is_refused)
{
	struct certificate c, back;
	struct ramp_err err = {0};
	char *text = written(&c), *cut;
	size_t len = strlen(text);

	for (size_t i = 0; i < len; i++) {
		text[i] ^= 1;
		ck_assert_msg(certificate_parse(text, the_key, &back, &err) < 0,
			      "byte %zu may be altered", i);
		text[i] ^= 1;
		cut = strndup(text, i);
		ck_assert_msg(certificate_parse(cut, the_key, &back, &err) < 0,
			      "it may be cut at %zu", i);
		free(cut);
	}
	ck_assert_int_eq(certificate_parse(text, the_key, &back, &err), 0);
	ck_assert_int_gt(asprintf(&cut, "%smember 3 0 lost 1 x h:3\n", text), 0);
	ck_assert_int_lt(certificate_parse(cut, the_key, &back, &err), 0);
	free(cut);
	free(text);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("recovery");
	TCase *rows = tcase_create("rows"), *certificates = tcase_create("certificates");

	tcase_add_checked_fixture(rows, rules_setup, rules_teardown);
	tcase_set_timeout(rows, 60);
	suite_add_tcase(s, rows);
	suite_add_tcase(s, certificates);
	tcase_add_test(rows, no_id_of_the_old_cluster_is_given_again);
	tcase_add_test(rows, a_record_without_a_row_becomes_a_segment);
	tcase_add_test(rows, a_name_that_is_taken_is_not_replaced);
	tcase_add_test(rows, a_noted_name_is_taken_where_it_is_free);
	tcase_add_test(rows, a_record_taken_proves_the_lost_prepare);
	tcase_add_test(rows, a_rename_in_between_gives_no_second_owner);
	tcase_add_test(rows, an_older_attempt_in_the_row_gives_way);
	tcase_add_test(rows, recovered_refuses);
	tcase_add_test(rows, a_source_that_no_table_knows_is_over);
	tcase_add_test(rows, an_address_counts_until_its_node_has_committed_one);
	tcase_add_test(rows, a_survivor_becomes_the_only_voter);
	tcase_add_test(rows, a_second_run_finds_it_done_until_a_daemon_has_run);
	tcase_add_test(rows, an_adopted_survivor_begins_with_nothing_but_itself);
	tcase_add_test(rows, addresses_alone_change_nothing_else);
	tcase_add_test(certificates, positions_are_compared_by_term_first);
	tcase_add_test(certificates, a_certificate_comes_back_as_it_went);
	tcase_add_test(certificates, an_altered_certificate_is_refused);
	return s;
}

int main(void)
{
	return run_suite(suite());
}
