/*
 * The control loop.
 *
 * Other threads put functions on a list under a lock and wake the loop by an eventfd; the loop
 * takes the list and runs it in order. Workers are threads of this file, started when there is more
 * work than threads; their results come back the same way.
 *
 * A lock that passes its waiter's priority on is handed over in the kernel once a thread waits for it, and so is each
 * next one then: two changes of threads each time. So it is taken seldom, for the whole list, and no
 * thread is woken while it is held.
 *
 * uv_async_t and uv_queue_work are not used: libuv waits for a thread in the middle of uv_async_send
 * by spinning, and while the loop's thread has real-time priority (loop_rt_boost) that thread never
 * continues. So the lock here gives its holder the priority of the thread that waits for it.
 */
#include "loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <time.h>
#include <unistd.h>

#include "fair_queue.h"
#include "kernel.h"

#define WORKERS		32u /* a user may block a half of them (fair_queue.h) */
#define SLOW_WORKERS	16u
#define RT_BOOST_MAX_MS 500u /* at one go; then its computing time decides about the next */

struct posted {
	STAILQ_ENTRY(posted) link;
	loop_fn *fn;
	void *arg;
};

struct work {
	struct fair_queue_entry entry; /* first */
	struct loop *loop;
	loop_fn *work, *done;
	void *arg;
	uid_t uid;
	bool slow;
};

struct loop {
	uv_loop_t uv;
	struct loop_wake wake;

	uv_prepare_t sleeps;
	uv_timer_t boost_end; /* this and the next: control thread */
	struct {
		bool on, denied;
		uint64_t since_ms, until_ms, ran_ns, not_before_ms;
	} boost;

	STAILQ_HEAD(posted_list, posted) taken; /* off `posted`, and not run yet: control thread */

	pthread_mutex_t lock; /* protects what follows */
	struct posted_list posted;
	bool running; /* the control thread runs posted functions, and takes what comes meanwhile */
	bool stop, ending;
	pthread_cond_t more;	       /* for workers: work, or the end */
	pthread_cond_t moved;	       /* for loop_close: something is posted */
	struct fair_queue works, slow; /* the queue of each kind */
	unsigned int pending;	       /* work that was given and is not over */
	unsigned int idle;	       /* workers that sleep, or are about to wake */
	unsigned int threads;
	pthread_t thread[WORKERS];
};

/* ---- waking ---------------------------------------------------------------------------------- */

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct loop_wake *wake = poll->data;
	uint64_t count;

	(void)status;
	(void)events;
	/* Before fn: a send after this wakes the loop again. */
	(void)!read(wake->fd, &count, sizeof(count));
	wake->fn(wake->arg);
}

int loop_wake_open(struct loop *loop, struct loop_wake *wake, loop_fn *fn, void *arg,
		   struct ramp_err *err)
{
	int rc;

	*wake = (struct loop_wake){.fn = fn, .arg = arg};
	wake->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (wake->fd < 0)
		return ramp_err_sys(err, errno, "waking the control loop");
	rc = uv_poll_init(&loop->uv, &wake->poll, wake->fd);
	if (rc) {
		close(wake->fd);
		return ramp_err_set(err, -rc, "waking the control loop: %s", uv_strerror(rc));
	}
	wake->poll.data = wake;
	uv_poll_start(&wake->poll, UV_READABLE, on_readable);
	return 0;
}

void loop_wake_send(struct loop_wake *wake)
{
	/* Can only fail when the counter is full; the loop is awake then. */
	(void)!write(wake->fd, &(uint64_t){1}, sizeof(uint64_t));
}

static void on_wake_closed(uv_handle_t *handle)
{
	struct loop_wake *wake = handle->data;

	close(wake->fd);
	if (wake->closed)
		wake->closed(wake->arg);
}

void loop_wake_close(struct loop_wake *wake, loop_fn *closed)
{
	wake->closed = closed;
	uv_close((uv_handle_t *)&wake->poll, on_wake_closed);
}

/* ---- real-time boost ------------------------------------------------------------------------- */

static uint64_t computed_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

