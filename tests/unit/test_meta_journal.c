/*
 * The bytes of commands, replies and Raft's messages; the journal across restarts; snapshots.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/wire.h"
#include "lib/run_suite.h"
#include "meta/command.h"
#include "meta/journal.h"
#include "meta/journal_create.h"
#include "meta/journal_dump.h"
#include "meta/journal_nodes.h"
#include "meta/journal_segments.h"
#include "meta/raft_log.h"
#include "meta/raft_wire.h"

/* ---- commands ------------------------------------------------------------------------------ */

static struct meta_command full_command(enum meta_command_type type)
{
	struct meta_command c = {.cid = {1, 2},
				 .type = type,
				 .id = 4097,
				 .epoch = 5,
				 .k = {6, 7},
				 .node = 2,
				 .src = 1,
				 .node_inc = 8,
				 .src_inc = 9,
				 .proof = PROOF_OVER,
				 .proof_node = 3,
				 .proof_inc = 10,
				 .flags = type == META_CREATE ? META_WITH_EXTENT : META_SET_SIZE,
				 .name = "name",
				 .new_name = "other",
				 .address = "host:1",
				 .length = 11,
				 .map_len = 12,
				 .instance = 13,
				 .capacity = 14,
				 .value = 16,
				 .setting = META_ARENA_USER_MAX,
				 .now = {-1, 999999999}};

	c.attr.mode = 0600;
	c.attr.uid = 15;
	c.attr.size = UINT64_MAX;
	c.attr.mtime = (struct meta_time){INT64_MIN, 1};
	c.attr.pages = SEGMENT_PAGES_HUGE;
	return c;
}

START_TEST(commands_come_back_as_they_went)
{
	struct meta_origin o = {.node = 2, .life = 3, .number = 9, .lowest = 4}, back_o;
	uint8_t bytes[META_COMMAND_BYTES], again[META_COMMAND_BYTES];
	int type;

	for (type = META_CREATE; type <= META_MEMBER_AGAIN; type++) {
		struct meta_command c = full_command((enum meta_command_type)type), back;
		size_t len = command_encode(&o, &c, bytes, sizeof(bytes));

		ck_assert_uint_gt(len, 0);
		ck_assert_int_eq(command_decode(bytes, len, &back_o, &back), 0);
		ck_assert_int_eq(back.type, type);
		ck_assert_uint_eq(back.cid.unique, 2);
		ck_assert_uint_eq(back_o.lowest, 4);
		ck_assert_int_eq(back.now.sec, -1);
		/* Every field that a type carries is in the bytes, so equal bytes are enough. */
		ck_assert_uint_eq(command_encode(&back_o, &back, again, sizeof(again)), len);
		ck_assert_mem_eq(bytes, again, len);
		ck_assert_str_ne(command_name((enum meta_command_type)type), "?");
	}
	ck_assert_str_eq(command_name((enum meta_command_type)99), "?");
}
END_TEST

/* Commands without conditions have the bytes that they always had: a journal may hold such. */
START_TEST(only_a_hint_carries_the_epoch_that_it_is_for)
{
	struct meta_origin o = {0};
	struct meta_command c = full_command(META_SETATTR), back;
	uint8_t bytes[META_COMMAND_BYTES];
	size_t plain = command_encode(&o, &c, bytes, sizeof(bytes));

	ck_assert_int_eq(command_decode(bytes, plain, &o, &back), 0);
	ck_assert_uint_eq(back.epoch, 0);
	c.flags |= META_AT_EPOCH;
	ck_assert_uint_eq(command_encode(&o, &c, bytes, sizeof(bytes)), plain + 8);
	ck_assert_int_eq(command_decode(bytes, plain + 8, &o, &back), 0);
	ck_assert_uint_eq(back.epoch, c.epoch);
	ck_assert_uint_eq(back.attr.size, c.attr.size);
}
END_TEST

