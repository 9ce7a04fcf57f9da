/*
 * The guard: sees a thread of a puller that a program blocks, and lets another one take over. The
 * states are drawn in puller.c.
 *
 * Happy path: the guard sleeps unless pages were mapped within the last second.
 *
 * How it fails: a thread that has mapped for BLOCKED_US, and LOOK_MS more at the latest, is taken to
 * be blocked, and another thread is begun. Where no thread can be begun the guard tries again.
 */
#include "takeover.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "puller.h"

#define BLOCKED_US 100000u
#define LOOK_MS	   50
#define QUIET_US   1000000u

struct takeover_guard {
	pthread_t thread;
	bool started;
	bool failed; /* no thread could be begun, which is logged; the guard's */
	atomic_bool ends;
	int end; /* an eventfd */
};

/* `before` may be back any time; then the new thread ends at once. */
static void take_over(struct puller *puller, struct puller_thread *before, uint64_t seen_us)
{
	struct pull *pull = puller->links.pull;
	struct puller_thread *thread = puller_thread_new(puller, before, seen_us);
	int rc = thread ? puller_thread_start(thread) : ENOMEM;
	bool ours;

	if (rc) {
		if (!pull->guard->failed)
			log_error("a program blocks the thread that serves page faults of all "
				  "programs, and no other thread can be begun: %s",
				  strerror(rc));
		pull->guard->failed = true;
		free(thread);
		return;
	}
	pull->guard->failed = false;
	pthread_mutex_lock(&pull->lock);
	while (!thread->decided)
		pthread_cond_wait(&pull->released, &pull->lock);
	ours = puller->thread == thread;
	pthread_mutex_unlock(&pull->lock);
	if (ours)
		return;
	pthread_join(thread->pthread, NULL);
	free(thread);
}

/* True: its thread maps pages, or has within the last second. */
static bool guard_one(struct puller *puller)
{
	/* Once the guard has begun, only take_over changes it. */
	struct puller_thread *thread = puller->thread;
	/* First: `since` is of that, or later. */
	bool maps = atomic_load(&thread->state) == THREAD_MAPS;
	uint64_t now = pull_now_us(), since = atomic_load(&thread->since_us);

	if (maps && now > since + BLOCKED_US)
		take_over(puller, thread, since);
	return maps || now < since + QUIET_US;
}

/* Sleeps for LOOK_MS, or until the end. */
static void guard_pause(struct pull *pull)
{
	struct pollfd at = {.fd = pull->guard->end, .events = POLLIN};

	(void)poll(&at, 1, LOOK_MS);
}

static void sleep_until_mapped(struct pull *pull)
{
	struct pollfd at[2] = {{.fd = pull->guard_wake, .events = POLLIN},
			       {.fd = pull->guard->end, .events = POLLIN}};
	uint64_t count;

	if (poll(at, 2, -1) > 0 && at[0].revents)
		(void)!read(pull->guard_wake, &count, sizeof(count));
}

/* True: a thread maps pages, or has within the last second. */
static bool guard_all(struct pull *pull)
{
	bool any = false;

	for (unsigned i = 0; i < pull->n_pullers; i++)
		any = guard_one(pull->pullers[i]) || any;
	return any;
}

static bool any_maps(struct pull *pull)
{
	for (unsigned i = 0; i < pull->n_pullers; i++)
		if (atomic_load(&pull->pullers[i]->thread->state) == THREAD_MAPS)
			return true;
	return false;
}

static void *guard_run(void *arg)
{
	struct pull *pull = arg;
	while (!atomic_load(&pull->guard->ends)) {
		if (guard_all(pull)) {
			guard_pause(pull);
			continue;
		}
		atomic_store(&pull->guarded, false);
		if (any_maps(pull))
			atomic_store(&pull->guarded, true);
		else
			sleep_until_mapped(pull);
	}
	return NULL;
}

int takeover_open(struct pull *pull, struct ramp_err *err)
{
	struct takeover_guard *guard = calloc(1, sizeof(*guard));
	sigset_t all, old;
	int rc;

	if (!guard)
		return ramp_err_set(err, ENOMEM, "no memory for pulling");
	pull->guard = guard;
	pull->guard_wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	guard->end = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (pull->guard_wake < 0 || guard->end < 0)
		return ramp_err_sys(err, errno, "the guard of threads that pull");
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&guard->thread, NULL, guard_run, pull);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc)
		return ramp_err_sys(err, rc, "the guard of threads that pull");
	pthread_setname_np(guard->thread, "guard");
	guard->started = true;
	return 0;
}

void takeover_join(struct pull *pull)
{
	struct takeover_guard *guard = pull->guard;

	if (!guard || !guard->started)
		return;
	atomic_store(&guard->ends, true);
	(void)!write(guard->end, &(uint64_t){1}, sizeof(uint64_t));
	pthread_join(guard->thread, NULL);
	guard->started = false;
}

void takeover_close(struct pull *pull)
{
	struct takeover_guard *guard = pull->guard;

	if (!guard)
		return;
	if (pull->guard_wake >= 0)
		close(pull->guard_wake);
	if (guard->end >= 0)
		close(guard->end);
	pull->guard_wake = -1;
	pull->guard = NULL;
	free(guard);
}
