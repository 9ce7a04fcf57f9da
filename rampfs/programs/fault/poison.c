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
	struct mapped_segment *mseg; /* a reference */
};

static int drop_poison(struct mapped_segment *mseg, struct space *client, struct session_msg *msg,
		       uint64_t until_ms)
{
	int rc;

	msg->type = SESSION_DROP;
	msg->segment = mseg->id;
	rc = agent_call(client, msg, -1, until_ms, NULL);
	msg->count = 0;
	return rc;
}

/* One more page of those to be dropped. False: there is no place for it. */
static bool add_page(struct session_msg *msg, uint64_t addr)
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
static bool find_poison(const struct mapping_ref *ref, uint64_t *at)
{
	int found = 0;

	while (!found && *at < ref->end) {
		uint64_t left = ref->end - *at, len = left < LOOK_BYTES ? left : LOOK_BYTES;

		found = mappings_poisoned(&ref->client->mappings, *at, *at + len, at);
		if (!found)
			*at += len;
	}
	return found > 0;
}

static int unpoison(struct mapped_segment *mseg, const struct mapping_ref *ref, uint64_t until_ms)
{
	struct session_msg msg = {0};
	uint64_t at = ref->start;
	int rc = 0;

	/* A page of the program's own that is swapped out looks the same. */
	if (!ref->writable && mappings_copied(&ref->client->mappings, at, ref->end, false))
		return 0;
	for (; !rc && find_poison(ref, &at); at += RAMP_PAGE_BYTES)
		if (!add_page(&msg, at)) {
			rc = drop_poison(mseg, ref->client, &msg, until_ms);
			add_page(&msg, at);
		}
	return msg.count && !rc ? drop_poison(mseg, ref->client, &msg, until_ms) : rc;
}

static void run_unpoison(void *arg)
{
	struct unpoison *job = arg;
	struct mapped_segment *mseg = job->mseg;
	uint64_t until_ms = now_ms() + ANSWER_MS;
	struct mapping_ref *refs = NULL;
	size_t count = 0;

	pthread_mutex_lock(&mseg->change);
	if (mseg->poisoned && mseg->state == MSEG_OPEN && !mseg_refs(mseg, &refs, &count)) {
		mseg->poisoned = false;
		for (size_t i = 0; i < count; i++)
			if (!refs[i].gone && unpoison(mseg, &refs[i], until_ms))
				mseg->poisoned = true;
	}
	mapping_refs_free(refs, count);
	pthread_mutex_unlock(&mseg->change);
	mseg_put(job->programs, mseg);
	free(job);
}

bool unpoison_begin(struct programs *p, struct mapped_segment *mseg, uid_t owner)
{
	struct unpoison *job = malloc(sizeof(*job));

	if (!job)
		return false;
	*job = (struct unpoison){.programs = p, .mseg = mseg_hold(p, mseg)};
	workers_run_own(p->workers, owner, run_unpoison, job);
	return true;
}

bool programs_unpoison(struct programs *p, struct seg *seg)
{
	struct mapped_segment *mseg = mseg_find(p, seg_id(seg));
	bool begun;

	if (!mseg)
		return true;
	begun = atomic_load(&mseg->poisoning) == 0 && unpoison_begin(p, mseg, seg_owner(seg).uid);
	mseg_put(p, mseg);
	return begun;
}
