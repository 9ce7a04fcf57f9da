/*
 * Snapshots on their way into a replica, and out of it.
 */
#ifndef RAMP_META_REPLICA_SNAPSHOT_H
#define RAMP_META_REPLICA_SNAPSHOT_H

#include "replica_core.h"

void snapshot_free_staging(struct staging *s);
/* Steps the core with a piece (RAFT_SNAPSHOT) and keeps its bytes where the core wants them.
   Returns the event's result, or -EIO: no memory for them. */
int snapshot_step_piece(struct replica *p, const struct raft_event *event);
/* Frees bytes that are of no more use. A snapshot is as large as the tables: its bytes go once it
   is installed, or once the log has come as far without it. */
void snapshot_drop_staging(struct replica *p);

/* Notes the dumps that the core's actions ask for. */
void snapshot_want_dumps(struct replica *p);
/* Opens the dumps that are wanted and ends those that are not, or are lost. Called after the commit
   and PERSISTED, so that a dump holds exactly what the core has applied. */
void snapshot_tend_dumps(struct replica *p);
/* Fills bytes, len and done of an outgoing RAFT_SNAPSHOT. Returns false where its dump is not
   there: the message is not sent then. */
bool snapshot_fill_piece(struct replica *p, struct raft_message *m);

#endif
