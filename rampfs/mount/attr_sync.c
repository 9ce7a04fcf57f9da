/*
 * The timer behind hints, rows and unlinked segments. All of it runs on the control loop, every
 * SWEEP_MS and when a row changes; workers do the parts that block. A sweep looks at the segments
 * that were touched, since a node may hold very many. Only the first sweep looks at each, a part at
 * a time, and so does a sweep after a snapshot, which reports no single row (startup_scan.c).
 *
 * Hints (R13, contrib/doc/design.md): size and times are the owner's. Where the file's differ from
 * the row's, they are proposed, so that other nodes see them at most a second late while there is a
 * quorum. Other nodes' utimens comes the other way: the row's times are new, and go to the file.
 * New times in a row may also be a hint of ours, or of a daemon that was killed, and the file may
 * have newer times by then: so proposed times are remembered beside the file (seg_note_hint). A
 * hint carries the row's epoch, so a late one cannot touch the next owner's row; a rejected hint is
 * proposed again with fresh values. A segment that has just come takes the row's atime once; its
 * mtime came with it (seg_hold_mtime). A hint raises the row's ctime to the file's. A difference of
 * ctime alone is worth a hint only where the file's is much later, since a new file is always
 * slightly younger than its row.
 */
#include "attr_sync.h"

#include <errno.h>
#include <stdlib.h>

#include "hint_propose.h"
#include "hints.h"
#include "orphans.h"
#include "row_sync.h"
#include "startup_scan.h"

#define SWEEP_MS       400
#define FINISH_LOOK_MS 5
#define FIRST_MS       5

/* Lives as long as the mount, of which the timer holds a reference. */
struct attr_sync {
	uv_timer_t timer;
	struct mount *mount;
	struct startup_scan scan;
	bool closed;
	loop_fn *finish; /* called when nothing is in flight, or at finish_ms */
	void *finish_arg;
	uint64_t finish_ms;
};

static void finish_if_due(struct attr_sync *s)
{
	loop_fn *finish = s->finish;

	if (!finish || (s->mount->hints->in_flight && park_now_ms() < s->finish_ms))
		return;
	s->finish = NULL;
	finish(s->finish_arg);
}

static void attr_sync_tick(uv_timer_t *timer)
{
	struct attr_sync *s = timer->data;
	struct mount *m = s->mount;

	mount_catch_up(m);
	store_tidy(m->config.store);
	if (!s->scan.over) {
		startup_scan_step(&s->scan);
		if (!s->finish)
			uv_timer_start(timer, attr_sync_tick, s->scan.over ? SWEEP_MS : FIRST_MS,
				       SWEEP_MS);
	}
	if (meta_has_quorum(m->config.meta)) {
		store_each_touched(m->config.store, hint_look_at_file, m->hints);
		hints_forget(m->hints);
	}
	orphans_retry(m);
	finish_if_due(s);
}

/* Makes the next sweep come in `ms` at the latest. */
static void attr_sync_wake_in(struct mount *m, uint64_t ms)
{
	struct attr_sync *s = m->attr_sync;

	uv_update_time(s->timer.loop);
	if (!s->closed && !s->finish && uv_timer_get_due_in(&s->timer) > ms)
		uv_timer_start(&s->timer, attr_sync_tick, ms, SWEEP_MS);
}

void attr_sync_all(struct mount *m)
{
	struct attr_sync *s = m->attr_sync;

	if (!s || s->closed) {
		atomic_fetch_sub_explicit(&m->rows_posted, 1, memory_order_release);
		return;
	}
	startup_scan_again(&s->scan);
	attr_sync_wake_in(m, 0);
}

void attr_sync_finish(struct mount *m, loop_fn *fn, void *arg)
{
	struct attr_sync *s = m->attr_sync;

	if (s->closed) {
		fn(arg);
		return;
	}
	s->finish = fn;
	s->finish_arg = arg;
	s->finish_ms = park_now_ms() + ATTR_SYNC_FINISH_MS;
	uv_timer_start(&s->timer, attr_sync_tick, 0, FINISH_LOOK_MS);
}

int attr_sync_open(struct mount *m, struct ramp_err *err)
{
	static const struct orphans_ops ops = {.wake_in = attr_sync_wake_in,
					       .look_at_row = row_sync};
	struct attr_sync *s = calloc(1, sizeof(*s));

	m->hints = hints_new(m);
	if (!s || !m->hints || orphans_open(m, &ops)) {
		free(s);
		return ramp_err_sys(err, ENOMEM, "attributes");
	}
	s->mount = s->scan.mount = m;
	uv_timer_init(loop_uv(m->config.loop), &s->timer);
	s->timer.data = s;
	m->attr_sync = s;
	uv_timer_start(&s->timer, attr_sync_tick, 0, SWEEP_MS);
	return 0;
}

static void attr_sync_timer_closed(uv_handle_t *handle)
{
	struct attr_sync *s = handle->data;

	mount_put(s->mount);
}

void attr_sync_close(struct mount *m)
{
	struct attr_sync *s = m->attr_sync;

	if (!s)
		return;
	s->closed = m->hints->closed = true;
	orphans_close(m);
	s->finish_ms = 0; /* do not wait for proposals in flight */
	finish_if_due(s);
	mount_get(m);
	uv_close((uv_handle_t *)&s->timer, attr_sync_timer_closed);
}

void attr_sync_free(struct mount *m)
{
	if (m->hints)
		hints_free(m->hints);
	orphans_free(m);
	if (m->attr_sync)
		startup_scan_free(&m->attr_sync->scan);
	free(m->attr_sync);
}
