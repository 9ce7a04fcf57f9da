/*
 * The source's end up to ACCEPT.
 *
 * Happy path: a worker lists the populated pages of the segment, sends CONNECT, and asks whether
 * the segment may move; CONNECT is repeated until the target says ACCEPT (source.c).
 *
 * How it fails: by giving up. Before prepare nothing is to be undone; a prepare that was, or may
 * have been, committed is aborted (R4).
 */
#include "source_connect.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "memory/reserve.h"

#include "given.h"
#include "move_message.h"
#include "move_request_core.h"
#include "news.h"
#include "rounds.h"
#include "source_list.h"
#include "source_mode.h"
#include "traces.h"

#define CONNECT_MS	 5000u /* without an answer of the target, until EHOSTUNREACH */
#define CONNECT_AGAIN_MS 100u  /* the first pause before CONNECT is repeated */
#define ATTEMPTS_MAX	 5u
#define NOT_YET_MIN_MS	 4u
#define NOT_YET_MAX_MS	 200u

/* ---- giving up ------------------------------------------------------------------------------- */

void source_fail(struct move *m, int code, const char *fmt, ...)
{
	va_list ap;

	m->source.fail_code = code;
	va_start(ap, fmt);
	vsnprintf(m->source.fail_text, sizeof(m->source.fail_text), fmt, ap);
	va_end(ap);
}

void source_show_state(struct move *m)
{
	if (m->request)
		move_request_progress(m->request, 0, 0, move_state_name(m->state));
}

void source_fail_now(struct move *m)
{
	struct transfers *t = m->t;
	ramp_segment_t id = m->id;

	if (m->prefill) {
		t->hooks->prefill_over(m);
	} else {
		log_info("segment %" PRIu64 " stays: %s", m->id, m->source.fail_text);
		transfers_count(m->t, &m->t->status.failed);
		news_tell(m, SESSION_FAILED);
	}
	move_answer(m, -m->source.fail_code, m->source.fail_text);
	move_end(m);
	/* R4: an earlier attempt's prepare may have been committed meanwhile, and nothing else
	   would look at that row again. */
	move_look(t, id);
}

void source_say_close(struct move *m)
{
	move_send_verdict(m->t, m->peer, PROTO_CLOSE, m->id, m->k, m->epoch);
}

/* R4: the prepare was, or may have been, committed. The segment is served as before, but the row
   must leave k before another attempt can begin. */
void source_give_up(struct move *m)
{
	if (!m->aborting.then_again)
		transfers_count(m->t, &m->t->status.failed);
	log_info("segment %" PRIu64 " stays: %s", m->id, m->source.fail_text);
	source_say_close(m);
	m->aborting.proof = PROOF_NONE;
	move_go(m, m->state, ABORTING);
	move_look(m->t, m->id);
}

void source_end_rounds(struct move *m)
{
	given_ungrant(m); /* before access is given back */
	rounds_open(m);
	rounds_end(m);
}

/* ---- S_CHECKING ------------------------------------------------------------------------------ */

/* Sends CONNECT. Any thread that has the move. */
static void connect_send(struct move *m)
{
	struct msg_connect c = {
		.id = m->id,
		.source_id = m->k.source_id,
		.epoch = m->row_epoch,
		.size = m->size,
		.slack_bytes = m->slack_bytes,
		.src_inc = m->t->incarnation,
		.demand_only = m->demand_only,
		.limit_bytes_s = m->limit_bytes_s,
		.batch = m->batch,
		.progress = m->wants_progress,
		.trace = m->trace != NULL,
		.prefill = m->prefill,
		.n_ranges = m->n_ranges,
	};
	struct wire_w w;
	void *buf;

	memcpy(c.name, m->name, sizeof(c.name));
	c.ranges = calloc(m->n_ranges + 1, sizeof(*c.ranges));
	buf = malloc(proto_connect_bytes(&c));
	if (c.ranges && buf) {
		for (uint32_t i = 0; i < m->n_ranges; i++)
			c.ranges[i] = (struct msg_range){m->ranges[i].offset, m->ranges[i].len};
		wire_w_init(&w, buf, proto_connect_bytes(&c));
		proto_put_connect(&w, &c);
		peer_send(m->t->peers, m->peer, PROTO_CONNECT, buf, w.len);
	}
	free(c.ranges);
	free(buf);
}

