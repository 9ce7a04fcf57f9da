/*
 * Giving a segment's addresses back: what stands in the way at this node, and what may not come
 * meanwhile (contrib/doc/design.md, "Addresses given back"; tests/model/extent.pml).
 *
 * Happy path at the owner: attaches are held, those under way have ended, nothing is mapped. At
 * every other node: the promise is noted, then nothing is found. The promise is by the epoch of the
 * row: it ends by itself when the row is newer, so no message has to end it.
 *
 * How it fails: a mapping, or a process that can't be looked into, is -EBUSY with its name. A
 * promise that was made for nothing does no harm: all that it refuses is the empty file for the
 * child of a fork whose parent has not had it mapped any more when this node looked. A daemon that
 * dies takes its promises with it, and the tokens of forks, which are all that they are about.
 */
#include "give_back.h"

#include <errno.h>
#include <stdlib.h>

#include "attachments.h"
#include "base/clock.h"
#include "programs/client/clients.h"
#include "programs/proc/process.h"
#include "programs/proc/search.h"
#include "programs/programs.h"

#define HOLD_MS 5000u

struct range_promise {
	ramp_segment_t id;
	uint64_t epoch; /* of the row */
};

/* ---- the owner ------------------------------------------------------------------------------ */

/* Ends a hold. An attach that has read the address during it reads it again. p->lock is held. */
static void give_back_end(struct programs *p, struct mapped_segment *mseg)
{
	mseg->held = false;
	mseg->holds++;
	pthread_cond_broadcast(&p->changed);
}

int programs_hold_attaches(struct programs *p, ramp_segment_t id, struct ramp_err *err)
{
	struct mapped_segment *mseg = mseg_get(p, id);
	uint64_t until = clock_ms() + HOLD_MS;
	int rc = 0;

	if (!mseg)
		return ramp_err_sys(err, ENOMEM, "attachments");
	pthread_mutex_lock(&p->lock);
	if (mseg->held) {
		rc = ramp_err_set(err, EBUSY, "its addresses are being given back already");
	} else {
		mseg->held = true;
		mseg->holds++;
		while (mseg->attaching && programs_wait(p, until))
			;
		if (mseg->attaching) {
			rc = ramp_err_set(err, EBUSY, "a program is mapping it");
			give_back_end(p, mseg);
		}
	}
	pthread_mutex_unlock(&p->lock);
	if (rc)
		mseg_put(p, mseg); /* else the reference is programs_release_attaches's */
	return rc;
}

void programs_release_attaches(struct programs *p, ramp_segment_t id)
{
	struct mapped_segment *mseg = mseg_find(p, id);

	if (!mseg)
		return;
	pthread_mutex_lock(&p->lock);
	give_back_end(p, mseg);
	pthread_mutex_unlock(&p->lock);
	mseg_put(p, mseg);
	mseg_put(p, mseg);
}

/* ---- promises ------------------------------------------------------------------------------- */

/* Returns whether the row is newer than the promise, or gone with all of its addresses. */
static bool give_back_is_past(struct programs *p, const struct range_promise *promise)
{
	struct segment_row row;
	int rc = meta_segment(p->meta, promise->id, &row);

	return rc == -ENOENT || (rc == 0 && row.epoch > promise->epoch);
}

/* Notes a promise, and forgets those that are past. */
static int give_back_promise(struct programs *p, const struct programs_extent *e)
{
	struct range_promise *more;
	size_t n = 0;

	pthread_mutex_lock(&p->lock);
	more = reallocarray(p->promises, p->n_promises + 1, sizeof(*more));
	if (more) {
		p->promises = more;
		for (size_t i = 0; i < p->n_promises; i++)
			if (more[i].id != e->id && !give_back_is_past(p, &more[i]))
				more[n++] = more[i];
		more[n++] = (struct range_promise){e->id, e->epoch};
		p->n_promises = n;
	}
	pthread_mutex_unlock(&p->lock);
	return more ? 0 : -ENOMEM;
}

bool give_back_allows(struct programs *p, ramp_segment_t id, uint64_t start, uint64_t end)
{
	struct segment_row row;
	bool allows = true;

	pthread_mutex_lock(&p->lock);
	for (size_t i = 0; i < p->n_promises; i++)
		if (p->promises[i].id == id && !give_back_is_past(p, &p->promises[i]))
			allows = false;
	pthread_mutex_unlock(&p->lock);
	if (!allows || meta_segment(p->meta, id, &row))
		return allows;
	return start >= row.extent_addr && end <= row.extent_addr + row.extent_len;
}

/* ---- the look ------------------------------------------------------------------------------- */

static int give_back_busy(pid_t pid, const char *what, struct ramp_err *err)
{
	char name[64];

	process_name(pid, name);
	return ramp_err_set(err, EBUSY, "process %s %s", name, what);
}

/* Asks the table. The lock keeps this daemon from replacing a mapping by another meanwhile, between
   which /proc may show neither. */
static int give_back_table(struct programs *p, struct mapped_segment *mseg, struct ramp_err *err)
{
	struct mapping_ref *refs = NULL;
	size_t count = 0;
	int rc;

	pthread_mutex_lock(&mseg->change);
	mseg_look_all(p, mseg, NULL);
	rc = mseg_refs(mseg, &refs, &count);
	if (rc)
		rc = ramp_err_sys(err, -rc, "attachments");
	else if (count)
		rc = give_back_busy(
			refs[0].client->pid,
			refs[0].gone ? "had it mapped, and still has the place" : "maps it", err);
	else if (atomic_load(&mseg->late))
		rc = ramp_err_set(err, EBUSY,
				  "a process that had it mapped has not answered since it left");
	mapping_refs_free(refs, count);
	pthread_mutex_unlock(&mseg->change);
	return rc;
}

int programs_give_back(struct programs *p, const struct programs_extent *e, struct ramp_err *err)
{
	struct mapped_segment *mseg;
	pid_t pid = 0;
	int rc = give_back_promise(p, e);

	if (rc)
		return ramp_err_sys(err, -rc, "a promise");
	/* With the promise noted, so that a fork's child comes before the look, or not at all. */
	mseg = mseg_get(p, e->id);
	if (!mseg)
		return ramp_err_sys(err, ENOMEM, "attachments");
	rc = give_back_table(p, mseg, err);
	mseg_put(p, mseg);
	if (rc)
		return rc;
	/* Any file of the store counts: no other segment has these addresses. */
	rc = search_replaced(p->store_dev, 0, e->addr, e->addr + e->len, &pid);
	if (rc == 1)
		return give_back_busy(pid, "maps it, or had it mapped and still has the place",
				      err);
	if (rc == -EBUSY)
		return give_back_busy(pid, "can't be looked into, and may map it", err);
	return rc ? ramp_err_sys(err, -rc, "asking /proc which processes map it") : 0;
}
