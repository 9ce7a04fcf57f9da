/*
 * A prefill at the source: a pre-copy that stands, for which no request waits (user.ramp.prefill).
 *
 * Happy path: the attempt begins as any in mode precopy, with a limit of its own. When the target has read a
 * round it rests (S_RESTING): after a pause it is looked which pages were stored into, and the next round asks
 * for these. A request to move the segment to that node joins it: pause and limit end, and it continues as the
 * rounds of that request. Where the request is cancelled before prepare it is a prefill again.
 *
 * The pause: each page that a look arms costs the program that stores into it first 1 us, and all of them no
 * more than a twentieth of its time. It grows while nothing is stored.
 *
 * How it fails: as rounds do; prefill.c begins again later. A later life of the source knows of no rounds: it
 * makes another attempt, for which the target drops what it has read (R2, R10).
 */
#include "source_prefill.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/page.h"
#include "base/rate.h"
#include "base/transfer_mode.h"
#include "memory/mapping.h"

#include "link_speed.h"
#include "news.h"
#include "rounds.h"
#include "source_connect.h"
#include "source_mode.h"
#include "source_rounds.h"

#define REST_MS	      1000u
#define REST_MAX_MS   8000u
#define REST_SMALL_MS 60000u
#define PAGES_PER_MS  50u /* 1 us each is a twentieth of that */
#define ALIVE_MS      2000u
#define SILENT_MS     15000u
#define DOWN_MS	      5000u
/* All prefills to one target share one limit, where it is the same. */
#define PREFILL_BATCH	 UINT64_C(0x6c6c696665727001)
#define PREFILL_BYTES_S	 (UINT64_C(64) << 20)
#define PREFILL_OF_SPEED 4u /* ... or that part of what the link has carried */

void source_prefill_bound(struct move *m, const struct segment_row *row)
{
	uint64_t speed = link_speed(m->t, m->peer) / PREFILL_OF_SPEED;

	m->limit_bytes_s = (uint64_t)row->prefill_mib_s << 20;
	if (!m->limit_bytes_s)
		m->limit_bytes_s = !speed ? PREFILL_BYTES_S : speed < RATE_MIN ? RATE_MIN : speed;
	m->batch = PREFILL_BATCH;
}

void source_prefill_begin(struct transfers *t, const struct segment_row *row, struct seg *seg)
{
	struct move *m = move_new(t, row->id, seg);

	if (!m) {
		seg_put(seg);
		return;
	}
	m->prefill = true;
	m->peer = row->prefill;
	move_node_name(t, m->peer, m->peer_name);
	memcpy(m->name, row->name, sizeof(m->name));
	source_prefill_bound(m, row);
	m->source.mode = TRANSFER_PRECOPY;
	m->source.precopy_mode = true;
	snprintf(m->source.why, sizeof(m->source.why), "user.ramp.prefill");
	source_begin(m, MOVE_NEW, row->epoch);
}

/* ---- S_RESTING --------------------------------------------------------------------------------- */

/* By the pages that were stored into: those that programs are likely to store into again. Of a huge page, which
   takes one page fault, all count. */
static uint32_t first_pause_ms(const struct move *m)
{
	const struct source_rounds *r = m->source.rounds;
	uint32_t least = m->t->config.prefill_rest_ms ? m->t->config.prefill_rest_ms : REST_MS;
	uint32_t most = seg_small(m->seg) ? REST_SMALL_MS : REST_MAX_MS;
	uint64_t ms = r->round ? r->pages / PAGES_PER_MS : 0;

	return ms < least ? least : ms > most ? most : (uint32_t)ms;
}

static void rest(struct move *m)
{
	struct source_rounds *r = m->source.rounds;

	r->look_ms = clock_ms() + r->rest_ms;
	move_tick_in(m, r->rest_ms < ALIVE_MS ? r->rest_ms : ALIVE_MS);
	m->t->hooks->prefill_note(m);
}

void source_prefill_read(struct move *m)
{
	struct source_rounds *r = m->source.rounds;

	r->done = r->pages ? r->pages : 1; /* so that its STOREDs are not sent again */
	r->rest_ms = first_pause_ms(m);
	m->heard_ms = clock_ms();
	move_go(m, S_ROUNDS, S_RESTING);
	rest(m);
}

/* A request has joined. The target is asked first whether it still has what it has read: its answer is
   followed by a look, and perhaps by prepare. */
static void go_on(struct move *m)
{
	move_go(m, S_RESTING, S_ROUNDS);
	source_show_state(m);
	source_rounds_ask_again(m);
}

