/*
 * A tool's request of many moves at once.
 *
 * Happy path: each segment becomes a request of its own (tool_requests.c), which goes up as one of
 * MIGRATE does, so that what a move needs (a look at /proc, a commit) is shared by those under way at the
 * same time. Each answer becomes a VERDICT; after the last one the ANSWER ends the connection.
 *
 * How it fails: each segment by itself. A tool that does not read its VERDICTs in time has them kept, and
 * sent again every AGAIN_MS; until they are sent they count in its user's quota. Segments beyond that are
 * not begun: they have no VERDICT, and the ANSWER says so (EUSERS). A tool that hangs up, or says CANCEL, cancels all that are not answered; the
 * batch lives until they are. A daemon that ends gives no VERDICT for what it has not finished.
 */
#include "tool_batch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/transfer_mode.h"
#include "base/visible.h"
#include "client/clients.h"
#include "client/conn.h"
#include "client/quota.h"
#include "tool_requests.h"

#define AGAIN_MS 5

/* One segment of a batch. */
struct batched {
	TAILQ_ENTRY(batched) link; /* in batch->waiting, then in batch->verdicts until it is sent */
	struct tool_batch *batch;
	ramp_segment_t segment;
	struct tool_request *request; /* NULL: it is answered */
	int result;
	char *text; /* NULL: none */
};

TAILQ_HEAD(batched_list, batched);

struct tool_batch {
	struct programs *programs;
	struct session_conn *conn; /* NULL: it has hung up */
	uid_t uid;
	struct tool_migrate what; /* of each, but for its id */
	struct batched_list waiting, verdicts;
	bool whole;	/* no more segments follow */
	bool refused;	/* the user has too many: the rest is not begun */
	bool cancelled; /* all that are waiting */
	bool ends;	/* the daemon does */
	uv_timer_t again;
};

static void batched_free(struct batched *of)
{
	quota_give(of->batch->programs->quota, of->batch->uid, QUOTA_BATCHED, 1);
	free(of->text);
	free(of);
}

static void batch_free(uv_handle_t *timer)
{
	struct tool_batch *batch = timer->data;

	batch->programs->conns->handles--;
	free(batch);
}

/* Ends it where nothing is left to wait for. */
static void batch_end(struct tool_batch *batch)
{
	struct batched *of;

	if (batch->conn || !TAILQ_EMPTY(&batch->waiting) ||
	    uv_is_closing((uv_handle_t *)&batch->again))
		return;
	while ((of = TAILQ_FIRST(&batch->verdicts))) {
		TAILQ_REMOVE(&batch->verdicts, of, link);
		batched_free(of);
	}
	uv_close((uv_handle_t *)&batch->again, batch_free);
}

/* ---- verdicts ------------------------------------------------------------------------------- */

static void say_again(uv_timer_t *timer);

/* Returns whether it went out; else it is tried again, or the connection is closed. */
static bool say(struct tool_batch *batch, const struct session_msg *msg)
{
	struct session_conn *conn = batch->conn;
	int rc = session_send(conn->fd, msg, NULL, 0, MSG_DONTWAIT);

	if (rc == -EAGAIN)
		uv_timer_start(&batch->again, say_again, AGAIN_MS, 0);
	else if (rc)
		conn_close(conn); /* calls tool_batch_gone */
	return rc == 0;
}

