/*
 * The steps of one migration at this end, each with its time: shows where the time goes.
 *
 * If a user asks for a trace (rampfs-migrate --trace), the attempt carries one; for all others the
 * pointer is NULL, and a step costs a comparison. A trace has room for TRACE_STEPS steps; later ones
 * are not kept, so page faults, which are many, have a share of their own.
 *
 * Thread-safety: any thread, without a lock; never blocks, never allocates except in trace_new.
 */
#ifndef RAMP_TRACE_H
#define RAMP_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_STEPS    80u
#define TRACE_FAULTS   8u  /* page faults at the target that are followed */
#define TRACE_SERVED   16u /* pages at the source whose serving is kept */
#define TRACE_NAME_MAX 64  /* bytes of a step's name, with the NUL */
#define TRACE_NO_PAGE  UINT64_MAX

struct trace;

struct trace_step {
	uint64_t at_ns; /* CLOCK_MONOTONIC of this machine */
	uint64_t page;	/* of a page fault; TRACE_NO_PAGE: a step of the transfer */
	const char *name;
};

/* Counted; NULL: no memory. Get and put take NULL. */
struct trace *trace_new(void);
struct trace *trace_get(struct trace *trace);
void trace_put(struct trace *trace);

void trace_add(struct trace *trace, uint64_t page, const char *name);
/* Notes the begin of a page fault: from now on trace_page follows that page, if it is one of the
   first. */
void trace_fault(struct trace *trace, uint64_t page, const char *name);
void trace_followed(struct trace *trace, uint64_t page, const char *name);
void trace_ended(struct trace *trace, uint64_t page, const char *name);
/* Notes that a page is served, if it is one of the first. */
void trace_served(struct trace *trace, uint64_t page, const char *name);

/* Names are constants: the trace keeps the pointer. */
static inline void trace_step(struct trace *trace, const char *name)
{
	if (trace)
		trace_add(trace, TRACE_NO_PAGE, name);
}

/* Notes a step of a page fault that trace_fault has begun; does nothing for another page. */
static inline void trace_page(struct trace *trace, uint64_t page, const char *name)
{
	if (trace)
		trace_followed(trace, page, name);
}

/* Notes the last step of such a page fault. */
static inline void trace_page_over(struct trace *trace, uint64_t page, const char *name)
{
	if (trace)
		trace_ended(trace, page, name);
}

/* Returns how many of the page faults that are followed are over by now. */
unsigned trace_faults(const struct trace *trace);
/* Copies the steps, in the order in which they were added; returns how many. */
size_t trace_read(const struct trace *trace, struct trace_step *out, size_t max);

#endif
