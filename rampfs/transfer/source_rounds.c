/*
 * Mode precopy at the source: the target reads pages in rounds while programs continue.
 *
 * Happy path: after ACCEPT the source begins to watch stores, and grants its pages under k. ROUND 0 asks
 * the target to read all pages. When it has (ROUND_READ), a worker looks which were stored into since, and
 * the next ROUND asks for those. When little is left, or rounds do not make it less, prepare is
 * proposed, and the window opens as in any mode. After the revoke the last look is taken, and TRANSFER
 * names what is left: the target has all other pages when it serves.
 *
 * The order keeps it right (R10): watched, then read; stored into, then told, then read again.
 *
 * How it fails: as S_CONNECTING does, since nothing is proposed before the rounds are over: the watch
 * ends, keys are withdrawn, the request is answered. A later life of the source knows of no rounds; its
 * TRANSFER is refused by a target that has read ahead and not taken k.
 *
 * Rounds for which no request waits have no end of their own: source_prefill.c.
 */
#include "source_rounds.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/page.h"
#include "memory/mapping.h"

#include "given.h"
#include "link_speed.h"
#include "move_message.h"
#include "move_request_core.h"
#include "news.h"
#include "rounds.h"
#include "source_close.h"
#include "source_connect.h"
#include "source_mode.h"

#define ROUND_AGAIN_MS 1000u /* ROUND is repeated */
#define TOO_LONG       "a pre-copy would take longer than the request waits"
#define SILENT_MS      5000u
#define PREFILL_MS     30000u /* ... of a prefill, which goes behind all else */
#define ENOUGH_PAGES   1024u  /* 4 MiB: to read less takes no longer than the hand-over */
#define ENOUGH_PARTS                                                                               \
	200u		 /* ... nor does what the link carries within that part of a second: 5 ms */
#define LESS_PERCENT 80u /* of the round before; two in a row that leave more are enough */
#define HALF_PERCENT 50u /* of the data; one that leaves more is enough */

static void stopped(struct move *m)
{
	source_say_close(m);
	source_fail_now(m);
}

void source_rounds_stop(struct move *m)
{
	move_work(m, source_end_rounds, stopped);
}

/* ---- lazily after all -------------------------------------------------------------------------- */

static void again_lazily(struct move *m)
{
	if (atomic_load(&m->cancelled) && !m->source.fail_code)
		source_fail(m, EINTR, "cancelled");
	source_say_close(m);
	if (m->source.fail_code) {
		source_fail_now(m);
		return;
	}
	rounds_free(m);
	source_again(m, S_ROUNDS);
}

/* Pages that the target has read are of no use without the rest: it drops them, and makes room again. */
static void leave(struct move *m, const char *why)
{
	source_mode_set(m, TRANSFER_LAZY, "%s", why);
	move_work(m, source_end_rounds, again_lazily);
}

/* ---- rounds ------------------------------------------------------------------------------------ */

bool source_rounds_go_on(struct move *m)
{
	if (m->work_rc == -EBUSY && m->source.by_auto && !m->source.fail_code &&
	    !atomic_load(&m->cancelled) && !m->t->closing) {
		leave(m, m->work_err.text);
		return false;
	}
	if (m->work_rc && !m->source.fail_code)
		source_fail(m, -m->work_rc, "%s", m->work_err.text);
	if (atomic_load(&m->cancelled) && !m->source.fail_code)
		source_fail(m, EINTR, "cancelled");
	if (m->source.fail_code && !m->t->closing)
		source_rounds_stop(m);
	return !m->source.fail_code && !m->t->closing;
}

/* Until ROUND is repeated, or the request's time for rounds is over. */
static void tick_again(struct move *m)
{
	uint64_t left_ms = source_mode_left_ms(m);

	move_tick_in(m, left_ms < ROUND_AGAIN_MS ? (uint32_t)left_ms + 1 : ROUND_AGAIN_MS);
}

