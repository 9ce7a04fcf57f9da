/*
 * Mode copy: every page is at the target before ownership passes (stop-and-copy).
 *
 * Happy path: the source freezes the segment, as for any transfer, and its record is still OWNED.
 * It sends KEYS(k); the target, which has only reserved, pulls every page under k, then says
 * COPIED. The source records GIVEN and sends TRANSFER, and the target records TAKEN, as in any
 * mode. Programs stand still while the pages are copied, and nothing depends on the source
 * afterwards. KEYS is repeated until GIVEN, since KEYS or COPIED may be lost: a target that has
 * every page says COPIED again. Until it has, it repeats PULLED: how far the pull is.
 *
 * How it fails: before GIVEN by giving up (R4): the target refuses, or reads no page for SILENT_MS,
 * or the request is cancelled. Keys are revoked, access is given back, the prepare is aborted. The
 * target drops its copy as it drops a reservation (R2): where the source is over, or hung up and
 * the row has left k, or is silent. A copy that misses pages is refused: the source has them.
 */
#include "copy.h"

#include <errno.h>
#include <inttypes.h>

#include "base/clock.h"
#include "base/log.h"

#include "given.h"
#include "move_message.h"
#include "source_connect.h"
#include "source_window.h"
#include "target_pull.h"
#include "target_reserve.h"

#define KEYS_MS	       200u /* KEYS is repeated; PULLED as well */
#define SILENT_MS      5000u
#define SOURCE_GONE_MS 30000u

/* ---- S_COPYING ------------------------------------------------------------------------------- */

void copy_begin(struct move *m)
{
	move_go(m, S_FREEZING, S_COPYING);
	m->source.copied_pages = 0;
	m->heard_ms = clock_ms();
	source_show_state(m);
	copy_source_tick(m);
}

/* Notes that the target reads pages. That it answers would not be enough: programs wait. */
void copy_heard(struct move *m, uint64_t done_pages)
{
	if (m->state != S_COPYING || done_pages <= m->source.copied_pages)
		return;
	m->source.copied_pages = done_pages;
	m->heard_ms = clock_ms();
}

static void stopped(struct move *m)
{
	source_give_up(m);
}

void copy_stop(struct move *m)
{
	move_work(m, source_undo, stopped);
}

void copy_source_tick(struct move *m)
{
	if (m->t->closing)
		return; /* copy_close */
	if (atomic_load(&m->cancelled)) {
		if (!m->source.fail_code)
			source_fail(m, EINTR, "cancelled");
		copy_stop(m);
	} else if (clock_ms() - m->heard_ms >= SILENT_MS) {
		source_fail(m, EHOSTUNREACH, "node %s has read no page for %u s", m->peer_name,
			    SILENT_MS / 1000);
		copy_stop(m);
	} else {
		given_send(m, PROTO_KEYS);
		move_tick_in(m, KEYS_MS);
	}
}

static void on_copied(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
		      struct wire_r *body)
{
	struct move *m = move_for_verdict(arg, from, body);

	if (!m || m->t->closing || m->state != S_COPYING || m->working ||
	    incarnation != m->peer_inc)
		return;
	trace_step(m->trace, "COPIED has come");
	move_work(m, source_give, source_given);
}

/* Undoes the freeze, also one that a worker has finished since the close began. */
void copy_close(struct move *m)
{
	if (m->source.frozen_for_copy)
		source_undo(m);
}

/* ---- T_COPYING ------------------------------------------------------------------------------- */

static void copied_say(struct move *m)
{
	move_send_verdict(m->t, m->peer, PROTO_COPIED, m->id, m->k, m->epoch);
}

static void copy_refuse(struct move *m)
{
	move_send_verdict(m->t, m->peer, PROTO_REFUSED, m->id, m->k, m->epoch);
	target_drop(m);
}

static void keys_work(struct move *m)
{
	m->work_rc = m->unchanged ? 0 : target_widen(m);
	if (!m->work_rc)
		m->work_rc = target_begin_pull(m);
	m->target.pull_begun = !m->work_rc;
}

static void keys_done(struct move *m)
{
	if (m->work_rc) {
		log_warn("segment %" PRIu64 " can't be copied: %s", m->id, m->work_err.text);
		copy_refuse(m);
	} else if (atomic_load(&m->cancelled)) {
		target_drop(m);
	} else if (m->target.has_every_page) {
		copied_say(m);
		move_tick_in(m, KEYS_MS);
	} else {
		target_prefetch(m);
		move_tick_in(m, KEYS_MS);
	}
}

static void keys_come(struct move *m, const struct msg_transfer *tr)
{
	trace_step(m->trace, "KEYS have come");
	m->epoch = tr->epoch;
	m->unchanged = tr->unchanged && tr->size == m->size;
	m->size = tr->size;
	move_go(m, T_RESERVED, T_COPYING);
	m->heard_ms = clock_ms();
	move_work(m, keys_work, keys_done);
}

static void on_keys(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
		    struct wire_r *body)
{
	struct transfers *t = arg;
	struct msg_transfer tr;
	struct move *m;

	(void)incarnation;
	if (!move_decoded(body, proto_get_transfer(body, &tr)) || !t->registered || !t->started)
		return;
	m = move_for(t, from, tr.id, tr.k);
	if (!m) {
		/* R2: no such ticket is out, so k is never taken; or it was, and KEYS is late. */
		target_answer(t, from, &tr);
	} else if (m->state == T_RESERVED) {
		keys_come(m, &tr);
	} else if (m->state == T_COPYING) {
		m->heard_ms = clock_ms();
		if (m->target.has_every_page && !m->working)
			copied_say(m);
	}
}

void copy_target_tick(struct move *m)
{
	if (clock_ms() - m->heard_ms >= SOURCE_GONE_MS) {
		target_drop(m);
		return;
	}
	if (!m->target.has_every_page)
		target_send_pulled(m);
	move_tick_in(m, KEYS_MS);
}

/* Pages are lost where the source is over, or has lost them itself. */
void copy_pulled(struct move *m, uint64_t lost)
{
	if (lost && m->working) {
		atomic_store(&m->cancelled, true);
	} else if (lost) {
		copy_refuse(m);
	} else {
		m->target.has_every_page = true;
		trace_step(m->trace, "every page is here");
		if (!m->working)
			copied_say(m);
	}
}

void copy_listen(struct transfers *t)
{
	peers_on(t->peers, PROTO_KEYS, on_keys, t);
	peers_on(t->peers, PROTO_COPIED, on_copied, t);
}
