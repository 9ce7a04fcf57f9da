/*
 * Unlinked segments, from when their name has gone until their memory is free.
 *
 * Happy path: a segment goes when its row is an orphan or gone (a row that is absent proves nothing
 * before a linearizable read, R8), the kernel does not know the inode any more, and a lease proves
 * that nobody has it open or mapped. Then the row is told (FREED). Until then it is looked at
 * again, when the kernel forgets the inode, or later and later up to RETRY_MAX_MS. A name that
 * another node took away stays in the kernel's cache here, and its inode with it, until somebody
 * looks it up: that would hold the memory for ever, so the cache is emptied first, though not more
 * than once in DROP_EVERY_MS, since all names of the mount go.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "attr_sync.h"
#include "attr_sync_impl.h"
#include "base/log.h"
#include "inode.h"
#include "mount_self.h"

#define RETRY_FIRST_MS 50
#define RETRY_MAX_MS   5000
#define RETRY_PAUSE_MS 20 /* between looks at all of them, which may be very many */
#define DROP_EVERY_MS  1000

static struct orphan *find_orphan(struct sweep *s, ramp_segment_t id)
{
	struct orphan *o;

	LIST_FOREACH (o, &s->orphans_by_id[id % ORPHAN_BUCKETS], by_id)
		if (o->id == id)
			return o;
	return NULL;
}

static void drop_orphan(struct orphan *o)
{
	struct sweep *s = o->sweep;

	TAILQ_REMOVE(&s->orphans, o, link);
	LIST_REMOVE(o, by_id);
	__atomic_fetch_sub(&s->n_orphans, 1, __ATOMIC_RELAXED);
	free(o);
}

static void try_orphan(struct orphan *o);

/* An orphan that is here whole: what is not is freed when its migration has ended. Without addresses
   it has no row any more, and the caller knows that it had one. */
void sweep_goes(struct mount *m, ramp_segment_t id)
{
	struct seg *seg = store_find(m->config.store, id);
	struct segment_row row;
	struct record record;
	int rc;

	if (!seg)
		return;
	record_get(seg, &record);
	rc = meta_segment(m->config.meta, id, &row);
	if (record.kind == RECORD_OWNED &&
	    (rc == -ENOENT || (rc == 0 && row.phase == SEGMENT_ORPHAN)))
		seg_goes(seg);
	seg_put(seg);
}

/* It is in use, so nobody is to wait for its memory. (The first look may come before FORGET does.) */
static void stays(struct orphan *o)
{
	struct mount *m = o->sweep->mount;
	struct seg *seg = store_find(m->config.store, o->id);

	if (!seg)
		return;
	seg_stays(seg);
	seg_put(seg);
	park_changed(m->park, inode_of_node(m->self));
}

static void try_later(struct orphan *o)
{
	if (o->again) {
		o->again = false;
		try_orphan(o);
		return;
	}
	if (o->retry_ms)
		stays(o);
	o->retry_ms = o->retry_ms ? o->retry_ms * 2 : RETRY_FIRST_MS;
	if (o->retry_ms > RETRY_MAX_MS)
		o->retry_ms = RETRY_MAX_MS;
	o->due_ms = park_now_ms() + o->retry_ms;
	sweep_in(o->sweep, o->retry_ms);
}

static void free_proposed(void *arg, const struct meta_reply *reply)
{
	(void)arg;
	if (reply->result && reply->result != -ESTALE)
		log_debug("an unlinked segment's row stays: %s", strerror(-reply->result));
}

static void on_removed(void *arg)
{
	struct orphan *o = arg;
	struct sweep *s = o->sweep;
	struct mount *m = s->mount;
	struct segment_row row;
	struct meta_command c = {.type = META_FREED, .id = o->id};

	o->busy = false;
	if (s->closed) {
		drop_orphan(o);
	} else if (o->result) {
		try_later(o);
	} else {
		park_changed(m->park, inode_of_node(m->self)); /* create waits for its memory */
		if (meta_segment(m->config.meta, o->id, &row) == 0) {
			c.cid = meta_own_command(m->config.meta);
			meta_propose(m->config.meta, &c, free_proposed, NULL);
			o->retry_ms = RETRY_MAX_MS / 2; /* until the row is gone */
			try_later(o);
		} else {
			drop_orphan(o);
		}
	}
	mount_put(m);
}

static uint64_t removed_bit(ramp_segment_t id)
{
	return UINT64_C(1) << id / REMOVED_WORDS % 64;
}

bool sweep_removed(struct mount *m, ramp_segment_t id)
{
	return m->sweep && m->sweep->removed[id % REMOVED_WORDS] & removed_bit(id);
}

/* Of all orphans one, now and then: it drops the others' names as well, and everybody's. */
static bool may_drop_names(struct sweep *s)
{
	uint64_t now = park_now_ms(), last = atomic_load(&s->dropped_ms);

	return now >= last + DROP_EVERY_MS &&
	       atomic_compare_exchange_strong(&s->dropped_ms, &last, now);
}

/* Worker. Open, mapped or a working place: something more than a name that nobody looks up. */
static bool kernel_knows(struct mount *m, ramp_segment_t id)
{
	if (fuse_lowlevel_notify_inval_inode(m->session, id, -1, 0) == -ENOENT)
		return false;
	if (!may_drop_names(m->sweep))
		return true; /* it is tried again */
	mount_drop_names(m);
	return fuse_lowlevel_notify_inval_inode(m->session, id, -1, 0) != -ENOENT;
}

