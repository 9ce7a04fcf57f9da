/*
 * The ground of all files here: names of files, references, flags.
 */
#include "seg_core.h"

#include <inttypes.h>
#include <stdio.h>

#include "gate.h"

void seg_state_name(ramp_segment_t id, char name[32])
{
	snprintf(name, 32, "%" PRIu64 ".state", id);
}

void seg_data_name(ramp_segment_t id, char name[32])
{
	snprintf(name, 32, "%" PRIu64, id);
}

void seg_tell(struct seg *seg)
{
	if (seg->store->changed)
		seg->store->changed(seg->store->changed_arg, seg->id);
}

/* ---- references and touches ---- */

/* A segment that is removed gets into no list, so that its last user's seg_put frees its memory. */
void seg_touch(struct seg *seg)
{
	struct store *store = seg->store;

	if (atomic_load_explicit(&seg->touched, memory_order_relaxed))
		return;
	pthread_mutex_lock(&store->touched_lock);
	if (!atomic_load(&seg->touched) && !(atomic_load(&seg->gate) & GATE_GONE)) {
		atomic_store(&seg->touched, true);
		seg_hold(seg);
		LIST_INSERT_HEAD(&store->touched, seg, link);
	}
	pthread_mutex_unlock(&store->touched_lock);
}

struct seg *seg_get(struct seg *seg)
{
	seg_touch(seg);
	return seg_hold(seg);
}

/* ---- questions and flags ---- */

ramp_segment_t seg_id(const struct seg *seg)
{
	return seg->id;
}

bool seg_damaged(struct seg *seg)
{
	return atomic_load(&seg->gate) & GATE_DAMAGED;
}

bool seg_removed(struct seg *seg)
{
	return atomic_load(&seg->gate) & GATE_GONE;
}

bool seg_passed(struct seg *seg)
{
	struct state_header *state = atomic_load(&seg->state);

	return state && atomic_load(&state->passed);
}

uint64_t seg_giving(struct seg *seg)
{
	struct state_header *state = atomic_load(&seg->state);

	return state ? atomic_load(&state->giving) : 0;
}

void seg_end_giving(struct seg *seg, uint64_t below)
{
	struct state_header *state = atomic_load(&seg->state);
	uint64_t epoch = seg_giving(seg);

	if (epoch && epoch < below)
		atomic_compare_exchange_strong(&state->giving, &epoch, 0);
}

void seg_set_leaving(struct seg *seg, bool leaving)
{
	atomic_store(&seg->leaving, leaving);
}

bool seg_leaving(struct seg *seg)
{
	return atomic_load(&seg->leaving);
}

void seg_set_copying(struct seg *seg, bool copying)
{
	atomic_store(&seg->copying, copying);
}

bool seg_copying(struct seg *seg)
{
	return atomic_load(&seg->copying);
}
