/*
 * mmap(MAP_SHARED) of a rampfs file.
 */
#ifndef RAMP_ATTACH_H
#define RAMP_ATTACH_H

#include <stdbool.h>
#include <stdint.h>

struct attach_call {
	uint64_t addr, len; /* as given to mmap; addr is a hint without MAP_FIXED */
	int prot, flags, fd;
	uint64_t offset;
	/* SESSION_TEXT_MAX bytes: becomes why it failed, or "" where errno says it. NULL: stderr is
	   told. */
	char *reason;
	/* The segment is on its way to this node: it is mapped as one that has left, and is in its
	   place when it comes. */
	bool ahead;
	uint8_t *session; /* NULL, or becomes the number of its mount's agent in this process */
};
/* Reads RAMPFS_FIXED. Once, when the program begins. */
void attach_init(void);
/* Maps a segment. Returns 0, and *at is its address; -ENOTTY: the file is no segment, and the
   kernel may map it; or another negative errno, after its reason has been told. Any thread. */
int attach_mmap(const struct attach_call *call, uint64_t *at);

#endif
