/*
 * A bare thread that reads the agent's userfaultfd when no daemon does.
 *
 * mremap(2) of a registered mapping ends when its event has been read. If the daemon dies first, the
 * agent would stand there for ever, and could not hand its userfaultfd to the next daemon: so this
 * thread waits for the session to hang up, and then reads. It is begun before a window, since to make
 * a thread takes longer than the window may.
 *
 * Of the second userfaultfd no daemon reads: of what it says the daemon has to know nothing. Its guard
 * reads all the time.
 *
 * Of the agent's thread alone.
 */
#ifndef RAMP_MOVE_GUARD_H
#define RAMP_MOVE_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#define GUARD_STACK_BYTES 8192

/* All zero: there is none. */
struct move_guard {
	int sock, uffd, event;
	bool begun;
	_Atomic uint32_t alive; /* the kernel clears it when the thread has left its stack */
	_Alignas(16) char stack[GUARD_STACK_BYTES];
};

/* Whether this machine's system calls are known here. */
bool move_guard_possible(void);
/* Begins it where there is none. sock -1: it reads at once. Returns 0 or a positive errno. */
int move_guard_begin(struct move_guard *guard, int sock, int uffd);
/* Whether it stands guard. */
bool move_guard_stands(const struct move_guard *guard);
/* Ends it, before its socket is closed, and waits for that. */
void move_guard_end(struct move_guard *guard);

#endif
