/*
 * What is attached: mapped segments by id, and the attachments that /proc showed.
 *
 * The table is a copy of what /proc says, for the pager's sake; whoever has a reason to think that
 * it has changed (an attach, a fork, a notice, a remap event, a new session, a revoke that fails)
 * calls mseg_look, which replaces a client's mappings of one segment by what is there now.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "memory/pages.h"
#include "memory/record.h"
#include "programs/local.h"

#define LOOK_TRIES  100
#define FIRST_COUNT 4u

/* ---- the two orders ------------------------------------------------------------------------- */

/* Their ends: the first one behind an address is the one that has it, if any has. What two segments
   have in one place (a program may say so) is told apart by their ids. */
static int compare_ends(const struct client_mappings *a, const struct client_mappings *b)
{
	if (a->end != b->end)
		return (a->end > b->end) - (a->end < b->end);
	return (a->id > b->id) - (a->id < b->id);
}

static int compare_clients(const struct client_mappings *a, const struct client_mappings *b)
{
	return (a->client > b->client) - (a->client < b->client);
}

RB_GENERATE(attached_by_end, client_mappings, in_client, compare_ends)
RB_GENERATE(attached_by_client, client_mappings, in_mseg, compare_clients)

struct client_mappings *mseg_mappings_of(struct mapped_segment *mseg, struct space *client)
{
	struct client_mappings key = {.client = client};

	return RB_FIND(attached_by_client, &mseg->attached, &key);
}

struct client_mappings *client_mappings_at(struct space *client, uint64_t addr)
{
	struct client_mappings key = {.end = addr + 1};

	return RB_NFIND(attached_by_end, &client->attached, &key);
}