/* Worker. */
static int remove_unused(struct mount *m, ramp_segment_t id)
{
	struct seg *seg = store_find(m->config.store, id);
	struct ramp_err err = {0};
	struct record record;
	int rc;

	if (!seg)
		return 0;
	record_get(seg, &record);
	if (record.kind != RECORD_OWNED) {
		rc = ramp_err_set(&err, EBUSY, "its record is %s", record_kind_name(record.kind));
	} else if (kernel_knows(m, id)) {
		rc = ramp_err_set(&err, EBUSY, "the kernel knows its inode");
	} else {
		m->sweep->removed[id % REMOVED_WORDS] |= removed_bit(id);
		rc = store_remove(seg, true, &err); /* a lease proves that nobody maps it */
	}
	if (rc)
		log_debug("segment %llu is unlinked and stays: %s", (unsigned long long)id,
			  err.text);
	seg_put(seg);
	return rc;
}

static void remove_work(void *arg)
{
	struct orphan *o = arg;
	struct mount *m = o->sweep->mount;

	o->result = -ESHUTDOWN;
	if (!mount_work_enter(m))
		return;
	o->result = remove_unused(m, o->id);
	mount_work_leave(m);
}

static void on_synced(void *arg)
{
	struct orphan *o = arg;
	struct mount *m = o->sweep->mount;

	o->busy = false;
	if (o->sweep->closed) {
		drop_orphan(o);
	} else if (o->result) {
		try_later(o);
	} else {
		o->synced = true;
		sweep_goes(m, o->id);
		try_orphan(o);
	}
	mount_put(m);
}

static void sync_done(void *arg, const struct meta_reply *reply)
{
	struct orphan *o = arg;

	o->result = reply->result;
	loop_post(o->sweep->mount->config.loop, on_synced, o);
}

static void try_orphan(struct orphan *o)
{
	struct mount *m = o->sweep->mount;
	struct segment_row row;
	int rc = meta_segment(m->config.meta, o->id, &row);

	if (rc == 0 && row.phase != SEGMENT_ORPHAN) {
		drop_orphan(
			o); /* it has a name, or a migration to end first: its row will change */
		return;
	}
	if (rc && rc != -ENOENT) {
		try_later(o);
		return;
	}
	o->busy = true;
	mount_get(m);
	if (rc == -ENOENT && !o->synced)
		meta_sync(m->config.meta, sync_done, o);
	else
		loop_work(m->config.loop, remove_work, on_removed, o);
}

void orphan_add(struct sweep *s, ramp_segment_t id)
{
	struct orphan *o = find_orphan(s, id);
	struct segment_row row;

	if (!o) {
		o = calloc(1, sizeof(*o));
		if (!o)
			return; /* the next start finds it */
		o->sweep = s;
		o->id = id;
		TAILQ_INSERT_TAIL(&s->orphans, o, link);
		LIST_INSERT_HEAD(&s->orphans_by_id[id % ORPHAN_BUCKETS], o, by_id);
		__atomic_fetch_add(&s->n_orphans, 1, __ATOMIC_RELAXED);
		if (meta_segment(s->mount->config.meta, id, &row) == 0) /* else it is to be seen */
			sweep_goes(s->mount, id); /* another node took its name away */
	}
	if (!o->busy)
		try_orphan(o);
}

struct forgotten {
	struct mount *mount;
	ramp_segment_t id;
};

static void on_forgotten(void *arg)
{
	struct forgotten *f = arg;
	struct mount *m = f->mount;
	struct orphan *o = m->sweep->closed ? NULL : find_orphan(m->sweep, f->id);

	if (o) {
		o->retry_ms = 0;
		o->again = o->busy;
		if (!o->busy)
			try_orphan(o);
	} else {
		sweep_row(m, f->id);
	}
	free(f);
	mount_put(m);
}

void sweep_forgotten(struct mount *m, ramp_segment_t id)
{
	struct forgotten *f;

	if (id < RAMP_SEGMENT_ID_MIN || !m->sweep ||
	    !__atomic_load_n(&m->sweep->n_orphans, __ATOMIC_RELAXED))
		return;
	f = malloc(sizeof(*f));
	if (!f)
		return; /* it is tried again later anyway */
	f->mount = mount_get(m);
	f->id = id;
	loop_post(m->config.loop, on_forgotten, f);
}

void orphans_retry(struct sweep *s)
{
	uint64_t now = park_now_ms(), wait_ms = RETRY_MAX_MS;
	struct orphan *o, *next;

	for (o = TAILQ_FIRST(&s->orphans); o; o = next) {
		next = TAILQ_NEXT(o, link);
		if (o->busy)
			continue;
		if (o->due_ms <= now)
			try_orphan(o);
		else if (o->due_ms - now < wait_ms)
			wait_ms = o->due_ms - now;
	}
	sweep_in(s, wait_ms > RETRY_PAUSE_MS ? wait_ms : RETRY_PAUSE_MS);
}

void orphans_free(struct sweep *s)
{
	struct orphan *o, *next;

	for (o = TAILQ_FIRST(&s->orphans); o; o = next) {
		next = TAILQ_NEXT(o, link);
		drop_orphan(o);
	}
}
