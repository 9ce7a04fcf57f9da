/*
 * Requests of programs to give up the pages that have not come (GIVE_UP of the session).
 *
 * Happy path: a program that has the segment open for writing asks. A worker gives the pages up (pull_give_up): the
 * page states beside the bytes say so before the request is answered. From there on it is as after the end of a
 * source: the pull is over, settled is proposed, and the source frees its pages and its record (R7). No row and no
 * message is new (tests/model/transfer.pml, GIVE_UP).
 *
 * How it fails: a pull that has not begun is waited for. When the daemon ends in the middle, the program asks the
 * next one, which pulls meanwhile what was not given up.
 */
#include "tool_give_up.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "memory/pages.h"
#include "memory/record.h"

#define TRIES  200 /* to find that the pull has begun: 2 s */
#define TRY_US 10000u

struct giving_up {
	struct transfers *t; /* a reference */
	struct tool_request *request;
	struct seg *seg; /* a reference */
	bool zeros;
	int rc; /* the worker's, as the next one */
	uint64_t count;
};

static void give_up_work(void *arg)
{
	struct giving_up *giving = arg;

	for (int i = 0; i < TRIES; i++) {
		giving->rc =
			pull_give_up(giving->t->pull, giving->seg, giving->zeros, &giving->count);
		if (giving->rc != -EAGAIN)
			return;
		usleep(TRY_US);
	}
}

/* Control loop. */
static void given_up(void *arg)
{
	struct giving_up *giving = arg;
	struct transfers *t = giving->t;

	if (giving->count)
		log_warn("segment %" PRIu64 ": a program has given up %" PRIu64
			 " pages that had not come: %s",
			 seg_id(giving->seg), giving->count,
			 giving->zeros ? "they are zeros" : "they are lost");
	tool_answer(giving->request, giving->rc,
		    giving->rc == -EAGAIN   ? "its pages do not come yet"
		    : giving->rc == -ENOENT ? "it was removed, or taken back"
		    : giving->rc	    ? strerror(-giving->rc)
					    : "");
	seg_put(giving->seg);
	free(giving);
	t->jobs--;
	transfers_put(t);
}

static int giving_up_begin(struct transfers *t, struct tool_request *request, struct seg *seg,
			   const struct tool_give_up *what)
{
	struct giving_up *giving = calloc(1, sizeof(*giving));

	if (!giving)
		return -ENOMEM;
	giving->t = t;
	transfers_get(t);
	giving->request = request;
	giving->seg = seg_get(seg);
	giving->zeros = what->zeros;
	t->jobs++;
	tool_progress(request, 0, pages_missing(seg), "giving up");
	loop_work_of(t->loop, what->uid, give_up_work, given_up, giving);
	return 0;
}

void tool_give_up_asked(void *transfers, struct tool_request *request,
			const struct tool_give_up *what)
{
	struct transfers *t = transfers;
	struct seg *seg;
	struct record record;
	int rc = -EREMOTE;

	if (t->closing || !t->started) {
		tool_answer(request, -ESHUTDOWN, "the daemon ends, or has not begun");
		return;
	}
	seg = store_find(t->store, what->id);
	if (seg && !seg_damaged(seg)) {
		record_get(seg, &record);
		rc = record_serves(&record) ? 0 : -EREMOTE;
	}
	if (rc)
		tool_answer(request, rc, "it is not on this node");
	else if (record.kind != RECORD_TAKEN || pages_missing(seg) == pages_lost(seg))
		tool_answer(request, 0, "");
	else if (giving_up_begin(t, request, seg, what))
		tool_answer(request, -ENOMEM, "the daemon is out of memory");
	if (seg)
		seg_put(seg);
}
