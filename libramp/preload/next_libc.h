/*
 * The functions that preload.c wraps, as the next library has them, or the kernel before
 * next_libc_resolve().
 */
#ifndef RAMP_NEXT_LIBC_H
#define RAMP_NEXT_LIBC_H

#include <stddef.h>
#include <sys/types.h>

struct next_libc {
	void *(*mmap)(void *addr, size_t length, int prot, int flags, int fd, off_t offset);
	int (*munmap)(void *addr, size_t length);
	void *(*mremap)(void *old, size_t old_size, size_t new_size, int flags, ...);
	int (*mprotect)(void *addr, size_t length, int prot);
	int (*pkey_mprotect)(void *addr, size_t length, int prot, int pkey);
	int (*madvise)(void *addr, size_t length, int advice);
	int (*remap_file_pages)(void *addr, size_t length, int prot, size_t page, int flags);
	pid_t (*fork_raw)(void);
	int (*clone)(int (*fn)(void *), void *stack, int flags, void *arg, ...);
};
extern struct next_libc next_libc;

/* Looks up the functions behind ours. Once, when the program begins. */
void next_libc_resolve(void);

#endif
