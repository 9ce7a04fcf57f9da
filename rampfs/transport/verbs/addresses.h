/*
 * Addresses at which memory is mapped to be registered. None is given out twice in a daemon's life:
 * an (address, rkey) that a reader has kept for too long leads nowhere, also where the device gives
 * the same rkey again.
 *
 * Thread-safety: the caller's.
 */
#ifndef RAMP_VERBS_ADDRESSES_H
#define RAMP_VERBS_ADDRESSES_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct addresses {
	uint8_t *base;
	uint64_t len, used;
};

/* Reserves as much address space as the kernel gives, terabytes of it. */
int addresses_open(struct addresses *addresses, struct ramp_err *err);
void addresses_close(struct addresses *addresses);
/* Maps bytes [offset, offset + len) of a file, whole pages, to be read only. -ENOSPC: every address has been
   given out; or the errno of mmap(2). */
int addresses_map(struct addresses *addresses, int fd, uint64_t offset, uint64_t len, void **out);
/* Takes the mapping away, and keeps the addresses from being used again. */
void addresses_unmap(void *at, uint64_t len);

#endif
