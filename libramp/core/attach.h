/*
 * mmap(MAP_SHARED) of a rampfs file, and requests to the daemon by the program's threads.
 */
#ifndef RAMP_ATTACH_H
#define RAMP_ATTACH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/session.h"
#include "sys.h"

/* One attach at a time. May be held while a daemon answers; no agent ever takes it. */
extern struct shim_lock attach_lock;
/* A segment was asked for once: before, forks have nothing to do with us. */
extern _Atomic bool attach_used;

/* One request to the daemon that listens there, one answer, which replaces *msg. 0 when a RESULT
   came (whatever it says); -EPIPE: there is no daemon, or it hung up; -ETIMEDOUT. */
int attach_ask(const char *path, struct session_msg *msg, uint64_t deadline_ms);

/* Unmaps what an attach left behind that never ended (its agent mapped, its daemon died), and what
   a fork's child was given that its parent has unmapped meanwhile. */
void attach_drop_pending(void);

struct attach_call {
	uint64_t addr, len; /* as given to mmap; addr is a hint without MAP_FIXED */
	int prot, flags, fd;
	uint64_t offset;
};
/* mmap(MAP_SHARED) of a rampfs file: *at is where it lies. -ENOTTY: it is no segment, the kernel
   may have it. What else is refused has been said on stderr. Any thread. */
int attach_mmap(const struct attach_call *call, uint64_t *at);

#endif
