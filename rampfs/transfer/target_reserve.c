/*
 * The target's reservation.
 *
 * Happy path: CONNECT makes a worker take room; the reservation is in memory alone and gets a
 * random ticket, ACCEPT (R2).
 *
 * How it fails: a reservation may be dropped at any time (R2: its source hung up, CLOSE, a
 * time-out, a restart), and then k is never taken: TRANSFER(k) is answered REFUSED for ever.
 */
#include "target_reserve.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "memory/pages.h"
#include "memory/reserve.h"

#include "move_message.h"
#include "news.h"
#include "traces.h"

#define AWAY_MS	       1000u  /* a reservation whose source hung up: our tables may be behind */
#define RESERVED_MS    30000u /* a reservation whose TRANSFER does not come */
#define FREEZE_MS      1000u  /* for the daemon's own reads and writes under way */
#define PREFILL_LEAVES 16u    /* that part of the store */

__attribute__((format(printf, 5, 6))) static void refuse_send(struct transfers *t, ramp_node_t to,
							      const struct msg_connect *c, int code,
							      const char *fmt, ...)
{
	struct msg_refuse r = {.id = c->id, .source_id = c->source_id, .code = (uint32_t)code};
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r.text, sizeof(r.text), fmt, ap);
	va_end(ap);
	MOVE_SEND(t, to, PROTO_REFUSE, proto_put_refuse, &r);
}

static void accept_send(struct move *m)
{
	struct msg_accept a = {
		.id = m->id,
		.source_id = m->k.source_id,
		.ticket = m->k.ticket,
		.dst_inc = m->t->incarnation,
	};

	MOVE_SEND(m->t, m->peer, PROTO_ACCEPT, proto_put_accept, &a);
	loop_rt_boost(m->t->loop, WINDOW_MS);
	m->target.source_hung_up = false;
	move_tick_in(m, RESERVED_MS);
}

/* ---- CONNECT --------------------------------------------------------------------------------- */

/* Takes room for the listed ranges and a slack, and marks the listed pages REMOTE. */
static void reserve_work(struct move *m)
{
	struct ramp_err *err = &m->work_err;
	struct segment_row row;
	int rc;

	pull_expect(m->t->pull, m->peer);
	rc = store_create(m->t->store, m->id, RECORD_NONE, 0, &m->seg, err);
	if (rc) {
		m->seg = NULL;
		m->work_rc = rc;
		return;
	}
	/* The wished page size is the segment's, and decides how much room it takes. */
	if (!meta_segment(m->t->meta, m->id, &row))
		seg_set_small(m->seg, row.pages == SEGMENT_PAGES_SMALL);
	rc = reserve_memory(m->seg, m->size, m->ranges, m->n_ranges, m->slack_bytes, err);
	if (!rc)
		rc = pages_prepare(m->seg, m->size, err);
	for (uint32_t i = 0; i < m->n_ranges && !rc; i++)
		rc = pages_mark_remote(m->seg, m->ranges[i].offset / RAMP_PAGE_BYTES,
				       m->ranges[i].len / RAMP_PAGE_BYTES, err);
	trace_step(m->trace, "room is taken");
	m->work_rc = rc;
}

static void drop_prefill(struct move *m);

/* Drops a prefill, since no program here or there waits for it, unless one is being dropped. False: there is
   none. */
static bool make_room(struct transfers *t)
{
	struct move *m, *found = NULL;

	for (size_t i = 0; i < MOVE_BUCKETS; i++)
		LIST_FOREACH (m, &t->moves[i], link) {
			if (!m->prefill || m->state < T_RESERVED)
				continue;
			if (m->state == T_DROPPING || atomic_load(&m->cancelled))
				return true;
			if (target_is_reserved(m))
				found = m;
		}
	if (!found)
		return false;
	log_info("segment %" PRIu64 ": its prefill makes room here", found->id);
	drop_prefill(found);
	return true;
}

