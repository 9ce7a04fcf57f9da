/*
 * Revokes of programs that make it hard: stopped ones, traced ones, ones with mappings that they
 * have made by themselves. And pages that are made good while they are about to be poisoned.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "memory/pages.h"
#include "programs_world.h"

#define ELSEWHERE UINT64_C(0x10000000)
#define THREES	  UINT64_C(0x0303030303030303)

static void is_busy(int rc, const struct ramp_err *err, const struct prog *prog, const char *words)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "process %d ", (int)prog->pid);
	ck_assert_int_eq(rc, -EBUSY);
	ck_assert_msg(strstr(err->text, pid) && strstr(err->text, words), "%s", err->text);
}

/* ---- mappings out of place ------------------------------------------------------------------ */

/* Makes a second mapping of the whole segment, of which no shim knows. */
static void map_elsewhere(struct prog *prog, uint64_t addr)
{
	struct prog_order copy = {
		.op = PROG_REMAP, .addr = addr, .len = SEG_BYTES, .value = ELSEWHERE};

	ck_assert_int_eq(prog_do(prog, &copy).result, 0);
	ck_assert_int_eq(
		prog_do(prog, &(struct prog_order){.op = PROG_STORE, .addr = ELSEWHERE, .value = 3})
			.result,
		0);
}

static void unmap_elsewhere(struct prog *prog)
{
	struct prog_order unmap = {.op = PROG_MUNMAP, .addr = ELSEWHERE, .len = SEG_BYTES};

	ck_assert_int_eq(prog_do(prog, &unmap).result, 0);
}

START_TEST(a_mapping_made_elsewhere_after_connect_makes_it_busy)
{
	struct attached x = world_attached(world_segment("x", 3), O_RDWR);
	struct ramp_err err = {0};

	world_may_move(x.seg);
	map_elsewhere(&x.prog, x.addr);
	is_busy(programs_revoke(world.programs, x.seg, REVOKE_MS, &err), &err, &x.prog,
		"changed that");
	is_busy(programs_prelook(world.programs, x.seg, &err), &err, &x.prog, "outside");
	/* The program can touch both mappings. */
	prog_load(&x.prog, x.addr + MIB);
	prog_load(&x.prog, ELSEWHERE + 2 * MIB);
	unmap_elsewhere(&x.prog);
	world_freeze(x.seg);
	programs_restore(world.programs, x.seg);
	world_detached(&x);
}
END_TEST

START_TEST(a_mapping_made_elsewhere_after_the_look_makes_it_busy)
{
	struct attached x = world_attached(world_segment("x", 3), O_RDWR);
	struct ramp_err err = {0};

	world_may_move(x.seg);
	must(programs_prelook(world.programs, x.seg, &err), &err);
	map_elsewhere(&x.prog, x.addr);
	is_busy(programs_revoke(world.programs, x.seg, REVOKE_MS, &err), &err, &x.prog,
		"changed that");
	prog_load(&x.prog, ELSEWHERE + 2 * MIB);
	unmap_elsewhere(&x.prog);
	world_freeze(x.seg);
	programs_restore(world.programs, x.seg);
	world_detached(&x);
}
END_TEST

START_TEST(a_look_for_several_has_a_verdict_for_each)
{
	struct attached x = world_attached(world_segment("x", 3), O_RDWR);
	struct attached y = world_attached(world_segment("y", 4), O_RDWR);
	struct ramp_err errs[2] = {{0}};
	struct prelook_one ones[] = {{.seg = x.seg, .err = &errs[0]},
				     {.seg = y.seg, .err = &errs[1]}};

	map_elsewhere(&x.prog, x.addr);
	programs_prelook_many(world.programs, ones, 2);
	is_busy(ones[0].rc, &errs[0], &x.prog, "outside");
	must(ones[1].rc, &errs[1]);
	map_elsewhere(&y.prog, y.addr);
	is_busy(programs_revoke(world.programs, y.seg, REVOKE_MS, &errs[1]), &errs[1], &y.prog,
		"changed that");
	unmap_elsewhere(&x.prog);
	unmap_elsewhere(&y.prog);
	programs_prelook_many(world.programs, ones, 2);
	must(ones[0].rc, &errs[0]);
	must(ones[1].rc, &errs[1]);
	must(programs_revoke(world.programs, x.seg, REVOKE_MS, &errs[0]), &errs[0]);
	prog_load(&y.prog, y.addr);
	must(programs_revoke(world.programs, y.seg, REVOKE_MS, &errs[1]), &errs[1]);
	programs_restore(world.programs, x.seg);
	programs_restore(world.programs, y.seg);
	world_detached(&x);
	world_detached(&y);
}
END_TEST