static void say_verdicts(struct tool_batch *batch)
{
	struct session_msg answer = {.type = SESSION_ANSWER};
	struct session_conn *conn = batch->conn;
	struct batched *of;

	answer.result = batch->ends ? ESHUTDOWN : batch->refused ? EUSERS : 0;
	if (answer.result == EUSERS)
		snprintf(answer.text, sizeof(answer.text),
			 "too many segments of this user are to be moved already");
	while ((of = TAILQ_FIRST(&batch->verdicts))) {
		/* The analyzer does not see that TAILQ_REMOVE took the one before out.
		   NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
		const uint32_t result = (uint32_t)-of->result;
		struct session_msg msg = {
			.type = SESSION_VERDICT, .result = result, .segment = of->segment};

		visible(msg.text, sizeof(msg.text), of->text ? of->text : "");
		if (!say(batch, &msg))
			return;
		TAILQ_REMOVE(&batch->verdicts, of, link);
		batched_free(of);
	}
	if (!batch->whole || !TAILQ_EMPTY(&batch->waiting) || !say(batch, &answer))
		return;
	conn->batch = NULL;
	batch->conn = NULL;
	conn_close(conn);
	batch_end(batch);
}

static void say_again(uv_timer_t *timer)
{
	struct tool_batch *batch = timer->data;

	if (batch->conn)
		say_verdicts(batch);
}

/* A daemon that ends has not decided about it: the next one is asked. */
static void batched_answered(void *arg, int result, const char *text)
{
	struct batched *of = arg;
	struct tool_batch *batch = of->batch;

	of->request = NULL;
	of->result = result;
	of->text = result && text ? strdup(text) : NULL;
	TAILQ_REMOVE(&batch->waiting, of, link);
	if (result == -ESHUTDOWN) {
		batch->ends = true;
		batched_free(of);
	} else {
		TAILQ_INSERT_TAIL(&batch->verdicts, of, link);
	}
	if (batch->conn && !uv_is_active((uv_handle_t *)&batch->again))
		say_verdicts(batch);
	else
		batch_end(batch);
}

/* ---- segments ------------------------------------------------------------------------------- */

static bool begin_one(struct tool_batch *batch, ramp_segment_t id)
{
	struct quota *quota = batch->programs->quota;
	struct batched *of;

	if (!batch->refused && !quota_take(quota, batch->uid, QUOTA_BATCHED, 1, QUOTA_DEFAULT))
		batch->refused = true;
	if (batch->refused)
		return true;
	of = calloc(1, sizeof(*of));
	if (!of) {
		quota_give(quota, batch->uid, QUOTA_BATCHED, 1);
		return false;
	}
	of->batch = batch;
	of->segment = id;
	batch->what.id = id;
	of->request = tool_begin_of(batch->programs, &batch->what, batched_answered, of);
	if (of->request) {
		TAILQ_INSERT_TAIL(&batch->waiting, of, link);
		if (batch->cancelled)
			tool_cancel(of->request);
		return true;
	}
	of->result = -ENOMEM;
	of->text = strdup("the daemon is out of memory");
	TAILQ_INSERT_TAIL(&batch->verdicts, of, link);
	return true;
}

bool tool_batch_add(struct tool_batch *batch, const struct session_msg *msg)
{
	if (batch->whole)
		return false;
	batch->whole = !(msg->flags & SESSION_MORE);
	for (uint32_t i = 0; i < msg->count; i++)
		if (!begin_one(batch, msg->ranges[i].addr))
			return false;
	say_verdicts(batch);
	return true;
}

struct tool_batch *tool_batch_begin(struct session_conn *conn, const struct session_msg *msg)
{
	struct tool_batch *batch = calloc(1, sizeof(*batch));

	if (!batch)
		return NULL;
	batch->programs = conn->programs;
	batch->conn = conn;
	batch->uid = conn->uid;
	TAILQ_INIT(&batch->waiting);
	TAILQ_INIT(&batch->verdicts);
	memcpy(batch->what.dst_node, msg->node, sizeof(batch->what.dst_node));
	batch->what.mode = msg->flags & SESSION_UNSAID ? TRANSFER_UNSAID : msg->mode;
	batch->what.rounds = msg->rounds;
	batch->what.wait = msg->flags & SESSION_WAIT;
	batch->what.limit_bytes_s = msg->limit;
	batch->what.batch = msg->batch;
	batch->what.queues = true;
	batch->what.force = msg->flags & SESSION_FORCE;
	batch->what.uid = conn->uid;
	uv_timer_init(loop_uv(batch->programs->loop), &batch->again);
	batch->again.data = batch;
	batch->programs->conns->handles++;
	return batch;
}

void tool_batch_cancel(struct tool_batch *batch)
{
	struct batched *of;

	batch->cancelled = true;
	TAILQ_FOREACH (of, &batch->waiting, link)
		tool_cancel(of->request);
}

void tool_batch_gone(struct tool_batch *batch)
{
	batch->conn = NULL;
	tool_batch_cancel(batch);
	batch_end(batch);
}
