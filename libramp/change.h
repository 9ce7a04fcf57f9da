/*
 * What the program's threads do with ranges that are mapped through the shim.
 *
 * Called from the wrapped functions where table_near() is true, with the wrapped function's
 * arguments. 0 or a negative errno; what is refused has been said on stderr. Any thread.
 */
#ifndef RAMP_CHANGE_H
#define RAMP_CHANGE_H

#include <stdint.h>

int change_munmap(void *addr, uint64_t len);
int change_mprotect(void *addr, uint64_t len, int prot);
/* In place. -ENOTTY: nothing of it is ours. */
int change_mremap(void *old, uint64_t old_len, uint64_t new_len, int flags);
/* -ENOTTY: the kernel may do it as it is. */
int change_madvise(void *addr, uint64_t len, int advice);
/* The program puts something else there by MAP_FIXED: what we know of the range is over. */
void change_forget(const void *addr, uint64_t len);

#endif
