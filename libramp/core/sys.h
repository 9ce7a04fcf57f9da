/*
 * What every part of the shim stands on: entering and leaving it, its lock, its lines to the user,
 * the kernel's calls past everybody's wrappers, and the next library's.
 *
 * The shim lives in strangers' processes: it allocates nothing, uses no stdio, keeps no descriptor
 * open in the program's table, and may be called before any constructor has run.
 */
#ifndef RAMP_SHIM_H
#define RAMP_SHIM_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/ids.h"

/* ---- the next library's functions, or the kernel's before shim_resolve() ----------------------
 */

struct shim_next {
	void *(*mmap)(void *addr, size_t length, int prot, int flags, int fd, off_t offset);
	int (*munmap)(void *addr, size_t length);
	void *(*mremap)(void *old, size_t old_size, size_t new_size, int flags, ...);
	int (*mprotect)(void *addr, size_t length, int prot);
	int (*madvise)(void *addr, size_t length, int advice);
	int (*remap_file_pages)(void *addr, size_t length, int prot, size_t page, int flags);
	pid_t (*fork_raw)(void);
	int (*clone)(int (*fn)(void *), void *stack, int flags, void *arg, ...);
};
extern struct shim_next shim_next;

/* As fork_init (fork.h): looks up what comes after us, reads RAMPFS_QUIET, and looks what stderr is.
 */
void shim_resolve(void);

/*
 * By a thread of ours, when it begins: the C library ends a process with its last thread
 * (pthread_exit(3)), and ours is none that a program should wait for. Taken back before it ends.
 */
void shim_count_thread_out(void);
void shim_count_thread_in(void);

/* ---- system calls: 0, a value or a negative errno ---------------------------------------------
 */

long shim_mmap(uint64_t addr, uint64_t len, int prot, int flags, int fd, uint64_t offset);
int shim_munmap(uint64_t addr, uint64_t len);
long shim_mremap(uint64_t old, uint64_t old_len, uint64_t new_len, int flags, uint64_t to);
int shim_mprotect(uint64_t addr, uint64_t len, int prot);
int shim_madvise(uint64_t addr, uint64_t len, int advice);
int shim_munlock(uint64_t addr, uint64_t len);
int shim_msync(uint64_t addr, uint64_t len, int flags);
int shim_ioctl(int fd, unsigned long request, void *arg);
int shim_open(const char *path, int flags);
/* False: *word was not `expected` any more or the time is over; NULL timeout: for ever. */
void shim_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint32_t timeout_ms);
void shim_futex_wake(_Atomic uint32_t *word);
uint64_t shim_now_ms(void);
void shim_pause_ms(uint32_t ms);
/* A string, cut where it is too long. */
void shim_copy(char *to, size_t cap, const char *from);

static inline uint64_t shim_page_up(uint64_t bytes)
{
	return (bytes + RAMP_PAGE_BYTES - 1) & ~(uint64_t)(RAMP_PAGE_BYTES - 1);
}

static inline bool shim_page_aligned(uint64_t bytes)
{
	return bytes % RAMP_PAGE_BYTES == 0;
}

/* ---- entering and leaving ---------------------------------------------------------------------
 */

/*
 * Between enter and leave the calling thread runs no signal handler (which might call mmap and meet
 * the lock that its own thread holds) and is not cancelled.
 */
struct shim_guard {
	sigset_t mask;
	int cancel;
	int saved_errno;
};
void shim_enter(struct shim_guard *guard);
/* errno is as it was at shim_enter. */
void shim_leave(const struct shim_guard *guard);

/* ---- a lock -----------------------------------------------------------------------------------
 */

/* A futex: 0 free, 1 held, 2 held and waited for. All zero: free. */
struct shim_lock {
	_Atomic uint32_t word;
};
void shim_lock(struct shim_lock *lock);
/* False: not got within that time. */
bool shim_lock_for(struct shim_lock *lock, uint32_t timeout_ms);
void shim_unlock(struct shim_lock *lock);

/* ---- one line to the user ---------------------------------------------------------------------
 */

/*
 * Joins the strings up to a NULL and writes them, with a newline, to the program's stderr, unless
 * RAMPFS_QUIET=1. Never waits: a stderr that takes nothing gets nothing, nor does what has only its
 * number, as far as can be told. For threads of the program, between shim_enter and shim_leave.
 */
void shim_say(const char *first, ...) __attribute__((sentinel));
/* "rampfs: WHAT: REASON", or the errno's text where the reason is empty. Returns -code. */
int shim_refuse(const char *what, int code, const char *reason);
/* shim_say for the agent, which has a file table of its own. */
void shim_say_agent(const char *first, ...) __attribute__((sentinel));

#endif
