/*
 * Quotas: how much one user may have at a time (quota.c). Any thread.
 */
#ifndef RAMP_PROGRAMS_QUOTA_H
#define RAMP_PROGRAMS_QUOTA_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum quota_kind {
	QUOTA_PENDING,
	QUOTA_SESSIONS, /* and orphans */
	/* At the broker until its thread has ended, and userfaultfds to be closed
	   (broker_release.c). */
	QUOTA_BROKER,
	QUOTA_REQUESTS,
	QUOTA_TOOLS,
	QUOTA_STEPS,   /* moves that are made in steps: each keeps room at its target */
	QUOTA_BATCHED, /* segments that tools want to move, many at once */
	QUOTA_TOKENS,
	QUOTA_KINDS
};
#define QUOTA_DEFAULT 0u	/* as `max`: the usual limit of that kind */
struct quota *quota_open(void); /* NULL: no memory */
void quota_close(struct quota *quota);
/* Takes `by` more. False, with a line in the log, if the user would then have more than `max`.
   Any thread. */
bool quota_take(struct quota *quota, uid_t uid, enum quota_kind what, uint32_t by, uint32_t max);
/* Gives `by` back. */
void quota_give(struct quota *quota, uid_t uid, enum quota_kind what, uint32_t by);

#endif
