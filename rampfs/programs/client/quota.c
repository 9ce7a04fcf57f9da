/*
 * Quotas: how much each user has of the daemon's memory, threads and descriptors, so that no user
 * can use up what is there for all.
 *
 * Happy path: code that makes something for a user takes it from that user's quota, and gives it
 * back when the thing ends. When the quota is used up, the caller refuses its client, and the log
 * has one line, once for as long as the user has anything here. root's quota has no limit, where
 * `max` is QUOTA_DEFAULT and the kind is neither QUOTA_PENDING nor QUOTA_BROKER.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "base/log.h"
#include "quota.h"

#define QUOTA_BUCKETS 64u

struct quota_user {
	LIST_ENTRY(quota_user) link;
	uid_t uid;
	uint32_t n[QUOTA_KINDS];
	bool said[QUOTA_KINDS];
};

struct quota {
	pthread_mutex_t lock; /* protects what follows; nothing else is locked under it */
	LIST_HEAD(, quota_user) buckets[QUOTA_BUCKETS];
};

static const struct {
	const char *name;
	uint32_t max;
} shares[QUOTA_KINDS] = {
	[QUOTA_PENDING] = {"connections that have said nothing yet", 128},
	[QUOTA_SESSIONS] = {"sessions", 4096},
	[QUOTA_BROKER] = {"userfaultfds on their way", 16},
	[QUOTA_REQUESTS] = {"requests that wait", 1024},
	[QUOTA_TOOLS] = {"tools", 1024},
	[QUOTA_STEPS] = {"moves in steps", 64},
	[QUOTA_BATCHED] = {"segments to be moved at once", 65536},
	[QUOTA_TOKENS] = {"tokens", 2048},
};

/* quota->lock is held; so for the next two functions. */
static struct quota_user *find_user(struct quota *quota, uid_t uid)
{
	struct quota_user *user;

	LIST_FOREACH (user, &quota->buckets[uid % QUOTA_BUCKETS], link)
		if (user->uid == uid)
			return user;
	return NULL;
}

static struct quota_user *find_or_make_user(struct quota *quota, uid_t uid)
{
	struct quota_user *user = find_user(quota, uid);

	if (user)
		return user;
	user = calloc(1, sizeof(*user));
	if (!user)
		return NULL;
	user->uid = uid;
	LIST_INSERT_HEAD(&quota->buckets[uid % QUOTA_BUCKETS], user, link);
	return user;
}

static void forget_idle(struct quota_user *user)
{
	for (int i = 0; i < QUOTA_KINDS; i++)
		if (user->n[i])
			return;
	LIST_REMOVE(user, link);
	free(user);
}

bool quota_take(struct quota *quota, uid_t uid, enum quota_kind what, uint32_t by, uint32_t max)
{
	struct quota_user *user;
	bool taken = false, say = false;

	if (max == QUOTA_DEFAULT)
		max = uid == 0 && what != QUOTA_PENDING && what != QUOTA_BROKER ? UINT32_MAX
										: shares[what].max;
	pthread_mutex_lock(&quota->lock);
	user = find_or_make_user(quota, uid);
	if (user) {
		taken = by <= max && user->n[what] <= max - by;
		say = !taken && !user->said[what];
		user->said[what] |= say;
		user->n[what] += taken ? by : 0;
		forget_idle(user);
	}
	pthread_mutex_unlock(&quota->lock);
	/* Sessions wait in line for the broker: that many forks at once are no reason for a log
	   line. */
	if (say && what != QUOTA_BROKER)
		log_warn("user %u has %u %s, and gets no more", (unsigned int)uid, max,
			 shares[what].name);
	return taken;
}

void quota_give(struct quota *quota, uid_t uid, enum quota_kind what, uint32_t by)
{
	struct quota_user *user;

	pthread_mutex_lock(&quota->lock);
	user = find_user(quota, uid);
	if (user) {
		user->n[what] -= by;
		forget_idle(user);
	}
	pthread_mutex_unlock(&quota->lock);
}

struct quota *quota_open(void)
{
	struct quota *quota = calloc(1, sizeof(*quota));

	if (quota)
		pthread_mutex_init(&quota->lock, NULL);
	return quota;
}

void quota_close(struct quota *quota)
{
	struct quota_user *user;

	for (size_t i = 0; i < QUOTA_BUCKETS; i++)
		while ((user = LIST_FIRST(&quota->buckets[i]))) {
			LIST_REMOVE(user, link);
			free(user);
		}
	pthread_mutex_destroy(&quota->lock);
	free(quota);
}