START_TEST(conditions_are_carried_where_there_are_any)
{
	static const enum meta_command_type types[] = {META_UNLINK, META_RENAME, META_SETATTR};
	static const size_t more[] = {4, 0, 0}, owners[] = {4, 8, 4};
	struct meta_origin o = {0};
	uint8_t bytes[META_COMMAND_BYTES];

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		struct meta_command c = full_command(types[i]), back;
		size_t plain;

		c.flags = 0;
		plain = command_encode(&o, &c, bytes, sizeof(bytes));
		ck_assert_int_eq(command_decode(bytes, plain, &o, &back), 0);
		ck_assert_uint_eq(back.flags, 0);
		c.flags = META_IN_NODE | META_OF_OWNER | META_RAISE_CTIME;
		c.owner = 70;
		c.other_owner = 80;
		c.file_ctime = (struct meta_time){90, 91};
		ck_assert_uint_eq(command_encode(&o, &c, bytes, sizeof(bytes)),
				  plain + more[i] + 12 + 4 + owners[i]);
		ck_assert_int_eq(command_decode(bytes, plain + more[i] + 16 + owners[i], &o, &back),
				 0);
		ck_assert_uint_eq(back.flags, c.flags);
		ck_assert_uint_eq(back.node, c.node);
		ck_assert_uint_eq(back.owner, 70);
		ck_assert_uint_eq(back.other_owner, types[i] == META_RENAME ? 80 : 0);
		ck_assert_int_eq(back.file_ctime.sec, 90);
		ck_assert_uint_eq(back.file_ctime.nsec, 91);
	}
}
END_TEST

/* The bytes of an UNLINK of an older build; one without conditions still has them. */
START_TEST(an_old_unlink_is_read)
{
	static const uint8_t old[] = {
		1,    META_UNLINK,		       /* version, type */
		2,    0,	   0,	0,	       /* origin: node, life, number, lowest */
		3,    0,	   0,	0, 0, 0, 0, 0, /**/
		9,    0,	   0,	0, 0, 0, 0, 0, /**/
		4,    0,	   0,	0, 0, 0, 0, 0, /**/
		1,    0,	   0,	0, 0, 0, 0, 0, /* cid */
		2,    0,	   0,	0, 0, 0, 0, 0, /**/
		7,    0,	   0,	0, 0, 0, 0, 0, /* now */
		8,    0,	   0,	0,	       /**/
		0x88, 0x13,	   0,	0, 0, 0, 0, 0, /* id */
		3,    0,	   0,	0,	       /* name */
		'o',  'l',	   'd',
	};
	uint8_t longer[sizeof(old) + 4] = {0};
	struct meta_origin o;
	struct meta_command c;

	ck_assert_int_eq(command_decode(old, sizeof(old), &o, &c), 0);
	ck_assert_uint_eq(c.id, 5000);
	ck_assert_str_eq(c.name, "old");
	ck_assert_uint_eq(c.flags, 0);
	ck_assert_uint_eq(command_encode(&o, &c, longer, sizeof(longer)), sizeof(old));
	ck_assert_mem_eq(longer, old, sizeof(old));
	/* A command without flags must leave them out. */
	ck_assert_int_eq(command_decode(longer, sizeof(longer), &o, &c), -EPROTO);
	ck_assert_int_eq(command_decode(longer, sizeof(old) + 1, &o, &c), -EPROTO);
}
END_TEST

START_TEST(prepare_carries_all_that_it_compares)
{
	struct meta_origin o = {0};
	struct meta_command c = full_command(META_PREPARE), back;
	uint8_t bytes[META_COMMAND_BYTES];
	size_t len = command_encode(&o, &c, bytes, sizeof(bytes));

	ck_assert_int_eq(command_decode(bytes, len, &o, &back), 0);
	ck_assert_uint_eq(back.id, c.id);
	ck_assert_uint_eq(back.epoch, c.epoch);
	ck_assert(ramp_attempt_equal(back.k, c.k));
	ck_assert_uint_eq(back.node, c.node);
	ck_assert_uint_eq(back.node_inc, c.node_inc);
	ck_assert_uint_eq(back.src, c.src);
	ck_assert_uint_eq(back.src_inc, c.src_inc);
	ck_assert_str_eq(back.new_name, c.new_name);
}
END_TEST

