/*
 * A segment that has left, and one that has come back (replace.c).
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
struct space;

/* A name for messages: "a/cache". */
void segment_name(struct programs *p, ramp_segment_t id, char *name, size_t cap);
/* Sends GONE for one range; change is held. until_ms 0: does not wait. */
int replace_gone(struct programs *p, struct mapped_segment *mseg, const struct mapping_ref *ref,
		 bool say, uint64_t until_ms);
/* An empty file of that segment, O_RDONLY, without a name any more. */
int replace_open_empty(struct programs *p, ramp_segment_t id, bool writable);
/* When its session has come: segments that have gone or come back while there was none. `again`:
   later, what could not be done then; nobody is told once more. */
void client_catch_up(struct programs *p, struct space *client, bool again);
/* BACK and SWAP; change is held. */
int replace_back(struct programs *p, struct mapped_segment *mseg, const struct mapping_ref *ref,
		 uint32_t flags, uint64_t until_ms);

#endif
