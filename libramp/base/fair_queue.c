/*
 * Turns.
 *
 * A line for each user who has something that waits or runs; it is gone with the last of that.
 */
#include "fair_queue.h"

#include <stdlib.h>

struct share {
	TAILQ_ENTRY(share) link;
	uid_t uid;
	STAILQ_HEAD(, turn) turns;
	unsigned int running;
};

void shares_init(struct shares *shares, unsigned int threads)
{
	*shares = (struct shares){.threads = threads};
	TAILQ_INIT(&shares->users);
}

static struct share *share_of(struct shares *shares, uid_t uid)
{
	struct share *share;

	TAILQ_FOREACH (share, &shares->users, link)
		if (share->uid == uid)
			return share;
	share = malloc(sizeof(*share));
	if (!share)
		abort(); /* the keeper starts us again */
	*share = (struct share){.uid = uid};
	STAILQ_INIT(&share->turns);
	TAILQ_INSERT_TAIL(&shares->users, share, link);
	return share;
}

void shares_add(struct shares *shares, uid_t uid, struct turn *turn)
{
	turn->share = share_of(shares, uid);
	STAILQ_INSERT_TAIL(&turn->share->turns, turn, link);
	shares->waiting++;
}

static struct share *next_share(const struct shares *shares)
{
	struct share *share;

	TAILQ_FOREACH (share, &shares->users, link)
		if (!STAILQ_EMPTY(&share->turns) &&
		    share->running < shares->threads - shares->running)
			return share;
	return NULL;
}

bool shares_ready(const struct shares *shares)
{
	return next_share(shares) != NULL;
}

struct turn *shares_next(struct shares *shares)
{
	struct share *share = next_share(shares);
	struct turn *turn;

	if (!share)
		return NULL;
	turn = STAILQ_FIRST(&share->turns);
	STAILQ_REMOVE_HEAD(&share->turns, link);
	TAILQ_REMOVE(&shares->users, share, link);
	TAILQ_INSERT_TAIL(&shares->users, share, link);
	share->running++;
	shares->running++;
	shares->waiting--;
	return turn;
}

void shares_end(struct turn *turn, struct shares *shares)
{
	struct share *share = turn->share;

	share->running--;
	shares->running--;
	if (!share->running && STAILQ_EMPTY(&share->turns)) {
		TAILQ_REMOVE(&shares->users, share, link);
		free(share);
	}
}
