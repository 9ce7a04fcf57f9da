/*
 * Requests to the node that owns a segment.
 *
 * Happy path: MIGRATE goes to the owner. Its PROGRESS and STEP are handed on, then its ANSWER, once
 * this node's tables have come as far as the owner's.
 *
 * How it fails: messages are lost and daemons die, so MIGRATE is repeated under the same number.
 * ESTALE says that the node is not the owner, or was not any more when the move was to begin: this
 * node looks at its tables again. A CANCEL may come to a daemon that has not heard of the request.
 * Only the owner knows whether the segment is given, so MIGRATE goes before each CANCEL.
 */
#include "move_request_remote.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"

#include "move_message.h"
#include "traces.h"

#define REMOTE_SHORT_MS 300u /* the owner gives up earlier than the asking node, by this */

static void migrate_send(struct move_request *req)
{
	uint64_t now = clock_ms(), left = 0;
	struct msg_migrate mm = {
		.request = req->handle,
		.id = req->spec.id,
		.dst = req->spec.dst,
		.mode = (uint8_t)req->spec.mode,
		.max_rounds = req->spec.max_rounds,
		.wait_stable = req->spec.wait_stable,
		.force = req->spec.force,
		.progress = req->spec.progress != NULL,
		.trace = req->spec.step != NULL,
		.limit_bytes_s = req->spec.limit_bytes_s,
		.batch = req->spec.batch,
		.queues = req->spec.queues,
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

/* The owner may have another daemon than the one that was asked. From MIGRATE it learns the request
   that CANCEL names: it finds a move that is given; else it begins one, until CANCEL comes right
   after. */
void move_request_send(struct move_request *req)
{
	migrate_send(req);
	if (req->cancelled)
		move_request_send_cancel(req);
}

void move_request_cancelled_unseen(struct move_request *req)
{
	move_request_fail(req, EINTR,
			  "cancelled, but its owner is down: rampfs-status shows how it ends");
}

static bool is_elsewhere(const struct move_request *req, const struct segment_row *row)
{
	return row->phase == SEGMENT_MOVING &&
	       (row->dst != req->spec.dst || strcmp(row->dst_name, req->spec.dst_name) != 0);
}

/* Whether it is moving already the owner knows: our tables may show a move that has ended. */
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
	move_request_go(req, REQUEST_NEW, REQUEST_REMOTE);
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
	if (!move_decoded(body, proto_get_answer(body, &answer)))
		return;
	req = move_request_find(t, answer.request);
	if (!req || req->state != REQUEST_REMOTE || req->owner != from)
		return;
	if (answer.code == ESTALE) {
		move_request_again(req); /* it is not the owner: its tables or ours are behind */
	} else if (answer.code) {
		move_request_done(req, -(int)answer.code, answer.text);
	} else {
		move_request_go(req, REQUEST_REMOTE, REQUEST_SEEING);
		req->epoch = answer.epoch;
		memcpy(req->chosen, answer.text, sizeof(req->chosen));
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
	if (!move_decoded(body, proto_get_progress(body, &p)))
		return;
	req = move_request_find(t, p.request);
	if (req && req->owner == from)
		move_request_progress(req, p.done_pages, p.all_pages, p.state);
}

/* Shows a step of a trace that a tool of this node asked for. */
static void show_step(struct transfers *t, ramp_node_t from, const struct msg_step *s)
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

/* A step of the target's, for a trace that is collected here; or of the source's, for a tool that
   asked here. */
static void on_step(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
		    struct wire_r *body)
{
	struct transfers *t = arg;
	struct msg_step s;

	(void)incarnation;
	if (move_decoded(body, proto_get_step(body, &s)) && !trace_take_step(t, from, &s))
		show_step(t, from, &s);
}

void move_requests_peer_up(struct transfers *t, ramp_node_t node)
{
	struct move_request *req;

	LIST_FOREACH (req, &t->requests, link)
		if (req->state == REQUEST_REMOTE && req->owner == node)
			move_request_arm(req, 1); /* the tick asks again */
}

void move_request_remote_listen(struct transfers *t)
{
	peers_on(t->peers, PROTO_ANSWER, on_answer, t);
	peers_on(t->peers, PROTO_PROGRESS, on_progress, t);
	peers_on(t->peers, PROTO_STEP, on_step, t);
}
