/*
 * The level of the rules, and what a newer program has written: it rises when every member knows
 * it, and what this program does not know stops it, in a line, before its tables differ.
 */
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "lib/run_suite.h"
#include "meta/journal_dump.h"
#include "meta/journal_format.h"
#include "meta/meta_core.h"
#include "meta/raft_log.h"
#include "meta/replica.h"
#include "meta_net.h"

static uint64_t level_at(ramp_node_t id)
{
	struct meta_settings settings;

	ck_assert_int_eq(meta_get_settings(meta_of(id), &settings), 0);
	return settings.level;
}

/* ---- it rises when every member knows it --------------------------------------------------- */

#define ALL UINT32_MAX

static _Atomic ramp_node_t mute; /* the node whose words of its level are lost; ALL: all of them */
static atomic_uint lost, heard;

static bool lose_levels(ramp_node_t from, ramp_node_t to, const uint8_t *bytes, size_t len)
{
	(void)to;
	if (len == 0 || bytes[0] != WIRE_LEVEL)
		return true;
	if (atomic_load(&mute) == ALL || atomic_load(&mute) == from) {
		atomic_fetch_add(&lost, 1);
		return false;
	}
	atomic_fetch_add(&heard, 1);
	return true;
}

static int create_with_extent(ramp_node_t at)
{
	struct meta_command c = create_command(at, 1, "with an extent");
	struct meta_reply reply;

	c.flags = META_WITH_EXTENT;
	c.attr.size = 1;
	return meta_propose_wait(meta_of(at), &c, &reply);
}

/* A member of an older program would stop at such an entry. */
static void propose_too_early(ramp_node_t at)
{
	struct meta_status before, after;

	meta_get_status(meta_of(at), &before);
	ck_assert_int_eq(create_with_extent(at), -EOPNOTSUPP);
	meta_get_status(meta_of(at), &after);
	ck_assert_uint_eq(after.commit, before.commit);
	ck_assert_uint_eq(after.log_entries, before.log_entries);
}

START_TEST(the_level_waits_for_every_member)
{
	ramp_node_t id, silent;

	atomic_store(&mute, ALL);
	atomic_store(&net.passes, lose_levels);
	net_found(3);
	all_up(3);
	WAIT_FOR(atomic_load(&lost) >= 4);
	for (id = 1; id <= 3; id++)
		ck_assert_uint_eq(level_at(id), 0);
	for (id = 1; id <= 3; id++)
		propose_too_early(id);

	/* One does not say it, as a node of an older program does not. */
	silent = another(wait_leader(1, 3));
	atomic_store(&lost, 0);
	atomic_store(&mute, silent);
	WAIT_FOR(atomic_load(&lost) >= 3 && atomic_load(&heard) >= 3);
	for (id = 1; id <= 3; id++)
		ck_assert_uint_eq(level_at(id), 0);

	atomic_store(&mute, 0);
	for (id = 1; id <= 3; id++)
		WAIT_FOR(level_at(id) == META_LEVEL_KNOWN);
	ck_assert_int_eq(create_with_extent(2), 0);
	ck_assert_int_eq(create_with_extent(3), -EEXIST);
	net_stop(1);
	net_start(1);
	ck_assert_uint_eq(level_at(1), META_LEVEL_KNOWN);
}
END_TEST

START_TEST(the_level_waits_for_a_member_that_is_down)
{
	ramp_node_t id, down;

	atomic_store(&mute, ALL);
	atomic_store(&heard, 0);
	atomic_store(&net.passes, lose_levels);
	net_found(3);
	all_up(3);
	down = another(wait_leader(1, 3));
	net_stop(down);
	atomic_store(&mute, 0);
	WAIT_FOR(atomic_load(&heard) >= 4);
	ck_assert_uint_eq(level_at(wait_leader(1, 3)), 0);
	net_start(down);
	for (id = 1; id <= 3; id++)
		WAIT_FOR(level_at(id) == META_LEVEL_KNOWN);
}
END_TEST

