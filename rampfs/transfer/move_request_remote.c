/*
 * What one node asks another: a move of what that one owns, and its answer.
 *
 * Happy path: who asks sends MIGRATE to the owner, which makes an ask of its own of it (asks.c) and
 * sends PROGRESS and STEP meanwhile, then one ANSWER; that is handed on when the asker's own tables
 * have come as far as the answerer's.
 *
 * How it fails: messages are lost and daemons die, so MIGRATE is repeated under the same number,
 * and an answer that was given is given again. ESTALE is "not mine", or not any more when it was to
 * begin: the asker looks at its tables. A cancel may come to a daemon that has not heard of the
 * move: only the owner knows whether it is given, so MIGRATE goes before it, and who is asked
 * answers nothing for a number it does not know. A node that hangs up may never cancel what its
 * daemon asked for: what is not under way yet ends.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "move_request.h"

#define REMOTE_SHORT_MS 300u /* the owner gives up earlier than who asked it */

/* ---- another node owns it -------------------------------------------------------------------- */

static void migrate_send(struct move_request *req)
{
	uint64_t now = move_now_ms(), left = 0;
	struct msg_migrate mm = {
		.request = req->handle,
		.id = req->spec.id,
		.dst = req->spec.dst,
		.mode = (uint8_t)req->spec.mode,
		.wait_stable = req->spec.wait_stable,
		.progress = req->spec.progress != NULL,
		.trace = req->spec.step != NULL,
	};

	if (req->deadline_ms) {
		left = req->deadline_ms > now ? req->deadline_ms - now : 1;
		mm.timeout_ms =
			(uint32_t)(left > 2 * REMOTE_SHORT_MS ? left - REMOTE_SHORT_MS : left);
	}
	memcpy(mm.name, req->spec.dst_name, sizeof(mm.name));
	memcpy(mm.from_name, req->spec.from_name, sizeof(mm.from_name));
	MOVE_SEND(req->t, req->owner, PROTO_MIGRATE, proto_put_migrate, &mm);
}

void move_request_send_cancel(struct move_request *req)
{
	struct msg_cancel c = {.request = req->handle};

	MOVE_SEND(req->t, req->owner, PROTO_CANCEL, proto_put_cancel, &c);
}

/* The owner may be another daemon than the one that was asked: it hears first what is cancelled,
   finds it where it is given, and else begins it for as long as the next message takes. */
void move_request_send(struct move_request *req)
{
	migrate_send(req);
	if (req->cancelled)
		move_request_send_cancel(req);
}

void move_request_cancelled_unseen(struct move_request *req)
{
	move_request_fail(
		req, EINTR,
		"cancelled, but its owner is down: rampfs-status shows what becomes of it");
}

static bool is_elsewhere(const struct move_request *req, const struct segment_row *row)
{
	return row->phase == SEGMENT_MOVING &&
	       (row->dst != req->spec.dst || strcmp(row->dst_name, req->spec.dst_name) != 0);
}

/* Whether it is on the move its owner knows; our tables may show one that is over. */
void move_request_ask_owner(struct move_request *req, const struct segment_row *row)
{
	if (!peer_up(req->t->peers, row->node)) {
		if (req->cancelled)
			move_request_cancelled_unseen(req);
		else if (is_elsewhere(req, row))
			move_request_fail(req, EBUSY, "it is on the move already");
		else
			move_request_unreachable(req, row->node, "its owner is down");
		return;
	}
	req->owner = row->node;
	req->state = REQUEST_REMOTE;
	move_request_arm(req, REMOTE_AGAIN_MS);
	move_request_send(req);
}

void move_request_seeing_look(struct move_request *req)
{
	struct segment_row row;
	int rc = meta_segment(req->t->meta, req->spec.id, &row);

	if (rc == -ENOENT || (rc == 0 && row.epoch >= req->epoch))
		move_request_done(req, 0, "");
}

static void on_answer(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
		      struct wire_r *body)
{
	struct transfers *t = arg;
	struct msg_answer answer;
	struct move_request *req;

	(void)incarnation;
	if (!move_heard(body, proto_get_answer(body, &answer)))
		return;
	req = move_request_find(t, answer.request);
	if (!req || req->state != REQUEST_REMOTE || req->owner != from)
		return;
	if (answer.code == ESTALE) {
		move_request_again(
			req); /* it is not the owner: our tables were behind, or its are */
	} else if (answer.code) {
		move_request_done(req, -(int)answer.code, answer.text);
	} else {
		req->state = REQUEST_SEEING;
		req->epoch = answer.epoch;
		move_request_arm(req, AGAIN_MS);
		move_request_seeing_look(req);
	}
}

