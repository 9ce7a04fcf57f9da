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
	ramp_node_t home; /* not 0: the answer waits (HOME_MS) until that node's tables have it */
	uint64_t waits_since_ms; /* when it began to wait for proposals before it to finish */
	/* Replies and frees. reply.result may be any errno. Park thread. */
	void (*done)(struct metadata_change *c);
};
/* Initialises a zeroed change whose request is initialised. The command has no id yet. */
void propose_init(struct metadata_change *c, enum meta_command_type type,
		  void (*done)(struct metadata_change *c));
/* Returns a zeroed struct of `size` bytes that begins with an initialised struct metadata_change,
   its command identified by this request; NULL after ENOMEM has been replied. */
void *propose_new(fuse_req_t fuse, size_t size, enum meta_command_type type,
		  void (*done)(struct metadata_change *c));
void propose_change(struct metadata_change *c);

#endif