/* R2: a new random ticket for each attempt. */
static void reserved(struct move *m)
{
	struct msg_connect c = {.id = m->id, .source_id = m->k.source_id};

	if (m->work_rc) {
		if (m->work_rc == -ENOSPC && !m->prefill && make_room(m->t))
			refuse_send(m->t, m->peer, &c, EAGAIN, "no room yet: a prefill makes some");
		else
			refuse_send(m->t, m->peer, &c, -m->work_rc, "%s", m->work_err.text);
		if (m->seg)
			target_drop(m);
		else
			move_end(m);
		return;
	}
	if (atomic_load(&m->cancelled)) {
		target_drop(m);
		return;
	}
	move_forget_ranges(m); /* the pull may take hours */
	m->k.ticket = ramp_random64();
	move_go(m, T_RESERVING, T_RESERVED);
	trace_step(m->trace, "ACCEPT goes out");
	accept_send(m);
	if (!m->prefill)
		m->demand_only |= news_coming(m);
}

bool target_is_reserved(const struct move *m)
{
	return m->state == T_RESERVED || m->state == T_ROUNDS || m->state == T_COPYING;
}

/* Drops it now, or when its worker returns. */
static void drop_reservation(struct move *m)
{
	if (m->working)
		atomic_store(&m->cancelled, true);
	else
		target_drop(m);
}

/* The source is told, so that no request joins it any more. */
static void drop_prefill(struct move *m)
{
	move_send_verdict(m->t, m->peer, PROTO_REFUSED, m->id, m->k, m->epoch);
	drop_reservation(m);
}

/* Answers CONNECT for a segment that has a move here already. */
static void connect_again(struct move *m, ramp_node_t from, const struct msg_connect *c)
{
	bool same = m->peer == from && m->k.source_id == c->source_id;

	if (m->state == T_RESERVED && same) {
		accept_send(m);
		return;
	}
	if (m->state == T_RESERVING && same) {
		/* The answer comes when the worker returns: a lot of room takes long. */
		refuse_send(m->t, from, c, EINPROGRESS, "it is taking room for it");
		return;
	}
	if ((m->state == T_COPYING || m->state == T_ROUNDS) && same)
		return; /* the source has had ACCEPT */
	/* R2: a newer attempt replaces an older one. */
	if ((target_is_reserved(m) || m->state == T_RESERVING) && c->epoch >= m->row_epoch)
		drop_reservation(m);
	refuse_send(m->t, from, c, EAGAIN, "an earlier copy of it is still here (%s)",
		    m->source.kept[0] ? m->source.kept : move_state_name(m->state));
}

static void connect_new(struct transfers *t, ramp_node_t from, struct msg_connect *c)
{
	struct move *m = move_new(t, c->id, NULL);

	if (!m)
		return;
	m->peer = from;
	m->peer_inc = c->src_inc;
	move_node_name(t, from, m->peer_name);
	m->k.source_id = c->source_id;
	m->row_epoch = c->epoch;
	m->size = c->size;
	m->slack_bytes = c->slack_bytes;
	m->demand_only = c->demand_only;
	m->prefill = c->prefill;
	m->limit_bytes_s = c->limit_bytes_s;
	m->batch = c->batch;
	m->wants_progress = c->progress;
	if (c->trace)
		trace_target(m);
	memcpy(m->name, c->name, sizeof(m->name));
	m->ranges = calloc(c->n_ranges + 1, sizeof(*m->ranges));
	if (!m->ranges) {
		move_go(m, MOVE_NEW, T_RESERVING);
		move_end(m);
		return;
	}
	for (uint32_t i = 0; i < c->n_ranges; i++)
		m->ranges[i] = (struct data_range){c->ranges[i].offset, c->ranges[i].len};
	m->n_ranges = c->n_ranges;
	move_go(m, MOVE_NEW, T_RESERVING);
	move_work(m, reserve_work, reserved);
}

