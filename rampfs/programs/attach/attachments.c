/*
 * The table of attachments: for each mapped segment and client, the mappings that /proc showed.
 *
 * The table is a copy of what /proc shows, for the pager's sake. Code that has a reason to think
 * that the mappings have changed (an attach, a fork, a notice of the shim, a remap event, a new
 * session, a revoke that fails) calls mseg_look, which replaces a client's mappings of one segment
 * by those that are there now.
 */
#include <errno.h>
#include <stdlib.h>

#include "attachments.h"
#include "base/kernel.h"
#include "base/page.h"
#include "base/session.h"
#include "programs/client/clients.h"
#include "programs/client/uffd.h"
#include "programs/programs.h"
#include "stretches.h"

#define LOOK_TRIES  100
#define FIRST_COUNT 4u

/* ---- attachments ---------------------------------------------------------------------------- */

static void count_attachments(struct programs *p, int by)
{
	pthread_mutex_lock(&p->lock);
	p->status.attachments += (uint32_t)by;
	pthread_mutex_unlock(&p->lock);
}

/* `holding` NULL: does nothing. */
static void free_mappings(struct programs *p, struct client_mappings *holding)
{
	if (!holding)
		return;
	mseg_put(p, holding->mseg);
	client_put(holding->client);
	free(holding);
}

/* A client that is buried gets no attachments: no code would ever take them out of the table
   again. Checked under client->list, since client_forget takes that after the client has become
   so. */
static bool is_buried(struct client *client)
{
	return client_dead(client) && !atomic_load(&client->orphan);
}

/* Takes the client's mappings of mseg out of the table, and puts `fresh`, if any, in their
   place, unless the client is buried. `fresh` then belongs to the table; else it is freed. */
static void replace_mappings(struct programs *p, struct mapped_segment *mseg, struct client *client,
			     struct client_mappings *fresh)
{
	struct client_mappings *old;
	bool keep;
	int by = 0;

	pthread_rwlock_wrlock(&mseg->lock);
	pthread_mutex_lock(&client->list);
	keep = fresh && !is_buried(client);
	old = mseg_mappings_of(mseg, client);
	if (old) {
		RB_REMOVE(attached_by_client, &mseg->attached, old);
		RB_REMOVE(attached_by_end, &client->attached, old);
		by -= (int)old->count;
	}
	if (keep) {
		RB_INSERT(attached_by_client, &mseg->attached, fresh);
		RB_INSERT(attached_by_end, &client->attached, fresh);
		by += (int)fresh->count;
	}
	pthread_mutex_unlock(&client->list);
	pthread_rwlock_unlock(&mseg->lock);
	/* Which page faults are left waiting depends on the table. By the new one they may not
	   have to wait, and the code that ends a freeze only wakes ranges that are in the table. */
	if (old)
		uffd_wake(client, old->at[0].start, old->end - old->at[0].start);
	free_mappings(p, old);
	if (!keep)
		free_mappings(p, fresh);
	count_attachments(p, by);
}

struct table_look {
	struct programs *programs;
	struct mapped_segment *mseg;
	struct client *client;
	struct client_mappings *found; /* NULL: none so far */
	size_t room;		       /* entries that there is room for in it */
	uint32_t prot;		       /* of the last mapping */
	uint32_t parts;		       /* runs of equal protection in the last attachment */
};

/*
 * Returns whether a mapping continues the last attachment. A program may protect a segment page by
 * page, and an agent covers each range of its table by itself: thousands of mappings, which are
 * registered, dropped, taken away and put back as one. A segment that comes back is protected
 * according to its agent's table, in up to SESSION_PARTS_MAX parts by one SWAP.
 */
static bool is_more_of(struct table_look *l, const struct attachment *last,
		       const struct proc_mapping *m, uint64_t offset)
{
	return last && last->end == m->start && last->gone == m->gone &&
	       last->writable == m->writable &&
	       last->offset + (last->end - last->start) == offset &&
	       (!m->gone || m->prot == l->prot || l->parts < SESSION_PARTS_MAX);
}

/* Adds an attachment to `found`; NULL: no memory. */
static struct attachment *one_more(struct table_look *l)
{
	size_t room = l->found ? 2 * l->room : FIRST_COUNT;
	struct client_mappings *more;

	if (l->found && l->found->count < l->room)
		return &l->found->at[l->found->count++];
	more = realloc(l->found, sizeof(*more) + room * sizeof(more->at[0]));
	if (!more)
		return NULL;
	if (!l->found)
		*more = (struct client_mappings){
			.mseg = mseg_hold(l->programs, l->mseg),
			.client = client_get(l->client),
			.id = l->mseg->id,
		};
	l->found = more;
	l->room = room;
	return &more->at[more->count++];
}

