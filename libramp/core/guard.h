/*
 * Entering and leaving the core.
 *
 * Between guard_enter and guard_leave the calling thread runs no signal handler (a handler might
 * call mmap and meet the lock that its own thread holds) and is not cancelled.
 */
#ifndef RAMP_GUARD_H
#define RAMP_GUARD_H

#include <signal.h>

struct signal_guard {
	sigset_t mask;
	int cancel;
	int saved_errno;
};

void guard_enter(struct signal_guard *guard);
/* Restores errno as it was at guard_enter, too. */
void guard_leave(const struct signal_guard *guard);

#endif
