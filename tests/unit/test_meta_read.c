/*
 * Reading the tables while memory runs out: an existing row is never reported as missing. And from a
 * copy, where the journal can't be written.
 */
#include <errno.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "lib/run_suite.h"
#include "meta_net.h"

#define SEGMENTS 70 /* more than one read takes */
#define OPENINGS 15 /* every fifteenth allocation of a connection's opening fails */

/* Of the reading thread; the journal's own writer is spared. */
static __thread long left = -1; /* allocations that pass before one fails; -1: none does */
static __thread bool all_fail;
static sqlite3_mem_methods real;
static ramp_segment_t ids[SEGMENTS];
static char fatal[200];

static bool fails(void)
{
	return all_fail || (left >= 0 && left-- == 0);
}

static void *failing_malloc(int n)
{
	return fails() ? NULL : real.xMalloc(n);
}

static void *failing_realloc(void *p, int n)
{
	return fails() ? NULL : real.xRealloc(p, n);
}

/* Must come before any use of SQLite. */
static bool let_allocations_fail(void)
{
	static sqlite3_mem_methods methods;

	if (sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real))
		return false;
	methods = real;
	methods.xMalloc = failing_malloc;
	methods.xRealloc = failing_realloc;
	/* Without lookaside, small allocations come from here, too. */
	return !sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) &&
	       !sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0);
}

static void setup(void)
{
	char name[16];

	net_setup();
	net_found(1);
	all_up(1);
	for (int i = 0; i < SEGMENTS; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		ck_assert_int_eq(create(1, 1, name, &ids[i]), 0);
	}
}

static int count(void *arg, const struct segment_row *row)
{
	int *n = arg;

	ck_assert_uint_eq(row->id, ids[(*n)++]);
	ck_assert_int_eq(row->name[0], 'f');
	return 0;
}

static int count_node(void *arg, const struct node_row *row)
{
	ck_assert_str_eq(row->name, "a");
	++*(int *)arg;
	return 0;
}

/* Another one each time: a row that was read is kept. */
static void read_segment(struct meta *meta)
{
	static int turn;
	struct segment_row row;
	char name[16];

	turn = (turn + 1) % SEGMENTS;
	snprintf(name, sizeof(name), "f%d", turn);
	ck_assert_int_eq(meta_segment(meta, ids[turn], &row), 0);
	ck_assert_str_eq(row.name, name);
}

static void read_name(struct meta *meta)
{
	struct segment_row row;

	ck_assert_int_eq(meta_lookup(meta, 1, "f5", &row), 0);
	ck_assert_uint_eq(row.id, ids[5]);
}

static void read_none(struct meta *meta)
{
	struct segment_row row;

	ck_assert_int_eq(meta_segment(meta, ids[SEGMENTS - 1] + 1, &row), -ENOENT);
	ck_assert_int_eq(meta_lookup(meta, 1, "none", &row), -ENOENT);
}

static void read_segments(struct meta *meta)
{
	int n = 0;

	ck_assert_int_eq(meta_each_segment(meta, 1, 0, count, &n), 0);
	ck_assert_int_eq(n, SEGMENTS);
	n = 0;
	ck_assert_int_eq(meta_each_segment(meta, 0, 0, count, &n), 0);
	ck_assert_int_eq(n, SEGMENTS);
}

static void read_nodes(struct meta *meta)
{
	struct node_row row;
	int n = 0;

	ck_assert_int_eq(meta_node(meta, 1, &row), 0);
	ck_assert_str_eq(row.name, "a");
	ck_assert_int_eq(meta_node_by_name(meta, "a", &row), 0);
	ck_assert_uint_eq(row.node, 1);
	ck_assert_int_eq(meta_each_node(meta, count_node, &n), 0);
	ck_assert_int_eq(n, 1);
}

static void (*const reads[])(struct meta *meta) = {read_segment, read_name, read_none,
						   read_segments, read_nodes};
#define READS ((int)(sizeof(reads) / sizeof(reads[0])))

/* Returns how many allocations were made to fail. */
static long fail_each(void (*fn)(struct meta *meta), bool anew, long step)
{
	long hits = 0;

	for (long n = 0;; n += step, hits++) {
		bool hit;

		if (anew) {
			net_stop(1);
			net_start(1);
		}
		left = n;
		fn(meta_of(1));
		hit = left < 0;
		left = -1;
		if (!hit)
			return hits;
	}
}

START_TEST(an_allocation_that_fails_changes_no_answer)
{
	/* The connection is kept, or was made again after one that failed. */
	reads[_i](meta_of(1));
	ck_assert_int_gt(fail_each(reads[_i], false, 1), 0);
}
END_TEST

