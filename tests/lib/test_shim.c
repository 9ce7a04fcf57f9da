/*
 * The shim against a daemon of the test's own: programs that map a segment every way mmap(2) knows,
 * a segment that freezes, goes and comes back, and a daemon that dies at bad moments.
 *
 * Needs root and /dev/fuse.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/session.h"
#include "fake_daemon.h"
#include "shim_driver.h"

/* The scenarios that need no help of the test, and how many lines of refusal each gets. */
static const struct quiet {
	const char *scenario;
	int lines;
} alone[] = {
	{"basic", 0},	{"partial", 0}, {"large", 2},	{"arguments", 1},  {"readonly", 0},
	{"protect", 3}, {"remap", 3},	{"private", 0}, {"forks", 0},	   {"execs", 0},
	{"kin", 1},	{"threads", 0}, {"signals", 0}, {"daemonlike", 0}, {"leaver", 0},
	{"flags", 0},	{"around", 0},	{"halfway", 0}, {"full", 1},	   {"taken", 1},
};

START_TEST(a_program_maps_as_mmap_promises)
{
	struct program p = start(alone[_i].scenario);

	finish(&p);
	ck_assert_msg(count_said("\n") == alone[_i].lines, "%s said: %s", alone[_i].scenario,
		      said());
	ck_assert_int_eq(count_said("rampfs: "), alone[_i].lines);
}
END_TEST

#ifdef SHIM_PROG_MUSL
/* The scenarios for a program of another C library, and how many lines of refusal each gets. */
static const struct quiet others[] = {
	{"basic", 0},	 {"partial", 0}, {"large", 2},	    {"arguments", 1}, {"flags", 0},
	{"readonly", 0}, {"remap", 3},	 {"private", 0},    {"forks", 0},     {"execs", 0},
	{"threads", 0},	 {"signals", 0}, {"tree", 0},	    {"crowd", 0},     {"around", 0},
	{"halfway", 0},	 {"full", 1},	 {"daemonlike", 0},
};

START_TEST(a_program_with_musl_maps_as_mmap_promises)
{
	struct program p;

	snprintf(prog_path, sizeof(prog_path), "%s", SHIM_PROG_MUSL);
	p = start(others[_i].scenario);
	finish(&p);
	ck_assert_msg(count_said("\n") == others[_i].lines, "%s said: %s", others[_i].scenario,
		      said());
}
END_TEST

START_TEST(a_program_with_musl_has_its_segment_again)
{
	struct program p;

	snprintf(prog_path, sizeof(prog_path), "%s", SHIM_PROG_MUSL);
	p = start("gone");
	await(&p, "here");
	fake_revoke(fake, p.pid);
	fake_gone(fake, p.pid, "rampfs: a/seg is now on node b; touching it here is SIGBUS");
	go_on(&p);
	await(&p, "gone");
	fake_back(fake, p.pid);
	go_on(&p);
	finish(&p);
	ck_assert_str_eq(said(), "rampfs: a/seg is now on node b; touching it here is SIGBUS\n");
}
END_TEST
#endif

START_TEST(a_program_needs_no_privilege)
{
	struct program p = start_as("forks", 65534);

	finish(&p);
	ck_assert_str_eq(said(), "");
}
END_TEST

/* Checks that the program's first mmap fails with this text. */
static void is_refused(struct program *p, const char *line)
{
	int status;

	ck_assert_int_eq(waitpid(p->pid, &status, 0), p->pid);
	ck_assert_int_eq(WEXITSTATUS(status), 1);
	ck_assert_msg(count_said("rampfs: ") == (line ? 1 : 0), "said: %s", said());
	if (line)
		ck_assert_msg(count_said(line) == 1, "said: %s", said());
	close(p->to);
	close(p->from);
}

#define NOT_ROOTS                                                                                  \
	"rampfs: mmap: the listener at its socket is not root's daemon below /run/rampfs\n"

static const uid_t victims[] = {0, 65534, 1000};

