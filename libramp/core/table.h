/*
 * The process's one mapping table (ranges.h), shared by its threads and its agents.
 *
 * The lock is held for bounded work only: changes of the table and the system calls that go with
 * them (munmap, mprotect, mremap), never while memory of a segment is touched, a message is awaited
 * or another lock is taken. `low` and `high` bound everything that was ever in it, and are read
 * without the lock.
 */
#ifndef RAMP_TABLE_H
#define RAMP_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "ranges.h"
#include "sys.h"

struct table {
	struct shim_lock lock;
	_Atomic uint64_t low, high; /* low 0: nothing yet */
	struct ranges ranges;	    /* protected by lock */
	/* Segments that agents are putting in place, without the lock: begun under it. */
	_Atomic uint32_t swaps;
};
extern struct table table;

/* ranges_add, and the bounds. Under table.lock. */
int table_add(const struct range *range);
/* False: nothing in [addr, addr + len) was ever mapped through the shim. No lock, no system call.
 */
bool table_near(const void *addr, uint64_t len);
/* mprotect of one range. -EACCES: its open does not allow that. Under table.lock. */
int table_protect(struct range *range, uint8_t prot);
/* Everything in [start, end) once less; what was mapped once only is unmapped, and with `gaps_too`
   also what is not ours. 0, or the last negative errno. Under table.lock. */
int table_release(uint64_t start, uint64_t end, bool gaps_too);

#endif
