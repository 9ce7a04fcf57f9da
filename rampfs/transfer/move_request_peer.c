/*
 * Requests of other nodes to move the segments that this node owns.
 *
 * Happy path: MIGRATE begins a request of this node's own (move_request.c); PROGRESS and STEP go to
 * the node that asks, then one ANSWER.
 *
 * How it fails: a request that is repeated gets the answer that it had. ESTALE says that this node
 * is not the owner, or not any more when the move was to begin. A CANCEL with an unknown number
 * gets no answer: the asking node sends MIGRATE before it, which does. A node that hung up may
 * never cancel its requests: those that have no move yet end.
 */
#include "move_request_peer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "figures.h"
#include "move_message.h"
#include "move_request.h"

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

/* Answers again a request that was answered; returns false where it was not. */
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

/* Not kept for answer_again: the asking node looks at its tables, and repeats the same number. */
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

	if (result == 0)
		figures_send(r->t, r->node, r->id); /* the ANSWER follows it */
	if (result == -ESTALE)
		not_the_owner(r->t, r->node, r->request);
	else if (result != -ESHUTDOWN) /* else the node asks again, this daemon or the next */
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

static struct move_request *remote_find(struct transfers *t, ramp_node_t from, uint64_t request)
{
	struct move_request *req;

	LIST_FOREACH (req, &t->requests, link) {
		struct remote_asker *r = req->arg;

		if (req->of_node && r->node == from && r->request == request)
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
	struct move_request *known, *req;

	(void)incarnation;
	if (!move_decoded(body, proto_get_migrate(body, &mm)))
		return;
	known = remote_find(t, from, mm.request);
	if (known)
		known->unheard = false;
	if (!t->started || known || answer_again(t, from, mm.request))
		return; /* it is repeated, because messages may be lost */
	if (mm.mode >= TRANSFER_MODES && mm.mode != TRANSFER_UNSAID) {
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
	request.max_rounds = mm.max_rounds;
	request.wait_stable = mm.wait_stable;
	request.force = mm.force;
	request.timeout_ms = mm.timeout_ms;
	request.limit_bytes_s = mm.limit_bytes_s;
	request.batch = mm.batch;
	request.queues = mm.queues;
	request.progress = mm.progress ? remote_progress : NULL;
	request.step = mm.trace ? remote_step : NULL;
	req = move_request_new(t, &request, remote_done, r);
	req->of_node = true;
	move_request_enter(req);
}

static void on_cancel(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
		      struct wire_r *body)
{
	struct msg_cancel c;
	struct move_request *req;

	(void)incarnation;
	if (!move_decoded(body, proto_get_cancel(body, &c)))
		return;
	req = remote_find(arg, from, c.request);
	if (req)
		move_request_cancel(req);
	else
		answer_again(arg, from, c.request);
}

/* Moves under way continue, and the node may repeat their MIGRATE under the same number; or its
   daemon has died. Requests without a move end: a daemon that died can't cancel them any more, and
   one that lives asks again. */
void move_requests_peer_down(struct transfers *t, ramp_node_t node)
{
	struct move_request *req, *next;

	for (req = LIST_FIRST(&t->requests); req; req = next) {
		struct remote_asker *r = req->arg;

		next = LIST_NEXT(req, link);
		if (!req->of_node || r->node != node)
			continue;
		if (req->state == REQUEST_MOVING)
			req->unheard = true;
		else
			move_request_done(req, -ESHUTDOWN, "the asking node has hung up");
	}
}

void move_request_peer_listen(struct transfers *t)
{
	peers_on(t->peers, PROTO_MIGRATE, on_migrate, t);
	peers_on(t->peers, PROTO_CANCEL, on_cancel, t);
}
