/*
 * Requests to move a segment: of rename(2) here, of a tool over its session, of another node.
 *
 * Happy path: the owner starts a move (source_connect.c), and answers when its own tables and the
 * target's show the new owner (given.c). Any other node asks the owner (move_request_remote.c), and
 * hands its answer on when its own tables have come as far as the owner's.
 *
 *   NEW -> MOVING         [begin_here]              this node owns it: source_start
 *   NEW -> MOVING         [join_move]               it is moving there already, for no live request
 *   NEW -> MOVING         [take_prefill]            it is kept near there
 *   NEW -> MOVING         [begin_reclaim]           no move: it was rolled back, and is reclaimed
 *   MOVING -> NEW         [move_request_retry]      another prepare is to be aborted first
 *   NEW -> WAITING        [wait_here]               it is still being pulled here, or being aborted;
 *                                                   taken here, and not committed; a prefill ends first
 *   WAITING -> NEW        [move_requests_look]      that has ended
 *   NEW -> REMOTE         [move_request_ask_owner]  another node owns it, and is asked
 *   REMOTE -> SEEING      [on_answer]               moved; our tables do not show it yet
 *   REMOTE -> NEW         [move_request_tick]       row gone, or another's and the owner down
 *   NEW, REMOTE -> AGAIN  [move_request_again]      tables are behind, or pages are missing there
 *   AGAIN -> NEW          [move_request_tick]       after AGAIN_MS
 *   NEW -> QUEUED         [queue_up]                one of many, and UNDER_WAY_MAX are under way to the target
 *   QUEUED -> NEW         [move_requests_admit]     one of those has been taken, or has failed
 *   any -> answered       [move_request_done]
 *
 * A request of a move in steps says how far it may go; move_request_go_on lets it go further.
 *
 * How it fails: every wait has the request's deadline. Before GIVEN the move is cancelled then, and
 * the request fails; after it the answer is EINPROGRESS, and the move continues by itself. An owner
 * that goes down is asked again when it is back: one that ends gives no answer, and the tables show
 * how far it came. If the asking daemon restarts, its client repeats the request, which joins the
 * move in progress. A request that is cancelled before GIVEN starts nothing; after GIVEN it cannot
 * be cancelled.
 */
#include "move_request.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"

#include "given.h"
#include "move_request_remote.h"
#include "source.h"
#include "source_connect.h"
#include "source_hold.h"
#include "source_prefill.h"
#include "target_pull.h"

#define QUORUM_MS     5000u /* without a quorum, until EROFS */
#define UNDER_WAY_MAX 64u   /* of requests of many at once, to one target */
#define GRACE_MS      500u  /* for a worker to return, or a commit to be answered, after a cancel */

/* ---- this node owns it ----------------------------------------------------------------------- */

/* The segment's move here. Takes up what an earlier daemon left, also where the scan has not come
   to it yet. */
static struct move *taken_up(struct move_request *req)
{
	if (!move_find(req->t, req->spec.id))
		move_look(req->t, req->spec.id);
	return move_find(req->t, req->spec.id);
}

/* True where this node has given it: the request needs no quorum to wait for that, and can't be
   cancelled. */
static bool is_given(struct move_request *req)
{
	struct move *m = taken_up(req);

	return m && source_past_return(m);
}

static bool another_waits(struct move_request *req)
{
	struct move_request *other;

	LIST_FOREACH (other, &req->t->requests_of[req->spec.id % MOVE_BUCKETS], of_segment)
		if (other != req && other->spec.id == req->spec.id &&
		    other->state == REQUEST_WAITING)
			return true;
	return false;
}

/* It is at its target, perhaps with pages on demand alone: the request waits for all of them. */
static void wait_there(struct move_request *req, const struct segment_row *row)
{
	struct move *m = row->node == req->t->self ? taken_up(req) : NULL;
	struct pull_progress p;

	req->spec.from = req->spec.dst; /* a later move away from there is not undone */
	if (row->node != req->t->self && peer_up(req->t->peers, row->node)) {
		move_request_ask_owner(req, row);
		return;
	}
	if (m && m->state == T_TAKEN) {
		target_prefetch(m);
		if (pull_progress(req->t->pull, req->spec.id, &p) == 0)
			move_request_progress(req, p.pages_all - p.pages_missing, p.pages_all,
					      "pulling");
	}
	move_request_again(req);
}