/* Not even its own user may listen: a program with privileges could lose them to that user. */
START_TEST(who_listens_and_is_not_root_gets_no_program)
{
	struct program p;

	fake_listen_as(fake, 65534);
	p = start_as("basic", victims[_i]);
	is_refused(&p, NOT_ROOTS);
}
END_TEST

START_TEST(who_listens_elsewhere_gets_no_program)
{
	struct program p;

	fake_move_socket(fake);
	p = start("basic");
	is_refused(&p, NOT_ROOTS);
}
END_TEST

START_TEST(a_mount_that_is_not_roots_is_no_rampfs)
{
	struct program p;

	fake_stop(fake);
	fake = fake_start_mounted_by(dir, 65534);
	p = start("basic");
	is_refused(&p, NULL);
	ck_assert_int_eq(count_said("No such device"), 1);
}
END_TEST

/* Root could be led to move another segment than the one it named. */
START_TEST(the_tools_ask_no_mount_that_is_not_roots)
{
	char command[1024];

	fake_stop(fake);
	fake = fake_start_mounted_by(dir, 65534);
	snprintf(command, sizeof(command),
		 "%s %s b 2>%s; [ $? = 1 ] && %s -m %s/mnt promote b 2>>%s; [ $? = 1 ]",
		 RAMPFS_MIGRATE, file, errors, RAMPFS_NODE, dir, errors);
	ck_assert_int_eq(system(command), 0);
	ck_assert_msg(count_said("is not on a rampfs that root has mounted\n") == 1, "%s", said());
	ck_assert_msg(count_said("is not a rampfs that root has mounted\n") == 1, "%s", said());
}
END_TEST

static dev_t device(void)
{
	struct stat st;

	ck_assert_int_eq(stat(file, &st), 0);
	return st.st_dev;
}

/* The hostile mount's file claims to be the very segment that the program has mapped. The kernel
   gives the lowest free device number: as a rule the one that has just been given back. */
START_TEST(a_mount_that_has_the_number_of_rampfs_is_none)
{
	struct program p;
	dev_t was;

	for (;;) {
		p = start("succeeded");
		was = device();
		await(&p, "mapped");
		fake_stop(fake);
		fake = fake_start_mounted_by(dir, 65534);
		if (device() == was)
			break;
		/* A mount of another test has it, and may keep it for long. */
		kill(p.pid, SIGKILL);
		waitpid(p.pid, NULL, 0);
		close(p.to);
		close(p.from);
		fake_stop(fake);
		fake = fake_start(dir);
	}
	go_on(&p);
	finish(&p);
	ck_assert_str_eq(said(), "");
}
END_TEST

/* A mount of another namespace that is handed over is on no list of ours. */
START_TEST(a_file_whose_mount_is_not_here_is_no_segment)
{
	struct program p;

	elsewhere = true;
	p = start("handed");
	elsewhere = false;
	finish(&p);
	ck_assert_str_eq(said(), "");
}
END_TEST

/* In a container that has no number for the machine's root, that root has the overflow uid. */
START_TEST(a_program_in_a_user_namespace_finds_roots_daemon)
{
	struct program p;

	own_namespace = true;
	p = start_as("forks", 65534);
	own_namespace = false;
	finish(&p);
	ck_assert_str_eq(said(), "");
}
END_TEST

/* With RAMPFS_FIXED=hint; another value is none. */
START_TEST(a_place_that_is_asked_for_is_taken_for_a_hint)
{
	struct program p;

	setenv("RAMPFS_FIXED", "hint", 1);
	p = start("hinted");
	finish(&p);
	ck_assert_str_eq(said(), "rampfs: mmap: MAP_FIXED is taken for a hint (--fixed=hint): the "
				 "segment is mapped at its own address, which mmap returns\n");
	setenv("RAMPFS_FIXED", "refuse", 1);
	p = start("arguments");
	finish(&p);
	unsetenv("RAMPFS_FIXED");
	ck_assert_int_eq(count_said("(rampfs-run --fixed=hint: "), 1);
}
END_TEST

