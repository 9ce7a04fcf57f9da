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

#define KEPT_US	    100000u
#define LOOK_MS	    50
#define QUIET_US    1000000u
#define BACK_MS	    1000u /* at the end */
#define END_LOOK_US 10000

/* ---- what is to be mapped ---- */

bool puller_map(struct puller *puller, const struct mapping *mapping)
{
	struct mapping *at;

	if (puller->n_mappings == MAPPINGS_MAX)
		return false;
	at = &puller->mappings[(puller->first_mapping + puller->n_mappings++) % MAPPINGS_MAX];
	*at = *mapping;
	waiter_hold(&at->waiter);
	trace_get(at->trace);
	return true;
}

bool puller_map_full(const struct puller *puller)
{
	return puller->n_mappings == MAPPINGS_MAX;
}

static struct mapping next_mapping(struct puller *puller)
{
	struct mapping mapping = puller->mappings[puller->first_mapping];

	puller->first_mapping = (puller->first_mapping + 1) % MAPPINGS_MAX;
	puller->n_mappings--;
	return mapping;
}

static void mapping_over(struct mapping *mapping)
{
	waiter_put(&mapping->waiter);
	trace_put(mapping->trace);
}

/* The guard sleeps while `guarded` is not set, and looks once more after it has taken that back. */
static void begin_to_map(struct turn *turn, struct space *space)
{
	struct pull *pull = turn->puller->pull;

	turn->space = space;
	atomic_store(&turn->since_us, pull_now_us());
	atomic_store(&turn->state, TURN_MAPS);
	if (!atomic_load(&pull->guarded) && !atomic_exchange(&pull->guarded, true))
		(void)!write(pull->guard_wake, &(uint64_t){1}, sizeof(uint64_t));
}

static void come_back(struct turn *turn)
{
	struct pull *pull = turn->puller->pull;

	pthread_mutex_lock(&pull->lock);
	atomic_store(&turn->state, TURN_BACK);
	pthread_cond_broadcast(&pull->released);
	if (!atomic_load(&pull->stop)) /* after that it may be closed */
		puller_wake(turn->puller);
	pthread_mutex_unlock(&pull->lock);
}

/* True: the puller is still its own. */
static bool map_one(struct turn *turn, const struct mapping *mapping)
{
	struct puller *puller = turn->puller;
	struct programs *programs = puller->pull->config.programs;
	const struct waiter waiter = mapping->waiter;
	struct space *space = waiter.watch ? space_get(waiter.watch->space) : NULL;
	int state = TURN_MAPS;

	begin_to_map(turn, space);
	if (space)
		space_resolve(space, mapping->id, waiter.addr, mapping->first, mapping->count);
	else
		programs_resolve(programs, mapping->id, mapping->first, mapping->count,
				 &turn->since_us);
	if (!atomic_compare_exchange_strong(&turn->state, &state, TURN_RUNS)) {
		come_back(turn);
		return false;
	}
	if (space)
		space_put(space);
	return true;
}

bool puller_map_all(struct puller *puller, struct turn *turn)
{
	struct watch *watch;

	while (puller->n_mappings) {
		turn->mapping = next_mapping(puller);
		watch = turn->mapping.waiter.watch;
		/* Who is parked is woken when that ends. */
		if (!watch || (watch->space && !watch->parked)) {
			if (!map_one(turn, &turn->mapping))
				return false;
			if (watch)
				pager_mapped(puller->pull, &turn->mapping);
		}
		mapping_over(&turn->mapping);
	}
	return true;
}

/* ---- the thread in its place ---- */

static void *run(void *arg)
{
	struct turn *turn = arg;
	struct puller *puller = turn->puller;
	struct pull *pull = puller->pull;
	struct turn *before = turn->before;
	int state = TURN_MAPS;
	bool ours = !before || atomic_compare_exchange_strong(&before->state, &state, TURN_LEFT);

	if (before) {
		pthread_mutex_lock(&pull->lock);
		if (ours) {
			puller->turn = turn;
			TAILQ_INSERT_TAIL(&puller->left, before, link);
		}
		turn->decided = true;
		pthread_cond_broadcast(&pull->released);
		pthread_mutex_unlock(&pull->lock);
	}
	if (!ours)
		return NULL;
	/* While we began it may have come back, and mapped others' pages: they are not to blame. */
	if (before && before->mapping.waiter.watch &&
	    atomic_load(&before->since_us) == turn->seen_us)
		pager_park(pull, before->mapping.waiter.watch);
	if (puller->run(turn)) {
		pthread_mutex_lock(&pull->lock);
		puller->over = true;
		pthread_cond_broadcast(&pull->released);
		pthread_mutex_unlock(&pull->lock);
	}
	return NULL;
}

