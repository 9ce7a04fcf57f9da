/*
 * The table of attachments (attachments.c).
 */
#ifndef RAMP_PROGRAMS_ATTACHMENTS_H
#define RAMP_PROGRAMS_ATTACHMENTS_H

#include "mapped_segment.h"

#define RANGES_MAX 32768u /* attachments of one segment in one process, at most */

/* Looks into /proc for the client's mappings of mseg and puts them into the table; registers new
   ones if they must be. change is held. -E2BIG: more than RANGES_MAX attachments. */
int mseg_look(struct programs *p, struct mapped_segment *mseg, struct client *client);
/* The same for all clients that have it attached (`only`: for that one; NULL: for all), since a
   program does not tell when it unmaps, splits or extends a mapping. Without memory the table
   stays as it is. change is held. */
void mseg_look_all(struct programs *p, struct mapped_segment *mseg, const struct client *only);
/* Looks again at the mappings that the table shows of other segments than `id` in that range: a program does
   not tell what it unmaps, and the addresses of a segment that was removed become another's. Page faults
   there would be taken for the other's. No `change` is held. */
int client_look_at_others(struct programs *p, struct client *client, ramp_segment_t id,
			  uint64_t start, uint64_t end);
/* Has stores into a mapping of mseg wait (uffd_hold), up to the end of the file: a store behind it is
   SIGBUS, and nothing makes the file longer while the segment is closed to stores. */
int mseg_hold_stores(struct mapped_segment *mseg, struct client *client, uint64_t start,
		     uint64_t end, uint64_t offset);
/* Returns the segment with the lowest number above `last` that the table shows in that client, with a reference;
   NULL: none. So they are walked in the order of ids, while the table may change. */
struct mapped_segment *client_next_mseg(struct programs *p, struct client *client,
					ramp_segment_t last);
/* Fills the table with all that the client maps, when its session has come. */
int client_learn(struct programs *p, struct client *client);
/* Takes the client's mappings out of the table. */
void client_forget(struct programs *p, struct client *client);
/* Marks the attachments in that range as mapping the segment, not the empty file: SWAP is about
   to put it in place. */
void mseg_mark_live(struct mapped_segment *mseg, const struct mapping_ref *ref);

#endif
