/*
 * The threads that pull, and how they map pages that have come.
 *
 *   RUNS     -> MAPS      [map_request]  it begins to map
 *   MAPS     -> RUNS      [map_request]  the call has returned
 *   MAPS     -> REPLACED  [thread_run]   another thread has seen it blocked, and takes the puller over
 *   REPLACED -> BACK      [thread_back]  the call has returned after all; the thread ends
 *
 * A thread that RUNS or MAPS has the puller: links, flights, epoll set, map queue. One that MAPS is in
 * client_resolve or programs_resolve, and touches nothing but its struct puller_thread until it has
 * seen that it RUNS again. One that is REPLACED has nothing but that struct.
 *
 * Happy path: pages that have come are put into the map queue, and mapped between two events, when
 * nothing of the puller is in a local variable. To hand each page to a thread of its own would cost a
 * page fault more than the page (adaptive_poll.h).
 *
 * How it fails: the kernel takes the target's mmap lock there, which a program can hold for as long
 * as it likes. Then takeover.c begins another thread, which takes the puller over and parks the
 * client: its page faults are left unread. When the blocked thread comes back it says so and ends.
 * The thread that has the puller by then watches the client again, and wakes all that wait there:
 * their page faults come again. A thread that is blocked when the daemon ends keeps the memory of
 * its puller and of struct pull.
 */
#include "puller.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"

#define BACK_MS	    1000u /* for blocked threads, at the end */
#define END_LOOK_US 10000

/* The one door to a state. False: the thread was not in `from`: it and the thread that takes the
   puller over race for it. Logs nothing of a page that is mapped. */
static bool thread_go(struct puller_thread *thread, int from, int to)
{
	static const struct {
		const char *name;
		unsigned next; /* bits */
	} states[] = {
		[THREAD_RUNS] = {"RUNS", 1u << THREAD_MAPS},
		[THREAD_MAPS] = {"MAPS", 1u << THREAD_RUNS | 1u << THREAD_REPLACED},
		[THREAD_REPLACED] = {"REPLACED", 1u << THREAD_BACK},
		[THREAD_BACK] = {"BACK", 0},
	};
	int was = from;

	if (!(states[from].next >> to & 1)) {
		log_error("a thread that pulls: no step from %s to %s", states[from].name,
			  states[to].name);
		abort();
	}
	if (!atomic_compare_exchange_strong(&thread->state, &was, to))
		return false;
	if (to == THREAD_REPLACED || to == THREAD_BACK)
		log_debug("a thread that pulls: %s -> %s", states[from].name, states[to].name);
	return true;
}

/* ---- mapping ---- */

/* The guard sleeps while `guarded` is not set, and looks once more after it has taken that back. */
static void begin_to_map(struct puller_thread *thread, struct client *space)
{
	struct pull *pull = thread->puller->links.pull;

	thread->space = space;
	atomic_store(&thread->since_us, pull_now_us());
	thread_go(thread, THREAD_RUNS, THREAD_MAPS); /* only the thread itself ends RUNS */
	if (!atomic_load(&pull->guarded) && !atomic_exchange(&pull->guarded, true))
		(void)!write(pull->guard_wake, &(uint64_t){1}, sizeof(uint64_t));
}

static void thread_back(struct puller_thread *thread)
{
	struct pull *pull = thread->puller->links.pull;

	pthread_mutex_lock(&pull->lock);
	thread_go(thread, THREAD_REPLACED, THREAD_BACK);
	pthread_cond_broadcast(&pull->released);
	if (!atomic_load(&pull->stop)) /* after that it may be closed */
		pull_wake(pull, thread->puller->links.which);
	pthread_mutex_unlock(&pull->lock);
}

/* Maps pages where a page fault waits for the first of them, which wakes its program, or wherever they
   are attached. False: the puller is another thread's by now. */