/* A thread that has computed for half of the time delayed others without helping a move. */
static void end_boost(struct loop *loop)
{
	uint64_t wall_ms = uv_now(&loop->uv) - loop->boost.since_ms;

	kernel_rt_boost(0);
	loop->boost.on = false;
	if ((computed_ns() - loop->boost.ran_ns) / 1000000 > wall_ms / 2)
		loop->boost.not_before_ms = uv_now(&loop->uv) + RT_BOOST_MAX_MS;
}

static void on_boost_end(uv_timer_t *timer);

static void end_boost_later(struct loop *loop)
{
	uint64_t now = uv_now(&loop->uv), end = loop->boost.since_ms + RT_BOOST_MAX_MS;

	if (end > loop->boost.until_ms)
		end = loop->boost.until_ms;
	if (now < end)
		uv_timer_start(&loop->boost_end, on_boost_end, end - now, 0);
	else
		end_boost(loop);
}

static void on_boost_end(uv_timer_t *timer)
{
	end_boost_later(timer->data);
}

void loop_rt_boost(struct loop *loop, unsigned int ms)
{
	uint64_t now;

	uv_update_time(&loop->uv);
	now = uv_now(&loop->uv);
	if (loop->boost.denied || now < loop->boost.not_before_ms)
		return;
	if (loop->boost.until_ms < now + ms)
		loop->boost.until_ms = now + ms;
	if (loop->boost.on)
		return;
	if (kernel_rt_boost(KERNEL_WINDOW_PRIORITY)) {
		loop->boost.denied = true;
		return;
	}
	loop->boost.on = true;
	loop->boost.since_ms = now;
	loop->boost.ran_ns = computed_ns();
	end_boost_later(loop);
}

/* ---- posted functions ------------------------------------------------------------------------- */

/* Takes all that is posted. */
static void take_posted(struct loop *loop)
{
	pthread_mutex_lock(&loop->lock);
	STAILQ_CONCAT(&loop->taken, &loop->posted);
	loop->running = !STAILQ_EMPTY(&loop->taken);
	pthread_mutex_unlock(&loop->lock);
}

/* The loop is about to sleep. In the middle of a posted function that runs it again (uv_run) it is woken at once, for
   what is taken, and others have to wake it for what they post. */
static void on_sleep(uv_prepare_t *handle)
{
	struct loop *loop = handle->data;

	if (!loop->running) /* this thread alone changes it */
		return;
	pthread_mutex_lock(&loop->lock);
	loop->running = false;
	pthread_mutex_unlock(&loop->lock);
	loop_wake_send(&loop->wake);
}

/* Runs all that is posted. False: there was nothing. */
static bool run_posted(struct loop *loop)
{
	struct posted *p;
	bool any = false;

	for (;;) {
		if (STAILQ_EMPTY(&loop->taken))
			take_posted(loop);
		p = STAILQ_FIRST(&loop->taken);
		if (!p)
			return any;
		STAILQ_REMOVE_HEAD(&loop->taken, link);
		any = true;
		p->fn(p->arg);
		free(p);
	}
}

static void on_wake(void *arg)
{
	struct loop *loop = arg;
	bool stop;

	run_posted(loop);
	pthread_mutex_lock(&loop->lock);
	stop = loop->stop;
	pthread_mutex_unlock(&loop->lock);
	if (stop)
		uv_stop(&loop->uv);
}

/* Returns whether the loop is to be woken, once the lock is released. loop->lock is held. */
static bool post(struct loop *loop, loop_fn *fn, void *arg)
{
	struct posted *p = malloc(sizeof(*p));
	bool wakes = !loop->running;

	if (!p)
		abort(); /* a lost call would hang a program; the keeper starts the daemon again */
	*p = (struct posted){.fn = fn, .arg = arg};
	STAILQ_INSERT_TAIL(&loop->posted, p, link);
	pthread_cond_signal(&loop->moved);
	return wakes;
}

void loop_post(struct loop *loop, loop_fn *fn, void *arg)
{
	bool wakes;

	pthread_mutex_lock(&loop->lock);
	wakes = post(loop, fn, arg);
	pthread_mutex_unlock(&loop->lock);
	if (wakes)
		loop_wake_send(&loop->wake);
}

