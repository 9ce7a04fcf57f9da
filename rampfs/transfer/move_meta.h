/*
 * What moves ask of the metadata: proposals and linearizable reads. Answers come on the control
 * loop, and only where the move is still there.
 */
#ifndef RAMP_MOVE_META_H
#define RAMP_MOVE_META_H

#include "move.h"

typedef void move_proposed(struct move *m, const struct meta_reply *reply);

/* Proposes `command` for the move's segment and attempt; m->proposing until `done` is called. */
void move_propose(struct move *m, struct meta_command *command, move_proposed *done);
/* Proposes abort(k), unless a proposal is under way; then the move is looked at again. */
void move_propose_abort(struct move *m, enum meta_proof proof);
/* Reads linearizably, once, then looks at the move again with m->synced set. */
void move_sync(struct move *m);

#endif