static bool map_request(struct puller_thread *thread, const struct map_request *request)
{
	struct programs *programs = thread->puller->links.pull->config.programs;
	const struct fault_waiter waiter = request->waiter;
	struct client *space = waiter.client ? client_get(waiter.client->space) : NULL;

	begin_to_map(thread, space);
	if (space)
		client_resolve(space, request->id, waiter.addr, request->first, request->count);
	else
		programs_resolve(programs, request->id, request->first, request->count,
				 &thread->since_us);
	if (!thread_go(thread, THREAD_MAPS, THREAD_RUNS)) {
		thread_back(thread);
		return false;
	}
	if (space)
		client_put(space);
	return true;
}

bool puller_map_all(struct puller_thread *thread)
{
	struct puller *puller = thread->puller;
	struct map_request *request = &thread->mapping;
	struct puller_client *client;

	while (puller->map_queue.n) {
		*request = map_queue_take(&puller->map_queue);
		client = request->waiter.client;
		/* A parked client is woken when it is unparked. */
		if (!client || (client->space && !client->parked)) {
			if (!map_request(thread, request))
				return false;
			if (client)
				trace_page_over(request->trace, request->first, "CONTINUE is done");
			if (client && request->fault)
				pull_count_fault(puller->links.pull, request->waiter.since_us);
		}
		map_request_release(request);
	}
	return true;
}

/* ---- threads ---- */

static void *thread_run(void *arg)
{
	struct puller_thread *thread = arg;
	struct puller *puller = thread->puller;
	struct pull *pull = puller->links.pull;
	struct puller_thread *before = thread->before;
	bool ours = !before || thread_go(before, THREAD_MAPS, THREAD_REPLACED);

	if (before) {
		pthread_mutex_lock(&pull->lock);
		if (ours) {
			puller->thread = thread;
			TAILQ_INSERT_TAIL(&puller->replaced, before, entry);
		}
		thread->decided = true;
		pthread_cond_broadcast(&pull->released);
		pthread_mutex_unlock(&pull->lock);
	}
	if (!ours)
		return NULL;
	/* While this thread began, `before` may have come back, and begun to map for another client:
	   that one is not parked. */
	if (before && before->mapping.waiter.client &&
	    atomic_load(&before->since_us) == thread->seen_us)
		puller_client_park(before->mapping.waiter.client);
	if (puller->run(thread)) {
		pthread_mutex_lock(&pull->lock);
		puller->over = true;
		pthread_cond_broadcast(&pull->released);
		pthread_mutex_unlock(&pull->lock);
	}
	return NULL;
}

static void puller_name(const struct puller *puller, pthread_t pthread)
{
	char nth[] = "prefetch-N";

	nth[sizeof(nth) - 2] = (char)('1' + puller->links.which - PULLER_PREFETCH);
	pthread_setname_np(pthread, puller->links.which == PULLER_PAGER	     ? "pager"
				    : puller->links.which == PULLER_PREFETCH ? "prefetch"
									     : nth);
}