START_TEST(quiet_silences_the_refusals)
{
	struct program p;

	setenv("RAMPFS_QUIET", "1", 1);
	p = start("large");
	finish(&p);
	unsetenv("RAMPFS_QUIET");
	ck_assert_str_eq(said(), "");
}
END_TEST

START_TEST(a_freeze_stops_every_store_and_a_thaw_lets_them_go_on)
{
	struct program p = start("frozen");

	await(&p, "writing");
	fake_revoke(fake, p.pid);
	go_on(&p);
	await(&p, "frozen");
	fake_restore(fake, p.pid);
	go_on(&p);
	finish(&p);
	ck_assert_str_eq(said(), "");
}
END_TEST

START_TEST(what_is_gone_is_sigbus_and_back_it_is_as_it_was)
{
	struct program p = start("gone");

	await(&p, "here");
	fake_revoke(fake, p.pid);
	/* A daemon that had no answer in time tells it again: one line all the same. */
	for (int i = 0; i < 3; i++)
		fake_gone(fake, p.pid,
			  "rampfs: a/seg is now on node b; touching it here is SIGBUS");
	go_on(&p);
	await(&p, "gone");
	fake_back(fake, p.pid);
	go_on(&p);
	finish(&p);
	ck_assert_str_eq(said(), "rampfs: a/seg is now on node b; touching it here is SIGBUS\n");
}
END_TEST

START_TEST(what_has_stderrs_number_alone_gets_no_line)
{
	struct program p = start("reused");

	await(&p, "here");
	fake_revoke(fake, p.pid);
	fake_gone(fake, p.pid, "rampfs: a/seg is now on node b; touching it here is SIGBUS");
	go_on(&p);
	finish(&p);
	ck_assert_str_eq(said(), "");
}
END_TEST

START_TEST(what_a_program_puts_over_a_segment_that_leaves_stays)
{
	struct program p = start("covered");

	await(&p, "here");
	fake_revoke(fake, p.pid);
	fake_delay_reads(fake, 2500); /* longer than an agent waits for the table */
	go_on(&p);
	await(&p, "covers");
	usleep(300000);
	fake_gone(fake, p.pid, "");
	await(&p, "covered");
	go_on(&p);
	finish(&p);
}
END_TEST

START_TEST(what_a_program_puts_over_a_segment_that_is_dropped_stays)
{
	struct program p = start("own");

	await(&p, "here");
	fake_look(fake, p.pid);
	go_on(&p);
	await(&p, "covered");
	fake_drop(fake, p.pid);
	go_on(&p);
	finish(&p);
}
END_TEST

/* The fake's ADOPT maps the segment, whatever the parent has. */
START_TEST(what_is_back_when_a_child_gets_it_is_there_for_its_next_mmap)
{
	struct program p = start("reborn");

	await(&p, "here");
	fake_revoke(fake, p.pid);
	fake_gone(fake, p.pid, "");
	go_on(&p);
	finish(&p);
	ck_assert_str_eq(said(), "");
}
END_TEST

START_TEST(what_a_program_put_into_a_hole_stays_and_the_segment_waits)
{
	struct program p = start("squat");

	await(&p, "here");
	fake_revoke(fake, p.pid);
	fake_gone(fake, p.pid, "");
	go_on(&p);
	await(&p, "squats");
	ck_assert_int_eq(fake_try_back(fake, p.pid), EAGAIN);
	go_on(&p);
	await(&p, "left");
	fake_back(fake, p.pid);
	go_on(&p);
	finish(&p);
}
END_TEST

START_TEST(what_is_gone_is_sigbus_however_many_pieces_there_are)
{
	struct program p = start("crammed");

	await(&p, "here");
	fake_revoke(fake, p.pid);
	fake_gone(fake, p.pid, "");
	go_on(&p);
	await(&p, "gone");
	ck_assert_int_eq(fake_try_back(fake, p.pid), ENOMEM);
	go_on(&p);
	await(&p, "room");
	ck_assert_int_eq(fake_try_back(fake, p.pid), 0);
	fake_restore(fake, p.pid);
	go_on(&p);
	finish(&p);
}
END_TEST

