/*
 * Messages about moves: sends the small ones, and finds the move that a message is about.
 */
#include "move_message.h"

void move_send_verdict(struct transfers *t, ramp_node_t to, uint8_t type, ramp_segment_t id,
		       struct ramp_attempt k, uint64_t epoch)
{
	struct msg_verdict v = {.id = id, .k = k, .epoch = epoch};

	MOVE_SEND(t, to, type, proto_put_verdict, &v);
}

bool move_decoded(struct wire_r *body, int rc)
{
	if (rc)
		body->bad = true;
	return rc == 0;
}

struct move *move_with(struct transfers *t, ramp_node_t from, ramp_segment_t id)
{
	struct move *m = move_find(t, id);

	return m && m->peer == from ? m : NULL;
}

struct move *move_for(struct transfers *t, ramp_node_t from, ramp_segment_t id,
		      struct ramp_attempt k)
{
	struct move *m = move_with(t, from, id);

	return m && ramp_attempt_equal(m->k, k) ? m : NULL;
}

struct move *move_for_source_id(struct transfers *t, ramp_node_t from, ramp_segment_t id,
				uint64_t source_id)
{
	struct move *m = move_with(t, from, id);

	return m && m->k.source_id == source_id ? m : NULL;
}

struct move *move_for_verdict(struct transfers *t, ramp_node_t from, struct wire_r *body)
{
	struct msg_verdict v;

	if (!move_decoded(body, proto_get_verdict(body, &v)))
		return NULL;
	return move_for(t, from, v.id, v.k);
}