START_TEST(the_level_does_not_wait_for_a_member_that_never_was_up)
{
	ramp_node_t id;

	for (id = 1; id <= 2; id++)
		net_format(id, 3, 2, 100 + id);
	net_start(1);
	net_start(2);
	for (id = 1; id <= 2; id++)
		WAIT_FOR(level_at(id) == META_LEVEL_KNOWN);
}
END_TEST

/* ---- what a newer program has written ------------------------------------------------------ */

static void run_sql(ramp_node_t id, const char *text)
{
	sqlite3 *db;
	char *why = NULL;

	ck_assert_int_eq(sqlite3_open(net.node[id].path, &db), SQLITE_OK);
	ck_assert_msg(sqlite3_exec(db, text, NULL, NULL, &why) == SQLITE_OK, "%s", why);
	sqlite3_close(db);
}

static uint64_t ask_sql(ramp_node_t id, const char *text)
{
	sqlite3_stmt *st;
	uint64_t value;
	sqlite3 *db;

	ck_assert_int_eq(sqlite3_open(net.node[id].path, &db), SQLITE_OK);
	ck_assert_int_eq(sqlite3_prepare_v2(db, text, -1, &st, NULL), SQLITE_OK);
	ck_assert_int_eq(sqlite3_step(st), SQLITE_ROW);
	value = (uint64_t)sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	sqlite3_close(db);
	return value;
}

static void start_refused(ramp_node_t id, const char *words)
{
	struct meta_config config = {.journal_path = net.node[id].path};
	struct ramp_err err = {0};
	struct meta *meta;

	ck_assert_int_eq(meta_open(&config, &meta, &err), -EOPNOTSUPP);
	ck_assert_msg(strstr(err.text, words) != NULL, "\"%s\" is not in: %s", words, err.text);
	ck_assert_msg(strstr(err.text, RAMPFS_VERSION) != NULL, "no version in: %s", err.text);
}

static void no_change(void *arg, ramp_segment_t id, bool attributes)
{
	(void)arg;
	(void)id;
	(void)attributes;
}

/* Opens a copy of node 1's journal, which only reads, and finds the segment x in it. */
static int look_at_copy(void)
{
	struct meta_config config = {.journal_path = net.node[1].path,
				     .send = net_send,
				     .changed = no_change,
				     .why = "newer"};
	struct segment_row row;
	struct ramp_err err;
	struct meta *copy;
	char path[220];
	int rc;

	snprintf(path, sizeof(path), "%s.copy", net.node[1].path);
	rc = meta_open_copy(&config, path, &copy, &err);
	if (rc)
		return rc;
	ck_assert_int_eq(meta_lookup(copy, 1, "x", &row), 0);
	meta_close(copy);
	return 0;
}

/* Makes a journal with some rows, of a node that is stopped. */
static void make_used(void)
{
	net_found(1);
	all_up(1);
	ck_assert_int_eq(create(1, 1, "x", NULL), 0);
	WAIT_FOR(level_at(1) == META_LEVEL_KNOWN);
	net_stop(1);
}

START_TEST(a_file_of_a_newer_format_is_refused_and_of_an_older_one_brought_up)
{
	struct segment_row row;

	make_used();
	ck_assert_uint_eq(ask_sql(1, "SELECT v FROM meta WHERE k = 'format'"), JOURNAL_FORMAT);
	run_sql(1, "UPDATE meta SET v = 3 WHERE k = 'format'");
	start_refused(1, "is of format 3, a newer rampfs has used it");
	start_refused(1, "knows formats up to 2");
	ck_assert_int_eq(look_at_copy(), -EOPNOTSUPP);
	ck_assert_uint_eq(ask_sql(1, "SELECT v FROM meta WHERE k = 'format'"), 3);

	run_sql(1, "UPDATE meta SET v = 1 WHERE k = 'format'; DROP INDEX segment_use");
	net_start(1);
	ck_assert_int_eq(meta_lookup(meta_of(1), 1, "x", &row), 0);
	net_stop(1);
	ck_assert_uint_eq(ask_sql(1, "SELECT v FROM meta WHERE k = 'format'"), JOURNAL_FORMAT);
	ck_assert_uint_eq(
		ask_sql(1, "SELECT count(*) FROM sqlite_master WHERE name = 'segment_use'"), 1);
	net_start(1);
}
END_TEST

