/*
 * Pages that have come, to be mapped where a page fault waits for them, or wherever they are
 * attached. Bounded, and one thread's: nothing is allocated for a page fault.
 */
#ifndef RAMP_MAP_QUEUE_H
#define RAMP_MAP_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ids.h"
#include "base/trace.h"
#include "puller_client.h"

#define MAP_QUEUE_MAX 128u

/* Pages [first, first + count). */
struct map_request {
	struct fault_waiter waiter; /* with a reference; no client: wherever they are attached */
	ramp_segment_t id;
	uint64_t first, count;
	bool fault;	     /* it ends a page fault */
	struct trace *trace; /* a reference */
};

struct map_queue {
	struct map_request requests[MAP_QUEUE_MAX];
	uint32_t first, n;
};

/* Adds a copy, with references to its client and its trace. False: there is no room for more. */
bool map_queue_add(struct map_queue *queue, const struct map_request *request);
bool map_queue_is_full(const struct map_queue *queue);
/* Takes the oldest one, with its references. The queue is not empty. */
struct map_request map_queue_take(struct map_queue *queue);
/* Gives back the references of one that was taken. */
void map_request_release(struct map_request *request);

#endif
