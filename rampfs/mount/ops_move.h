/*
 * A rename to another node's directory: the migration.
 */
#ifndef RAMP_OPS_MOVE_H
#define RAMP_OPS_MOVE_H

#include "libfuse.h"

/* Moves the segment and replies with the result. The names are not too long. */
void rename_to_node(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
		    const char *newname);

#endif