START_TEST(tables_of_a_higher_level_are_refused)
{
	make_used();
	run_sql(1, "UPDATE counter SET v = 7 WHERE k = 'level'");
	start_refused(1, "metadata is of level 7");
	start_refused(1, "knows levels up to 3");
}
END_TEST

START_TEST(a_log_with_an_entry_of_a_newer_program_is_refused)
{
	char words[80];
	uint64_t last;

	make_used();
	last = ask_sql(1, "SELECT max(idx) FROM log");
	run_sql(1, "INSERT INTO log SELECT max(idx) + 1, max(term), 2, x'01c8' FROM log");
	snprintf(words, sizeof(words), "entry %llu of the log was made by a newer rampfs",
		 (unsigned long long)last + 1);
	start_refused(1, words);
	/* The tables are as good as they were: no entry of the log is applied to a copy. */
	ck_assert_int_eq(look_at_copy(), 0);
	/* An entry that was applied already is in the tables, by whichever program. */
	run_sql(1, "UPDATE meta SET v = v + 1 WHERE k = 'applied'");
	net_start(1);
	WAIT_FOR(applied(1) > last + 1);
}
END_TEST

/* ---- a replica that meets one -------------------------------------------------------------- */

static char fatal_text[400];

static void on_fatal(void *arg, const char *text)
{
	(void)arg;
	ck_assert_str_eq(fatal_text, "");
	snprintf(fatal_text, sizeof(fatal_text), "%s", text);
}

static void no_send(void *arg, const struct raft_message *m)
{
	(void)arg;
	(void)m;
}

static void on_applied(void *arg, uint64_t index, const struct fsm_result *result)
{
	(void)result;
	*(uint64_t *)arg = index;
}

static void on_restored(void *arg, uint64_t index)
{
	*(uint64_t *)arg = index;
}

static int make_turns(struct replica *p, uint64_t now_ms)
{
	int rc;

	do {
		replica_send_early(p);
		rc = replica_commit(p);
	} while (replica_finish(p, now_ms));
	return rc;
}

static int step(struct replica *p, enum raft_event_type type, uint64_t now_ms, const char *entry)
{
	struct raft_event ev = {.type = type, .now_ms = now_ms};

	if (entry) {
		ev.entry.type = RAFT_COMMAND;
		ev.entry.data = raft_data_make(entry, strlen(entry));
	}
	ck_assert_int_eq(replica_step(p, &ev), 0);
	raft_data_unref(ev.entry.data);
	return make_turns(p, now_ms);
}

START_TEST(a_replica_stops_at_an_entry_of_a_newer_program)
{
	uint64_t now_ms = 0, seen = 0;
	struct replica_config config = {
		.journal = {.path = net.node[1].path, .fatal = on_fatal},
		.hooks = {.send = no_send, .applied = on_applied, .arg = &seen}};
	struct journal_state state;
	struct ramp_err err = {0};
	struct replica *p;

	fatal_text[0] = 0;
	net_format(1, 1, 1, 101);
	ck_assert_int_eq(replica_open(&config, now_ms, &p, &err), 0);
	step(p, RAFT_EV_CONFIRM, now_ms, NULL);
	while (seen < 2) { /* the entry with which it begins to lead */
		ck_assert_int_eq(step(p, RAFT_EV_TICK, now_ms, NULL), 0);
		now_ms += 500;
	}
	journal_state(replica_journal(p), &state);
	ck_assert_int_eq(step(p, RAFT_EV_PROPOSE, now_ms, "of the future"), -EIO);
	ck_assert_msg(strstr(fatal_text, "was made by a newer rampfs") != NULL, "%s", fatal_text);
	ck_assert_int_eq(replica_commit(p), -EIO);
	ck_assert_uint_eq(seen, state.applied);
	replica_close(p);
	ck_assert_uint_eq(ask_sql(1, "SELECT v FROM meta WHERE k = 'applied'"), state.applied);
	ck_assert_int_eq(replica_open(&config, now_ms, &p, &err), -EOPNOTSUPP);
	ck_assert_str_eq(err.text, fatal_text);
}
END_TEST