const struct attachment *attachment_at(const struct client_mappings *holding, uint64_t addr)
{
	size_t lo = 0, hi = holding->count, mid;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (holding->at[mid].end <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < holding->count && holding->at[lo].start <= addr ? &holding->at[lo] : NULL;
}

/* ---- mapped segments ---------------------------------------------------------------------------------- */

/* p->lock is held. */
static struct mapped_segment *find_locked(struct programs *p, ramp_segment_t id)
{
	struct mapped_segment *mseg;

	LIST_FOREACH (mseg, &p->msegs[id % MSEG_BUCKETS], link)
		if (mseg->id == id) {
			mseg->refs++;
			return mseg;
		}
	return NULL;
}

struct mapped_segment *mseg_find(struct programs *p, ramp_segment_t id)
{
	struct mapped_segment *mseg;

	pthread_mutex_lock(&p->lock);
	mseg = find_locked(p, id);
	pthread_mutex_unlock(&p->lock);
	return mseg;
}

struct mapped_segment *mseg_held(struct programs *p, ramp_segment_t id, struct space *client)
{
	struct mapped_segment *mseg = mseg_find(p, id);
	bool held;

	if (!mseg)
		return NULL;
	pthread_rwlock_rdlock(&mseg->lock);
	held = mseg_mappings_of(mseg, client);
	pthread_rwlock_unlock(&mseg->lock);
	if (!held)
		mseg_put(p, mseg);
	return held ? mseg : NULL;
}

struct mapped_segment *mseg_hold(struct programs *p, struct mapped_segment *mseg)
{
	pthread_mutex_lock(&p->lock);
	mseg->refs++;
	pthread_mutex_unlock(&p->lock);
	return mseg;
}

static void free_mseg(struct mapped_segment *mseg)
{
	if (mseg->seg)
		seg_put(mseg->seg);
	pthread_rwlock_destroy(&mseg->lock);
	pthread_mutex_destroy(&mseg->change);
	free(mseg);
}

void mseg_put(struct programs *p, struct mapped_segment *mseg)
{
	bool last;

	pthread_mutex_lock(&p->lock);
	/* A freeze is remembered until it ends, whoever else forgets it. */
	last = --mseg->refs == 0 && mseg->state != MSEG_FROZEN;
	if (last)
		LIST_REMOVE(mseg, link);
	pthread_mutex_unlock(&p->lock);
	if (last)
		free_mseg(mseg);
}

static void first_range(struct programs *p, struct mapped_segment *mseg)
{
	struct segment_row row;

	mseg->lo = p->arena_lo;
	mseg->hi = p->arena_hi;
	if (!meta_segment(p->meta, mseg->id, &row) && row.extent_len) {
		mseg->lo = row.extent_addr;
		mseg->hi = row.extent_addr + row.extent_len;
	}
}

/* GIVEN, and the tables say that the target has it: an agent that comes back now must be told. */
static bool is_theirs(struct programs *p, ramp_segment_t id, const struct record *given)
{
	struct segment_row row;

	return meta_segment(p->meta, id, &row) == 0 && row.epoch > given->epoch &&
	       row.phase != SEGMENT_MOVING && row.node != meta_self(p->meta);
}

/* The state that the record means, for a segment that nobody has asked about in this life. */
static void first_state(struct programs *p, struct mapped_segment *mseg)
{
	struct seg *seg = store_find(p->store, mseg->id);
	enum mseg_state state = MSEG_GONE;
	struct record record;

	if (seg) {
		record_get(seg, &record);
		if (record_serves(&record))
			state = MSEG_OPEN;
		else if (record.kind == RECORD_GIVEN && !is_theirs(p, mseg->id, &record))
			state = MSEG_FROZEN;
	}
	mseg_set_seg(mseg, seg);
	pthread_rwlock_wrlock(&mseg->lock);
	mseg->state = state;
	mseg->pulling = state == MSEG_OPEN && pages_missing(seg) > 0;
	pthread_rwlock_unlock(&mseg->lock);
	if (seg)
		seg_put(seg);
}

static struct mapped_segment *mseg_make(struct programs *p, ramp_segment_t id)
{
	struct mapped_segment *mseg = calloc(1, sizeof(*mseg));
	pthread_rwlockattr_t attr;

	if (!mseg)
		return NULL;
	mseg->id = id;
	mseg->refs = 1;
	RB_INIT(&mseg->attached);
	pthread_mutex_init(&mseg->change, NULL);
	/* The pager reads all the time: without this nobody would ever write. */
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&mseg->lock, &attr);
	pthread_rwlockattr_destroy(&attr);
	first_range(p, mseg);
	first_state(p, mseg);
	return mseg;
}

struct mapped_segment *mseg_get(struct programs *p, ramp_segment_t id)
{
	struct mapped_segment *mseg = mseg_find(p, id), *made;

	if (mseg)
		return mseg;
	made = mseg_make(p, id);
	if (!made)
		return NULL;
	pthread_mutex_lock(&made->change);
	pthread_mutex_lock(&p->lock);
	mseg = find_locked(p, id);
	if (!mseg)
		LIST_INSERT_HEAD(&p->msegs[id % MSEG_BUCKETS], made, link);
	pthread_mutex_unlock(&p->lock);
	/* Who changed the record before this one could be found has not told it. */
	if (!mseg)
		first_state(p, made);
	pthread_mutex_unlock(&made->change);
	if (!mseg)
		return made;
	free_mseg(made);
	return mseg;
}

void mseg_free_all(struct programs *p)
{
	struct mapped_segment *mseg;

	/* What is frozen stays so for the next daemon, which finds it by its record. */
	for (size_t i = 0; i < MSEG_BUCKETS; i++)
		while ((mseg = LIST_FIRST(&p->msegs[i]))) {
			LIST_REMOVE(mseg, link);
			free_mseg(mseg);
		}
}

void mseg_set_seg(struct mapped_segment *mseg, struct seg *seg)
{
	struct seg *old;

	pthread_rwlock_wrlock(&mseg->lock);
	old = mseg->seg;
	mseg->seg = seg ? seg_get(seg) : NULL;
	pthread_rwlock_unlock(&mseg->lock);
	if (old)
		seg_put(old);
}

