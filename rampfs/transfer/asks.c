/*
 * Who asks for a migration: rename(2) here, a tool over its session, another node.
 *
 * Happy path: the owner starts a move (source.c) and answers when its own tables show the new
 * owner, and that one's, too (given.c); any other node sends MIGRATE to the owner, gets one ANSWER,
 * and hands it on when its own tables have come as far as the answerer's.
 *
 *   NEW -> MOVING [source_start] -> (answered)        this node owns it
 *   NEW -> MOVING [join] -> (answered)                it is on its way there, and nobody listens
 *   NEW -> MOVING [ask_reclaim] -> (answered)         no move: it was rolled back, and comes back
 *   NEW -> WAITING [wait_here] -> NEW                 it is still being pulled, or an abort is
 *                                                     under way
 *   NEW -> REMOTE [ask_remote] -> SEEING -> (answered)
 *   NEW, REMOTE -> AGAIN -> NEW                       tables were behind: in a moment
 *
 * How it fails: every wait has the asker's bound. Before GIVEN that is a failure and the move is
 * cancelled, after it EINPROGRESS: it goes on by itself. An owner that goes down and comes back is
 * asked again, and so does not answer because it ends; what it has done meanwhile shows in the
 * tables. An asker whose daemon died asks its next one the same, and finds the move that it has
 * begun. A cancel may come to a daemon that has not heard of the move: only the owner knows whether
 * it is given, so the ask goes before it, and one that is cancelled begins nothing.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "move.h"

#define AGAIN_MS	100u
#define QUORUM_MS	5000u /* without a leader, until EROFS */
#define GRACE_MS	500u  /* for a worker or a commit to come back after a cancel */
#define REMOTE_AGAIN_MS 1000u /* MIGRATE and CANCEL are repeated */
#define GREET_MS	5000u /* a daemon that has just begun has yet to meet the others */
#define REMOTE_SHORT_MS 300u  /* the owner gives up earlier than who asked it */

enum ask_state { ASK_NEW, ASK_MOVING, ASK_WAITING, ASK_REMOTE, ASK_SEEING, ASK_AGAIN };

struct ask {
	LIST_ENTRY(ask) link; /* of transfers.asks */
	struct transfers *t;
	uint64_t handle;
	enum ask_state state;
	struct migrate_request request;
	migrate_done *done;
	void *arg;
	uv_timer_t timer;
	uint64_t deadline_ms;	     /* 0: none */
	uint64_t no_quorum_since_ms; /* 0: a quorum answered at the last look */
	bool cancelled, gave_up;
	bool unheard;	   /* the node that asks has hung up */
	ramp_node_t owner; /* REMOTE, SEEING */
	uint64_t epoch;	   /* SEEING: what our tables must show */
};

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

	if (m && m->ask == a) {
		m->ask = NULL;
		if (a->request.step && trace_collect(m, a->handle, result, text))
			return;
	}
	LIST_REMOVE(a, link);
	a->done(a->arg, result, result ? text : "");
	uv_close((uv_handle_t *)&a->timer, ask_free);
}

__attribute__((format(printf, 3, 4))) static void ask_fail(struct ask *a, int code, const char *fmt,
							   ...)
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

/* The next look: at the bound, or earlier. */
static void ask_arm(struct ask *a, uint32_t soon_ms)
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

static void ask_again(struct ask *a)
{
	a->state = ASK_AGAIN;
	ask_arm(a, AGAIN_MS);
}

/* Fails, or tries again where this daemon is so young that it may only have yet to meet it. */
static void ask_unreachable(struct ask *a, ramp_node_t node, const char *text)
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
		if (other != a && other->request.id == a->request.id &&
		    other->state == ASK_WAITING && !other->unheard)
			return true;
	return false;
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
	ask_arm(a, 0);
}

/* It is on its way to the same place, and who asked for it hears no answer any more: a daemon
   before this one, or one of a node that hung up. */
static bool join(struct ask *a, struct move *m, const struct segment_row *row)
{
	struct ask *old = m->ask;

	if (m->state < S_CHECKING || m->state > S_LEFT || m->peer != a->request.dst ||
	    atomic_load(&m->cancelled) || (old && !old->unheard) ||
	    strcmp(row->phase == SEGMENT_MOVING ? row->dst_name : m->name, a->request.dst_name) !=
		    0)
		return false;
	m->ask = a;
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
	if (m && m->state == ABORTING && !m->ask) {
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
	} else if (!m || (m->state != S_ROLLED_BACK && !m->reclaimed)) {
		if (given_comes_back(a->t, row))
			ask_again(a); /* rolled back or not, in a moment it is known */
		else
			ask_fail(a, EINVAL, "it is not rolled back");
	} else if (m->ask) {
		ask_fail(a, EBUSY, "somebody reclaims it already");
	} else {
		m->ask = a;
		a->state = ASK_MOVING;
		source_reclaim(m);
	}
}

