/*
 * Unlinked segments, from the end of their name until their memory is free.
 *
 * Happy path: a segment goes when its row is an orphan or gone (an absent row proves nothing before
 * a linearizable read, R8), the kernel does not know the inode any more, and a lease proves that no
 * program has it open or mapped. Then the row is told (FREED). Until then it is tried again, when
 * the kernel forgets the inode, or after growing pauses up to RETRY_MAX_MS.
 *
 * A name that another node removed stays in the kernel's cache here, and its inode with it, until a
 * program looks the name up. That would hold the memory for ever, so the cache is emptied first,
 * but at most once in DROP_EVERY_MS, since all names of the mount go.
 */
#include "orphans.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/log.h"
#include "inode.h"
#include "libfuse.h"
#include "mount_self.h"
#include "row_note.h"
#include "transfer/recovered.h"

#define RETRY_FIRST_MS 50
#define RETRY_MAX_MS   5000
#define RETRY_PAUSE_MS 20 /* between two looks at all of them, which may be very many */
#define DROP_EVERY_MS  1000
#define REMOVED_WORDS  1024
#define ORPHAN_BUCKETS 1024

struct orphan {
	TAILQ_ENTRY(orphan) link;
	LIST_ENTRY(orphan) by_id;
	struct orphans *all;
	ramp_segment_t id;
	uint64_t due_ms, retry_ms;
	bool busy;   /* a sync or a worker has it */
	bool again;  /* the kernel forgot it meanwhile */
	bool synced; /* the tables hold all that was committed when it became an orphan */
	int result;  /* of the sync or the worker */
};
TAILQ_HEAD(orphan_list, orphan);
LIST_HEAD(orphan_bucket, orphan);

/* Lives as long as the mount, to which everything in flight holds a reference. */
struct orphans {
	struct mount *mount;
	const struct orphans_ops *ops;
	bool closed;
	struct orphan_list list;
	struct orphan_bucket by_id[ORPHAN_BUCKETS];
	atomic_uint n; /* the number of orphans: FORGETs are cheap while it is 0 */
	_Atomic uint64_t removed[REMOVED_WORDS]; /* a bit for each id modulo their number */
	_Atomic uint64_t dropped_ms;		 /* when names were last dropped */
};

static struct orphan *find_orphan(struct orphans *s, ramp_segment_t id)
{
	struct orphan *o;

	LIST_FOREACH (o, &s->by_id[id % ORPHAN_BUCKETS], by_id)
		if (o->id == id)
			return o;
	return NULL;
}

static void drop_orphan(struct orphan *o)
{
	struct orphans *s = o->all;

	TAILQ_REMOVE(&s->list, o, link);
	LIST_REMOVE(o, by_id);
	atomic_fetch_sub_explicit(&s->n, 1, memory_order_relaxed);
	free(o);
}

static void try_orphan(struct orphan *o);

/* Counts an orphan that is whole here as going; any other is freed when its migration has ended. A
   segment without addresses has no row any more: the caller knows that it had one. */
void orphan_goes(struct mount *m, ramp_segment_t id)
{
	struct seg *seg = store_find(m->config.store, id);
	struct segment_row row;
	struct record record;
	int rc;

	if (!seg)
		return;
	record_get(seg, &record);
	rc = meta_segment(m->config.meta, id, &row);
	if (record.kind == RECORD_OWNED && ((rc == -ENOENT && meta_knows(m->config.meta, id)) ||
					    (rc == 0 && row.phase == SEGMENT_ORPHAN)))
		seg_freeing(seg);
	seg_put(seg);
}

/* Stops requests from waiting for its memory, since it is in use. (The first look may come before
   FORGET does, so it is called only after the second and later ones.) */
