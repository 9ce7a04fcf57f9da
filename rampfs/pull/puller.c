/*
 * The threads that pull.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "pull_impl.h"

#define BACK_MS	    1000u /* at the end */
#define END_LOOK_US 10000

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
		turn->mapping = map_queue_next(puller);
		watch = turn->mapping.waiter.watch;
		/* Who is parked is woken when that ends. */
		if (!watch || (watch->space && !watch->parked)) {
			if (!map_one(turn, &turn->mapping))
				return false;
			if (watch)
				pager_mapped(puller->pull, &turn->mapping);
		}
		map_queue_over(&turn->mapping);
	}
	return true;
}

static void *turn_run(void *arg)
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

int turn_start(struct turn *turn)
{
	struct puller *puller = turn->puller;
	sigset_t all, old;
	int rc;

	/* Signals are the main thread's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&turn->thread, NULL, turn_run, turn);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!rc)
		pthread_setname_np(turn->thread,
				   puller->which == PULLER_PAGER ? "pager" : "prefetch");
	return rc;
}

struct turn *turn_new(struct puller *puller, struct turn *before, uint64_t seen_us)
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

int turn_begin(struct puller *puller)
{
	struct turn *turn = turn_new(puller, NULL, 0);
	int rc = turn ? turn_start(turn) : ENOMEM;

	if (rc) {
		free(turn);
		return rc;
	}
	puller->turn = turn; /* nobody else looks before the guard is there */
	return 0;
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
	map_queue_over(&turn->mapping);
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
		struct mapping mapping = map_queue_next(puller);

		map_queue_over(&mapping);
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

int puller_open(struct puller *puller, int which, bool (*run)(struct turn *turn),
		struct ramp_err *err)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &puller->wake_kind};
	int rc;

	puller->which = which;
	puller->class = which == PULLER_PAGER ? TP_DEMAND : TP_PREFETCH;
	puller->wake_kind = WATCH_WAKE;
	puller->run = run;
	puller->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (puller->epoll >= 0)
		puller->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (puller->wake < 0 || epoll_ctl(puller->epoll, EPOLL_CTL_ADD, puller->wake, &event))
		return ramp_err_sys(err, errno, "a thread that pulls");
	rc = turn_begin(puller);
	return rc ? ramp_err_sys(err, rc, "a thread that pulls") : 0;
}

void puller_close(struct puller *puller)
{
	struct link *link;

	while ((link = LIST_FIRST(&puller->links))) {
		/* It does not see that LIST_REMOVE took the former one out.
		   NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
		link_down(link, 0);
		LIST_REMOVE(link, entry);
		free(link);
	}
	if (puller->wake >= 0)
		close(puller->wake);
	puller->wake = -1; /* the other one's reads that are given back would wake it */
	if (puller->epoll >= 0)
		close(puller->epoll);
}
