/*
 * Runs of granules: taken for slabs, large blocks and caches, given back, joined with their neighbours, punched out.
 *
 * Free runs are in bins by their length: one for each length below 16, then four for each doubling. A run at the end
 * is not in a bin: `top` is lowered. All calls are steps (undo.h) with the granules locked.
 */
#ifndef RAMP_HEAP_GRANULES_H
#define RAMP_HEAP_GRANULES_H

#include "undo.h"

/* Locks the granules until granules_done or granules_undo. */
void granules_lock(struct heap_step *step);
/* Ends the step: all of it has happened. Where many free granules have pages, they are punched out. */
void granules_done(struct heap_step *step);
/* Ends the step: nothing of it has happened. */
void granules_undo(struct heap_step *step);

/*
 * Takes n granules whose address is a multiple of `align` granules (a power of two). The caller sets the first one's
 * word. *zero: all bytes are zeros. Returns 0 or a negative errno (the segment cannot grow).
 */
int granules_take(struct heap_step *step, uint64_t n, uint64_t align, uint64_t *granule,
		  bool *zero);
/* Gives n granules back. The caller has cleared the words of all but the first one. */
void granules_give(struct heap_step *step, uint64_t granule, uint64_t n);
/* Makes a run longer, in place. Returns whether that was possible. */
bool granules_extend(struct heap_step *step, uint64_t granule, uint64_t n, uint64_t wanted);

/* Punches free runs out. Returns how many bytes. */
uint64_t granules_trim(struct heap_process *p, struct heap_log *log);

/* The bin of free runs of that many granules. */
unsigned int granules_bin(uint64_t n);

#endif