START_TEST(a_program_that_attaches_after_the_look_is_revoked_too)
{
	struct seg *seg = world_segment("x", 3);
	struct ramp_err err = {0};
	struct prog one, other;
	struct prog_report r;
	uint64_t addr;

	world_prog(&one);
	world_prog(&other);
	addr = world_attach(&one, seg, O_RDWR);
	world_may_move(seg);
	must(programs_prelook(world.programs, seg, &err), &err);
	world_attach(&other, seg, O_RDWR);
	map_elsewhere(&other, addr);
	is_busy(programs_revoke(world.programs, seg, REVOKE_MS, &err), &err, &other,
		"changed that");
	unmap_elsewhere(&other);
	world_freeze(seg);
	prog_send(&other, &(struct prog_order){.op = PROG_LOAD, .addr = addr + MIB});
	ck_assert(!prog_wait(&other, &r, BLOCKED_MS));
	programs_restore(world.programs, seg);
	ck_assert(prog_wait(&other, &r, ANSWER_MS));
	prog_end(&one);
	prog_end(&other);
	seg_put(seg);
}
END_TEST

START_TEST(a_look_without_a_revoke_leaves_nothing_behind)
{
	struct attached x = world_attached(world_segment("x", 3), O_RDWR);
	struct ramp_err err = {0};
	struct prog_order move = {
		.op = PROG_REMAP, .offset = SEG_BYTES, .len = SEG_BYTES, .value = ELSEWHERE};

	move.addr = x.addr;
	must(programs_prelook(world.programs, x.seg, &err), &err);
	programs_restore(world.programs, x.seg);
	/* An mremap of a range that is not registered raises no event, and needs no daemon to read
	   one. */
	world_programs_stop();
	ck_assert_int_eq(prog_do(&x.prog, &move).result, 0);
	ck_assert_uint_eq(prog_load(&x.prog, ELSEWHERE), THREES);
	world_programs_start();
	world_detached(&x);
}
END_TEST

/* ---- mappings that grow --------------------------------------------------------------------- */

/* Returns a program that has one half of the segment mapped. */
static struct attached half_attached(void)
{
	struct attached x = {.seg = world_segment("x", 3)};
	struct prog_report r;

	world_prog(&x.prog);
	r = world_try_attach(&x.prog, x.seg, O_RDWR, PROT_READ | PROT_WRITE, 0, SEG_BYTES / 2);
	ck_assert_int_eq(r.result, 0);
	x.addr = r.addr;
	return x;
}

/* Lets the mapping grow to the whole segment, which raises no event. */
static void grow(struct attached *x)
{
	struct prog_order remap = {
		.op = PROG_REMAP, .addr = x->addr, .offset = SEG_BYTES / 2, .len = SEG_BYTES};

	ck_assert_int_eq(prog_do(&x->prog, &remap).result, 0);
}

START_TEST(a_mapping_that_has_grown_since_connect_is_revoked)
{
	struct attached x = half_attached();
	struct ramp_err err = {0};
	struct prog_report r;

	world_may_move(x.seg);
	grow(&x);
	prog_load(&x.prog, x.addr + SEG_BYTES - 8);
	must(programs_prelook(world.programs, x.seg, &err), &err);
	must(programs_revoke(world.programs, x.seg, REVOKE_MS, &err), &err);
	prog_send(&x.prog, &(struct prog_order){.op = PROG_LOAD, .addr = x.addr + SEG_BYTES - 8});
	ck_assert(!prog_wait(&x.prog, &r, BLOCKED_MS));
	programs_restore(world.programs, x.seg);
	ck_assert(prog_wait(&x.prog, &r, ANSWER_MS));
	world_detached(&x);
}
END_TEST

