/*
 * How one range comes into one process (attach.c). On a worker; each may wait, with a bound.
 */
#ifndef RAMP_PROGRAMS_ATTACH_H
#define RAMP_PROGRAMS_ATTACH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/ids.h"

struct client_request;
struct mapped_segment;
struct programs;
struct seg;
struct space;

#define FREEZE_WAIT_MS 10000u /* how long an attach waits for a freeze to end */

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
/* Maps it, registered where it must be, and gives the access. -ETIMEDOUT, -ESRCH, -EPROTO: it may
   be mapped, or be so later, without access and not registered. After another error it is not. */
int attach_map(struct programs *p, struct mapped_segment *mseg, struct space *client,
	       struct seg *seg, struct attach_range *wish);
/* What attach_map says, for the program. */
int attach_failed(int rc, const struct attach_range *wish, struct ramp_err *err);

/* The requests ATTACH and DETACH, which are theirs. */
void attach_begin(struct client_request *request);
void detach_begin(struct client_request *request);

#endif
