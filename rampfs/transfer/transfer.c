/*
 * Migrations as the rest of the daemon has them: opening, events of other threads, requests,
 * closing.
 *
 * Happy path: transfers_start registers this incarnation and scans all records and rows
 * (registration.c). Events of other threads are posted to the control loop, and end in move_look or
 * in a request.
 *
 * How it fails: a close cancels each move before GIVEN (R4) and leaves the others to the next
 * daemon's scan (R5, R8).
 */
#include "transfer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#include "collapse.h"
#include "copy.h"
#include "dispatch.h"
#include "figures.h"
#include "give_back.h"
#include "given.h"
#include "move_message.h"
#include "move_request.h"
#include "move_request_peer.h"
#include "move_request_remote.h"
#include "prefill.h"
#include "registration.h"
#include "rounds.h"
#include "source.h"
#include "source_connect.h"
#include "source_prefill.h"
#include "source_rounds.h"
#include "target.h"
#include "target_pull.h"
#include "target_reserve.h"
#include "target_rounds.h"
#include "tool_moves.h"
#include "tool_pulls.h"
#include "traces.h"

#define QUIESCE_MS 1000u

/* ---- events of other threads ----------------------------------------------------------------- */

static void rows_changed(void *arg)
{
	struct transfers *t = arg;
	ramp_segment_t *ids;
	size_t n;

	pthread_mutex_lock(&t->lock);
	ids = t->changed;
	n = t->n_changed;
	t->changed = NULL;
	t->n_changed = t->cap_changed = 0;
	t->changed_posted = false;
	pthread_mutex_unlock(&t->lock);
	for (size_t i = 0; i < n && t->started && !t->closing; i++) {
		if (ids[i] == 0) {
			registration_look(t);
			registration_scan(t);
			prefills_try(t, 0);
		} else {
			move_look(t, ids[i]);
			move_requests_look(t, ids[i]);
			prefill_look(t, ids[i]);
		}
	}
	free(ids);
	transfers_put(t);
}

void transfers_row_changed(struct transfers *t, ramp_segment_t id)
{
	bool post = false;

	pthread_mutex_lock(&t->lock);
	if (t->n_changed == t->cap_changed) {
		t->cap_changed = t->cap_changed ? t->cap_changed * 2 : 16;
		t->changed = realloc(t->changed, t->cap_changed * sizeof(*t->changed));
		if (!t->changed)
			abort(); /* a change that is missed would hang a migration */
	}
	if (t->n_changed == 0 || t->changed[t->n_changed - 1] != id)
		t->changed[t->n_changed++] = id;
	if (!t->changed_posted)
		post = t->changed_posted = true;
	pthread_mutex_unlock(&t->lock);
	if (post) {
		transfers_get(t);
		loop_post(t->loop, rows_changed, t);
	}
}

/* A program that was asked has answered. Posted: this may be in the middle of a message to it. */
static void program_answered(void *arg, ramp_segment_t id)
{
	transfers_row_changed(arg, id);
}

/* No move is left. */
static void move_has_ended(struct transfers *t, ramp_segment_t id)
{
	move_requests_look(t, id);
	prefill_look(t, id);
}

struct event {
	struct transfers *t;
	ramp_segment_t id;
	struct pull_figures pulled;
	ramp_node_t node;
	ramp_incarnation_t incarnation;
	bool up;
};

static struct event *event_new(struct transfers *t)
{
	struct event *e = calloc(1, sizeof(*e));

	if (!e)
		abort();
	transfers_get(t);
	e->t = t;
	return e;
}

static void attributes_changed(void *arg)
{
	struct event *e = arg;

	prefill_look(e->t, e->id);
	transfers_put(e->t);
	free(e);
}

void transfers_attributes_changed(struct transfers *t, ramp_segment_t id)
{
	struct event *e = event_new(t);

	e->id = id;
	loop_post(t->loop, attributes_changed, e);
}

/* A node that is connected again gets at once what a timer would repeat. A source that hung up, or
   is another incarnation now, does not come for its reservation. */
static void move_peer_changed(struct move *m, const struct event *e)
{
	bool over = e->up && e->incarnation != m->peer_inc;

	if (m->state == T_RESERVING || m->state == T_RESERVED || m->state == T_ROUNDS ||
	    m->state == T_COPYING) {
		if (over || !e->up)
			target_source_away(m, over);
	} else if (e->up && uv_is_active((uv_handle_t *)&m->timer)) {
		m->backoff_ms = BACKOFF_MIN_MS;
		dispatch_tick(m);
	}
}

/* Says how much this node sends ahead of need: a target that knows it asks for no more, and has no pages
   claimed for long which a program may touch. */
static void say_limit(struct transfers *t, ramp_node_t node)
{
	struct msg_limit msg = {.bytes_s = t->config.limit_bytes_s};

	MOVE_SEND(t, node, PROTO_LIMIT, proto_put_limit, &msg);
}

static void on_limit(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
		     struct wire_r *body)
{
	struct transfers *t = arg;
	struct msg_limit msg;

