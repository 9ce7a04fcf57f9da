/*
 * The park thread.
 *
 * A waiting request is in a bucket by its segment's id. A change moves the segment's requests, in
 * the order in which they came, to the ready list, and signals the eventfd. The thread takes a
 * request from there, runs its step, and puts it back if it must keep waiting. A change that
 * happens while a step runs is not lost: the bucket counts changes, and a request that comes back
 * to a bucket whose count has moved is ready again at once.
 *
 * How it fails: it does not; callers provide the memory, and a lost signal costs PARK_TICK_MS.
 */
#include "park.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "fuse_request.h"

#define BUCKETS 256

TAILQ_HEAD(parked_list, parked);

struct bucket {
	struct parked_list list;
	uint64_t changes, workers_freed;
};

struct park {
	pthread_t thread;
	int event;
	atomic_uint waiting; /* in buckets; the park thread reads it without the lock */
	pthread_mutex_t lock;
	struct bucket buckets[BUCKETS]; /* protected by lock */
	struct parked_list ready;	/* protected by lock */
	bool closed;			/* protected by lock */
};

uint64_t park_now_ms(void)
{
	return clock_ms();
}

static struct bucket *bucket_of(struct park *park, ramp_segment_t id)
{
	return &park->buckets[id % BUCKETS];
}