void mseg_set_state(struct programs *p, struct mapped_segment *mseg, enum mseg_state state)
{
	static const char *const names[] = {"OPEN", "FROZEN", "GONE"};

	log_debug("segment %llu: %s -> %s", (unsigned long long)mseg->id, names[mseg->state],
		  names[state]);
	pthread_rwlock_wrlock(&mseg->lock);
	mseg->state = state;
	pthread_rwlock_unlock(&mseg->lock);
	atomic_store(&mseg->coming, false);
	pthread_mutex_lock(&p->lock);
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

bool mseg_armed(struct mapped_segment *mseg)
{
	return mseg->pulling || mseg->state == MSEG_FROZEN;
}

/* ---- attachments ---------------------------------------------------------------------------- */

static void count_attachments(struct programs *p, int by)
{
	pthread_mutex_lock(&p->lock);
	p->status.attachments += (uint32_t)by;
	pthread_mutex_unlock(&p->lock);
}

/* NULL: nothing. */
static void free_mappings(struct programs *p, struct client_mappings *holding)
{
	if (!holding)
		return;
	mseg_put(p, holding->mseg);
	space_put(holding->client);
	free(holding);
}

/* Nobody would ever take its attachments out of the table again. Under client->list, since
   client_forget takes that after the client has become so. */
static bool is_buried(struct space *client)
{
	return client_dead(client) && !atomic_load(&client->orphan);
}

/* Takes the client's mappings of mseg out, and puts `fresh`, if any, in its place, unless the client
   is buried. `fresh` is the table's, or freed. */
static void replace_mappings(struct programs *p, struct mapped_segment *mseg, struct space *client,
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
	/* Page faults are left waiting by the table: by that which now stands there they may not
	   be, and whoever ends a freeze wakes what it has. */
	if (old)
		kernel_uffd_wake(client->uffd, old->at[0].start, old->end - old->at[0].start);
	free_mappings(p, old);
	if (!keep)
		free_mappings(p, fresh);
	count_attachments(p, by);
}

struct table_look {
	struct programs *programs;
	struct mapped_segment *mseg;
	struct space *client;
	struct client_mappings *found; /* NULL: nothing yet */
	size_t room;		       /* in it */
	uint32_t prot;		       /* of the last mapping */
	uint32_t parts;		       /* protections in a row in the last attachment */
};

/*
 * A program may protect a segment page by page, and an agent covers each range of its table by
 * itself: thousands of mappings, which are registered, dropped, taken away and put back as one.
 * What comes back is protected by its agent's table, in so many parts by one SWAP.
 */
static bool is_more_of(struct table_look *l, const struct attachment *last,
		       const struct proc_mapping *m, uint64_t offset)
{
	return last && last->end == m->start && last->gone == m->gone &&
	       last->writable == m->writable &&
	       last->offset + (last->end - last->start) == offset &&
	       (!m->gone || m->prot == l->prot || l->parts < SESSION_PARTS_MAX);
}

/* One more in what was found; NULL: no memory. */
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
			.client = space_get(l->client),
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

/* change is held, and no lock that page faults need: this may have to wait for the program. */
static int arm_all(struct mapped_segment *mseg, struct space *client)
{
	const struct client_mappings *cm = mseg_mappings_of(mseg, client);
	int rc = 0;

	for (size_t i = 0; cm && i < cm->count && !rc; i++)
		if (!cm->at[i].gone)
			rc = uffd_arm(client, cm->at[i].start, cm->at[i].end);
	return rc == -ESRCH ? 0 : rc;
}

static int look_once(struct programs *p, struct mapped_segment *mseg, struct space *client)
{
	struct table_look l = {.programs = p, .mseg = mseg, .client = client};
	int rc;

	rc = mappings_each(&client->mappings, mseg->lo, mseg->hi, on_mapping, &l);
	if (rc == -ESRCH)
		rc = 0; /* it has ended: nothing is mapped */
	if (rc) {
		free_mappings(p, l.found);
		return rc;
	}
	replace_mappings(p, mseg, client, l.found);
	return mseg_armed(mseg) ? arm_all(mseg, client) : 0;
}

int mseg_look(struct programs *p, struct mapped_segment *mseg, struct space *client)
{
	int rc = look_once(p, mseg, client);

	/* What was found is not there any more, or no segment's: the program goes on meanwhile. */
	for (int tries = 1; rc == -EINVAL && tries < LOOK_TRIES; tries++)
		rc = look_once(p, mseg, client);
	return rc;
}

void mseg_look_all(struct programs *p, struct mapped_segment *mseg, const struct space *only)
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

/* ---- a whole client -------------------------------------------------------------------------- */

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

/* As arm_all. */
static void disarm_all(struct mapped_segment *mseg, struct space *client)
{
	const struct client_mappings *cm = mseg_mappings_of(mseg, client);

	for (size_t i = 0; cm && i < cm->count; i++)
		if (!cm->at[i].gone)
			uffd_disarm(client, cm->at[i].start, cm->at[i].end);
}

static int learn_one(struct programs *p, struct space *client, ramp_segment_t id)
{
	struct mapped_segment *mseg = mseg_get(p, id);
	int rc;

	if (!mseg)
		return -ENOMEM;
	pthread_mutex_lock(&mseg->change);
	rc = mseg_look(p, mseg, client);
	mseg->poisoned |= mseg->pulling; /* by a former daemon, perhaps */
	/* What a former daemon registered for a freeze that its death has ended. */
	if (!rc && mseg->state == MSEG_OPEN && !mseg->pulling) {
		mseg->watch.on = false;
		disarm_all(mseg, client);
	}
	pthread_mutex_unlock(&mseg->change);
	mseg_put(p, mseg);
	return rc;
}

int client_learn(struct programs *p, struct space *client)
{
	struct ids ids = {0};
	int rc = mappings_each(&client->mappings, p->arena_lo, p->arena_hi, collect_id, &ids);

	for (size_t i = 0; !rc && i < ids.count; i++)
		rc = learn_one(p, client, ids.at[i]);
	free(ids.at);
	return rc == -ESRCH ? 0 : rc;
}

void client_forget(struct programs *p, struct space *client)
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

/* ---- copies for those who do not want to hold the lock -------------------------------------- */

static void copy_refs(const struct client_mappings *cm, struct mapping_ref *refs)
{
	for (size_t i = 0; i < cm->count; i++)
		refs[i] = (struct mapping_ref){
			.client = space_get(cm->client),
			.start = cm->at[i].start,
			.end = cm->at[i].end,
			.offset = cm->at[i].offset,
			.prot = cm->at[i].prot,
			.writable = cm->at[i].writable,
			.gone = cm->at[i].gone,
		};
}

int mseg_refs(struct mapped_segment *mseg, struct mapping_ref **refs, size_t *count)
{
	struct client_mappings *cm;
	size_t n = 0;

	*count = 0;
	pthread_rwlock_rdlock(&mseg->lock);
	RB_FOREACH (cm, attached_by_client, &mseg->attached)
		n += cm->count;
	*refs = calloc(n + 1, sizeof(**refs));
	if (*refs)
		RB_FOREACH (cm, attached_by_client, &mseg->attached) {
			copy_refs(cm, *refs + *count);
			*count += cm->count;
		}
	pthread_rwlock_unlock(&mseg->lock);
	return *refs ? 0 : -ENOMEM;
}

void mapping_refs_free(struct mapping_ref *refs, size_t count)
{
	for (size_t i = 0; i < count; i++)
		space_put(refs[i].client);
	free(refs);
}
