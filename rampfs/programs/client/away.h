/*
 * The page tables of a client that revokes have moved away, or are about to (away.c).
 */
#ifndef RAMP_PROGRAMS_AWAY_H
#define RAMP_PROGRAMS_AWAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv/tree.h>

#include "base/ids.h"
#include "programs/proc/mappings.h"

#define AWAY_MAX 1024u /* of one segment in one client, and for all in one agent */

struct client;

/* One mapping, and the place for its page tables. */
struct away_note {
	RB_ENTRY(away_note) link;
	ramp_segment_t id;
	uint64_t home, at, len;
	bool moved; /* the kernel has said so */
	bool swap;  /* it is no place: a mapping that comes back is moved there from `home` */
};
RB_HEAD(away_notes, away_note); /* by home, then at */

/* How far a set of ranges has been found to be away. All zero at the beginning. */
struct away_found {
	size_t ranges; /* the first that many, whole */
	uint64_t at;   /* of the next one, up to here; 0: nothing */
};

/* Notes a place. -ENOMEM. */
int away_note(struct client *client, ramp_segment_t id, uint64_t home, uint64_t at, uint64_t len);
bool away_has(struct client *client, ramp_segment_t id);
/* Notes that the agent is about to put a mapping in its place (SWAP). */
void away_note_swap(struct client *client, ramp_segment_t id, uint64_t from, uint64_t to,
		    uint64_t len);
/* Whether a remap event is of such a SWAP, whose note goes. The agent has chosen `from`: so the event proves
   nothing, and counts as the program's. Or the SWAP has failed. */
bool away_take_swap(struct client *client, uint64_t from, uint64_t to, uint64_t len);
/* Takes a remap event: true where it is a move from a mapping to the place that is noted for it. */
bool away_take_event(struct client *client, uint64_t from, uint64_t to, uint64_t len);
/* Copies the places that page tables were moved to, AWAY_MAX at most. Returns how many. */
size_t away_places(struct client *client, ramp_segment_t id,
		   struct address_range places[static AWAY_MAX]);
/* Returns the address to which what was mapped at `at` was moved, and in *len how much of it lies there
   in one piece; 0: it was not moved. */
uint64_t away_where(struct client *client, ramp_segment_t id, uint64_t at, uint64_t *len);
/* Whether all of these ranges, sorted, were moved away. Begins where the last call has come to. */
bool away_moved_all(struct client *client, ramp_segment_t id, const struct address_range *ranges,
		    size_t count, struct away_found *found);
void away_drop_notes(struct client *client, ramp_segment_t id);
/* With the last reference to the client. */
void away_drop_all_notes(struct client *client);

#endif