static void *put_back(void *program)
{
	return (void *)(intptr_t)fake_try_back(fake, ((struct program *)program)->pid);
}

/* Some time passes after the segment is in its place and before the end of the swap. */
static void come_back_slowly(const char *scenario)
{
	struct program p = start(scenario);
	pthread_t thread;
	void *rc;

	await(&p, "here");
	fake_revoke(fake, p.pid);
	fake_gone(fake, p.pid, "");
	go_on(&p);
	await(&p, "allowed");
	fake_read_events(fake, false);
	ck_assert_int_eq(pthread_create(&thread, NULL, put_back, &p), 0);
	usleep(300000); /* it is in place by then */
	fake_read_events(fake, true);
	pthread_join(thread, &rc);
	ck_assert_msg(!rc, "the program has ended, or SWAP was refused: %ld", (long)(intptr_t)rc);
	fake_restore(fake, p.pid);
	finish(&p);
}

/* Returns how many of a program's threads run at that priority, lent or their own, as /proc shows it. `rr`: gives
   each of them that one first. -1: that is denied. */
static int threads_at(pid_t pid, int priority, bool rr)
{
	struct sched_param param = {.sched_priority = priority};
	char path[64], line[512];
	struct dirent *entry;
	int count = 0;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	ck_assert_ptr_nonnull(tasks);
	while (count >= 0 && (entry = readdir(tasks))) {
		pid_t tid = (pid_t)atoi(entry->d_name);
		const char *fields;
		FILE *stat;
		long shown = 0;

		if (!tid)
			continue;
		if (rr && sched_setscheduler(tid, SCHED_RR | SCHED_RESET_ON_FORK, &param)) {
			count = -1;
			break;
		}
		snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)pid, (int)tid);
		stat = fopen(path, "re");
		fields = stat && fgets(line, sizeof(line), stat) ? strrchr(line, ')') : NULL;
		if (fields &&
		    sscanf(fields,
			   ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %ld",
			   &shown) == 1)
			count += shown == -1 - priority;
		if (stat)
			fclose(stat);
	}
	closedir(tasks);
	return count;
}

/* The thread that puts a segment in its place has the agent's priority, though it began without. */
START_TEST(the_agent_lends_its_priority_to_a_swap)
{
	struct program p = start("restart");
	bool lent = false;
	pthread_t thread;
	int count;
	void *rc;

	await(&p, "mapped");
	count = threads_at(p.pid, 30, true);
	for (int i = 0; count > 0 && !lent && i < 30; i++) {
		fake_revoke(fake, p.pid);
		fake_gone(fake, p.pid, "");
		fake_read_events(fake, false);
		ck_assert_int_eq(pthread_create(&thread, NULL, put_back, &p), 0);
		for (int looks = 0; !lent && looks < 200; looks++) {
			lent = threads_at(p.pid, 30, false) > count;
			usleep(500);
		}
		fake_read_events(fake, true);
		pthread_join(thread, &rc);
		ck_assert(!rc);
		fake_restore(fake, p.pid);
	}
	ck_assert(lent || count <= 0);
	fake_die(fake);
	fake_wait_session(fake, p.pid);
	go_on(&p);
	await(&p, "forked");
	go_on(&p);
	finish(&p);
}
END_TEST

START_TEST(what_a_program_allows_while_it_is_gone_is_allowed_from_the_first_moment)
{
	come_back_slowly("allowed");
}
END_TEST

START_TEST(what_a_program_allows_while_it_is_put_back_is_allowed_when_that_is_over)
{
	come_back_slowly("late");
}
END_TEST

START_TEST(what_is_mapped_again_while_it_is_put_back_allows_what_that_asks_for)
{
	come_back_slowly("widened");
}
END_TEST