START_TEST(a_mapping_that_has_grown_since_the_freeze_is_gone_with_the_rest)
{
	struct attached x = half_attached();

	world_freeze(x.seg);
	grow(&x);
	world_give(x.seg);
	programs_gone(world.programs, x.seg, "b");
	ck_assert_int_eq(prog_at(&x.prog, PROG_LOAD, x.addr + SEG_BYTES - 8).result, -SIGBUS);
	ck_assert_int_eq(prog_at(&x.prog, PROG_LOAD, x.addr).result, -SIGBUS);
	world_detached(&x);
}
END_TEST

/* Puts a file of the program's own over the half that begins there. */
static void put_over(struct attached *x, uint64_t addr, char *path)
{
	struct prog_order unmap = {.op = PROG_MUNMAP, .addr = addr, .len = SEG_BYTES / 2},
			  map = {.op = PROG_MAP_RAW, .addr = addr, .len = SEG_BYTES / 2};
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, SEG_BYTES / 2), 0);
	close(fd);
	snprintf(map.path, sizeof(map.path), "%s", path);
	ck_assert_int_eq(prog_do(&x->prog, &unmap).result, 0);
	ck_assert_int_eq(prog_do(&x->prog, &map).result, 0);
	unlink(path);
}

START_TEST(what_a_program_has_put_over_it_since_the_look_stays_its_own)
{
	struct attached x = world_attached(world_segment("x", 3), O_RDWR);
	uint64_t own = x.addr + SEG_BYTES / 2;
	char path[] = "/dev/shm/rampfs-own.XXXXXX";
	struct prog_order store = {.op = PROG_STORE, .addr = own, .value = 5};
	struct ramp_err err = {0};
	struct prog_report r;

	must(programs_prelook(world.programs, x.seg, &err), &err);
	put_over(&x, own, path);
	ck_assert_int_eq(prog_do(&x.prog, &store).result, 0);
	must(programs_revoke(world.programs, x.seg, REVOKE_MS, &err), &err);
	prog_send(&x.prog, &(struct prog_order){.op = PROG_LOAD, .addr = own});
	ck_assert(!prog_wait(&x.prog, &r, BLOCKED_MS));
	world_give(x.seg);
	programs_gone(world.programs, x.seg, "b");
	ck_assert(prog_wait(&x.prog, &r, ANSWER_MS));
	ck_assert_uint_eq(r.value, 5);
	ck_assert_int_eq(prog_at(&x.prog, PROG_LOAD, x.addr).result, -SIGBUS);
	world_revert(x.seg);
	programs_back(world.programs, x.seg);
	ck_assert_uint_eq(prog_load(&x.prog, own + MIB), 0);
	ck_assert_uint_eq(prog_load(&x.prog, x.addr), THREES);
	world_detached(&x);
}
END_TEST

/* ---- stopped programs ----------------------------------------------------------------------- */

static void stop(struct prog *prog)
{
	int status;

	kill(prog->pid, SIGSTOP);
	ck_assert_int_eq(waitpid(prog->pid, &status, WUNTRACED), prog->pid);
	ck_assert(WIFSTOPPED(status));
}

/* Returns true where all threads of the program are stopped. */
static bool is_stopped(const struct prog *prog)
{
	char path[64], line[512];
	bool stopped = true;
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)prog->pid);
	dir = opendir(path);
	while ((entry = readdir(dir))) {
		char stat[512];
		FILE *file;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(stat, sizeof(stat), "%s/%s/stat", path, entry->d_name);
		file = fopen(stat, "re");
		ck_assert_ptr_nonnull(fgets(line, sizeof(line), file));
		fclose(file);
		stopped = stopped && strrchr(line, ')')[2] == 'T';
	}
	closedir(dir);
	return stopped;
}

/* Waits for it: a thread that was let go of (PTRACE_DETACH) has to run in the kernel to stop
   again. */
static bool stops_again(const struct prog *prog)
{
	for (int i = 0; i < 5000 && !is_stopped(prog); i++)
		usleep(1000);
	return is_stopped(prog);
}

