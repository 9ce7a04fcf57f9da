/*
 * A request to move a segment: the object, the door of its states (drawn in move_request.c), and
 * its answer.
 */
#include "move_request_core.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#include "traces.h"

#define BIT(s)	 (1u << (s))
#define GREET_MS 5000u /* for a daemon that has just started to connect to the others */

/* ---- beginning ------------------------------------------------------------------------------- */

struct move_request *move_request_find(struct transfers *t, uint64_t handle)
{
	struct move_request *req;

	LIST_FOREACH (req, &t->requests, link)
		if (req->handle == handle)
			return req;
	return NULL;
}

struct move_request *move_request_new(struct transfers *t, const struct migrate_request *spec,
				      migrate_done *done, void *arg)
{
	struct move_request *req = calloc(1, sizeof(*req));

	if (!req)
		abort(); /* a client or a node waits for an answer, which would never come */
	req->t = t;
	req->handle = atomic_fetch_add(&t->last_handle, 1) + 1;
	req->spec = *spec;
	req->came_us = clock_us();
	req->step = spec->first_step;
	req->done = done;
	req->arg = arg;
	return req;
}

void move_request_enter(struct move_request *req)
{
	struct transfers *t = req->t;

	if (t->closing || !t->started) {
		req->done(req->arg, -ESHUTDOWN, "the daemon ends");
		free(req);
		return;
	}
	uv_timer_init(loop_uv(t->loop), &req->timer);
	req->timer.data = req;
	if (req->spec.timeout_ms)
		req->deadline_ms = clock_ms() + req->spec.timeout_ms;
	LIST_INSERT_HEAD(&t->requests, req, link);
	LIST_INSERT_HEAD(&t->requests_of[req->spec.id % MOVE_BUCKETS], req, of_segment);
	t->hooks->request_begin(req);
}

void move_request_start(struct transfers *t, const struct migrate_request *spec, migrate_done *done,
			void *arg)
{
	move_request_enter(move_request_new(t, spec, done, arg));
}

static void entered(void *arg)
{
	struct move_request *req = arg;
	struct transfers *t = req->t;

	move_request_enter(req);
	transfers_put(t);
}

uint64_t move_request_post(struct transfers *t, const struct migrate_request *spec,
			   migrate_done *done, void *arg)
{
	struct move_request *req = move_request_new(t, spec, done, arg);
	uint64_t handle = req->handle;

	transfers_get(t);
	loop_post(t->loop, entered, req);
	return handle;
}

/* ---- states ---------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	uint32_t next; /* states that may follow */
} states[REQUEST_STATES] = {
	[REQUEST_NEW] = {"new", BIT(REQUEST_MOVING) | BIT(REQUEST_WAITING) | BIT(REQUEST_REMOTE) |
					BIT(REQUEST_AGAIN) | BIT(REQUEST_QUEUED)},
	[REQUEST_MOVING] = {"moving", BIT(REQUEST_NEW)},
	[REQUEST_WAITING] = {"waiting", BIT(REQUEST_NEW)},
	[REQUEST_REMOTE] = {"remote", BIT(REQUEST_NEW) | BIT(REQUEST_SEEING) | BIT(REQUEST_AGAIN)},
	[REQUEST_SEEING] = {"seeing", 0},
	[REQUEST_AGAIN] = {"again", BIT(REQUEST_NEW)},
	[REQUEST_QUEUED] = {"queued", BIT(REQUEST_NEW)},
};

static void leave_queue(struct move_request *req)
{
	if (req->state != REQUEST_QUEUED)
		return;
	TAILQ_REMOVE(&pair_of(req->t, req->spec.dst)->queue, req, in_queue);
	pthread_mutex_lock(&req->t->lock);
	req->t->status.queued--;
	pthread_mutex_unlock(&req->t->lock);
}

static void enter_queue(struct move_request *req)
{
	TAILQ_INSERT_TAIL(&pair_of(req->t, req->spec.dst)->queue, req, in_queue);
	transfers_count(req->t, &req->t->status.queued);
}

