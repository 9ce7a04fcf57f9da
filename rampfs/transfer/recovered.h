/*
 * Records that tell of commits which the tables do not have: those were lost with the old cluster
 * (meta/recovery.h).
 */
#ifndef RAMP_TRANSFER_RECOVERED_H
#define RAMP_TRANSFER_RECOVERED_H

#include <stdbool.h>

#include "memory/store.h"
#include "meta/meta.h"
#include "move.h"

/* Makes the command that tells the cluster of the segment's record, OWNED or TAKEN, but for its id
   (cid). */
void recovered_command(struct meta *meta, struct seg *seg, ramp_incarnation_t incarnation,
		       struct meta_command *command);
/* Returns whether the record is OWNED, and the tables lack the commits by which it became so. They
   must be as of a linearizable read (R8). row NULL: there is none. */
bool recovered_owned_is_due(struct meta *meta, struct seg *seg, const struct segment_row *row);
/* Returns whether the tables lack commits that the record TAKEN proves (R3). They must hold what
   was committed when the record was made: a command was answered since. row NULL: there is none. */
bool recovered_is_due(const struct move *m, const struct segment_row *row);

#endif