START_TEST(a_stopped_program_is_revoked_and_stays_stopped)
{
	struct attached x = world_attached(world_segment("x", 0), O_RDWR);
	struct prog_order writers = {.op = PROG_WRITERS, .len = SEG_BYTES, .value = 3};
	uint8_t *before, *after;

	writers.addr = x.addr;
	prog_do(&x.prog, &writers);
	for (int i = 0; i < 20; i++) {
		usleep(3000);
		stop(&x.prog);
		world_freeze(x.seg);
		ck_assert(stops_again(&x.prog));
		before = world_contents(x.seg);
		kill(x.prog.pid, SIGCONT);
		usleep(3000);
		after = world_contents(x.seg);
		ck_assert_int_eq(memcmp(before, after, SEG_BYTES), 0);
		free(before);
		free(after);
		programs_restore(world.programs, x.seg);
	}
	/* The agent was put back to where it was: it has had one session all the time. */
	ck_assert_uint_eq(prog_at(&x.prog, PROG_SESSIONS, 0).value, 1);
	ck_assert_uint_eq(prog_at(&x.prog, PROG_STOP_WRITERS, 0).value, 0);
	world_detached(&x);
}
END_TEST

/* Returns a program that was asked, found ready, and stopped before it is revoked. */
static struct attached stopped_within_the_window(void)
{
	struct attached x = world_attached(world_segment("x", 3), O_RDWR);
	struct ramp_err err = {0};

	prog_load(&x.prog, x.addr);
	world_may_move(x.seg);
	must(programs_prelook(world.programs, x.seg, &err), &err);
	stop(&x.prog);
	return x;
}

static void waits_until_restored(struct attached *x)
{
	struct prog_report r;

	prog_send(&x->prog, &(struct prog_order){.op = PROG_LOAD, .addr = x->addr});
	ck_assert(!prog_wait(&x->prog, &r, BLOCKED_MS));
	programs_restore(world.programs, x->seg);
	ck_assert(prog_wait(&x->prog, &r, ANSWER_MS));
	ck_assert_uint_eq(r.value, THREES);
}

START_TEST(a_program_that_stops_within_the_window_is_revoked)
{
	struct attached x = stopped_within_the_window();
	struct ramp_err err = {0};

	must(programs_revoke(world.programs, x.seg, REVOKE_MS, &err), &err);
	ck_assert(stops_again(&x.prog));
	kill(x.prog.pid, SIGCONT);
	waits_until_restored(&x);
	world_detached(&x);
}
END_TEST

/* Makes the kernel take its time over a call that was put into a stopped process: for hold_ms the
   traps of a thread that has entered the call are held back. */
static struct {
	_Atomic int hold_ms;
	_Atomic bool entered;
	struct timespec since;
} slow_call;

pid_t __real_waitpid(pid_t pid, int *status, int options);
pid_t __wrap_waitpid(pid_t pid, int *status, int options);

pid_t __wrap_waitpid(pid_t pid, int *status, int options)
{
	struct timespec now;
	pid_t got;

	if (!slow_call.hold_ms || !(options & WNOHANG))
		return __real_waitpid(pid, status, options);
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (slow_call.entered && (now.tv_sec - slow_call.since.tv_sec) * 1000 +
						 (now.tv_nsec - slow_call.since.tv_nsec) / 1000000 <
					 slow_call.hold_ms)
		return 0;
	got = __real_waitpid(pid, status, options);
	if (got == pid && !slow_call.entered && WSTOPSIG(*status) == (SIGTRAP | 0x80)) {
		slow_call.since = now;
		slow_call.entered = true;
	}
	return got;
}

