/*
 * Looks at what is attached (attachments.c).
 */
#ifndef RAMP_PROGRAMS_ATTACHMENTS_H
#define RAMP_PROGRAMS_ATTACHMENTS_H

#include "mapped_segment.h"

#define RANGES_MAX 8192u /* attachments of one segment in one process */

/* Looks what `client` maps of mseg and makes the table say so; registers what is new where it must
   be. change is held. -E2BIG: more than RANGES_MAX attachments. */
int mseg_look(struct programs *p, struct mapped_segment *mseg, struct space *client);
/* The same for all that have it (or that client: NULL for all), since a program says nothing when
   it unmaps, splits or lets grow. Without memory the table stays as it is. change is held. */
void mseg_look_all(struct programs *p, struct mapped_segment *mseg, const struct space *only);
/* All that the client maps, for a session that has come. */
int client_learn(struct programs *p, struct space *client);
/* Takes its mappings out of the table. */
void client_forget(struct programs *p, struct space *client);
/* The attachments in that range map the segment from now on: BACK is about to swap it in. */
void mseg_mark_live(struct mapped_segment *mseg, const struct mapping_ref *ref);

#endif
