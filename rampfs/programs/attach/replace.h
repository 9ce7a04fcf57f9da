/*
 * Replacing mappings: of a segment that has left, and of one that has come back (replace.c).
 */
#ifndef RAMP_PROGRAMS_REPLACE_H
#define RAMP_PROGRAMS_REPLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ids.h"

struct mapped_segment;
struct mapping_ref;
struct programs;
struct client;

/* Writes its name for messages: "a/cache". */
void segment_name(struct programs *p, ramp_segment_t id, char *name, size_t cap);
/* Sends GONE for one range and waits for its DONE until until_ms (0: does not wait). `say`: with
   a line for the user. change is held. */
int replace_gone(struct programs *p, struct mapped_segment *mseg, const struct mapping_ref *ref,
		 bool say, uint64_t until_ms);
/* Opens an empty file for that segment, O_RDONLY, which has no name any more. */
int replace_open_empty(struct programs *p, ramp_segment_t id, bool writable);
/* Tells a client whose session has come of segments that have gone or come back while it had
   none. `again`: tries later what could not be done then; the program is not told once more. */
void client_catch_up(struct programs *p, struct client *client, bool again);
/* The steps of replace_back: has the agent map the segment at an address of its own choice, *at; puts
   that in its place; or unmaps it. change is held. */
int replace_map(struct mapped_segment *mseg, const struct mapping_ref *ref, uint32_t flags,
		uint64_t until_ms, uint64_t *at);
int replace_swap(struct mapped_segment *mseg, const struct mapping_ref *ref, uint64_t at,
		 uint64_t until_ms);
void replace_unmap(struct client *client, uint64_t addr, uint64_t len, uint64_t until_ms);
/* Puts the segment in place of the empty file in one range: BACK and SWAP. change is held. */
int replace_back(struct programs *p, struct mapped_segment *mseg, const struct mapping_ref *ref,
		 uint32_t flags, uint64_t until_ms);

#endif