START_TEST(a_call_put_into_a_stopped_program_that_outlasts_its_bound_is_waited_out)
{
	struct attached x = stopped_within_the_window();
	struct ramp_err err = {0};

	slow_call.hold_ms = 600;
	must(programs_revoke(world.programs, x.seg, 200, &err), &err);
	ck_assert(slow_call.entered);
	slow_call.hold_ms = 0;
	ck_assert(stops_again(&x.prog));
	kill(x.prog.pid, SIGCONT);
	programs_restore(world.programs, x.seg);
	ck_assert_uint_eq(prog_load(&x.prog, x.addr), THREES);
	/* The agent has its registers back: the call that it was taken out of has continued, it had
	   no other session, and it answers. */
	world_freeze(x.seg);
	waits_until_restored(&x);
	ck_assert_uint_eq(prog_at(&x.prog, PROG_SESSIONS, 0).value, 1);
	world_detached(&x);
}
END_TEST

/* Starts a process that traces all threads of `prog`, and has stopped them. */
static pid_t trace(const struct prog *prog)
{
	pid_t tracer;
	int ready[2];
	char byte;

	ck_assert_int_eq(pipe(ready), 0);
	tracer = fork();
	if (tracer == 0) {
		char path[64];
		struct dirent *entry;
		DIR *dir;

		snprintf(path, sizeof(path), "/proc/%d/task", (int)prog->pid);
		dir = opendir(path);
		while (dir && (entry = readdir(dir))) {
			pid_t tid = atoi(entry->d_name);

			if (tid <= 0)
				continue;
			ptrace(PTRACE_SEIZE, tid, NULL, NULL);
			ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
			waitpid(tid, NULL, __WALL);
		}
		if (write(ready[1], "r", 1) == 1)
			pause();
		_exit(0);
	}
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return tracer;
}

START_TEST(a_traced_program_makes_it_busy_and_loses_nothing)
{
	struct attached x = world_attached(world_segment("x", 3), O_RDWR);
	struct ramp_err err = {0};
	pid_t tracer;

	world_may_move(x.seg);
	tracer = trace(&x.prog);
	is_busy(programs_revoke(world.programs, x.seg, 300, &err), &err, &x.prog,
		"traced by process");
	is_busy(programs_may_move(world.programs, x.seg, &err), &err, &x.prog, "traced by process");
	kill(tracer, SIGKILL);
	waitpid(tracer, NULL, 0);
	ck_assert_uint_eq(prog_load(&x.prog, x.addr), THREES);
	world_freeze(x.seg);
	programs_restore(world.programs, x.seg);
	world_detached(&x);
}
END_TEST

START_TEST(a_stopped_program_has_its_segment_back_when_it_continues)
{
	struct attached x = world_attached(world_segment("x", 3), O_RDWR);

	stop(&x.prog);
	for (int i = 0; i < 10; i++) {
		world_freeze(x.seg);
		world_give(x.seg);
		programs_gone(world.programs, x.seg, "b");
		ck_assert(stops_again(&x.prog));
		ck_assert(!programs_mapped(world.programs, x.seg));
		world_revert(x.seg);
		programs_back(world.programs, x.seg);
		ck_assert(stops_again(&x.prog));
		ck_assert(programs_mapped(world.programs, x.seg));
	}
	kill(x.prog.pid, SIGCONT);
	ck_assert_uint_eq(prog_load(&x.prog, x.addr), THREES);
	world_detached(&x);
}
END_TEST

static void *give_it_back(void *arg)
{
	const struct attached *x = arg;

	programs_back(world.programs, x->seg);
	return NULL;
}

/* The thread that pulls pulls for others, too, and is told to come again. */
START_TEST(the_end_of_a_pull_does_not_wait_for_a_traced_program)
{
	struct attached x = world_attached(world_segment("x", 3), O_RDWR);
	pthread_t thread;
	pid_t tracer;
	int looks = 0;

	world_freeze(x.seg);
	world_give(x.seg);
	programs_gone(world.programs, x.seg, "b");
	tracer = trace(&x.prog);
	world_revert(x.seg);
	ck_assert_int_eq(pthread_create(&thread, NULL, give_it_back, &x), 0);
	while (programs_pulled(world.programs, x.seg) && looks++ < 2000)
		usleep(1000);
	ck_assert_int_lt(looks, 2000); /* it is being given back */
	kill(tracer, SIGKILL);
	waitpid(tracer, NULL, 0);
	pthread_join(thread, NULL);
	world_pulled(x.seg);
	ck_assert_uint_eq(prog_load(&x.prog, x.addr), THREES);
	world_detached(&x);
}
END_TEST

