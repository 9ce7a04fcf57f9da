/*
 * Hints and adopted attributes; unlinked segments are orphans.c's. All of it runs on the control
 * loop, every SWEEP_MS and when a row changes; what blocks is done by a worker. A sweep looks at
 * the segments that were touched, since a node may hold very many; only the first looks at each, a
 * part at a time, and so does one after a snapshot, which tells of no row.
 *
 * Hints (R13): size and times are the owner's. Where the file's differ from what the row says, they
 * are proposed, so that other nodes see them at most a second late while a quorum stands. Other
 * nodes' utimens comes the other way: the row's times are new, and go to the file. What looks like
 * that may be a hint of ours, or of a daemon that was killed, and the file has newer times by then:
 * so they are remembered beside the file (seg_note_hint). A hint names the row's epoch: one that is
 * late says nothing about the next owner's file, and one that is refused is asked anew. A segment
 * that has just come takes the row's atime once; its mtime came with it (seg_hold_mtime). A hint
 * raises the row's ctime to the file's. By itself that is worth one only where it is much later,
 * since a new file is always a little younger than its row.
 */
#include "attr_sync.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "attr_sync_impl.h"
#include "base/log.h"
#include "inode.h"

#define SWEEP_MS	400
#define FINISH_LOOK_MS	5
#define HINTS_IN_FLIGHT 128  /* of the node's 256 proposals */
#define LOOK_BUCKETS	1024 /* of them are gone through in each sweep */
#define FIRST_AT_ONCE	500  /* segments of the first sweep, so that the loop goes on meanwhile */
#define FIRST_MS	5
#define CTIME_LATE_S	1 /* whole seconds */

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
	h->ctime = row->ctime;
	h->news[0] = h->news[1] = false;
}

static struct hint *make_hint(struct sweep *s, const struct segment_row *row)
{
	struct hint *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->id = row->id;
	note_row(s, h, row);
	LIST_INSERT_HEAD(&s->hints[h->id % HINT_BUCKETS], h, link);
	return h;
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
			if (h->in_flight || h->setting || is_here(s, h->id))
				continue;
			LIST_REMOVE(h, link);
			free(h);
		}
	}
}

/* ---- a row changed -------------------------------------------------------------------------- */

static void times_of(const struct segment_row *row, struct timespec times[2])
{
	times[0] = (struct timespec){.tv_sec = row->atime.sec, .tv_nsec = row->atime.nsec};
	times[1] = (struct timespec){.tv_sec = row->mtime.sec, .tv_nsec = row->mtime.nsec};
}

static void set_times(struct seg *seg, const struct timespec times[2])
{
	int rc = seg_set_times(seg, times);

	if (rc)
		log_debug("segment %llu: times: %s", (unsigned long long)seg_id(seg),
			  strerror(-rc));
}

/* To a file whose lock a program may hold up. What is wished meanwhile is the worker's next. */
struct setting {
	struct sweep *sweep;
	ramp_segment_t id;
	uid_t owner;
	struct timespec times[2], next[2];
	struct timespec row[2]; /* to be noted once the file has them; 0, 0: nothing is */
	bool again;
};

static void set_work(void *arg)
{
	struct setting *st = arg;
	struct mount *m = st->sweep->mount;
	struct seg *seg;

	if (!mount_work_enter(m))
		return;
	seg = store_find(m->config.store, st->id);
	if (seg) {
		set_times(seg, st->times);
		seg_touch(seg); /* no hint was given meanwhile */
		seg_put(seg);
	}
	mount_work_leave(m);
}

static void times_set(void *arg);

static void begin_setting(struct setting *st)
{
	memcpy(st->times, st->next, sizeof(st->times));
	st->next[0].tv_nsec = st->next[1].tv_nsec = UTIME_OMIT;
	st->again = false;
	loop_work_of(st->sweep->mount->config.loop, st->owner, set_work, times_set, st);
}

static void note_set(const struct setting *st)
{
	struct seg *seg = store_find(st->sweep->mount->config.store, st->id);
	const struct timespec row[2] = {st->row[0], st->row[1]};

	if (!seg)
		return;
	if (row[0].tv_sec || row[0].tv_nsec || row[1].tv_sec || row[1].tv_nsec)
		seg_note_row(seg, row);
	seg_put(seg);
}