/* ---- workers --------------------------------------------------------------------------------- */

static struct fair_queue *kind_of(struct loop *loop, const struct work *w)
{
	return w->slow ? &loop->slow : &loop->works;
}

/* Takes the next work; NULL: none may run now. loop->lock is held. */
static struct work *next_work(struct loop *loop)
{
	struct fair_queue_entry *entry = fair_queue_next(&loop->works);

	return (struct work *)(entry ? entry : fair_queue_next(&loop->slow));
}

/* Returns whether another worker is to be woken, once the lock is released: the end of one work may let two
   others begin, of users that were at their limit. loop->lock is held. */
static bool has_more(struct loop *loop)
{
	return loop->idle && (fair_queue_ready(&loop->works) || fair_queue_ready(&loop->slow));
}

/* loop->lock is held, and released meanwhile. */
static void run_work(struct loop *loop, struct work *w)
{
	bool more = has_more(loop), wakes;

	pthread_mutex_unlock(&loop->lock);
	if (more)
		pthread_cond_signal(&loop->more);
	w->work(w->arg);
	pthread_mutex_lock(&loop->lock);
	fair_queue_end(&w->entry, kind_of(loop, w));
	wakes = w->done && post(loop, w->done, w->arg);
	if (wakes) {
		pthread_mutex_unlock(&loop->lock);
		loop_wake_send(&loop->wake);
		pthread_mutex_lock(&loop->lock);
	}
	loop->pending--; /* not before: the loop exists until then */
	pthread_cond_signal(&loop->moved);
	free(w);
}

static void *serve(void *arg)
{
	struct loop *loop = arg;
	struct work *w;

	pthread_mutex_lock(&loop->lock);
	for (;;) {
		w = next_work(loop);
		if (w) {
			run_work(loop, w);
		} else if (loop->ending) {
			break;
		} else {
			loop->idle++;
			pthread_cond_wait(&loop->more, &loop->lock);
			loop->idle--;
		}
	}
	pthread_mutex_unlock(&loop->lock);
	return NULL;
}

/* loop->lock is held. */
static int start_worker(struct loop *loop)
{
	pthread_t *thread = &loop->thread[loop->threads];
	int rc;

	if (loop->threads == WORKERS)
		return 0;
	rc = pthread_create(thread, NULL, serve, loop);
	if (rc)
		return rc;
	pthread_setname_np(*thread, "worker");
	loop->threads++;
	return 0;
}

/* Posted, so that a callback on the control thread that calls loop_work ends before its work
   begins. */
static void queue_work(void *arg)
{
	struct work *w = arg;
	struct loop *loop = w->loop;
	bool idle;

	pthread_mutex_lock(&loop->lock);
	fair_queue_add(kind_of(loop, w), w->uid, &w->entry);
	idle = loop->idle;
	/* Work that may not run yet counts, too; that does no harm. */
	if (loop->works.waiting + loop->slow.waiting > loop->idle)
		start_worker(loop); /* if that fails, the work waits for an existing worker */
	pthread_mutex_unlock(&loop->lock);
	if (idle)
		pthread_cond_signal(&loop->more);
}

static void give_work(struct loop *loop, struct work work)
{
	struct work *w = malloc(sizeof(*w));
	bool wakes;

	if (!w)
		abort();
	*w = work;
	w->loop = loop;
	pthread_mutex_lock(&loop->lock);
	loop->pending++;
	wakes = post(loop, queue_work, w);
	pthread_mutex_unlock(&loop->lock);
	if (wakes)
		loop_wake_send(&loop->wake);
}

void loop_work(struct loop *loop, loop_fn *work, loop_fn *done, void *arg)
{
	give_work(loop, (struct work){.work = work, .done = done, .arg = arg});
}

void loop_work_of(struct loop *loop, uid_t uid, loop_fn *work, loop_fn *done, void *arg)
{
	give_work(loop, (struct work){.work = work, .done = done, .arg = arg, .uid = uid});
}