static int on_mapping(void *arg, const struct proc_mapping *m)
{
	struct table_look *l = arg;
	struct attachment *a = l->found ? &l->found->at[l->found->count - 1] : NULL;
	uint64_t offset;

	if (m->id != l->mseg->id)
		return 0;
	offset = m->gone ? m->start - l->mseg->lo : m->offset;
	if (is_more_of(l, a, m, offset)) {
		l->parts += m->prot != l->prot;
		l->prot = m->prot;
		a->end = l->found->end = m->end;
		a->prot |= m->prot;
		return 0;
	}
	if (l->found && l->found->count == RANGES_MAX)
		return -E2BIG;
	a = one_more(l);
	if (!a)
		return -ENOMEM;
	*a = (struct attachment){
		.start = m->start,
		.end = m->end,
		.offset = offset,
		.prot = m->prot,
		.writable = m->writable,
		.gone = m->gone,
	};
	l->found->end = m->end;
	l->prot = m->prot;
	l->parts = 1;
	return 0;
}

/* Registers the attachments, as far as they must be. change is held, and no lock that page faults need: this may
   block on the program. */
static int arm_all(struct mapped_segment *mseg, struct client *client)
{
	const struct client_mappings *cm = mseg_mappings_of(mseg, client);
	int rc = 0;

	for (size_t i = 0; cm && i < cm->count && !rc; i++)
		if (!cm->at[i].gone)
			rc = stretches_arm(mseg, client, &cm->at[i]);
	return rc == -ESRCH ? 0 : rc;
}

int mseg_hold_stores(struct mapped_segment *mseg, struct client *client, uint64_t start,
		     uint64_t end, uint64_t offset)
{
	uint64_t size = page_up(seg_size(mseg->seg)), len = size > offset ? size - offset : 0;

	return uffd_hold(client, start, end, len < end - start ? len : end - start);
}

/* The same as arm_all, for a segment that is closed to stores. */
static int hold_all(struct mapped_segment *mseg, struct client *client)
{
	const struct client_mappings *cm = mseg_mappings_of(mseg, client);
	int rc = 0;

	for (size_t i = 0; cm && i < cm->count && !rc; i++)
		if (!cm->at[i].gone && cm->at[i].writable)
			rc = mseg_hold_stores(mseg, client, cm->at[i].start, cm->at[i].end,
					      cm->at[i].offset);
	return rc == -ESRCH ? 0 : rc;
}

static int look_once(struct programs *p, struct mapped_segment *mseg, struct client *client)
{
	struct table_look l = {.programs = p, .mseg = mseg, .client = client};
	int rc;

	rc = mappings_each(&client->mappings, mseg->lo, mseg->hi, on_mapping, &l);
	if (rc == -ESRCH)
		rc = 0; /* it has ended: it maps nothing */
	if (rc) {
		free_mappings(p, l.found);
		return rc;
	}
	replace_mappings(p, mseg, client, l.found);
	if (mseg_armed(mseg))
		return arm_all(mseg, client);
	return mseg->state == MSEG_CLOSED ? hold_all(mseg, client) : 0;
}

int mseg_look(struct programs *p, struct mapped_segment *mseg, struct client *client)
{
	int rc = look_once(p, mseg, client);

	/* A mapping that was found is gone by now, or is no segment's: the program runs
	   meanwhile. */
	for (int tries = 1; rc == -EINVAL && tries < LOOK_TRIES; tries++)
		rc = look_once(p, mseg, client);
	return rc;
}

void mseg_look_all(struct programs *p, struct mapped_segment *mseg, const struct client *only)
{
	struct mapping_ref *refs = NULL;
	size_t count = 0;

	if (mseg_refs(mseg, &refs, &count))
		return;
	for (size_t i = 0; i < count; i++)
		if ((!only || refs[i].client == only) &&
		    (i == 0 || refs[i - 1].client != refs[i].client))
			mseg_look(p, mseg, refs[i].client);
	mapping_refs_free(refs, count);
}

/* Returns the segment other than `id` of which the table shows a mapping in that range, with a reference;
   NULL: there is none. */
static struct mapped_segment *other_at(struct programs *p, struct client *client, ramp_segment_t id,
				       uint64_t start, uint64_t end)
{
	struct mapped_segment *mseg = NULL;
	struct client_mappings *cm;

	pthread_mutex_lock(&client->list);
	cm = client_mappings_at(client, start);
	while (cm && cm->id == id)
		cm = RB_NEXT(attached_by_end, &client->attached, cm);
	if (cm && cm->at[0].start < end)
		mseg = mseg_hold(p, cm->mseg);
	pthread_mutex_unlock(&client->list);
	return mseg;
}

