/*
 * The source's end at ACCEPT, and the target's verdicts. (Before it: source_connect.c. After it:
 * source_rounds.c in mode precopy, source_prepare.c, given.c.)
 *
 * Happy path: ACCEPT makes the source propose prepare(k), at once or when its client says
 * so (source_hold.c). When it is committed, and the source's
 * own tables show it, programs are asked (departure.c), and a worker goes through the window (source_window.c): GIVEN is recorded and
 * TRANSFER sent. TAKEN comes, programs are told, and given.c does the rest.
 *
 * How it fails: before GIVEN by giving up: the worker's call that froze the segment thaws it, and a
 * prepare that was committed is aborted (R4). From GIVEN on by the target's REFUSED(k), or by proof
 * that its incarnation is over: abort(k) is proposed, and the segment is served again when the
 * tables show this node as its owner (R5). Nothing else takes it back, and no lapse of time does.
 */
#include "source.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"

#include "copy.h"
#include "departure.h"
#include "given.h"
#include "move_message.h"
#include "move_request_core.h"
#include "source_close.h"
#include "source_connect.h"
#include "source_hold.h"
#include "source_prefill.h"
#include "source_prepare.h"
#include "source_rounds.h"
#include "source_weigh.h"

/* ---- S_CONNECTING: ACCEPT -------------------------------------------------------------------- */

/* The client wants it closed to stores, or read ahead. */
static void closes_nothing(struct move *m)
{
	source_fail(m, EOPNOTSUPP,
		    "only in mode precopy a segment is closed to stores, not in mode %s",
		    transfer_mode_name(m->source.mode));
	hold_end(m);
}

static void source_on_accept(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			     struct wire_r *body)
{
	struct transfers *t = arg;
	struct msg_accept a;
	struct move *m;

	if (!move_decoded(body, proto_get_accept(body, &a)))
		return;
	m = move_for_source_id(t, from, a.id, a.source_id);
	/* Once this daemon closes, nothing would end the move that an ACCEPT begins: the row would
	   stay MOVING until the next daemon. */
	if (!m || t->closing || m->state != S_CONNECTING || a.dst_inc != incarnation)
		return;
	trace_step(m->trace, "ACCEPT has come");
	if (!m->source.times.connect_us)
		m->source.times.connect_us = clock_us() - m->source.times.from_us;
	m->k.ticket = a.ticket;
	m->peer_inc = a.dst_inc;
	if (!hold_lets(m, SESSION_READ_AHEAD))
		hold_connected(m);
	else if (!hold_lets(m, SESSION_PREPARED) && !m->source.precopy_mode)
		closes_nothing(m);
	else if (m->source.mode == TRANSFER_AUTO)
		source_weigh(m);
	else if (m->source.precopy_mode)
		source_rounds_begin(m);
	else
		source_prepare(m);
}

/* The target may have been away: what it has kept in memory for the move is gone then. */
void source_go(struct move *m)
{
	bool up = peer_up(m->t->peers, m->peer);

	if (m->state >= S_READ_AHEAD && m->state <= S_CLOSED) {
		source_close_go(m);
	} else if (m->state == S_CONNECTED && hold_lets(m, SESSION_READ_AHEAD)) {
		loop_rt_boost(m->t->loop, WINDOW_MS);
		if (!hold_fits(m))
			source_again(m, S_CONNECTED);
		else if (!up)
			source_connect_again(m);
		else if (m->source.precopy_mode)
			source_rounds_begin(m);
		else if (!hold_lets(m, SESSION_PREPARED))
			closes_nothing(m);
		else
			source_prepare(m);
	} else if (m->state == S_PREPARED && !m->working && hold_lets(m, SESSION_TAKEN)) {
		loop_rt_boost(m->t->loop, WINDOW_MS);
		if (up)
			source_depart(m);
		else
			hold_again(m);
	}
}

/* ---- S_FREEZING to S_LEFT: the target's verdicts --------------------------------------------- */

/* The target has reserved, and reads or has read. */
static bool reads_ahead(const struct move *m)
{
	return m->state >= S_ROUNDS && m->state <= S_CLOSED;
}

/* The move that a verdict is on, where nothing else has decided it yet; or NULL. */
static struct move *verdict_on(struct transfers *t, ramp_node_t from, struct wire_r *body)
{
	struct move *m = move_for_verdict(t, from, body);

	if (!m || (!reads_ahead(m) && m->state != S_FREEZING && m->state != S_COPYING &&
		   m->state != S_GIVEN))
		return NULL;
	return m;
}

static void source_on_taken(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			    struct wire_r *body)
{
	struct move *m = verdict_on(arg, from, body);

	(void)incarnation;
	if (!m || reads_ahead(m))
		return;
	trace_step(m->trace, "TAKEN has come, the window is closed");
	given_window(m);
	m->source.got_taken = true;
	if (m->request && m->request->spec.in_steps && !m->request->spec.wait_stable)
		move_answer(m, 0, "");
	if (m->state == S_GIVEN && !m->working)
		given_leave(m);
}

/* The target's tables show it as the owner. Ours may not yet. */
static void source_on_listed(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			     struct wire_r *body)
{
	struct move *m = move_for_verdict(arg, from, body);

	(void)incarnation;
	if (!m)
		return;
	m->source.got_listed = true;
	move_look(m->t, m->id);
}

