/*
 * Whose turn it is, where threads are shared by users who may keep them for as long as they like.
 *
 * Users take turns, and each has at most as many threads as are left then: the first a half, a
 * second one a quarter. So whoever comes after those that keep theirs finds one, until there are
 * as many of them as it takes to halve the threads away.
 *
 * Thread-safety: none; the caller's lock is held around each call. Aborts without memory: what
 * waits here is somebody's request, which must not get lost.
 */
#ifndef RAMP_SHARES_H
#define RAMP_SHARES_H

#include <stdbool.h>
#include <sys/queue.h>
#include <sys/types.h>

struct share; /* one user's, while he has any */

/* Part of what waits: the caller's until shares_add, and from shares_next on. */
struct turn {
	STAILQ_ENTRY(turn) link;
	struct share *share;
};

struct shares {
	TAILQ_HEAD(, share) users; /* whose turn is next first */
	unsigned int threads, running, waiting;
};

void shares_init(struct shares *shares, unsigned int threads);
void shares_add(struct shares *shares, uid_t uid, struct turn *turn);
/* Whether shares_next would say one. */
bool shares_ready(const struct shares *shares);
/* The next one, which runs from here on; NULL: none, or whose there are has all that he may have. */
struct turn *shares_next(struct shares *shares);
void shares_end(struct turn *turn, struct shares *shares); /* it has run; turn is the caller's */

#endif
