/*
 * The daemon's commands (base/session.h), as the agent carries them out.
 *
 * Of the agent's thread alone.
 */
#ifndef RAMP_COMMANDS_H
#define RAMP_COMMANDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/session.h"

#define SCRATCH_MAX	 64
#define SWAP_STACK_BYTES 16384

/* A mapping made for BACK that no SWAP has put in place yet. */
struct scratch {
	uint64_t at, len;
	uint32_t prot;
	bool readonly;
};

/* What one session's commands leave behind for the next. All zero, but for session and sock, when
   an agent begins. */
struct hands {
	uint8_t session; /* whose ranges: index of the agent */
	int sock;	 /* the session's; a swap stops waiting when it hangs up */
	struct scratch scratch[SCRATCH_MAX];
	bool swapping; /* a SWAP's mremap is under way, in a thread of its own */
	uint64_t swap_from, swap_to, swap_len;
	/* What is put in place one after the other, since each has a protection of its own: where
	   they end, from the range's beginning, and how far it has come. */
	uint64_t swap_ends[SESSION_PARTS_MAX], swap_done;
	uint32_t swap_parts;
	int swap_event;
	long swap_result;
	_Atomic uint32_t swap_alive; /* cleared by the kernel when that thread has left its stack */
	_Alignas(16) char swap_stack[SWAP_STACK_BYTES];
};

/* `fd`: the descriptor that came with it, or -1; it stays the caller's. A positive errno, or 0;
 *done has the other fields of DONE. *hung_up: the session ended first. */
int hands_carry_out(struct hands *hands, const struct session_msg *msg, int fd,
		    struct session_msg *done, bool *hung_up);
/* Waits for a swap that is under way. False: the session hung up first, and it still is. */
bool hands_finish_swap(struct hands *hands);
/* Unmaps what a daemon that died between BACK and SWAP has left; the next one makes its own. */
void hands_drop_scratch(struct hands *hands);

#endif