static uint64_t bytes_of(const struct msg_connect *c)
{
	uint64_t bytes = c->slack_bytes;

	for (uint32_t i = 0; i < c->n_ranges; i++)
		bytes += c->ranges[i].len;
	return bytes;
}

static bool leaves_room(struct transfers *t, uint64_t bytes, unsigned part)
{
	struct store_space space;

	store_space(t->store, &space);
	return space.free_bytes >= bytes && space.free_bytes - bytes >= space.capacity_bytes / part;
}

bool target_may_keep_prefill(struct transfers *t)
{
	return leaves_room(t, 0, 2 * PREFILL_LEAVES);
}

/* R1: this node takes part, and the source is the incarnation that it names (target_on_connect).
   R2: CONNECT is refused while there is any record of the segment. */
static void do_connect(struct transfers *t, ramp_node_t from, struct msg_connect *c)
{
	struct move *m = move_find(t, c->id);
	struct segment_row row;
	struct seg *seg;

	if (m) {
		connect_again(m, from, c);
		return;
	}
	seg = store_find(t->store, c->id);
	if (seg) {
		seg_put(seg);
		refuse_send(t, from, c, EAGAIN, "a copy of it is here already");
		return;
	}
	if (t->take_no_more) {
		refuse_send(t, from, c, EHOSTUNREACH, "it is being unmounted");
		return;
	}
	if (meta_why_copy(t->meta)) { /* it could not propose taken */
		refuse_send(t, from, c, EROFS, "it has no metadata");
		return;
	}
	if (meta_lookup(t->meta, t->self, c->name, &row) == 0 && row.id != c->id) {
		refuse_send(t, from, c, EEXIST, "something is named %s there", c->name);
		return;
	}
	if (store_will_have_memory(t->store, bytes_of(c))) {
		refuse_send(t, from, c, EINPROGRESS, "unlinked segments there are not freed yet");
		return;
	}
	if (c->prefill && !leaves_room(t, bytes_of(c), PREFILL_LEAVES)) {
		refuse_send(t, from, c, ENOSPC,
			    "too little room would be left for programs (a sixteenth)");
		return;
	}
	connect_new(t, from, c);
}

static void target_on_connect(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			      struct wire_r *body)
{
	struct transfers *t = arg;
	struct msg_connect c;

	if (!move_decoded(body, proto_get_connect(body, &c)))
		return;
	/* Once this daemon closes, nothing would wait for the worker that a CONNECT begins. */
	if (t->registered && t->started && !t->closing && c.src_inc == incarnation)
		do_connect(t, from, &c);
	free(c.ranges);
}

/* ---- giving up a reservation ----------------------------------------------------------------- */

static void drop_work(struct move *m)
{
	struct record record;
	bool took;

	record_get(m->seg, &record);
	took = record.kind != RECORD_NONE;
	if (m->target.pull_begun)
		pull_end(m->t->pull, m->id);
	if (took) { /* reverted by proof: no program may use it here any more */
		seg_freeze(m->seg, FREEZE_MS,
			   NULL); /* for good; -EBUSY: it is, since the last try */
		programs_gone(m->t->programs, m->seg, m->peer_name);
	} else {
		reserve_release_slack(m->seg);
	}
	m->work_rc = store_remove(m->seg, took, &m->work_err);
	if (m->work_rc == -ENOENT)
		m->work_rc = 0;
}

static void dropped(struct move *m)
{
	struct transfers *t = m->t;
	ramp_segment_t id = m->id;

	if (m->work_rc) {
		move_retry(m);
		return;
	}
	move_end(m);
	move_look(t, id); /* R6 may want an abort now */
}

void target_drop(struct move *m)
{
	move_go(m, m->state, T_DROPPING);
	move_work(m, drop_work, dropped);
}

/* A drop that failed is tried again. */
void target_drop_again(struct move *m)
{
	move_work(m, drop_work, dropped);
}

