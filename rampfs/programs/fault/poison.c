/*
 * A SIGBUS that was given for want of room, or of a page that is there by now, is not for ever.
 *
 * The POISON that gives it is an entry in the program's page table, beside all that comes into the
 * file afterwards. Mapping the page in its place lifts it, which takes the page, and so room.
 *
 * Happy path: /proc tells where these entries are, and the agent drops them, as in a revoke. The
 * next touch is a page fault again, which finds the page, or room for it, or gets the next POISON.
 * At the end of a pull it finds what any file of a tmpfs has.
 *
 * How it fails: an agent that does not answer in time has the message all the same, and drops them
 * when it goes on. Those that did not fit into it stay until the next time.
 */
#include <stdlib.h>

#include "base/log.h"
#include "programs/local.h"

#define ANSWER_MS  300u			 /* all agents together */
#define LOOK_BYTES (UINT64_C(128) << 20) /* at once: meanwhile the program can map nothing */

struct unpoison {
	struct programs *programs;
	struct pseg *pseg; /* a reference */
};

static int drop(struct pseg *pseg, struct space *space, struct session_msg *msg, uint64_t until_ms)
{
	int rc;

	msg->type = SESSION_DROP;
	msg->segment = pseg->id;
	rc = agent_call(space, msg, -1, until_ms, NULL);
	msg->count = 0;
	return rc;
}

/* One more page of those to be dropped. False: there is no place for it. */
static bool add(struct session_msg *msg, uint64_t addr)
{
	struct session_range *last = msg->count ? &msg->ranges[msg->count - 1] : NULL;

	if (last && last->addr + last->len == addr) {
		last->len += RAMP_PAGE_BYTES;
		return true;
	}
	if (msg->count == SESSION_RANGES_MAX)
		return false;
	msg->ranges[msg->count++] = (struct session_range){addr, RAMP_PAGE_BYTES};
	return true;
}

/* The first POISON from *at on. False: there is none. */
static bool find(const struct piece *piece, uint64_t *at)
{
	int found = 0;

	while (!found && *at < piece->end) {
		uint64_t left = piece->end - *at, len = left < LOOK_BYTES ? left : LOOK_BYTES;

		found = mappers_poisoned(piece->space, *at, *at + len, at);
		if (!found)
			*at += len;
	}
	return found > 0;
}

static int unpoison(struct pseg *pseg, const struct piece *piece, uint64_t until_ms)
{
	struct session_msg msg = {0};
	uint64_t at = piece->start;
	int rc = 0;

	/* A page of the program's own that is swapped out looks the same. */
	if (!piece->writable && mappers_copied(piece->space, at, piece->end, false))
		return 0;
	for (; !rc && find(piece, &at); at += RAMP_PAGE_BYTES)
		if (!add(&msg, at)) {
			rc = drop(pseg, piece->space, &msg, until_ms);
			add(&msg, at);
		}
	return msg.count && !rc ? drop(pseg, piece->space, &msg, until_ms) : rc;
}

static void run(void *arg)
{
	struct unpoison *job = arg;
	struct pseg *pseg = job->pseg;
	uint64_t until_ms = now_ms() + ANSWER_MS;
	struct piece *pieces = NULL;
	size_t count = 0;

	pthread_mutex_lock(&pseg->change);
	if (pseg->poisoned && pseg->state == PSEG_OPEN && !pseg_pieces(pseg, &pieces, &count)) {
		pseg->poisoned = false;
		for (size_t i = 0; i < count; i++)
			if (!pieces[i].gone && unpoison(pseg, &pieces[i], until_ms))
				pseg->poisoned = true;
	}
	pieces_free(pieces, count);
	pthread_mutex_unlock(&pseg->change);
	pseg_put(job->programs, pseg);
	free(job);
}

bool unpoison_begin(struct programs *p, struct pseg *pseg, uid_t owner)
{
	struct unpoison *job = malloc(sizeof(*job));

	if (!job)
		return false;
	*job = (struct unpoison){.programs = p, .pseg = pseg_hold(p, pseg)};
	pool_run_own(p->pool, owner, run, job);
	return true;
}

bool programs_unpoison(struct programs *p, struct seg *seg)
{
	struct pseg *pseg = pseg_find(p, seg_id(seg));
	bool begun;

	if (!pseg)
		return true;
	begun = atomic_load(&pseg->poisoning) == 0 && unpoison_begin(p, pseg, seg_owner(seg).uid);
	pseg_put(p, pseg);
	return begun;
}
