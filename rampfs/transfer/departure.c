/*
 * Programs that are asked before a segment leaves (ramp_departure(3)).
 *
 * Happy path: programs hear ASKED when the move begins (of a move in steps: when it is to leave), and
 * ALL_READY when all that takes long is done: the row is MOVING by then. Each lets go of the segment
 * between two of its operations and says QUIESCED; the last one begins the freeze. Of two steps both are told before the
 * segment is closed to stores (source_close.c), since a program that waits in a store has no end of its operation;
 * at the hand-over those are asked that have mapped it since.
 *
 * How it fails: a program that has not answered within the bound is named, and the move is given up
 * (R4: nothing is frozen yet). A program that ends has answered. A target that was away meanwhile may
 * have lost the reservation: another attempt follows. A daemon that dies leaves a row to be aborted, as
 * in S_PREPARING.
 */
#include "departure.h"

#include <errno.h>

#include "base/clock.h"

#include "move_request_core.h"
#include "news.h"
#include "source_connect.h"

static bool is_forced(const struct move *m)
{
	return m->request && m->request->spec.force;
}

void departure_stop(struct move *m)
{
	if (m->source.rounds)
		move_work(m, source_end_rounds, source_give_up);
	else
		source_give_up(m);
}

static void departure_again(struct move *m)
{
	source_fail(m, EHOSTUNREACH, "node %s was away after it had been prepared", m->peer_name);
	m->aborting.then_again = true;
	departure_stop(m);
}

bool departure_awaits(const struct move *m)
{
	char name[PROGRAMS_KEEPER];

	return !is_forced(m) && programs_unanswered(m->t->programs, m->id, name);
}

bool departure_ask(struct move *m)
{
	news_ask(m); /* and those that have mapped it meanwhile */
	if (!m->source.was_closed || departure_awaits(m))
		news_tell(m, SESSION_ALL_READY);
	m->source.times.from_us = clock_us();
	return departure_awaits(m);
}

void departure_note(struct move *m)
{
	m->source.times.asked_us += clock_us() - m->source.times.from_us;
}

void departure_unanswered(struct move *m)
{
	char name[PROGRAMS_KEEPER];

	programs_unanswered(m->t->programs, m->id, name);
	source_fail(m, EBUSY, "%s was asked to let go of it, and has not answered for %u ms", name,
		    m->t->config.quiesce_ms);
}

/* Nothing is frozen for a target that is down. */
static void depart(struct move *m)
{
	if (!peer_up(m->t->peers, m->peer)) {
		departure_again(m);
		return;
	}
	departure_note(m);
	loop_rt_boost(m->t->loop, WINDOW_MS);
	m->source.then(m);
}

void departure_look(struct move *m)
{
	if (!departure_awaits(m))
		depart(m);
}

void departure_wait(struct move *m, move_fn *then)
{
	bool awaits = departure_ask(m);

	m->source.then = then;
	move_go(m, m->state, S_ASKING);
	if (!awaits) {
		then(m);
		return;
	}
	source_show_state(m);
	trace_step(m->trace, "programs are asked to let go of it");
	move_tick_in(m, m->t->config.quiesce_ms);
}

/* While the timer is active, it is called because the target is connected again. */
void departure_tick(struct move *m)
{
	if (uv_is_active((uv_handle_t *)&m->timer)) {
		departure_again(m);
	} else if (!departure_awaits(m)) {
		depart(m);
	} else {
		departure_unanswered(m);
		departure_stop(m);
	}
}
