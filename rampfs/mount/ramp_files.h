/*
 * .ramp: what the node knows, as text.
 */
#ifndef RAMP_RAMP_FILES_H
#define RAMP_RAMP_FILES_H

#include "libfuse.h"
#include "mount_ref.h"

int ramp_files_open(struct mount *m, struct ramp_err *err);
void ramp_files_close(struct mount *m);
/* The fh of an open of one of .ramp's files: no two are the same, whichever daemon gave them. */
uint64_t ramp_files_fh(void);
/* Answers a read of it. The text is made when it is read from its beginning. */
void ramp_files_read(fuse_req_t req, fuse_ino_t ino, uint64_t fh, size_t size, uint64_t offset);
void ramp_files_released(struct mount *m, uint64_t fh);

#endif