/* The bytes of an EXTENT in the journal of an older build, before it could be an orphan's. */
START_TEST(an_old_extent_is_read)
{
	static const uint8_t old[] = {
		1,    META_EXTENT,			/* version, type */
		2,    0,	   0,	 0,		/* origin: node, life, number, lowest */
		3,    0,	   0,	 0, 0, 0, 0, 0, /**/
		9,    0,	   0,	 0, 0, 0, 0, 0, /**/
		4,    0,	   0,	 0, 0, 0, 0, 0, /**/
		1,    0,	   0,	 0, 0, 0, 0, 0, /* cid */
		2,    0,	   0,	 0, 0, 0, 0, 0, /**/
		7,    0,	   0,	 0, 0, 0, 0, 0, /* now */
		8,    0,	   0,	 0,		/**/
		0x88, 0x13,	   0,	 0, 0, 0, 0, 0, /* id */
		0,    0,	   0,	 4, 0, 0, 0, 0, /* length */
		0,    0,	   0x10, 0, 0, 0, 0, 0, /* map_len */
	};
	struct meta_origin o;
	struct meta_command c;

	ck_assert_int_eq(command_decode(old, sizeof(old), &o, &c), 0);
	ck_assert_int_eq(c.type, META_EXTENT);
	ck_assert_uint_eq(o.number, 9);
	ck_assert_int_eq(c.now.sec, 7);
	ck_assert_uint_eq(c.id, 5000);
	ck_assert_uint_eq(c.length, UINT64_C(1) << 26);
	ck_assert_uint_eq(c.map_len, UINT64_C(1) << 20);
	/* Of no owner that could make a row again. */
	ck_assert_uint_eq(c.node, 0);
	ck_assert_int_eq(command_decode(old, sizeof(old) - 1, &o, &c), -EPROTO);
}
END_TEST

START_TEST(the_longest_command_fits)
{
	struct meta_origin o = {0};
	struct meta_command c = full_command(META_RENAME);
	uint8_t bytes[META_COMMAND_BYTES];

	memset(c.name, 'n', RAMP_NAME_MAX);
	memset(c.new_name, 'm', RAMP_NAME_MAX);
	ck_assert_uint_gt(command_encode(&o, &c, bytes, sizeof(bytes)), 2 * RAMP_NAME_MAX);
	memset(c.name, 'n', sizeof(c.name)); /* not terminated */
	ck_assert_uint_eq(command_encode(&o, &c, bytes, sizeof(bytes)), 0);
}
END_TEST

START_TEST(bad_commands_are_refused)
{
	struct meta_origin o = {0};
	struct meta_command c = full_command(META_CREATE), back;
	uint8_t bytes[META_COMMAND_BYTES + 1];
	size_t i, len;

	c.flags = 0; /* with an extent it begins as one without */
	len = command_encode(&o, &c, bytes, META_COMMAND_BYTES);
	for (i = 0; i < len; i++) /* cut short anywhere */
		ck_assert_int_eq(command_decode(bytes, i, &o, &back), -EPROTO);
	bytes[len] = 0;
	ck_assert_int_eq(command_decode(bytes, len + 1, &o, &back), -EPROTO);
	bytes[0] = 9; /* another version */
	ck_assert_int_eq(command_decode(bytes, len, &o, &back), -EPROTO);
	bytes[0] = 1;
	bytes[1] = 99; /* no such type */
	ck_assert_int_eq(command_decode(bytes, len, &o, &back), -EPROTO);
	bytes[1] = 0;
	ck_assert_int_eq(command_decode(bytes, len, &o, &back), -EPROTO);
	c.type = (enum meta_command_type)99;
	ck_assert_uint_eq(command_encode(&o, &c, bytes, sizeof(bytes)), 0);
	c = full_command(META_SETATTR);
	c.attr.pages = 9;
	ck_assert_uint_eq(command_encode(&o, &c, bytes, sizeof(bytes)), 0);
	c = full_command(META_CREATE);
	c.now.nsec = 1000000000;
	ck_assert_uint_eq(command_encode(&o, &c, bytes, sizeof(bytes)), 0);
}
END_TEST

