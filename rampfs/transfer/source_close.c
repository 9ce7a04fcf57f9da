/*
 * The source's end after the rounds of a move in steps: it waits, read ahead, and is closed to stores while
 * loads continue (two steps: ramp_finish_write, ramp_finish_read).
 *
 * Happy path: S_READ_AHEAD: the target has nearly all, and the client says when. S_QUIESCING: programs that want to
 * be asked let go of it first, since one that waits in a store can't (departure.c). S_CLOSING: a worker freezes
 * and revokes as for a hand-over, has protected mappings put in place, and lets loads and reads continue; the last
 * look for stores is made, and a last ROUND asks the target for what it finds. S_CLOSED: the target reads that,
 * while programs at the source load. When it has all, and the client says so, prepare is proposed, and the
 * window opens as in any mode: its TRANSFER names no page.
 *
 * How it fails: as S_ROUNDS does, since nothing is proposed yet; stores continue. So it is when the client has
 * gone, its time is over, or the target is silent. A daemon that dies leaves programs closed to stores; the
 * next one opens them, agent by agent, before anything else: its record says OWNED, and no move is held.
 * An attempt that was closed is never followed by another one, since its client counts on what it was told.
 */
#include "source_close.h"

#include <errno.h>
#include <inttypes.h>

#include "base/clock.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/page.h"

#include "departure.h"
#include "given.h"
#include "move_request_core.h"
#include "news.h"
#include "rounds.h"
#include "source_connect.h"
#include "source_hold.h"
#include "source_prepare.h"

#define ROUND_AGAIN_MS 1000u /* ROUND is repeated: it tells the target that this end is there */
#define SILENT_MS      5000u
#define FREEZE_MS      1000u /* for the daemon's own reads and writes under way */
#define REVOKE_MS      2000u /* for programs */

#define SPARSE_BYTES (UINT64_C(64) << 30) /* smaller segments may be sparse as they like */
#define SPARSE_TIMES 16u

static void close_stopped(struct move *m)
{
	source_say_close(m);
	source_fail_now(m);
}

void source_close_stop(struct move *m)
{
	move_work(m, source_end_rounds, close_stopped);
}

/* Returns whether it was unlinked: `row` is then of no use. */
static bool is_unlinked(struct move *m, struct segment_row *row, int *rc)
{
	*rc = meta_segment(m->t->meta, m->id, row);
	return *rc == -ENOENT || (!*rc && (row->unlinked || row->phase == SEGMENT_ORPHAN));
}

void source_rounds_look(struct move *m)
{
	struct segment_row row;
	int rc;

	if (m->working || !is_unlinked(m, &row, &rc))
		return; /* a worker: source_rounds_over looks */
	source_fail(m, ENOENT, "it was unlinked");
	source_close_stop(m);
}

/* The row may have changed meanwhile (a chmod, a new name): prepare compares its epoch. A request that names
   it by its old name is not for it any more. */
void source_rounds_over(struct move *m)
{
	struct segment_row row;
	int rc;

	if (m->source.rounds)
		trace_step(m->trace, "rounds are over");
	if (is_unlinked(m, &row, &rc)) {
		source_fail(m, ENOENT, "it was unlinked");
		source_close_stop(m);
		return;
	}
	if (!rc && row.phase == SEGMENT_STABLE && row.node == m->t->self) {
		m->row_epoch = row.epoch;
		rc = m->request ? move_request_check_name(m->request, &row) : 0;
		if (rc) {
			source_fail(m, -rc, "it has another name by now");
			source_close_stop(m);
			return;
		}
	}
	source_prepare(m);
}

/* How long programs may still take to let go of it. */
static uint64_t asked_left_ms(const struct move *m)
{
	uint64_t end_ms = m->source.asked_ms + m->t->config.quiesce_ms, now = clock_ms();

	return end_ms > now ? end_ms - now : 0;
}

static void ask_on(struct move *m)
{
	uint64_t ms = m->state == S_QUIESCING ? asked_left_ms(m) : ROUND_AGAIN_MS;

	rounds_send(m);
	move_tick_in(m, ms < ROUND_AGAIN_MS ? (uint32_t)ms : ROUND_AGAIN_MS);
}

/* ---- S_CLOSING ------------------------------------------------------------------------------- */

/* To protect a page that was never stored into takes 8 bytes of a page table, in each program. */
static int check_sparse(struct move *m)
{
	uint64_t size = seg_size(m->seg);

	return size > SPARSE_BYTES && size / SPARSE_TIMES > move_populated(m)
		       ? ramp_err_set(&m->work_err, EFBIG,
				      "it is too sparse to be closed to stores")
		       : 0;
}

static int freeze_and_close(struct move *m)
{
	struct transfers *t = m->t;
	int rc = check_sparse(m);

	if (!rc)
		rc = programs_prelook(t->programs, m->seg, &m->work_err);
	if (!rc)
		rc = programs_close_ahead(t->programs, m->seg, &m->work_err);
	trace_step(m->trace, "protected mappings are made");
	if (!rc)
		rc = seg_freeze(m->seg, FREEZE_MS, &m->work_err);
	if (rc)
		return rc;
	rc = programs_revoke(t->programs, m->seg, REVOKE_MS, &m->work_err);
	if (!rc)
		rc = programs_close_stores(t->programs, m->seg, REVOKE_MS, &m->work_err);
	if (!rc)
		seg_close_to_stores(m->seg);
	seg_thaw(m->seg);
	trace_step(m->trace, "stores wait, loads continue");
	return rc;
}

