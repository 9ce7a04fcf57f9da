/*
 * Ranges of segments that are fetched before the rest: *orders*, for which a program waits, and hints.
 *
 * In memory only. The prefetch threads fetch them, after all demand; also of a segment that is pulled on
 * demand alone.
 */
#ifndef RAMP_WISHES_H
#define RAMP_WISHES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "claim_request.h"

struct pull;
struct pull_order;
struct pulled;

struct wishes {
	pthread_mutex_t lock; /* protects the lists; the locks of pull_core.h are taken under it */
	TAILQ_HEAD(wish_list, pull_order)
	orders, hints;		 /* orders: the oldest first; hints: the newest */
	atomic_uint n, n_orders; /* of both; of orders */
};

void wishes_init(struct wishes *wishes);
/* Drops the hints. There is no order any more. */
void wishes_destroy(struct wishes *wishes);
/* True: a program waits for a range, of any segment. */
bool wishes_waited_for(struct pull *pull);
/* True: pages of the segment are wished for and not here. */
bool wishes_any(const struct pulled *pulled);
/* Returns the first REMOTE page of the ranges that are wished for, and where its range ends; UINT64_MAX: there
   is none. Pages that a writer has requested are left out. */
uint64_t wishes_next(const struct pulled *pulled, const struct claim_request *request,
		     uint64_t *end);
/* Ends orders and hints that are fulfilled, or can't be. Returns when to look again, or wait_ms where that
   is sooner. The first prefetch thread. */
int wishes_look(struct pull *pull, int wait_ms);

#endif
