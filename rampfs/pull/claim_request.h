/*
 * A writer's request for pages.
 *
 * A writer needs pages [from, to) IN_FLIGHT at once, but some of them are being pulled. Until it
 * gets them, but not for ever (CLAIM_MAX_MS), no page of the range is claimed by the prefetch, as a
 * neighbour of a page fault, or by a hole that reaches beyond its read: so those under way become
 * fewer. Pages that a page fault or a parked request waits for are still read. A segment has one
 * such request at a time, protected by the lock of its slot.
 */
#ifndef RAMP_CLAIM_REQUEST_H
#define RAMP_CLAIM_REQUEST_H

#include <pthread.h>
#include <stdint.h>

struct claim_request {
	uint64_t from, to;
	uint64_t since_ms, until_ms; /* 0: none */
};

/* The one request of a segment. */
struct claim_slot {
	pthread_mutex_t lock; /* protects request */
	struct claim_request request;
};

void claim_slot_init(struct claim_slot *slot);
void claim_slot_destroy(struct claim_slot *slot);
/* Asks for [from, to), unless another writer has asked before. */
void claim_request_make(struct claim_slot *slot, uint64_t from, uint64_t to, uint64_t now_ms);
/* A writer has got [from, to): ends the request that lies in it. */
void claim_request_end(struct claim_slot *slot, uint64_t from, uint64_t to);
/* Returns the request at that time; all 0: there is none. */
struct claim_request claim_request_at(struct claim_slot *slot, uint64_t now_ms);
/* Returns how many of the pages [first, first + count) come before the first that is requested. */
uint64_t claim_request_leaves(const struct claim_request *request, uint64_t first, uint64_t count);

#endif