static int start(struct turn *turn)
{
	struct puller *puller = turn->puller;
	sigset_t all, old;
	int rc;

	/* Signals are the main thread's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&turn->thread, NULL, run, turn);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!rc)
		pthread_setname_np(turn->thread,
				   puller->which == PULLER_PAGER ? "pager" : "prefetch");
	return rc;
}

static struct turn *turn_new(struct puller *puller, struct turn *before, uint64_t seen_us)
{
	struct turn *turn = calloc(1, sizeof(*turn));

	if (!turn)
		return NULL;
	turn->puller = puller;
	turn->before = before;
	turn->seen_us = seen_us;
	atomic_init(&turn->state, TURN_RUNS);
	return turn;
}

/* `before` may be back any moment, by what it says the new thread ends at once. */
static void take_over(struct puller *puller, struct turn *before, uint64_t seen_us)
{
	struct pull *pull = puller->pull;
	struct turn *turn = turn_new(puller, before, seen_us);
	int rc = turn ? start(turn) : ENOMEM;
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

/* ---- the guard ---- */

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

/* ---- beginning and ending ---- */

int turn_begin(struct puller *puller)
{
	struct turn *turn = turn_new(puller, NULL, 0);
	int rc = turn ? start(turn) : ENOMEM;

	if (rc) {
		free(turn);
		return rc;
	}
	puller->turn = turn; /* nobody else looks before the guard is there */
	return 0;
}

/* pull->lock is held. */
static struct turn *take_back(struct puller *puller)
{
	struct turn *turn;

	TAILQ_FOREACH (turn, &puller->left, link)
		if (atomic_load(&turn->state) == TURN_BACK) {
			TAILQ_REMOVE(&puller->left, turn, link);
			return turn;
		}
	return NULL;
}

static void turn_over(struct turn *turn)
{
	struct watch *watch = turn->mapping.waiter.watch;

	pthread_join(turn->thread, NULL);
	if (watch)
		pager_unpark(turn->puller->pull, watch);
	if (turn->space)
		space_put(turn->space);
	mapping_over(&turn->mapping);
	free(turn);
}

void turns_back(struct puller *puller)
{
	struct pull *pull = puller->pull;
	struct turn *turn;

	if (TAILQ_EMPTY(&puller->left)) /* who has the puller has put in there what is in there */
		return;
	do {
		pthread_mutex_lock(&pull->lock);
		turn = take_back(puller);
		pthread_mutex_unlock(&pull->lock);
		if (turn)
			turn_over(turn);
	} while (turn);
}

void turn_join(struct puller *puller)
{
	struct pull *pull = puller->pull;

	if (!puller->turn)
		return;
	puller_wake(puller);
	pthread_mutex_lock(&pull->lock);
	while (!puller->over)
		pthread_cond_wait(&pull->released, &pull->lock);
	pthread_mutex_unlock(&pull->lock);
}

static bool any_kept(struct puller *puller)
{
	struct turn *turn;

	TAILQ_FOREACH (turn, &puller->left, link)
		if (atomic_load(&turn->state) == TURN_LEFT)
			return true;
	return false;
}

bool turns_end(struct puller *puller)
{
	struct pull *pull = puller->pull;
	uint64_t until_ms = pull_now_ms() + BACK_MS;
	struct turn *turn;
	bool kept;

	if (puller->turn) {
		pthread_join(puller->turn->thread, NULL);
		free(puller->turn);
		puller->turn = NULL;
	}
	while (puller->n_mappings) {
		struct mapping mapping = next_mapping(puller);

		mapping_over(&mapping);
	}
	do {
		pthread_mutex_lock(&pull->lock);
		kept = any_kept(puller);
		pthread_mutex_unlock(&pull->lock);
		if (kept)
			usleep(END_LOOK_US);
	} while (kept && pull_now_ms() < until_ms);
	turns_back(puller);
	TAILQ_FOREACH (turn, &puller->left, link)
		pthread_detach(turn->thread); /* nobody waits for it any more */
	return TAILQ_EMPTY(&puller->left);
}
