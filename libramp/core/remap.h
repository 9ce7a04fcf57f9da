/*
 * What the program's threads do with ranges that are mapped through the shim.
 *
 * Called from the wrapped functions where table_near() is true, with the wrapped function's
 * arguments. 0 or a negative errno; what is refused has been said on stderr. Any thread.
 */
#ifndef RAMP_CHANGE_H
#define RAMP_CHANGE_H

#include <stdint.h>

#include "sys.h"

/* The table's lock, when no agent is putting a segment in its place: waits for 10 s at most. */
void change_lock(void);
int change_munmap(void *addr, uint64_t len);
int change_mprotect(void *addr, uint64_t len, int prot);
/* In place. -ENOTTY: nothing of it is ours. */
int change_mremap(void *old, uint64_t old_len, uint64_t new_len, int flags);
/* Refused, or -ENOTTY: nothing of it is ours. */
int change_remap_file_pages(void *addr, uint64_t len);
/* -ENOTTY: the kernel may do it as it is. */
int change_madvise(void *addr, uint64_t len, int advice);
/*
 * The program puts something of its own where something of ours may be, as by MAP_FIXED: between
 * begin and end no agent puts a segment or an empty file there. len: to begin, so much it replaces
 * where that is done, or 0; to end, so much of ours it has replaced, which is over, and 0 where that
 * has failed. -ENOMEM: the table is full; nothing may be replaced, and there is no end.
 */
int change_over_begin(struct shim_guard *guard, const void *addr, uint64_t len);
void change_over_end(const struct shim_guard *guard, const void *addr, uint64_t len);

#endif