/* Steps the replica of node 1 with a snapshot of the tables at `path`, as their leader 2 sends it. */
static int take_snapshot(struct replica *p, const char *path)
{
	struct journal_config config = {.path = path, .fatal = on_fatal};
	struct raft_conf conf = {.n = 2, .member = {{1, RAFT_VOTER}, {2, RAFT_VOTER}}};
	struct raft_message m = {.type = RAFT_SNAPSHOT,
				 .from = 2,
				 .to = 1,
				 .term = 5,
				 .index = 9,
				 .log_term = 4,
				 .conf_index = 1,
				 .conf = raft_conf_encode(&conf)};
	struct raft_event ev = {.type = RAFT_EV_MESSAGE, .message = &m};
	struct journal_dump *dump;
	struct ramp_err err = {0};
	struct journal *j;
	int rc = 0;

	ck_assert_msg(journal_open(&config, &j, &err) == 0, "%s", err.text);
	ck_assert_int_eq(journal_dump_open(j, &dump, &err), 0);
	while (!m.done) {
		ck_assert_int_eq(journal_dump_read(dump, m.offset, &m.bytes, &m.len, &m.done), 0);
		ck_assert_int_eq(replica_step(p, &ev), 0);
		rc = make_turns(p, 0);
		m.offset += m.len;
	}
	journal_dump_close(dump);
	journal_close(j);
	raft_data_unref(m.conf);
	return rc;
}

START_TEST(a_snapshot_of_a_higher_level_is_not_taken)
{
	uint64_t seen = 0;
	struct replica_config config = {.journal = {.path = net.node[1].path, .fatal = on_fatal},
					.hooks = {.send = no_send,
						  .applied = on_applied,
						  .restored = on_restored,
						  .arg = &seen}};
	struct ramp_err err = {0};
	struct replica *p;

	fatal_text[0] = 0;
	net_format(1, 2, 2, 101);
	net_format(2, 2, 2, 102);
	run_sql(2, "INSERT INTO counter VALUES ('level', 7)");
	ck_assert_int_eq(replica_open(&config, 0, &p, &err), 0);
	ck_assert_int_eq(take_snapshot(p, net.node[2].path), -EIO);
	ck_assert_msg(strstr(fatal_text, "metadata is of level 7") != NULL, "%s", fatal_text);
	replica_close(p);
	ck_assert_uint_eq(ask_sql(1, "SELECT v FROM meta WHERE k = 'applied'"), 1);
	ck_assert_uint_eq(ask_sql(1, "SELECT count(*) FROM counter WHERE k = 'level'"), 0);

	run_sql(2, "UPDATE counter SET v = 1 WHERE k = 'level'");
	fatal_text[0] = 0;
	ck_assert_int_eq(replica_open(&config, 0, &p, &err), 0);
	ck_assert_int_eq(take_snapshot(p, net.node[2].path), 0);
	ck_assert_uint_eq(seen, 9);
	replica_close(p);
	ck_assert_uint_eq(ask_sql(1, "SELECT v FROM counter WHERE k = 'level'"), 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("meta_level");
	TCase *tc = tcase_create("level");

	tcase_add_checked_fixture(tc, net_setup, net_teardown);
	tcase_add_test(tc, the_level_waits_for_every_member);
	tcase_add_test(tc, the_level_waits_for_a_member_that_is_down);
	tcase_add_test(tc, the_level_does_not_wait_for_a_member_that_never_was_up);
	tcase_add_test(tc, a_file_of_a_newer_format_is_refused_and_of_an_older_one_brought_up);
	tcase_add_test(tc, tables_of_a_higher_level_are_refused);
	tcase_add_test(tc, a_log_with_an_entry_of_a_newer_program_is_refused);
	tcase_add_test(tc, a_replica_stops_at_an_entry_of_a_newer_program);
	tcase_add_test(tc, a_snapshot_of_a_higher_level_is_not_taken);
	suite_add_tcase(s, tc);
	return run_suite(s);
}