/* ---- another node owns it -------------------------------------------------------------------- */

static void migrate_send(struct ask *a)
{
	uint64_t now = move_now_ms(), left = 0;
	struct msg_migrate mm = {
		.request = a->handle,
		.id = a->request.id,
		.dst = a->request.dst,
		.mode = (uint8_t)a->request.mode,
		.wait_stable = a->request.wait_stable,
		.progress = a->request.progress != NULL,
		.trace = a->request.step != NULL,
	};

	if (a->deadline_ms) {
		left = a->deadline_ms > now ? a->deadline_ms - now : 1;
		mm.timeout_ms =
			(uint32_t)(left > 2 * REMOTE_SHORT_MS ? left - REMOTE_SHORT_MS : left);
	}
	memcpy(mm.name, a->request.dst_name, sizeof(mm.name));
	MOVE_SEND(a->t, a->owner, PROTO_MIGRATE, proto_put_migrate, &mm);
}

static void cancel_send(struct ask *a)
{
	struct msg_cancel c = {.request = a->handle};

	MOVE_SEND(a->t, a->owner, PROTO_CANCEL, proto_put_cancel, &c);
}

/* The owner may be another daemon than the one that was asked: it hears first what is cancelled,
   finds it where it is given, and else begins it for as long as the next message takes. */
static void remote_send(struct ask *a)
{
	migrate_send(a);
	if (a->cancelled)
		cancel_send(a);
}

static void cancelled_unseen(struct ask *a)
{
	ask_fail(a, EINTR,
		 "cancelled, but its owner is down: rampfs-status shows what becomes of it");
}

static void ask_remote(struct ask *a, const struct segment_row *row)
{
	if (row->phase == SEGMENT_MOVING &&
	    (row->dst != a->request.dst || strcmp(row->dst_name, a->request.dst_name) != 0)) {
		ask_fail(a, EBUSY, "it is on the move already");
		return;
	}
	if (!peer_up(a->t->peers, row->node)) {
		if (a->cancelled)
			cancelled_unseen(a);
		else
			ask_unreachable(a, row->node, "its owner is down");
		return;
	}
	a->owner = row->node;
	a->state = ASK_REMOTE;
	ask_arm(a, REMOTE_AGAIN_MS);
	remote_send(a);
}

struct ask *ask_find(struct transfers *t, uint64_t handle)
{
	struct ask *a;

	LIST_FOREACH (a, &t->asks, link)
		if (a->handle == handle)
			return a;
	return NULL;
}

static void seeing_look(struct ask *a)
{
	struct segment_row row;
	int rc = meta_segment(a->t->meta, a->request.id, &row);

	if (rc == -ENOENT || (rc == 0 && row.epoch >= a->epoch))
		ask_done(a, 0, "");
}

static void asks_on_answer(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			   struct wire_r *body)
{
	struct transfers *t = arg;
	struct msg_answer answer;
	struct ask *a;

	(void)incarnation;
	if (!move_heard(body, proto_get_answer(body, &answer)))
		return;
	a = ask_find(t, answer.request);
	if (!a || a->state != ASK_REMOTE || a->owner != from)
		return;
	if (answer.code == ESTALE) {
		ask_again(a); /* it is not the owner: our tables were behind, or its are */
	} else if (answer.code) {
		ask_done(a, -(int)answer.code, answer.text);
	} else {
		a->state = ASK_SEEING;
		a->epoch = answer.epoch;
		ask_arm(a, AGAIN_MS);
		seeing_look(a);
	}
}

static void asks_on_progress(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			     struct wire_r *body)
{
	struct transfers *t = arg;
	struct msg_progress p;
	struct ask *a;

	(void)incarnation;
	if (!move_heard(body, proto_get_progress(body, &p)))
		return;
	a = ask_find(t, p.request);
	if (a && a->owner == from)
		ask_progress(a, p.done_pages, p.all_pages, p.state);
}

/* A step of a trace that this node's tool asked for. */
void asks_on_step(struct transfers *t, ramp_node_t from, const struct msg_step *s)
{
	struct ask *a = ask_find(t, s->about);
	char name[RAMP_NODE_NAME_MAX + 1] = "";
	struct transfer_step step = {s->node, name, s->page, s->at_ns, s->name};

	if (!a || a->owner != from)
		return;
	if (s->node)
		move_node_name(t, s->node, name);
	ask_step(a, &step);
}

