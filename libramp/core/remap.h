/*
 * The program's changes of ranges that are mapped: munmap, mprotect, mremap, madvise, and mappings
 * over them.
 *
 * For ranges of which table_near() is true, with the arguments of the function of that name. Each
 * returns 0 or a negative errno; a refusal has been written to stderr. Any thread.
 */
#ifndef RAMP_REMAP_H
#define RAMP_REMAP_H

#include <stddef.h>
#include <stdint.h>

#include "guard.h"

/* unmap_rest is munmap(2) for the parts in between that are not ours; it sets errno. */
int remap_munmap(void *addr, uint64_t len, int (*unmap_rest)(void *addr, size_t length));
/* Of that session's mappings alone. */
int remap_munmap_of(void *addr, uint64_t len, uint8_t session);
/* pkey: as for pkey_mprotect(2); -1 for mprotect(2). */
int remap_mprotect(void *addr, uint64_t len, int prot, int pkey);
/* In place. -ENOTTY: nothing of it is ours. */
int remap_mremap(void *old, uint64_t old_len, uint64_t new_len, int flags);
/* Refuses the call, or returns -ENOTTY: nothing of it is ours. */
int remap_file_pages_refuse(void *addr, uint64_t len);
/* -ENOTTY: the kernel may do it as it is. */
int remap_madvise(void *addr, uint64_t len, int advice);
/*
 * Around a call by which the program maps something of its own where something of ours may be, as
 * by MAP_FIXED: between begin and end no agent puts a segment or an empty file there. `len` of
 * begin is how much the call replaces where it succeeds, or 0; `len` of end is how much of ours it
 * has replaced (the table forgets that), and 0 where it has failed. -ENOMEM of begin: the table is
 * full; nothing may be replaced, and there is no end.
 */
int remap_over_begin(struct signal_guard *guard, const void *addr, uint64_t len);
void remap_over_end(const struct signal_guard *guard, const void *addr, uint64_t len);

#endif
