/*
 * Set-user-ID and set-group-ID go before a write by somebody who may not keep them.
 */
#ifndef RAMP_OPS_SETID_H
#define RAMP_OPS_SETID_H

#include "request.h"

/*
 * Fuse thread, in a write: which go (META_CLEAR_*; 0: the write needs nothing), by what stands
 * beside the bytes.
 */
uint32_t setid_goes(fuse_req_t req, fuse_ino_t ino);
/* The same in a truncate, a fallocate or a change of owner: what the kernel has left to us. */
uint32_t setid_unseen(fuse_req_t req, fuse_ino_t ino);
/* In a program's MADV_REMOVE, of which the kernel knows nothing. Any thread. */
uint32_t setid_punched(struct mount *m, const struct punch_request *punch, ramp_segment_t id);
bool setid_kept(pid_t pid); /* programs_keeps_setid */
/*
 * Has the metadata clear them for the request (FUSE's or our own) and then calls then(arg, 0) on
 * the park thread, or with why not (-EROFS: no quorum). -ESHUTDOWN: the request is the next
 * daemon's, and is not to be answered. It may come before this returns.
 */
void setid_clear(const struct parked_request *r, ramp_segment_t id, uint32_t which,
		 void (*then)(void *arg, int rc), void *arg);

#endif
