/*
 * Set-user-ID and set-group-ID are cleared before a write by a caller that may not keep them.
 */
#ifndef RAMP_OPS_SETID_H
#define RAMP_OPS_SETID_H

#include "request.h"

/*
 * Returns the bits (META_CLEAR_*) that a write has to clear first, by the attributes beside the
 * bytes. 0: none. Fuse thread.
 */
uint32_t setid_goes(fuse_req_t req, fuse_ino_t ino);
/* The same for a truncate, a fallocate or a change of owner: the bits that the kernel leaves to
   us. */
uint32_t setid_unseen(fuse_req_t req, fuse_ino_t ino);
/* The same for a program's MADV_REMOVE, which the kernel does not see. Any thread. */
uint32_t setid_punched(struct mount *m, const struct punch_request *punch, ramp_segment_t id);
bool setid_kept(pid_t pid); /* programs_keeps_setid */
/*
 * Has the metadata clear them for the request (FUSE's or our own) and then calls then(arg, rc) on
 * the park thread: 0, or an error (-EROFS: no quorum). -ESHUTDOWN: the request is left to the next
 * daemon and must not be answered. The call may come before this returns.
 */
void setid_clear(const struct parked_request *r, ramp_segment_t id, uint32_t which,
		 void (*then)(void *arg, int rc), void *arg);

#endif
