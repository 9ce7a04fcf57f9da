/*
 * Mappings without the shim: opens of a segment whose user.ramp.mmap is `passthrough`.
 *
 * Such an open is answered FOPEN_DIRECT_IO|FOPEN_PASSTHROUGH with a backing id of the store's file:
 * reads and writes reach the daemon as ever, and mmap(2) maps the segment's very pages. Nobody can
 * take such a mapping back, so a segment that has one does not move.
 */
#ifndef RAMP_PASSTHROUGH_H
#define RAMP_PASSTHROUGH_H

#include "libfuse.h"
#include "mount_ref.h"

/* After the handover; ends what a former daemon of this connection had begun. */
int passthrough_open(struct mount *m, struct ramp_err *err);

/* The kernel has agreed to passthrough on this connection. Any thread. */
bool passthrough_able(struct mount *m);

/*
 * Fuse thread, of an open that is to be granted: true where it has been answered with a backing id;
 * false where it is to be answered as any other (the attribute is not set, pages are elsewhere, the
 * segment is on the move, the kernel can't).
 */
bool passthrough_reply_open(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi);
/* The kernel has let an open file go. Any thread. */
void passthrough_released(struct mount *m, uint64_t fh);
/* That request, an open maybe, was answered with an error. Any thread. */
void passthrough_dropped(struct mount *m, uint64_t unique);

/* For programs_set_passthrough: -EBUSY, and who, while an open or a mapping stands. Blocks. */
int passthrough_check(void *mount, struct seg *seg, struct ramp_err *err);

#endif
