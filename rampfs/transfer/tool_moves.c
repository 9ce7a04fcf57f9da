/*
 * Requests of tools (rampfs-migrate), which come over the session socket.
 *
 * Happy path: a tool whose user may move the segment makes a request (move_request.c), and is told
 * how far it is. It fails by one answer with the reason; Ctrl-C, or a tool that has exited, is a
 * cancel.
 */
#include "tool_moves.h"

#include <errno.h>
#include <string.h>

#include "base/rate.h"

#include "move_request.h"
#include "tool_give_up.h"
#include "tool_pulls.h"

static void tool_done(void *arg, int result, const char *text)
{
	tool_answer(arg, result, text);
}

static void tool_watch(void *arg, uint64_t done_pages, uint64_t all_pages, const char *state)
{
	tool_progress(arg, done_pages, all_pages, state);
}

static void tool_waits(void *arg, enum session_step step, uint32_t ms)
{
	tool_held(arg, (uint8_t)step, ms);
}

static void tool_traced(void *arg, const struct transfer_step *step)
{
	tool_step(arg, step->node_name, step->page, step->at_ns, step->name);
}

/* uid 0 or the segment's owner may move it. */
static void tool_migrate_asked(void *arg, struct tool_request *request,
			       const struct tool_migrate *what)
{
	struct transfers *t = arg;
	struct migrate_request mr = {
		.id = what->id, .mode = what->mode, .max_rounds = what->rounds};
	struct segment_row row;
	struct node_row node;
	struct ramp_err err;

	if (t->closing || !t->started) {
		tool_answer(request, -ESHUTDOWN, "the daemon ends, or has not begun");
	} else if (meta_segment(t->meta, what->id, &row)) {
		tool_answer(request, -ENOENT, "no such segment");
	} else if (what->uid != 0 && what->uid != row.uid) {
		tool_answer(request, -EPERM, "only its owner and root may move it");
	} else if (what->mode == TOOL_RECLAIM) {
		mr.dst = t->self;
		mr.mode = TRANSFER_LAZY;
		mr.reclaim = true;
		move_request_start(t, &mr, tool_done, request);
	} else if (what->mode >= TRANSFER_MODES && what->mode != TRANSFER_UNSAID) {
		tool_answer(request, -EINVAL, "unknown mode");
	} else if (what->limit_bytes_s && what->limit_bytes_s < RATE_MIN) {
		tool_answer(request, -EINVAL, "a limit is 1M a second at least");
	} else if (what->rounds > TRANSFER_ROUNDS_MAX) {
		tool_answer(request, -EINVAL, "too many rounds");
	} else if (what->in_steps && what->mode == TRANSFER_AUTO) {
		tool_answer(request, -EINVAL, "mode auto is not for moves in steps");
	} else if (what->in_steps &&
		   (what->step < SESSION_CONNECTED || what->step > SESSION_TAKEN)) {
		tool_answer(request, -EINVAL, "unknown step");
	} else if (meta_node_by_name(t->meta, what->dst_node, &node)) {
		tool_answer(request, ramp_err_set(&err, ENOENT, "no such node: %s", what->dst_node),
			    err.text);
	} else if (what->dst_name[0] && !proto_name_ok(what->dst_name)) {
		tool_answer(request, -EINVAL, "not a segment's name");
	} else {
		mr.dst = node.node;
		mr.by_id = true;
		memcpy(mr.dst_name, what->dst_name, sizeof(mr.dst_name));
		mr.wait_stable = what->wait;
		mr.force = what->force;
		mr.limit_bytes_s = what->limit_bytes_s;
		mr.batch = what->batch;
		mr.queues = what->queues;
		mr.progress = what->progress ? tool_watch : NULL;
		mr.step = what->trace ? tool_traced : NULL;
		mr.in_steps = what->in_steps;
		mr.first_step = what->step;
		mr.hold_ms = what->hold_ms;
		mr.held = tool_waits;
		move_request_start(t, &mr, tool_done, request);
	}
}

static struct move_request *find_request(struct transfers *t, const struct tool_request *request)
{
	struct move_request *req;

	LIST_FOREACH (req, &t->requests, link)
		if (req->done == tool_done && req->arg == request)
			return req;
	return NULL;
}

static void tool_cancelled(void *arg, struct tool_request *request)
{
	struct move_request *req = find_request(arg, request);

	if (req)
		move_request_cancel(req);
	else
		tool_pull_cancel(arg, request);
}

static void tool_goes_on(void *arg, struct tool_request *request, uint8_t step, uint32_t hold_ms)
{
	struct move_request *req = find_request(arg, request);

	if (req)
		move_request_go_on(req, step, hold_ms);
}

void tool_moves_listen(struct transfers *t)
{
	struct programs_tools tools = {
		.migrate = tool_migrate_asked,
		.cancel = tool_cancelled,
		.go = tool_goes_on,
		.pull = tool_pull_asked,
		.give_up = tool_give_up_asked,
		.arg = t,
	};

	programs_set_tools(t->programs, &tools);
}