static bool is_there(const struct move_request *req)
{
	struct segment_row row;

	return meta_segment(req->t->meta, req->spec.id, &row) == 0 && row.node == req->spec.dst;
}

/* Waits until the segment's move here ends. `taken`: that move, which is pulling, and pulls all of
   its pages from now on; NULL: it is not pulling. */
static void wait_here(struct move_request *req, struct move *taken)
{
	if (another_waits(req)) {
		move_request_fail(req, EBUSY, "it is on the move already");
		return;
	}
	move_request_go(req, REQUEST_NEW, REQUEST_WAITING);
	if (taken)
		target_prefetch(taken);
	move_request_arm(req, AGAIN_MS);
}

/* Takes over a move to the same place that no request waits for any more: an earlier daemon began
   it, or the node that asked for it hung up. */
static bool join_move(struct move_request *req, struct move *m, const struct segment_row *row)
{
	struct move_request *old = m->request;

	if (m->state < S_CHECKING || m->state > S_LEFT || m->peer != req->spec.dst ||
	    atomic_load(&m->cancelled) || (old && !old->unheard) ||
	    strcmp(row->phase == SEGMENT_MOVING ? row->dst_name : m->name, req->spec.dst_name) != 0)
		return false;
	m->request = req;
	move_request_go(req, REQUEST_NEW, REQUEST_MOVING);
	if (old)
		move_request_done(old, -EBUSY, "it is on the move already");
	move_request_arm(req, 0);
	if (req->cancelled)
		move_request_cancel(req);
	else
		move_look(req->t, m->id);
	return true;
}

/* One of many waits while as many are under way as may be: each keeps room at the target, and a single
   request that comes meanwhile waits for no others. */
static bool has_to_queue(const struct move_request *req)
{
	return req->spec.queues && pair_of(req->t, req->spec.dst)->under_way >= UNDER_WAY_MAX;
}

static void queue_up(struct move_request *req)
{
	move_request_go(req, REQUEST_NEW, REQUEST_QUEUED);
	move_request_arm(req, 0);
}

/* A prefill to the same place continues for the request; another one ends first. */
static void take_prefill(struct move_request *req, struct move *m)
{
	if (!peer_up(req->t->peers, req->spec.dst)) {
		move_request_unreachable(req, req->spec.dst, "the target is down");
		return;
	}
	if (has_to_queue(req)) {
		queue_up(req);
		return;
	}
	if (source_prefill_join(m, req)) {
		move_request_go(req, REQUEST_NEW, REQUEST_MOVING);
		move_request_arm(req, 0);
		if (req->cancelled)
			move_request_cancel(req);
		return;
	}
	wait_here(req, NULL);
	source_cancel(m, ESHUTDOWN, "it is moved in another way, or elsewhere");
}

static void begin_here(struct move_request *req, const struct segment_row *row)
{
	struct transfers *t = req->t;
	struct move *m = taken_up(req);
	struct record record;
	struct seg *seg;

	if (m && (m->state == T_TAKEN || m->state == T_SETTLING)) {
		wait_here(req, m->state == T_TAKEN ? m : NULL);
		return;
	}
	if (m && m->state == ABORTING && (!m->request || m->request->unheard)) {
		if (m->request) /* else it would be tried again, for no client, before this one */
			move_request_done(m->request, -ESHUTDOWN, "the asking node has hung up");
		wait_here(req, NULL);
		return;
	}
	if (m && m->prefill && m->state < T_RESERVING) {
		take_prefill(req, m);
		return;
	}
	if (m && m->state == S_ROLLED_BACK) {
		move_request_fail(req, EIO,
				  "it is rolled back: rampfs-migrate --reclaim accepts that");
		return;
	}
	if (m) {
		if (!join_move(req, m, row))
			move_request_fail(req, EBUSY, "it is on the move already");
		return;
	}
	if (row->phase != SEGMENT_STABLE || !t->registered) {
		move_request_again(req); /* the scan has not come to it yet */
		return;
	}
	seg = store_find(t->store, req->spec.id);
	if (seg)
		record_get(seg, &record);
	if (!seg || seg_damaged(seg) || record.kind != RECORD_OWNED) {
		if (seg)
			seg_put(seg);
		move_request_fail(req, EIO, "its bytes are not here");
		return;
	}
	if (!peer_up(t->peers, req->spec.dst)) {
		seg_put(seg);
		move_request_unreachable(req, req->spec.dst, "the target is down");
		return;
	}
	if (has_to_queue(req)) {
		seg_put(seg);
		queue_up(req);
		return;
	}
	move_request_go(req, REQUEST_NEW, REQUEST_MOVING);
	move_request_arm(req, 0);
	source_start(t, req, row, seg);
}

