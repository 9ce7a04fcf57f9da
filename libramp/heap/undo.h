/*
 * The log with which a step that changes several words is undone, when the process is killed within it.
 *
 * Before a word is changed, its old value is written to the log; the step is done when the log is emptied, by one
 * store. A kill stops a thread between two instructions, and memory that is shared with a file keeps all that was
 * stored before: so the compiler's order is all that counts, and no cache line needs to be written back.
 *
 * A step keeps its locks until it is done, and each thread has a log of its own: the words in two logs are never
 * the same, and logs can be undone in any order.
 */
#ifndef RAMP_HEAP_UNDO_H
#define RAMP_HEAP_UNDO_H

#include <stdatomic.h>

#include "process.h"

struct heap_step {
	struct heap_process *p;
	struct ramp_heap *heap;
	struct heap_log *log;
	bool locked; /* holds p->granules */
};

/* Stores one word, neither earlier nor later than the code has it. */
static inline void heap_store(uint64_t *at, uint64_t value)
{
	atomic_signal_fence(memory_order_seq_cst);
	__atomic_store_n(at, value, __ATOMIC_RELAXED);
	atomic_signal_fence(memory_order_seq_cst);
}

static inline struct heap_step step_begin(struct heap_process *p, struct heap_log *log)
{
	return (struct heap_step){.p = p, .heap = p->heap, .log = log};
}
/* Changes a word as a part of the step. */
void step_put(struct heap_step *step, uint64_t *at, uint64_t value);
/* Ends the step: all of it has happened. One that may have the granules locked ends by granules_done or _undo. */
void step_done(struct heap_step *step);
/* Ends the step: nothing of it has happened. */
void step_undo(struct heap_step *step);
/* Undoes what a process left in a log. Returns whether there was anything, or -EUCLEAN: it names no word of the heap. */
int log_undo(const struct ramp_heap *heap, struct heap_log *log);

#endif
