/*
 * While pages of a segment are missing, what is near one of them is registered with userfaultfd, and nothing
 * else: so what is present costs no page fault of the daemon's, and huge pages stay huge.
 *
 *   file      |....................|....................|............?.......|....................|
 *   program     not registered       not registered       registered           not registered
 *
 * An attachment is divided into stretches of 2 MiB of the file, or of more where it is long. One in which a page
 * is missing (?: not LOCAL) is registered as a whole. A huge page, and what the kernel maps around a page that is
 * touched, never reach beyond a mapping (VMA), which ends where registering does: so a page that is missing is
 * reached through a registered range alone.
 *
 * Happy path: an attachment that is new is registered where pages are missing (stretches_arm). One that comes back
 * is put in its place by one mremap(2), which takes a single mapping: all of it is registered before, and what is
 * present is unregistered afterwards (stretches_trim), also while the other pages come. A page that is LOCAL stays
 * LOCAL for as long as the segment is here, so a stretch without a missing page needs no second look.
 *
 * How it fails: to be registered as a whole is right at any time. So are attachments of a process that an error
 * of the kernel concerns (as a rule, it may have no more mappings), that has very many mappings already, or that
 * has asked before a mapping of it grows: what grows is registered as its neighbour is. Agents of older versions
 * do not ask, so theirs are, too. A freeze registers all (revoke.c). A stretch with a page that is SIGBUS stays
 * registered, since only CONTINUE takes that back.
 */
#include "stretches.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/kernel.h"
#include "base/log.h"
#include "memory/pages.h"
#include "programs/client/clients.h"
#include "programs/client/uffd.h"
#include "programs/client/workers.h"
#include "programs/programs.h"

#define HUGE_PAGES    (RAMP_HUGE_BYTES / RAMP_PAGE_BYTES)
#define STRETCHES_MAX 4096u /* of one attachment; every second one may be a mapping of its own */
#define MAPPINGS_MAX                                                                               \
	16384u	   /* of files, of a process: a quarter of what the kernel allows by default */
#define RETRIES 3u /* after an error for which the kernel has no reason */

/* A run of pages of the file. */
struct run {
	uint64_t first, end;
};

/* ---- where pages are missing ---------------------------------------------------------------- */

static uint64_t stretch_pages(const struct attachment *a)
{
	uint64_t all = (a->end - a->start) / RAMP_PAGE_BYTES, pages = HUGE_PAGES;

	while (all / pages > STRETCHES_MAX)
		pages *= 2;
	return pages;
}

static struct run pages_of(const struct attachment *a)
{
	uint64_t first = a->offset / RAMP_PAGE_BYTES;

	return (struct run){first, first + (a->end - a->start) / RAMP_PAGE_BYTES};
}

static uint64_t address_of(const struct attachment *a, uint64_t page)
{
	return a->start + (page * RAMP_PAGE_BYTES - a->offset);
}

/* Finds the first stretches from `all.first` on in which pages are missing, also pages that are not in the
   attachment: their part of it. False: there are none. */
static bool next_missing(struct seg *seg, const struct attachment *a, struct run all,
			 struct run *missing)
{
	uint64_t len = stretch_pages(a), page = pages_next_missing(seg, all.first / len * len);
	uint64_t end = (all.end + len - 1) / len * len;

	if (all.first >= all.end || page >= end)
		return false;
	missing->first = page / len * len;
	missing->end = missing->first + len;
	while (missing->end < end && pages_next_missing(seg, missing->end) - missing->end < len)
		missing->end += len;
	if (missing->first < all.first)
		missing->first = all.first;
	if (missing->end > all.end)
		missing->end = all.end;
	return true;
}

/* Whether only a part of it may be registered. A program that is not ready may still have an older agent. */
static bool is_divided(struct mapped_segment *mseg, struct client *client,
		       const struct attachment *a)
{
	return mseg->state == MSEG_OPEN && mseg->pulling && mseg->seg && client->asks_growth &&
	       !atomic_load(&client->grown) && (a->start - a->offset) % RAMP_HUGE_BYTES == 0;
}

/* Whether the process may have `more` mappings more. */
static bool has_room(struct client *client, uint64_t more)
{
	const struct programs *p = client->programs;
	int n = mappings_count(&client->mappings, p->arena_lo, p->arena_hi, MAPPINGS_MAX);

	return n >= 0 && (uint64_t)n + more < MAPPINGS_MAX;
}

/* Returns how many runs of the attachment are to be registered. */
static uint64_t count_missing(struct mapped_segment *mseg, const struct attachment *a)
{
	struct run all = pages_of(a), missing;
	uint64_t n = 0;

	for (; next_missing(mseg->seg, a, all, &missing); all.first = missing.end)
		n++;
	return n;
}

