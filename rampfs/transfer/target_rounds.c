/*
 * Mode precopy at the target: it reads pages in rounds, and has only reserved.
 *
 * Happy path: ROUND 0 makes the target read all pages that CONNECT listed. STOREDs of the next round are
 * collected; its ROUND makes those pages REMOTE again, and reads them. TRANSFER comes with STOREDs of
 * its own: pages that they name become REMOTE, the record TAKEN, and the pull of what is left begins.
 *
 * A page that is REMOTE again keeps its old bytes in the file. They are never served, as the bytes
 * of a read that was cut off; where the source has a hole now, they are cleared (pages_note_old).
 *
 * How it fails: the reservation is dropped (R2). A TRANSFER whose STOREDs have not all come is left
 * alone: the source repeats them all. One that counts none, of the source's next life, is refused: nothing tells
 * which pages here are old.
 */
#include "target_rounds.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/page.h"
#include "memory/pages.h"

#include "move_message.h"
#include "news.h"
#include "target_pull.h"
#include "target_reserve.h"

#define PULLED_MS      200u
#define SOURCE_GONE_MS 30000u
#define AWAY_MS	       1000u /* our tables may be behind */

static void refuse(struct move *m)
{
	move_send_verdict(m->t, m->peer, PROTO_REFUSED, m->id, m->k, m->epoch);
	target_drop(m);
}

static void say_read(struct move *m)
{
	struct msg_round msg = {.id = m->id, .k = m->k, .round = m->target.round};

	MOVE_SEND(m->t, m->peer, PROTO_ROUND_READ, proto_put_round, &msg);
}

/* ---- STORED --------------------------------------------------------------------------------- */

/* Part 0 begins a round's set again: the source repeats all of it. */
static void collect(struct move *m, const struct msg_stored *s)
{
	struct page_set set = {.words = (uint64_t *)(uintptr_t)s->bits,
			       .count = PROTO_STORED_PAGES / 64};
	uint64_t at = 0, first, run;

	if (s->part == 0) {
		page_set_clear(&m->target.stored);
		m->target.parts = 0;
		m->target.parts_round = s->round;
	}
	if (s->part != m->target.parts || s->round != m->target.parts_round)
		return;
	if (page_set_fit(&m->target.stored, s->first_page + PROTO_STORED_PAGES))
		return; /* the set stays incomplete */
	for (; (run = page_set_next(&set, at, &first)); at = first + run)
		page_set_add(&m->target.stored, s->first_page + first, run);
	m->target.parts++;
}

static void on_stored(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
		      struct wire_r *body)
{
	struct msg_stored s;
	struct move *m;

	(void)incarnation;
	if (!move_decoded(body, proto_get_stored(body, &s)))
		return;
	m = move_for(arg, from, s.id, s.k);
	/* While a worker has the move, the set is the worker's. */
	if (m && m->state == T_ROUNDS && !m->working && s.round == m->target.round + 1)
		collect(m, &s);
}

static bool has_parts(const struct move *m, uint32_t round, uint32_t parts)
{
	return round == m->target.round + 1 &&
	       (parts == 0 || (m->target.parts_round == round && m->target.parts == parts));
}

/* ---- ROUND ---------------------------------------------------------------------------------- */

static int mark_runs(struct move *m)
{
	const uint64_t end = page_count(m->size);
	uint64_t at = 0, first, run;
	int rc = 0;

	for (; !rc && (run = page_set_next(&m->target.stored, at, &first)) && first < end;
	     at = first + run)
		rc = pages_mark_remote(m->seg, first, first + run < end ? run : end - first,
				       &m->work_err);
	return rc;
}

int target_rounds_mark(struct move *m)
{
	struct ramp_err *err = &m->work_err;
	int rc = 0;

	if (seg_size(m->seg) != m->size && ftruncate(seg_fd(m->seg), (off_t)m->size))
		rc = ramp_err_sys(err, errno, "size of the segment");
	if (!rc)
		rc = pages_prepare(m->seg, m->size, err);
	if (!rc) {
		pages_note_old(m->seg);
		rc = mark_runs(m);
	}
	if (!rc)
		target_forget_tail(m->seg, page_count(m->size));
	return rc;
}

static void round_work(struct move *m)
{
	uint64_t missing;

	m->work_rc = m->target.round ? target_rounds_mark(m) : 0;
	missing = pages_missing(m->seg);
	if (m->target.round == 0 && missing < page_count(m->size))
		m->target.known_pages = page_count(m->size) - missing;
	m->target.has_every_page = !m->work_rc && missing == 0;
	if (m->work_rc || m->target.has_every_page)
		return;
	m->target.pull_said_done = m->target.prefetch_begun = false;
	m->work_rc = target_begin_pull(m);
	m->target.pull_begun = !m->work_rc;
}

static void end_work(struct move *m)
{
	if (m->target.pull_begun)
		pull_end(m->t->pull, m->id);
	m->target.pull_begun = m->target.prefetch_begun = false;
}

static void ended(struct move *m)
{
	if (atomic_load(&m->cancelled)) {
		target_drop(m);
		return;
	}
	m->target.has_every_page = true;
	say_read(m);
	move_tick_in(m, PULLED_MS);
}

static void round_done(struct move *m)
{
	if (m->work_rc) {
		log_warn("segment %" PRIu64 " can't be copied ahead: %s", m->id, m->work_err.text);
		refuse(m);
	} else if (atomic_load(&m->cancelled)) {
		target_drop(m);
	} else if (m->target.has_every_page) {
		ended(m);
	} else {
		target_prefetch(m);
		move_tick_in(m, PULLED_MS);
	}
}