	(void)incarnation;
	if (move_decoded(body, proto_get_limit(body, &msg)) && t->pull && !t->closing)
		pull_source_limit(t->pull, from, msg.bytes_s);
}

static void peer_changed(void *arg)
{
	struct event *e = arg;
	struct transfers *t = e->t;
	struct move *m, *next;

	for (size_t i = 0; i < MOVE_BUCKETS && t->started && !t->closing; i++) {
		for (m = LIST_FIRST(&t->moves[i]); m; m = next) {
			next = LIST_NEXT(m, link);
			if (m->peer == e->node)
				move_peer_changed(m, e);
		}
	}
	if (!t->closing && e->up)
		say_limit(t, e->node);
	if (t->started && !t->closing && e->up)
		move_requests_peer_up(t, e->node);
	else if (t->started && !t->closing)
		move_requests_peer_down(t, e->node);
	if (e->up)
		prefills_try(t, e->node);
	free(e);
	transfers_put(t);
}

void transfers_peer_changed(struct transfers *t, ramp_node_t node, ramp_incarnation_t incarnation,
			    bool up)
{
	struct event *e = event_new(t);

	/* Silence proves nothing (R5), and a hello is no committed fact (R1): only steps that may
	   be taken at any time follow. */
	e->node = node;
	e->incarnation = incarnation;
	e->up = up;
	loop_post(t->loop, peer_changed, e);
}

static void pull_came(void *arg)
{
	struct event *e = arg;
	struct transfers *t = e->t;
	struct move *m = t->closing ? NULL : move_find(t, e->id);

	if (m)
		target_pulled(m, &e->pulled);
	free(e);
	transfers_put(t);
}

void transfers_pull_finished(void *transfers, ramp_segment_t id, const struct pull_figures *figures)
{
	struct event *e = event_new(transfers);

	e->id = id;
	e->pulled = *figures;
	loop_post(e->t->loop, pull_came, e);
}

/* ---- opening and closing --------------------------------------------------------------------- */

static const struct transfer_hooks hooks = {
	.look = dispatch_look,
	.tick = dispatch_tick,
	.ended = move_has_ended,
	.request_begin = move_request_begin,
	.request_tick = move_request_tick,
	.admit = move_requests_admit,
	.prefill_look = prefill_look,
	.prefill_read = source_prefill_read,
	.prefill_note = prefill_note,
	.prefill_over = prefill_over,
};

static void free_timer(uv_handle_t *handle)
{
	free(handle);
}

int transfers_open(const struct transfers_config *config, struct transfers **out,
		   struct ramp_err *err)
{
	struct transfers *t = calloc(1, sizeof(*t));

	if (!t)
		return ramp_err_sys(err, ENOMEM, "transfers");
	t->figures = figures_new();
	t->up_timer = calloc(1, sizeof(*t->up_timer));
	if (!t->up_timer || !t->figures) {
		if (t->figures)
			figures_free(t->figures);
		free(t->up_timer);
		free(t);
		return ramp_err_sys(err, ENOMEM, "transfers");
	}
	t->config = *config;
	if (!t->config.quiesce_ms)
		t->config.quiesce_ms = QUIESCE_MS;
	t->hooks = &hooks;
	t->loop = config->loop;
	t->store = config->store;
	t->meta = config->meta;
	t->peers = config->peers;
	t->programs = config->programs;
	t->serve = config->serve;
	t->self = meta_self(config->meta);
	t->incarnation = store_incarnation(config->store);
	t->serials = ramp_random64() >> 1;
	atomic_init(&t->refs, 1);
	atomic_init(&t->last_handle, ramp_random64() >> 1);
	pthread_mutex_init(&t->lock, NULL);
	STAILQ_INIT(&t->collapses);
	STAILQ_INIT(&t->line);
	for (size_t i = 0; i < PAIRS_MAX; i++)
		TAILQ_INIT(&t->pairs[i].queue);
	uv_timer_init(loop_uv(t->loop), t->up_timer);
	t->up_timer->data = t;
	source_connect_listen(t);
	source_listen(t);
	target_reserve_listen(t);
	target_listen(t);
	copy_listen(t);
	source_rounds_listen(t);
	target_rounds_listen(t);
	move_request_remote_listen(t);
	give_back_listen(t);
	move_request_peer_listen(t);
	traces_listen(t);
	peers_on(t->peers, PROTO_LIMIT, on_limit, t);
	figures_listen(t);
	*out = t;
	return 0;
}

static void transfers_begin(void *arg)
{
	struct transfers *t = arg;

	if (!t->closing) { /* the mount may have failed meanwhile */
		t->started = true;
		t->started_ms = clock_ms();
		registration_look(t);
		registration_scan(t);
	}
	transfers_put(t);
}

int transfers_start(struct transfers *t, struct pull *pull, struct ramp_err *err)
{
	(void)err;
	t->pull = pull;
	tool_moves_listen(t);
	programs_set_answered(t->programs, program_answered, t);
	transfers_get(t);
	loop_post(t->loop, transfers_begin, t);
	return 0;
}

