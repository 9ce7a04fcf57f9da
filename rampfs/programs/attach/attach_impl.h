/*
 * Shared by attach.c and fork_adopt.c alone: how one range comes into one process. On a worker; each may
 * wait, with a bound.
 */
#ifndef RAMP_PROGRAMS_ATTACH_IMPL_H
#define RAMP_PROGRAMS_ATTACH_IMPL_H

#include "programs/local.h"

/* What is to be mapped where. */
struct attach_range {
	ramp_segment_t id;
	uint64_t addr, len, offset;
	uint32_t prot, flags;
	bool writable;
	const struct client_request *asker; /* who waits for it; NULL: nobody gives up waiting */
	uint32_t serial;		    /* of its MAP; 0: none */
};

/* Waits until nothing of the segment is frozen. 0: go on, and attach_leave after; -EREMOTE: it is
   another node's; -errno. */
int attach_enter(struct programs *p, struct mapped_segment *mseg, struct ramp_err *err);
void attach_leave(struct programs *p, struct mapped_segment *mseg);
/* Maps it, registered where it must be, and gives the access. -ETIMEDOUT, -ESRCH, -EPROTO: it may be
   mapped, or be so later, without access and not registered. After another error it is not. */
int attach_map(struct programs *p, struct mapped_segment *mseg, struct space *client,
	       struct seg *seg, struct attach_range *wish);
/* What attach_map says, for the program. */
int attach_failed(int rc, const struct attach_range *wish, struct ramp_err *err);

#endif