static void round_begin(struct move *m, const struct msg_round *msg)
{
	m->heard_ms = clock_ms();
	m->target.round = msg->round;
	m->target.had_rounds = true;
	m->target.has_every_page = false;
	m->size = msg->round ? msg->size : m->size;
	move_work(m, round_work, round_done);
}

/* ---- PREFILL -------------------------------------------------------------------------------- */

/* The pull of the round continues under another limit. */
static void again_work(struct move *m)
{
	end_work(m);
	m->target.has_every_page = pages_missing(m->seg) == 0;
	if (m->target.has_every_page)
		return;
	m->target.pull_said_done = false;
	m->work_rc = target_begin_pull(m);
	m->target.pull_begun = !m->work_rc;
}

/* Ignored while a worker has the move: the source says it again. */
static void on_prefill(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
		       struct wire_r *body)
{
	struct msg_prefill msg;
	struct move *m;
	bool joined, other;

	(void)incarnation;
	if (!move_decoded(body, proto_get_prefill(body, &msg)))
		return;
	m = move_for(arg, from, msg.id, msg.k);
	if (!m || m->state != T_ROUNDS || m->working)
		return;
	joined = m->prefill && !msg.prefill;
	other = m->limit_bytes_s != msg.limit_bytes_s || m->batch != msg.batch;
	m->prefill = msg.prefill;
	m->wants_progress = msg.progress;
	m->limit_bytes_s = msg.limit_bytes_s;
	m->batch = msg.batch;
	memcpy(m->name, msg.name, sizeof(m->name));
	if (joined)
		m->demand_only |= news_coming(m);
	if (other && m->target.pull_begun && !m->target.has_every_page)
		move_work(m, again_work, round_done);
}

static void on_round(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
		     struct wire_r *body)
{
	struct transfers *t = arg;
	struct msg_round msg;
	struct move *m;

	(void)incarnation;
	if (!move_decoded(body, proto_get_round(body, &msg)) || !t->registered || !t->started)
		return;
	m = move_for(t, from, msg.id, msg.k);
	if (!m) { /* R2: no such ticket is out */
		move_send_verdict(t, from, PROTO_REFUSED, msg.id, msg.k, 0);
		return;
	}
	if (m->state == T_RESERVED && msg.round == 0) {
		move_go(m, T_RESERVED, T_ROUNDS);
		trace_step(m->trace, "the first round is asked for");
		round_begin(m, &msg);
	} else if (m->state == T_ROUNDS && !m->working) {
		m->heard_ms = clock_ms();
		m->target.source_hung_up = false;
		if (msg.round == m->target.round && m->target.has_every_page)
			say_read(m);
		else if (m->target.has_every_page && has_parts(m, msg.round, msg.parts))
			round_begin(m, &msg);
	}
}

/* The pull of a round is over; that of what is left after TRANSFER begins at nought. */
static void count_round(struct move *m)
{
	struct pull_figures *pulled = &m->target.pulled;

	m->target.round_pages += pulled->demand + pulled->prefetch;
	m->target.round_holes += pulled->holes;
	*pulled = (struct pull_figures){.rdma = pulled->rdma};
}

void target_rounds_pulled(struct move *m)
{
	uint64_t lost = m->target.pulled.lost;

	if (lost && m->working) {
		atomic_store(&m->cancelled, true);
	} else if (lost) {
		refuse(m);
	} else if (!m->working) {
		count_round(m);
		move_work(m, end_work, ended);
	} else {
		m->target.pull_said_done = true; /* looked at again when the worker returns */
	}
}

/* The source hung up, and has not asked again: it may be in another life, which asks for no more rounds.
   Where the row is in k it may have GIVEN, and repeats TRANSFER (target_source_away). */
static bool is_left(struct move *m)
{
	struct segment_row row;

	if (!m->target.source_hung_up || clock_ms() - m->target.hung_up_ms < AWAY_MS)
		return false;
	m->target.source_hung_up = false;
	return meta_segment(m->t->meta, m->id, &row) || !row_in_attempt(&row, m->k);
}

void target_rounds_tick(struct move *m)
{
	if (is_left(m) || clock_ms() - m->heard_ms >= SOURCE_GONE_MS) {
		target_drop(m);
		return;
	}
	if (m->prefill && !target_may_keep_prefill(m->t)) {
		log_info("segment %" PRIu64 ": its prefill makes room here", m->id);
		refuse(m);
		return;
	}
	if (!m->target.has_every_page)
		target_send_pulled(m);
	move_tick_in(m, PULLED_MS);
}

/* ---- TRANSFER ------------------------------------------------------------------------------- */

bool target_rounds_awaits(const struct move *m, const struct msg_transfer *tr)
{
	return m->working || (tr->round && !has_parts(m, tr->round, tr->parts));
}

bool target_rounds_may_take(struct move *m, const struct msg_transfer *tr)
{
	if (!tr->round || !m->target.has_every_page) {
		log_warn("segment %" PRIu64
			 " is not taken: node %s does not know any more what was "
			 "stored into since it was read",
			 m->id, m->peer_name);
		return false;
	}
	if (tr->parts == 0)
		page_set_clear(&m->target.stored);
	return true;
}

void target_rounds_listen(struct transfers *t)
{
	peers_on(t->peers, PROTO_STORED, on_stored, t);
	peers_on(t->peers, PROTO_ROUND, on_round, t);
	peers_on(t->peers, PROTO_PREFILL, on_prefill, t);
}