void loop_work_slow(struct loop *loop, loop_fn *work, loop_fn *done, void *arg)
{
	give_work(loop, (struct work){.work = work, .done = done, .arg = arg, .slow = true});
}

/* ---- opening, running, closing --------------------------------------------------------------- */

static void init_lock(pthread_mutex_t *lock)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(lock, &attr);
	pthread_mutexattr_destroy(&attr);
}

int loop_open(struct loop **out, struct ramp_err *err)
{
	struct loop *loop = calloc(1, sizeof(*loop));
	int rc;

	if (!loop)
		return ramp_err_sys(err, ENOMEM, "control loop");
	rc = uv_loop_init(&loop->uv);
	if (rc) {
		free(loop);
		return ramp_err_set(err, -rc, "control loop: %s", uv_strerror(rc));
	}
	rc = loop_wake_open(loop, &loop->wake, on_wake, loop, err);
	if (rc) {
		uv_loop_close(&loop->uv);
		free(loop);
		return rc;
	}
	uv_prepare_init(&loop->uv, &loop->sleeps);
	loop->sleeps.data = loop;
	uv_prepare_start(&loop->sleeps, on_sleep);
	uv_unref((uv_handle_t *)&loop->sleeps);
	uv_timer_init(&loop->uv, &loop->boost_end);
	loop->boost_end.data = loop;
	init_lock(&loop->lock);
	pthread_cond_init(&loop->more, NULL);
	pthread_cond_init(&loop->moved, NULL);
	STAILQ_INIT(&loop->posted);
	STAILQ_INIT(&loop->taken);
	fair_queue_init(&loop->works, WORKERS);
	fair_queue_init(&loop->slow, SLOW_WORKERS);
	pthread_mutex_lock(&loop->lock);
	rc = start_worker(loop);
	pthread_mutex_unlock(&loop->lock);
	if (rc) {
		loop_close(loop);
		return ramp_err_sys(err, rc, "control loop's worker");
	}
	*out = loop;
	return 0;
}

void loop_run(struct loop *loop)
{
	uv_run(&loop->uv, UV_RUN_DEFAULT);
}

void loop_stop(struct loop *loop)
{
	pthread_mutex_lock(&loop->lock);
	loop->stop = true;
	/* Under the lock: otherwise the thread that runs the loop may have closed it. */
	loop_wake_send(&loop->wake);
	pthread_mutex_unlock(&loop->lock);
}

static void close_handle(uv_handle_t *handle, void *arg)
{
	(void)arg;
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

/* Waits until a function is posted, or no worker is left that could post one. False: none is. */
static bool wait_for_posts(struct loop *loop)
{
	bool posted;

	pthread_mutex_lock(&loop->lock);
	while (STAILQ_EMPTY(&loop->posted) && loop->pending)
		pthread_cond_wait(&loop->moved, &loop->lock);
	posted = !STAILQ_EMPTY(&loop->posted);
	pthread_mutex_unlock(&loop->lock);
	return posted;
}

static void end_workers(struct loop *loop)
{
	pthread_mutex_lock(&loop->lock);
	loop->ending = true;
	pthread_cond_broadcast(&loop->more);
	pthread_mutex_unlock(&loop->lock);
	for (unsigned int i = 0; i < loop->threads; i++)
		pthread_join(loop->thread[i], NULL);
}

void loop_close(struct loop *loop)
{
	/* A posted function may give work to a worker, which posts its result to this loop. */
	do {
		uv_walk(&loop->uv, close_handle, NULL);
		uv_run(&loop->uv, UV_RUN_DEFAULT);
	} while (run_posted(loop) || wait_for_posts(loop));
	if (loop->boost.on)
		end_boost(loop);
	end_workers(loop);
	uv_loop_close(&loop->uv);
	close(loop->wake.fd);
	pthread_cond_destroy(&loop->more);
	pthread_cond_destroy(&loop->moved);
	pthread_mutex_destroy(&loop->lock);
	free(loop);
}

uv_loop_t *loop_uv(struct loop *loop)
{
	return &loop->uv;
}