static void park_wake(struct park *park)
{
	uint64_t one = 1;

	/* EAGAIN: the counter is full, so the thread is awake anyway. */
	while (write(park->event, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

static void make_ready(struct park *park, struct parked *parked)
{
	TAILQ_REMOVE(&bucket_of(park, parked->id)->list, parked, link);
	atomic_fetch_sub_explicit(&park->waiting, 1, memory_order_relaxed);
	TAILQ_INSERT_TAIL(&park->ready, parked, link);
}

/* Makes every waiting request ready: a step checks its own deadline. Lock held. */
static void tick(struct park *park)
{
	for (int i = 0; i < BUCKETS; i++) {
		struct bucket *b = &park->buckets[i];

		while (!TAILQ_EMPTY(&b->list))
			make_ready(park, TAILQ_FIRST(&b->list));
	}
}

/* Puts a request back to wait, or to the ready list where something has happened since its step
   began. Lock held. */
static void put_back(struct park *park, struct parked *parked, struct bucket *b, uint64_t changes)
{
	if (bucket_of(park, parked->id)->changes != changes || parked->woken) {
		TAILQ_INSERT_TAIL(&park->ready, parked, link);
		return;
	}
	TAILQ_INSERT_TAIL(&b->list, parked, link);
	atomic_fetch_add(&park->waiting, 1);
}

/* Runs a step. Lock held, but given up while the step runs. */
static void run_one(struct park *park, struct parked *parked)
{
	struct bucket *b = bucket_of(park, parked->id);
	uint64_t changes = b->changes, workers_freed = b->workers_freed;
	enum park_verdict verdict;

	/* One interrupt makes the step look once: the caller may have handled its signal and keep
	   waiting. */
	parked->woken = false;
	pthread_mutex_unlock(&park->lock);
	verdict = parked->step(parked);
	pthread_mutex_lock(&park->lock);
	if (verdict == PARK_DONE)
		return;
	if (parked->awaits_worker && b->workers_freed != workers_freed)
		parked->woken = true;
	put_back(park, parked, b, changes);
}

static void wait_for_work(struct park *park, uint64_t next_tick)
{
	struct pollfd p = {.fd = park->event, .events = POLLIN};
	uint64_t now = park_now_ms(), count;
	int timeout = -1;

	if (atomic_load(&park->waiting))
		timeout = next_tick > now ? (int)(next_tick - now) : 0;
	if (poll(&p, 1, timeout) > 0)
		while (read(park->event, &count, sizeof(count)) < 0 && errno == EINTR)
			;
}

static void *park_thread(void *arg)
{
	struct park *park = arg;
	uint64_t next_tick = park_now_ms() + PARK_TICK_MS;

	pthread_mutex_lock(&park->lock);
	while (!park->closed) {
		struct parked *parked;

		/* Ticks come also while the ready list is never empty: one segment's pages may come
		   all the time while another's source is silent. */
		if (park_now_ms() >= next_tick) {
			tick(park);
			next_tick = park_now_ms() + PARK_TICK_MS;
		}
		parked = TAILQ_FIRST(&park->ready);
		if (parked) {
			TAILQ_REMOVE(&park->ready, parked, link);
			run_one(park, parked);
			continue;
		}
		pthread_mutex_unlock(&park->lock);
		wait_for_work(park, next_tick);
		pthread_mutex_lock(&park->lock);
	}
	pthread_mutex_unlock(&park->lock);
	reply_buffer_free(); /* of a listing that has waited */
	return NULL;
}

int park_open(struct park **out, struct ramp_err *err)
{
	struct park *park = calloc(1, sizeof(*park));
	int rc;

	if (!park)
		return ramp_err_sys(err, ENOMEM, "park");
	park->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (park->event < 0) {
		rc = ramp_err_sys(err, errno, "park's eventfd");
		goto err_alloc;
	}
	pthread_mutex_init(&park->lock, NULL);
	TAILQ_INIT(&park->ready);
	for (int i = 0; i < BUCKETS; i++)
		TAILQ_INIT(&park->buckets[i].list);
	rc = pthread_create(&park->thread, NULL, park_thread, park);
	if (rc) {
		rc = ramp_err_sys(err, rc, "park thread");
		goto err_event;
	}
	pthread_setname_np(park->thread, "park");
	*out = park;
	return 0;

err_event:
	pthread_mutex_destroy(&park->lock);
	close(park->event);
err_alloc:
	free(park);
	return rc;
}

void park_close(struct park *park)
{
	struct parked *parked;

	pthread_mutex_lock(&park->lock);
	park->closed = true;
	pthread_mutex_unlock(&park->lock);
	park_wake(park);
	pthread_join(park->thread, NULL);

	pthread_mutex_lock(&park->lock);
	tick(park);
	while ((parked = TAILQ_FIRST(&park->ready))) {
		TAILQ_REMOVE(&park->ready, parked, link);
		pthread_mutex_unlock(&park->lock);
		parked->drop(parked);
		pthread_mutex_lock(&park->lock);
	}
	pthread_mutex_unlock(&park->lock);
}

void park_free(struct park *park)
{
	pthread_mutex_destroy(&park->lock);
	close(park->event);
	free(park);
}

void park_run(struct park *park, struct parked *parked)
{
	bool closed;

	pthread_mutex_lock(&park->lock);
	closed = park->closed;
	if (!closed)
		TAILQ_INSERT_TAIL(&park->ready, parked, link);
	pthread_mutex_unlock(&park->lock);
	if (closed)
		parked->drop(parked);
	else
		park_wake(park);
}

void park_wait(struct park *park, struct parked *parked, ramp_segment_t id)
{
	parked->id = id;
	parked->since_ms = park_now_ms();
	park_run(park, parked);
}

uint64_t park_changes(struct park *park, ramp_segment_t id)
{
	uint64_t changes;

	pthread_mutex_lock(&park->lock);
	changes = bucket_of(park, id)->changes;
	pthread_mutex_unlock(&park->lock);
	return changes;
}

void park_again(struct park *park, struct parked *parked, uint64_t changes)
{
	bool closed;

	pthread_mutex_lock(&park->lock);
	closed = park->closed;
	if (!closed)
		put_back(park, parked, bucket_of(park, parked->id), changes);
	pthread_mutex_unlock(&park->lock);
	if (closed)
		parked->drop(parked);
	else
		park_wake(park); /* the thread may sleep without a time-out */
}

/* Lock held. */
static bool ready_all(struct park *park, ramp_segment_t id, bool worker_free)
{
	struct bucket *b = bucket_of(park, id);
	struct parked *parked, *next;
	bool any = false;

	for (parked = TAILQ_FIRST(&b->list); parked; parked = next) {
		next = TAILQ_NEXT(parked, link);
		if (parked->id != id || (worker_free && !parked->awaits_worker))
			continue;
		make_ready(park, parked);
		any = true;
	}
	return any;
}

void park_changed(struct park *park, ramp_segment_t id)
{
	bool any;

	pthread_mutex_lock(&park->lock);
	bucket_of(park, id)->changes++;
	any = ready_all(park, id, false);
	pthread_mutex_unlock(&park->lock);
	if (any)
		park_wake(park);
}

void park_worker_free(struct park *park, ramp_segment_t id)
{
	bool any;

	pthread_mutex_lock(&park->lock);
	bucket_of(park, id)->workers_freed++;
	any = ready_all(park, id, true);
	pthread_mutex_unlock(&park->lock);
	if (any)
		park_wake(park);
}

void park_interrupt(struct park *park, struct parked *parked)
{
	struct parked *p;

	atomic_store_explicit(&parked->interrupted, true, memory_order_relaxed);
	pthread_mutex_lock(&park->lock);
	parked->woken = true;
	TAILQ_FOREACH (p, &bucket_of(park, parked->id)->list, link) {
		if (p != parked)
			continue;
		make_ready(park, parked);
		break;
	}
	pthread_mutex_unlock(&park->lock);
	park_wake(park);
}

uint32_t park_count(struct park *park)
{
	uint32_t n;
	struct parked *parked;

	pthread_mutex_lock(&park->lock);
	n = atomic_load_explicit(&park->waiting, memory_order_relaxed);
	TAILQ_FOREACH (parked, &park->ready, link)
		n++;
	pthread_mutex_unlock(&park->lock);
	return n;
}
