/*
 * The mount is counted: everything under way (requests on the heap, proposals, posted calls) holds
 * a reference, so that an answer that comes after mount_stop still finds a mount, and is dropped.
 */
#include "mount_ref.h"

#include "keeper/inherited.h"
#include "keeper/protocol.h"

struct mount *mount_get(struct mount *m)
{
	atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
	return m;
}

void mount_put(struct mount *m)
{
	if (atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) == 1)
		m->destroy(m);
}

bool mount_work_enter(struct mount *m)
{
	bool ok;

	pthread_mutex_lock(&m->work_lock);
	ok = !m->stopped;
	if (ok)
		m->working++;
	pthread_mutex_unlock(&m->work_lock);
	return ok;
}

void mount_work_leave(struct mount *m)
{
	pthread_mutex_lock(&m->work_lock);
	if (--m->working == 0)
		pthread_cond_broadcast(&m->work_done);
	pthread_mutex_unlock(&m->work_lock);
}

void mount_work_end(struct mount *m)
{
	pthread_mutex_lock(&m->work_lock);
	m->stopped = true;
	while (m->working)
		pthread_cond_wait(&m->work_done, &m->work_lock);
	pthread_mutex_unlock(&m->work_lock);
}

/* Calls config.ended, when there is nothing left to wait for. Control loop. */
static void tell_end(void *arg)
{
	struct mount *m = arg;

	if (mount_work_enter(m)) {
		m->end_told = true;
		m->config.ended(m->config.arg, (enum mount_end)(atomic_load(&m->ends) - 1));
		mount_work_leave(m);
	}
	mount_put(m);
}

/* Proposes the last sizes and times before the end, but not before an upgrade, since the next
   daemon proposes them. Where the mount waits for those already, the call under way will tell the
   new reason. */
static void on_end(void *arg)
{
	struct mount *m = arg;
	bool again = m->ending;

	m->ending = true;
	if (again && !m->end_told)
		mount_put(m);
	else if (again || atomic_load(&m->ends) == 1 + MOUNT_UPGRADE)
		tell_end(m);
	else
		m->finish(m, tell_end);
}

/* Returns whether `why` is to be told. A daemon that is told to end (MOUNT_TERMINATE) does not take
   the time to finish what an umount leaves. */
static bool is_new_reason(struct mount *m, enum mount_end why)
{
	int was = 0, now = 1 + (int)why;

	if (atomic_compare_exchange_strong(&m->ends, &was, now))
		return true;
	return why == MOUNT_TERMINATE && was == 1 + MOUNT_UNMOUNTED &&
	       atomic_compare_exchange_strong(&m->ends, &was, now);
}

void mount_end(struct mount *m, enum mount_end why)
{
	if (!is_new_reason(m, why))
		return;
	if (why == MOUNT_UNMOUNTED)
		keeper_tell(KEEPER_SAY_GONE); /* otherwise the next daemon would find out */
	loop_post(m->config.loop, on_end, mount_get(m));
}

/* ---- tables that are no older than this daemon ---------------------------------------------- */

/* Meta thread. */
static void on_synced(void *arg, const struct meta_reply *reply)
{
	struct mount *m = arg;

	if (reply->result == 0)
		atomic_store(&m->caught_up, true);
	atomic_store(&m->catches_up, false);
	mount_put(m);
}

void mount_catch_up(struct mount *m)
{
	if (atomic_load(&m->caught_up) || atomic_exchange(&m->catches_up, true))
		return;
	meta_sync(m->config.meta, on_synced, mount_get(m));
}
