/*
 * The control loop.
 *
 * Other threads put functions on a list under a lock and signal a uv_async_t; the loop takes the
 * whole list and runs it in order. loop_work goes the same way, since uv_queue_work may be called
 * on the loop's own thread only.
 */
#include "loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/queue.h>

struct posted {
	STAILQ_ENTRY(posted) link;
	loop_fn *fn;
	void *arg;
};

struct work {
	uv_work_t req;
	struct loop *loop;
	loop_fn *work, *done;
	void *arg;
};

struct loop {
	uv_loop_t uv;
	uv_async_t wake;
	pthread_mutex_t lock;
	STAILQ_HEAD(, posted) posted; /* protected by lock */
	int stop;		      /* protected by lock */
};

/* False: there was nothing. */
static bool run_posted(struct loop *loop)
{
	for (bool any = false;; any = true) {
		struct posted *p;

		pthread_mutex_lock(&loop->lock);
		p = STAILQ_FIRST(&loop->posted);
		if (p)
			STAILQ_REMOVE_HEAD(&loop->posted, link);
		pthread_mutex_unlock(&loop->lock);
		if (!p)
			return any;
		p->fn(p->arg);
		free(p);
	}
}

static void on_wake(uv_async_t *handle)
{
	struct loop *loop = handle->data;
	int stop;

	run_posted(loop);
	pthread_mutex_lock(&loop->lock);
	stop = loop->stop;
	pthread_mutex_unlock(&loop->lock);
	if (stop)
		uv_stop(&loop->uv);
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
	rc = uv_async_init(&loop->uv, &loop->wake, on_wake);
	if (rc) {
		uv_loop_close(&loop->uv);
		free(loop);
		return ramp_err_set(err, -rc, "control loop's wake-up: %s", uv_strerror(rc));
	}
	loop->wake.data = loop;
	pthread_mutex_init(&loop->lock, NULL);
	STAILQ_INIT(&loop->posted);
	*out = loop;
	return 0;
}

static void close_handle(uv_handle_t *handle, void *arg)
{
	(void)arg;
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

void loop_run(struct loop *loop)
{
	uv_run(&loop->uv, UV_RUN_DEFAULT);
}

void loop_stop(struct loop *loop)
{
	pthread_mutex_lock(&loop->lock);
	loop->stop = 1;
	pthread_mutex_unlock(&loop->lock);
	uv_async_send(&loop->wake);
}

void loop_close(struct loop *loop)
{
	/* What was posted may be a worker's, who comes back to this loop. */
	do {
		uv_walk(&loop->uv, close_handle, NULL);
		uv_run(&loop->uv, UV_RUN_DEFAULT);
	} while (run_posted(loop));
	uv_loop_close(&loop->uv);
	pthread_mutex_destroy(&loop->lock);
	free(loop);
}

uv_loop_t *loop_uv(struct loop *loop)
{
	return &loop->uv;
}

void loop_post(struct loop *loop, loop_fn *fn, void *arg)
{
	struct posted *p = malloc(sizeof(*p));

	if (!p)
		abort(); /* a lost call would hang a program; the keeper starts us again */
	*p = (struct posted){.fn = fn, .arg = arg};
	pthread_mutex_lock(&loop->lock);
	STAILQ_INSERT_TAIL(&loop->posted, p, link);
	pthread_mutex_unlock(&loop->lock);
	uv_async_send(&loop->wake);
}

static void on_work(uv_work_t *req)
{
	struct work *w = req->data;

	w->work(w->arg);
}

static void on_work_done(uv_work_t *req, int status)
{
	struct work *w = req->data;

	(void)status;
	if (w->done)
		w->done(w->arg);
	free(w);
}

static void queue_work(void *arg)
{
	struct work *w = arg;

	w->req.data = w;
	if (uv_queue_work(&w->loop->uv, &w->req, on_work, on_work_done))
		abort();
}

void loop_work(struct loop *loop, loop_fn *work, loop_fn *done, void *arg)
{
	struct work *w = malloc(sizeof(*w));

	if (!w)
		abort();
	*w = (struct work){.loop = loop, .work = work, .done = done, .arg = arg};
	loop_post(loop, queue_work, w);
}