START_TEST(random_bytes_are_no_command)
{
	struct meta_origin o;
	struct meta_command c;
	struct meta_reply reply;
	struct raft_message m;
	uint8_t bytes[400];
	unsigned int seed = 5;
	int round;

	for (round = 0; round < 200000; round++) {
		size_t i, len = (size_t)rand_r(&seed) % sizeof(bytes);

		for (i = 0; i < len; i++)
			bytes[i] = (uint8_t)rand_r(&seed);
		if (len > 1 && round % 2) {
			bytes[0] = 1;
			bytes[1] %= 16;
		}
		command_decode(bytes, len, &o, &c);
		command_reply_decode(bytes, len, &reply);
		if (raft_message_decode(bytes, len, &m) == 0)
			raft_message_release(&m);
	}
}
END_TEST

START_TEST(replies_come_back_as_they_went)
{
	struct meta_reply r = {.result = -EROFS,
			       .id = 1,
			       .other = 2,
			       .node = 3,
			       .epoch = 4,
			       .extent_addr = 5,
			       .extent_len = 6},
			  back;
	uint8_t bytes[META_REPLY_BYTES];
	size_t len = command_reply_encode(&r, bytes, sizeof(bytes));

	ck_assert_uint_gt(len, 0);
	ck_assert_int_eq(command_reply_decode(bytes, len, &back), 0);
	ck_assert_int_eq(back.result, -EROFS);
	ck_assert_uint_eq(back.extent_len, 6);
	ck_assert_uint_eq(back.node, 3);
	ck_assert_int_eq(command_reply_decode(bytes, len - 1, &back), -EPROTO);
}
END_TEST

/* ---- Raft's messages ----------------------------------------------------------------------- */

START_TEST(messages_come_back_as_they_went)
{
	struct raft_conf conf = {.n = 2, .member = {{1, RAFT_VOTER}, {7, RAFT_LEARNER}}};
	struct raft_message m = {.type = RAFT_APPEND,
				 .term = 9,
				 .index = 8,
				 .log_term = 3,
				 .leader_commit = 7,
				 .round = 6,
				 .n_entries = 3},
			    back;
	uint8_t bytes[400];
	size_t len, i;

	m.entries[0] = (struct raft_entry){.term = 3, .type = RAFT_NOOP};
	m.entries[1] = (struct raft_entry){
		.term = 4, .type = RAFT_COMMAND, .data = raft_data_make("hello", 5)};
	m.entries[2] =
		(struct raft_entry){.term = 9, .type = RAFT_CONF, .data = raft_conf_encode(&conf)};
	len = raft_message_encode(&m, bytes, sizeof(bytes));
	ck_assert_uint_gt(len, 0);
	ck_assert_uint_le(len, raft_message_size(&m));
	ck_assert_int_eq(raft_message_decode(bytes, len, &back), 0);
	ck_assert_uint_eq(back.term, 9);
	ck_assert_uint_eq(back.leader_commit, 7);
	ck_assert_uint_eq(back.n_entries, 3);
	ck_assert_uint_eq(back.entries[1].data->len, 5);
	ck_assert_mem_eq(back.entries[1].data->bytes, "hello", 5);
	ck_assert_int_eq(back.entries[2].type, RAFT_CONF);
	raft_message_release(&back);
	for (i = 0; i < len; i++)
		ck_assert_int_eq(raft_message_decode(bytes, i, &back), -EPROTO);
	ck_assert_uint_eq(raft_message_encode(&m, bytes, len - 1), 0);

	m.entries[1].term = 2; /* terms that go down */
	len = raft_message_encode(&m, bytes, sizeof(bytes));
	ck_assert_int_eq(raft_message_decode(bytes, len, &back), -EPROTO);
	m.entries[1].term = 4;
	m.entries[2].type = RAFT_NOOP; /* with data */
	len = raft_message_encode(&m, bytes, sizeof(bytes));
	ck_assert_int_eq(raft_message_decode(bytes, len, &back), -EPROTO);
	raft_message_release(&m);
}
END_TEST