static void stays(struct orphan *o)
{
	struct mount *m = o->all->mount;
	struct seg *seg = store_find(m->config.store, o->id);

	if (!seg)
		return;
	seg_not_freeing(seg);
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
	o->all->ops->wake_in(o->all->mount, o->retry_ms);
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
	struct orphans *s = o->all;
	struct mount *m = s->mount;
	struct segment_row row;
	struct meta_command c = {.type = META_FREED, .id = o->id};

	o->busy = false;
	if (s->closed) {
		drop_orphan(o);
	} else if (o->result) {
		try_later(o);
	} else {
		park_changed(m->park, inode_of_node(m->self)); /* a create waits for its memory */
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

bool orphan_was_removed(struct mount *m, ramp_segment_t id)
{
	return m->orphans && m->orphans->removed[id % REMOVED_WORDS] & removed_bit(id);
}

/* Returns true for one orphan in DROP_EVERY_MS: emptying the cache drops the names of all other
   files, too. */
static bool may_drop_names(struct orphans *s)
{
	uint64_t now = park_now_ms(), last = atomic_load(&s->dropped_ms);

	return now >= last + DROP_EVERY_MS &&
	       atomic_compare_exchange_strong(&s->dropped_ms, &last, now);
}

/* Returns true if the kernel still needs the inode: it is open, mapped or a working directory, and
   not just a cached name. Worker. */
static bool kernel_knows(struct mount *m, ramp_segment_t id)
{
	if (fuse_lowlevel_notify_inval_inode(m->session, id, -1, 0) == -ENOENT)
		return false;
	if (!may_drop_names(m->orphans))
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
		m->orphans->removed[id % REMOVED_WORDS] |= removed_bit(id);
		rc = store_remove(seg, true, &err); /* a lease proves that no process maps it */
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
	struct mount *m = o->all->mount;

	o->result = -ESHUTDOWN;
	if (!mount_work_enter(m))
		return;
	o->result = remove_unused(m, o->id);
	mount_work_leave(m);
}

static void on_synced(void *arg)
{
	struct orphan *o = arg;
	struct mount *m = o->all->mount;

	o->busy = false;
	if (o->all->closed) {
		drop_orphan(o);
	} else if (o->result) {
		try_later(o);
	} else {
		o->synced = true;
		orphan_goes(m, o->id);
		try_orphan(o);
	}
	mount_put(m);
}

static void sync_done(void *arg, const struct meta_reply *reply)
{
	struct orphan *o = arg;

	o->result = reply->result;
	loop_post(o->all->mount->config.loop, on_synced, o);
}

static void on_recovered(void *arg)
{
	struct orphan *o = arg;
	struct mount *m = o->all->mount;

	o->busy = false;
	if (o->all->closed)
		drop_orphan(o);
	else
		try_later(o); /* until it has a row */
	mount_put(m);
}

static void recovered_proposed(void *arg, const struct meta_reply *reply)
{
	struct orphan *o = arg;

	o->result = reply->result;
	loop_post(o->all->mount->config.loop, on_recovered, o);
}

/* Tells the cluster of a segment of which it knows nothing. */
static void propose_recovered(struct orphan *o, struct seg *seg)
{
	struct mount *m = o->all->mount;
	struct meta_command command;

	if (!o->retry_ms)
		log_warn("segment %llu is here, and the cluster does not know it: its commits were "
			 "lost with the old cluster",
			 (unsigned long long)o->id);
	recovered_command(m->config.meta, seg, store_incarnation(m->config.store), &command);
	row_note_name(seg, command.new_name);
	command.cid = meta_own_command(m->config.meta);
	o->busy = true;
	mount_get(m);
	meta_propose(m->config.meta, &command, recovered_proposed, o);
}

/* Returns whether the commits by which a segment is this node's were lost with the old cluster
   (meta/recovery.h): its row is another owner's, or it never had one (row NULL). Then the cluster is
   told, if `tell`. */
static bool was_lost(struct orphan *o, const struct segment_row *row, bool tell)
{
	struct mount *m = o->all->mount;
	struct seg *seg = store_find(m->config.store, o->id);
	bool due = seg && recovered_owned_is_due(m->config.meta, seg, row);

	if (due && tell)
		propose_recovered(o, seg);
	if (seg)
		seg_put(seg);
	return due;
}

/* Begins the linearizable read, without which a row that is absent, or older than a record, proves
   nothing (R8). */
static void sync_orphan(struct orphan *o)
{
	o->busy = true;
	mount_get(o->all->mount);
	meta_sync(o->all->mount->config.meta, sync_done, o);
}

static void try_orphan(struct orphan *o)
{
	struct mount *m = o->all->mount;
	struct segment_row row;
	int rc = meta_segment(m->config.meta, o->id, &row);
	bool named = rc == 0 && row.phase != SEGMENT_ORPHAN;

	if (named && !was_lost(o, &row, o->synced)) {
		/* It has a name, or its migration has to end first: its row will change. */
		drop_orphan(o);
	} else if (rc && rc != -ENOENT) {
		try_later(o);
	} else if ((named || rc == -ENOENT) && !o->synced) {
		sync_orphan(o);
	} else if (!named && (rc == 0 || !was_lost(o, NULL, true))) {
		o->busy = true;
		mount_get(m);
		loop_work(m->config.loop, remove_work, on_removed, o);
	}
}

void orphan_add(struct mount *m, ramp_segment_t id)
{
	struct orphans *s = m->orphans;
	struct orphan *o = find_orphan(s, id);
	struct segment_row row;

	if (!o) {
		o = calloc(1, sizeof(*o));
		if (!o)
			return; /* the next start finds it */
		o->all = s;
		o->id = id;
		TAILQ_INSERT_TAIL(&s->list, o, link);
		LIST_INSERT_HEAD(&s->by_id[id % ORPHAN_BUCKETS], o, by_id);
		atomic_fetch_add_explicit(&s->n, 1, memory_order_relaxed);
		/* Another node removed its name; without a row it may also not be known yet. */
		if (meta_segment(s->mount->config.meta, id, &row) == 0)
			orphan_goes(s->mount, id);
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
	struct orphan *o = m->orphans->closed ? NULL : find_orphan(m->orphans, f->id);

	if (o) {
		o->retry_ms = 0;
		o->again = o->busy;
		if (!o->busy)
			try_orphan(o);
	} else {
		m->orphans->ops->look_at_row(m, f->id);
	}
	free(f);
	mount_put(m);
}

void orphan_forgotten(struct mount *m, ramp_segment_t id)
{
	struct forgotten *f;

	if (id < RAMP_SEGMENT_ID_MIN || !m->orphans ||
	    !atomic_load_explicit(&m->orphans->n, memory_order_relaxed))
		return;
	f = malloc(sizeof(*f));
	if (!f)
		return; /* the next retry comes anyway */
	f->mount = mount_get(m);
	f->id = id;
	loop_post(m->config.loop, on_forgotten, f);
}

void orphans_retry(struct mount *m)
{
	struct orphans *s = m->orphans;
	uint64_t now = park_now_ms(), wait_ms = RETRY_MAX_MS;
	struct orphan *o, *next;

	for (o = TAILQ_FIRST(&s->list); o; o = next) {
		next = TAILQ_NEXT(o, link);
		if (o->busy)
			continue;
		if (o->due_ms <= now)
			try_orphan(o);
		else if (o->due_ms - now < wait_ms)
			wait_ms = o->due_ms - now;
	}
	s->ops->wake_in(m, wait_ms > RETRY_PAUSE_MS ? wait_ms : RETRY_PAUSE_MS);
}

int orphans_open(struct mount *m, const struct orphans_ops *ops)
{
	struct orphans *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->mount = m;
	s->ops = ops;
	TAILQ_INIT(&s->list);
	m->orphans = s;
	return 0;
}

void orphans_close(struct mount *m)
{
	m->orphans->closed = true;
}

void orphans_free(struct mount *m)
{
	struct orphan *o, *next;

	if (!m->orphans)
		return;
	for (o = TAILQ_FIRST(&m->orphans->list); o; o = next) {
		next = TAILQ_NEXT(o, link);
		drop_orphan(o);
	}
	free(m->orphans);
}
