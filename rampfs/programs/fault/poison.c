/*
 * POISON: SIGBUS for a thread that touches a page that is lost, and its end.
 *
 * POISON is an entry in the program's page table. It stays there, whatever comes into the file
 * afterwards, until the page is mapped in its place; that needs the page, and so room for it. But a
 * SIGBUS that was given for want of room, or for a page that is there by now, must not last for
 * ever: so these entries are taken out again.
 *
 * Happy path: /proc tells where the entries are, and the agent drops them, as in a revoke. The next
 * touch is a page fault again, which finds the page, or room for it, or gets the next POISON. After
 * the end of a pull it finds the same as in any file of a tmpfs.
 *
 * How it fails: an agent that does not answer in time has the message all the same, and drops the
 * entries when it continues. Entries that did not fit into the message stay until the next time.
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
#define ANSWER_MS    300u /* all agents together */
/* scanned at once: meanwhile the program can map nothing */
#define LOOK_BYTES (UINT64_C(128) << 20)

/* ---- a page that is lost -------------------------------------------------------------------- */

struct poison {
	struct programs *programs;
	struct mapped_segment *mseg;
	uint64_t page;
	char why[SESSION_TEXT_MAX];
};

static void poison_once(struct client *client, uint64_t addr)
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

/* Maps a page that is LOCAL, which lifts a POISON. Returns false where it is not LOCAL, or nothing
   is there to map: a hole that found no room is LOCAL, too. */
static bool map_good(struct mapped_segment *mseg, uint64_t page, struct client *client,
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
 * Poisons one page in one client, unless it is good by now. change is held, so that the segment
 * keeps its state, but not mseg->lock: the program may keep this thread here. A write may have made
 * the page good since it was touched, or may do so meanwhile. A thread that makes the page LOCAL
 * maps it afterwards, which lifts this POISON; if it has done both before this POISON, the second
 * map_good sees that.
 */
static void poison_range(struct mapped_segment *mseg, uint64_t page, struct client *client,
			 uint64_t addr)
{
	if (mseg->state == MSEG_OPEN && !map_good(mseg, page, client, addr)) {
		poison_once(client, addr);
		map_good(mseg, page, client, addr);
	}
	/* Where the segment is FROZEN or GONE, the end of that state wakes. */
	if (mseg->state == MSEG_OPEN)
		client_wake(client, addr);
}

/* Poisons the page wherever the table says that programs map it, which needs no memory. change is
   held. */
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

/* Tells the agents why, once a segment, and poisons the page. change is held. -ENOMEM: nothing has
   been done. */
static int tell_and_poison(struct poison *job)
{
	uint64_t from = job->page * RAMP_PAGE_BYTES;
	struct mapping_ref *refs = NULL;
	size_t count = 0;
	uint64_t told = 0; /* id of the client that was told last; no client has 0 */
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

/* Wakes the threads that wait for that page: they try again. */
static void wake_page(struct mapped_segment *mseg, uint64_t page)
{
	uint64_t addr, from = page * RAMP_PAGE_BYTES;
	struct client_mappings *cm;

	pthread_rwlock_rdlock(&mseg->lock);
	RB_FOREACH (cm, attached_by_client, &mseg->attached)
		for (size_t i = 0; i < cm->count; i++)
			if (attachment_overlap(&cm->at[i], from, from + RAMP_PAGE_BYTES, &addr))
				client_wake(cm->client, addr);
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
		wake_page(mseg, page); /* the page fault comes again, until there is memory */
		mseg_put(p, mseg);
		return;
	}
	*job = (struct poison){.programs = p, .mseg = mseg, .page = page};
	snprintf(job->why, sizeof(job->why), "rampfs: %s", why);
	atomic_fetch_add(&mseg->poisoning, 1);
	/* may wait for programs */
	workers_run_own(p->workers, seg_owner(seg).uid, run_poison, job);
}

/* ---- taking it out again -------------------------------------------------------------------- */

struct unpoison {
	struct programs *programs;
	struct mapped_segment *mseg; /* a reference */
};

static int drop_poison(struct mapped_segment *mseg, struct client *client, struct session_msg *msg,
		       uint64_t until_ms)
{
	int rc;

	msg->type = SESSION_DROP;
	msg->segment = mseg->id;
	rc = agent_call(client, msg, -1, until_ms, NULL);
	msg->count = 0;
	return rc;
}

/* Adds a page to those that the message drops. False: there is no room for it. */
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

/* Finds the first POISON from *at on. False: there is none. */
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

	/* A private copy that is swapped out looks the same in /proc. */
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
