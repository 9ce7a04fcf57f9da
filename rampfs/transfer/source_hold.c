/*
 * The source's end while it waits for its client, after a step of a move that is made in steps.
 *
 * Happy path: S_CONNECTED: the target keeps room; CONNECT is repeated now and then, and its ACCEPT
 * has the ticket that counts, also after the target's daemon has begun again (R2). S_PREPARED: the
 * row is MOVING(k), and nothing is frozen. In both states programs load and store. The client says
 * how far the move may go, and source_go continues.
 *
 * How it fails: the time of the client is over, or it has exited, or gives up: CONNECTED ends,
 * PREPARED is aborted (R4). A row that changes, a segment that has outgrown the target's room and a
 * target that was away after the prepare call for another attempt, whose steps the client has asked
 * for already. A daemon that dies leaves what it left before: the record is OWNED, and the next
 * daemon aborts a prepare that was committed.
 */
#include "source_hold.h"

#include <errno.h>

#include "base/clock.h"
#include "memory/reserve.h"

#include "move_request_core.h"
#include "rounds.h"
#include "source_connect.h"

#define CONNECTED_MS	   30000u  /* where the client does not say for how long */
#define CONNECTED_MAX_MS   600000u /* in all */
#define CONNECTED_AGAIN_MS 10000u  /* the target's reservation lives for three times as long */
#define PREPARED_MS	   5000u   /* the row can't be changed meanwhile */

bool hold_lets(const struct move *m, enum session_step step)
{
	const struct move_request *req = m->request;

	return !req || !req->spec.in_steps || req->step >= step;
}

static uint32_t left_ms(const struct move_request *req)
{
	uint64_t now = clock_ms();

	return req->held_until_ms > now ? (uint32_t)(req->held_until_ms - now) : 0;
}

static enum session_step reached(const struct move *m)
{
	if (m->state == S_READ_AHEAD || m->state == S_QUIESCING)
		return SESSION_READ_AHEAD;
	if (m->state == S_CLOSED)
		return m->source.rounds->whole ? SESSION_ALL_READ : SESSION_WRITES_CLOSED;
	return m->state == S_PREPARED ? SESSION_PREPARED : SESSION_CONNECTED;
}

void hold_tell(struct move *m)
{
	struct move_request *req = m->request;

	req->spec.held(req->arg, reached(m), left_ms(req));
}

static void wait_on(struct move *m)
{
	uint32_t ms = left_ms(m->request);

	move_tick_in(m,
		     m->state == S_CONNECTED && ms > CONNECTED_AGAIN_MS ? CONNECTED_AGAIN_MS : ms);
}

static void set_time(struct move_request *req, uint32_t ms)
{
	uint64_t last_ms = req->held_since_ms + CONNECTED_MAX_MS;

	req->held_until_ms = clock_ms() + (ms ? ms : CONNECTED_MS);
	if (req->held_until_ms > last_ms)
		req->held_until_ms = last_ms;
}

bool hold_is_over(const struct move *m)
{
	return !m->request || !left_ms(m->request);
}

void hold_restart(struct move *m)
{
	struct move_request *req = m->request;

	if (!req->held_since_ms)
		req->held_since_ms = clock_ms();
	set_time(req, req->spec.hold_ms);
	hold_tell(m);
}

void hold_connected(struct move *m)
{
	struct move_request *req = m->request;
	bool first = !req->held_since_ms;

	move_go(m, S_CONNECTING, S_CONNECTED);
	m->source.attempts = 0;
	if (first) {
		req->held_since_ms = clock_ms();
		set_time(req, req->spec.hold_ms);
		hold_tell(m);
	}
	source_show_state(m);
	wait_on(m);
}

void hold_prepared(struct move *m)
{
	move_go(m, S_PREPARING, S_PREPARED);
	m->request->held_until_ms = clock_ms() + PREPARED_MS;
	hold_tell(m);
	source_show_state(m);
	wait_on(m);
}

void hold_extend(struct move *m, uint32_t ms)
{
	struct move_request *req = m->request;

	if (!req->held_since_ms || m->state > S_PREPARED)
		return; /* it is told when it is connected, or how it ends */
	if (req->step < SESSION_PREPARED)
		set_time(req, ms);
	if (m->state == S_CONNECTED || m->state == S_PREPARED)
		wait_on(m);
	hold_tell(m);
}

bool hold_fits(struct move *m)
{
	uint64_t grown = 0;

	seg_layout_changed(m->seg, &grown);
	return grown <= m->slack_bytes;
}

/* Aborts what was prepared. Where the target has read ahead the watch of stores ends first, once. */
static void give_up_prepared(struct move *m)
{
	if (!m->source.rounds)
		source_give_up(m);
	else if (!m->working)
		move_work(m, source_end_rounds, source_give_up);
}

void hold_end(struct move *m)
{
	if (m->state == S_PREPARED) {
		m->aborting.then_again = false;
		give_up_prepared(m);
		return;
	}
	source_say_close(m);
	source_fail_now(m);
}

void hold_again(struct move *m)
{
	source_fail(m, EHOSTUNREACH, "node %s was away after it had been prepared", m->peer_name);
	m->aborting.then_again = true;
	give_up_prepared(m);
}

/* R3: prepare compares the row's epoch, so an attempt at an older row is of no use. */
void hold_look(struct move *m)
{
	struct segment_row row;
	int rc = meta_segment(m->t->meta, m->id, &row);

	if (m->state != S_CONNECTED || (rc && rc != -ENOENT))
		return;
	if (rc || row.unlinked || row.phase == SEGMENT_ORPHAN) {
		source_fail(m, ENOENT, "it was unlinked");
		hold_end(m);
	} else if (row.phase == SEGMENT_MOVING) {
		source_prepare_late(m);
	} else if (row.epoch != m->row_epoch) {
		source_say_close(m);
		source_again(m, S_CONNECTED);
	}
}

/* Before its time is over a prepared move is called here because the target is connected again: its
   daemon may have begun again, and then it has no reservation. */
void hold_tick(struct move *m)
{
	if (!m->request || !left_ms(m->request)) {
		source_fail(m, ETIMEDOUT, "it was held for too long");
		hold_end(m);
	} else if (m->state == S_PREPARED) {
		hold_again(m);
	} else {
		source_connect_again(m);
	}
}
