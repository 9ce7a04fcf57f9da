/*
 * Snapshots on their way into a replica, and out of it.
 */
#ifndef RAMP_META_REPLICA_SNAPSHOT_H
#define RAMP_META_REPLICA_SNAPSHOT_H

#include "replica_core.h"

void snapshot_free_staging(struct staging *s);
int snapshot_step_piece(struct replica *p, const struct raft_event *event);
void snapshot_drop_staging(struct replica *p);
void snapshot_want_dumps(struct replica *p);
void snapshot_tend_dumps(struct replica *p);
bool snapshot_fill_piece(struct replica *p, struct raft_message *m);

#endif