void transfers_refuse_new(struct transfers *t)
{
	struct move *m, *next;

	t->take_no_more = true;
	prefills_end(t);
	for (size_t i = 0; i < MOVE_BUCKETS; i++) {
		for (m = LIST_FIRST(&t->moves[i]); m; m = next) {
			next = LIST_NEXT(m, link);
			if (m->state == S_CONNECTED || m->state == S_PREPARED ||
			    (m->state >= S_READ_AHEAD && m->state <= S_CLOSED))
				source_cancel(m, EINTR, "its node is being unmounted");
			else if (m->prefill && m->state >= T_RESERVED)
				target_drop_prefill(m);
			else if (m->state >= T_RESERVING && m->state <= T_TAKEN)
				target_prefetch(m);
			else if (m->state == S_LEFT && m->source.row_shows_target)
				given_prefetch_all(m);
		}
	}
}

unsigned transfers_undecided(struct transfers *t, bool cancel)
{
	struct move *m, *next;
	unsigned n = 0;

	for (size_t i = 0; i < MOVE_BUCKETS; i++) {
		for (m = LIST_FIRST(&t->moves[i]); m; m = next) {
			next = LIST_NEXT(m, link);
			if (m->state == ABORTING) {
				n += m->aborting.proof == PROOF_NONE;
			} else if (m->state >= S_CLOSING && m->state <= S_COPYING) {
				n++;
				if (cancel)
					source_cancel(m, EINTR, "its node ends");
			}
		}
	}
	return n;
}

void transfers_close(struct transfers *t)
{
	struct move *m;

	t->closing = true;
	atomic_store(&t->collapse_stop, true); /* clients wait for the next daemon */
	uv_close((uv_handle_t *)t->up_timer, free_timer);
	move_requests_close(t);
	tool_pulls_close(t);
	for (size_t i = 0; i < MOVE_BUCKETS; i++)
		LIST_FOREACH (m, &t->moves[i], link)
			atomic_store(&m->cancelled, true); /* R4: a freeze is undone */
	while (t->jobs)
		uv_run(loop_uv(t->loop), UV_RUN_ONCE);
	give_back_close(t);
	prefills_close(t);
	collapses_close(t);
	traces_close(t);
	for (size_t i = 0; i < MOVE_BUCKETS; i++)
		while ((m = LIST_FIRST(&t->moves[i]))) {
			copy_close(m);
			if (m->source.rounds && m->source.rounds->closed)
				source_end_rounds(m);
			rounds_end(m);
			target_release(m);
			move_drop(m);
		}
}

void transfers_free(struct transfers *t)
{
	figures_free(t->figures);
	t->figures = NULL;
	transfers_put(t);
}

/* ---- requests to move a segment -------------------------------------------------------------- */

uint64_t transfers_migrate(struct transfers *t, const struct migrate_request *request,
			   migrate_done *done, void *arg)
{
	return move_request_post(t, request, done, arg);
}

void transfers_give_back(struct transfers *t, ramp_segment_t id, migrate_done *done, void *arg)
{
	give_back_post(t, id, done, arg);
}

struct cancel {
	struct transfers *t;
	uint64_t handle;
};

static void cancel_posted(void *arg)
{
	struct cancel *c = arg;
	struct transfers *t = c->t;
	struct move_request *req = t->closing ? NULL : move_request_find(t, c->handle);

	if (req)
		move_request_cancel(req);
	free(c);
	transfers_put(t);
}

void transfers_cancel(struct transfers *t, uint64_t handle)
{
	struct cancel *c = calloc(1, sizeof(*c));

	if (!c)
		return; /* as if it had come too late */
	c->t = t;
	c->handle = handle;
	transfers_get(t);
	loop_post(t->loop, cancel_posted, c);
}

/* ---- status ---------------------------------------------------------------------------------- */

void transfers_status(struct transfers *t, struct transfers_status *status)
{
	pthread_mutex_lock(&t->lock);
	*status = t->status;
	status->limit_bytes_s = t->config.limit_bytes_s;
	pthread_mutex_unlock(&t->lock);
}

void transfers_each(struct transfers *t, void (*fn)(void *arg, const struct transfer_row *row),
		    void *arg)
{
	struct move *m;

	for (size_t i = 0; i < MOVE_BUCKETS; i++) {
		LIST_FOREACH (m, &t->moves[i], link) {
			bool target = m->state >= T_RESERVING;

			if (m->prefill && !target)
				continue; /* transfers_prefill */
			struct transfer_row row = {
				.id = m->id,
				.from = target ? m->peer : t->self,
				.to = target ? t->self : m->peer,
				.state = move_state_name(m->state),
				.source = !target,
				.age_ms = clock_ms() - m->since_ms,
			};

			memcpy(row.name, m->name, sizeof(row.name));
			row.mode = target ? "" : transfer_mode_name(m->source.mode);
			memcpy(row.why, m->source.why, sizeof(row.why));
			fn(arg, &row);
		}
	}
}
