/*
 * Mappings of a segment that wait beside its place in a process until they take that (beside.c).
 */
#ifndef RAMP_PROGRAMS_BESIDE_H
#define RAMP_PROGRAMS_BESIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct address_range;
struct client;
struct mapped_segment;
struct mapping_ref;
struct programs;

#define BESIDE_MAX 64u /* in one process: as many as its agent has room for */

/* Has the agent map the segment beside that attachment. `held`: protected, so that loads continue and
   stores wait; else without entries and registered, so that all accesses wait. change is held, here
   and below. */
int beside_make(struct programs *p, struct mapped_segment *mseg, const struct mapping_ref *ref,
		bool held, uint64_t until_ms);
/* Puts the mapping that was made for the attachment in its place. -ENOENT: none was made for exactly
   that range. */
int beside_swap(struct mapped_segment *mseg, const struct mapping_ref *ref, uint64_t until_ms);
/* Unmaps those that are left. */
void beside_drop(struct mapped_segment *mseg, uint64_t until_ms);
/* Copies where they are in that client, `room` at most. Returns how many. */
size_t beside_places(const struct mapped_segment *mseg, const struct client *client,
		     struct address_range *places, size_t room);

#endif
