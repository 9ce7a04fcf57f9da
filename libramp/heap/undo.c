#include "undo.h"

#include <errno.h>
#include <stdlib.h>

void step_put(struct heap_step *step, uint64_t *at, uint64_t value)
{
	struct heap_log *log = step->log;
	uint64_t n = log->n;

	if (n == HEAP_LOG_MAX) { /* more than any step has: the count itself is damaged */
		process_misuse(step->p, "the heap's log at %p is damaged", (void *)log);
		abort();
	}
	heap_store(&log->entry[n].address, (uintptr_t)at);
	heap_store(&log->entry[n].value, *at);
	heap_store(&log->n, n + 1);
	heap_store(at, value);
}

void step_done(struct heap_step *step)
{
	heap_store(&step->log->n, 0);
}

/* The last one first: a word may have been changed twice. */
static void log_write_back(struct heap_log *log)
{
	while (log->n) {
		uint64_t n = log->n - 1;

		heap_store((uint64_t *)(uintptr_t)log->entry[n].address, log->entry[n].value);
		heap_store(&log->n, n);
	}
}

void step_undo(struct heap_step *step)
{
	log_write_back(step->log);
}

int log_undo(const struct ramp_heap *heap, struct heap_log *log)
{
	uint64_t end = (uintptr_t)heap + heap->size;

	if (log->n > HEAP_LOG_MAX)
		return -EUCLEAN;
	if (!log->n)
		return 0;
	for (uint64_t i = 0; i < log->n; i++) {
		uint64_t address = log->entry[i].address;

		if (address < (uintptr_t)heap || address > end - sizeof(uint64_t) ||
		    address % sizeof(uint64_t))
			return -EUCLEAN;
	}
	log_write_back(log);
	return 1;
}