/*
 * Lists the populated pages, then asks whether programs let the segment move. CONNECT goes out
 * between the two, so that the target takes room while /proc is read here; it is repeated [checked]
 * when no program is in the way.
 */
static void check_work(struct move *m)
{
	source_list_make(m);
	if (m->work_rc)
		return;
	trace_step(m->trace, "the populated pages are known");
	trace_step(m->trace, "CONNECT goes out");
	connect_send(m);
	m->work_rc =
		programs_may_move_since(m->t->programs, m->seg, m->source.came_us, &m->work_err);
	if (m->source.by_auto)
		m->source.mapped = programs_use(m->t->programs, m->seg);
	trace_step(m->trace, "no program is in the way");
}

/* S_CONNECTING begins: CONNECT is sent until the target answers. */
static void connect_begin(struct move *m)
{
	m->heard_ms = m->since_ms;
	m->backoff_ms = CONNECT_AGAIN_MS;
	connect_send(m);
	move_retry(m);
}

static void checked(struct move *m)
{
	if (m->work_rc)
		source_fail(m, -m->work_rc, "%s", m->work_err.text);
	else if (atomic_load(&m->cancelled) && !m->source.fail_code)
		source_fail(m, EINTR, "cancelled");
	if (m->source.fail_code) {
		source_say_close(m);
		source_fail_now(m);
		return;
	}
	move_go(m, S_CHECKING, S_CONNECTING);
	source_show_state(m);
	if (!m->prefill)
		news_tell(m, SESSION_CONNECTING);
	connect_begin(m);
}

void source_connect_again(struct move *m)
{
	m->source.fail_code = 0;
	m->source.not_yet_ms = 0;
	m->source.got_in_progress = false;
	move_go(m, S_CONNECTED, S_CONNECTING);
	connect_begin(m);
}

/* With R2's random id, and the row's epoch, which prepare will compare (R3). */
void source_begin(struct move *m, enum move_state from, uint64_t row_epoch)
{
	m->k = (struct ramp_attempt){.source_id = ramp_random64()};
	m->epoch = 0;
	m->row_epoch = row_epoch;
	m->source.fail_code = 0;
	m->source.fail_text[0] = 0;
	m->source.not_yet_ms = 0;
	m->source.times = (struct move_times){.from_us = clock_us()};
	m->aborting.then_again = m->source.got_taken = m->source.got_refused =
		m->source.sent_transfer = m->source.got_in_progress = m->source.joined = false;
	m->source.attempts++;
	source_mode_forget(m);
	trace_source(m, m->request && m->request->spec.step);
	seg_set_leaving(m->seg,
			true); /* before programs that hold it by passthrough are looked for */
	move_go(m, from, S_CHECKING);
	source_show_state(m);
	/* In steps: when it is to leave (departure.c). A prefill: when a request joins it. */
	if (!m->prefill && (!m->request || !m->request->spec.in_steps))
		news_ask(m);
	move_work(m, check_work, checked);
}

void source_start(struct transfers *t, struct move_request *req, const struct segment_row *row,
		  struct seg *seg)
{
	const struct migrate_request *spec = &req->spec;
	struct move *m = move_new(t, row->id, seg);

	if (!m) {
		seg_put(seg);
		move_request_done(req, -ENOMEM, "out of memory");
		return;
	}
	m->request = req;
	m->peer = spec->dst;
	move_node_name(t, m->peer, m->peer_name);
	memcpy(m->name, spec->dst_name, sizeof(m->name));
	m->limit_bytes_s = spec->limit_bytes_s;
	m->batch = spec->batch;
	m->queues = spec->queues;
	m->source.came_us = spec->queues ? req->came_us : 0;
	source_mode_begin(m, row);
	m->wants_progress = spec->progress != NULL;
	transfers_count(t, &t->status.started);
	source_begin(m, MOVE_NEW, row->epoch);
}