/* ---- registering ---------------------------------------------------------------------------- */

static int arm_missing(struct mapped_segment *mseg, struct client *client,
		       const struct attachment *a)
{
	struct run all = pages_of(a), missing;
	int rc = 0;

	for (; !rc && next_missing(mseg->seg, a, all, &missing); all.first = missing.end)
		rc = uffd_arm(client, address_of(a, missing.first), address_of(a, missing.end));
	return rc;
}

int stretches_arm(struct mapped_segment *mseg, struct client *client, const struct attachment *a)
{
	if (is_divided(mseg, client, a) && has_room(client, 2 * count_missing(mseg, a)) &&
	    !arm_missing(mseg, client, a))
		return 0;
	return uffd_arm(client, a->start, a->end);
}

/* ---- unregistering -------------------------------------------------------------------------- */

/* Whether a page there is SIGBUS, perhaps. */
static bool is_poisoned(struct mapped_segment *mseg, struct client *client, uint64_t start,
			uint64_t end)
{
	return mseg->poisoned && mappings_poisoned(&client->mappings, start, end, &(uint64_t){0});
}

static int disarm(struct client *client, uint64_t start, uint64_t end)
{
	int rc = -EIO;

	for (unsigned i = 0; (rc == -ENOMEM || rc == -EIO) && i < RETRIES; i++)
		rc = kernel_uffd_unregister(client->uffd, start, end - start);
	/* Threads that wait there find the page by themselves. */
	uffd_wake(client, start, end - start);
	return rc;
}

static int disarm_present(struct mapped_segment *mseg, struct client *client,
			  const struct attachment *a)
{
	struct run all = pages_of(a), missing;
	bool more = true;
	int rc = 0;

	while (more && !rc) {
		uint64_t start = address_of(a, all.first), end;

		more = next_missing(mseg->seg, a, all, &missing);
		end = more ? address_of(a, missing.first) : a->end;
		if (start < end && !is_poisoned(mseg, client, start, end))
			rc = disarm(client, start, end);
		if (more)
			all.first = missing.end;
	}
	return rc;
}

static void trim_one(struct mapped_segment *mseg, struct client *client, const struct attachment *a)
{
	int rc;

	if (a->gone || !is_divided(mseg, client, a) ||
	    !has_room(client, 2 * count_missing(mseg, a)))
		return;
	rc = disarm_present(mseg, client, a);
	if (!rc)
		return;
	log_debug("process %d: all of segment %llu stays registered there: %s", (int)client->pid,
		  (unsigned long long)mseg->id, strerror(-rc));
	/* Where that fails, too, nothing of the segment is mapped there any more, or the process has ended. */
	(void)uffd_arm(client, a->start, a->end);
}

bool stretches_trim(struct mapped_segment *mseg, uint64_t until_us)
{
	struct client_mappings *cm;

	/* A move that has begun has registered all, and knows the mappings. */
	if (mseg->state != MSEG_OPEN || !mseg->pulling || mseg->prelook.armed)
		return true;
	RB_FOREACH (cm, attached_by_client, &mseg->attached) {
		if (!client_is(cm->client, CLIENT_READY))
			continue;
		if (clock_us() >= until_us)
			return false;
		for (size_t i = 0; i < cm->count; i++)
			trim_one(mseg, cm->client, &cm->at[i]);
	}
	return true;
}

struct trim {
	struct programs *programs;
	struct mapped_segment *mseg; /* a reference */
};

static void run_trim(void *arg)
{
	struct trim *job = arg;

	atomic_store(&job->mseg->trimming, false);
	pthread_mutex_lock(&job->mseg->change);
	(void)stretches_trim(job->mseg, UINT64_MAX);
	pthread_mutex_unlock(&job->mseg->change);
	mseg_put(job->programs, job->mseg);
	free(job);
}

/* As at the end of a pull, to unregister may take as long as the program likes: in its owner's share. */
void stretches_trim_soon(struct programs *p, struct mapped_segment *mseg, uid_t owner)
{
	struct trim *job;

	if (atomic_exchange(&mseg->trimming, true))
		return;
	job = malloc(sizeof(*job));
	if (!job) {
		atomic_store(&mseg->trimming,
			     false); /* all of it stays registered until the next time */
		return;
	}
	*job = (struct trim){p, mseg_hold(p, mseg)};
	workers_run_own(p->workers, owner, run_trim, job);
}

void programs_trim(struct programs *p, struct seg *seg)
{
	struct mapped_segment *mseg = mseg_find(p, seg_id(seg));

	if (!mseg)
		return;
	stretches_trim_soon(p, mseg, seg_owner(seg).uid);
	mseg_put(p, mseg);
}
