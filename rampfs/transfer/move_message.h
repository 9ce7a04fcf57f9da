/*
 * Messages about moves: sends the small ones, and finds the move that a message is about.
 */
#ifndef RAMP_MOVE_MESSAGE_H
#define RAMP_MOVE_MESSAGE_H

#include "move.h"

/* Sends one small message of proto.h, written by its encoder `put`. */
#define MOVE_SEND(t, to, type, put, msg)                                                           \
	do {                                                                                       \
		uint8_t buf_[PROTO_SMALL_BYTES];                                                   \
		struct wire_w w_;                                                                  \
                                                                                                   \
		wire_w_init(&w_, buf_, sizeof(buf_));                                              \
		put(&w_, msg);                                                                     \
		peer_send((t)->peers, to, type, buf_, w_.len);                                     \
	} while (0)
/* Sends TAKEN, REFUSED, CLOSE, LISTED or COPIED: a verdict on the attempt k. */
void move_send_verdict(struct transfers *t, ramp_node_t to, uint8_t type, ramp_segment_t id,
		       struct ramp_attempt k, uint64_t epoch);

/* Returns false, and counts the message as malformed, where its decoder returned an error `rc`. */
bool move_decoded(struct wire_r *body, int rc);
/* The move of that segment whose other end is `from`; NULL: none. */
struct move *move_with(struct transfers *t, ramp_node_t from, ramp_segment_t id);
/* The same, where it is the attempt k. */
struct move *move_for(struct transfers *t, ramp_node_t from, ramp_segment_t id,
		      struct ramp_attempt k);
/* The same by the first half of k, which is all that a source knows before ACCEPT. */
struct move *move_for_source_id(struct transfers *t, ramp_node_t from, ramp_segment_t id,
				uint64_t source_id);
/* Decodes a verdict; the move of its attempt, or NULL. */
struct move *move_for_verdict(struct transfers *t, ramp_node_t from, struct wire_r *body);

#endif