/* ---- poison --------------------------------------------------------------------------------- */

/*
 * Checks that a touch of that page is SIGBUS. As the pager does, puts the POISON in again for a
 * page fault that came all the same: where the POISON arrives just before the page fault begins to
 * wait, the kernel takes it for an empty entry, and lets the thread wait.
 */
static void poisoned(struct attached *x, uint64_t page, const char *why)
{
	struct prog_report r;
	int tries = 50;

	programs_poison(world.programs, x->seg, page, why);
	prog_send(&x->prog,
		  &(struct prog_order){.op = PROG_LOAD, .addr = x->addr + page * RAMP_PAGE_BYTES});
	while (!prog_wait(&x->prog, &r, 100)) {
		ck_assert_int_gt(tries--, 0);
		programs_poison(world.programs, x->seg, page, why);
	}
	ck_assert_int_eq(r.result, -SIGBUS);
}

START_TEST(a_page_that_a_write_has_made_good_is_not_poisoned)
{
	struct seg *seg = world_take(world_segment("x", 1), 10, 20);
	struct attached x;

	programs_pulling(world.programs, seg, NULL);
	ck_assert_uint_eq(pages_lose(seg, 15, 2), 2);
	x = world_attached(seg, O_RDWR);
	/* Nothing of page 16 is there: a thread that touches it waits for the poison. */
	ck_assert_int_eq(fallocate(seg_fd(x.seg), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				   16 * RAMP_PAGE_BYTES, RAMP_PAGE_BYTES),
			 0);
	/* The write came between the touch of the page and the job of the worker. */
	ck_assert_uint_eq(pages_claim_cut(x.seg, 15, 1), 1);
	memory_fill(x.seg, 7, 15 * RAMP_PAGE_BYTES, RAMP_PAGE_BYTES);
	pages_arrive(x.seg, 15, 1);
	programs_poison(world.programs, x.seg, 15, "a/x: page 15 is lost");
	poisoned(&x, 16, "a/x: page 16 is lost");
	ck_assert_uint_eq(prog_load(&x.prog, x.addr + 15 * 4096), UINT64_C(0x0707070707070707));
	world_detached(&x);
}
END_TEST

enum { WRITABLE = 1, AT_THE_END = 2, RESTARTED = 4, ALL = 7 };

/* There was no room for it, and now there is. */
START_TEST(a_page_that_was_poisoned_can_be_touched_again)
{
	struct seg *seg = world_take(world_segment("x", 1), 10, 20);
	const uint64_t bytes = 20 * RAMP_PAGE_BYTES, at = 10 * RAMP_PAGE_BYTES;
	struct attached x;
	struct prog_report r;

	programs_pulling(world.programs, seg, NULL);
	x = world_attached(seg, _i & WRITABLE ? O_RDWR : O_RDONLY);
	ck_assert_int_eq(fallocate(seg_fd(x.seg), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				   (off_t)at, (off_t)bytes),
			 0);
	world.deaf = true;
	for (uint64_t page = 10; page < 30; page += 1 + page % 3)
		poisoned(&x, page, "no room");
	if (_i & RESTARTED) {
		world_programs_stop();
		world_programs_start();
		world_wait_session(&x.prog, 2);
	}
	if (_i & AT_THE_END) {
		ck_assert_uint_eq(pages_claim(x.seg, 10, 20), 20);
		pages_arrive(x.seg, 10, 20);
		world_pulled(x.seg);
	} else {
		world.deaf = false;
		while (!programs_unpoison(world.programs, x.seg))
			usleep(1000);
	}
	for (uint64_t page = 10; page < 30; page++) {
		for (int ms = 0; ms < 5000; ms++) {
			r = prog_at(&x.prog, PROG_LOAD, x.addr + page * RAMP_PAGE_BYTES);
			if (!r.result)
				break;
			usleep(1000);
		}
		ck_assert_int_eq(r.result, 0);
		ck_assert_uint_eq(r.value, _i & AT_THE_END ? 0 : FILLED);
	}
	world.deaf = false;
	world_detached(&x);
}
END_TEST

