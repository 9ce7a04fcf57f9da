/*
 * Where the time of one migration goes: what happened at this end, each step with its moment.
 *
 * Somebody asks for a trace (rampfs-migrate --trace), and then the attempt carries one; everybody
 * else's pointer is NULL, and a step costs a comparison. A trace has room for TRACE_STEPS steps;
 * what comes after them is not kept, so page faults, which are many, have a share of their own.
 *
 * Thread-safety: any thread, without a lock; never blocks, never allocates but in trace_new.
 */
#ifndef RAMP_TRACE_H
#define RAMP_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_STEPS    80u
#define TRACE_FAULTS   8u  /* page faults at the target that are followed */
#define TRACE_SERVED   16u /* pages of which the source keeps how they were served */
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

uint64_t trace_now_ns(void);

void trace_add(struct trace *trace, uint64_t page, const char *name);
/* A page fault begins: from now on trace_page follows that page, if it is one of the first. */
void trace_fault(struct trace *trace, uint64_t page, const char *name);
void trace_followed(struct trace *trace, uint64_t page, const char *name);
void trace_ended(struct trace *trace, uint64_t page, const char *name);
/* A page is served; of the first ones. */
void trace_served(struct trace *trace, uint64_t page, const char *name);

/* Names are constants: the trace keeps the pointer. */
static inline void trace_step(struct trace *trace, const char *name)
{
	if (trace)
		trace_add(trace, TRACE_NO_PAGE, name);
}

/* A step of a page fault that trace_fault has begun; of another page: nothing. */
static inline void trace_page(struct trace *trace, uint64_t page, const char *name)
{
	if (trace)
		trace_followed(trace, page, name);
}

/* ... and with this step it is over. */
static inline void trace_page_over(struct trace *trace, uint64_t page, const char *name)
{
	if (trace)
		trace_ended(trace, page, name);
}

/* How many of the page faults that are followed are over by now. */
unsigned trace_faults(const struct trace *trace);
/* What is there, in the order in which it was added; returns how many. */
size_t trace_read(const struct trace *trace, struct trace_step *out, size_t max);

#endif
