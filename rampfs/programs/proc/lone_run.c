/*
 * Lets one thread of a stopped process run, with the one that writes for it, and no other.
 *
 *   SEIZE --it traps, being stopped--> CONT ... INTERRUPT, DETACH --> as stopped as before
 *
 * Happy path: the agent of a stopped process (SIGSTOP) is lent some time. It takes its commands and
 * carries them out by itself, so that no step is left half done by another hand: when its time is
 * over, it stops as SIGSTOP would have stopped it there. The stop of a whole process does not hold a
 * thread that is traced and continued (ptrace(2), "Group-stop"). The threads that it makes start
 * stopped; they are traced and continued as well. So is the scribe: the agent's last line is written
 * before the program can continue, and end by SIGBUS. All of it happens on a thread of its own
 * (bounded.c): the end of that thread detaches what it traces, also if the daemon dies.
 *
 * How it fails: if another process traces the agent, or its cgroup is frozen, lone_run_begin returns
 * NULL. If the process is continued meanwhile, or stopped once more, its traced threads trap and are
 * continued.
 */
#include "lone_run.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/session.h"
#include "bounded.h"
#include "process.h"

#define TRAP_PAUSE_US 50
#define TRAP_MS	      100u
#define SEIZE_MS      1000u
#define LET_GO_MS     1000u

enum lone_state { LONE_BEGINS, LONE_RUNS, LONE_OVER };

struct lone_run {
	pid_t pid, tid;
	int pidfd;
	uint64_t until_ms;

	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t changed;
	unsigned int refs;
	enum lone_state state;
	bool end;
};

static void lone_put(void *arg)
{
	struct lone_run *run = arg;
	bool last;

	pthread_mutex_lock(&run->lock);
	last = --run->refs == 0;
	pthread_mutex_unlock(&run->lock);
	if (!last)
		return;
	pthread_cond_destroy(&run->changed);
	pthread_mutex_destroy(&run->lock);
	close(run->pidfd);
	free(run);
}

/* Notes the state: BEGINS -> RUNS or OVER, RUNS -> OVER. False: its time is over. */
static bool lone_enter(struct lone_run *run, enum lone_state state)
{
	static const char *const names[] = {"BEGINS", "RUNS", "OVER"};
	bool wanted;

	pthread_mutex_lock(&run->lock);
	if (state < run->state || state == LONE_BEGINS) {
		log_error("process %d alone: no step from %s to %s", (int)run->pid,
			  names[run->state], names[state]);
		abort();
	}
	wanted = !run->end && clock_ms() < run->until_ms;
	if (run->state != state) {
		run->state = state;
		pthread_cond_broadcast(&run->changed);
	}
	pthread_mutex_unlock(&run->lock);
	return wanted;
}

/* ---- the tracing thread ------------------------------------------------------------------------------ */

/* The signal that a trapped thread was about to get, and gets; other stops have none. */
static int signal_of(int status)
{
	return status >> 16 ? 0 : WSTOPSIG(status);
}

/* Continues a thread that has trapped. 1; 0: none has; -errno: none is traced any more. */
static int continue_one(void)
{
	int status;
	pid_t tid = waitpid(-1, &status, __WALL | __WNOTHREAD | WNOHANG);

	if (tid < 0)
		return errno == EINTR ? 1 : -errno;
	if (tid == 0)
		return 0;
	if (WIFSTOPPED(status))
		ptrace(PTRACE_CONT, tid, NULL, signal_of(status));
	return 1;
}

/* Detaches a thread. If that takes too long, the end of this thread does it. */
static void let_go(pid_t traced)
{
	uint64_t until_ms = clock_ms() + TRAP_MS;
	int status;

	if (ptrace(PTRACE_INTERRUPT, traced, NULL, NULL))
		return;
	while (clock_ms() < until_ms) {
		pid_t tid = waitpid(traced, &status, __WALL | WNOHANG);

		if (tid == traced && WIFSTOPPED(status))
			ptrace(PTRACE_DETACH, tid, NULL, signal_of(status));
		if (tid == traced || (tid < 0 && errno != EINTR))
			return;
		usleep(TRAP_PAUSE_US);
	}
}