int puller_thread_start(struct puller_thread *thread)
{
	struct puller *puller = thread->puller;
	sigset_t all, old;
	int rc;

	/* Signals are the main thread's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&thread->pthread, NULL, thread_run, thread);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!rc)
		puller_name(puller, thread->pthread);
	return rc;
}

struct puller_thread *puller_thread_new(struct puller *puller, struct puller_thread *before,
					uint64_t seen_us)
{
	struct puller_thread *thread = calloc(1, sizeof(*thread));

	if (!thread)
		return NULL;
	thread->puller = puller;
	thread->before = before;
	thread->seen_us = seen_us;
	atomic_init(&thread->state, THREAD_RUNS);
	return thread;
}

/* 0, or an errno. */
static int puller_begin(struct puller *puller)
{
	struct puller_thread *thread = puller_thread_new(puller, NULL, 0);
	int rc = thread ? puller_thread_start(thread) : ENOMEM;

	if (rc) {
		free(thread);
		return rc;
	}
	puller->thread = thread; /* no other thread looks at it before the guard is there */
	return 0;
}

/* Takes a thread that is BACK out of the list, or NULL. pull->lock is held. */
static struct puller_thread *take_back(struct puller *puller)
{
	struct puller_thread *thread;

	TAILQ_FOREACH (thread, &puller->replaced, entry)
		if (atomic_load(&thread->state) == THREAD_BACK) {
			TAILQ_REMOVE(&puller->replaced, thread, entry);
			return thread;
		}
	return NULL;
}

static void thread_free(struct puller_thread *thread)
{
	struct puller_client *client = thread->mapping.waiter.client;

	pthread_join(thread->pthread, NULL);
	if (client)
		puller_client_unpark(client);
	if (thread->space)
		client_put(thread->space);
	map_request_release(&thread->mapping);
	free(thread);
}

void puller_reap(struct puller *puller)
{
	struct pull *pull = puller->links.pull;
	struct puller_thread *thread;

	if (TAILQ_EMPTY(&puller->replaced)) /* only a thread that has the puller adds to it */
		return;
	do {
		pthread_mutex_lock(&pull->lock);
		thread = take_back(puller);
		pthread_mutex_unlock(&pull->lock);
		if (thread)
			thread_free(thread);
	} while (thread);
}

void puller_take_wake(struct puller *puller)
{
	uint64_t count;

	(void)!read(puller->links.pull->wake[puller->links.which], &count, sizeof(count));
}

/* ---- beginning and ending ---- */

int puller_open(struct puller *puller, struct pull *pull, int which,
		bool (*run)(struct puller_thread *thread), struct ramp_err *err)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &puller->wake_kind};
	int wake = -1, rc;

	puller->links.pull = pull;
	puller->links.which = which;
	puller->links.class = which == PULLER_PAGER ? TP_DEMAND : TP_PREFETCH;
	puller->wake_kind = PULLER_EVENT_WAKE;
	puller->run = run;
	TAILQ_INIT(&puller->replaced);
	puller->links.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (puller->links.epoll >= 0)
		wake = pull->wake[which] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (wake < 0 || epoll_ctl(puller->links.epoll, EPOLL_CTL_ADD, wake, &event))
		return ramp_err_sys(err, errno, "a thread that pulls");
	rc = puller_begin(puller);
	return rc ? ramp_err_sys(err, rc, "a thread that pulls") : 0;
}

void puller_join(struct puller *puller)
{
	struct pull *pull = puller ? puller->links.pull : NULL;

	if (!puller || !puller->thread)
		return;
	pull_wake(pull, puller->links.which);
	pthread_mutex_lock(&pull->lock);
	while (!puller->over)
		pthread_cond_wait(&pull->released, &pull->lock);
	pthread_mutex_unlock(&pull->lock);
}

static bool any_replaced(struct puller *puller)
{
	struct puller_thread *thread;

	TAILQ_FOREACH (thread, &puller->replaced, entry)
		if (atomic_load(&thread->state) == THREAD_REPLACED)
			return true;
	return false;
}

bool puller_end(struct puller *puller)
{
	struct pull *pull = puller ? puller->links.pull : NULL;
	uint64_t until_ms = pull_now_ms() + BACK_MS;
	struct puller_thread *thread;
	bool blocked;

	if (!puller)
		return true;
	if (puller->thread) {
		pthread_join(puller->thread->pthread, NULL);
		free(puller->thread);
		puller->thread = NULL;
	}
	while (puller->map_queue.n) {
		struct map_request request = map_queue_take(&puller->map_queue);

		map_request_release(&request);
	}
	do {
		pthread_mutex_lock(&pull->lock);
		blocked = any_replaced(puller);
		pthread_mutex_unlock(&pull->lock);
		if (blocked)
			usleep(END_LOOK_US);
	} while (blocked && pull_now_ms() < until_ms);
	puller_reap(puller);
	TAILQ_FOREACH (thread, &puller->replaced, entry)
		pthread_detach(thread->pthread); /* no thread waits for it any more */
	return TAILQ_EMPTY(&puller->replaced);
}

void puller_close(struct puller *puller)
{
	struct pull *pull = puller ? puller->links.pull : NULL;
	int *wake = puller ? &pull->wake[puller->links.which] : NULL;

	if (!puller)
		return;
	links_close(&puller->links);
	if (*wake >= 0)
		close(*wake);
	*wake = -1; /* others' reads that are given back would wake it */
	if (puller->links.epoll >= 0)
		close(puller->links.epoll);
}
