/*
 * Mapping what has come, by a thread that a program may keep, and another that goes on instead.
 *
 *   RUNS --puller_map_all--> MAPS --the call returns--> RUNS
 *                            MAPS --after KEPT_US, by another thread--> LEFT --it returns--> BACK
 *
 * RUNS, MAPS: its thread has the puller: links, flights, epoll set, what is to be mapped. MAPS: it
 * is in space_resolve or programs_resolve, and touches nothing but its turn until it has seen that
 * it RUNS again. LEFT: its thread has nothing but its turn. BACK: it ends.
 *
 * Happy path: what is to be mapped is put into a queue (puller_map), and mapped between two events,
 * when nothing of the puller stands in a local variable. To hand each page to a thread of its own
 * would cost a page fault more than the page (adaptive_poll.h).
 *
 * How it fails: the kernel takes the lock of a program's memory there, which the program can keep
 * for as long as it likes. The guard, a thread that sleeps unless something was mapped within the
 * last second, sees it after KEPT_US and LOOK_MS at the latest, and begins another thread, which
 * takes the puller over and parks the space: its page faults are left unread. When the kept thread
 * comes back it says so and ends, and whoever has the puller by then watches the space again, and
 * wakes all that wait there: their page faults come again. Where no thread can be begun the guard
 * tries again. Who is kept when the daemon ends keeps the memory of `struct pull`.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "pull_impl.h"

#define KEPT_US	 100000u
#define LOOK_MS	 50
#define QUIET_US 1000000u

/* `before` may be back any moment, by what it says the new thread ends at once. */
static void take_over(struct puller *puller, struct turn *before, uint64_t seen_us)
{
	struct pull *pull = puller->pull;
	struct turn *turn = turn_new(puller, before, seen_us);
	int rc = turn ? turn_start(turn) : ENOMEM;
	bool ours;

	if (rc) {
		if (!pull->guard_failed)
			log_error(
				"a program keeps the thread that serves its page faults, and those "
				"of all others: another thread: %s",
				strerror(rc));
		pull->guard_failed = true;
		free(turn);
		return;
	}
	pull->guard_failed = false;
	pthread_mutex_lock(&pull->lock);
	while (!turn->decided)
		pthread_cond_wait(&pull->released, &pull->lock);
	ours = puller->turn == turn;
	pthread_mutex_unlock(&pull->lock);
	if (ours)
		return;
	pthread_join(turn->thread, NULL);
	free(turn);
}

/* True: something was mapped a moment ago, or is. */
static bool guard_one(struct puller *puller)
{
	struct turn *turn = puller->turn; /* the guard's alone to change, once it has begun */
	/* First: `since` is of that, or later. */
	bool maps = atomic_load(&turn->state) == TURN_MAPS;
	uint64_t now = pull_now_us(), since = atomic_load(&turn->since_us);

	if (maps && now > since + KEPT_US)
		take_over(puller, turn, since);
	return maps || now < since + QUIET_US;
}

/* A moment, or until the end. */
static void pause_or_end(struct pull *pull)
{
	struct pollfd at = {.fd = pull->guard_end, .events = POLLIN};

	(void)poll(&at, 1, LOOK_MS);
}

static void sleep_until_mapped(struct pull *pull)
{
	struct pollfd at[2] = {{.fd = pull->guard_wake, .events = POLLIN},
			       {.fd = pull->guard_end, .events = POLLIN}};
	uint64_t count;

	if (poll(at, 2, -1) > 0 && at[0].revents)
		(void)!read(pull->guard_wake, &count, sizeof(count));
}

static void *guard(void *arg)
{
	struct pull *pull = arg;
	bool pager, prefetch;

	while (!atomic_load(&pull->guard_ends)) {
		pager = guard_one(&pull->pager);
		prefetch = guard_one(&pull->prefetch);
		if (pager || prefetch) {
			pause_or_end(pull);
			continue;
		}
		atomic_store(&pull->guarded, false);
		if (atomic_load(&pull->pager.turn->state) == TURN_MAPS ||
		    atomic_load(&pull->prefetch.turn->state) == TURN_MAPS)
			atomic_store(&pull->guarded, true);
		else
			sleep_until_mapped(pull);
	}
	return NULL;
}

int turn_guard_open(struct pull *pull, struct ramp_err *err)
{
	sigset_t all, old;
	int rc;

	pull->guard_wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pull->guard_end = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (pull->guard_wake < 0 || pull->guard_end < 0)
		return ramp_err_sys(err, errno, "the guard of threads that pull");
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&pull->guard, NULL, guard, pull);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc)
		return ramp_err_sys(err, rc, "the guard of threads that pull");
	pthread_setname_np(pull->guard, "guard");
	pull->guard_started = true;
	return 0;
}

void turn_guard_join(struct pull *pull)
{
	if (!pull->guard_started)
		return;
	atomic_store(&pull->guard_ends, true);
	(void)!write(pull->guard_end, &(uint64_t){1}, sizeof(uint64_t));
	pthread_join(pull->guard, NULL);
	pull->guard_started = false;
}

void turn_guard_close(struct pull *pull)
{
	if (pull->guard_wake >= 0)
		close(pull->guard_wake);
	if (pull->guard_end >= 0)
		close(pull->guard_end);
}