START_TEST(nor_does_one_that_fails_while_a_connection_is_opened)
{
	ck_assert_int_gt(fail_each(reads[_i], true, OPENINGS), 10);
}
END_TEST

static void remember(void *arg, const char *text)
{
	(void)arg;
	snprintf(fatal, sizeof(fatal), "%s", text);
}

START_TEST(what_can_never_be_read_ends_the_process_and_says_why)
{
	struct segment_row row;

	net_stop(1);
	net.fatal = remember;
	net_start(1);
	all_fail = true;
	ck_assert_int_eq(meta_segment(meta_of(1), ids[3], &row), -EIO);
	all_fail = false;
	ck_assert_ptr_nonnull(strstr(fatal, net.node[1].path));
	ck_assert_ptr_nonnull(strstr(fatal, "out of memory"));
}
END_TEST

/* A start makes the journal's contents durable; a reader of an older state prevents that. */
START_TEST(who_reads_the_journal_at_a_start_is_named)
{
	struct meta_config config = {.journal_path = net.node[1].path};
	struct ramp_err err = {0};
	struct meta *meta;
	sqlite3 *other;

	ck_assert_int_eq(sqlite3_open(net.node[1].path, &other), SQLITE_OK);
	ck_assert_int_eq(sqlite3_exec(other, "BEGIN; SELECT * FROM node", NULL, NULL, NULL),
			 SQLITE_OK);
	ck_assert_int_eq(create(1, 1, "later", NULL), 0);
	net_stop(1);
	ck_assert_int_eq(meta_open(&config, &meta, &err), -EBUSY);
	ck_assert_msg(strstr(err.text, net.node[1].path) && strstr(err.text, "another program"),
		      "%s", err.text);
	sqlite3_close(other);
	net_start(1);
}
END_TEST

static void no_send(void *arg, ramp_node_t to, const void *bytes, size_t len)
{
	(void)arg;
	(void)to;
	(void)bytes;
	(void)len;
	ck_abort_msg("a copy has sent a message");
}

static void no_change(void *arg, ramp_segment_t id, bool attributes)
{
	(void)arg;
	(void)id;
	(void)attributes;
	ck_abort_msg("a copy has changed");
}

/* Of the file and its WAL, byte by byte. */
static uint64_t journal_sum(const char *path)
{
	uint64_t sum = 0;
	char name[256];

	for (int i = 0; i < 2; i++) {
		FILE *f;
		int c;

		snprintf(name, sizeof(name), "%s%s", path, i ? "-wal" : "");
		f = fopen(name, "r");
		while (f && (c = fgetc(f)) != EOF)
			sum = sum * 31 + (unsigned)c + 1;
		if (f)
			fclose(f);
	}
	return sum;
}

START_TEST(a_copy_is_read_and_takes_no_part)
{
	struct meta_config config = {.send = no_send,
				     .changed = no_change,
				     .journal_path = net.node[1].path,
				     .why = "full"};
	struct meta_command later;
	struct meta_reply reply;
	struct segment_row row;
	struct ramp_err err;
	struct meta *copy;
	char path[256];
	uint64_t sum;

	later = create_command(1, 1, "later");
	sum = journal_sum(config.journal_path);
	snprintf(path, sizeof(path), "%s.copy", config.journal_path);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(meta_open_copy(&config, path, &copy, &err), 0);
		ck_assert_str_eq(meta_why_copy(copy), "full");
		ck_assert_ptr_null(meta_why_copy(meta_of(1)));
		ck_assert_int_eq(meta_lookup(copy, 1, "f3", &row), 0);
		ck_assert_uint_eq(row.id, ids[3]); /* of the WAL */
		ck_assert(meta_self(copy) == 1 && meta_instance(copy) == net.node[1].instance);
		meta_peer(copy, 1, true);
		meta_receive(copy, 1, 0, "garbage", 7);
		meta_transfer_leadership(copy);
		/* Not even a sole voter leads by a copy. */
		ck_assert_int_eq(meta_propose_wait(copy, &later, &reply), -EROFS);
		ck_assert(!meta_has_quorum(copy) && meta_leader(copy) == 0);
		meta_close(copy);
	}
	ck_assert_uint_eq(journal_sum(config.journal_path), sum);
	meta_remove_copy(path);
	ck_assert_int_ne(access(path, F_OK), 0);
	/* A journal that is not there is not made. */
	snprintf(path, sizeof(path), "%s/none", net.dir);
	config.journal_path = path;
	ck_assert_int_eq(meta_open_copy(&config, net.dir, &copy, &err), -ENOENT);
	ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