START_TEST(bad_configurations_are_refused)
{
	struct raft_conf conf = {.n = 2, .member = {{2, RAFT_VOTER}, {1, RAFT_VOTER}}}, back;
	struct raft_data *d = raft_conf_encode(&conf);

	ck_assert_int_eq(raft_conf_decode(d->bytes, d->len, &back), -EPROTO); /* not sorted */
	raft_data_unref(d);
	conf.member[0].node = 1; /* twice */
	d = raft_conf_encode(&conf);
	ck_assert_int_eq(raft_conf_decode(d->bytes, d->len, &back), -EPROTO);
	ck_assert_int_eq(raft_conf_decode(d->bytes, d->len - 1, &back), -EPROTO);
	raft_data_unref(d);
}
END_TEST

/* ---- the journal --------------------------------------------------------------------------- */

static struct {
	char dir[160];
	char fatal[600];
} t;

static void on_fatal(void *arg, const char *text)
{
	(void)arg;
	snprintf(t.fatal, sizeof(t.fatal), "%s", text);
}

static void setup(void)
{
	memset(&t, 0, sizeof(t));
	snprintf(t.dir, sizeof(t.dir), "%s/test_meta_journal.XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(t.dir));
}

static void teardown(void)
{
	char command[256];

	snprintf(command, sizeof(command), "rm -rf %s", t.dir);
	ck_assert_int_eq(system(command), 0);
}

static const char *path_of(int n)
{
	static char path[3][200];

	snprintf(path[n], sizeof(path[n]), "%s/%d.db", t.dir, n);
	return path[n];
}

static struct journal *open_again(int n)
{
	struct journal_config config = {.path = path_of(n), .fatal = on_fatal};
	struct ramp_err err = {0};
	struct journal *j;

	ck_assert_msg(journal_open(&config, &j, &err) == 0, "%s", err.text);
	return j;
}

/* Makes the journal of a sole founder; with `joiner` that of a joiner, which is empty. */
static struct journal *new_journal(int n, bool joiner)
{
	struct node_row row = {.node = 1, .name = "a", .role = NODE_VOTER};
	struct meta_founding f = {.instance = 101,
				  .self = (ramp_node_t)n,
				  .arena_addr = UINT64_C(1) << 40,
				  .arena_len = UINT64_C(1) << 40,
				  .nodes = &row,
				  .n_nodes = !joiner};
	struct ramp_err err = {0};

	ck_assert_msg(journal_create(path_of(n), NULL, &f, &err) == 0, "%s", err.text);
	return open_again(n);
}

static void append(struct journal *j, uint64_t index, uint64_t term, const char *text)
{
	struct raft_entry e = {
		.term = term, .type = RAFT_COMMAND, .data = raft_data_make(text, strlen(text))};

	ck_assert_int_eq(journal_append(j, index, &e), 0);
	raft_data_unref(e.data);
}

struct collected {
	int n;
	uint64_t index[10], term[10];
	char text[10][16];
};

static int collect(void *arg, uint64_t index, const struct raft_entry *e)
{
	struct collected *c = arg;

	c->index[c->n] = index;
	c->term[c->n] = e->term;
	snprintf(c->text[c->n++], 16, "%.*s", e->data ? (int)e->data->len : 0,
		 e->data ? (const char *)e->data->bytes : "");
	return 0;
}

START_TEST(a_new_founder_begins_at_one)
{
	struct journal *j = new_journal(1, false);
	struct journal_state s;
	struct raft_data *conf = journal_snap_conf(j);
	enum raft_role role;

	journal_state(j, &s);
	ck_assert_uint_eq(s.snap_index, 1);
	ck_assert_uint_eq(s.snap_term, 1);
	ck_assert_uint_eq(s.applied, 1);
	ck_assert_uint_eq(s.last_index, 1);
	ck_assert(!s.confirmed);
	ck_assert_uint_eq(s.life, 1);
	ck_assert_ptr_nonnull(conf);
	ck_assert_int_eq(journal_get_member(j, 1, &role), 0);
	raft_data_unref(conf);
	journal_close(j);
}
END_TEST

START_TEST(a_joiner_begins_with_nothing)
{
	struct journal *j = new_journal(2, true);
	struct journal_state s;

	journal_state(j, &s);
	ck_assert_uint_eq(s.self, 2);
	ck_assert_uint_eq(s.snap_index, 0);
	ck_assert(!s.confirmed);
	ck_assert_ptr_null(journal_snap_conf(j));
	journal_close(j);
}
END_TEST

START_TEST(what_was_committed_is_there_again_and_nothing_else)
{
	struct journal *j = new_journal(1, false);
	struct collected c = {0};
	struct journal_state s;

	journal_begin(j, true);
	journal_put_hard_state(j, 5, 3, true);
	append(j, 2, 4, "two");
	append(j, 3, 5, "three");
	append(j, 4, 5, "four");
	ck_assert_int_eq(journal_commit(j), 0);
	journal_begin(j, true);
	journal_truncate(j, 4);
	append(j, 4, 6, "vier");
	ck_assert_int_eq(journal_commit(j), 0);
	journal_begin(j, true);
	journal_put_hard_state(j, 99, 9, true);
	append(j, 5, 6, "never");
	journal_close(j); /* dies before its commit */

	j = open_again(1);
	journal_state(j, &s);
	ck_assert_uint_eq(s.term, 5);
	ck_assert_uint_eq(s.vote, 3);
	ck_assert(s.confirmed);
	ck_assert_uint_eq(s.last_index, 4);
	ck_assert_uint_eq(s.life, 2);
	ck_assert_int_eq(journal_each_entry(j, collect, &c), 0);
	ck_assert_int_eq(c.n, 3);
	ck_assert_str_eq(c.text[2], "vier");
	ck_assert_uint_eq(c.term[2], 6);
	journal_close(j);
	ck_assert_str_eq(t.fatal, "");
}
END_TEST

START_TEST(compaction_keeps_term_and_configuration)
{
	struct raft_conf conf = {.n = 1, .member = {{1, RAFT_VOTER}}};
	struct raft_data *d = raft_conf_encode(&conf), *back;
	struct journal *j = new_journal(1, false);
	struct collected c = {0};
	struct journal_state s;

	journal_begin(j, true);
	append(j, 2, 2, "two");
	append(j, 3, 3, "three");
	journal_put_applied(j, 2, 2);
	journal_compact(j, 2, 2, d, 1);
	ck_assert_int_eq(journal_commit(j), 0);
	journal_close(j);
	j = open_again(1);
	journal_state(j, &s);
	ck_assert_uint_eq(s.snap_index, 2);
	ck_assert_uint_eq(s.snap_term, 2);
	back = journal_snap_conf(j);
	ck_assert_uint_eq(back->len, d->len);
	journal_each_entry(j, collect, &c);
	ck_assert_int_eq(c.n, 1);
	ck_assert_uint_eq(c.index[0], 3);
	raft_data_unref(back);
	raft_data_unref(d);
	journal_close(j);
}
END_TEST

START_TEST(writing_outside_of_a_turn_or_with_a_gap_is_fatal)
{
	struct journal *j = new_journal(1, false);
	struct raft_entry e = {.term = 1, .type = RAFT_NOOP};

	ck_assert_int_eq(journal_put_hard_state(j, 2, 0, true), -EIO);
	ck_assert(journal_dead(j));
	ck_assert_str_ne(t.fatal, "");
	ck_assert_int_eq(journal_begin(j, true), -EIO);
	journal_close(j);

	t.fatal[0] = '\0';
	j = open_again(1);
	journal_begin(j, true);
	ck_assert_int_eq(journal_append(j, 7, &e), -EIO);
	ck_assert_str_ne(t.fatal, "");
	ck_assert_int_eq(journal_commit(j), -EIO);
	journal_close(j);
	t.fatal[0] = '\0';
	journal_close(open_again(1));
}
END_TEST

/* ---- snapshots ----------------------------------------------------------------------------- */

static void put_segments(struct journal *j, int n)
{
	struct segment_row row = {.epoch = 1, .node = 1, .node_inc = 11};
	int i;

	journal_begin(j, true);
	for (i = 0; i < n; i++) {
		ck_assert_int_eq(journal_next_segment_id(j, &row.id), 0);
		snprintf(row.name, sizeof(row.name), "segment %d", i);
		row.extent_len = RAMP_EXTENT_MIN;
		ck_assert_int_eq(journal_find_extent(j, row.extent_len, &row.extent_addr), 0);
		ck_assert_int_eq(journal_put_extent(j, row.id, row.extent_addr, row.extent_len), 0);
		ck_assert_int_eq(journal_put_name(j, 1, row.name, row.id, false), 0);
		ck_assert_int_eq(journal_put_segment(j, &row), 0);
	}
	journal_put_applied(j, 2, 1);
	append(j, 2, 1, "x");
	ck_assert_int_eq(journal_commit(j), 0);
}

/* Returns the whole dump in one piece of memory; reads it piece by piece, each one twice. */
static uint8_t *read_dump(struct journal_dump *d, size_t *len)
{
	uint8_t *all = NULL;
	const uint8_t *bytes;
	size_t n;
	bool done;

	*len = 0;
	do {
		ck_assert_int_eq(journal_dump_read(d, *len, &bytes, &n, &done), 0);
		ck_assert_int_eq(journal_dump_read(d, *len, &bytes, &n, &done), 0);
		all = realloc(all, *len + n);
		ck_assert_ptr_nonnull(all);
		memcpy(all + *len, bytes, n);
		*len += n;
	} while (!done);
	return all;
}

static uint8_t *dump(struct journal *j, size_t *len)
{
	struct ramp_err err = {0};
	struct journal_dump *d;
	uint8_t *all;

	ck_assert_msg(journal_dump_open(j, &d, &err) == 0, "%s", err.text);
	all = read_dump(d, len);
	journal_dump_close(d);
	return all;
}

START_TEST(a_dump_makes_equal_tables)
{
	struct journal *a = new_journal(1, false), *b = new_journal(2, true);
	struct raft_conf conf = {.n = 1, .member = {{1, RAFT_VOTER}}};
	struct raft_data *d = raft_conf_encode(&conf);
	uint64_t sum_a, sum_b;
	struct segment_row row;
	struct journal_state s;
	uint8_t *bytes, *again;
	size_t len, n;

	put_segments(a, 2000); /* several pieces */
	bytes = dump(a, &len);
	ck_assert_uint_gt(len, 100000);
	ck_assert(journal_dump_valid(bytes, len));
	ck_assert_int_eq(journal_begin(b, true), 0);
	ck_assert_int_eq(journal_restore(b, bytes, len, 2, 1, d, 1), 0);
	ck_assert_int_eq(journal_commit(b), 0);
	journal_tables_sum(a, &sum_a);
	journal_tables_sum(b, &sum_b);
	ck_assert_uint_eq(sum_a, sum_b);
	ck_assert_int_eq(journal_get_segment(b, RAMP_SEGMENT_ID_MIN + 1999, &row), 0);
	ck_assert_str_eq(row.name, "segment 1999");
	journal_state(b, &s);
	ck_assert_uint_eq(s.applied, 2);
	ck_assert_uint_eq(s.snap_index, 2);
	ck_assert_uint_eq(s.last_index, 2);
	ck_assert_uint_eq(s.self, 2);
	/* Equal tables give equal bytes, so a transfer may continue from another node's dump. */
	again = dump(b, &n);
	ck_assert_uint_eq(n, len);
	ck_assert_mem_eq(again, bytes, len);
	free(again);
	free(bytes);
	raft_data_unref(d);
	journal_close(a);
	journal_close(b);
}
END_TEST

START_TEST(a_dump_is_of_one_moment)
{
	struct journal *j = new_journal(1, false);
	struct ramp_err err = {0};
	struct journal_dump *d;
	const uint8_t *bytes;
	uint8_t *before, *now;
	size_t len, n;
	bool done;

	put_segments(j, 1500);
	before = dump(j, &len);
	ck_assert_int_eq(journal_dump_open(j, &d, &err), 0);
	ck_assert_uint_eq(journal_dump_index(d), 2);
	ck_assert_int_eq(journal_dump_read(d, 0, &bytes, &n, &done), 0);
	journal_begin(j, true);
	journal_delete_segment(j, RAMP_SEGMENT_ID_MIN + 1400);
	ck_assert_int_eq(journal_commit(j), 0);
	now = read_dump(d, &n);
	ck_assert_uint_eq(n, len);
	ck_assert_mem_eq(now, before, len);
	/* It can't go back, and reports that. */
	ck_assert_int_eq(journal_dump_read(d, 0, &bytes, &n, &done), -ESTALE);
	journal_dump_close(d);
	free(before);
	free(now);
	journal_close(j);
}
END_TEST

START_TEST(a_damaged_dump_is_refused)
{
	struct journal *j = new_journal(1, false);
	uint8_t *bytes;
	size_t len, i;

	put_segments(j, 50);
	bytes = dump(j, &len);
	for (i = 0; i < len; i += 97)
		ck_assert(!journal_dump_valid(bytes, i)); /* cut short */
	for (i = 0; i < len; i += 31) {
		bytes[i] ^= 0x40;
		ck_assert(!journal_dump_valid(bytes, len));
		bytes[i] ^= 0x40;
	}
	ck_assert(journal_dump_valid(bytes, len));
	free(bytes);
	journal_close(j);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("meta_journal");
	TCase *bytes = tcase_create("bytes"), *file = tcase_create("file");

	tcase_add_checked_fixture(file, setup, teardown);
	tcase_set_timeout(bytes, 60);
	tcase_set_timeout(file, 60);
	suite_add_tcase(s, bytes);
	suite_add_tcase(s, file);
	tcase_add_test(bytes, commands_come_back_as_they_went);
	tcase_add_test(bytes, only_a_hint_carries_the_epoch_that_it_is_for);
	tcase_add_test(bytes, prepare_carries_all_that_it_compares);
	tcase_add_test(bytes, an_old_extent_is_read);
	tcase_add_test(bytes, conditions_are_carried_where_there_are_any);
	tcase_add_test(bytes, an_old_unlink_is_read);
	tcase_add_test(bytes, the_longest_command_fits);
	tcase_add_test(bytes, bad_commands_are_refused);
	tcase_add_test(bytes, random_bytes_are_no_command);
	tcase_add_test(bytes, replies_come_back_as_they_went);
	tcase_add_test(bytes, messages_come_back_as_they_went);
	tcase_add_test(bytes, bad_configurations_are_refused);
	tcase_add_test(file, a_new_founder_begins_at_one);
	tcase_add_test(file, a_joiner_begins_with_nothing);
	tcase_add_test(file, what_was_committed_is_there_again_and_nothing_else);
	tcase_add_test(file, compaction_keeps_term_and_configuration);
	tcase_add_test(file, writing_outside_of_a_turn_or_with_a_gap_is_fatal);
	tcase_add_test(file, a_dump_makes_equal_tables);
	tcase_add_test(file, a_dump_is_of_one_moment);
	tcase_add_test(file, a_damaged_dump_is_refused);
	return s;
}

int main(void)
{
	return run_suite(suite());
}