/* ---- without memory ------------------------------------------------------------------------- */

struct mapped_segment;
struct mapping_ref;
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
int __real_mseg_refs(struct mapped_segment *mseg, struct mapping_ref **refs, size_t *count);
int __wrap_mseg_refs(struct mapped_segment *mseg, struct mapping_ref **refs, size_t *count);

static __thread bool no_malloc;
static _Atomic bool no_pieces;

void *__wrap_malloc(size_t bytes)
{
	return no_malloc ? NULL : __real_malloc(bytes);
}

int __wrap_mseg_refs(struct mapped_segment *mseg, struct mapping_ref **refs, size_t *count)
{
	if (!no_pieces)
		return __real_mseg_refs(mseg, refs, count);
	*refs = NULL;
	*count = 0;
	return -ENOMEM;
}

/* Returns a program that waits for a page that is lost, and of which nothing is there. */
static struct attached waits_for_a_lost_page(void)
{
	struct seg *seg = world_take(world_segment("x", 1), 10, 20);
	struct attached x;

	programs_pulling(world.programs, seg, NULL);
	ck_assert_uint_eq(pages_lose(seg, 16, 1), 1);
	x = world_attached(seg, O_RDWR);
	ck_assert_int_eq(fallocate(seg_fd(x.seg), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				   16 * RAMP_PAGE_BYTES, RAMP_PAGE_BYTES),
			 0);
	world.deaf = true;
	prog_send(&x.prog, &(struct prog_order){.op = PROG_LOAD, .addr = x.addr + 16 * 4096});
	while (world_faults() == 0)
		usleep(1000);
	return x;
}

START_TEST(a_wait_for_a_lost_page_is_tried_again_until_there_is_memory)
{
	struct attached x = waits_for_a_lost_page();
	struct prog_report r;
	uint64_t faults = world_faults();

	no_malloc = true;
	programs_poison(world.programs, x.seg, 16, "a/x: page 16 is lost");
	no_malloc = false;
	for (int ms = 0; ms < 5000 && world_faults() == faults; ms++)
		usleep(1000);
	ck_assert_uint_gt(world_faults(), faults);
	programs_poison(world.programs, x.seg, 16, "a/x: page 16 is lost");
	ck_assert(prog_wait(&x.prog, &r, ANSWER_MS));
	ck_assert_int_eq(r.result, -SIGBUS);
	world.deaf = false;
	world_detached(&x);
}
END_TEST

START_TEST(a_lost_page_is_sigbus_where_there_is_no_memory_to_say_so)
{
	struct attached x = waits_for_a_lost_page();
	struct prog_report r;

	no_pieces = true;
	programs_poison(world.programs, x.seg, 16, "a/x: page 16 is lost");
	ck_assert(prog_wait(&x.prog, &r, ANSWER_MS));
	no_pieces = false;
	ck_assert_int_eq(r.result, -SIGBUS);
	world.deaf = false;
	world_detached(&x);
}
END_TEST

START_TEST(the_end_of_a_pull_needs_no_memory)
{
	struct seg *seg = world_take(world_segment("x", 1), 10, 20);
	struct attached x;
	struct prog_report r;

	programs_pulling(world.programs, seg, NULL);
	x = world_attached(seg, O_RDWR);
	ck_assert_uint_eq(pages_claim(x.seg, 10, 20), 20);
	pages_arrive(x.seg, 10, 20);
	no_pieces = true;
	world_pulled(x.seg);
	no_pieces = false;
	world.deaf = true;
	prog_send(&x.prog, &(struct prog_order){.op = PROG_LOAD, .addr = x.addr + 100 * 4096});
	ck_assert(prog_wait(&x.prog, &r, ANSWER_MS));
	ck_assert_int_eq(r.result, 0);
	ck_assert_uint_eq(world_faults(), 0);
	world.deaf = false;
	world_detached(&x);
}
END_TEST