void move_request_go(struct move_request *req, enum move_request_state from,
		     enum move_request_state to)
{
	if (req->state != from || !(states[from].next & BIT(to))) {
		log_error(
			"request to move segment %" PRIu64 ": no step from %s (expected %s) to %s",
			req->spec.id, states[req->state].name, states[from].name, states[to].name);
		abort();
	}
	leave_queue(req);
	req->state = to;
	if (to == REQUEST_QUEUED)
		enter_queue(req);
	log_debug("request to move segment %" PRIu64 ": %s -> %s", req->spec.id, states[from].name,
		  states[to].name);
}

static void request_on_timer(uv_timer_t *timer)
{
	struct move_request *req = timer->data;

	req->t->hooks->request_tick(req);
}

void move_request_arm(struct move_request *req, uint32_t soon_ms)
{
	uint64_t now = clock_ms(), ms = soon_ms;

	if (req->deadline_ms) {
		uint64_t left = req->deadline_ms > now ? req->deadline_ms - now : 0;

		if (!soon_ms || left < ms)
			ms = left;
	} else if (!soon_ms) {
		uv_timer_stop(&req->timer);
		return;
	}
	uv_timer_start(&req->timer, request_on_timer, ms, 0);
}

void move_request_again(struct move_request *req)
{
	move_request_go(req, req->state, REQUEST_AGAIN);
	move_request_arm(req, AGAIN_MS);
}

void move_request_retry(struct move_request *req)
{
	if (req->unheard)
		move_request_done(req, -ESHUTDOWN, "the asking node has hung up");
	else
		req->t->hooks->request_begin(req);
}

/* ---- answering ------------------------------------------------------------------------------- */

static void move_request_free(uv_handle_t *timer)
{
	free(timer->data);
}

static void traced_step(struct transfers *t, uint64_t handle, const struct transfer_step *step)
{
	struct move_request *req = move_request_find(t, handle);

	if (req)
		move_request_step(req, step);
}

static void traced_answer(struct transfers *t, uint64_t handle, int result, const char *text)
{
	struct move_request *req = move_request_find(t, handle);

	if (req) /* it may have been answered otherwise */
		move_request_done(req, result, text);
}

void move_request_done(struct move_request *req, int result, const char *text)
{
	struct move *m = move_find(req->t, req->spec.id);

	if (m && m->request == req) {
		m->request = NULL;
		if (req->spec.step &&
		    trace_collect(m, req->handle, result, text, traced_step, traced_answer))
			return;
	}
	leave_queue(req);
	LIST_REMOVE(req, link);
	LIST_REMOVE(req, of_segment);
	req->done(req->arg, result, result ? text : req->chosen);
	uv_close((uv_handle_t *)&req->timer, move_request_free);
}

void move_request_fail(struct move_request *req, int code, const char *fmt, ...)
{
	char text[RAMP_ERR_TEXT_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	move_request_done(req, -code, text);
}

void move_request_unreachable(struct move_request *req, ramp_node_t node, const char *text)
{
	struct transfers *t = req->t;

	if (peer_incarnation(t->peers, node) == 0 && clock_ms() - t->started_ms < GREET_MS)
		move_request_again(req);
	else
		move_request_fail(req, EHOSTUNREACH, "%s", text);
}

void move_answer(struct move *m, int result, const char *text)
{
	if (m->request)
		move_request_done(m->request, result, text);
}

void move_request_progress(struct move_request *req, uint64_t done_pages, uint64_t all_pages,
			   const char *state)
{
	if (req->spec.progress)
		req->spec.progress(req->arg, done_pages, all_pages, state);
}

void move_request_step(struct move_request *req, const struct transfer_step *step)
{
	if (req->spec.step)
		req->spec.step(req->arg, step);
}

int move_request_check_name(const struct move_request *req, const struct segment_row *row)
{
	if (!req->spec.from_name[0] || strcmp(row->name, req->spec.from_name) == 0)
		return 0;
	/* The asking node's tables may be behind ours: it looks at them again. */
	return req->of_node ? -ESTALE : -ENOENT;
}

void move_requests_close(struct transfers *t)
{
	struct move_request *req;

	while ((req = LIST_FIRST(&t->requests)))
		move_request_done(req, -ESHUTDOWN, "the daemon ends");
}
