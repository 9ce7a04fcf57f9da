/*
 * The files of .ramp: the state of the node, as text.
 */
#ifndef RAMP_RAMP_FILES_H
#define RAMP_RAMP_FILES_H

#include "libfuse.h"
#include "mount_ref.h"

int ramp_files_open(struct mount *m, struct ramp_err *err);
void ramp_files_close(struct mount *m);
/* Returns the fh for an open of one of .ramp's files: each is different, also from those of other
   daemons. */
uint64_t ramp_files_fh(void);
/* Answers a read of such an open. The text is made when it is read from its beginning. */
void ramp_files_read(fuse_req_t req, fuse_ino_t ino, uint64_t fh, size_t size, uint64_t offset);
void ramp_files_released(struct mount *m, uint64_t fh);

#endif