void target_drop_prefill(struct move *m)
{
	if (m->prefill && target_is_reserved(m))
		drop_prefill(m);
}

void target_release(struct move *m)
{
	struct record record;

	if (m->state < T_RESERVING || !m->seg || seg_removed(m->seg))
		return;
	record_get(m->seg, &record);
	if (record.kind == RECORD_NONE)
		drop_work(m);
}

/*
 * A reservation whose source hung up holds room for nothing. It is dropped, as R2 allows at any
 * time, once our tables have had time to show whether prepare was committed. Where the row is
 * MOVING(k) the source may have recorded GIVEN, and its next daemon repeats TRANSFER (R5): then the
 * reservation is kept for it, until RESERVED_MS are over.
 */
void target_source_away(struct move *m, bool over)
{
	if (m->state == T_RESERVING || over) {
		drop_reservation(m);
	} else if (m->state == T_ROUNDS) {
		m->target.source_hung_up = true;
		m->target.hung_up_ms = clock_ms();
	} else if (m->state == T_RESERVED) {
		m->target.source_hung_up = true;
		move_tick_in(m, AWAY_MS);
	}
}

void target_reserved_tick(struct move *m)
{
	struct segment_row row;

	if (m->target.source_hung_up && meta_segment(m->t->meta, m->id, &row) == 0 &&
	    row_in_attempt(&row, m->k)) {
		m->target.source_hung_up = false;
		move_tick_in(m, RESERVED_MS);
	} else {
		target_drop(m);
	}
}

/* During rounds the row may be changed in its source's directory, and prepare compares the newer
   epoch. */
static bool may_still_come(const struct move *m, const struct segment_row *row)
{
	return row->epoch <= m->row_epoch ||
	       (m->state == T_ROUNDS && row->phase == SEGMENT_STABLE && row->node == m->peer);
}

/* R6: the source is over, the row MOVING(k), and this node has not taken k. Also where the row is
   newer than the attempt and not in k: no TRANSFER(k) will come. */
void target_reserved_look(struct move *m)
{
	struct segment_row row;

	if (meta_segment(m->t->meta, m->id, &row))
		return;
	if (row_in_attempt(&row, m->k) ? move_node_over(m->t, m->peer, m->peer_inc)
				       : !may_still_come(m, &row))
		target_drop(m);
}

/* CLOSE: the source has given up, or the target has settled. A hint in both cases (R7). */
static void on_close(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
		     struct wire_r *body)
{
	struct transfers *t = arg;
	struct msg_verdict v;
	struct move *m;

	(void)incarnation;
	if (!move_decoded(body, proto_get_verdict(body, &v)))
		return;
	m = move_for_source_id(t, from, v.id, v.k.source_id);
	if (!m)
		return;
	if (target_is_reserved(m) || m->state == T_RESERVING)
		drop_reservation(m);
	else
		move_look(t, v.id);
}

/* R2: TAKEN where k is TAKEN or OWNED already, else REFUSED(k), for ever. */
void target_answer(struct transfers *t, ramp_node_t from, const struct msg_transfer *tr)
{
	struct seg *seg = store_find(t->store, tr->id);
	struct record record = {.kind = RECORD_NONE};
	bool have, damaged = false;

	if (seg) {
		record_get(seg, &record);
		damaged = seg_damaged(seg);
		seg_put(seg);
	}
	if (damaged)
		return; /* the record may say TAKEN: a refusal would make two owners */
	have = record_serves(&record) && ramp_attempt_equal(record.k, tr->k);
	move_send_verdict(t, from, have ? PROTO_TAKEN : PROTO_REFUSED, tr->id, tr->k, tr->epoch);
}

void target_reserve_listen(struct transfers *t)
{
	peers_on(t->peers, PROTO_CONNECT, target_on_connect, t);
	peers_on(t->peers, PROTO_CLOSE, on_close, t);
}
