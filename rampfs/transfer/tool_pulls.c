/*
 * Requests of programs for pages that have not come yet (PULL of the session).
 *
 * Happy path: a program that has the segment open asks for a range. The range becomes an order of pull/
 * (pull_order_begin), and the request is answered when all of it is here.
 *
 * How it fails: by one answer with the reason. A program that has given up, or exited, ends the order; pages
 * that have come stay. When the daemon ends the connection ends, and the program asks the next one.
 */
#include "tool_pulls.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/page.h"
#include "memory/pages.h"
#include "memory/record.h"

struct tool_pulling {
	LIST_ENTRY(tool_pulling) link; /* of transfers.pullings */
	struct transfers *t;	       /* a reference */
	struct tool_request *request;  /* it and the order are NULL: it was given up */
	struct pull_order *order;
	int result; /* of `done`, as the next one */
	uint64_t lost;
};

static void pulling_free(struct tool_pulling *pulling)
{
	LIST_REMOVE(pulling, link);
	transfers_put(pulling->t);
	free(pulling);
}

static void pulling_answer(struct tool_request *request, int result, uint64_t lost)
{
	struct ramp_err err = {0};

	switch (result) {
	case -EIO:
		ramp_err_set(&err, EIO,
			     "%" PRIu64
			     " pages of it were lost with their source; the others are here",
			     lost);
		break;
	case -ENOSPC:
		ramp_err_set(&err, ENOSPC, "the node has no room for it now");
		break;
	case -EREMOTE:
		ramp_err_set(&err, EREMOTE, "it is not on this node");
		break;
	case -ENOENT:
		ramp_err_set(&err, ENOENT, "it was removed");
		break;
	default:
		break;
	}
	tool_answer(request, result, err.text);
}

/* Control loop. */
static void pulling_over(void *arg)
{
	struct tool_pulling *pulling = arg;

	if (pulling->order)
		pull_order_end(pulling->order);
	if (pulling->request)
		pulling_answer(pulling->request, pulling->result, pulling->lost);
	pulling_free(pulling);
}

/* Pull's thread. */
static void pulling_done(void *arg, int result, uint64_t lost)
{
	struct tool_pulling *pulling = arg;

	pulling->result = result;
	pulling->lost = lost;
	loop_post(pulling->t->loop, pulling_over, pulling);
}

static int pulling_begin(struct transfers *t, struct tool_request *request, struct seg *seg,
			 uint64_t first, uint64_t count)
{
	struct tool_pulling *pulling = calloc(1, sizeof(*pulling));

	if (!pulling)
		return -ENOMEM;
	pulling->t = t;
	transfers_get(t);
	pulling->request = request;
	LIST_INSERT_HEAD(&t->pullings, pulling, link);
	/* `done` is posted to this thread: it comes after the order is known. */
	pulling->order = pull_order_begin(t->pull, seg, first, count, pulling_done, pulling);
	if (pulling->order) {
		tool_progress(request, 0, count, "pulling");
		return 0;
	}
	pulling_free(pulling);
	return -ENOMEM;
}

static void pull_range(struct transfers *t, struct tool_request *request, struct seg *seg,
		       const struct tool_pull *what)
{
	uint64_t size = seg_size(seg), end = size, first = what->offset / RAMP_PAGE_BYTES;
	struct record record;
	int rc = 0;

	if (what->len && what->len < size - what->offset)
		end = what->offset + what->len;
	record_get(seg, &record);
	if (!record_serves(&record))
		rc = -EREMOTE;
	else if (what->offset < size && !pages_local(seg, first, page_count(end) - first))
		rc = pulling_begin(t, request, seg, first, page_count(end) - first);
	else
		rc = 1;
	if (rc)
		pulling_answer(request, rc < 0 ? rc : 0, 0);
}

void tool_pull_asked(void *transfers, struct tool_request *request, const struct tool_pull *what)
{
	struct transfers *t = transfers;
	struct seg *seg;

	if (t->closing || !t->started) {
		tool_answer(request, -ESHUTDOWN, "the daemon ends, or has not begun");
		return;
	}
	seg = store_find(t->store, what->id);
	if (!seg) {
		pulling_answer(request, -EREMOTE, 0);
		return;
	}
	if (seg_damaged(seg))
		tool_answer(request, -EIO, "its bytes are damaged");
	else
		pull_range(t, request, seg, what);
	seg_put(seg);
}

/* Ends the order. Where it is over already, pulling_over is on its way and frees the rest. */
static void pulling_end(struct tool_pulling *pulling)
{
	bool posted = !pull_order_end(pulling->order);

	pulling->request = NULL;
	pulling->order = NULL;
	if (!posted)
		pulling_free(pulling);
}

void tool_pull_cancel(struct transfers *t, struct tool_request *request)
{
	struct tool_pulling *pulling;

	LIST_FOREACH (pulling, &t->pullings, link)
		if (pulling->request == request)
			break;
	if (!pulling)
		return;
	pulling_end(pulling);
	tool_answer(request, -EINTR, "it was given up");
}

void tool_pulls_close(struct transfers *t)
{
	struct tool_pulling *pulling, *next;

	for (pulling = LIST_FIRST(&t->pullings); pulling; pulling = next) {
		next = LIST_NEXT(pulling, link);
		if (!pulling->request)
			continue;
		tool_answer(pulling->request, -ESHUTDOWN, "");
		pulling_end(pulling);
	}
}