START_TEST(what_grows_while_it_is_put_back_is_the_segment)
{
	come_back_slowly("grown");
}
END_TEST

START_TEST(what_keeps_holes_free_while_it_is_put_back_is_in_no_child)
{
	come_back_slowly("holed");
}
END_TEST

START_TEST(a_daemon_that_comes_back_finds_its_agents)
{
	struct program p = start("restart");

	await(&p, "mapped");
	fake_die(fake);
	fake_wait_session(fake, p.pid);
	ck_assert_int_eq(fake_reconnects(fake, p.pid), 1);
	go_on(&p);
	await(&p, "forked");
	go_on(&p);
	finish(&p);
	ck_assert_str_eq(said(), "");
}
END_TEST

START_TEST(an_attach_whose_daemon_dies_is_asked_again)
{
	struct program p;

	fake_hang_up_attaches(fake, 3);
	p = start("basic");
	finish(&p);
	ck_assert_str_eq(said(), "");
}
END_TEST

/* The program maps a few pages of the segment, one after the other. */
START_TEST(what_an_attach_has_left_is_not_taken_for_the_next_ones)
{
	struct program p;

	fake_map_late(fake, 2);
	p = start("pieces");
	finish(&p);
	ck_assert_str_eq(said(), "");
}
END_TEST

START_TEST(a_hole_whose_daemon_dies_is_punched_by_the_next)
{
	struct program p;

	fake_hang_up_punches(fake, 3);
	p = start("protect");
	finish(&p);
}
END_TEST

static void await_reconnect(const struct program *p, int n)
{
	for (int ms = 0; fake_reconnects(fake, p->pid) < n && ms < 10000; ms++)
		usleep(1000);
	ck_assert_int_ge(fake_reconnects(fake, p->pid), n);
}

START_TEST(the_daemon_is_asked_once_before_a_mapping_grows)
{
	struct program p = start("growing");

	await(&p, "here");
	fake_answer_growths(fake, ENOMEM, 0);
	go_on(&p);
	await(&p, "refused");
	ck_assert_int_eq(fake_growths(fake), 1);
	fake_answer_growths(fake, 0, 3);
	go_on(&p);
	await(&p, "allowed");
	ck_assert_int_eq(fake_growths(fake), 2);
	fake_die(fake); /* the next one hears of it */
	await_reconnect(&p, 1);
	ck_assert(fake_heard_of_growth(fake, p.pid));
	go_on(&p);
	await(&p, "again");
	fake_grow_old(fake);
	fake_die(fake);
	go_on(&p);
	await(&p, "older");
	await_reconnect(&p, 2);
	usleep(20000); /* it has READY, too, and may end */
	go_on(&p);
	finish(&p);
	ck_assert_int_eq(fake_growths(fake), 2);
	ck_assert_int_eq(count_said("the daemon does not agree that it grows"), 1);
}
END_TEST

START_TEST(a_swap_whose_daemon_dies_ends_with_the_next)
{
	struct program p = start("restart");

	await(&p, "mapped");
	fake_revoke(fake, p.pid);
	fake_gone(fake, p.pid, "");
	fake_back_and_die(fake, p.pid);
	go_on(&p);
	await(&p, "forked");
	go_on(&p);
	finish(&p);
}
END_TEST

START_TEST(a_daemon_that_refuses_is_quoted)
{
	struct program p;

	fake_refuse(fake, EPERM, "group ramp only (uffd_group)");
	p = start("basic");
	is_refused(&p, "rampfs: mmap: group ramp only (uffd_group)\n");
}
END_TEST

/* mmap gives up after the handshake's 5 s; the program continues. */
START_TEST(a_daemon_that_is_silent_is_not_waited_for)
{
	struct program p;

	fake_fall_silent(fake);
	p = start("basic");
	is_refused(&p, "rampfs: mmap: the daemon does not answer\n");
}
END_TEST

