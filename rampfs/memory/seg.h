/*
 * A segment of the store: references to it, and its flags. Others include it by store.h.
 *
 * Thread-safety: any thread, unless said otherwise.
 */
#ifndef RAMP_SEG_H
#define RAMP_SEG_H

#include <stdbool.h>
#include <time.h>

#include "base/err.h"
#include "base/ids.h"

struct record;
struct seg;
struct store;

/* Of a row: what its file begins with. */
struct seg_dated {
	uint64_t size;
	struct timespec times[2];
};

/* Called when the reason that parked requests wait for may have changed: the gate opened, or closed
   for good; a record changed; a pull began; pages arrived or were lost. From any thread; must not
   block. There is one listener: mount/park.c. */
typedef void store_changed(void *arg, ramp_segment_t id);

/* ---- references ---------------------------------------------------------------------------- */

struct seg *seg_get(struct seg *seg); /* takes one more; counts as a touch */
void seg_put(struct seg *seg);
/* Marks it for the next store_each_touched. */
void seg_touch(struct seg *seg);
ramp_segment_t seg_id(const struct seg *seg);
/* Calls the store's store_changed, for a reason that only the caller knows, such as a pull's begin. */
void seg_tell(struct seg *seg);

/* ---- flags --------------------------------------------------------------------------------- */

bool seg_damaged(struct seg *seg);
bool seg_removed(struct seg *seg); /* by store_remove, whatever its record said */

/* Whether passthrough was granted (mount/passthrough.c), so that mappings may exist that no client
   answers for. Kept beside the bytes. seg_note_passed: 0, or -errno: not noted. */
int seg_note_passed(struct seg *seg, bool passed);
bool seg_passed(struct seg *seg);

/* The epoch of its row at which giving its addresses back may have been proposed, by any life of the
   daemon; 0: not. Kept beside the bytes. seg_note_giving: 0, or -errno: not noted. */
int seg_note_giving(struct seg *seg, uint64_t epoch);
uint64_t seg_giving(struct seg *seg);
/* Takes the note back where it is of an epoch below that one. */
void seg_end_giving(struct seg *seg, uint64_t below);

/* Whether this daemon is about to move it away: from CONNECT until the move has ended. No
   passthrough is granted meanwhile, since that would make the move fail. In memory only. */
void seg_set_leaving(struct seg *seg, bool leaving);
bool seg_leaving(struct seg *seg);

/* Whether it is frozen for as long as its pages take to the other node (mode copy). While copying,
   waiters at the gate do not time out; the copy itself is bounded. In memory only. */
void seg_set_copying(struct seg *seg, bool copying);
bool seg_copying(struct seg *seg);

/* ---- memory that is being freed ------------------------------------------------------------ */

/*
 * seg_freeing: its name is gone, and its memory is freed next. That takes the kernel 120 ms for a GiB
 * of small pages, after unlink(2) has returned. It counts as going (store_awaits_memory) until the
 * struct is freed, or until seg_not_freeing says that it is in use after all.
 */
void seg_freeing(struct seg *seg);
void seg_not_freeing(struct seg *seg);

/* ---- for store.c and touched.c alone ------------------------------------------------------- */

int seg_make(struct store *store, ramp_segment_t id, const struct record *record,
	     const struct seg_dated *row, struct seg **out, struct ramp_err *err);
/* Finds a segment at store_open. 1: it is there, or damaged; 0: it was a leftover and is removed;
   or -errno. */
int seg_load(struct store *store, ramp_segment_t id, struct seg **out, struct ramp_err *err);

/*
 * Unlinks both files, ID.state first, since a data file alone is what a kill leaves. Where the
 * state file can't be unlinked, the data file stays too, so that a daemon started meanwhile finds
 * the whole segment. A file that stays is litter. Returns false if one stays. store->lock is held,
 * or no other thread knows the store.
 */
bool seg_unlink(struct store *store, ramp_segment_t id);
bool seg_unlink_name(struct store *store, const char *name); /* one file, in the same way */

#endif