int client_look_at_others(struct programs *p, struct client *client, ramp_segment_t id,
			  uint64_t start, uint64_t end)
{
	struct mapped_segment *other;
	ramp_segment_t last = 0;
	bool again = true;
	int rc = 0;

	while (!rc && again && (other = other_at(p, client, id, start, end))) {
		again = other->id != last; /* else a look has just found it there */
		last = other->id;
		if (again) {
			pthread_mutex_lock(&other->change);
			rc = mseg_look(p, other, client);
			pthread_mutex_unlock(&other->change);
		}
		mseg_put(p, other);
	}
	return rc;
}

/* ---- a whole client ------------------------------------------------------------------------- */

struct ids {
	ramp_segment_t *at;
	size_t count, cap;
};

static int collect_id(void *arg, const struct proc_mapping *m)
{
	struct ids *ids = arg;
	ramp_segment_t *more;

	for (size_t i = ids->count; i > 0 && i + 8 > ids->count; i--)
		if (ids->at[i - 1] == m->id)
			return 0;
	if (ids->count == ids->cap) {
		more = reallocarray(ids->at, ids->cap + 16, 2 * sizeof(*more));
		if (!more)
			return -ENOMEM;
		ids->at = more;
		ids->cap = 2 * (ids->cap + 16);
	}
	ids->at[ids->count++] = m->id;
	return 0;
}

/* Unregisters all attachments, under the same locks as arm_all. */
static void disarm_all(struct mapped_segment *mseg, struct client *client)
{
	const struct client_mappings *cm = mseg_mappings_of(mseg, client);

	for (size_t i = 0; cm && i < cm->count; i++)
		if (!cm->at[i].gone)
			uffd_disarm(client, cm->at[i].start, cm->at[i].end);
}

struct mapped_segment *client_next_mseg(struct programs *p, struct client *client,
					ramp_segment_t last)
{
	struct mapped_segment *mseg = NULL;
	struct client_mappings *cm;

	pthread_mutex_lock(&client->list);
	RB_FOREACH (cm, attached_by_end, &client->attached)
		if (cm->id > last && (!mseg || cm->id < mseg->id))
			mseg = cm->mseg;
	if (mseg)
		mseg_hold(p, mseg);
	pthread_mutex_unlock(&client->list);
	return mseg;
}

static int learn_one(struct programs *p, struct client *client, ramp_segment_t id)
{
	struct mapped_segment *mseg = mseg_get(p, id);
	int rc;

	if (!mseg)
		return -ENOMEM;
	pthread_mutex_lock(&mseg->change);
	rc = mseg_look(p, mseg, client);
	mseg->poisoned |= mseg->pulling; /* perhaps, by the daemon before */
	/* The daemon before may have registered it for a freeze that its death has ended. */
	if (!rc && mseg->state == MSEG_OPEN && !mseg->pulling) {
		mseg->prelook.on = false;
		disarm_all(mseg, client);
	}
	pthread_mutex_unlock(&mseg->change);
	mseg_put(p, mseg);
	return rc;
}

int client_learn(struct programs *p, struct client *client)
{
	struct ids ids = {0};
	int rc = mappings_each(&client->mappings, p->arena_lo, p->arena_hi, collect_id, &ids);

	for (size_t i = 0; !rc && i < ids.count; i++)
		rc = learn_one(p, client, ids.at[i]);
	free(ids.at);
	return rc == -ESRCH ? 0 : rc;
}

void client_forget(struct programs *p, struct client *client)
{
	struct client_mappings *cm;
	struct mapped_segment *mseg;

	for (;;) {
		pthread_mutex_lock(&client->list);
		cm = RB_MIN(attached_by_end, &client->attached);
		mseg = cm ? mseg_hold(p, cm->mseg) : NULL;
		pthread_mutex_unlock(&client->list);
		if (!mseg)
			return;
		pthread_mutex_lock(&mseg->change);
		replace_mappings(p, mseg, client, NULL);
		pthread_mutex_unlock(&mseg->change);
		mseg_put(p, mseg);
	}
}

void mseg_mark_live(struct mapped_segment *mseg, const struct mapping_ref *ref)
{
	struct client_mappings *cm;
	struct attachment *a;

	pthread_rwlock_wrlock(&mseg->lock);
	pthread_mutex_lock(&ref->client->list);
	cm = mseg_mappings_of(mseg, ref->client);
	for (size_t i = 0; cm && i < cm->count; i++) {
		a = &cm->at[i];
		if (a->start >= ref->start && a->end <= ref->end) {
			a->gone = false;
			a->offset = ref->offset + (a->start - ref->start);
			a->writable = ref->writable;
		}
	}
	pthread_mutex_unlock(&ref->client->list);
	pthread_rwlock_unlock(&mseg->lock);
}
