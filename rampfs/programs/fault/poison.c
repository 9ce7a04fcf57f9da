/*
 * POISON: SIGBUS for who touches a page that is lost, and its end.
 *
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
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/kernel.h"
#include "base/log.h"
#include "memory/pages.h"
#include "poison.h"
#include "programs/attach/agent_call.h"
#include "programs/attach/mapped_segment.h"
#include "programs/client/clients.h"
#include "programs/client/uffd.h"
#include "programs/client/workers.h"
#include "programs/programs.h"

#define EAGAIN_TRIES 2000
#define SAY_MS	     300u
#define ANSWER_MS    300u		   /* all agents together */
#define LOOK_BYTES   (UINT64_C(128) << 20) /* at once: meanwhile the program can map nothing */

/* ---- a page that is lost -------------------------------------------------------------------- */

struct poison {
	struct programs *programs;
	struct mapped_segment *mseg;
	uint64_t page;
	char why[SESSION_TEXT_MAX];
};

static void poison_once(struct space *client, uint64_t addr)
{
	int64_t n;

	for (int tries = 0; tries < EAGAIN_TRIES; tries++) {
		kernel_uffd_protect(client->uffd, addr, RAMP_PAGE_BYTES, false);
		n = kernel_uffd_poison(client->uffd, addr, RAMP_PAGE_BYTES);
		if (n != -EAGAIN)
			break;
		uffd_drain(client);
		uffd_let_others(tries);
	}
}

/* LOCAL, and there: a hole that found no room is LOCAL as well. Maps it, which lifts a POISON. */
static bool map_good(struct mapped_segment *mseg, uint64_t page, struct space *client,
		     uint64_t addr)
{
	int64_t n = -EAGAIN;

	if (!mseg->seg || pages_get(mseg->seg, page) != PAGE_LOCAL)
		return false;
	for (int tries = 0; n == -EAGAIN && tries < EAGAIN_TRIES; tries++) {
		n = kernel_uffd_continue(client->uffd, addr, RAMP_PAGE_BYTES, false);
		if (n == -EAGAIN) {
			uffd_drain(client);
			uffd_let_others(tries);
		}
	}
	return n > 0;
}

/*
 * change is held, so that the segment stays what it is, but not mseg->lock: the program may keep us
 * here. Since the page was touched a write may have made it good, and may do so while we are here.
 * Who makes it LOCAL maps it afterwards, which lifts our POISON; who did both before ours is seen
 * by the second look.
 */
static void poison_range(struct mapped_segment *mseg, uint64_t page, struct space *client,
			 uint64_t addr)
{
	if (mseg->state == MSEG_OPEN && !map_good(mseg, page, client, addr)) {
		poison_once(client, addr);
		map_good(mseg, page, client, addr);
	}
	/* Of a segment that is frozen or gone, whoever ends that wakes. */
	if (mseg->state == MSEG_OPEN)
		space_wake(client, addr);
}

/* Where programs map that page, in the table as it stands: needs no memory. change is held. */
static void poison_untold(struct poison *job)
{
	uint64_t addr, from = job->page * RAMP_PAGE_BYTES;
	struct client_mappings *cm;

	RB_FOREACH (cm, attached_by_client, &job->mseg->attached)
		for (size_t i = 0; i < cm->count; i++)
			if (!cm->at[i].gone &&
			    attachment_overlap(&cm->at[i], from, from + RAMP_PAGE_BYTES, &addr))
				poison_range(job->mseg, job->page, cm->client, addr);
}

/* change is held. -ENOMEM: nothing has been done. */
static int tell_and_poison(struct poison *job)
{
	uint64_t from = job->page * RAMP_PAGE_BYTES;
	struct mapping_ref *refs = NULL;
	size_t count = 0;
	uint64_t told = 0; /* the client with this id, none has 0 */
	bool say;

	if (mseg_refs(job->mseg, &refs, &count))
		return -ENOMEM;
	say = !job->mseg->poison_said;
	job->mseg->poison_said = true;
	for (size_t i = 0; i < count; i++) {
		struct mapping_ref *ref = &refs[i];
		struct session_msg msg = {.type = SESSION_SAY};

		if (ref->gone || from < ref->offset || from - ref->offset >= ref->end - ref->start)
			continue;
		if (say && ref->client->id != told) {
			told = ref->client->id;
			memcpy(msg.text, job->why, sizeof(msg.text));
			agent_call(ref->client, &msg, -1, clock_ms() + SAY_MS, NULL);
		}
		poison_range(job->mseg, job->page, ref->client, ref->start + (from - ref->offset));
	}
	mapping_refs_free(refs, count);
	return 0;
}

static void run_poison(void *arg)
{
	struct poison *job = arg;

	pthread_mutex_lock(&job->mseg->change);
	job->mseg->poisoned = true;
	if (tell_and_poison(job)) {
		log_error("out of memory: programs are not told of a lost page");
		poison_untold(job);
	}
	pthread_mutex_unlock(&job->mseg->change);
	atomic_fetch_sub(&job->mseg->poisoning, 1);
	mseg_put(job->programs, job->mseg);
	free(job);
}

/* Who waits for that page tries again. */
static void wake_page(struct mapped_segment *mseg, uint64_t page)
{
	uint64_t addr, from = page * RAMP_PAGE_BYTES;
	struct client_mappings *cm;

	pthread_rwlock_rdlock(&mseg->lock);
	RB_FOREACH (cm, attached_by_client, &mseg->attached)
		for (size_t i = 0; i < cm->count; i++)
			if (attachment_overlap(&cm->at[i], from, from + RAMP_PAGE_BYTES, &addr))
				space_wake(cm->client, addr);
	pthread_rwlock_unlock(&mseg->lock);
}

void programs_poison(struct programs *p, struct seg *seg, uint64_t page, const char *why)
{
	struct mapped_segment *mseg = mseg_find(p, seg_id(seg));
	struct poison *job;

	if (!mseg)
		return;
	job = malloc(sizeof(*job));
	if (!job) {
		wake_page(mseg, page); /* until there is memory */
		mseg_put(p, mseg);
		return;
	}
	*job = (struct poison){.programs = p, .mseg = mseg, .page = page};
	snprintf(job->why, sizeof(job->why), "rampfs: %s", why);
	atomic_fetch_add(&mseg->poisoning, 1);
	workers_run_own(p->workers, seg_owner(seg).uid, run_poison, job); /* waits in programs */
}

/* ---- taking it out again -------------------------------------------------------------------- */

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
	uint64_t until_ms = clock_ms() + ANSWER_MS;
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
