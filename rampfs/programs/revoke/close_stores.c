/*
 * Closes a segment to stores while loads continue, before its hand-over.
 *
 * Happy path: while programs run, each of their agents maps the segment once more, beside its place, and
 * the daemon registers that mapping with the process's second userfaultfd, and protects it: pages of it
 * can be loaded, and a store waits (programs_close_ahead). Then access is revoked as for a hand-over: the
 * page tables go away, with all that they know of stores. The protected mappings take the place
 * (programs_close_stores), and threads that wait are woken: those that load continue, those that store wait
 * again. For the hand-over mappings without entries take the place of the protected ones, registered as
 * in any freeze (close_stores_replace): from there on it is a freeze like any other.
 *
 * WP_ASYNC, by which stores are watched, lifts a protection by itself, and a mapping has one userfaultfd: so
 * it takes the second one, and another mapping.
 *
 * How it fails: everything is made as it was (thaw): page tables are moved back over the protected
 * mappings; of what was dropped instead the protected mapping stays, without protection. A daemon that dies
 * leaves stores closed; the next one does the same for each agent that comes. An agent that has no second
 * userfaultfd is -EOPNOTSUPP, and nothing has changed.
 */
#include "close_stores.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/kernel.h"
#include "pins.h"
#include "programs/attach/attachments.h"
#include "programs/attach/beside.h"
#include "programs/attach/replace.h"
#include "programs/client/clients.h"
#include "programs/client/uffd.h"
#include "programs/proc/process.h"
#include "programs/programs.h"
#include "thaw.h"

#define AHEAD_MS 5000u

static int say(struct ramp_err *err, const struct client *client, int rc)
{
	char name[64];

	process_name(client->pid, name);
	if (rc == -EOPNOTSUPP)
		return ramp_err_set(err, EOPNOTSUPP,
				    "the agent of process %s is too old to close it to stores",
				    name);
	if (rc == -ENOMEM)
		return ramp_err_set(
			err, ENOMEM,
			"process %s may map no more (RLIMIT_AS), or has it mapped in more "
			"than %u pieces",
			name, BESIDE_MAX);
	if (rc == -ETIMEDOUT || rc == -ESRCH || rc == -EPROTO)
		return ramp_err_set(err, EBUSY, "process %s maps it and its agent does not answer",
				    name);
	return ramp_err_set(err, EBUSY, "process %s maps it and can't be closed to stores: %s",
			    name, strerror(-rc));
}

/* A session that has ended leaves no thread that could store, or is found by the look at mappings. */
static bool close_is_live(const struct mapping_ref *ref)
{
	return !ref->gone && !client_dead(ref->client);
}

typedef int ref_fn(struct programs *p, struct mapped_segment *mseg, const struct mapping_ref *ref,
		   uint64_t until_ms);

/* Calls fn for each live attachment until one fails, which *err names. change is held. */
static int each_live(struct programs *p, struct mapped_segment *mseg, ref_fn *fn, uint64_t until_ms,
		     struct ramp_err *err)
{
	struct mapping_ref *refs = NULL;
	size_t count = 0;
	int rc = 0;

	if (mseg_refs(mseg, &refs, &count))
		return ramp_err_sys(err, ENOMEM, "attachments");
	for (size_t i = 0; i < count && !rc; i++)
		if (close_is_live(&refs[i])) {
			rc = fn(p, mseg, &refs[i], until_ms);
			if (rc)
				rc = say(err, refs[i].client, rc);
		}
	mapping_refs_free(refs, count);
	return rc;
}

/* ---- closing -------------------------------------------------------------------------------- */

static int can_hold(struct programs *p, struct mapped_segment *mseg, const struct mapping_ref *ref,
		    uint64_t until_ms)
{
	(void)p;
	(void)mseg;
	(void)until_ms;
	return ref->client->second < 0 ? -EOPNOTSUPP : 0;
}

static int make_held(struct programs *p, struct mapped_segment *mseg, const struct mapping_ref *ref,
		     uint64_t until_ms)
{
	return beside_make(p, mseg, ref, true, until_ms);
}

static int swap_in(struct programs *p, struct mapped_segment *mseg, const struct mapping_ref *ref,
		   uint64_t until_ms)
{
	int rc = beside_swap(mseg, ref, until_ms);

	(void)p;
	/* The program has changed its mappings since they were made. */
	return rc == -ENOENT ? -EAGAIN : rc;
}

