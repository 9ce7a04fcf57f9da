/*
 * What one user may have at a time (quota.c). Any thread.
 */
#ifndef RAMP_PROGRAMS_QUOTA_H
#define RAMP_PROGRAMS_QUOTA_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum quota_kind {
	QUOTA_PENDING,
	QUOTA_SESSIONS, /* orphans too */
	QUOTA_BROKER, /* until the broker's thread has ended; what is to be let go of (broker_release.c) */
	QUOTA_REQUESTS,
	QUOTA_TOOLS,
	QUOTA_TOKENS,
	QUOTA_KINDS
};
#define QUOTA_DEFAULT 0u	/* max: the usual one, of that kind */
struct quota *quota_open(void); /* NULL: no memory */
void quota_close(struct quota *quota);
/* False, and a line in the log, where he would have more than `max`. Any thread. */
bool quota_take(struct quota *quota, uid_t uid, enum quota_kind what, uint32_t by, uint32_t max);
void quota_give(struct quota *quota, uid_t uid, enum quota_kind what, uint32_t by);

#endif