static void times_set(void *arg)
{
	struct setting *st = arg;
	struct mount *m = st->sweep->mount;

	if (st->again && !st->sweep->closed) {
		begin_setting(st);
		return;
	}
	find_hint(st->sweep, st->id)->setting = NULL;
	if (!st->sweep->closed) /* else the store may be closed, too */
		note_set(st);
	free(st);
	mount_put(m);
}

static void wish_times(struct setting *st, const struct timespec times[2])
{
	st->again = true;
	for (size_t i = 0; i < 2; i++)
		if (times[i].tv_nsec != UTIME_OMIT)
			st->next[i] = times[i];
}

static struct setting *make_setting(struct sweep *s, const struct segment_row *row)
{
	struct setting *st = calloc(1, sizeof(*st));

	if (!st)
		return NULL;
	mount_get(s->mount);
	*st = (struct setting){.sweep = s, .id = row->id, .owner = row->uid};
	st->next[0].tv_nsec = st->next[1].tv_nsec = UTIME_OMIT;
	return st;
}

static void take_times(struct sweep *s, struct hint *h, struct seg *seg,
		       const struct segment_row *row, bool atime, bool mtime)
{
	struct timespec times[2];

	times_of(row, times);
	if (!atime)
		times[0].tv_nsec = UTIME_OMIT;
	if (!mtime)
		times[1].tv_nsec = UTIME_OMIT;
	if (h->setting) {
		wish_times(h->setting, times);
	} else if (seg_direct_begin(seg)) {
		set_times(seg, times);
		seg_direct_end(seg);
	} else {
		h->setting = make_setting(s, row);
		if (!h->setting)
			return; /* the file's own stay, and become the row's */
		wish_times(h->setting, times);
		begin_setting(h->setting);
	}
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

static bool file_says(struct seg *seg, const struct segment_row *row)
{
	struct stat st;

	return seg_stat(seg, &st) == 0 && same_time(meta_time_of(st.st_atim), row->atime) &&
	       same_time(meta_time_of(st.st_mtim), row->mtime);
}

/* This daemon sees its row for the first time. What lies beside the file costs its waking, so it is
   not asked where the file has those times anyway. */
static struct hint *first_hint(struct sweep *s, struct seg *seg, const struct segment_row *row)
{
	struct hint *h = make_hint(s, row);
	struct timespec times[2];
	struct record record;

	if (!h || file_says(seg, row))
		return h;
	times_of(row, times);
	if (seg_row_news(seg, times, h->news)) {
		record_get(seg, &record);
		h->ours = true;
		h->adopted = record.epoch; /* whatever has come, came before */
	} else {
		h->news[0] = h->news[1] = false;
		seg_note_row(seg, times);
	}
	return h;
}

/* The row of a segment that is here and ours. NULL: no memory. */
static struct hint *adopt_row(struct sweep *s, struct seg *seg, const struct segment_row *row)
{
	struct hint *h = find_hint(s, row->id);
	struct timespec times[2];
	struct record record;
	bool come, atime, mtime, wish;

	inode_note_owner(seg, row);
	if (!h)
		h = first_hint(s, seg, row);
	if (!h)
		return NULL;
	times_of(row, times);
	record_get(seg, &record);
	come = record.kind == RECORD_TAKEN && row->phase == SEGMENT_PULLING &&
	       record.epoch != h->adopted;
	atime = h->news[0] || !same_time(row->atime, h->atime);
	mtime = h->news[1] || !same_time(row->mtime, h->mtime);
	wish = (atime || mtime) && !seg_hinted(seg, times);
	if (come)
		take_times(s, h, seg, row, true, wish && mtime && h->moving == record.epoch);
	else if (wish && h->ours)
		take_times(s, h, seg, row, atime, mtime);
	if (come)
		h->adopted = record.epoch;
	if (h->setting) /* a daemon that dies before that leaves them to the next one */
		memcpy(h->setting->row, times, sizeof(times));
	else if (come || atime || mtime)
		seg_note_row(seg, times);
	note_row(s, h, row);
	return h;
}

/* The row of a segment that is another node's: it has left, or is about to come. Until it has, no
   times but somebody's wish change. */
static void elsewhere(struct sweep *s, struct seg *seg, const struct segment_row *row)
{
	struct hint *h = find_hint(s, row->id);

	if (!h || h->ours)
		has_left(s->mount, row->id);
	if (!h && row->phase == SEGMENT_MOVING && row->dst == s->mount->self)
		h = make_hint(s, row);
	if (h)
		note_row(s, h, row);
	if (h && row->phase == SEGMENT_MOVING && row->dst == s->mount->self)
		h->moving = row->k_epoch;
	if (h && h->setting)
		memset(h->setting->row, 0, sizeof(h->setting->row));
	seg_forget_row(seg);
}

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
			orphan_add(s, id);
		return;
	}
	if (rc == 0)
		seg_set_small(seg, row.pages == SEGMENT_PAGES_SMALL);
	if (rc == 0 && row.node != m->self) {
		elsewhere(s, seg, &row);
	} else if (rc == 0 && row.phase == SEGMENT_ORPHAN) {
		/* The record may say GIVEN still, of a migration that came back: it is tried again
		   until that has ended, since no change of the row would tell of it. */
		orphan_add(s, id);
	} else if (inode_is_local(seg)) {
		if (rc == -ENOENT) {
			sweep_goes(m, id); /* it had one until now */
			orphan_add(s, id);
		} else if (rc == 0) {
			adopt_row(s, seg, &row);
		}
		seg_touch(seg); /* what its file says may have waited for this row */
	}
	seg_put(seg);
}

