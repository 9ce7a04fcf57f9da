/*
 * Hints, adopted attributes, and unlinked segments. All of it runs on the control loop, every
 * SWEEP_MS and when a row changes; what blocks is done by a worker. A sweep looks at the segments
 * that were touched, since a node may hold very many; only the first looks at each, a part at a
 * time.
 *
 * Hints (R13): size and times are the owner's. Where the file's differ from what the row says, they
 * are proposed, so that other nodes see them at most a second late while a quorum stands. Other
 * nodes' utimens comes the other way: the row's times are new, and go to the file. A segment that
 * has just come takes the row's atime once; its mtime came with it (seg_hold_mtime).
 *
 * Unlinked: a segment goes when its row is an orphan or gone (a row that is absent proves nothing
 * before a linearizable read, R8), the kernel does not know the inode any more, and a lease proves
 * that nobody has it open or mapped. Then the row is told (FREED). Until then it is looked at
 * again, when the kernel forgets the inode, or later and later up to RETRY_MAX_MS. A name that
 * another node took away stays in the kernel's cache here, and its inode with it, until somebody
 * looks it up: that would hold the memory for ever, so the cache is emptied first, though not more
 * than once in DROP_EVERY_MS, since all names of the mount go.
 */
#include "sweep.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>

#include "inode.h"
#include "log.h"

#define SWEEP_MS	400
#define FINISH_LOOK_MS	5
#define HINTS_IN_FLIGHT 128 /* of the node's 256 proposals */
#define RETRY_FIRST_MS	50
#define RETRY_MAX_MS	5000
#define DROP_EVERY_MS	1000
#define REMOVED_WORDS	1024
#define HINT_BUCKETS	65536 /* a page of them is taken with the first hint in it */
#define LOOK_BUCKETS	1024  /* of them are gone through in each sweep */
#define ORPHAN_BUCKETS	1024
#define FIRST_AT_ONCE	500 /* segments of the first sweep, so that the loop goes on meanwhile */
#define FIRST_MS	5

struct hint {
	LIST_ENTRY(hint) link;
	ramp_segment_t id;
	bool ours;		       /* the row says that this node owns it */
	bool adopted;		       /* came by a migration, and has taken the row's times */
	bool in_flight;		       /* a proposal is on its way, with `asked` */
	uint64_t size, asked_size;     /* as the row has it; as proposed */
	struct meta_time atime, mtime; /* as the row has them */
	struct meta_time asked_atime, asked_mtime;
};
LIST_HEAD(hints, hint);

struct orphan {
	TAILQ_ENTRY(orphan) link;
	LIST_ENTRY(orphan) by_id;
	struct sweep *sweep;
	ramp_segment_t id;
	uint64_t due_ms, retry_ms;
	bool busy;   /* a sync or a worker has it */
	bool synced; /* this node's tables hold all that was committed when it became one */
	int result;  /* of the sync or the worker */
};
TAILQ_HEAD(orphans, orphan);
LIST_HEAD(orphans_by_id, orphan);

/* Lives as long as the mount, of which the timer and all that is in flight hold a reference. */
struct sweep {
	uv_timer_t timer;
	struct mount *mount;
	struct hints hints[HINT_BUCKETS]; /* by id */
	struct orphans orphans;
	struct orphans_by_id orphans_by_id[ORPHAN_BUCKETS];
	uint32_t n_orphans;			 /* atomic: forgets are cheap while there is none */
	_Atomic uint64_t removed[REMOVED_WORDS]; /* a bit for each id modulo their number */
	_Atomic uint64_t dropped_ms;		 /* when names were last dropped */
	uint32_t in_flight;
	uint32_t next_bucket;  /* to be looked through for hints of what is not here any more */
	ramp_segment_t *first; /* what the store held at the start, until it has been looked at */
	size_t n_first, at_first;
	ramp_segment_t first_row;
	bool begun, over_first; /* the first sweep */
	bool closed;
	loop_fn *finish; /* called when nothing is in flight, or at finish_ms */
	void *finish_arg;
	uint64_t finish_ms;
};

