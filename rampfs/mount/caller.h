/*
 * The caller of a request, as /proc describes the thread that FUSE names. A caller that has ended
 * meanwhile is treated as one without privileges.
 *
 * Thread-safety: any thread.
 */
#ifndef RAMP_CALLER_H
#define RAMP_CALLER_H

#include "libfuse.h"
#include "mount_ref.h"

/* Returns the text that /proc/PID/status has behind `name`; NULL: none. The caller frees it. */
char *caller_status(pid_t pid, const char *name);
/* Returns true if the caller has the capability in our user namespace. False where it has it in
   another one, or /proc does not tell. */
bool caller_has(pid_t pid, int cap);
/*
 * Returns whether the caller may do to a segment what only its owner or a process with CAP_* `cap`
 * may do, only if a certain user owns it. False: to any segment (the caller is root, or has `cap`).
 * True: only where *owner owns it, which is the caller; or the owner of `seen` (the segment's row
 * now; NULL: there is none) where the caller has the capability in another user namespace that
 * knows the row's user and group. That is the kernel's rule (capable_wrt_inode_uidgid).
 */
bool caller_is_limited(fuse_req_t req, int cap, const struct segment_row *seen, uint32_t *owner);

#endif
