/*
 * Registers a segment's attachments with userfaultfd from the first page that is missing on, as far as
 * they must be (attach/stretches.c), and unregisters them when all have come.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/kernel.h"
#include "base/log.h"
#include "memory/pages.h"
#include "poison.h"
#include "programs/attach/attachments.h"
#include "programs/attach/stretches.h"
#include "programs/client/clients.h"
#include "programs/client/uffd.h"
#include "programs/client/workers.h"
#include "programs/programs.h"

int programs_pulling(struct programs *p, struct seg *seg, struct ramp_err *err)
{
	struct mapped_segment *mseg = mseg_get(p, seg_id(seg));
	struct mapping_ref *refs = NULL;
	struct attachment a;
	size_t count = 0;
	int rc;

	if (!mseg)
		return ramp_err_sys(err, ENOMEM, "attachments of segment %llu",
				    (unsigned long long)seg_id(seg));
	pthread_mutex_lock(&mseg->change);
	mseg_set_seg(mseg, seg);
	if (mseg->state == MSEG_GONE)
		atomic_store(&mseg->coming, true);
	/* The last page may have come before this call, and programs_pulled with it. */
	pthread_rwlock_wrlock(&mseg->lock);
	mseg->pulling = pages_missing(seg) > 0;
	pthread_rwlock_unlock(&mseg->lock);
	rc = mseg->pulling ? mseg_refs(mseg, &refs, &count) : 0;
	for (size_t i = 0; i < count; i++) {
		if (refs[i].gone)
			continue;
		a = (struct attachment){
			.start = refs[i].start, .end = refs[i].end, .offset = refs[i].offset};
		/* Where it fails the range is not mapped any more, or the look after the next event
		   finds it. */
		if (stretches_arm(mseg, refs[i].client, &a))
			rc = mseg_look(p, mseg, refs[i].client);
		else /* page faults that the pager read before it knew of the pull come again */
			kernel_uffd_wake(refs[i].client->uffd, refs[i].start,
					 refs[i].end - refs[i].start);
	}
	mapping_refs_free(refs, count);
	pthread_mutex_unlock(&mseg->change);
	mseg_put(p, mseg);
	return rc ? ramp_err_sys(err, -rc, "attachments of segment %llu",
				 (unsigned long long)seg_id(seg))
		  : 0;
}

/* Unregisters all attachments. change is held, but no lock that page faults need. */
static void disarm_all(struct mapped_segment *mseg)
{
	struct client_mappings *cm;

	RB_FOREACH (cm, attached_by_client, &mseg->attached)
		for (size_t i = 0; i < cm->count; i++)
			uffd_disarm(cm->client, cm->at[i].start, cm->at[i].end);
}

struct disarm {
	struct programs *programs;
	struct mapped_segment *mseg; /* a reference */
};

static void run_disarm(void *arg)
{
	struct disarm *job = arg;

	pthread_mutex_lock(&job->mseg->change);
	if (!mseg_armed(job->mseg)) { /* else a freeze, or the next pull, has come meanwhile */
		job->mseg->prelook.on = false; /* a move that has begun looks again */
		disarm_all(job->mseg);
	}
	pthread_mutex_unlock(&job->mseg->change);
	mseg_put(job->programs, job->mseg);
	free(job);
}

/*
 * Unregistering takes the lock of a program's memory, which the program may keep: that waits in the
 * share of the segment's owner, not in the thread that does all pulls. Until it is done a page
 * fault there comes again and again, since nothing resolves it any more.
 */
bool programs_pulled(struct programs *p, struct seg *seg)
{
	struct mapped_segment *mseg = mseg_find(p, seg_id(seg));
	uid_t owner = seg_owner(seg).uid;
	struct disarm *job;

	if (!mseg)
		return true;
	job = malloc(sizeof(*job));
	if (!job || pthread_mutex_trylock(&mseg->change)) {
		free(job);
		mseg_put(p, mseg);
		return false;
	}
	pthread_rwlock_wrlock(&mseg->lock);
	mseg->pulling = false;
	mseg->prelook.on = false;
	mseg->poison_said = false;
	pthread_rwlock_unlock(&mseg->lock);
	*job = (struct disarm){p, mseg_hold(p, mseg)};
	workers_run_own(p->workers, owner, run_disarm, job);
	if (mseg->poisoned && !unpoison_begin(p, mseg, owner))
		log_error("out of memory: segment %llu is whole, and some pages of it stay SIGBUS",
			  (unsigned long long)mseg->id);
	pthread_mutex_unlock(&mseg->change);
	mseg_put(p, mseg);
	return true;
}
