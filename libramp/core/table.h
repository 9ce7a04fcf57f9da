/*
 * The process's one mapping table (ranges.h), shared by its threads and its agents.
 *
 * The lock is held for bounded work only: changes of the table and the system calls that go with
 * them (munmap, mprotect, mremap). It is never held while memory of a segment is touched, a message
 * is awaited or another lock is taken. `low` and `high` bound everything that was ever in the
 * table, and are read without the lock.
 */
#ifndef RAMP_TABLE_H
#define RAMP_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lock.h"
#include "ranges.h"

struct mapping_table {
	struct futex_lock lock;
	_Atomic uint64_t low, high; /* low 0: nothing yet */
	struct ranges ranges;	    /* protected by lock */
	bool pending;		    /* the same: some ranges may be PENDING */
	/* How many segments agents are putting in their place, without the lock; begun under it. */
	_Atomic uint32_t swaps;
};
extern struct mapping_table table;

/* Takes the lock when no agent is putting a segment in its place; waits 10 s at most for that. */
void table_lock_settled(void);
/* For agents: waits for the lock a second at most. Returns false without it: then the table is only
   read, because a thread that holds the lock for a second is blocked on its own stack in a segment,
   or stopped by a debugger. */
bool table_agent_lock(void);
void table_agent_unlock(bool locked);

/* Returns false where nothing in [addr, addr + len) was ever mapped by us. No lock, no system
   call. */
bool table_near(const void *addr, uint64_t len);

/* ---- under table.lock ---- */

/* ranges_add, and the bounds. */
int table_add(const struct range *range);
/* mprotect of one range. -EACCES: its open does not allow that. */
int table_protect(struct range *range, uint8_t prot);
/* Takes one mapping off every range in [start, end), and unmaps ranges that were mapped only once.
   With `unmap_rest` (munmap(2); it sets errno) also unmaps all that is not ours. Returns 0 or the
   last negative errno. */
int table_release(uint64_t start, uint64_t end, int (*unmap_rest)(void *addr, size_t length));
#define TABLE_ANY (-1) /* every session */
/* The same of the ranges of one session alone. */
int table_release_of(uint64_t start, uint64_t end, uint8_t session);
/* Unmaps the pending ranges: those of an attach that never ended (its agent mapped, its daemon
   died), and those that a fork's child was given though its parent has unmapped them meanwhile. */
void table_drop_pending_locked(void);

/* The table's pieces inside [addr, addr + len) are [*first, *last); none where the table is
   full. */
void table_pieces(uint64_t addr, uint64_t len, uint32_t *first, uint32_t *last);
/* The same, but where the table is full also the pieces of which a part lies there. */
void table_pieces_across(uint64_t addr, uint64_t len, uint32_t *first, uint32_t *last);

/* ---- takes table.lock ---- */

void table_drop_pending(void);

#endif
