/*
 * One proposal to the metadata, on behalf of a request.
 */
#ifndef RAMP_PROPOSE_H
#define RAMP_PROPOSE_H

#include "request.h"

struct metadata_change {
	struct parked_request r; /* first */
	struct meta_command command;
	struct meta_reply reply;
	uint64_t waits_since_ms; /* for its turn */
	/* Replies and frees; park thread. reply.result may be any errno. */
	void (*done)(struct metadata_change *c);
};
/* Of a zeroed change whose request is initialised; the command has no id yet. */
void propose_init(struct metadata_change *c, enum meta_command_type type,
		  void (*done)(struct metadata_change *c));
/* A change of `size` bytes that begins with a struct metadata_change, its command identified by this
   request; NULL after ENOMEM has been replied. */
void *propose_new(fuse_req_t fuse, size_t size, enum meta_command_type type,
		  void (*done)(struct metadata_change *c));
void propose_change(struct metadata_change *c);

#endif
