/*
 * Mappings without the shim: opens of a segment whose user.ramp.mmap is `passthrough`.
 *
 * Such an open is answered FOPEN_DIRECT_IO|FOPEN_PASSTHROUGH with a backing id of the store's file:
 * reads and writes still reach the daemon, and mmap(2) maps the segment's very pages. Such a
 * mapping can't be taken away, so a segment that has one does not move.
 */
#ifndef RAMP_PASSTHROUGH_H
#define RAMP_PASSTHROUGH_H

#include "libfuse.h"
#include "mount_ref.h"

/* Finishes what an earlier daemon of this connection had begun. Call it after handover_open. */
int passthrough_open(struct mount *m, struct ramp_err *err);

/* Returns true if the kernel has agreed to passthrough on this connection. Any thread. */
bool passthrough_able(struct mount *m);

/*
 * Returns true if it has answered the open with a backing id; false if the open is answered as any
 * other (the attribute is not set, pages are elsewhere, the segment is on the move, the kernel
 * can't). Fuse thread.
 */
bool passthrough_reply_open(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi);
/* Takes note that the kernel has released an open file. Any thread. */
void passthrough_released(struct mount *m, uint64_t fh);
/* Takes note that a request, maybe an open, was answered with an error. Any thread. */
void passthrough_dropped(struct mount *m, uint64_t unique);

/* Returns 0, or -EBUSY with the process that has an open or a mapping. For
   programs_set_passthrough. Blocks. */
int passthrough_check(void *mount, struct seg *seg, struct ramp_err *err);

#endif
