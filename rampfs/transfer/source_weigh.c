/*
 * Mode auto at the source, the default: which mode pays.
 *
 * Happy path: when the target has room, little goes by copy over a link that is known to be fast. What no
 * program has mapped goes lazily, at once, since no program would gain. Else stores are watched for WEIGH_MS: a
 * pre-copy pays where programs store into less than half of what the link carries meanwhile, and not into nearly
 * all of it, and, for mv, where it is likely to be over within mv's part (source_mode_left_ms). One store makes a whole
 * huge page count: where that alone speaks against a pre-copy, it is watched for as long again, with some of them split
 * (sample.c). A few segments of one
 * request are weighed side by side, each for its part of the link; of many each goes lazily: the first ones would keep
 * the others from their turn for as long as they are watched and copied ahead, and all of them share one link.
 *
 * How it fails: by lazy, the mode that needs nothing. A process that could store past the watch, or can't
 * be looked into, is such a reason; the words say which.
 */
#include "source_weigh.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/page.h"
#include "memory/populated.h"

#include "rounds.h"
#include "sample.h"
#include "source_close.h"
#include "source_connect.h"
#include "source_mode.h"
#include "source_prepare.h"
#include "source_rounds.h"

#define WEIGH_MS    100u
#define ALL_PERCENT 80u /* of it was stored into meanwhile: another round would bring little */
#define COPY_BYTES  (UINT64_C(4) << 20)
#define COPY_US	    5000u
#define MIB	    (UINT64_C(1) << 20)
#define SPEEDS	    192u

/* ---- what was decided -------------------------------------------------------------------------- */

/* The request was cancelled, or the daemon ends. */
static bool is_over(struct move *m)
{
	if (atomic_load(&m->cancelled) && !m->source.fail_code)
		source_fail(m, EINTR, "cancelled");
	if (m->source.fail_code && !m->t->closing)
		source_rounds_stop(m);
	return m->source.fail_code || m->t->closing;
}

static void unwatched(struct move *m)
{
	if (is_over(m))
		return;
	rounds_free(m);
	source_rounds_over(m);
}

/* The watch ends; then as if nothing had been weighed. */
static void lazily(struct move *m)
{
	move_work(m, source_end_rounds, unwatched);
}

/* ---- S_WEIGHING -------------------------------------------------------------------------------- */

static void watch_work(struct move *m)
{
	m->work_rc = rounds_watch(m);
	m->source.rounds->watched_us = clock_us();
}

static void look_work(struct move *m)
{
	struct source_rounds *r = m->source.rounds;

	m->work_rc = rounds_look(m);
	r->watched_us = clock_us() - r->watched_us;
	r->watched_us = r->watched_us ? r->watched_us : 1;
	r->weighed = m->work_rc ? 0 : sample_pages(m);
}

/* Another look, which nothing is read of, follows the split: all is watched from then on. */
static void sample_work(struct move *m)
{
	struct source_rounds *r = m->source.rounds;

	m->work_rc = sample_take(m);
	if (!m->work_rc && page_set_count(&r->sample)) {
		m->work_rc = rounds_look(m);
		r->watched_us = clock_us();
	}
}

/* Writes the two speeds that were compared. */
static void word_speeds(const struct move *m, uint64_t stored, char text[SPEEDS])
{
	uint64_t carries, sample = page_set_count(&m->source.rounds->sample);
	char by[64] = "";
	bool known;

	carries = source_mode_carries(m, &known);
	if (sample)
		snprintf(by, sizeof(by), " (by %" PRIu64 " huge pages that were split)", sample);
	snprintf(text, SPEEDS,
		 "programs store into %" PRIu64 " MB/s%s, the link carries %" PRIu64 " MB/s%s",
		 stored / 1000000, by, carries / 1000000, known ? "" : " (a guess)");
}

/* Returns bytes a second that programs store into, as far as is known yet. */
static uint64_t stored_bytes_s(const struct move *m)
{
	return m->source.rounds->weighed * RAMP_PAGE_BYTES * 1000000 / m->source.rounds->watched_us;
}

/* Whether programs store into too much for a pre-copy, by what is known yet. */
static bool is_too_much(const struct move *m)
{
	return m->source.rounds->weighed * RAMP_PAGE_BYTES * 100 >=
		       move_populated(m) * ALL_PERCENT ||
	       stored_bytes_s(m) >= source_mode_carries(m, NULL) / 2;
}

