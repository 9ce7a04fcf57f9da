/*
 * Mapped segments: the segments that programs of this node have mapped, by id, with their state and
 * with the mappings of each client.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "mapped_segment.h"
#include "memory/pages.h"
#include "memory/record.h"
#include "programs/client/clients.h"
#include "programs/programs.h"

/* ---- the two trees: by address and by client ------------------------------------------------ */

/* Orders by end: the first one that ends behind an address is the only one that can contain it.
   If two segments claim the same place (an agent may say so), their ids tell them apart. */
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

struct client_mappings *mseg_mappings_of(struct mapped_segment *mseg, struct client *client)
{
	struct client_mappings key = {.client = client};

	return RB_FIND(attached_by_client, &mseg->attached, &key);
}

struct client_mappings *client_mappings_at(struct client *client, uint64_t addr)
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

uint64_t attachment_overlap(const struct attachment *a, uint64_t from, uint64_t to, uint64_t *addr)
{
	uint64_t a_to = a->offset + (a->end - a->start);
	uint64_t lo = from > a->offset ? from : a->offset;
	uint64_t hi = to < a_to ? to : a_to;

	if (lo >= hi)
		return 0;
	*addr = a->start + (lo - a->offset);
	return hi - lo;
}

/* ---- mapped segments ------------------------------------------------------------------------ */

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

struct mapped_segment *mseg_held(struct programs *p, ramp_segment_t id, struct client *client)
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
	/* A freeze is remembered until it ends, also without references. */
	last = --mseg->refs == 0 && mseg->state != MSEG_FROZEN && mseg->state != MSEG_CLOSED;
	if (last)
		LIST_REMOVE(mseg, link);
	pthread_mutex_unlock(&p->lock);
	if (last)
		free_mseg(mseg);
}

/* Sets its extent, if it has one, else the arena. */
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

/* Returns whether the tables show that the target has a segment that was GIVEN: then an agent
   that comes back now must be told that it has gone. */
static bool is_theirs(struct programs *p, ramp_segment_t id, const struct record *given)
{
	struct segment_row row;

	return meta_segment(p->meta, id, &row) == 0 && row.epoch > given->epoch &&
	       row.phase != SEGMENT_MOVING && row.node != meta_self(p->meta);
}

/* Sets the first state, which follows from the record, of a segment that enters the table: no other
   thread has seen another one. */
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
	LIST_INIT(&mseg->beside);
	pthread_mutex_init(&mseg->change, NULL);
	/* The pager reads all the time: without this no writer would ever get the lock. */
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
	/* A thread that changed the record before this entry could be found has not changed the
	   entry. */
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

	/* A frozen segment stays so for the next daemon, which finds it by its record. */
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

void mseg_go(struct programs *p, struct mapped_segment *mseg, enum mseg_state from,
	     enum mseg_state to)
{
	static const struct {
		const char *name;
		unsigned int next; /* bits of the states that may follow */
	} states[] = {
		[MSEG_OPEN] = {"OPEN", 1u << MSEG_FROZEN | 1u << MSEG_GONE},
		[MSEG_FROZEN] = {"FROZEN", 1u << MSEG_OPEN | 1u << MSEG_CLOSED | 1u << MSEG_GONE},
		[MSEG_CLOSED] = {"CLOSED", 1u << MSEG_OPEN | 1u << MSEG_FROZEN},
		[MSEG_GONE] = {"GONE", 1u << MSEG_OPEN},
	};

	if (mseg->state != (int)from || !(states[from].next & 1u << to)) {
		log_error("segment %llu: no step from %s (expected %s) to %s",
			  (unsigned long long)mseg->id, states[mseg->state].name, states[from].name,
			  states[to].name);
		abort();
	}
	log_debug("segment %llu: %s -> %s", (unsigned long long)mseg->id, states[from].name,
		  states[to].name);
	pthread_rwlock_wrlock(&mseg->lock);
	mseg->state = to;
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

/* ---- copies, for callers that do not hold the lock ------------------------------------------ */

static void copy_refs(const struct client_mappings *cm, struct mapping_ref *refs)
{
	for (size_t i = 0; i < cm->count; i++)
		refs[i] = (struct mapping_ref){
			.client = client_get(cm->client),
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
		client_put(refs[i].client);
	free(refs);
}

struct client **mseg_clients(struct mapped_segment *mseg, size_t *count)
{
	struct client **list;
	struct client_mappings *cm;
	size_t cap = 1;

	*count = 0;
	pthread_rwlock_rdlock(&mseg->lock);
	RB_FOREACH (cm, attached_by_client, &mseg->attached)
		cap++;
	list = calloc(cap, sizeof(struct client *));
	if (list)
		RB_FOREACH (cm, attached_by_client, &mseg->attached)
			list[(*count)++] = client_get(cm->client);
	pthread_rwlock_unlock(&mseg->lock);
	return list;
}