/* ---- hints that are proposed ------------------------------------------------------------------
 */

struct hint_answer {
	struct sweep *sweep;
	ramp_segment_t id;
	int result;
};

/* The row says it, or what has come after it; what was asked before it, by whichever daemon, is
   decided, too. */
static void hint_decided(struct sweep *s, ramp_segment_t id)
{
	struct seg *seg = store_find(s->mount->config.store, id);
	struct segment_row row;

	if (!seg)
		return;
	if (inode_is_local(seg) && meta_segment(s->mount->config.meta, id, &row) == 0 &&
	    row.node == s->mount->self)
		adopt_row(s, seg, &row);
	seg_forget_hints(seg);
	seg_put(seg);
}

static void on_hint_answer(void *arg)
{
	struct hint_answer *a = arg;
	struct mount *m = a->sweep->mount;
	struct hint *h = find_hint(a->sweep, a->id);

	a->sweep->in_flight--;
	if (h)
		h->in_flight = false;
	if (!a->result && !a->sweep->closed) /* else the store may be closed, too */
		hint_decided(a->sweep, a->id);
	free(a);
	mount_put(m);
}

static void hint_proposed(void *arg, const struct meta_reply *reply)
{
	struct hint_answer *a = arg;

	a->result = reply->result;
	loop_post(a->sweep->mount->config.loop, on_hint_answer, a);
}

static void propose_hint(struct sweep *s, struct hint *h, struct seg *seg, const struct stat *st)
{
	struct mount *m = s->mount;
	struct hint_answer *a = calloc(1, sizeof(*a));
	struct meta_command c = {.type = META_SETATTR, .id = h->id};
	struct segment_row row;
	struct timespec now;

	if (!a || meta_segment(m->config.meta, h->id, &row) || row.node != m->self) {
		free(a);
		return;
	}
	if (!same_time(row.mtime, h->mtime) || !same_time(row.atime, h->atime)) {
		adopt_row(s, seg, &row);
		free(a);
		return;
	}
	clock_gettime(CLOCK_REALTIME, &now);
	c.cid = meta_own_command(m->config.meta);
	c.now = meta_time_of(now);
	c.epoch = row.epoch;
	c.attr.ctime = row.ctime;
	c.flags =
		META_SET_SIZE | META_SET_ATIME | META_SET_MTIME | META_RAISE_CTIME | META_AT_EPOCH;
	c.file_ctime = meta_time_of(st->st_ctim);
	c.attr.size = (uint64_t)st->st_size;
	c.attr.atime = meta_time_of(st->st_atim);
	c.attr.mtime = meta_time_of(st->st_mtim);
	a->sweep = s;
	a->id = h->id;
	seg_note_hint(seg, (struct timespec[2]){st->st_atim, st->st_mtim});
	h->in_flight = true;
	s->in_flight++;
	mount_get(m);
	meta_propose(m->config.meta, &c, hint_proposed, a);
}