/* The last look comes when loads continue: what it looks at does not change any more. */
static void close_work(struct move *m)
{
	bool lifted = !kernel_rt_boost(KERNEL_FREEZE_PRIORITY);

	m->work_rc = freeze_and_close(m);
	if (lifted)
		kernel_rt_boost(0);
	if (m->work_rc) {
		given_ungrant(m); /* before access is given back */
		programs_restore(m->t->programs, m->seg);
		return;
	}
	m->source.rounds->closed = true;
	m->work_rc = rounds_last(m);
	if (!m->work_rc)
		seg_set_left(m->seg, rounds_left(m) * RAMP_PAGE_BYTES);
	trace_step(m->trace, "stores since the last round are known");
}

static void all_read(struct move *m)
{
	m->source.rounds->whole = true;
	seg_set_left(m->seg, 0);
	move_show_round(m, m->source.rounds->round, 0);
	trace_step(m->trace, "the target has every page");
	if (hold_lets(m, SESSION_PREPARED))
		source_rounds_over(m);
	else
		hold_tell(m);
}

static void closed(struct move *m)
{
	struct source_rounds *r = m->source.rounds;

	if (m->work_rc && !m->source.fail_code)
		source_fail(m, -m->work_rc, "%s", m->work_err.text);
	if (atomic_load(&m->cancelled) && !m->source.fail_code)
		source_fail(m, EINTR, "cancelled");
	if (m->t->closing)
		return;
	if (m->source.fail_code) {
		source_close_stop(m);
		return;
	}
	m->source.was_closed = true;
	move_go(m, S_CLOSING, S_CLOSED);
	r->pages = rounds_left(m);
	log_info("segment %" PRIu64 ": closed to stores, node %s has %" PRIu64 " pages to read",
		 m->id, m->peer_name, r->pages);
	hold_restart(m);
	news_tell(m, SESSION_CLOSED);
	source_show_state(m);
	m->heard_ms = clock_ms();
	if (r->pages) {
		rounds_next(m);
		move_show_round(m, r->round, r->pages);
		page_set_clear(&r->stored);
		r->done = 0;
		r->asked_us = clock_us();
	}
	ask_on(m);
	if (!r->pages)
		all_read(m);
}

static void begin_closing(struct move *m)
{
	loop_rt_boost(m->t->loop, WINDOW_MS);
	move_go(m, m->state, S_CLOSING);
	source_show_state(m);
	move_work(m, close_work, closed);
}

/* ---- S_QUIESCING ----------------------------------------------------------------------------- */

/* Programs store, and the target waits, as in S_READ_AHEAD. */
static void begin_asking(struct move *m)
{
	if (!departure_ask(m)) {
		begin_closing(m);
		return;
	}
	move_go(m, m->state, S_QUIESCING);
	m->source.asked_ms = m->heard_ms = clock_ms();
	hold_restart(m); /* its client hears that it waits */
	source_show_state(m);
	trace_step(m->trace, "programs are asked to let go of it");
	ask_on(m);
}

static void asked(struct move *m)
{
	departure_note(m);
	begin_closing(m);
}

void source_close_look(struct move *m)
{
	source_rounds_look(m);
	if (!m->working && !departure_awaits(m))
		asked(m);
}

/* ---- what the client wants ------------------------------------------------------------------- */

static bool wants_closed(const struct move *m)
{
	return m->request && m->request->spec.in_steps && m->request->step == SESSION_WRITES_CLOSED;
}

static void close_wait(struct move *m)
{
	move_go(m, S_ROUNDS, S_READ_AHEAD);
	m->heard_ms = clock_ms();
	hold_restart(m);
	source_show_state(m);
	ask_on(m);
}

void source_rounds_enough(struct move *m)
{
	if (!hold_lets(m, SESSION_WRITES_CLOSED))
		close_wait(m);
	else if (wants_closed(m))
		begin_asking(m);
	else
		source_rounds_over(m);
}

void source_close_go(struct move *m)
{
	if (m->working)
		return;
	if (m->state == S_QUIESCING)
		hold_tell(m);
	else if (m->state == S_READ_AHEAD && wants_closed(m))
		begin_asking(m);
	else if (m->state == S_READ_AHEAD && hold_lets(m, SESSION_PREPARED))
		source_rounds_over(m);
	else if (m->state == S_CLOSED && m->source.rounds->whole && hold_lets(m, SESSION_PREPARED))
		source_rounds_over(m);
}

/* ---- S_READ_AHEAD, S_QUIESCING, S_CLOSED ---------------------------------------------------- */

void source_close_read(struct move *m, uint32_t round)
{
	struct source_rounds *r = m->source.rounds;

	m->heard_ms = clock_ms();
	if (m->state == S_CLOSED && !r->whole && round == r->round)
		all_read(m);
}

void source_close_heard(struct move *m, uint64_t done_pages)
{
	struct source_rounds *r = m->source.rounds;
	uint64_t left;

	if (m->state != S_CLOSED || r->whole || done_pages <= r->done)
		return;
	r->done = done_pages;
	m->heard_ms = clock_ms();
	left = r->pages > done_pages ? r->pages - done_pages : 0;
	seg_set_left(m->seg, left * RAMP_PAGE_BYTES);
	move_show_round(m, r->round, left);
}

void source_close_tick(struct move *m)
{
	if (m->t->closing)
		return;
	if (hold_is_over(m)) {
		source_fail(m, ETIMEDOUT, "it was held for too long");
		source_close_stop(m);
	} else if (clock_ms() - m->heard_ms >= SILENT_MS) {
		source_fail(m, EHOSTUNREACH, "node %s does not answer", m->peer_name);
		source_close_stop(m);
	} else if (m->state == S_QUIESCING && !departure_awaits(m)) {
		asked(m);
	} else if (m->state == S_QUIESCING && !asked_left_ms(m)) {
		departure_unanswered(m);
		source_close_stop(m);
	} else {
		ask_on(m);
	}
}
