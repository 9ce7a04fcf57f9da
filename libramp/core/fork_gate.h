/*
 * The gate: a process either makes a child or makes a mapping that a child would get, not both at a
 * time. It also tells to which process this memory belongs.
 *
 * Threads that fork pass through it by the begin and end of a fork; agents block it around mmap(2)
 * and the MADV_DONTFORK that follows. Each side waits for the other a second at most.
 */
#ifndef RAMP_FORK_GATE_H
#define RAMP_FORK_GATE_H

#include <stdint.h>

enum fork_memory {
	FORK_MEMORY_OURS,
	FORK_MEMORY_COPIED, /* a child that no handler saw, at its first question: now it is ours */
	FORK_MEMORY_SHARED, /* another process's (vfork) */
};

void fork_gate_init(void);
enum fork_memory fork_gate_memory(void);
/* In a fork's child: the gate is open, and the memory is the child's own. */
void fork_gate_reset(void);

/* Around a call that makes a child with a memory of its own. By any thread, also in a signal's
   handler. The child does not come back to the end. */
void fork_gate_begin_fork(void);
void fork_gate_end_fork(void);

/* Around an mmap(2) and its MADV_DONTFORK: no child is made in between, except by a raw system
   call. By agents. Forks that come later wait: there may always be one under way. */
void fork_gate_block(void);
void fork_gate_unblock(void);
/* mmap(2) of a mapping that no child gets. Returns the address or a negative errno. */
long fork_gate_mmap(uint64_t addr, uint64_t len, int prot, int flags, int fd, uint64_t offset);

#endif
