/*
 * The gate: one word, which holds the number of threads inside and the reasons why none may enter.
 *
 * Happy path: seg_enter adds one and finds no reason; seg_leave subtracts it again: two atomic
 * operations, no lock (except for the first entry in a while: open_cache.c, touched.c). A freeze
 * sets FROZEN and waits until the number is 0; from then on no thread is inside.
 *
 * How it fails: a thread that enters and finds a reason subtracts its one again, as if it left. The
 * thread that subtracts the last one under FROZEN wakes the freezer, under the lock, so that the
 * wake-up is not missed. The freezer gives up after its time-out and opens the gate again.
 */
#include "gate.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "open_cache.h"
#include "seg_core.h"

void gate_set(struct seg *seg, uint64_t flag)
{
	atomic_fetch_or(&seg->gate, flag);
}

void gate_clear(struct seg *seg, uint64_t flag)
{
	atomic_fetch_and(&seg->gate, ~flag);
}

bool gate_empty(struct seg *seg)
{
	return (atomic_load(&seg->gate) & ~GATE_FLAGS) == 0;
}

/*
 * Returns the reason that counts: one that will not change outranks one that may. A segment that was
 * given is remote, not frozen; and it is remote, not removed, for a thread that still holds it when
 * its bytes are freed here.
 */
static int why_closed(uint64_t gate)
{
	if (gate & GATE_DAMAGED)
		return -EIO;
	if (gate & GATE_REMOTE)
		return -EREMOTE;
	if (gate & GATE_GONE)
		return -ENOENT;
	return gate & GATE_FROZEN ? -EAGAIN : 0;
}

/* As why_closed, for what enters by `reasons` beside those that hold for all. */
static int why_not(uint64_t gate, uint64_t reasons)
{
	int rc = why_closed(gate);

	return rc ? rc : gate & reasons ? -EAGAIN : 0;
}

static int enter(struct seg *seg, uint64_t reasons)
{
	int rc = why_not(atomic_load(&seg->gate), reasons);

	if (rc)
		return rc;
	rc = why_not(atomic_fetch_add(&seg->gate, 1), reasons);
	if (!rc)
		rc = seg_wake_file(seg);
	if (rc)
		seg_leave(seg);
	else
		seg_touch(seg);
	return rc;
}

int seg_enter(struct seg *seg)
{
	return enter(seg, 0);
}

int seg_enter_to_store(struct seg *seg)
{
	return enter(seg, GATE_STORES);
}

void seg_leave(struct seg *seg)
{
	uint64_t before = atomic_fetch_sub(&seg->gate, 1);

	if ((before & GATE_FROZEN) && (before & ~GATE_FLAGS) == 1) {
		pthread_mutex_lock(&seg->lock);
		pthread_cond_broadcast(&seg->out);
		pthread_mutex_unlock(&seg->lock);
	}
}

static struct timespec deadline_after(uint32_t ms)
{
	uint64_t at_ns = clock_ns() + (uint64_t)ms * 1000000;

	return (struct timespec){.tv_sec = (time_t)(at_ns / 1000000000),
				 .tv_nsec = (long)(at_ns % 1000000000)};
}

int seg_freeze(struct seg *seg, uint32_t timeout_ms, struct ramp_err *err)
{
	struct timespec deadline = deadline_after(timeout_ms);
	bool empty;
	int rc = 0;

	if (atomic_fetch_or(&seg->gate, GATE_FROZEN) & GATE_FROZEN)
		return ramp_err_set(err, EBUSY, "the segment is frozen already");
	pthread_mutex_lock(&seg->lock);
	/* Empty once is enough: later threads find FROZEN and leave again. */
	while (!(empty = gate_empty(seg)) && rc != ETIMEDOUT)
		rc = pthread_cond_timedwait(&seg->out, &seg->lock, &deadline);
	pthread_mutex_unlock(&seg->lock);
	if (!empty) {
		seg_thaw(seg);
		return ramp_err_set(err, ETIMEDOUT,
				    "reads and writes under way did not end within %u ms",
				    timeout_ms);
	}
	return 0;
}

void seg_thaw(struct seg *seg)
{
	gate_clear(seg, GATE_FROZEN);
	seg_tell(seg);
}

void seg_close_to_stores(struct seg *seg)
{
	gate_set(seg, GATE_STORES);
}

void seg_open_to_stores(struct seg *seg)
{
	if (!(atomic_fetch_and(&seg->gate, ~GATE_STORES) & GATE_STORES))
		return;
	seg_tell(seg);
}

bool seg_closed_to_stores(struct seg *seg, uint64_t *left_bytes)
{
	*left_bytes = atomic_load(&seg->left_bytes);
	return atomic_load(&seg->gate) & GATE_STORES;
}

void seg_set_left(struct seg *seg, uint64_t bytes)
{
	atomic_store(&seg->left_bytes, bytes);
}