/* ---- hints ---------------------------------------------------------------------------------- */

static bool same_time(struct meta_time a, struct meta_time b)
{
	return a.sec == b.sec && a.nsec == b.nsec;
}

static struct meta_time meta_time_of(struct timespec t)
{
	return (struct meta_time){.sec = t.tv_sec, .nsec = (uint32_t)t.tv_nsec};
}

static struct hint *find_hint(struct sweep *s, ramp_segment_t id)
{
	struct hint *h;

	LIST_FOREACH (h, &s->hints[id % HINT_BUCKETS], link)
		if (h->id == id)
			return h;
	return NULL;
}

static void note_row(struct sweep *s, struct hint *h, const struct segment_row *row)
{
	h->ours = row->node == s->mount->self && row->phase != SEGMENT_MOVING;
	h->size = row->size;
	h->atime = row->atime;
	h->mtime = row->mtime;
}

static struct hint *make_hint(struct sweep *s, ramp_segment_t id, const struct segment_row *row)
{
	struct hint *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->id = id;
	note_row(s, h, row);
	LIST_INSERT_HEAD(&s->hints[id % HINT_BUCKETS], h, link);
	return h;
}

struct hint_answer {
	struct sweep *sweep;
	ramp_segment_t id;
	int result;
};

static void on_hint_answer(void *arg)
{
	struct hint_answer *a = arg;
	struct mount *m = a->sweep->mount;
	struct hint *h = find_hint(a->sweep, a->id);

	a->sweep->in_flight--;
	if (h) {
		h->in_flight = false;
		if (!a->result) {
			h->size = h->asked_size;
			h->atime = h->asked_atime;
			h->mtime = h->asked_mtime;
		}
	}
	free(a);
	mount_put(m);
}

static void hint_proposed(void *arg, const struct meta_reply *reply)
{
	struct hint_answer *a = arg;

	a->result = reply->result;
	loop_post(a->sweep->mount->config.loop, on_hint_answer, a);
}

static void propose_hint(struct sweep *s, struct hint *h, const struct stat *st)
{
	struct mount *m = s->mount;
	struct hint_answer *a = calloc(1, sizeof(*a));
	struct meta_command c = {.type = META_SETATTR, .id = h->id};
	struct timespec now;

	if (!a)
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	c.cid = meta_own_command(m->config.meta);
	c.now = meta_time_of(now);
	c.flags = META_SET_SIZE | META_SET_ATIME | META_SET_MTIME;
	c.attr.size = h->asked_size = (uint64_t)st->st_size;
	c.attr.atime = h->asked_atime = meta_time_of(st->st_atim);
	c.attr.mtime = h->asked_mtime = meta_time_of(st->st_mtim);
	a->sweep = s;
	a->id = h->id;
	h->in_flight = true;
	s->in_flight++;
	mount_get(m);
	meta_propose(m->config.meta, &c, hint_proposed, a);
}

/* True: to be looked at again in the next sweep. */
static bool look_at_file(void *arg, struct seg *seg)
{
	struct sweep *s = arg;
	struct hint *h = find_hint(s, seg_id(seg));
	struct segment_row row;
	struct stat st;

	if (!inode_is_local(seg))
		return false; /* whoever makes it ours takes it */
	if (!h) {
		if (meta_segment(s->mount->config.meta, seg_id(seg), &row))
			return false;
		h = make_hint(s, seg_id(seg), &row);
		if (!h)
			return true;
	}
	if (!h->ours || seg_stat(seg, &st))
		return false;
	if ((uint64_t)st.st_size == h->size && same_time(meta_time_of(st.st_mtim), h->mtime) &&
	    same_time(meta_time_of(st.st_atim), h->atime))
		return false;
	if (!h->in_flight && s->in_flight < HINTS_IN_FLIGHT)
		propose_hint(s, h, &st);
	return true; /* until the row says it */
}