void source_rounds_ask_again(struct move *m)
{
	m->heard_ms = clock_ms();
	if (m->source.joined)
		rounds_say_prefill(m);
	rounds_send(m);
	tick_again(m);
}

static void round_ask(struct move *m)
{
	m->source.rounds->done = 0;
	m->source.rounds->asked_us = clock_us();
	move_show_round(m, m->source.rounds->round, m->source.rounds->pages);
	source_rounds_ask_again(m);
	if (m->prefill)
		m->t->hooks->prefill_note(m);
}

static void begin_work(struct move *m)
{
	m->work_rc = m->source.rounds->watching ? 0 : rounds_watch(m);
	if (!m->work_rc)
		m->work_rc = given_grant(m);
}

static void begun(struct move *m)
{
	if (source_rounds_go_on(m))
		round_ask(m);
}

void source_rounds_begin(struct move *m)
{
	rounds_free(m); /* of an earlier attempt */
	m->source.rounds = calloc(1, sizeof(*m->source.rounds));
	if (!m->source.rounds) {
		source_fail(m, ENOMEM, "no memory for a pre-copy");
		stopped(m);
		return;
	}
	m->source.fail_code = 0;
	source_rounds_watched(m);
}

void source_rounds_watched(struct move *m)
{
	m->source.times.from_us = clock_us();
	move_go(m, m->state, S_ROUNDS);
	source_show_state(m);
	m->source.rounds->data = m->source.rounds->pages = page_count(move_populated(m));
	move_work(m, begin_work, begun);
}

void source_rounds_look_work(struct move *m)
{
	m->work_rc = rounds_look(m);
}

/* Whether reading that number of pages would take longer than the request may wait. */
static bool is_too_long(const struct move *m, uint64_t pages)
{
	return pages * RAMP_PAGE_BYTES * 1000 / source_mode_carries(m, NULL) >
	       source_mode_left_ms(m);
}

/* Whether programs store faster than rounds read. One store makes a whole huge page count, until that is split: the
   first round says nothing then; nor does that of a prefill, which was read long ago. */
static bool is_flat_out(const struct move *m, uint64_t pages)
{
	const struct source_rounds *r = m->source.rounds;

	return pages * 100 > r->data * HALF_PERCENT && !r->split &&
	       (r->round != r->first || (!m->source.joined && seg_small(m->seg)));
}

/* Says why what is left needs no round of its own; NULL: it does. That a link is fast is no guess. */
static const char *is_little(const struct move *m, uint64_t pages)
{
	bool known;
	uint64_t carries = source_mode_carries(m, &known);

	if (pages <= ENOUGH_PAGES)
		return "4 MiB or less are left";
	return known && pages * RAMP_PAGE_BYTES <= carries / ENOUGH_PARTS
		       ? "the link carries what is left within 5 ms"
		       : NULL;
}

/* Says why another round would cost more than it brings; NULL: it would not. Mode auto has no use for a second one
   that brings little. */
static const char *enough(const struct move *m, uint64_t pages)
{
	struct source_rounds *r = m->source.rounds;
	const char *little = is_little(m, pages);

	r->stuck = pages * 100 > r->pages * LESS_PERCENT && !r->split ? r->stuck + 1 : 0;
	if (little)
		return little;
	if (r->round - r->first + 1 >= m->source.max_rounds)
		return "there may be no more";
	if (r->stuck >= (m->source.by_auto ? 1 : 2))
		return "programs store as fast as pages are sent";
	if (is_flat_out(m, pages))
		return "more than half of it was stored into";
	return is_too_long(m, pages) ? TOO_LONG : NULL;
}

void source_rounds_next(struct move *m, uint64_t pages)
{
	m->source.rounds->pages = pages;
	rounds_next(m);
	round_ask(m);
}

