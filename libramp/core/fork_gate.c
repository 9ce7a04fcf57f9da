#include "fork_gate.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "sys.h"

#define GATE_PATIENCE_MS 1000
#define ONE_FORK	 1u
#define ALL_FORKS	 0xffffu
#define ONE_AGENT	 0x10000u
#define ALL_AGENTS	 0xffff0000u

/* All zero in a child with a memory of its own, however that child was made. */
struct unforked {
	_Atomic uint32_t gate; /* how many forks, how many agents, in its two halves */
	_Atomic pid_t owner;   /* the process to which the memory belongs */
};

/* Used until there is a page that forks wipe, and where there can be none: a child finds its
   parent's values. */
static struct unforked first_unforked;
static struct unforked *unforked = &first_unforked;

void fork_gate_init(void)
{
	long at = sys_mmap(0, RAMP_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);

	if (at < 0)
		return;
	if (sys_madvise((uint64_t)at, RAMP_PAGE_BYTES, MADV_WIPEONFORK))
		sys_munmap((uint64_t)at, RAMP_PAGE_BYTES);
	else
		unforked = (struct unforked *)at;
	unforked->owner = getpid();
}

/* Returns false where the time is over. */
static bool gate_wait(uint32_t seen, uint64_t end_ms)
{
	uint64_t now_ms = clock_ms();

	if (now_ms >= end_ms)
		return false;
	sys_futex_wait(&unforked->gate, seen, (uint32_t)(end_ms - now_ms));
	return true;
}

enum fork_memory fork_gate_memory(void)
{
	pid_t self = getpid(), none = 0;

	if (unforked == &first_unforked || unforked->owner == self)
		return FORK_MEMORY_OURS;
	return atomic_compare_exchange_strong(&unforked->owner, &none, self) ? FORK_MEMORY_COPIED
									     : FORK_MEMORY_SHARED;
}

void fork_gate_reset(void)
{
	unforked->gate = 0;
	unforked->owner = getpid();
}

static void gate_leave(uint32_t one)
{
	atomic_fetch_sub(&unforked->gate, one);
	sys_futex_wake(&unforked->gate);
}

void fork_gate_begin_fork(void)
{
	uint64_t end_ms = clock_ms() + GATE_PATIENCE_MS;
	uint32_t seen = unforked->gate;

	do
		while ((seen & ALL_AGENTS) && gate_wait(seen, end_ms))
			seen = unforked->gate;
	while (!atomic_compare_exchange_strong(&unforked->gate, &seen, seen + ONE_FORK));
}

void fork_gate_end_fork(void)
{
	gate_leave(ONE_FORK);
}

void fork_gate_block(void)
{
	uint64_t end_ms = clock_ms() + GATE_PATIENCE_MS;
	uint32_t seen = atomic_fetch_add(&unforked->gate, ONE_AGENT);

	while ((seen & ALL_FORKS) && gate_wait(seen, end_ms))
		seen = unforked->gate;
}

void fork_gate_unblock(void)
{
	gate_leave(ONE_AGENT);
}

long fork_gate_mmap(uint64_t addr, uint64_t len, int prot, int flags, int fd, uint64_t offset)
{
	long at;
	int rc = 0;

	fork_gate_block();
	at = sys_mmap(addr, len, prot, flags, fd, offset);
	if (at >= 0)
		rc = sys_madvise((uint64_t)at, len, MADV_DONTFORK);
	fork_gate_unblock();
	if (rc)
		sys_munmap((uint64_t)at, len);
	return rc ? rc : at;
}
