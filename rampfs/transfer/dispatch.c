/*
 * From a segment to the end that has it.
 *
 * Happy path: whatever happens to a segment (a message, a worker that comes back, an answered
 * proposal, a changed row, a restart) ends in dispatch_look, which hands its move to the source's
 * or the target's end; where there is no move, the record beside the bytes begins one (R8).
 *
 * How it fails: a row that is MOVING or PULLING in an attempt that no end has under way any more is
 * aborted, by the node that may prove it (R4, R6): that is the state ABORTING.
 */
#include "dispatch.h"

#include <errno.h>

#include "given.h"
#include "move_meta.h"
#include "move_request_core.h"
#include "news.h"
#include "source.h"
#include "source_connect.h"
#include "target.h"

/* ABORTING: proposes abort(k) until the row is not in k any more (R4, R6). */
static void aborting_look(struct move *m)
{
	struct segment_row row;
	int rc = meta_segment(m->t->meta, m->id, &row);

	if (m->proposing)
		return;
	if (rc == 0 && row_in_attempt(&row, m->k)) {
		move_propose_abort(m, m->aborting.proof);
		return;
	}
	if (rc && rc != -ENOENT) {
		move_retry(m);
		return;
	}
	if (rc == 0 && m->aborting.then_again && m->request && row.phase == SEGMENT_STABLE &&
	    row.node == m->t->self) {
		source_again(m, ABORTING);
		return;
	}
	/* No other attempt follows after all; source_give_up has not counted this failure. */
	if (m->aborting.then_again)
		transfers_count(m->t, &m->t->status.failed);
	if (m->seg) /* else it was an earlier daemon's, which has told nothing to this one's */
		news_tell(m, SESSION_FAILED);
	move_answer(m, -m->source.fail_code, m->source.fail_text);
	move_end(m);
}

static void begin_abort(struct transfers *t, const struct segment_row *row, enum meta_proof proof)
{
	struct move *m = move_new(t, row->id, NULL);

	if (!m)
		return;
	m->k = row->k;
	m->epoch = row->k_epoch;
	m->aborting.proof = proof;
	m->peer = row->phase == SEGMENT_MOVING ? row->dst : row->node;
	m->peer_inc = row->phase == SEGMENT_MOVING ? row->dst_inc : row->node_inc;
	move_go(m, MOVE_NEW, ABORTING);
	aborting_look(m);
}

/* Aborts the attempt of a row in MOVING or PULLING that has no move here, where this node may. */
static void sweep(struct transfers *t, const struct segment_row *row, const struct record *record)
{
	bool moving = row->phase == SEGMENT_MOVING;
	ramp_node_t src = moving ? row->node : row->src, dst = moving ? row->dst : row->node;
	ramp_incarnation_t src_inc = moving ? row->node_inc : row->src_inc;
	ramp_incarnation_t dst_inc = moving ? row->dst_inc : row->node_inc;

	if (!t->registered) /* R1 */
		return;
	/* R4: OWNED, and k is not under way. */
	if (moving && src == t->self && src_inc == t->incarnation && record->kind == RECORD_OWNED)
		begin_abort(t, row, PROOF_NONE);
	/* R6: the source is over, and we have not taken k. */
	else if (moving && dst == t->self && dst_inc == t->incarnation &&
		 !(record->kind == RECORD_TAKEN && ramp_attempt_equal(record->k, row->k)) &&
		 move_node_over(t, src, src_inc))
		begin_abort(t, row, PROOF_REFUSED);
	/* R6: both are over. */
	else if (move_node_over(t, src, src_inc) && move_node_over(t, dst, dst_inc))
		begin_abort(t, row, PROOF_OVER);
}

static void look_without_move(struct transfers *t, ramp_segment_t id)
{
	struct seg *seg = store_find(t->store, id);
	struct record record = {.kind = RECORD_NONE};
	struct segment_row row;

	if (seg && seg_damaged(seg)) { /* its record can't be read, so nothing is proved */
		seg_put(seg);
		return;
	}
	if (seg)
		record_get(seg, &record);
	if (seg && record.kind == RECORD_GIVEN) {
		given_take_up(t, seg, &record);
		return;
	}
	if (seg && record.kind == RECORD_TAKEN) {
		target_take_up(t, seg, &record);
		return;
	}
	if (seg)
		seg_put(seg);
	if (meta_segment(t->meta, id, &row) == 0 &&
	    (row.phase == SEGMENT_MOVING || row.phase == SEGMENT_PULLING))
		sweep(t, &row, &record);
}

void dispatch_look(struct transfers *t, ramp_segment_t id)
{
	struct move *m = move_find(t, id);

	if (t->closing)
		return;
	if (!m)
		look_without_move(t, id);
	else if (m->working)
		m->look_again = true;
	else if (m->state == ABORTING)
		aborting_look(m);
	else if (m->state >= T_RESERVING)
		target_look(m);
	else
		source_look(m);
}

void dispatch_tick(struct move *m)
{
	if (m->state >= T_RESERVING)
		target_tick(m);
	else if (m->state == ABORTING)
		dispatch_look(m->t, m->id);
	else
		source_tick(m);
}