/* Nor where there is no room in its queue: neither by the first mmap nor by a fork. */
START_TEST(a_daemon_that_sleeps_is_not_waited_for)
{
	struct program p = start("orphan");

	await(&p, "mapped");
	fake_fall_asleep(fake);
	go_on(&p);
	finish(&p);
	ck_assert_int_eq(count_said("rampfs: fork: the child lacks mappings: "), 1);
	p = start("basic");
	is_refused(&p, "rampfs: mmap: the daemon does not answer\n");
}
END_TEST

/* The child has nothing mapped, and says so; the parent keeps its mappings. */
START_TEST(a_fork_without_an_answer_goes_on_without_mappings)
{
	struct program p = start("orphan");

	await(&p, "mapped");
	fake_fall_silent(fake);
	go_on(&p);
	finish(&p);
	ck_assert_int_eq(count_said("rampfs: fork: the child lacks mappings: "), 1);
	ck_assert_int_eq(count_said("\n"), 1);
}
END_TEST

/* The ranges that are mapped are not registered yet: the child would read zeros where pages are
   missing. */
START_TEST(a_fork_whose_daemon_stalls_in_the_middle_leaves_the_child_nothing)
{
	struct program p = start("orphan");

	await(&p, "mapped");
	fake_stall_in_adopt(fake);
	go_on(&p);
	finish(&p);
	ck_assert_int_eq(count_said("rampfs: fork: the child lacks mappings: "), 1);
	ck_assert_int_eq(count_said("\n"), 1);
}
END_TEST

static const struct unknown {
	int code;
	bool late;
} unknown[] = {{ETIMEDOUT, false}, {ETIMEDOUT, true}, {ESRCH, false}, {ESRCH, true}};

/* The daemon did not get the result of the swap, and has not registered the range. */
START_TEST(a_fork_whose_daemon_had_no_answer_leaves_the_child_nothing)
{
	struct program p = start("orphan");

	await(&p, "mapped");
	fake_fail_in_adopt(fake, unknown[_i].code, unknown[_i].late);
	go_on(&p);
	finish(&p);
	ck_assert_int_eq(count_said("rampfs: fork: the child lacks mappings: "), 1);
	ck_assert_int_eq(count_said("\n"), 1);
}
END_TEST

START_TEST(an_allocator_that_is_locked_over_forks_hangs_nobody)
{
	struct program p;

	snprintf(prog_path, sizeof(prog_path), "%s", SHIM_ALLOC);
	p = start("");
	finish(&p);
	ck_assert_str_eq(said(), "");
}
END_TEST

/* A library that the program is linked with maps it before the shim's own constructor has run. */
START_TEST(what_a_constructor_has_mapped_is_its_childrens_at_once)
{
	struct program p;

	snprintf(prog_path, sizeof(prog_path), "%s", SHIM_EARLY);
	p = start("");
	finish(&p);
	ck_assert_str_eq(said(), "");
}
END_TEST

/* The child has its parent's last state: neither more nor less of the changed ranges, and all of
   the unchanged ones. */
START_TEST(what_another_thread_changes_during_a_fork_costs_the_child_nothing_else)
{
	struct program p = start("meanwhile");

	await(&p, "mapped");
	fake_delay_forks(fake, 500);
	go_on(&p);
	finish(&p);
	ck_assert_str_eq(said(), "");
}
END_TEST

