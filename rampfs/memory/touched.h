/*
 * The segments that were touched, so that a thread that looks for changes need not look at all.
 */
#ifndef RAMP_MEMORY_TOUCHED_H
#define RAMP_MEMORY_TOUCHED_H

#include <stdbool.h>

struct seg;
struct store;

/*
 * Calls fn for each segment that was touched since the last call: taken (seg_get), entered, opened,
 * or marked by seg_touch; and for those that are still referenced elsewhere, or that are passed
 * through, whose files change without notice. A reference is held during the call. fn returns
 * whether it wants to see the segment again the next time. Only one thread may call it.
 */
void store_each_touched(struct store *store, bool (*fn)(void *arg, struct seg *seg), void *arg);

/* ---- for store.c alone --------------------------------------------------------------------- */

/* Takes a segment out of the list, once GATE_GONE keeps it from coming back. */
void seg_untouch(struct seg *seg);
void touched_close(struct store *store); /* gives back all references of the list */

#endif
