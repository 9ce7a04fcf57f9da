/*
 * Who asks for a migration: rename(2) here, a tool over its session, another node.
 *
 * Happy path: the owner starts a move (source.c) and answers when its own tables show the new
 * owner, and that one's, too (given.c); any other node asks the owner (ask_remote.c) and hands
 * its answer on when its own tables have come as far as the answerer's.
 *
 *   NEW -> MOVING [source_start] -> (answered)        this node owns it
 *   NEW -> MOVING [join] -> (answered)                it is on its way there, and nobody listens
 *   NEW -> MOVING [ask_reclaim] -> (answered)         no move: it was rolled back, and comes back
 *   MOVING -> NEW [ask_retry]                         another life's prepare is to be aborted first
 *   NEW -> WAITING [wait_here] -> NEW                 it is still being pulled, or an abort is
 *                                                     under way
 *   NEW -> REMOTE [ask_remote] -> SEEING -> (answered)
 *   NEW -> AGAIN, REMOTE [wait_there]                 it is there, and not all of its pages are
 *   NEW, REMOTE -> AGAIN -> NEW                       tables were behind: in a moment
 *
 * How it fails: every wait has the asker's bound. Before GIVEN that is a failure and the move is
 * cancelled, after it EINPROGRESS: it goes on by itself. An owner that goes down and comes back is
 * asked again, and so does not answer because it ends; what it has done meanwhile shows in the
 * tables. An asker whose daemon died asks its next one the same, and finds the move that it has
 * begun. One that is cancelled begins nothing, and what is given can't be.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "move_request.h"

#define QUORUM_MS 5000u /* without a leader, until EROFS */
#define GRACE_MS  500u	/* for a worker or a commit to come back after a cancel */
#define GREET_MS  5000u /* a daemon that has just begun has yet to meet the others */

static void ask_begin(struct ask *a);
static void ask_tick(uv_timer_t *timer);

const struct migrate_request *ask_request(const struct ask *a)
{
	return &a->request;
}

struct transfers *ask_transfers(const struct ask *a)
{
	return a->t;
}

static void ask_free(uv_handle_t *timer)
{
	free(timer->data);
}

void ask_done(struct ask *a, int result, const char *text)
{
	struct move *m = move_find(a->t, a->request.id);

	if (m && m->request == a) {
		m->request = NULL;
		if (a->request.step && trace_collect(m, a->handle, result, text))
			return;
	}
	LIST_REMOVE(a, link);
	a->done(a->arg, result, result ? text : "");
	uv_close((uv_handle_t *)&a->timer, ask_free);
}

