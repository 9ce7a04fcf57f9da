/*
 * All links of one thread: one for each source that an entry needs. Called by that thread.
 */
#ifndef RAMP_LINKS_H
#define RAMP_LINKS_H

#include <stdbool.h>

#include "link.h"

/* Connects, times out, closes links that no entry needs, releases entries that are not alive. Returns
   when to come again (ms from now), or -1. */
int links_step(struct links *links,
	       bool (*needs)(const struct links *links, struct pulled *pulled));
/* Returns wait_ms, or less where an answer is awaited: for a thread that has posted since. */
int links_wait(const struct links *links, int wait_ms);
/* Returns the link to the entry's source if it is READY and the entry may ask now, or NULL. */
struct link *links_ready(struct links *links, struct pulled *pulled);
bool links_any_ready(const struct links *links);
/* True: one of them is READY, and may have another read under way. */
bool links_have_room(const struct links *links);
/* Frees all. */
void links_close(struct links *links);

#endif
