/*
 * The window at the source: the time in which neither end can touch the segment.
 *
 * Happy path: one call of a worker freezes, revokes, compares, records GIVEN and sends TRANSFER,
 * with no change of threads in between (R3). Moves of a batch have their windows one after the other, and
 * share the look before them.
 *
 * How it fails: the same call undoes all steps in reverse, keys first; then the prepare is aborted
 * (R4).
 */
#include "source_window.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/page.h"
#include "memory/populated.h"

#include "given.h"
#include "news.h"
#include "rounds.h"
#include "source_connect.h"
#include "source_list.h"
#include "source_mode.h"

#define FREEZE_MS 1000u	 /* for the daemon's own reads and writes under way */
#define REVOKE_MS 2000u	 /* for programs */
#define SLOW_US	  20000u /* of several: after such a window others do not wait for the next one */

static int record_given(struct move *m)
{
	if (atomic_load(&m->cancelled))
		return ramp_err_set(&m->work_err, EINTR, "cancelled");
	return move_record(m, RECORD_GIVEN);
}

/* While it is held, readers and writers wait until every page is copied, however long that
   takes. */
static void hold(struct move *m, bool held)
{
	m->source.frozen_for_copy = held;
	seg_set_copying(m->seg, held);
}

void source_undo(struct move *m)
{
	given_ungrant(m);
	programs_restore(m->t->programs, m->seg);
	seg_thaw(m->seg);
	hold(m, false);
}

void source_give(struct move *m)
{
	m->work_rc = record_given(m);
	if (m->work_rc) {
		source_undo(m);
		return;
	}
	hold(m, false);
	rounds_given(m);
	trace_step(m->trace, "GIVEN is recorded");
	trace_step(m->trace, "TRANSFER goes out");
	given_send(m, PROTO_TRANSFER);
}

/* Before the window: the grant (the target reads nothing before it has TRANSFER), and programs_prelook, which
   saves the revoke a look at all mappings. */
static void open_window(struct move *m)
{
	m->work_rc = given_grant(m);
	if (m->work_rc)
		return;
	trace_step(m->trace, "pages may be read under the key");
	m->work_rc = programs_prelook(m->t->programs, m->seg, &m->work_err);
	if (m->work_rc)
		given_ungrant(m);
}

/*
 * Goes through the window, in one call: gate, revoke, compare, record, message (R3). On failure
 * everything is undone in reverse, keys first. In mode copy the target reads first (copy.c).
 */
static void freeze_and_give(struct move *m)
{
	struct transfers *t = m->t;

	trace_step(m->trace, "mappings are watched, the window opens");
	m->source.window_from_us = clock_us();
	m->work_rc = seg_freeze(m->seg, FREEZE_MS, &m->work_err);
	if (m->work_rc)
		goto err_after_watch;
	trace_step(m->trace, "reads and writes are held");
	m->work_rc = programs_revoke(t->programs, m->seg, REVOKE_MS, &m->work_err);
	if (m->work_rc)
		goto err_after_freeze;
	trace_step(m->trace, "access is revoked");
	m->work_rc = source_list_compare(m);
	if (!m->work_rc && m->source.rounds && !m->source.rounds->closed) {
		m->work_rc = rounds_last(m);
		trace_step(m->trace, "stores since the last round are known");
	}
	if (m->work_rc)
		source_undo(m);
	else if (m->source.copy_mode)
		hold(m, true);
	else
		source_give(m);
	return;

err_after_freeze:
	given_ungrant(m);
	programs_restore(t->programs, m->seg);
	seg_thaw(m->seg);
	return;
err_after_watch:
	given_ungrant(m);
	programs_restore(t->programs, m->seg);
}

/* Runs at real-time priority: busy programs must not keep this thread off the processor while it
   keeps them from their memory. */
void source_freeze_work(struct move *m)
{
	bool lifted = !kernel_rt_boost(KERNEL_FREEZE_PRIORITY);

	open_window(m);
	if (!m->work_rc)
		freeze_and_give(m);
	if (lifted)
		kernel_rt_boost(0);
	if (m->work_rc) {
		rounds_open(m);
		rounds_end(m);
	}
}

/* ---- several, one after the other ------------------------------------------------------------ */

/* Prepares the windows of all, with one look at the programs. Moves that fail, or are cancelled, have none. */
static void open_windows(struct move *const *moves, size_t n)
{
	struct prelook_one ones[SOURCE_MANY];
	struct move *open[SOURCE_MANY];
	size_t n_open = 0;

	for (size_t i = 0; i < n; i++) {
		struct move *m = moves[i];

		m->work_rc = atomic_load(&m->cancelled)
				     ? ramp_err_set(&m->work_err, EINTR, "cancelled")
				     : given_grant(m);
		if (m->work_rc)
			continue;
		open[n_open] = m;
		ones[n_open++] = (struct prelook_one){.seg = m->seg, .err = &m->work_err};
	}
	if (n_open)
		programs_prelook_many(open[0]->t->programs, ones, n_open);
	for (size_t i = 0; i < n_open; i++) {
		open[i]->work_rc = ones[i].rc;
		if (ones[i].rc)
			given_ungrant(open[i]);
	}
}

size_t source_freeze_many(struct move *const *moves, size_t n)
{
	bool lifted = !kernel_rt_boost(KERNEL_FREEZE_PRIORITY);
	uint64_t began_us = 0;
	size_t i;

	open_windows(moves, n);
	for (i = 0; i < n; i++) {
		if (began_us && clock_us() - began_us > SLOW_US)
			break;
		began_us = clock_us();
		if (!moves[i]->work_rc)
			freeze_and_give(moves[i]);
		move_work_over(moves[i]);
	}
	if (lifted)
		kernel_rt_boost(0);
	return i;
}

void source_freeze_opened(struct move *m)
{
	bool lifted = !kernel_rt_boost(KERNEL_FREEZE_PRIORITY);

	if (!m->work_rc)
		freeze_and_give(m);
	if (lifted)
		kernel_rt_boost(0);
}

/* Says what a pre-copy has left: programs wait for it at the target. */
static void say_left(struct move *m)
{
	const struct source_rounds *r = m->source.rounds;
	char how[RAMP_ERR_TEXT_BYTES];

	if (!r || !r->last)
		return;
	log_info("segment %" PRIu64 ": %" PRIu64 " of %" PRIu64 " pages are left to be pulled%s%s",
		 m->id, rounds_left(m), page_count(move_populated(m)),
		 r->all ? ", all of them: " : "", r->all ? r->all : "");
	if (!r->all)
		return;
	snprintf(how, sizeof(how), "all pages follow: %s", r->all);
	source_mode_add(m, how);
}

void source_given(struct move *m)
{
	if (m->work_rc) {
		/* It has grown: another attempt lists it again. */
		m->aborting.then_again = m->work_rc == -ENOSPC;
		if (!m->source.fail_code)
			source_fail(m, m->work_rc == -ETIMEDOUT ? EBUSY : -m->work_rc, "%s",
				    m->work_err.text);
		source_give_up(m);
		return;
	}
	say_left(m);
	m->source.sent_transfer = true;
	m->source.fail_code = 0;
	move_go(m, m->state, S_GIVEN);
	news_tell(m, SESSION_GAVE);
	move_forget_ranges(m);
	source_show_state(m);
	if (m->source.got_taken) { /* TAKEN came before the worker's return was handled */
		given_leave(m);
		return;
	}
	move_retry(m);
	given_look(m);
}