static void prefill_looked(struct move *m)
{
	struct source_rounds *r = m->source.rounds;
	uint64_t pages, first;

	if (!m->prefill)
		move_go(m, S_RESTING, S_ROUNDS); /* as of a failed look in rounds */
	if (!source_rounds_go_on(m))
		return;
	pages = rounds_left(m);
	/* Pages behind the end, too: the next look forgets what this one has found. */
	if (page_set_next(&r->stored, 0, &first)) {
		if (m->prefill)
			move_go(m, S_RESTING, S_ROUNDS);
		source_rounds_next(m, pages);
		return;
	}
	if (!m->prefill) {
		source_rounds_ask_again(m);
		return;
	}
	r->pages = 0;
	if (r->rest_ms < REST_MAX_MS)
		r->rest_ms = r->rest_ms * 2 < REST_MAX_MS ? r->rest_ms * 2 : REST_MAX_MS;
	rest(m);
}

void source_prefill_tick(struct move *m)
{
	uint64_t now_ms = clock_ms(), left_ms;

	if (m->t->closing)
		return;
	if (now_ms - m->heard_ms >= (peer_up(m->t->peers, m->peer) ? SILENT_MS : DOWN_MS)) {
		source_fail(m, EHOSTUNREACH, "node %s does not answer", m->peer_name);
		source_rounds_stop(m);
		return;
	}
	if (now_ms >= m->source.rounds->look_ms) {
		move_work(m, source_rounds_look_work, prefill_looked);
		return;
	}
	rounds_send(m); /* the target keeps it, or refuses what its present life does not know */
	left_ms = m->source.rounds->look_ms - now_ms;
	move_tick_in(m, left_ms < ALIVE_MS ? (uint32_t)left_ms : ALIVE_MS);
}

/* ---- a request --------------------------------------------------------------------------------- */

static bool is_at_rounds(const struct move *m)
{
	return m->state == S_ROUNDS || m->state == S_RESTING;
}

static bool wants_it(const struct move *m, const struct migrate_request *spec)
{
	return spec->dst == m->peer && !spec->in_steps && !spec->step &&
	       (spec->mode == TRANSFER_UNSAID || spec->mode == TRANSFER_AUTO ||
		spec->mode == TRANSFER_PRECOPY);
}

bool source_prefill_join(struct move *m, struct move_request *req)
{
	const struct migrate_request *spec = &req->spec;
	struct source_rounds *r = m->source.rounds;

	if (!m->prefill || !is_at_rounds(m) || m->source.fail_code || atomic_load(&m->cancelled) ||
	    !wants_it(m, spec))
		return false;
	m->request = req;
	m->prefill = false;
	m->source.joined = true;
	m->source.by_auto = spec->mode != TRANSFER_PRECOPY;
	m->source.max_rounds = spec->max_rounds ? spec->max_rounds : TRANSFER_ROUNDS_DEFAULT;
	m->source.times = (struct move_times){.from_us = clock_us()};
	memcpy(m->name, spec->dst_name, sizeof(m->name));
	m->limit_bytes_s = spec->limit_bytes_s;
	m->batch = spec->batch;
	m->queues = spec->queues;
	m->wants_progress = spec->progress != NULL;
	r->first = r->round;
	r->data = r->pages =
		page_count(move_populated(m)); /* a round of its own may bring little */
	r->stuck = 0;
	source_mode_set(m, TRANSFER_PRECOPY, "user.ramp.prefill keeps it near");
	transfers_count(m->t, &m->t->status.started);
	news_ask(m);
	news_tell(m, SESSION_CONNECTING);
	source_show_state(m);
	if (m->state == S_RESTING && !m->working)
		go_on(m);
	else
		rounds_say_prefill(m);
	return true;
}

bool source_prefill_leave(struct move *m, int code, const char *text)
{
	struct transfers *t = m->t;
	struct segment_row row;

	/* Not where the rounds end already. */
	if (!m->source.joined || !is_at_rounds(m) || !m->source.precopy_mode ||
	    m->source.fail_code || meta_segment(t->meta, m->id, &row) || row.prefill != m->peer)
		return false;
	source_fail(m, code, "%s", text);
	log_info("segment %" PRIu64 " stays, and node %s is kept near: %s", m->id, m->peer_name,
		 text);
	transfers_count(t, &t->status.failed);
	news_tell(m, SESSION_FAILED);
	m->source.fail_code = 0;
	m->source.fail_text[0] = 0;
	m->source.joined = m->source.by_auto = m->queues = m->wants_progress = false;
	m->prefill = true;
	snprintf(m->source.why, sizeof(m->source.why), "user.ramp.prefill");
	source_prefill_bound(m, &row);
	rounds_say_prefill(m);
	move_answer(m, -code, text);
	return true;
}
