/*
 * Addresses at which memory is mapped to be registered. See addresses.h.
 */
#include "addresses.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/types.h>

#include "base/ids.h"

#define ADDRESSES_MOST	(UINT64_C(1) << 45) /* 32 TiB: a quarter of what a process has */
#define ADDRESSES_LEAST (UINT64_C(1) << 32)

int addresses_open(struct addresses *addresses, struct ramp_err *err)
{
	void *at = MAP_FAILED;
	uint64_t len;

	for (len = ADDRESSES_MOST; len >= ADDRESSES_LEAST && at == MAP_FAILED; len /= 2)
		at = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return ramp_err_sys(err, errno, "no addresses for memory that others read");
	*addresses = (struct addresses){.base = at, .len = len * 2};
	return 0;
}

void addresses_close(struct addresses *addresses)
{
	if (addresses->base)
		munmap(addresses->base, addresses->len);
	*addresses = (struct addresses){0};
}

int addresses_map(struct addresses *addresses, int fd, uint64_t offset, uint64_t len, void **out)
{
	/* Huge pages are mapped as such where address and offset agree. */
	uint64_t at = (addresses->used + RAMP_HUGE_BYTES - 1) / RAMP_HUGE_BYTES * RAMP_HUGE_BYTES;
	uintptr_t skew = (uintptr_t)addresses->base % RAMP_HUGE_BYTES;

	at += (offset - skew) % RAMP_HUGE_BYTES;
	if (at >= addresses->len || len > addresses->len - at)
		return -ENOSPC;
	*out = mmap(addresses->base + at, len, PROT_READ, MAP_SHARED | MAP_FIXED, fd,
		    (off_t)offset);
	if (*out == MAP_FAILED)
		return -errno;
	addresses->used = at + len;
	return 0;
}

void addresses_unmap(void *at, uint64_t len)
{
	/* A plain munmap(2) lets any other mapping have them: only where the kernel has no mapping left. */
	if (mmap(at, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
		 0) == MAP_FAILED)
		munmap(at, len);
}
