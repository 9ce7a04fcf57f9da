/*
 * What is attached: psegs by id, and the attachments that /proc showed.
 *
 * The table is a copy of what /proc says, for the pager's sake; whoever has a reason to think that
 * it has changed (an attach, a fork, a notice, a remap event, a new session, a revoke that fails)
 * calls pseg_look, which replaces a space's holding of one segment by what is there now.
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
static int holding_by_end(const struct holding *a, const struct holding *b)
{
	if (a->end != b->end)
		return (a->end > b->end) - (a->end < b->end);
	return (a->id > b->id) - (a->id < b->id);
}

static int holding_by_space(const struct holding *a, const struct holding *b)
{
	return (a->space > b->space) - (a->space < b->space);
}

RB_GENERATE(space_holdings, holding, in_space, holding_by_end)
RB_GENERATE(pseg_holdings, holding, in_pseg, holding_by_space)

struct holding *pseg_holding(struct pseg *pseg, struct space *space)
{
	struct holding key = {.space = space};

	return RB_FIND(pseg_holdings, &pseg->holdings, &key);
}

struct holding *space_holding(struct space *space, uint64_t addr)
{
	struct holding key = {.end = addr + 1};

	return RB_NFIND(space_holdings, &space->holdings, &key);
}

const struct attachment *holding_at(const struct holding *holding, uint64_t addr)
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

/* ---- psegs ---------------------------------------------------------------------------------- */

/* p->lock is held. */
static struct pseg *find_locked(struct programs *p, ramp_segment_t id)
{
	struct pseg *pseg;

	LIST_FOREACH (pseg, &p->psegs[id % PSEG_BUCKETS], link)
		if (pseg->id == id) {
			pseg->refs++;
			return pseg;
		}
	return NULL;
}

struct pseg *pseg_find(struct programs *p, ramp_segment_t id)
{
	struct pseg *pseg;

	pthread_mutex_lock(&p->lock);
	pseg = find_locked(p, id);
	pthread_mutex_unlock(&p->lock);
	return pseg;
}

struct pseg *pseg_held(struct programs *p, ramp_segment_t id, struct space *space)
{
	struct pseg *pseg = pseg_find(p, id);
	bool held;

	if (!pseg)
		return NULL;
	pthread_rwlock_rdlock(&pseg->lock);
	held = pseg_holding(pseg, space);
	pthread_rwlock_unlock(&pseg->lock);
	if (!held)
		pseg_put(p, pseg);
	return held ? pseg : NULL;
}

struct pseg *pseg_hold(struct programs *p, struct pseg *pseg)
{
	pthread_mutex_lock(&p->lock);
	pseg->refs++;
	pthread_mutex_unlock(&p->lock);
	return pseg;
}

static void free_pseg(struct pseg *pseg)
{
	if (pseg->seg)
		seg_put(pseg->seg);
	pthread_rwlock_destroy(&pseg->lock);
	pthread_mutex_destroy(&pseg->change);
	free(pseg);
}

void pseg_put(struct programs *p, struct pseg *pseg)
{
	bool last;

	pthread_mutex_lock(&p->lock);
	/* A freeze is remembered until it ends, whoever else forgets it. */
	last = --pseg->refs == 0 && pseg->state != PSEG_FROZEN;
	if (last)
		LIST_REMOVE(pseg, link);
	pthread_mutex_unlock(&p->lock);
	if (last)
		free_pseg(pseg);
}

