/*
 * Steps of one migration. A thread takes a slot by counting, fills it, and publishes it by its name,
 * which is stored last.
 */
#include "trace.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "clock.h"

struct slot {
	uint64_t at_ns, page;
	_Atomic(const char *) name; /* NULL: not published yet */
};

struct trace {
	atomic_uint refs, steps, faults, served;
	atomic_bool over[TRACE_FAULTS];
	_Atomic uint64_t followed[TRACE_FAULTS]; /* page + 1; 0: none yet */
	struct slot slots[TRACE_STEPS];
};

struct trace *trace_new(void)
{
	struct trace *trace = calloc(1, sizeof(*trace));

	if (trace)
		atomic_init(&trace->refs, 1);
	return trace;
}

struct trace *trace_get(struct trace *trace)
{
	if (trace)
		atomic_fetch_add(&trace->refs, 1);
	return trace;
}

void trace_put(struct trace *trace)
{
	if (trace && atomic_fetch_sub(&trace->refs, 1) == 1)
		free(trace);
}

void trace_add(struct trace *trace, uint64_t page, const char *name)
{
	uint64_t now = clock_ns();
	unsigned at = atomic_load(&trace->steps);

	/* Does not count further once full: after years of page faults it would wrap around. */
	while (at < TRACE_STEPS && !atomic_compare_exchange_weak(&trace->steps, &at, at + 1))
		;
	if (at >= TRACE_STEPS)
		return;
	trace->slots[at].at_ns = now;
	trace->slots[at].page = page;
	atomic_store_explicit(&trace->slots[at].name, name, memory_order_release);
}

static bool follows(const struct trace *trace, uint64_t page)
{
	for (unsigned i = 0; i < TRACE_FAULTS; i++)
		if (atomic_load(&trace->followed[i]) == page + 1)
			return true;
	return false;
}

void trace_fault(struct trace *trace, uint64_t page, const char *name)
{
	unsigned at;

	if (!trace || atomic_load(&trace->faults) >= TRACE_FAULTS || follows(trace, page))
		return;
	at = atomic_fetch_add(&trace->faults, 1);
	if (at >= TRACE_FAULTS)
		return;
	atomic_store(&trace->followed[at], page + 1);
	trace_add(trace, page, name);
}

void trace_followed(struct trace *trace, uint64_t page, const char *name)
{
	if (follows(trace, page))
		trace_add(trace, page, name);
}

void trace_ended(struct trace *trace, uint64_t page, const char *name)
{
	for (unsigned i = 0; i < TRACE_FAULTS; i++)
		if (atomic_load(&trace->followed[i]) == page + 1) {
			trace_add(trace, page, name);
			atomic_store(&trace->over[i], true);
		}
}

void trace_served(struct trace *trace, uint64_t page, const char *name)
{
	if (trace && atomic_load(&trace->served) < TRACE_SERVED &&
	    atomic_fetch_add(&trace->served, 1) < TRACE_SERVED)
		trace_add(trace, page, name);
}

unsigned trace_faults(const struct trace *trace)
{
	unsigned n = 0;

	for (unsigned i = 0; i < TRACE_FAULTS; i++)
		n += atomic_load(&trace->over[i]);
	return n;
}

size_t trace_read(const struct trace *trace, struct trace_step *out, size_t max)
{
	size_t n = 0;

	for (unsigned i = 0; i < TRACE_STEPS && n < max; i++) {
		const struct slot *slot = &trace->slots[i];
		const char *name = atomic_load_explicit(&slot->name, memory_order_acquire);

		if (name)
			out[n++] = (struct trace_step){slot->at_ns, slot->page, name};
	}
	return n;
}