/* ---- asked by another node ------------------------------------------------------------------- */

struct remote_asker {
	struct transfers *t;
	ramp_node_t node;
	uint64_t request;
	ramp_segment_t id;
};

static void answer_send(struct transfers *t, const struct answered *answered)
{

	MOVE_SEND(t, answered->node, PROTO_ANSWER, proto_put_answer, &answered->answer);
}

static void remote_answer(struct transfers *t, ramp_node_t node, uint64_t request,
			  ramp_segment_t id, int result, const char *text)
{
	struct answered *answered = &t->answered[t->n_answered++ % ANSWERED];
	struct segment_row row;

	memset(answered, 0, sizeof(*answered));
	answered->node = node;
	answered->answer.request = request;
	answered->answer.code = (uint32_t)-result;
	if (meta_segment(t->meta, id, &row) == 0)
		answered->answer.epoch = row.epoch;
	snprintf(answered->answer.text, sizeof(answered->answer.text), "%s", text);
	answer_send(t, answered);
}

/* True where it was answered already; it is answered again. */
static bool answer_again(struct transfers *t, ramp_node_t node, uint64_t request)
{
	for (size_t i = 0; i < ANSWERED; i++) {
		if (t->answered[i].node != node || t->answered[i].answer.request != request)
			continue;
		answer_send(t, &t->answered[i]);
		return true;
	}
	return false;
}

static void remote_done(void *arg, int result, const char *text)
{
	struct remote_asker *r = arg;

	if (result != -ESHUTDOWN) /* else the next daemon is asked again */
		remote_answer(r->t, r->node, r->request, r->id, result, text);
	free(r);
}

static void remote_progress(void *arg, uint64_t done_pages, uint64_t all_pages, const char *state)
{
	struct remote_asker *r = arg;
	struct msg_progress p = {
		.request = r->request,
		.done_pages = done_pages,
		.all_pages = all_pages,
	};

	snprintf(p.state, sizeof(p.state), "%s", state);
	MOVE_SEND(r->t, r->node, PROTO_PROGRESS, proto_put_progress, &p);
}

static void remote_step(void *arg, const struct transfer_step *step)
{
	struct remote_asker *r = arg;
	struct msg_step s = {
		.about = r->request,
		.node = step->node,
		.page = step->page,
		.at_ns = step->at_ns,
	};

	snprintf(s.name, sizeof(s.name), "%s", step->name);
	MOVE_SEND(r->t, r->node, PROTO_STEP, proto_put_step, &s);
}

static struct ask *remote_find(struct transfers *t, ramp_node_t from, uint64_t request)
{
	struct ask *a;