/* Where there is no journal, rows that are known otherwise are read like a copy's. */
START_TEST(rows_are_read_and_take_no_part)
{
	struct meta_config config = {.send = no_send, .changed = no_change, .why = "gone"};
	struct node_row node = {
		.node = 6, .name = "n6", .address = "127.0.0.1:1", .incarnation = 9};
	const struct meta_founding known = {
		.instance = 5, .self = 6, .nodes = &node, .n_nodes = 1, .joins = true};
	struct segment_row *rows = calloc(2, sizeof(*rows));
	struct meta_command later = create_command(1, 1, "later");
	struct meta_reply reply;
	struct segment_row row;
	struct ramp_err err;
	struct meta *meta;
	char path[256];

	rows[0] = (struct segment_row){.id = 5000,
				       .epoch = 3,
				       .phase = SEGMENT_STABLE,
				       .node = 6,
				       .name = "a",
				       .size = 11};
	rows[1] = (struct segment_row){
		.id = 5001, .epoch = 4, .phase = SEGMENT_STABLE, .node = 6, .name = "a"};
	snprintf(path, sizeof(path), "%s/rows", net.dir);
	for (int i = 0; i < 2; i++) { /* again over what an earlier process has left */
		ck_assert_int_eq(meta_open_rows(&config, path, &known, rows, 2, &meta, &err), 0);
		ck_assert_str_eq(meta_why_copy(meta), "gone");
		ck_assert(meta_self(meta) == 6 && meta_instance(meta) == 5);
		ck_assert_int_eq(meta_lookup(meta, 6, "a", &row), 0);
		ck_assert(row.id == 5000 && row.epoch == 3 && row.size == 11);
		ck_assert_int_eq(meta_lookup(meta, 6, "recovered-5001", &row), 0);
		ck_assert_uint_eq(row.id, 5001);
		ck_assert_int_eq(meta_propose_wait(meta, &later, &reply), -EROFS);
		ck_assert(!meta_has_quorum(meta) && meta_leader(meta) == 0);
		meta_close(meta);
	}
	meta_remove_copy(path);
	free(rows);
}
END_TEST

static void shown(void *arg, const struct meta_reply *reply)
{
	atomic_store((atomic_int *)arg, reply->result);
}

/* A journal that can be read and makes no sense; and a wait that no message ends. */
START_TEST(a_damaged_copy_is_told_from_a_missing_one)
{
	struct meta_config config = {.send = no_send,
				     .changed = no_change,
				     .journal_path = net.node[1].path,
				     .why = "x"};
	char path[256], damaged[256];
	atomic_int result = 1;
	struct ramp_err err;
	struct meta *copy;
	FILE *f;

	snprintf(path, sizeof(path), "%s.copy", config.journal_path);
	ck_assert_int_eq(meta_open_copy(&config, path, &copy, &err), 0);
	meta_wait_shown(copy, 1, 600000, shown, &result);
	for (int i = 0; i < 10000 && atomic_load(&result) == 1; i++)
		usleep(1000);
	ck_assert_int_eq(atomic_load(&result), -EROFS);
	meta_close(copy);
	/* A page that opening it does not read. */
	snprintf(damaged, sizeof(damaged), "%s/torn", net.dir);
	ck_assert_int_eq(rename(path, damaged), 0);
	f = fopen(damaged, "r+");
	ck_assert_int_eq(fseek(f, -4096, SEEK_END), 0);
	for (int i = 0; i < 4096; i++)
		fputc(0xff, f);
	fclose(f);
	config.journal_path = damaged;
	ck_assert_int_eq(meta_open_copy(&config, path, &copy, &err), -EUCLEAN);
	/* No journal at all. */
	snprintf(damaged, sizeof(damaged), "%s/damaged", net.dir);
	f = fopen(damaged, "w");
	for (int i = 0; i < 20000; i++)
		fputs("no journal", f);
	fclose(f);
	config.journal_path = damaged;
	ck_assert_int_eq(meta_open_copy(&config, path, &copy, &err), -EUCLEAN);
	ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("meta_read");
	TCase *tc = tcase_create("meta_read");

	log_open("test_meta_read", 0, LOG_LEVEL_ERROR);
	if (!let_allocations_fail()) {
		fprintf(stderr, "SQLite takes no allocator\n");
		return 1;
	}
	tcase_add_checked_fixture(tc, setup, net_teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, an_allocation_that_fails_changes_no_answer, 0, READS);
	tcase_add_loop_test(tc, nor_does_one_that_fails_while_a_connection_is_opened, 0, READS);
	tcase_add_test(tc, what_can_never_be_read_ends_the_process_and_says_why);
	tcase_add_test(tc, who_reads_the_journal_at_a_start_is_named);
	tcase_add_test(tc, a_copy_is_read_and_takes_no_part);
	tcase_add_test(tc, rows_are_read_and_take_no_part);
	tcase_add_test(tc, a_damaged_copy_is_told_from_a_missing_one);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