/* Says in status and in the answer how many rounds there were, and why no more. */
static void say_over(struct move *m, const char *over)
{
	const struct source_rounds *r = m->source.rounds;
	char how[RAMP_ERR_TEXT_BYTES];

	snprintf(how, sizeof(how), "rounds ended after %" PRIu32 ": %s", r->round - r->first + 1,
		 over);
	source_mode_add(m, how);
}

static void looked(struct move *m)
{
	struct source_rounds *r = m->source.rounds;
	const char *over;
	uint64_t pages;

	if (!source_rounds_go_on(m))
		return;
	pages = rounds_left(m);
	news_round(m, pages);
	move_show_round(m, r->round, pages);
	over = enough(m, pages);
	log_info("segment %" PRIu64 ": %" PRIu64 " pages were stored into since round %" PRIu32
		 " was asked for, %" PRIu32 " huge pages split%s%s%s%s",
		 m->id, pages, r->round, r->split, r->all ? "; all pages count: " : "",
		 r->all ? r->all : "", over ? "; the rounds are over: " : "", over ? over : "");
	if (over) {
		say_over(m, over);
		source_rounds_enough(m);
		return;
	}
	source_rounds_next(m, pages);
}

static void on_round_read(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			  struct wire_r *body)
{
	struct msg_round msg;
	struct move *m;

	if (!move_decoded(body, proto_get_round(body, &msg)))
		return;
	m = move_for(arg, from, msg.id, msg.k);
	if (m && m->state == S_RESTING)
		m->heard_ms = clock_ms();
	if (!m || m->t->closing || m->working || incarnation != m->peer_inc)
		return;
	if (m->state >= S_READ_AHEAD && m->state <= S_CLOSED)
		source_close_read(m, msg.round);
	if (m->state != S_ROUNDS || msg.round != m->source.rounds->round)
		return;
	trace_step(m->trace, "a round is read");
	if (m->prefill) {
		m->t->hooks->prefill_read(m);
		return;
	}
	if (!m->limit_bytes_s && !m->source.joined)
		link_note(m->t, m->peer, m->source.rounds->pages * RAMP_PAGE_BYTES,
			  clock_us() - m->source.rounds->asked_us);
	move_work(m, source_rounds_look_work, looked);
}

void source_rounds_heard(struct move *m, uint64_t done_pages)
{
	struct source_rounds *r = m->source.rounds;

	if (m->state == S_CLOSED)
		source_close_heard(m, done_pages);
	if (m->state != S_ROUNDS || m->working || done_pages <= r->done)
		return;
	r->done = done_pages;
	m->heard_ms = clock_ms();
	move_show_round(m, r->round, r->pages > done_pages ? r->pages - done_pages : 0);
	if (m->prefill)
		m->t->hooks->prefill_note(m);
	if (source_mode_left_ms(m) == 0)
		leave(m, TOO_LONG);
}

void source_rounds_refused(struct move *m)
{
	source_fail(m, EIO, "node %s gave the pre-copy up", m->peer_name);
	if (m->source.by_auto) {
		m->source.fail_code = 0;
		leave(m, m->source.fail_text);
	} else {
		source_rounds_stop(m);
	}
}

void source_rounds_tick(struct move *m)
{
	bool behind = m->prefill && peer_up(m->t->peers, m->peer);
	uint32_t silent_ms = behind ? PREFILL_MS : SILENT_MS;

	if (m->t->closing)
		return;
	if (clock_ms() - m->heard_ms >= silent_ms) {
		source_fail(m, EHOSTUNREACH, "node %s has read no page for %u s", m->peer_name,
			    silent_ms / 1000);
		source_rounds_stop(m);
		return;
	}
	if (source_mode_left_ms(m) == 0) {
		leave(m, TOO_LONG);
		return;
	}
	if (m->source.joined)
		rounds_say_prefill(m); /* the target could not listen while a worker had it */
	rounds_send(m);
	tick_again(m);
}

void source_rounds_listen(struct transfers *t)
{
	peers_on(t->peers, PROTO_ROUND_READ, on_round_read, t);
}