START_TEST(a_program_that_could_not_be_told_is_told_when_there_is_memory)
{
	struct attached x = world_attached(world_segment("x", 3), O_RDWR);
	struct prog_report r;

	sleep(2); /* the next look that comes by itself is far */
	world_freeze(x.seg);
	prog_send(&x.prog, &(struct prog_order){.op = PROG_LOAD, .addr = x.addr});
	world_give(x.seg);
	no_pieces = true;
	programs_gone(world.programs, x.seg, "b");
	no_pieces = false;
	ck_assert(prog_wait(&x.prog, &r, ANSWER_MS));
	ck_assert_int_eq(r.result, -SIGBUS);
	world_revert(x.seg);
	no_pieces = true;
	programs_back(world.programs, x.seg);
	no_pieces = false;
	for (int ms = 0; ms < 10000 && r.result; ms += 10) {
		usleep(10000);
		r = prog_at(&x.prog, PROG_LOAD, x.addr);
	}
	ck_assert_int_eq(r.result, 0);
	ck_assert_uint_eq(r.value, THREES);
	world_detached(&x);
}
END_TEST

/* ---- replacing ------------------------------------------------------------------------------ */

START_TEST(a_mapping_that_was_not_replaced_is_refused)
{
	struct prog_order order = {.op = PROG_ATTACH,
				   .len = SEG_BYTES,
				   .prot = PROT_READ | PROT_WRITE,
				   .flags = SESSION_REPLACE};
	struct seg *seg = world_segment("x", 3);
	struct prog prog;
	struct prog_report r;

	prog_start(&prog, world.socket);
	ck_assert_int_eq(
		prog_do(&prog, &(struct prog_order){.op = PROG_SESSION, .value = 5}).result, 0);
	world_attach(&prog, seg, O_RDONLY);
	programs_token(world.programs, seg_id(seg), O_RDWR, prog.pid, order.token, NULL);
	r = prog_do(&prog, &order);
	ck_assert_int_eq(r.result, -EBUSY);
	ck_assert_msg(strstr(r.text, "changes its mappings"), "%s", r.text);
	prog_end(&prog);
	seg_put(seg);
}
END_TEST

static void add_tests(TCase *tc)
{
	tcase_add_test(tc, a_mapping_made_elsewhere_after_connect_makes_it_busy);
	tcase_add_test(tc, a_mapping_made_elsewhere_after_the_look_makes_it_busy);
	tcase_add_test(tc, a_look_for_several_has_a_verdict_for_each);
	tcase_add_test(tc, a_program_that_attaches_after_the_look_is_revoked_too);
	tcase_add_test(tc, a_look_without_a_revoke_leaves_nothing_behind);
	tcase_add_test(tc, a_mapping_that_has_grown_since_connect_is_revoked);
	tcase_add_test(tc, a_mapping_that_has_grown_since_the_freeze_is_gone_with_the_rest);
	tcase_add_test(tc, what_a_program_has_put_over_it_since_the_look_stays_its_own);
	tcase_add_test(tc, a_stopped_program_is_revoked_and_stays_stopped);
	tcase_add_test(tc, a_program_that_stops_within_the_window_is_revoked);
	tcase_add_test(tc, a_call_put_into_a_stopped_program_that_outlasts_its_bound_is_waited_out);
	tcase_add_test(tc, a_traced_program_makes_it_busy_and_loses_nothing);
	tcase_add_test(tc, a_stopped_program_has_its_segment_back_when_it_continues);
	tcase_add_test(tc, the_end_of_a_pull_does_not_wait_for_a_traced_program);
	tcase_add_test(tc, a_page_that_a_write_has_made_good_is_not_poisoned);
	tcase_add_loop_test(tc, a_page_that_was_poisoned_can_be_touched_again, 0, ALL + 1);
	tcase_add_test(tc, a_wait_for_a_lost_page_is_tried_again_until_there_is_memory);
	tcase_add_test(tc, a_lost_page_is_sigbus_where_there_is_no_memory_to_say_so);
	tcase_add_test(tc, the_end_of_a_pull_needs_no_memory);
	tcase_add_test(tc, a_program_that_could_not_be_told_is_told_when_there_is_memory);
	tcase_add_test(tc, a_mapping_that_was_not_replaced_is_refused);
}

int main(int argc, char **argv)
{
	return world_main(argc, argv, "revoke", add_tests);
}
