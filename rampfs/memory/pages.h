/*
 * Page states of a segment at a target.
 *
 *   REMOTE --claim--> IN_FLIGHT --arrive--> LOCAL
 *                     IN_FLIGHT --give back--> REMOTE     (connection lost, daemon restarted)
 *   REMOTE | IN_FLIGHT --lose--> LOST                     (the source is proved gone)
 *   REMOTE --overwrite--> LOCAL                           (a whole page written, truncated,
 * punched)
 *
 * Two bits a page in ID.state, LOCAL being 0, so that a fully local segment and a hole take no
 * room. Only the winner of a claim pulls; others wait. Order: data, then LOCAL (release), then
 * CONTINUE. Every change goes through the functions here, by compare-and-swap.
 *
 * Units: page numbers of RAMP_PAGE_BYTES, counts of pages. Thread-safety: any thread, no locks.
 */
#ifndef RAMP_PAGES_H
#define RAMP_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"

struct seg;

enum page_state { PAGE_LOCAL = 0, PAGE_REMOTE = 1, PAGE_IN_FLIGHT = 2, PAGE_LOST = 3 };

/* Makes the map of a reserved or taken segment cover size_bytes, all LOCAL. */
int pages_prepare(struct seg *seg, uint64_t size_bytes, struct ramp_err *err);
/* LOCAL -> REMOTE for what CONNECT listed; only while the record is NONE. */
void pages_mark_remote(struct seg *seg, uint64_t first, uint64_t count);
/* "Pages not listed are REMOTE": the whole map; only before TAKEN is served. */
void pages_mark_all_remote(struct seg *seg);

/* The state of a page (acquire); beyond the map: LOCAL. */
enum page_state pages_get(struct seg *seg, uint64_t page);
/* How many pages from `first` (at most max) have the same state as it; *state: which. */
uint64_t pages_run(struct seg *seg, uint64_t first, uint64_t max, enum page_state *state);
/* True when all of [first, first + count) is LOCAL; one load when the segment is whole. */
bool pages_local(struct seg *seg, uint64_t first, uint64_t count);
/* The first page >= from that is REMOTE; UINT64_MAX: none. */
uint64_t pages_next_remote(struct seg *seg, uint64_t from);

/* REMOTE -> IN_FLIGHT for a run from `first`, at most max pages; returns how many were won (0:
   the first is not REMOTE). */
uint64_t pages_claim(struct seg *seg, uint64_t first, uint64_t max);
/* IN_FLIGHT -> LOCAL, after the data is in place. Tells store_ops.changed. */
void pages_arrive(struct seg *seg, uint64_t first, uint64_t count);
/* IN_FLIGHT -> REMOTE. */
void pages_give_back(struct seg *seg, uint64_t first, uint64_t count);
/* REMOTE and IN_FLIGHT -> LOST, everywhere; returns how many. Tells store_ops.changed. */
uint64_t pages_lose_all(struct seg *seg);
/* IN_FLIGHT -> REMOTE everywhere (at start). */
void pages_reset_flights(struct seg *seg);

/* Pages that are not LOCAL; LOST ones. */
uint64_t pages_missing(struct seg *seg);
uint64_t pages_lost(struct seg *seg);
/* All pages became LOCAL: drops the map. */
void pages_settle(struct seg *seg);

#endif
