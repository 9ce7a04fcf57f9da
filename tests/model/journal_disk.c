/*
 * The journal on a disk of which one sync fails: what the journal reported as durable remains so,
 * whatever SQLite made of that failure.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/run_suite.h"
#include "meta/journal.h"
#include "meta/journal_create.h"
#include "meta/journal_dump.h"
#include "sim_vfs.h"

#define PATH "/sim/1/journal.db"

static struct {
	struct sim_rng rng;
	char fatal[600];
} t;

static void setup(void)
{
	struct node_row row = {.node = 1, .name = "a", .role = NODE_VOTER};
	struct meta_founding f = {.instance = 101,
				  .self = 1,
				  .arena_addr = UINT64_C(1) << 40,
				  .arena_len = UINT64_C(1) << 40,
				  .nodes = &row,
				  .n_nodes = 1};
	struct ramp_err err = {0};

	memset(&t, 0, sizeof(t));
	ck_assert_int_eq(sim_vfs_register(), 0);
	sim_vfs_reset();
	ck_assert_msg(journal_create(PATH, SIM_VFS, &f, &err) == 0, "%s", err.text);
}

static void on_fatal(void *arg, const char *text)
{
	(void)arg;
	snprintf(t.fatal, sizeof(t.fatal), "%s", text);
}

static int try_open(struct journal **j)
{
	struct journal_config config = {.path = PATH, .vfs = SIM_VFS, .fatal = on_fatal};
	struct ramp_err err = {0};

	return journal_open(&config, j, &err);
}

static struct journal *open_again(void)
{
	struct journal *j;

	ck_assert_int_eq(try_open(&j), 0);
	return j;
}

/* Ends the process, and with `power` the machine, too. */
static void die(struct journal *j, bool power)
{
	sim_vfs_freeze(1);
	journal_close(j);
	ck_assert_uint_eq(sim_vfs_thaw(1, power, &t.rng), 0);
}

static int vote(struct journal *j, uint64_t term, bool durable)
{
	int rc = journal_begin(j, durable);

	rc = rc ? rc : journal_put_hard_state(j, term, 1, true);
	return rc ? rc : journal_commit(j);
}

static uint64_t term_of(struct journal *j)
{
	struct journal_state s;

	journal_state(j, &s);
	return s.term;
}

/* Makes a turn that only applies an entry: it writes a frame of the WAL and more. */
static int apply_one(struct journal *j)
{
	struct journal_state s;
	int rc = journal_begin(j, false);

	journal_state(j, &s);
	rc = rc ? rc : journal_put_applied(j, s.applied + 1, 1);
	return rc ? rc : journal_commit(j);
}

START_TEST(what_a_failed_sync_left_is_made_durable_before_it_is_believed)
{
	struct journal *j;
	uint64_t believed;

	for (uint64_t seed = 0; seed < 20; seed++) {
		t.rng.state = seed;
		j = open_again();
		ck_assert_int_eq(vote(j, seed * 10 + 5, true), 0);
		sim_vfs_fault(1, SIM_DISK_SLIPS, 0);
		ck_assert_int_eq(vote(j, seed * 10 + 6, true), -EIO);
		ck_assert_str_ne(t.fatal, "");
		die(j, false);

		/* The next life finds that vote, answers by it, and gives another. */
		j = open_again();
		believed = term_of(j);
		ck_assert_uint_ge(believed, seed * 10 + 5);
		die(j, true);
		j = open_again();
		ck_assert_uint_ge(term_of(j), believed);
		ck_assert_int_eq(vote(j, seed * 10 + 7, true), 0);
		die(j, true);
		j = open_again();
		ck_assert_uint_eq(term_of(j), seed * 10 + 7);
		die(j, false);
	}
}
END_TEST

START_TEST(a_journal_that_cannot_be_made_durable_is_not_opened)
{
	struct journal *j = open_again();

	ck_assert_int_eq(vote(j, 5, true), 0);
	die(j, false);
	sim_vfs_fault(1, SIM_DISK_BROKEN, 0);
	ck_assert_int_eq(try_open(&j), -EIO);
	sim_vfs_fault(1, SIM_DISK_OK, 0);
	j = open_again();
	ck_assert_uint_eq(term_of(j), 5);
	journal_close(j);
}
END_TEST

/* Turns that are not durable sync nothing by themselves, so the checkpoint's sync is the first. A
   reader keeps the later frames in the WAL, behind the hole, whatever later checkpoints do. */
START_TEST(a_sync_that_fails_within_a_checkpoint_is_fatal)
{
	struct journal *j = open_again();
	struct journal_dump *reader;
	int rc = 0;

	sim_vfs_fault(1, SIM_DISK_SLIPS, 0);
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(apply_one(j), 0);
	ck_assert_int_eq(journal_dump_open(j, &reader, NULL), 0);
	for (int i = 0; i < 3000 && rc == 0; i++)
		rc = apply_one(j);
	rc = rc ? rc : vote(j, 7, true);
	sim_vfs_freeze(1);
	journal_dump_close(reader);
	die(j, true);
	j = open_again();
	if (rc == 0)
		ck_assert_uint_eq(term_of(j), 7);
	journal_close(j);
	ck_assert_int_eq(rc, -EIO);
	ck_assert_str_ne(t.fatal, "");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("journal_disk");
	TCase *disk = tcase_create("disk");

	tcase_add_checked_fixture(disk, setup, NULL);
	tcase_set_timeout(disk, 60);
	suite_add_tcase(s, disk);
	tcase_add_test(disk, what_a_failed_sync_left_is_made_durable_before_it_is_believed);
	tcase_add_test(disk, a_journal_that_cannot_be_made_durable_is_not_opened);
	tcase_add_test(disk, a_sync_that_fails_within_a_checkpoint_is_fatal);
	return run_suite(s);
}