static bool row_says(const struct hint *h, const struct stat *st)
{
	return (uint64_t)st->st_size == h->size && same_time(meta_time_of(st->st_mtim), h->mtime) &&
	       same_time(meta_time_of(st->st_atim), h->atime) &&
	       st->st_ctim.tv_sec <= h->ctime.sec + CTIME_LATE_S;
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
		if (meta_segment(s->mount->config.meta, seg_id(seg), &row) ||
		    row.node != s->mount->self)
			return false;
		h = adopt_row(s, seg, &row);
		if (!h)
			return true;
	}
	if (h->setting)
		return true;
	if (!h->ours || seg_stat(seg, &st))
		return false;
	if (row_says(h, &st))
		return false;
	if (!h->in_flight && s->in_flight < HINTS_IN_FLIGHT)
		propose_hint(s, h, seg, &st);
	return true; /* until the row says it */
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
	int rc;

	seg_touch(seg);
	if (!inode_is_local(seg) || find_hint(s, id))
		return;
	rc = meta_segment(s->mount->config.meta, id, &row);
	if (rc == -ENOENT || (rc == 0 && row.phase == SEGMENT_ORPHAN))
		orphan_add(s, id);
	else if (rc == 0 && row.node == s->mount->self)
		adopt_row(s, seg, &row);
	else if (rc == 0)
		inode_note_owner(seg, &row);
}

/* The tables were replaced, and told of no row. */
void sweep_all(struct mount *m)
{
	struct sweep *s = m->sweep;

	if (!s || s->closed) {
		__atomic_fetch_sub(&m->rows_posted, 1, __ATOMIC_RELEASE);
		return;
	}
	free(s->first);
	s->first = NULL;
	s->n_first = s->at_first = 0;
	s->first_row = 0;
	s->begun = s->over_first = false;
	s->restored++;
	sweep_in(s, 0);
}

static void end_first(struct sweep *s)
{
	s->over_first = true;
	__atomic_fetch_sub(&s->mount->rows_posted, s->restored, __ATOMIC_RELEASE);
	s->restored = 0;
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
		if (s->restored)
			sweep_row(s->mount, seg_id(seg));
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
			orphan_add(s, search.last);
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

	mount_catch_up(s->mount);
	store_tidy(s->mount->config.store);
	if (!s->begun)
		begin_first(s);
	if (!s->over_first) {
		if (!look_at_first(s) && !look_at_rows(s))
			end_first(s);
		if (!s->finish)
			uv_timer_start(timer, on_timer, s->over_first ? SWEEP_MS : FIRST_MS,
				       SWEEP_MS);
	}
	if (meta_has_quorum(s->mount->config.meta)) {
		store_each_touched(s->mount->config.store, look_at_file, s);
		forget_hints(s);
	}
	orphans_retry(s);
	finish_if_due(s);
}

void sweep_in(struct sweep *s, uint64_t ms)
{
	uv_update_time(s->timer.loop);
	if (!s->closed && !s->finish && uv_timer_get_due_in(&s->timer) > ms)
		uv_timer_start(&s->timer, on_timer, ms, SWEEP_MS);
}

void sweep_finish(struct mount *m, loop_fn *fn, void *arg)
{
	struct sweep *s = m->sweep;

	if (s->closed) {
		fn(arg);
		return;
	}
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
	s->finish_ms = 0; /* whatever is in flight */
	finish_if_due(s);
	mount_get(m);
	uv_close((uv_handle_t *)&s->timer, on_timer_closed);
}

void sweep_free(struct mount *m)
{
	struct sweep *s = m->sweep;
	struct hint *h;

	if (!s)
		return;
	for (size_t i = 0; i < HINT_BUCKETS; i++)
		while ((h = LIST_FIRST(&s->hints[i]))) {
			LIST_REMOVE(h, link);
			free(h);
		}
	orphans_free(s);
	free(s->first);
	free(s);
}