static void on_progress(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			struct wire_r *body)
{
	struct transfers *t = arg;
	struct msg_progress p;
	struct move_request *req;

	(void)incarnation;
	if (!move_heard(body, proto_get_progress(body, &p)))
		return;
	req = move_request_find(t, p.request);
	if (req && req->owner == from)
		move_request_progress(req, p.done_pages, p.all_pages, p.state);
}

/* A step of a trace that this node's tool asked for. */
void move_request_on_step(struct transfers *t, ramp_node_t from, const struct msg_step *s)
{
	struct move_request *req = move_request_find(t, s->about);
	char name[RAMP_NODE_NAME_MAX + 1] = "";
	struct transfer_step step = {s->node, name, s->page, s->at_ns, s->name};

	if (!req || req->owner != from)
		return;
	if (s->node)
		move_node_name(t, s->node, name);
	move_request_step(req, &step);
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

/* Not remembered: the asker looks at its tables and asks again under the same number. */
static void not_the_owner(struct transfers *t, ramp_node_t node, uint64_t request)
{
	struct answered stale = {
		.node = node,
		.answer = {.request = request, .code = ESTALE},
	};

	answer_send(t, &stale);
}

static void remote_done(void *arg, int result, const char *text)
{
	struct remote_asker *r = arg;

	if (result == -ESTALE)
		not_the_owner(r->t, r->node, r->request);
	else if (result != -ESHUTDOWN) /* else it is asked again, of this daemon or the next */
		remote_answer(r->t, r->node, r->request, r->id, result, text);
	free(r);
}

bool move_request_is_remote(const struct move_request *req)
{
	return req->done == remote_done;
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

static struct move_request *remote_find(struct transfers *t, ramp_node_t from, uint64_t request)
{
	struct move_request *req;

	LIST_FOREACH (req, &t->requests, link) {
		struct remote_asker *r = req->arg;

		if (move_request_is_remote(req) && r->node == from && r->request == request)
			return req;
	}
	return NULL;
}

static void on_migrate(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
		       struct wire_r *body)
{
	struct transfers *t = arg;
	struct migrate_request request = {0};
	struct segment_row row;
	struct remote_asker *r;
	struct msg_migrate mm;
	struct move_request *known;

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
	memcpy(request.from_name, mm.from_name, sizeof(request.from_name));
	request.mode = mm.mode;
	request.wait_stable = mm.wait_stable;
	request.timeout_ms = mm.timeout_ms;
	request.progress = mm.progress ? remote_progress : NULL;
	request.step = mm.trace ? remote_step : NULL;
	move_request_start(t, &request, remote_done, r);
}

static void on_cancel(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
		      struct wire_r *body)
{
	struct msg_cancel c;
	struct move_request *req;

	(void)incarnation;
	if (!move_heard(body, proto_get_cancel(body, &c)))
		return;
	req = remote_find(arg, from, c.request);
	if (req)
		move_request_cancel(req);
	else /* or it is unknown: who asks repeats its MIGRATE before this, and gets that answered
	      */
		answer_again(arg, from, c.request);
}

void move_requests_peer_up(struct transfers *t, ramp_node_t node)
{
	struct move_request *req;

	LIST_FOREACH (req, &t->requests, link)
		if (req->state == REQUEST_REMOTE && req->owner == node)
			move_request_arm(req, 1); /* the tick asks again */
}

/* What it asked and is under way goes on; perhaps it asks again under the same number, perhaps its
   daemon died. What has begun nothing ends: a daemon that died can't cancel it any more, and one
   that lives asks again. */
void move_requests_peer_down(struct transfers *t, ramp_node_t node)
{
	struct move_request *req, *next;

	for (req = LIST_FIRST(&t->requests); req; req = next) {
		struct remote_asker *r = req->arg;

		next = LIST_NEXT(req, link);
		if (!move_request_is_remote(req) || r->node != node)
			continue;
		if (req->state == REQUEST_MOVING)
			req->unheard = true;
		else
			move_request_done(req, -ESHUTDOWN, "who asked has hung up");
	}
}

void move_requests_listen(struct transfers *t)
{
	peers_on(t->peers, PROTO_MIGRATE, on_migrate, t);
	peers_on(t->peers, PROTO_ANSWER, on_answer, t);
	peers_on(t->peers, PROTO_PROGRESS, on_progress, t);
	peers_on(t->peers, PROTO_CANCEL, on_cancel, t);
}
