/*
 * Mapping one range into one process (attach.c). On a worker; each function may wait, with a bound.
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
struct segment_row;
struct client;

#define FREEZE_WAIT_MS 10000u /* how long an attach waits for a freeze to end */

/* The range that is to be mapped. */
struct attach_range {
	ramp_segment_t id;
	uint64_t addr, len, offset;
	uint32_t prot, flags;
	bool writable;
	/* The request that it is for; NULL: none that could be given up. */
	const struct client_request *asker;
	uint32_t serial; /* of its MAP; 0: none was sent */
};

/* Waits until the segment is not frozen, nor held (give_back.c). 0: it counts as attaching until
   attach_leave; -EREMOTE: it is on another node; -errno. */
int attach_enter(struct programs *p, struct mapped_segment *mseg, struct ramp_err *err);
/* Finds the segment's extent, or has one given, and enters. Sets wish->addr, and the flags. */
int attach_enter_extent(struct programs *p, struct mapped_segment *mseg, struct seg *seg,
			struct attach_range *wish, struct segment_row *row, struct ramp_err *err);
void attach_leave(struct programs *p, struct mapped_segment *mseg);
/* Maps the range, registers it where that is needed, and gives access. After -ETIMEDOUT, -ESRCH
   or -EPROTO it may be mapped, or may be so later, without access and not registered; after
   another error it is not mapped. */
int attach_map(struct programs *p, struct mapped_segment *mseg, struct client *client,
	       struct seg *seg, struct attach_range *wish);
/* Turns an error of attach_map into text for the program. Returns the error. */
int attach_failed(int rc, const struct attach_range *wish, struct ramp_err *err);

/* Carry out the requests ATTACH and DETACH; they answer and free them. */
void attach_begin(struct client_request *request);
void detach_begin(struct client_request *request);

#endif