static int lone_trace(struct bounded *bounded, void *arg)
{
	struct lone_run *run = arg;
	int rc = bounded_enter(bounded, run->pid);
	pid_t scribe;

	if (rc)
		return rc;
	if (ptrace(PTRACE_SEIZE, run->tid, NULL, PTRACE_O_TRACECLONE))
		return -errno;
	scribe = process_thread_named(run->pid, SESSION_SCRIBE);
	if (scribe && ptrace(PTRACE_SEIZE, scribe, NULL, NULL))
		scribe = 0; /* its line is late, or lost */
	/* While it is traced, no other thread can get its number. */
	if (!process_lives(run->pidfd))
		rc = -ESRCH;
	while (!rc && lone_enter(run, LONE_RUNS)) {
		rc = continue_one();
		if (rc == 0)
			usleep(TRAP_PAUSE_US);
		rc = rc < 0 ? rc : bounded_enter(bounded, run->pid);
	}
	if (scribe)
		let_go(scribe);
	let_go(run->tid);
	return rc;
}

/* Outlives the tracing thread, unless a program keeps that one (bounded.c). */
static void *lone_main(void *arg)
{
	struct lone_run *run = arg;
	pid_t stuck;
	int rc;

	if (bounded_run(lone_trace, run, lone_put, &rc, &stuck))
		lone_put(run);
	/* This thread's own reference is left: the analyzer does not count.
	   NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
	lone_enter(run, LONE_OVER);
	lone_put(run);
	return NULL;
}

/* ---- the caller ------------------------------------------------------------------------- */

static struct lone_run *lone_make(pid_t pid, pid_t tid, int pidfd, uint64_t until_ms)
{
	struct lone_run *run = calloc(1, sizeof(*run));
	pthread_condattr_t clock;

	if (!run)
		return NULL;
	run->pidfd = fcntl(pidfd, F_DUPFD_CLOEXEC, 0);
	if (run->pidfd < 0) {
		free(run);
		return NULL;
	}
	run->pid = pid;
	run->tid = tid;
	run->until_ms = until_ms;
	run->refs = 1;
	pthread_mutex_init(&run->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&run->changed, &clock);
	pthread_condattr_destroy(&clock);
	return run;
}

static int lone_start(struct lone_run *run)
{
	pthread_attr_t attr;
	pthread_t thread;
	int rc = pthread_attr_init(&attr);

	if (rc)
		return rc;
	run->refs += 2; /* of lone_main and of lone_trace */
	rc = pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (!rc)
		rc = pthread_create(&thread, &attr, lone_main, run);
	pthread_attr_destroy(&attr);
	if (rc)
		run->refs -= 2;
	return rc;
}

/* Waits until it is not `state` any more. lock is held. */
static void lone_wait(struct lone_run *run, enum lone_state state, uint64_t until_ms)
{
	struct timespec until = {.tv_sec = (time_t)(until_ms / 1000),
				 .tv_nsec = (long)(until_ms % 1000) * 1000000};

	while (run->state == state)
		if (pthread_cond_timedwait(&run->changed, &run->lock, &until))
			return;
}

struct lone_run *lone_run_begin(pid_t pid, pid_t tid, int pidfd, uint64_t until_ms)
{
	struct lone_run *run;
	bool runs;

	if (process_frozen(pid) || process_tracer(pid, tid))
		return NULL;
	run = lone_make(pid, tid, pidfd, until_ms);
	if (!run)
		return NULL;
	if (lone_start(run)) {
		lone_put(run);
		return NULL;
	}
	pthread_mutex_lock(&run->lock);
	lone_wait(run, LONE_BEGINS, clock_ms() + SEIZE_MS);
	runs = run->state == LONE_RUNS;
	run->end = !runs;
	pthread_mutex_unlock(&run->lock);
	if (runs)
		return run;
	lone_put(run);
	return NULL;
}

void lone_run_end(struct lone_run *run)
{
	if (!run)
		return;
	pthread_mutex_lock(&run->lock);
	run->end = true;
	lone_wait(run, LONE_RUNS, clock_ms() + LET_GO_MS);
	pthread_mutex_unlock(&run->lock);
	lone_put(run);
}