/* Accepts the rollback; answered when the segment is open to programs again. */
static void begin_reclaim(struct move_request *req, const struct segment_row *row)
{
	struct move *m = move_find(req->t, req->spec.id);

	if (row->node != req->t->self) {
		move_request_fail(req, EREMOTE, "it is not this node's; ask its owner");
	} else if (!m || (m->state != S_ROLLED_BACK && !m->source.reclaim_accepted)) {
		if (given_comes_back(req->t, row))
			move_request_again(req); /* whether it is rolled back is not known yet */
		else
			move_request_fail(req, EINVAL, "it is not rolled back");
	} else if (m->request) {
		move_request_fail(req, EBUSY, "it is being reclaimed already");
	} else {
		m->request = req;
		move_request_go(req, REQUEST_NEW, REQUEST_MOVING);
		given_reclaim(m);
	}
}

/* ---- beginning, waiting, ending -------------------------------------------------------------- */

static void fail_no_quorum(struct move_request *req)
{
	move_request_fail(req, EROFS, "no quorum: the cluster can't agree on the move now");
}

/* Waits for a quorum: a node that has just started knows no leader yet, and an election takes
   time. */
static void without_quorum(struct move_request *req)
{
	uint64_t now = clock_ms();

	if (!req->no_quorum_since_ms)
		req->no_quorum_since_ms = now;
	if (now - req->no_quorum_since_ms >= QUORUM_MS)
		fail_no_quorum(req);
	else
		move_request_again(req);
}

/* WAITING needs a quorum, unless for pages: only a quorum can settle or abort. */
static void waiting_tick(struct move_request *req)
{
	struct move *m = move_find(req->t, req->spec.id);
	uint64_t now = clock_ms();

	if ((m && m->state == T_TAKEN && !m->target.has_every_page) ||
	    meta_has_quorum(req->t->meta))
		req->no_quorum_since_ms = 0;
	else if (!req->no_quorum_since_ms)
		req->no_quorum_since_ms = now;
	if (req->no_quorum_since_ms && now - req->no_quorum_since_ms >= QUORUM_MS)
		fail_no_quorum(req);
	else
		move_request_arm(req, AGAIN_MS);
}

/* Returns whether the segment is where it was, under the name that it had. False: the request is
   answered, or begins again. */
static bool still_means(struct move_request *req, const struct segment_row *row)
{
	int rc = move_request_check_name(req, row);

	if (req->spec.from && row->node != req->spec.from)
		move_request_fail(req, ENOENT, "another move has taken it away");
	else if (rc == -ESTALE && !meta_has_quorum(req->t->meta))
		without_quorum(req); /* newer tables may show that name */
	else if (rc)
		move_request_fail(req, -rc, "it has another name by now");
	else
		return true;
	return false;
}

/* A receiver has a segment as soon as it is taken, which the tables show a little later, then perhaps under another
   name: its prepare may not have come here yet. Returns true where the request waits for that. */
static bool wait_for_arrival(struct move_request *req, const struct segment_row *row)
{
	struct migrate_request *spec = &req->spec;
	struct move *m = move_find(req->t, spec->id);

	if (row->node == req->t->self || spec->dst == req->t->self || req->of_node ||
	    (spec->from && spec->from != req->t->self) || !m || m->state != T_TAKEN)
		return false;
	if (req->cancelled) {
		move_request_fail(req, EINTR, "cancelled");
		return true;
	}
	if (row->epoch <= m->epoch && strcmp(spec->from_name, row->name) == 0) {
		if (strcmp(spec->dst_name, row->name) == 0)
			memcpy(spec->dst_name, m->name, sizeof(spec->dst_name));
		memcpy(spec->from_name, m->name, sizeof(spec->from_name));
	}
	wait_here(req, m);
	return true;
}

/* Takes the names from the row that the request begins with: an earlier look may have found those of before an arrival. */
static void name_by_row(struct migrate_request *spec, const struct segment_row *row)
{
	spec->by_id = false;
	memcpy(spec->from_name, row->name, sizeof(spec->from_name));
	if (!spec->dst_name[0])
		memcpy(spec->dst_name, row->name, sizeof(spec->dst_name));
}