void ask_fail(struct ask *a, int code, const char *fmt, ...)
{
	char text[RAMP_ERR_TEXT_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	ask_done(a, -code, text);
}

void ask_progress(struct ask *a, uint64_t done_pages, uint64_t all_pages, const char *state)
{
	if (a->request.progress)
		a->request.progress(a->arg, done_pages, all_pages, state);
}

void ask_step(struct ask *a, const struct transfer_step *step)
{
	if (a->request.step)
		a->request.step(a->arg, step);
}

int ask_means(const struct ask *a, const struct segment_row *row)
{
	if (!a->request.from_name[0] || strcmp(row->name, a->request.from_name) == 0)
		return 0;
	/* Who asked may have tables that are behind ours: it looks at them again. */
	return ask_is_remote(a) ? -ESTALE : -ENOENT;
}

void ask_arm(struct ask *a, uint32_t soon_ms)
{
	uint64_t now = move_now_ms(), ms = soon_ms;

	if (a->deadline_ms) {
		uint64_t left = a->deadline_ms > now ? a->deadline_ms - now : 0;

		if (!soon_ms || left < ms)
			ms = left;
	} else if (!soon_ms) {
		uv_timer_stop(&a->timer);
		return;
	}
	uv_timer_start(&a->timer, ask_tick, ms, 0);
}

void ask_again(struct ask *a)
{
	a->state = ASK_AGAIN;
	ask_arm(a, AGAIN_MS);
}

void ask_retry(struct ask *a)
{
	if (a->unheard)
		ask_done(a, -ESHUTDOWN, "who asked has hung up");
	else
		ask_begin(a);
}

void ask_unreachable(struct ask *a, ramp_node_t node, const char *text)
{
	struct transfers *t = a->t;

	if (peer_incarnation(t->peers, node) == 0 && move_now_ms() - t->started_ms < GREET_MS)
		ask_again(a);
	else
		ask_fail(a, EHOSTUNREACH, "%s", text);
}

/* ---- this node owns it ----------------------------------------------------------------------- */

/* What a former daemon left of it is taken up, also where the scan has not come to it yet. */
static struct move *taken_up(struct ask *a)
{
	if (!move_find(a->t, a->request.id))
		move_look(a->t, a->request.id);
	return move_find(a->t, a->request.id);
}

/* From here: nothing is to be agreed on before it is waited for, and nobody can cancel it. */
static bool is_given(struct ask *a)
{
	struct move *m = taken_up(a);

	return m && source_past_return(m);
}

static bool another_waits(struct ask *a)
{
	struct ask *other;

	LIST_FOREACH (other, &a->t->asks, link)
		if (other != a && other->request.id == a->request.id && other->state == ASK_WAITING)
			return true;
	return false;
}

/* It is where it was to go, and perhaps on demand alone: who waits wants all of it. */
static void wait_there(struct ask *a, const struct segment_row *row)
{
	struct move *m = row->node == a->t->self ? taken_up(a) : NULL;
	struct pull_progress p;

	a->request.from = a->request.dst; /* who moves it on meanwhile is not undone */
	if (row->node != a->t->self && peer_up(a->t->peers, row->node)) {
		ask_remote(a, row);
		return;
	}
	if (m && m->state == T_TAKEN) {
		target_prefetch(m);
		if (pull_progress(a->t->pull, a->request.id, &p) == 0)
			ask_progress(a, p.pages_all - p.pages_missing, p.pages_all, "pulling");
	}
	ask_again(a);
}

static bool is_there(const struct ask *a)
{
	struct segment_row row;

	return meta_segment(a->t->meta, a->request.id, &row) == 0 && row.node == a->request.dst;
}

/* Until `taken` has all its pages; NULL: until something else is over. */
static void wait_here(struct ask *a, struct move *taken)
{
	if (another_waits(a)) {
		ask_fail(a, EBUSY, "it is on the move already");
		return;
	}
	a->state = ASK_WAITING;
	if (taken)
		target_prefetch(taken);
	ask_arm(a, AGAIN_MS);
}

/* It is on its way to the same place, and who asked for it hears no answer any more: a daemon
   before this one, or one of a node that hung up. */
static bool join(struct ask *a, struct move *m, const struct segment_row *row)
{
	struct ask *old = m->request;

	if (m->state < S_CHECKING || m->state > S_LEFT || m->peer != a->request.dst ||
	    atomic_load(&m->cancelled) || (old && !old->unheard) ||
	    strcmp(row->phase == SEGMENT_MOVING ? row->dst_name : m->name, a->request.dst_name) !=
		    0)
		return false;
	m->request = a;
	a->state = ASK_MOVING;
	if (old)
		ask_done(old, -EBUSY, "it is on the move already");
	ask_arm(a, 0);
	if (a->cancelled)
		ask_cancel(a);
	else
		move_look(a->t, m->id);
	return true;
}

static void ask_local(struct ask *a, const struct segment_row *row)
{
	struct transfers *t = a->t;
	struct move *m = taken_up(a);
	struct record record;
	struct seg *seg;

	if (m && (m->state == T_TAKEN || m->state == T_SETTLING)) {
		wait_here(a, m->state == T_TAKEN ? m : NULL);
		return;
	}
	if (m && m->state == ABORTING && (!m->request || m->request->unheard)) {
		if (m->request) /* or it would be tried again for nobody, and before this one */
			ask_done(m->request, -ESHUTDOWN, "who asked has hung up");
		wait_here(a, NULL);
		return;
	}
	if (m && m->state == S_ROLLED_BACK) {
		ask_fail(a, EIO, "it is rolled back: rampfs-migrate --reclaim accepts that");
		return;
	}
	if (m) {
		if (!join(a, m, row))
			ask_fail(a, EBUSY, "it is on the move already");
		return;
	}
	if (row->phase != SEGMENT_STABLE || !t->registered) {
		ask_again(a); /* the scan has not come to it yet */
		return;
	}
	seg = store_find(t->store, a->request.id);
	if (seg)
		record_get(seg, &record);
	if (!seg || seg_damaged(seg) || record.kind != RECORD_OWNED) {
		if (seg)
			seg_put(seg);
		ask_fail(a, EIO, "its bytes are not here");
		return;
	}
	if (!peer_up(t->peers, a->request.dst)) {
		seg_put(seg);
		ask_unreachable(a, a->request.dst, "the target is down");
		return;
	}
	a->state = ASK_MOVING;
	ask_arm(a, 0);
	source_start(t, a, row, seg);
}

/* Answered when it is open to programs again. */
static void ask_reclaim(struct ask *a, const struct segment_row *row)
{
	struct move *m = move_find(a->t, a->request.id);

	if (row->node != a->t->self) {
		ask_fail(a, EREMOTE, "it is not this node's; ask its owner");
	} else if (!m || (m->state != S_ROLLED_BACK && !m->source.reclaim_accepted)) {
		if (given_comes_back(a->t, row))
			ask_again(a); /* rolled back or not, in a moment it is known */
		else
			ask_fail(a, EINVAL, "it is not rolled back");
	} else if (m->request) {
		ask_fail(a, EBUSY, "somebody reclaims it already");
	} else {
		m->request = a;
		a->state = ASK_MOVING;
		source_reclaim(m);
	}
}

/* ---- beginning, waiting, ending -------------------------------------------------------------- */

struct ask *ask_find(struct transfers *t, uint64_t handle)
{
	struct ask *a;

	LIST_FOREACH (a, &t->asks, link)
		if (a->handle == handle)
			return a;
	return NULL;
}

struct ask *ask_new(struct transfers *t, const struct migrate_request *request, migrate_done *done,
		    void *arg, uint64_t handle)
{
	struct ask *a = calloc(1, sizeof(*a));

	if (!a)
		abort(); /* somebody waits for an answer that would never come */
	a->t = t;
	a->handle = handle;
	a->request = *request;
	a->done = done;
	a->arg = arg;
	return a;
}

void ask_enter(struct ask *a)
{
	struct transfers *t = a->t;

	if (t->closing || !t->started) {
		a->done(a->arg, -ESHUTDOWN, "the daemon ends");
		free(a);
		return;
	}
	uv_timer_init(loop_uv(t->loop), &a->timer);
	a->timer.data = a;
	if (a->request.timeout_ms)
		a->deadline_ms = move_now_ms() + a->request.timeout_ms;
	LIST_INSERT_HEAD(&t->asks, a, link);
	ask_begin(a);
}

static void ask_no_quorum(struct ask *a)
{
	ask_fail(a, EROFS, "no quorum: the cluster can't agree on the move now");
}

/* A node that has just started knows no leader yet, although there is one or will be in a moment.
 */
static void ask_without_quorum(struct ask *a)
{
	uint64_t now = move_now_ms();

	if (!a->no_quorum_since_ms)
		a->no_quorum_since_ms = now;
	if (now - a->no_quorum_since_ms >= QUORUM_MS)
		ask_no_quorum(a);
	else
		ask_again(a);
}

/* What is not being pulled is an abort or to be settled, which only a quorum can do. */
static void waiting_tick(struct ask *a)
{
	struct move *m = move_find(a->t, a->request.id);
	uint64_t now = move_now_ms();

	if ((m && m->state == T_TAKEN && !m->target.has_every_page) || meta_has_quorum(a->t->meta))
		a->no_quorum_since_ms = 0;
	else if (!a->no_quorum_since_ms)
		a->no_quorum_since_ms = now;
	if (a->no_quorum_since_ms && now - a->no_quorum_since_ms >= QUORUM_MS)
		ask_no_quorum(a);
	else
		ask_arm(a, AGAIN_MS);
}

/* Where it was, under the name that it had. False: answered, or it is looked at again. */
static bool still_means(struct ask *a, const struct segment_row *row)
{
	int rc = ask_means(a, row);

	if (a->request.from && row->node != a->request.from)
		ask_fail(a, ENOENT, "another move has taken it away");
	else if (rc == -ESTALE && !meta_has_quorum(a->t->meta))
		ask_without_quorum(a); /* by newer tables it may have the name */
	else if (rc)
		ask_fail(a, -rc, "it has another name by now");
	else
		return true;
	return false;
}

static void ask_begin(struct ask *a)
{
	struct transfers *t = a->t;
	struct segment_row row;
	struct node_row node;
	bool given;
	int rc;

	a->state = ASK_NEW;
	rc = meta_segment(t->meta, a->request.id, &row);
	if (rc == 0 && (row.unlinked || row.phase == SEGMENT_ORPHAN))
		rc = -ENOENT;
	if (rc) {
		ask_fail(a, -rc, "%s", rc == -ENOENT ? "no such segment" : strerror(-rc));
		return;
	}
	if (a->request.mode == TRANSFER_RECLAIM) {
		ask_reclaim(a, &row);
		return;
	}
	if (row.node != t->self && ask_is_remote(a)) {
		/* Only who asked knows whether it is to be followed there. */
		ask_fail(a, ESTALE, "it is not this node's any more");
		return;
	}
	if (meta_node(t->meta, a->request.dst, &node) || node.role == NODE_REMOVED) {
		ask_fail(a, ENOENT, "no such node");
		return;
	}
	if (row.node == a->request.dst) {
		bool wait = a->request.wait_stable && !a->cancelled && row.phase != SEGMENT_STABLE;

		if (strcmp(row.name, a->request.dst_name) != 0)
			ask_fail(a, EEXIST, "it is on node %s already, as %s", node.name, row.name);
		else if (wait)
			wait_there(a, &row);
		else
			ask_done(a, 0, "");
		return;
	}
	if (!still_means(a, &row))
		return;
	given = row.node == t->self && is_given(a);
	if (a->cancelled && !given && row.node != a->owner) {
		ask_fail(a, EINTR, "cancelled");
		return;
	}
	if (!given && !a->cancelled && !meta_has_quorum(t->meta)) {
		ask_without_quorum(a);
		return;
	}
	a->no_quorum_since_ms = 0;
	if (row.node == t->self)
		ask_local(a, &row);
	else
		ask_remote(a, &row);
}

/* The bound has come while a move is under way here. */
static void moving_timeout(struct ask *a)
{
	struct move *m = move_find(a->t, a->request.id);
	enum move_state state = m ? m->state : MOVE_END;

	if (!m || m->request != a || source_past_return(m)) {
		ask_fail(a, EINPROGRESS, "it goes on by itself");
		return;
	}
	if (a->gave_up) {
		ask_fail(a, EBUSY, "it could not be moved in time (%s)", move_state_name(state));
		return;
	}
	a->gave_up = true;
	a->deadline_ms = move_now_ms() + GRACE_MS;
	ask_arm(a, 0);
	/* This may answer at once, and then there is no `a` any more. */
	if (state == S_CONNECTING)
		source_cancel(m, EHOSTUNREACH, "the target does not answer");
	else if (state == S_PREPARING)
		source_cancel(m, EROFS, "no quorum: the cluster did not agree in time");
	else if (!source_cancel(m, EBUSY, "programs could not be stopped in time"))
		ask_fail(a, EINPROGRESS, "it goes on by itself");
}

static void ask_timeout(struct ask *a)
{
	struct pull_progress p;

	switch (a->state) {
	case ASK_MOVING:
		moving_timeout(a);
		return;
	case ASK_WAITING:
		if (a->no_quorum_since_ms)
			ask_no_quorum(a);
		else if (pull_progress(a->t->pull, a->request.id, &p) == 0 && p.pages_all)
			ask_fail(a, EBUSY, "still being pulled, %" PRIu64 " %%",
				 (p.pages_all - p.pages_missing) * 100 / p.pages_all);
		else
			ask_fail(a, EBUSY, "it is on the move already");
		return;
	case ASK_REMOTE:
		ask_cancel_send(a);
		ask_fail(a, EINPROGRESS, "its owner has not answered; it may go on by itself");
		return;
	case ASK_SEEING:
		ask_fail(a, EINPROGRESS, "it is moved, but this node's tables are behind");
		return;
	case ASK_NEW:
	case ASK_AGAIN:
		if (a->no_quorum_since_ms)
			ask_no_quorum(a);
		else
			ask_fail(a, EBUSY, "it is on the move already");
	}
}

static void ask_tick(uv_timer_t *timer)
{
	struct ask *a = timer->data;
	struct segment_row row;

	if (a->deadline_ms && move_now_ms() >= a->deadline_ms) {
		ask_timeout(a);
	} else if (a->state == ASK_AGAIN) {
		ask_begin(a);
	} else if (a->state == ASK_SEEING) {
		ask_arm(a, AGAIN_MS);
		ask_seeing_look(a);
	} else if (a->state == ASK_REMOTE) {
		ask_arm(a, REMOTE_AGAIN_MS);
		if (meta_segment(a->t->meta, a->request.id, &row) ||
		    (row.node != a->owner && !peer_up(a->t->peers, a->owner)))
			ask_begin(a); /* gone, or moved meanwhile, and who knew it is down */
		else
			ask_remote_send(a); /* it knows it, or has answered, or it was lost */
	} else if (a->state == ASK_WAITING) {
		waiting_tick(a);
	} else {
		ask_arm(a, 0);
	}
}

void ask_cancel(struct ask *a)
{
	struct move *m = move_find(a->t, a->request.id);

	a->cancelled = true;
	switch (a->state) {
	case ASK_MOVING:
		if (m && m->request == a && !source_cancel(m, EINTR, "cancelled")) {
			a->request.wait_stable = false; /* it is done; nobody waits for pages */
			move_look(a->t, a->request.id);
		}
		return;
	case ASK_REMOTE:
		ask_remote_send(a);
		if (!peer_up(a->t->peers, a->owner))
			ask_cancelled_unseen(a);
		return;
	case ASK_SEEING:
		return;
	case ASK_AGAIN:
		if (a->request.mode != TRANSFER_RECLAIM && (a->owner || is_given(a) || is_there(a)))
			return; /* the next look says what has become of it */
		ask_fail(a, EINTR, "cancelled");
		return;
	default:
		ask_fail(a, EINTR, "cancelled");
	}
}

void asks_look(struct transfers *t, ramp_segment_t id)
{
	struct ask *a, *next;

	if (t->closing)
		return;
	for (a = LIST_FIRST(&t->asks); a; a = next) {
		next = LIST_NEXT(a, link);
		if (a->request.id != id)
			continue;
		if (a->state == ASK_SEEING)
			ask_seeing_look(a);
		else if (a->state == ASK_WAITING && !move_find(t, id))
			ask_begin(a);
	}
}

void asks_close(struct transfers *t)
{
	struct ask *a;

	while ((a = LIST_FIRST(&t->asks)))
		ask_done(a, -ESHUTDOWN, "the daemon ends");
}

void ask_start(struct transfers *t, const struct migrate_request *request, migrate_done *done,
	       void *arg)
{
	ask_enter(ask_new(t, request, done, arg, atomic_fetch_add(&t->asked, 1) + 1));
}

struct ask *ask_of(struct transfers *t, migrate_done *done, const void *arg)
{
	struct ask *a;

	LIST_FOREACH (a, &t->asks, link)
		if (a->done == done && a->arg == arg)
			return a;
	return NULL;
}