/* Decides by how much was stored into in that time. */
static void by_stores(struct move *m)
{
	uint64_t all = move_populated(m), stored = stored_bytes_s(m),
		 us = m->source.rounds->watched_us;
	uint64_t bytes = m->source.rounds->weighed * RAMP_PAGE_BYTES;
	uint64_t carries = source_mode_carries(m, NULL);
	char speeds[SPEEDS];

	word_speeds(m, stored, speeds);
	if (bytes * 100 >= all * ALL_PERCENT)
		source_mode_set(m, TRANSFER_LAZY,
				"programs store into %" PRIu64 " %% of it within %" PRIu64 " ms",
				bytes < all ? bytes * 100 / all : 100, us / 1000);
	else if (stored >= carries / 2)
		source_mode_set(m, TRANSFER_LAZY, "%s", speeds);
	/* Each round leaves a part of it to the next; all of it may be sent before huge pages are split, and again. */
	else if (all * (m->source.rounds->thin ? 2000 : 1000) / (carries - stored) >
		 source_mode_left_ms(m))
		source_mode_set(m, TRANSFER_LAZY, "%s: no time for %" PRIu64 " MiB", speeds,
				all / MIB);
	else
		source_mode_set(m, TRANSFER_PRECOPY, "%s", speeds);
}

static void decide(struct move *m)
{
	by_stores(m);
	if (m->source.precopy_mode)
		source_rounds_watched(m);
	else
		lazily(m);
}

/* Whether the move is still being weighed after a worker's look. */
static bool may_go_on(struct move *m)
{
	if (is_over(m))
		return false;
	if (!m->work_rc)
		return true;
	source_mode_set(m, TRANSFER_LAZY, "%s", m->work_err.text);
	lazily(m);
	return false;
}

static void sampled(struct move *m)
{
	if (!may_go_on(m))
		return;
	if (page_set_count(&m->source.rounds->sample))
		move_tick_in(m, WEIGH_MS);
	else
		decide(m);
}

static void looked(struct move *m)
{
	if (!may_go_on(m))
		return;
	if (is_too_much(m) && !page_set_count(&m->source.rounds->sample))
		move_work(m, sample_work, sampled);
	else
		decide(m);
}

static void watched(struct move *m)
{
	if (may_go_on(m))
		move_tick_in(m, WEIGH_MS);
}

void source_weigh_tick(struct move *m)
{
	if (!m->t->closing)
		move_work(m, look_work, looked);
}

/* ---- S_CONNECTING ------------------------------------------------------------------------------ */

/* Decides where nothing has to be watched for that. */
static bool at_once(struct move *m)
{
	bool known;
	uint64_t bytes = move_populated(m), carries = source_mode_carries(m, &known);

	if (m->queues && pair_of(m->t, m->peer)->many)
		source_mode_set(m, TRANSFER_LAZY, "one of more than %u that are moved side by side",
				PAIR_FEW);
	else if (bytes <= COPY_BYTES && known && bytes * 1000000 / carries <= COPY_US)
		source_mode_set(m, TRANSFER_COPY,
				"%" PRIu64 " KiB, the link carries %" PRIu64 " MB/s", bytes / 1024,
				carries / 1000000);
	else if (bytes <= COPY_BYTES)
		source_mode_set(m, TRANSFER_LAZY, "%" PRIu64 " KiB are too little to go ahead",
				bytes / 1024);
	else if (!m->source.mapped)
		source_mode_set(m, TRANSFER_LAZY, "no program has it mapped here");
	else if (bytes * 1000 / carries > source_mode_left_ms(m))
		source_mode_set(m, TRANSFER_LAZY,
				"no time for %" PRIu64 " MiB at %" PRIu64 " MB/s%s", bytes / MIB,
				carries / 1000000, known ? "" : " (a guess)");
	else
		return false;
	return true;
}

void source_weigh(struct move *m)
{
	if (at_once(m)) {
		source_prepare(m);
		return;
	}
	m->source.rounds = calloc(1, sizeof(*m->source.rounds));
	if (!m->source.rounds) {
		source_mode_set(m, TRANSFER_LAZY, "no memory for a pre-copy");
		source_prepare(m);
		return;
	}
	m->source.fail_code = 0;
	move_go(m, S_CONNECTING, S_WEIGHING);
	source_show_state(m);
	move_work(m, watch_work, watched);
}
