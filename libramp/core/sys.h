/*
 * System calls past every wrapper of the C library's functions, and a few helpers that
 * need no library.
 *
 * The core lives in foreign processes. It allocates nothing, uses no stdio, keeps no descriptor
 * open in the program's file table, and may be called before any constructor has run.
 */
#ifndef RAMP_SYS_H
#define RAMP_SYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/page.h"

/* Each returns 0, a value or a negative errno. errno may change. */
long sys_mmap(uint64_t addr, uint64_t len, int prot, int flags, int fd, uint64_t offset);
int sys_munmap(uint64_t addr, uint64_t len);
long sys_mremap(uint64_t old, uint64_t old_len, uint64_t new_len, int flags, uint64_t to);
int sys_mprotect(uint64_t addr, uint64_t len, int prot);
int sys_pkey_mprotect(uint64_t addr, uint64_t len, int prot, int pkey);
int sys_madvise(uint64_t addr, uint64_t len, int advice);
int sys_munlock(uint64_t addr, uint64_t len);
int sys_msync(uint64_t addr, uint64_t len, int flags);
int sys_ioctl(int fd, unsigned long request, void *arg);
/* Adds O_CLOEXEC. */
int sys_open(const char *path, int flags);

/* Waits while *word is `expected`: until a wake-up, a signal or the time-out. */
void sys_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint32_t timeout_ms);
/* Wakes every waiter. */
void sys_futex_wake(_Atomic uint32_t *word);

/* Sleeps; a signal may end it early. */
void sys_pause_ms(uint32_t ms);

/* Copies a string and cuts it where it is too long. cap > 0. */
void copy_text(char *to, size_t cap, const char *from);

static inline bool page_aligned(uint64_t bytes)
{
	return bytes % RAMP_PAGE_BYTES == 0;
}

#endif