START_TEST(a_fork_whose_token_is_forgotten_asks_for_its_parents_mappings)
{
	struct program p;

	fake_forget_forks(fake);
	p = start("forks");
	finish(&p);
	ck_assert_str_eq(said(), "");
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("fake daemon");

	tcase_add_loop_test(tc, a_program_maps_as_mmap_promises, 0,
			    (int)(sizeof(alone) / sizeof(alone[0])));
#ifdef SHIM_PROG_MUSL
	tcase_add_loop_test(tc, a_program_with_musl_maps_as_mmap_promises, 0,
			    (int)(sizeof(others) / sizeof(others[0])));
	tcase_add_test(tc, a_program_with_musl_has_its_segment_again);
#endif
	tcase_add_test(tc, a_program_needs_no_privilege);
	tcase_add_loop_test(tc, who_listens_and_is_not_root_gets_no_program, 0,
			    (int)(sizeof(victims) / sizeof(victims[0])));
	tcase_add_test(tc, who_listens_elsewhere_gets_no_program);
	tcase_add_test(tc, a_mount_that_is_not_roots_is_no_rampfs);
	tcase_add_test(tc, the_tools_ask_no_mount_that_is_not_roots);
	tcase_add_test(tc, a_mount_that_has_the_number_of_rampfs_is_none);
	tcase_add_test(tc, a_file_whose_mount_is_not_here_is_no_segment);
	tcase_add_test(tc, a_program_in_a_user_namespace_finds_roots_daemon);
	tcase_add_test(tc, a_daemon_that_is_silent_is_not_waited_for);
	tcase_add_test(tc, a_daemon_that_sleeps_is_not_waited_for);
	tcase_add_test(tc, a_fork_without_an_answer_goes_on_without_mappings);
	tcase_add_test(tc, a_fork_whose_daemon_stalls_in_the_middle_leaves_the_child_nothing);
	tcase_add_loop_test(tc, a_fork_whose_daemon_had_no_answer_leaves_the_child_nothing, 0,
			    (int)(sizeof(unknown) / sizeof(unknown[0])));
	tcase_add_test(tc, an_allocator_that_is_locked_over_forks_hangs_nobody);
	tcase_add_test(tc, what_a_constructor_has_mapped_is_its_childrens_at_once);
	tcase_add_test(tc, what_another_thread_changes_during_a_fork_costs_the_child_nothing_else);
	tcase_add_test(tc, a_fork_whose_token_is_forgotten_asks_for_its_parents_mappings);
	tcase_add_test(tc, a_place_that_is_asked_for_is_taken_for_a_hint);
	tcase_add_test(tc, quiet_silences_the_refusals);
	tcase_add_test(tc, a_freeze_stops_every_store_and_a_thaw_lets_them_go_on);
	tcase_add_test(tc, what_is_gone_is_sigbus_and_back_it_is_as_it_was);
	tcase_add_test(tc, what_is_gone_is_sigbus_however_many_pieces_there_are);
	tcase_add_test(tc, what_has_stderrs_number_alone_gets_no_line);
	tcase_add_test(tc, what_a_program_puts_over_a_segment_that_leaves_stays);
	tcase_add_test(tc, what_a_program_puts_over_a_segment_that_is_dropped_stays);
	tcase_add_test(tc, what_is_back_when_a_child_gets_it_is_there_for_its_next_mmap);
	tcase_add_test(tc, what_a_program_put_into_a_hole_stays_and_the_segment_waits);
	tcase_add_test(tc, what_a_program_allows_while_it_is_gone_is_allowed_from_the_first_moment);
	tcase_add_test(tc, what_a_program_allows_while_it_is_put_back_is_allowed_when_that_is_over);
	tcase_add_test(tc, what_is_mapped_again_while_it_is_put_back_allows_what_that_asks_for);
	tcase_add_test(tc, what_grows_while_it_is_put_back_is_the_segment);
	tcase_add_test(tc, what_keeps_holes_free_while_it_is_put_back_is_in_no_child);
	tcase_add_test(tc, a_daemon_that_comes_back_finds_its_agents);
	tcase_add_test(tc, an_attach_whose_daemon_dies_is_asked_again);
	tcase_add_test(tc, what_an_attach_has_left_is_not_taken_for_the_next_ones);
	tcase_add_test(tc, a_hole_whose_daemon_dies_is_punched_by_the_next);
	tcase_add_test(tc, the_daemon_is_asked_once_before_a_mapping_grows);
	tcase_add_test(tc, a_swap_whose_daemon_dies_ends_with_the_next);
	tcase_add_test(tc, the_agent_lends_its_priority_to_a_swap);
	tcase_add_test(tc, a_daemon_that_refuses_is_quoted);
	return driver_run("shim", tc);
}