static bool is_here(struct sweep *s, ramp_segment_t id)
{
	struct seg *seg = store_find(s->mount->config.store, id);
	bool here = seg && inode_is_local(seg);

	if (seg)
		seg_put(seg);
	return here;
}

static void forget_hints(struct sweep *s)
{
	struct hint *h, *next;

	for (size_t i = 0; i < LOOK_BUCKETS; i++) {
		struct hints *bucket = &s->hints[s->next_bucket++ % HINT_BUCKETS];

		for (h = LIST_FIRST(bucket); h; h = next) {
			next = LIST_NEXT(h, link);
			if (h->in_flight || is_here(s, h->id))
				continue;
			LIST_REMOVE(h, link);
			free(h);
		}
	}
}

/* ---- a row changed -------------------------------------------------------------------------- */

/* `come`: the time of the last write came with the segment, and is newer than the row's hint. */
static void take_times(struct seg *seg, const struct segment_row *row, bool come)
{
	struct timespec times[2] = {
		{.tv_sec = row->atime.sec, .tv_nsec = row->atime.nsec},
		{.tv_sec = row->mtime.sec, .tv_nsec = row->mtime.nsec},
	};

	int rc;

	if (come)
		times[1].tv_nsec = UTIME_OMIT;
	rc = seg_set_times(seg, times);
	if (rc)
		log_debug("segment %llu: times: %s", (unsigned long long)row->id, strerror(-rc));
}

/* It is another node's now. What unshimmed MAP_PRIVATE mappings and exec left of it in the page
   cache goes; a worker, since the kernel may wait for a page that is being read. */
struct left {
	struct mount *mount;
	ramp_segment_t id;
};

static void drop_cache(void *arg)
{
	struct left *left = arg;

	if (!mount_work_enter(left->mount))
		return;
	fuse_lowlevel_notify_inval_inode(left->mount->session, left->id, 0, 0);
	mount_work_leave(left->mount);
}

static void cache_dropped(void *arg)
{
	struct left *left = arg;

	mount_put(left->mount);
	free(left);
}

static void has_left(struct mount *m, ramp_segment_t id)
{
	struct left *left = malloc(sizeof(*left));

	if (!left)
		return; /* stale as MAP_PRIVATE allows */
	*left = (struct left){.mount = mount_get(m), .id = id};
	loop_work(m->config.loop, drop_cache, cache_dropped, left);
}

/* The row of a segment that is here and ours. */
static void adopt_row(struct sweep *s, struct seg *seg, const struct segment_row *row)
{
	struct hint *h = find_hint(s, row->id);
	struct record record;
	bool come, changed;

	inode_note_owner(seg, row);
	if (!h) {
		h = make_hint(s, row->id, row);
		if (!h)
			return;
	}
	record_get(seg, &record);
	come = record.kind == RECORD_TAKEN && row->phase == SEGMENT_PULLING && !h->adopted;
	changed = !(same_time(row->mtime, h->mtime) && same_time(row->atime, h->atime)) &&
		  !(h->in_flight && same_time(row->mtime, h->asked_mtime) &&
		    same_time(row->atime, h->asked_atime));
	if (come || (changed && h->ours))
		take_times(seg, row, come);
	h->adopted = h->adopted || come;
	note_row(s, h, row);
	seg_touch(seg); /* what its file says may have waited for this row */
}

static void add_orphan(struct sweep *s, ramp_segment_t id);

