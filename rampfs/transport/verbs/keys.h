/*
 * What one connection may read by RDMA: for each key the regions that its source has told.
 *
 * All of it holds for one queue pair at one life of the source. The reader forgets it with the queue
 * pair and asks again: so a restart of either end, a lost message and a new queue pair are one path.
 *
 * Thread-safety: one struct keys by one thread at a time.
 */
#ifndef RAMP_VERBS_KEYS_H
#define RAMP_VERBS_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "message.h"

#define KEYS_MAX 64u /* those used last */

struct keys_entry {
	struct tp_key key;
	uint64_t used;	 /* the higher, the later; 0: free */
	uint64_t ask_ms; /* when its regions are asked for (again); UINT64_MAX: all are here */
	uint32_t after_ms;
	uint32_t n, cap;
	struct message_region *regions; /* in order, apart */
};

struct keys {
	struct keys_entry entries[KEYS_MAX];
	struct keys_entry *last; /* the one that was looked up last */
	uint64_t uses;
};

/* NULL: not there. */
struct keys_entry *keys_find(struct keys *keys, const struct tp_key *key);
/* Adds a key that is not there, in the place of the one that was used the longest time ago. */
struct keys_entry *keys_add(struct keys *keys, const struct tp_key *key);
/* Notes that the entry is asked for at `now_ms`, and when to do so again. */
void keys_asked(struct keys_entry *entry, uint64_t now_ms);
/* Takes regions that were told, in the order of their numbers: those that are here are skipped. False: some before
   them are missing (or there is no memory), and they are asked for again. So are those of a key that has none (yet). */
bool keys_told(struct keys_entry *entry, const struct message_regions *told);
/* Returns the region that covers `offset`, or NULL: then *gap is how many bytes of `len` come before
   the next one. */
const struct message_region *keys_cover(const struct keys_entry *entry, uint64_t offset, size_t len,
					size_t *gap);
/* Forgets all regions; the keys stay, to be asked for at once. */
void keys_forget(struct keys *keys);
void keys_free(struct keys *keys);

#endif