/* A move in steps is asked for by a program that has the segment, where it is. Returns whether the
   request was answered. */
static bool not_in_steps(struct move_request *req, const struct segment_row *row,
			 const struct node_row *dst)
{
	char owner[RAMP_NODE_NAME_MAX + 1];

	if (!req->spec.in_steps)
		return false;
	if (row->node == req->spec.dst && req->step < SESSION_TAKEN) {
		move_request_fail(req, EALREADY, "it is on node %s already", dst->name);
		return true;
	}
	if (row->node == req->t->self || row->node == req->spec.dst)
		return false;
	move_node_name(req->t, row->node, owner);
	move_request_fail(req, EREMOTE, "it is on node %s", owner);
	return true;
}

void move_request_begin(struct move_request *req)
{
	struct transfers *t = req->t;
	struct segment_row row;
	struct node_row node;
	bool given;
	int rc;

	if (req->state != REQUEST_NEW)
		move_request_go(req, req->state, REQUEST_NEW);
	rc = meta_segment(t->meta, req->spec.id, &row);
	if (rc == 0 && (row.unlinked || row.phase == SEGMENT_ORPHAN))
		rc = -ENOENT;
	if (rc) {
		move_request_fail(req, -rc, "%s",
				  rc == -ENOENT ? "no such segment" : strerror(-rc));
		return;
	}
	if (req->spec.by_id)
		name_by_row(&req->spec, &row);
	if (req->spec.reclaim) {
		begin_reclaim(req, &row);
		return;
	}
	if (row.node != t->self && req->of_node) {
		/* Only the asking node knows whether the request follows it there. */
		move_request_fail(req, ESTALE, "it is not this node's any more");
		return;
	}
	if (meta_node(t->meta, req->spec.dst, &node) || node.role == NODE_REMOVED) {
		move_request_fail(req, ENOENT, "no such node");
		return;
	}
	if (wait_for_arrival(req, &row) || not_in_steps(req, &row, &node))
		return;
	if (row.node == req->spec.dst) {
		bool wait = req->spec.wait_stable && !req->cancelled && row.phase != SEGMENT_STABLE;

		if (strcmp(row.name, req->spec.dst_name) != 0)
			move_request_fail(req, EEXIST, "it is on node %s already, as %s", node.name,
					  row.name);
		else if (wait)
			wait_there(req, &row);
		else
			move_request_done(req, 0, "");
		return;
	}
	if (!still_means(req, &row))
		return;
	given = row.node == t->self && is_given(req);
	if (req->cancelled && !given && row.node != req->owner) {
		move_request_fail(req, EINTR, "cancelled");
		return;
	}
	if (!given && !req->cancelled && !meta_has_quorum(t->meta)) {
		without_quorum(req);
		return;
	}
	req->no_quorum_since_ms = 0;
	if (row.node == t->self)
		begin_here(req, &row);
	else
		move_request_ask_owner(req, &row);
}

/* Those to other targets do not wait for a target that is slow. */
void move_requests_admit(struct transfers *t)
{
	struct move_request *req;

	for (size_t i = 0; i < PAIRS_MAX; i++)
		while ((req = TAILQ_FIRST(&t->pairs[i].queue)) && !has_to_queue(req))
			move_request_begin(req);
}

/* The deadline has come while a move is under way here. */
static void moving_timeout(struct move_request *req)
{
	struct move *m = move_find(req->t, req->spec.id);
	enum move_state state = m ? m->state : MOVE_END;

	if (!m || m->request != req || source_past_return(m)) {
		move_request_fail(req, EINPROGRESS, "the move continues by itself");
		return;
	}
	if (req->gave_up) {
		move_request_fail(req, EBUSY, "it could not be moved in time (%s)",
				  move_state_name(state));
		return;
	}
	req->gave_up = true;
	req->deadline_ms = clock_ms() + GRACE_MS;
	move_request_arm(req, 0);
	/* This may answer at once, which frees `req`. */
	if (state == S_CONNECTING)
		source_cancel(m, EHOSTUNREACH, "the target does not answer");
	else if (state == S_PREPARING)
		source_cancel(m, EROFS, "no quorum: the cluster did not agree in time");
	else if (!source_cancel(m, EBUSY, "programs could not be stopped in time"))
		move_request_fail(req, EINPROGRESS, "the move continues by itself");
}