void sweep_row(struct mount *m, ramp_segment_t id)
{
	struct sweep *s = m->sweep;
	struct segment_row row;
	struct seg *seg;
	int rc;

	if (!s || s->closed)
		return;
	seg = store_find(m->config.store, id);
	rc = meta_segment(m->config.meta, id, &row);
	if (!seg) {
		/* An extent that was asked for while the file was open, and came too late. */
		if (rc == 0 && row.phase == SEGMENT_ORPHAN && row.node == m->self)
			add_orphan(s, id);
		return;
	}
	if (rc == 0)
		seg_set_small(seg, row.pages == SEGMENT_PAGES_SMALL);
	if (rc == 0 && row.node != m->self) {
		struct hint *h = find_hint(s, id);

		if (!h || h->ours)
			has_left(m, id);
		if (h)
			h->ours = false;
	} else if (rc == 0 && row.phase == SEGMENT_ORPHAN) {
		/* The record may say GIVEN still, of a migration that came back: it is tried again
		   until that has ended, since no change of the row would tell of it. */
		add_orphan(s, id);
	} else if (inode_is_local(seg)) {
		if (rc == -ENOENT)
			add_orphan(s, id);
		else if (rc == 0)
			adopt_row(s, seg, &row);
	}
	seg_put(seg);
}

/* ---- unlinked segments ---------------------------------------------------------------------- */

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

