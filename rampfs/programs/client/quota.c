/*
 * What each user has of this daemon: so many that one of them can't use up what belongs to all.
 *
 * Happy path: who makes something for a user takes it from that user's share, and gives it back
 * with its end. A share that is used up: the taker says no to its client, and the log has one line
 * for as long as the user has anything here. root's share has no end, where `max` is USER_SHARE.
 */
#include <stdlib.h>

#include "base/log.h"
#include "programs/local.h"

#define USER_BUCKETS 64u

struct user {
	LIST_ENTRY(user) link;
	uid_t uid;
	uint32_t n[USER_COUNTS];
	bool said[USER_COUNTS];
};

struct users {
	pthread_mutex_t lock; /* protects what follows; nothing else is locked under it */
	LIST_HEAD(, user) buckets[USER_BUCKETS];
};

static const struct {
	const char *name;
	uint32_t max;
} shares[USER_COUNTS] = {
	[USER_NEWCOMERS] = {"connections that have said nothing yet", 128},
	[USER_SESSIONS] = {"sessions", 4096},
	[USER_DOORS] = {"userfaultfds on their way", 16},
	[USER_REQUESTS] = {"requests that wait", 1024},
	[USER_TOOLS] = {"tools", 1024},
	[USER_TOKENS] = {"tokens", 2048},
};

/* users->lock is held; so for the next two. */
static struct user *find(struct users *users, uid_t uid)
{
	struct user *user;

	LIST_FOREACH (user, &users->buckets[uid % USER_BUCKETS], link)
		if (user->uid == uid)
			return user;
	return NULL;
}

static struct user *find_or_make(struct users *users, uid_t uid)
{
	struct user *user = find(users, uid);

	if (user)
		return user;
	user = calloc(1, sizeof(*user));
	if (!user)
		return NULL;
	user->uid = uid;
	LIST_INSERT_HEAD(&users->buckets[uid % USER_BUCKETS], user, link);
	return user;
}

static void forget_idle(struct user *user)
{
	for (int i = 0; i < USER_COUNTS; i++)
		if (user->n[i])
			return;
	LIST_REMOVE(user, link);
	free(user);
}

bool user_take(struct programs *p, uid_t uid, enum user_count what, uint32_t by, uint32_t max)
{
	struct users *users = p->users;
	struct user *user;
	bool taken = false, say = false;

	if (max == USER_SHARE)
		max = uid == 0 && what != USER_NEWCOMERS && what != USER_DOORS ? UINT32_MAX
									       : shares[what].max;
	pthread_mutex_lock(&users->lock);
	user = find_or_make(users, uid);
	if (user) {
		taken = by <= max && user->n[what] <= max - by;
		say = !taken && !user->said[what];
		user->said[what] |= say;
		user->n[what] += taken ? by : 0;
		forget_idle(user);
	}
	pthread_mutex_unlock(&users->lock);
	/* Doors are waited for: a fork storm is no news. */
	if (say && what != USER_DOORS)
		log_warn("user %u has %u %s, and gets no more", (unsigned int)uid, max,
			 shares[what].name);
	return taken;
}

void user_give(struct programs *p, uid_t uid, enum user_count what, uint32_t by)
{
	struct users *users = p->users;
	struct user *user;

	pthread_mutex_lock(&users->lock);
	user = find(users, uid);
	if (user) {
		user->n[what] -= by;
		forget_idle(user);
	}
	pthread_mutex_unlock(&users->lock);
}

struct users *users_open(void)
{
	struct users *users = calloc(1, sizeof(*users));

	if (users)
		pthread_mutex_init(&users->lock, NULL);
	return users;
}

void users_close(struct users *users)
{
	struct user *user;

	for (size_t i = 0; i < USER_BUCKETS; i++)
		while ((user = LIST_FIRST(&users->buckets[i]))) {
			LIST_REMOVE(user, link);
			free(user);
		}
	pthread_mutex_destroy(&users->lock);
	free(users);
}