static void on_timeout(struct move_request *req)
{
	struct pull_progress p;

	switch (req->state) {
	case REQUEST_MOVING:
		moving_timeout(req);
		return;
	case REQUEST_WAITING:
		if (req->no_quorum_since_ms)
			fail_no_quorum(req);
		else if (pull_progress(req->t->pull, req->spec.id, &p) == 0 && p.pages_all)
			move_request_fail(req, EBUSY, "still being pulled, %" PRIu64 " %%",
					  (p.pages_all - p.pages_missing) * 100 / p.pages_all);
		else
			move_request_fail(req, EBUSY, "it is on the move already");
		return;
	case REQUEST_REMOTE:
		move_request_send_cancel(req);
		move_request_fail(req, EINPROGRESS,
				  "its owner has not answered; the move may continue by itself");
		return;
	case REQUEST_SEEING:
		move_request_fail(req, EINPROGRESS,
				  "it is moved, but this node's tables are behind");
		return;
	case REQUEST_NEW:
	case REQUEST_QUEUED:
	case REQUEST_AGAIN:
		if (req->no_quorum_since_ms)
			fail_no_quorum(req);
		else
			move_request_fail(req, EBUSY, "it is on the move already");
	}
}

void move_request_tick(struct move_request *req)
{
	struct segment_row row;

	if (req->deadline_ms && clock_ms() >= req->deadline_ms) {
		on_timeout(req);
	} else if (req->state == REQUEST_AGAIN) {
		move_request_begin(req);
	} else if (req->state == REQUEST_SEEING) {
		move_request_arm(req, AGAIN_MS);
		move_request_seeing_look(req);
	} else if (req->state == REQUEST_REMOTE) {
		move_request_arm(req, REMOTE_AGAIN_MS);
		if (meta_segment(req->t->meta, req->spec.id, &row) ||
		    (row.node != req->owner && !peer_up(req->t->peers, req->owner)))
			move_request_begin(
				req); /* unlinked; or moved, and the asked node is down */
		else
			move_request_send(req); /* MIGRATE or ANSWER may have been lost */
	} else if (req->state == REQUEST_WAITING) {
		waiting_tick(req);
	} else {
		move_request_arm(req, 0);
	}
}

void move_request_go_on(struct move_request *req, enum session_step step, uint32_t hold_ms)
{
	struct move *m = move_find(req->t, req->spec.id);

	if (!req->spec.in_steps || req->cancelled)
		return;
	if (step > req->step)
		req->step = (uint8_t)step;
	if (!m || m->request != req)
		return; /* it continues when it has come so far */
	if (step == SESSION_HOLD)
		hold_extend(m, hold_ms);
	else
		source_go(m);
}

void move_request_cancel(struct move_request *req)
{
	struct move *m = move_find(req->t, req->spec.id);

	req->cancelled = true;
	switch (req->state) {
	case REQUEST_MOVING:
		if (m && m->request == req && !source_cancel(m, EINTR, "cancelled")) {
			/* It is given: the request waits for pages no longer. */
			req->spec.wait_stable = false;
			move_look(req->t, req->spec.id);
		}
		return;
	case REQUEST_REMOTE:
		move_request_send(req);
		if (!peer_up(req->t->peers, req->owner))
			move_request_cancelled_unseen(req);
		return;
	case REQUEST_SEEING:
		return;
	case REQUEST_AGAIN:
		if (!req->spec.reclaim && (req->owner || is_given(req) || is_there(req)))
			return; /* the next look shows how it ended */
		move_request_fail(req, EINTR, "cancelled");
		return;
	default:
		move_request_fail(req, EINTR, "cancelled");
	}
}

void move_requests_look(struct transfers *t, ramp_segment_t id)
{
	struct move_request *req, *next;

	if (t->closing)
		return;
	for (req = LIST_FIRST(&t->requests_of[id % MOVE_BUCKETS]); req; req = next) {
		next = LIST_NEXT(req, of_segment);
		if (req->spec.id != id)
			continue;
		if (req->state == REQUEST_SEEING)
			move_request_seeing_look(req);
		else if (req->state == REQUEST_WAITING && !move_find(t, id))
			move_request_begin(req);
	}
}
