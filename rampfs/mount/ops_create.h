/*
 * Handler of create, and what it shares with ops_alloc.c.
 */
#ifndef RAMP_OPS_CREATE_H
#define RAMP_OPS_CREATE_H

#include "libfuse.h"
#include "meta/meta.h"

/* Makes a segment of the caller in a node's directory, and answers. what: flags, and attr but for its
   owner. fi: as an open of it; NULL: with the result alone, and the name must be free. */
void create_segment(fuse_req_t req, fuse_ino_t parent, const char *name,
		    const struct meta_command *what, const struct fuse_file_info *fi);
void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi);

#endif