/* R5: the target's own word that it never took k and never will. Only the incarnation that was
   asked can say so: a later one does not know what that one did, and proof that it is over
   decides. */
static void source_on_refused(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			      struct wire_r *body)
{
	struct move *m = verdict_on(arg, from, body);

	if (!m || incarnation != m->peer_inc || m->source.got_taken)
		return;
	m->source.got_refused = !reads_ahead(m); /* the source repeats ROUND */
	if ((m->state == S_ROUNDS || m->state == S_RESTING) && !m->working) {
		source_rounds_refused(m);
	} else if (reads_ahead(m) && !m->working) {
		source_fail(m, EIO, "node %s gave the pre-copy up", m->peer_name);
		source_close_stop(m);
	}
	if (m->state == S_COPYING && !m->working) {
		source_fail(m, EIO, "node %s could not copy every page", m->peer_name);
		copy_stop(m);
	}
	if (m->state == S_GIVEN)
		move_look(m->t, m->id);
}

static void source_on_pulled(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			     struct wire_r *body)
{
	struct msg_pulled p;
	struct move *m;

	(void)incarnation;
	if (!move_decoded(body, proto_get_pulled(body, &p)))
		return;
	m = move_for(arg, from, p.id, p.k);
	if (!m)
		return;
	copy_heard(m, p.done_pages);
	source_rounds_heard(m, p.done_pages);
	if (m->request)
		move_request_progress(m->request, p.done_pages, p.all_pages,
				      m->state == S_COPYING ? "copying"
				      : reads_ahead(m)	    ? move_state_name(m->state)
							    : "pulling");
}

void source_tick(struct move *m)
{
	if (m->working)
		return;
	if (m->state == S_CONNECTING)
		source_connecting_tick(m);
	else if (m->state == S_CONNECTED || m->state == S_PREPARED)
		hold_tick(m);
	else if (m->state == S_WEIGHING)
		source_weigh_tick(m);
	else if (m->state == S_ROUNDS)
		source_rounds_tick(m);
	else if (m->state == S_RESTING)
		source_prefill_tick(m);
	else if (reads_ahead(m))
		source_close_tick(m);
	else if (m->state == S_ASKING)
		departure_tick(m);
	else if (m->state == S_COPYING)
		copy_source_tick(m);
	else
		given_tick(m);
}

void source_look(struct move *m)
{
	if (m->state == S_CONNECTING)
		source_connecting_look(m);
	else if (m->state == S_CONNECTED)
		hold_look(m);
	else if (m->state == S_QUIESCING)
		source_close_look(m);
	else if (m->state == S_WEIGHING || (reads_ahead(m) && m->state != S_RESTING))
		source_rounds_look(m);
	else if (m->state == S_ASKING)
		departure_look(m);
	else if (m->state == S_GIVEN || m->state == S_LEFT || m->state == S_ROLLED_BACK)
		given_look(m);
}

/* ---- cancelling ------------------------------------------------------------------------------ */

bool source_past_return(const struct move *m)
{
	return m->state >= S_GIVEN && m->state <= S_REVERTING;
}

bool source_cancel(struct move *m, int code, const char *text)
{
	switch (m->state) {
	case S_CONNECTING:
		/* A refusal that was only "not yet" says more than a time-out. */
		if (code == EINTR || !m->source.fail_code)
			source_fail(m, code, "%s", text);
		source_say_close(m);
		source_fail_now(m);
		return true;
	case S_CONNECTED:
	case S_PREPARED:
		source_fail(m, code, "%s", text);
		hold_end(m);
		return true;
	case S_CHECKING:
	case S_PREPARING:
	case S_FREEZING:
		/* It ends when the worker returns or the proposal is answered. */
		source_fail(m, code, "%s", text);
		atomic_store(&m->cancelled, true);
		return true;
	case S_WEIGHING:
	case S_ROUNDS:
	case S_RESTING:
	case S_READ_AHEAD:
	case S_QUIESCING:
	case S_CLOSING:
	case S_CLOSED:
		if (source_prefill_leave(m, code, text))
			return true;
		source_fail(m, code, "%s", text);
		if (m->working)
			atomic_store(&m->cancelled, true);
		else
			source_rounds_stop(m);
		return true;
	case S_ASKING:
		source_fail(m, code, "%s", text);
		m->aborting.then_again = false;
		if (!m->working)
			departure_stop(m);
		return true;
	case S_COPYING:
		source_fail(m, code, "%s", text);
		if (m->working) /* it returns as in S_FREEZING */
			atomic_store(&m->cancelled, true);
		else
			copy_stop(m);
		return true;
	case ABORTING:
		if (m->aborting.then_again) {
			source_fail(m, code, "%s", text);
			transfers_count(m->t, &m->t->status.failed);
		}
		m->aborting.then_again = false;
		return true;
	default:
		return false;
	}
}

void source_listen(struct transfers *t)
{
	peers_on(t->peers, PROTO_ACCEPT, source_on_accept, t);
	peers_on(t->peers, PROTO_TAKEN, source_on_taken, t);
	peers_on(t->peers, PROTO_REFUSED, source_on_refused, t);
	peers_on(t->peers, PROTO_PULLED, source_on_pulled, t);
	peers_on(t->peers, PROTO_LISTED, source_on_listed, t);
}
