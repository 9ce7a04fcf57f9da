/*
 * State that the commands of one session leave to the next command, and to the next session.
 *
 * Of the agent's thread alone.
 */
#ifndef RAMP_AGENT_SESSION_H
#define RAMP_AGENT_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

#include "base/session.h"
#include "move_guard.h"

#define SCRATCH_MAX	 64
#define SWAP_STACK_BYTES 16384
#define AWAY_MAX	 1024

/* A mapping that BACK has made and no SWAP has put in its place yet. */
struct scratch {
	uint64_t at, len;
	uint32_t prot;
	bool readonly;
};

/* A mapping whose page tables go away for a revoke, or have gone (away.c). */
struct away {
	uint64_t home, at, len; /* at 0: free */
	uint64_t segment;
	uint8_t prot; /* of the mapping when it was moved */
	bool nohuge;  /* likewise */
	bool moved;   /* else there is only a place for it */
	bool trash;   /* it is not moved back any more: [at, at + len) is unmapped bit by bit */
};

/* All zero, but for index, sock and the userfaultfds, when an agent begins. */
struct agent_session {
	uint8_t index; /* of the agent; the table's ranges carry it as their session */
	int sock;      /* a swap stops waiting when it hangs up */
	int uffd;      /* kept for as long as the process lives */
	int second;    /* likewise: that which closes segments to stores; -1: none */
	struct away away[AWAY_MAX];
	struct scratch scratch[SCRATCH_MAX];
	uint32_t n_away;	/* no entry of `away` from here on was ever used */
	bool swapping;		/* a SWAP's mremap is under way, in a thread of its own */
	uint64_t poll_until_us; /* for the next command, before the thread sleeps */
	uint64_t swap_from, swap_to, swap_len;
	/* The parts of a SWAP, which are put in place one after the other because each has a
	   protection of its own: where each ends, counted from the range's beginning, and how far
	   the swap has come. */
	uint64_t swap_ends[SESSION_PARTS_MAX], swap_done;
	uint32_t swap_parts;
	int swap_event;
	long swap_result;
	_Atomic uint32_t swap_owner; /* a futex: lends that thread the agent's priority */
	_Atomic uint32_t swap_alive; /* the kernel clears it when that thread has left its stack */
	_Alignas(16) char swap_stack[SWAP_STACK_BYTES];
	struct move_guard guard;
	struct move_guard second_guard; /* of the second userfaultfd; once begun it stays */
};

/* mmap(2)'s flags for the segment's file that comes with a MAP or a BACK. */
static inline int segment_map_type(const struct session_msg *msg)
{
	return msg->flags & SESSION_PRIVATE ? MAP_PRIVATE | MAP_NORESERVE : MAP_SHARED;
}

/* Returns the scratch mapping at that address, a free entry for address 0, or NULL. */
struct scratch *scratch_find(struct agent_session *session, uint64_t at);
/* Unmaps a scratch mapping but for its first `done` bytes, which have been put in place: their old
   addresses may belong to another mapping by now. Frees the entry. */
void scratch_drop(struct scratch *scratch, uint64_t done);
/* Unmaps the scratch mappings of a daemon that died between BACK and SWAP; the next daemon makes
   its own. */
void scratch_drop_all(struct agent_session *session);

#endif