static void first_range(struct programs *p, struct pseg *pseg)
{
	struct segment_row row;

	pseg->lo = p->arena_lo;
	pseg->hi = p->arena_hi;
	if (!meta_segment(p->meta, pseg->id, &row) && row.extent_len) {
		pseg->lo = row.extent_addr;
		pseg->hi = row.extent_addr + row.extent_len;
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
static void first_state(struct programs *p, struct pseg *pseg)
{
	struct seg *seg = store_find(p->store, pseg->id);
	enum pseg_state state = PSEG_GONE;
	struct record record;

	if (seg) {
		record_get(seg, &record);
		if (record_serves(&record))
			state = PSEG_OPEN;
		else if (record.kind == RECORD_GIVEN && !is_theirs(p, pseg->id, &record))
			state = PSEG_FROZEN;
	}
	pseg_set_seg(pseg, seg);
	pthread_rwlock_wrlock(&pseg->lock);
	pseg->state = state;
	pseg->pulling = state == PSEG_OPEN && pages_missing(seg) > 0;
	pthread_rwlock_unlock(&pseg->lock);
	if (seg)
		seg_put(seg);
}

static struct pseg *make(struct programs *p, ramp_segment_t id)
{
	struct pseg *pseg = calloc(1, sizeof(*pseg));
	pthread_rwlockattr_t attr;

	if (!pseg)
		return NULL;
	pseg->id = id;
	pseg->refs = 1;
	RB_INIT(&pseg->holdings);
	pthread_mutex_init(&pseg->change, NULL);
	/* The pager reads all the time: without this nobody would ever write. */
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&pseg->lock, &attr);
	pthread_rwlockattr_destroy(&attr);
	first_range(p, pseg);
	first_state(p, pseg);
	return pseg;
}

struct pseg *pseg_get(struct programs *p, ramp_segment_t id)
{
	struct pseg *pseg = pseg_find(p, id), *made;

	if (pseg)
		return pseg;
	made = make(p, id);
	if (!made)
		return NULL;
	pthread_mutex_lock(&made->change);
	pthread_mutex_lock(&p->lock);
	pseg = find_locked(p, id);
	if (!pseg)
		LIST_INSERT_HEAD(&p->psegs[id % PSEG_BUCKETS], made, link);
	pthread_mutex_unlock(&p->lock);
	/* Who changed the record before this one could be found has not told it. */
	if (!pseg)
		first_state(p, made);
	pthread_mutex_unlock(&made->change);
	if (!pseg)
		return made;
	free_pseg(made);
	return pseg;
}

void pseg_free_all(struct programs *p)
{
	struct pseg *pseg;

	/* What is frozen stays so for the next daemon, which finds it by its record. */
	for (size_t i = 0; i < PSEG_BUCKETS; i++)
		while ((pseg = LIST_FIRST(&p->psegs[i]))) {
			LIST_REMOVE(pseg, link);
			free_pseg(pseg);
		}
}

void pseg_set_seg(struct pseg *pseg, struct seg *seg)
{
	struct seg *old;

	pthread_rwlock_wrlock(&pseg->lock);
	old = pseg->seg;
	pseg->seg = seg ? seg_get(seg) : NULL;
	pthread_rwlock_unlock(&pseg->lock);
	if (old)
		seg_put(old);
}

void pseg_set_state(struct programs *p, struct pseg *pseg, enum pseg_state state)
{
	static const char *const names[] = {"OPEN", "FROZEN", "GONE"};

	log_debug("segment %llu: %s -> %s", (unsigned long long)pseg->id, names[pseg->state],
		  names[state]);
	pthread_rwlock_wrlock(&pseg->lock);
	pseg->state = state;
	pthread_rwlock_unlock(&pseg->lock);
	atomic_store(&pseg->coming, false);
	pthread_mutex_lock(&p->lock);
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

bool pseg_armed(struct pseg *pseg)
{
	return pseg->pulling || pseg->state == PSEG_FROZEN;
}

/* ---- attachments ---------------------------------------------------------------------------- */

static void count_attachments(struct programs *p, int by)
{
	pthread_mutex_lock(&p->lock);
	p->status.attachments += (uint32_t)by;
	pthread_mutex_unlock(&p->lock);
}

/* NULL: nothing. */
static void free_holding(struct programs *p, struct holding *holding)
{
	if (!holding)
		return;
	pseg_put(p, holding->pseg);
	space_put(holding->space);
	free(holding);
}

/* Nobody would ever take its attachments out of the table again. Under space->list, since
   space_forget takes that after the space has become so. */
static bool is_buried(struct space *space)
{
	return space_dead(space) && !atomic_load(&space->orphan);
}

/* Takes the space's holding of pseg out, and puts `fresh`, if any, in its place, unless the space
   is buried. `fresh` is the table's, or freed. */
static void replace(struct programs *p, struct pseg *pseg, struct space *space,
		    struct holding *fresh)
{
	struct holding *old;
	bool keep;
	int by = 0;

	pthread_rwlock_wrlock(&pseg->lock);
	pthread_mutex_lock(&space->list);
	keep = fresh && !is_buried(space);
	old = pseg_holding(pseg, space);
	if (old) {
		RB_REMOVE(pseg_holdings, &pseg->holdings, old);
		RB_REMOVE(space_holdings, &space->holdings, old);
		by -= (int)old->count;
	}
	if (keep) {
		RB_INSERT(pseg_holdings, &pseg->holdings, fresh);
		RB_INSERT(space_holdings, &space->holdings, fresh);
		by += (int)fresh->count;
	}
	pthread_mutex_unlock(&space->list);
	pthread_rwlock_unlock(&pseg->lock);
	/* Page faults are left waiting by the table: by that which now stands there they may not
	   be, and whoever ends a freeze wakes what it has. */
	if (old)
		kernel_uffd_wake(space->uffd, old->at[0].start, old->end - old->at[0].start);
	free_holding(p, old);
	if (!keep)
		free_holding(p, fresh);
	count_attachments(p, by);
}

struct looking {
	struct programs *programs;
	struct pseg *pseg;
	struct space *space;
	struct holding *found; /* NULL: nothing yet */
	size_t room;	       /* in it */
	uint32_t prot;	       /* of the last mapping */
	uint32_t parts;	       /* protections in a row in the last attachment */
};

/*
 * A program may protect a segment page by page, and an agent covers each range of its table by
 * itself: thousands of mappings, which are registered, dropped, taken away and put back as one.
 * What comes back is protected by its agent's table, in so many parts by one SWAP.
 */
static bool is_more_of(struct looking *l, const struct attachment *last, const struct mapping *m,
		       uint64_t offset)
{
	return last && last->end == m->start && last->gone == m->gone &&
	       last->writable == m->writable &&
	       last->offset + (last->end - last->start) == offset &&
	       (!m->gone || m->prot == l->prot || l->parts < SESSION_PARTS_MAX);
}

/* One more in what was found; NULL: no memory. */
static struct attachment *one_more(struct looking *l)
{
	size_t room = l->found ? 2 * l->room : FIRST_COUNT;
	struct holding *more;

	if (l->found && l->found->count < l->room)
		return &l->found->at[l->found->count++];
	more = realloc(l->found, sizeof(*more) + room * sizeof(more->at[0]));
	if (!more)
		return NULL;
	if (!l->found)
		*more = (struct holding){
			.pseg = pseg_hold(l->programs, l->pseg),
			.space = space_get(l->space),
			.id = l->pseg->id,
		};
	l->found = more;
	l->room = room;
	return &more->at[more->count++];
}

static int on_mapping(void *arg, const struct mapping *m)
{
	struct looking *l = arg;
	struct attachment *a = l->found ? &l->found->at[l->found->count - 1] : NULL;
	uint64_t offset;

	if (m->id != l->pseg->id)
		return 0;
	offset = m->gone ? m->start - l->pseg->lo : m->offset;
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
static int arm_all(struct pseg *pseg, struct space *space)
{
	const struct holding *h = pseg_holding(pseg, space);
	int rc = 0;

	for (size_t i = 0; h && i < h->count && !rc; i++)
		if (!h->at[i].gone)
			rc = uffd_arm(space, h->at[i].start, h->at[i].end);
	return rc == -ESRCH ? 0 : rc;
}

static int look_once(struct programs *p, struct pseg *pseg, struct space *space)
{
	struct looking l = {.programs = p, .pseg = pseg, .space = space};
	int rc;

	rc = mappers_each(space, pseg->lo, pseg->hi, on_mapping, &l);
	if (rc == -ESRCH)
		rc = 0; /* it has ended: nothing is mapped */
	if (rc) {
		free_holding(p, l.found);
		return rc;
	}
	replace(p, pseg, space, l.found);
	return pseg_armed(pseg) ? arm_all(pseg, space) : 0;
}

int pseg_look(struct programs *p, struct pseg *pseg, struct space *space)
{
	int rc = look_once(p, pseg, space);

	/* What was found is not there any more, or no segment's: the program goes on meanwhile. */
	for (int tries = 1; rc == -EINVAL && tries < LOOK_TRIES; tries++)
		rc = look_once(p, pseg, space);
	return rc;
}

void pseg_look_all(struct programs *p, struct pseg *pseg, const struct space *only)
{
	struct piece *pieces = NULL;
	size_t count = 0;

	if (pseg_pieces(pseg, &pieces, &count))
		return;
	for (size_t i = 0; i < count; i++)
		if ((!only || pieces[i].space == only) &&
		    (i == 0 || pieces[i - 1].space != pieces[i].space))
			pseg_look(p, pseg, pieces[i].space);
	pieces_free(pieces, count);
}

/* ---- a whole space -------------------------------------------------------------------------- */

struct ids {
	ramp_segment_t *at;
	size_t count, cap;
};

static int collect_id(void *arg, const struct mapping *m)
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
static void disarm_all(struct pseg *pseg, struct space *space)
{
	const struct holding *h = pseg_holding(pseg, space);

	for (size_t i = 0; h && i < h->count; i++)
		if (!h->at[i].gone)
			uffd_disarm(space, h->at[i].start, h->at[i].end);
}

static int learn_one(struct programs *p, struct space *space, ramp_segment_t id)
{
	struct pseg *pseg = pseg_get(p, id);
	int rc;

	if (!pseg)
		return -ENOMEM;
	pthread_mutex_lock(&pseg->change);
	rc = pseg_look(p, pseg, space);
	pseg->poisoned |= pseg->pulling; /* by a former daemon, perhaps */
	/* What a former daemon registered for a freeze that its death has ended. */
	if (!rc && pseg->state == PSEG_OPEN && !pseg->pulling) {
		pseg->watch.on = false;
		disarm_all(pseg, space);
	}
	pthread_mutex_unlock(&pseg->change);
	pseg_put(p, pseg);
	return rc;
}

int space_learn(struct programs *p, struct space *space)
{
	struct ids ids = {0};
	int rc = mappers_each(space, p->arena_lo, p->arena_hi, collect_id, &ids);

	for (size_t i = 0; !rc && i < ids.count; i++)
		rc = learn_one(p, space, ids.at[i]);
	free(ids.at);
	return rc == -ESRCH ? 0 : rc;
}

void space_forget(struct programs *p, struct space *space)
{
	struct holding *h;
	struct pseg *pseg;

	for (;;) {
		pthread_mutex_lock(&space->list);
		h = RB_MIN(space_holdings, &space->holdings);
		pseg = h ? pseg_hold(p, h->pseg) : NULL;
		pthread_mutex_unlock(&space->list);
		if (!pseg)
			return;
		pthread_mutex_lock(&pseg->change);
		replace(p, pseg, space, NULL);
		pthread_mutex_unlock(&pseg->change);
		pseg_put(p, pseg);
	}
}

void pseg_mark_live(struct pseg *pseg, const struct piece *piece)
{
	struct holding *h;
	struct attachment *a;

	pthread_rwlock_wrlock(&pseg->lock);
	pthread_mutex_lock(&piece->space->list);
	h = pseg_holding(pseg, piece->space);
	for (size_t i = 0; h && i < h->count; i++) {
		a = &h->at[i];
		if (a->start >= piece->start && a->end <= piece->end) {
			a->gone = false;
			a->offset = piece->offset + (a->start - piece->start);
			a->writable = piece->writable;
		}
	}
	pthread_mutex_unlock(&piece->space->list);
	pthread_rwlock_unlock(&pseg->lock);
}

/* ---- copies for those who do not want to hold the lock -------------------------------------- */

static void copy_pieces(const struct holding *h, struct piece *pieces)
{
	for (size_t i = 0; i < h->count; i++)
		pieces[i] = (struct piece){
			.space = space_get(h->space),
			.start = h->at[i].start,
			.end = h->at[i].end,
			.offset = h->at[i].offset,
			.prot = h->at[i].prot,
			.writable = h->at[i].writable,
			.gone = h->at[i].gone,
		};
}

int pseg_pieces(struct pseg *pseg, struct piece **pieces, size_t *count)
{
	struct holding *h;
	size_t n = 0;

	*count = 0;
	pthread_rwlock_rdlock(&pseg->lock);
	RB_FOREACH (h, pseg_holdings, &pseg->holdings)
		n += h->count;
	*pieces = calloc(n + 1, sizeof(**pieces));
	if (*pieces)
		RB_FOREACH (h, pseg_holdings, &pseg->holdings) {
			copy_pieces(h, *pieces + *count);
			*count += h->count;
		}
	pthread_rwlock_unlock(&pseg->lock);
	return *pieces ? 0 : -ENOMEM;
}

void pieces_free(struct piece *pieces, size_t count)
{
	for (size_t i = 0; i < count; i++)
		space_put(pieces[i].space);
	free(pieces);
}