static void try_later(struct orphan *o)
{
	o->retry_ms = o->retry_ms ? o->retry_ms * 2 : RETRY_FIRST_MS;
	if (o->retry_ms > RETRY_MAX_MS)
		o->retry_ms = RETRY_MAX_MS;
	o->due_ms = park_now_ms() + o->retry_ms;
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

static void add_orphan(struct sweep *s, ramp_segment_t id)
{
	struct orphan *o = find_orphan(s, id);

	if (!o) {
		o = calloc(1, sizeof(*o));
		if (!o)
			return; /* the next start finds it */
		o->sweep = s;
		o->id = id;
		TAILQ_INSERT_TAIL(&s->orphans, o, link);
		LIST_INSERT_HEAD(&s->orphans_by_id[id % ORPHAN_BUCKETS], o, by_id);
		__atomic_fetch_add(&s->n_orphans, 1, __ATOMIC_RELAXED);
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

/* ---- the timer ------------------------------------------------------------------------------ */

static void retry_orphans(struct sweep *s)
{
	uint64_t now = park_now_ms();
	struct orphan *o, *next;

	for (o = TAILQ_FIRST(&s->orphans); o; o = next) {
		next = TAILQ_NEXT(o, link);
		if (!o->busy && o->due_ms <= now)
			try_orphan(o);
	}
}

/* ---- the first sweep: what a former daemon left ---------------------------------------------- */

struct first_list {
	ramp_segment_t *ids;
	size_t n, max;
};

static void count_first(void *arg, struct seg *seg)
{
	(void)seg;
	((struct first_list *)arg)->max++;
}

/* What is made while these are counted is no former daemon's. */
static void note_first(void *arg, struct seg *seg)
{
	struct first_list *list = arg;

	if (list->n < list->max)
		list->ids[list->n++] = seg_id(seg);
}

static void begin_first(struct sweep *s)
{
	struct first_list list = {0};

	s->begun = true;
	store_each(s->mount->config.store, count_first, &list);
	list.ids = calloc(list.max, sizeof(*list.ids));
	if (!list.ids)
		return; /* there is none; or the next start finds what is unlinked */
	store_each(s->mount->config.store, note_first, &list);
	s->first = list.ids;
	s->n_first = list.n;
}

static void find_unlinked(struct sweep *s, struct seg *seg)
{
	ramp_segment_t id = seg_id(seg);
	struct segment_row row;
	struct hint *h;
	int rc;

	seg_touch(seg);
	if (!inode_is_local(seg) || find_hint(s, id))
		return;
	rc = meta_segment(s->mount->config.meta, id, &row);
	if (rc == -ENOENT || (rc == 0 && row.phase == SEGMENT_ORPHAN)) {
		add_orphan(s, id);
	} else if (rc == 0) {
		inode_note_owner(seg, &row);
		h = make_hint(s, id, &row);
		if (h)
			h->adopted = true; /* whatever has come, came before */
	}
}

/* Some of the store's segments; false: there are none any more. */
static bool look_at_first(struct sweep *s)
{
	struct seg *seg;

	for (int i = 0; s->at_first < s->n_first && i < FIRST_AT_ONCE; i++) {
		seg = store_find(s->mount->config.store, s->first[s->at_first++]);
		if (!seg)
			continue;
		find_unlinked(s, seg);
		seg_put(seg);
	}
	if (s->at_first < s->n_first)
		return true;
	free(s->first);
	s->first = NULL;
	s->n_first = s->at_first = 0;
	return false;
}

struct row_search {
	ramp_node_t node;
	ramp_segment_t last;
	unsigned seen;
	bool found;
};

/* One id at a time: the tables are not read from inside a reading. */
static int find_row(void *arg, const struct segment_row *row)
{
	struct row_search *search = arg;

	search->last = row->id;
	search->seen++;
	search->found = row->phase == SEGMENT_ORPHAN && row->node == search->node;
	return search->found || search->seen >= FIRST_AT_ONCE;
}

/* Rows that a dead daemon did not tell that their bytes are gone. False: there are no more. */
static bool look_at_rows(struct sweep *s)
{
	struct row_search search = {.node = s->mount->self, .last = s->first_row};
	bool more = true;

	while (more && search.seen < FIRST_AT_ONCE) {
		search.found = false;
		more = meta_each_segment(s->mount->config.meta, 0, search.last, find_row,
					 &search) == 1;
		if (search.found)
			add_orphan(s, search.last);
	}
	s->first_row = search.last;
	return more;
}

static void finish_if_due(struct sweep *s)
{
	loop_fn *finish = s->finish;

	if (!finish || (s->in_flight && park_now_ms() < s->finish_ms))
		return;
	s->finish = NULL;
	finish(s->finish_arg);
}

static void on_timer(uv_timer_t *timer)
{
	struct sweep *s = timer->data;

	if (!s->begun)
		begin_first(s);
	if (!s->over_first) {
		s->over_first = !look_at_first(s) && !look_at_rows(s);
		if (!s->finish)
			uv_timer_start(timer, on_timer, s->over_first ? SWEEP_MS : FIRST_MS,
				       SWEEP_MS);
	}
	if (meta_has_quorum(s->mount->config.meta)) {
		store_each_touched(s->mount->config.store, look_at_file, s);
		forget_hints(s);
	}
	retry_orphans(s);
	finish_if_due(s);
}

void sweep_finish(struct mount *m, loop_fn *fn, void *arg)
{
	struct sweep *s = m->sweep;

	s->finish = fn;
	s->finish_arg = arg;
	s->finish_ms = park_now_ms() + SWEEP_FINISH_MS;
	uv_timer_start(&s->timer, on_timer, 0, FINISH_LOOK_MS);
}

int sweep_open(struct mount *m, struct ramp_err *err)
{
	struct sweep *s = calloc(1, sizeof(*s));

	if (!s)
		return ramp_err_sys(err, ENOMEM, "sweep");
	s->mount = m;
	TAILQ_INIT(&s->orphans);
	uv_timer_init(loop_uv(m->config.loop), &s->timer);
	s->timer.data = s;
	m->sweep = s;
	uv_timer_start(&s->timer, on_timer, 0, SWEEP_MS);
	return 0;
}

static void on_timer_closed(uv_handle_t *handle)
{
	struct sweep *s = handle->data;

	mount_put(s->mount);
}

void sweep_close(struct mount *m)
{
	struct sweep *s = m->sweep;

	if (!s)
		return;
	s->closed = true;
	mount_get(m);
	uv_close((uv_handle_t *)&s->timer, on_timer_closed);
}

void sweep_free(struct mount *m)
{
	struct sweep *s = m->sweep;
	struct hint *h;
	struct orphan *o;

	if (!s)
		return;
	for (size_t i = 0; i < HINT_BUCKETS; i++)
		while ((h = LIST_FIRST(&s->hints[i]))) {
			LIST_REMOVE(h, link);
			free(h);
		}
	while ((o = TAILQ_FIRST(&s->orphans)))
		drop_orphan(o);
	free(s->first);
	free(s);
}