void source_again(struct move *m, enum move_state from)
{
	struct segment_row row;
	int rc;

	if (m->source.was_closed && !m->source.fail_code)
		source_fail(m, EBUSY, "it was closed to stores, and has to begin again");
	if (m->source.was_closed || atomic_load(&m->cancelled) ||
	    m->source.attempts >= ATTEMPTS_MAX || meta_segment(m->t->meta, m->id, &row) ||
	    row.phase != SEGMENT_STABLE || row.node != m->t->self || row.unlinked) {
		if (!m->source.fail_code)
			source_fail(m, atomic_load(&m->cancelled) ? EINTR : EBUSY,
				    "it changes too fast to be moved");
		source_fail_now(m);
		return;
	}
	rc = m->request ? move_request_check_name(m->request, &row) : 0;
	if (rc) {
		source_fail(m, -rc, "it has another name by now");
		source_fail_now(m);
		return;
	}
	if (!m->seg)
		m->seg = store_find(m->t->store, m->id);
	source_begin(m, from, row.epoch);
}

/* ---- S_CONNECTING ---------------------------------------------------------------------------- */

/* R4: another prepare was committed first: an earlier daemon's, or that of an earlier attempt that
   got no answer. It is aborted, then the request begins again. */
void source_prepare_late(struct move *m)
{
	struct transfers *t = m->t;
	ramp_segment_t id = m->id;
	struct move_request *req = m->request;

	m->request = NULL;
	source_say_close(m);
	if (!m->source.fail_code)
		source_fail(m, EBUSY, "an earlier move of it is given up first");
	if (m->prefill) {
		t->hooks->prefill_over(m);
	} else {
		transfers_count(t, &t->status.failed);
		news_tell(m, SESSION_FAILED);
	}
	move_end(m);
	move_look(t, id); /* begins the abort, for which the request then waits */
	if (req)
		move_request_retry(req);
}

/* The target may be slow to answer, and the row would stay MOVING until then. */
void source_connecting_look(struct move *m)
{
	struct segment_row row;

	if (meta_segment(m->t->meta, m->id, &row) == 0 && row.phase == SEGMENT_MOVING)
		source_prepare_late(m);
}

void source_connecting_tick(struct move *m)
{
	uint64_t silent_ms = clock_ms() - m->heard_ms;
	uint32_t again_ms = move_backoff(&m->backoff_ms);

	if (silent_ms < CONNECT_MS) {
		uint32_t left_ms = CONNECT_MS - (uint32_t)silent_ms;

		connect_send(m);
		move_tick_in(m, again_ms < left_ms ? again_ms : left_ms);
		return;
	}
	if (!m->source.fail_code || m->source.got_in_progress)
		source_fail(m, EHOSTUNREACH, "node %s does not answer", m->peer_name);
	source_say_close(m);
	source_fail_now(m);
}

static void source_on_refuse(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			     struct wire_r *body)
{
	struct msg_refuse r;
	struct move *m;

	(void)incarnation;
	if (!move_decoded(body, proto_get_refuse(body, &r)))
		return;
	m = move_for_source_id(arg, from, r.id, r.source_id);
	if (!m || m->state != S_CONNECTING)
		return;
	source_fail(m, r.code == EAGAIN || r.code == EINPROGRESS ? EBUSY : (int)r.code,
		    "node %s: %s", m->peer_name, r.text);
	/* The target takes room, however long that takes: then only the request has a deadline. */
	m->source.got_in_progress = r.code == EINPROGRESS;
	if (m->source.got_in_progress) {
		m->heard_ms = clock_ms();
		move_tick_in(m, NOT_YET_MAX_MS);
		return;
	}
	if (r.code != EAGAIN) {
		source_fail_now(m);
		return;
	}
	/* "Not yet": the target expects its reason to pass soon. If it does not pass, that reason
	   is the answer. */
	m->source.not_yet_ms = m->source.not_yet_ms ? m->source.not_yet_ms * 2 : NOT_YET_MIN_MS;
	if (m->source.not_yet_ms > NOT_YET_MAX_MS)
		m->source.not_yet_ms = NOT_YET_MAX_MS;
	move_tick_in(m, m->source.not_yet_ms);
}

void source_connect_listen(struct transfers *t)
{
	peers_on(t->peers, PROTO_REFUSE, source_on_refuse, t);
}
