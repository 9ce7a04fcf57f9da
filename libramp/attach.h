/*
 * What the program's threads do with mappings of segments: the wrappers' other half.
 *
 * All of these are called from the wrapped functions, with the wrapped function's arguments, and
 * return 0 or a negative errno; what is refused has been said on stderr. Any thread.
 */
#ifndef RAMP_ATTACH_H
#define RAMP_ATTACH_H

#include <stdbool.h>
#include <stdint.h>

#include "session.h"
#include "shim.h"

/* One attach at a time. May be held while a daemon answers; no agent ever takes it. */
extern struct shim_lock attach_lock;
/* A segment was asked for once: before, forks have nothing to do with us. */
extern _Atomic bool attach_used;

/* One request to the daemon that listens there, one answer, which replaces *msg. 0 when a RESULT
   came (whatever it says); -EPIPE: there is no daemon, or it hung up; -ETIMEDOUT. */
int attach_ask(const char *path, struct session_msg *msg, uint64_t deadline_ms);

/* False: nothing in [addr, addr + len) was ever mapped through the shim. No lock, no system call.
 */
bool attach_near(const void *addr, uint64_t len);

struct attach_call {
	uint64_t addr, len; /* as given to mmap; addr is a hint without MAP_FIXED */
	int prot, flags, fd;
	uint64_t offset;
};
/* mmap(MAP_SHARED) of a rampfs file: *at is where it lies. -ENOTTY: it is no segment, the kernel
   may have it. */
int attach_mmap(const struct attach_call *call, uint64_t *at);
/* The program puts something else there by MAP_FIXED: what we know of the range is over. */
void attach_forget(const void *addr, uint64_t len);

int attach_munmap(void *addr, uint64_t len);
/* -ENOTTY: nothing of it is ours. */
int attach_mremap(void *old, uint64_t old_len, uint64_t new_len, int flags);
int attach_mprotect(void *addr, uint64_t len, int prot);
/* -ENOTTY: the kernel may do it as it is. */
int attach_madvise(void *addr, uint64_t len, int advice);

#endif
