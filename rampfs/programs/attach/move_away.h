/*
 * Has agents move page tables away for a revoke, and back (move_away.c).
 */
#ifndef RAMP_PROGRAMS_MOVE_AWAY_H
#define RAMP_PROGRAMS_MOVE_AWAY_H

#include <stdbool.h>
#include <stdint.h>

struct client;
struct mapped_segment;
struct programs;

/* Finds a place for the page tables of each mapping of the segment, in each process whose agent can
   move them. Mappings for which there is none will be dropped. change is held. */
void move_away_prepare(struct programs *p, struct mapped_segment *mseg);
/* Has everything moved back, and gives up places that were not used. An agent that does not answer
   within a second does it later. change is held; programs may be given access. */
void move_away_return(struct programs *p, struct mapped_segment *mseg);
/* Has what is away unmapped: the segment has gone. `only`: in that client; NULL: in all. `now`:
   before this returns. change is held. */
void move_away_forget(struct programs *p, struct mapped_segment *mseg, struct client *only,
		      bool now);
/* For a session that has come in the place of an earlier daemon's: has moved back what that one has
   moved away, of segments that this node serves. */
void move_away_return_client(struct programs *p, struct client *client);
/* Whether the agent was asked to move page tables back, and has not done so yet: it must not be
   revoked from outside, since what it does later would give access back. io is held. */
bool move_away_owes(const struct client *client);

#endif
