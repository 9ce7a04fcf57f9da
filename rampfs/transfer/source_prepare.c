/*
 * The source's end at prepare.
 *
 * Happy path: prepare(k) is proposed. When it is committed, and the source's own tables show it, programs
 * that want to be asked let go of the segment (departure.c), and a worker goes through the window
 * (source_window.c).
 *
 * How it fails: a prepare that was refused changes nothing: the request is answered, or begins again.
 * One that was committed, while the request was cancelled, is aborted (R4).
 */
#include "source_prepare.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"

#include "copy.h"
#include "departure.h"
#include "move_meta.h"
#include "source_connect.h"
#include "source_hold.h"
#include "source_line.h"
#include "source_window.h"

static void prepare_failed_now(struct move *m)
{
	int result = m->source.prepare_result;

	if (atomic_load(&m->cancelled) && m->source.fail_code) { /* answered as cancelled */
		source_say_close(m);
		source_fail_now(m);
		return;
	}
	if (result == -EBUSY && !atomic_load(&m->cancelled)) { /* the row is MOVING in another k */
		source_prepare_late(m);
		return;
	}
	switch (result) {
	case -ESTALE: /* the row has changed since its epoch was read */
		source_say_close(m);
		source_again(m, S_PREPARING);
		return;
	case -EEXIST:
		source_fail(m, EEXIST, "node %s has something of that name", m->peer_name);
		break;
	case -EHOSTDOWN:
		source_fail(m, EHOSTUNREACH, "node %s does not take part", m->peer_name);
		break;
	case -EROFS:
	case -ETIMEDOUT: /* if it is committed later, the sweep aborts it (R4) */
		source_fail(m, EROFS, "no quorum: the cluster can't agree on the move now");
		break;
	default:
		source_fail(m, -result, "the cluster refused the move: %s", strerror(-result));
	}
	source_say_close(m);
	source_fail_now(m);
}

/* The watch of stores ends first. */
static void prepare_failed(struct move *m, int result)
{
	m->source.prepare_result = result;
	if (m->source.rounds)
		move_work(m, source_end_rounds, prepare_failed_now);
	else
		prepare_failed_now(m);
}

static void prepared_cancelled(struct move *m)
{
	if (!m->source.fail_code)
		source_fail(m, EINTR, "cancelled");
	source_give_up(m);
}

static void frozen(struct move *m)
{
	if (m->source.copy_mode && !m->work_rc)
		copy_begin(m);
	else
		source_given(m);
}

static void freeze(struct move *m)
{
	move_go(m, S_ASKING, S_FREEZING);
	if (m->queues && !m->source.rounds && !m->source.copy_mode)
		source_line_join(m, frozen);
	else
		move_work(m, source_freeze_work, frozen);
}

void source_depart(struct move *m)
{
	departure_wait(m, freeze);
}

/* R3: the source continues only where the committed prepare is its own attempt's, in the daemon
   life that proposed it. */
static void prepared(struct move *m, const struct meta_reply *reply)
{
	struct segment_row row;
	int rc = reply->result;

	if (m->state != S_PREPARING)
		return;
	if (rc == 0)
		rc = meta_segment(m->t->meta, m->id, &row);
	if (rc == 0 && !(row.phase == SEGMENT_MOVING && ramp_attempt_equal(row.k, m->k)))
		rc = -ESTALE;
	if (rc) {
		prepare_failed(m, rc);
		return;
	}
	m->epoch = row.k_epoch;
	trace_step(m->trace, "prepare is committed");
	m->source.times.prepare_us = clock_us() - m->source.times.from_us;
	if (atomic_load(&m->cancelled) && m->source.rounds) {
		move_work(m, source_end_rounds, prepared_cancelled);
		return;
	}
	if (atomic_load(&m->cancelled)) {
		prepared_cancelled(m);
		return;
	}
	if (hold_lets(m, SESSION_TAKEN))
		source_depart(m);
	else
		hold_prepared(m);
}

/* R3: prepare carries (epoch, k) and both incarnations (R1). */
void source_prepare(struct move *m)
{
	struct meta_command command = {
		.type = META_PREPARE,
		.epoch = m->row_epoch,
		.node = m->peer,
		.node_inc = m->peer_inc,
		.src = m->t->self,
		.src_inc = m->t->incarnation,
	};

	loop_rt_boost(m->t->loop, WINDOW_MS);
	memcpy(command.new_name, m->name, sizeof(command.new_name));
	m->source.fail_code = 0;
	if (m->state == S_ROUNDS)
		m->source.times.rounds_us = clock_us() - m->source.times.from_us;
	m->source.times.from_us = clock_us();
	move_go(m, m->state, S_PREPARING);
	source_show_state(m);
	move_propose(m, &command, prepared);
}
