/*
 * Who stands behind a request, as /proc tells of the thread that FUSE names. What was asked of it
 * while it went is answered as for somebody without privileges.
 *
 * Thread-safety: any thread.
 */
#ifndef RAMP_CALLER_H
#define RAMP_CALLER_H

#include "libfuse.h"
#include "mount_ref.h"

/* What /proc says of the thread (or process) behind `name`; NULL: nothing. The caller's to free. */
char *caller_status(pid_t pid, const char *name);
/* A capability of another user namespace is none here; where /proc does not tell, neither. */
bool caller_has(pid_t pid, int cap);
/*
 * Whose a segment must be for the caller to do what its owner may, or who has CAP_* `cap`. False:
 * anybody's (the caller is root, or has it). Else *owner: the caller; but `seen`'s (its
 * row as it is now; NULL: there is none) where the caller has the capability in another user
 * namespace, and that knows the row's user and group: the kernel's rule (capable_wrt_inode_uidgid).
 */
bool caller_is_limited(fuse_req_t req, int cap, const struct segment_row *seen, uint32_t *owner);

#endif