int programs_close_ahead(struct programs *p, struct seg *seg, struct ramp_err *err)
{
	struct mapped_segment *mseg = mseg_get(p, seg_id(seg));
	int rc;

	if (!mseg)
		return ramp_err_sys(err, ENOMEM, "attachments");
	rc = pins_look(mseg, err);
	pthread_mutex_lock(&mseg->change);
	if (!rc && (mseg->state != MSEG_OPEN || mseg->pulling))
		rc = ramp_err_set(err, EBUSY, "it is being moved already");
	if (!rc)
		rc = each_live(p, mseg, can_hold, 0, err);
	if (!rc)
		rc = each_live(p, mseg, make_held, clock_ms() + AHEAD_MS, err);
	pthread_mutex_unlock(&mseg->change);
	mseg_put(p, mseg);
	return rc;
}

/* Lets accesses that wait since the freeze continue: those that find the protected mapping. */
static void wake_all(struct mapped_segment *mseg)
{
	struct mapping_ref *refs = NULL;
	size_t count = 0;

	if (mseg_refs(mseg, &refs, &count))
		return; /* loads wait as well, until it is handed over or opened */
	for (size_t i = 0; i < count; i++)
		if (!refs[i].gone)
			uffd_wake(refs[i].client, refs[i].start, refs[i].end - refs[i].start);
	mapping_refs_free(refs, count);
}

/* Protects whatever is mapped there by now, and so proves that nothing is registered otherwise. */
static int hold_all(struct programs *p, struct mapped_segment *mseg, struct ramp_err *err)
{
	struct client **clients;
	size_t count;
	int rc = 0;

	clients = mseg_clients(mseg, &count);
	if (!clients)
		return ramp_err_sys(err, ENOMEM, "attachments");
	for (size_t i = 0; i < count && !rc; i++) {
		rc = client_dead(clients[i]) ? 0 : mseg_look(p, mseg, clients[i]);
		if (rc)
			rc = say(err, clients[i], rc);
	}
	clients_free(clients, count);
	return rc;
}

int programs_close_stores(struct programs *p, struct seg *seg, uint32_t timeout_ms,
			  struct ramp_err *err)
{
	struct mapped_segment *mseg = mseg_find(p, seg_id(seg));
	uint64_t until_ms = clock_ms() + timeout_ms;
	int rc;

	if (!mseg)
		return 0;
	pthread_mutex_lock(&mseg->change);
	rc = mseg->state == MSEG_FROZEN ? each_live(p, mseg, swap_in, until_ms, err)
					: ramp_err_set(err, EBUSY, "it is not frozen");
	if (!rc) {
		mseg_go(p, mseg, MSEG_FROZEN, MSEG_CLOSED);
		wake_all(mseg);
		rc = hold_all(p, mseg, err);
	}
	if (rc && mseg->state != MSEG_OPEN)
		thaw(p, mseg);
	pthread_mutex_unlock(&mseg->change);
	mseg_put(p, mseg);
	return rc;
}

/* ---- the hand-over -------------------------------------------------------------------------- */

static int make_empty(struct programs *p, struct mapped_segment *mseg,
		      const struct mapping_ref *ref, uint64_t until_ms)
{
	return beside_make(p, mseg, ref, false, until_ms);
}

int close_stores_prepare(struct programs *p, struct mapped_segment *mseg, struct ramp_err *err)
{
	int rc;

	mseg_look_all(p, mseg, NULL);
	rc = each_live(p, mseg, make_empty, clock_ms() + AHEAD_MS, err);
	if (rc)
		beside_drop(mseg, clock_ms() + AHEAD_MS);
	return rc;
}

static int swap_empty(struct programs *p, struct mapped_segment *mseg,
		      const struct mapping_ref *ref, uint64_t until_ms)
{
	int rc = beside_swap(mseg, ref, until_ms);

	/* It came since: made, registered and put in place at once. */
	return rc == -ENOENT ? replace_back(p, mseg, ref, 0, until_ms) : rc;
}

int close_stores_replace(struct programs *p, struct mapped_segment *mseg, uint64_t until_ms,
			 struct ramp_err *err)
{
	int rc = each_live(p, mseg, swap_empty, until_ms, err);

	/* Those that wait to store wait with the others from now on. */
	if (!rc)
		wake_all(mseg);
	return rc;
}