	LIST_FOREACH (a, &t->asks, link) {
		struct remote_asker *r = a->arg;

		if (a->done == remote_done && r->node == from && r->request == request)
			return a;
	}
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

/* Not remembered: the asker looks at its tables and asks again under the same number. */
static void not_the_owner(struct transfers *t, ramp_node_t node, uint64_t request)
{
	struct answered stale = {
		.node = node,
		.answer = {.request = request, .code = ESTALE},
	};

	answer_send(t, &stale);
}

static void asks_on_migrate(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			    struct wire_r *body)
{
	struct transfers *t = arg;
	struct migrate_request request = {0};
	struct segment_row row;
	struct remote_asker *r;
	struct msg_migrate mm;
	struct ask *known;

	(void)incarnation;
	if (!move_heard(body, proto_get_migrate(body, &mm)))
		return;
	known = remote_find(t, from, mm.request);
	if (known)
		known->unheard = false;
	if (!t->started || known || answer_again(t, from, mm.request))
		return; /* the latter: asked again, for a message may be lost */
	if (mm.mode > TRANSFER_COPY) {
		remote_answer(t, from, mm.request, mm.id, -EINVAL, "unknown mode");
		return;
	}
	if (meta_segment(t->meta, mm.id, &row) || row.node != t->self) {
		not_the_owner(t, from, mm.request);
		return;
	}
	r = calloc(1, sizeof(*r));
	if (!r)
		return;
	*r = (struct remote_asker){.t = t, .node = from, .request = mm.request, .id = mm.id};
	request.id = mm.id;
	request.dst = mm.dst;
	memcpy(request.dst_name, mm.name, sizeof(request.dst_name));
	request.mode = mm.mode;
	request.wait_stable = mm.wait_stable;
	request.timeout_ms = mm.timeout_ms;
	request.progress = mm.progress ? remote_progress : NULL;
	request.step = mm.trace ? remote_step : NULL;
	ask_start(t, &request, remote_done, r);
}

static void asks_on_cancel(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			   struct wire_r *body)
{
	struct msg_cancel c;
	struct ask *a;

	(void)incarnation;
	if (!move_heard(body, proto_get_cancel(body, &c)))
		return;
	a = remote_find(arg, from, c.request);
	if (a)
		ask_cancel(a);
	else /* or it is unknown: who asks repeats its MIGRATE before this, and gets that answered
	      */
		answer_again(arg, from, c.request);
}

/* ---- beginning, waiting, ending -------------------------------------------------------------- */

/* A node that has just started knows no leader yet, although there is one or will be in a moment.
 */
static void ask_without_quorum(struct ask *a)
{
	uint64_t now = move_now_ms();

	if (!a->no_quorum_since_ms)
		a->no_quorum_since_ms = now;
	if (now - a->no_quorum_since_ms >= QUORUM_MS)
		ask_fail(a, EROFS, "no quorum: the cluster can't agree on the move now");
	else
		ask_again(a);
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
	if (meta_node(t->meta, a->request.dst, &node) || node.role == NODE_REMOVED) {
		ask_fail(a, ENOENT, "no such node");
		return;
	}
	if (row.node == a->request.dst) {
		bool wait = a->request.wait_stable && !a->cancelled && row.phase != SEGMENT_STABLE;

		if (strcmp(row.name, a->request.dst_name) != 0)
			ask_fail(a, EEXIST, "it is on node %s already, as %s", node.name, row.name);
		else if (wait)
			ask_again(a);
		else
			ask_done(a, 0, "");
		return;
	}
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

	if (!m || m->ask != a || source_past_return(m)) {
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
		if (pull_progress(a->t->pull, a->request.id, &p) == 0 && p.pages_all)
			ask_fail(a, EBUSY, "still being pulled, %" PRIu64 " %%",
				 (p.pages_all - p.pages_missing) * 100 / p.pages_all);
		else
			ask_fail(a, EBUSY, "still being pulled");
		return;
	case ASK_REMOTE:
		cancel_send(a);
		ask_fail(a, EINPROGRESS, "its owner has not answered; it may go on by itself");
		return;
	case ASK_SEEING:
		ask_fail(a, EINPROGRESS, "it is moved, but this node's tables are behind");
		return;
	case ASK_NEW:
	case ASK_AGAIN:
		if (a->no_quorum_since_ms)
			ask_fail(a, EROFS, "no quorum: the cluster can't agree on the move now");
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
		seeing_look(a);
	} else if (a->state == ASK_REMOTE) {
		ask_arm(a, REMOTE_AGAIN_MS);
		if (meta_segment(a->t->meta, a->request.id, &row) || row.node != a->owner)
			ask_begin(a); /* moved or gone meanwhile, and who knew it may be down */
		else
			remote_send(a); /* it knows it, or has answered, or it was lost */
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
		if (m && m->ask == a && !source_cancel(m, EINTR, "cancelled")) {
			a->request.wait_stable = false; /* it is done; nobody waits for pages */
			move_look(a->t, a->request.id);
		}
		return;
	case ASK_REMOTE:
		remote_send(a);
		if (!peer_up(a->t->peers, a->owner))
			cancelled_unseen(a);
		return;
	case ASK_SEEING:
		return;
	case ASK_AGAIN:
		if (a->request.mode != TRANSFER_RECLAIM && (a->owner || is_given(a)))
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
			seeing_look(a);
		else if (a->state == ASK_WAITING && !move_find(t, id))
			ask_begin(a);
	}
}

void asks_peer_up(struct transfers *t, ramp_node_t node)
{
	struct ask *a;

	LIST_FOREACH (a, &t->asks, link)
		if (a->state == ASK_REMOTE && a->owner == node)
			ask_arm(a, 1); /* the tick asks again */
}

/* What it asked goes on; perhaps it asks again under the same number, perhaps its daemon died. */
void asks_peer_down(struct transfers *t, ramp_node_t node)
{
	struct ask *a;

	LIST_FOREACH (a, &t->asks, link) {
		struct remote_asker *r = a->arg;

		if (a->done == remote_done && r->node == node)
			a->unheard = true;
	}
}

void asks_close(struct transfers *t)
{
	struct ask *a;

	while ((a = LIST_FIRST(&t->asks)))
		ask_done(a, -ESHUTDOWN, "the daemon ends");
}

void asks_listen(struct transfers *t)
{
	peers_on(t->peers, PROTO_MIGRATE, asks_on_migrate, t);
	peers_on(t->peers, PROTO_ANSWER, asks_on_answer, t);
	peers_on(t->peers, PROTO_PROGRESS, asks_on_progress, t);
	peers_on(t->peers, PROTO_CANCEL, asks_on_cancel, t);
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
