/*
 * .ramp: what the node knows, as text.
 */
#ifndef RAMP_VIEW_H
#define RAMP_VIEW_H

#include "mnt.h"

int view_open(struct mount *m, struct ramp_err *err);
void view_close(struct mount *m);
/* Answers a read of one of .ramp's files. The text is made when it is read from its beginning. */
void view_read(fuse_req_t req, fuse_ino_t ino, size_t size, uint64_t offset);

/* "stable", "moving", ... as user.ramp.state and status say it. `owner` is row->node's row; NULL:
   there is none. */
const char *view_state(struct mount *m, const struct segment_row *row,
		       const struct node_row *owner);

#endif
