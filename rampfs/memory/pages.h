/*
 * Page states of a segment at a target.
 *
 *   LOCAL --mark--> REMOTE                             (listed in CONNECT, or stored into since a round of
 *                                                      a pre-copy; record NONE)
 *   REMOTE --claim--> IN_FLIGHT --arrive--> LOCAL
 *                     IN_FLIGHT --give back--> REMOTE  (connection lost; store_open)
 *   REMOTE | IN_FLIGHT --lose--> LOST                  (the source is proved gone; given up)
 *   REMOTE | LOST --cut--> IN_FLIGHT                   (a whole page written, truncated, punched)
 *   any --behind the end of the file--> LOCAL          (store_open: a truncate was interrupted)
 *
 * Two bits a page in ID.state, LOCAL being 0, so that a fully local segment and a hole take no
 * room. Only the winner of a claim pulls; others wait. Order: data, then LOCAL (release), then
 * CONTINUE. Every change goes through the functions here, by compare-and-swap.
 *
 * Units: page numbers of RAMP_PAGE_BYTES, counts of pages. Beyond the map every page is LOCAL, so
 * that the map does not grow with the file. Thread-safety: any thread, no locks; pages_prepare and
 * pages_mark_* are for the thread that reserves, while the record is NONE.
 */
#ifndef RAMP_PAGES_H
#define RAMP_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct seg;

enum page_state { PAGE_LOCAL = 0, PAGE_REMOTE = 1, PAGE_IN_FLIGHT = 2, PAGE_LOST = 3 };

/* Makes the map of a reserved segment cover size_bytes, all LOCAL; again with a larger size: the
   new pages are LOCAL. A map of up to 1 MiB (a segment of 16 GiB) takes its room now, so that
   marking allocates nothing; a larger one is sparse. -ENOSPC. */
int pages_prepare(struct seg *seg, uint64_t size_bytes, struct ramp_err *err);
/* LOCAL -> REMOTE for what CONNECT listed. -ENOSPC: no room for that piece of the map. */
int pages_mark_remote(struct seg *seg, uint64_t first, uint64_t count, struct ramp_err *err);
/* Marks the whole map, where CONNECT says "Pages not listed are REMOTE". */
int pages_mark_all_remote(struct seg *seg, struct ramp_err *err);
/* True after pages_mark_all_remote, through restarts: a REMOTE page may be a hole at the source. */
bool pages_unlisted(struct seg *seg);

/* From now on REMOTE pages may have bytes of before in the file, through restarts, until every page is
   LOCAL: a hole of the source's must be cleared there. */
void pages_note_old(struct seg *seg);
bool pages_old(struct seg *seg);

/* Returns the state of a page (acquire); beyond the map: LOCAL. */
enum page_state pages_get(struct seg *seg, uint64_t page);
/* Returns how many pages from `first` (at most max) have the same state as it; *state: which. */
uint64_t pages_run(struct seg *seg, uint64_t first, uint64_t max, enum page_state *state);
/* True when all of [first, first + count) is LOCAL; one load when the segment is whole. */
bool pages_local(struct seg *seg, uint64_t first, uint64_t count);
/* Return the first page >= from that is REMOTE, or that is not LOCAL; UINT64_MAX: none. */
uint64_t pages_next_remote(struct seg *seg, uint64_t from);
uint64_t pages_next_missing(struct seg *seg, uint64_t from);

/* REMOTE -> IN_FLIGHT for a run from `first`, at most max pages; returns how many the caller won
   (0: the first is not REMOTE). */
uint64_t pages_claim(struct seg *seg, uint64_t first, uint64_t max);
/* The same from REMOTE or LOST, for a caller that makes the bytes of the pages itself. */
uint64_t pages_claim_cut(struct seg *seg, uint64_t first, uint64_t max);
/* IN_FLIGHT -> LOCAL, after the data is in place. Calls store_changed. */
void pages_arrive(struct seg *seg, uint64_t first, uint64_t count);
/* IN_FLIGHT -> REMOTE. */
void pages_give_back(struct seg *seg, uint64_t first, uint64_t count);
/* REMOTE and IN_FLIGHT -> LOST, for the thread that has those in flight; returns how many. Calls
   store_changed. */
uint64_t pages_lose(struct seg *seg, uint64_t first, uint64_t count);
/* REMOTE -> LOST, everywhere, once no thread pulls any more: a page that is IN_FLIGHT then is a
   writer's, and becomes LOCAL with its bytes. Returns how many. Calls store_changed. */
uint64_t pages_lose_all(struct seg *seg);

/* Return how many pages are not LOCAL, and how many are LOST. */
uint64_t pages_missing(struct seg *seg);
uint64_t pages_lost(struct seg *seg);
/* Drops the map once all pages are LOCAL; does nothing while one is missing. */
void pages_settle(struct seg *seg);

/* ---- for this folder alone ----------------------------------------------------------------- */

/* Finds the map at store_open. -EUCLEAN: it makes no sense; another -errno: it can't be looked at
   now. */
int pages_load(struct seg *seg, int state_fd, struct ramp_err *err);
void pages_free(struct seg *seg);

#endif
