/*
 * Moves in steps: CONNECT, GO and HELD of the session (base/session.h).
 *
 * Happy path: ramp_connect sends CONNECT and waits for HELD; ramp_prepare and ramp_transfer send GO,
 * and wait for HELD and for the ANSWER. Between the calls the connection alone holds the move: where
 * the process ends, the daemon gives it up.
 *
 * What `reached` says, which steps_reach() alone changes (the steps of enum session_step):
 *
 *	HOLD -> CONNECTED -> READ_AHEAD -> WRITES_CLOSED -> ALL_READ -> PREPARED -> (ended)
 *
 * A step may be passed by; HELD may say the same step again, or an earlier one where the target is connected once
 * more. From any of them: HOLD, where the next daemon is asked; or it ends.
 *
 * How it fails: where the daemon hangs up, the next call asks the next daemon for all steps that
 * were asked for, which is harmless: an attempt of an earlier daemon ends, or has become a move that
 * a request of the same joins. After LINK_AWAY_MS without a daemon a move that may have been given is
 * EINPROGRESS. A daemon of an older version hangs up on CONNECT without a word, each time.
 */
#include "steps.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon_link.h"
#include "error.h"
#include "move.h"
#include "segment.h"

#define EXPORT __attribute__((visibility("default")))

struct stepped_move {
	unsigned refs;	       /* the segment's, and those of calls; protected by all_steps */
	pthread_mutex_t calls; /* held by the one call that works on it */
	pthread_mutex_t lock;  /* protects the rest */
	struct session_msg
		connect; /* what is asked: with the last step, and time, that was asked for */
	struct daemon_link link;
	uint8_t reached; /* of enum session_step: HELD said so */
	uint32_t held_ms;
	bool closed;   /* it was closed to stores */
	unsigned held; /* how many HELD have come */
	bool cancelled, ended;
	int result;
	char text[SESSION_TEXT_MAX];
};

static pthread_mutex_t all_steps = PTHREAD_MUTEX_INITIALIZER; /* protects segment->steps */

/* ---- under steps->lock ---------------------------------------------------------------------- */

static void end_with(struct stepped_move *steps, int result, const char *text)
{
	steps->ended = true;
	steps->result = result;
	snprintf(steps->text, sizeof(steps->text), "%s", text);
	link_hang_up(&steps->link);
	link_stay_readable(&steps->link);
}

/* No daemon can be asked any more. One that was asked to transfer may have given it. */
static void end_away(struct stepped_move *steps, int code, const char *text)
{
	end_with(steps, steps->connect.step == SESSION_TAKEN ? -EINPROGRESS : code, text);
}

/* Changes the step that is reached. HOLD: none. */
static void steps_reach(struct stepped_move *steps, uint8_t step)
{
	steps->reached = step;
	steps->closed |= step == SESSION_WRITES_CLOSED || step == SESSION_ALL_READ;
}

/* Asks the next daemon, now or after a rest. */
static void steps_ask_again(struct stepped_move *steps)
{
	int rc;

	steps_reach(steps, SESSION_HOLD);
	if (steps->closed && steps->connect.step < SESSION_TAKEN) {
		end_with(steps, -ECONNABORTED, "its daemon has ended, and stores continue");
		return;
	}
	if (steps->cancelled) {
		end_away(steps, -EINTR, "the daemon ended before it had answered");
		return;
	}
	if (steps->link.silent >= LINK_SILENT) {
		end_with(steps, -ENOTSUP,
			 steps->connect.rounds
				 ? "its daemon is of an older version, which bounds no "
				   "rounds of a move in steps"
				 : "its daemon is of an older version, which moves "
				   "nothing in steps");
		return;
	}
	rc = link_next(&steps->link, link_ask(&steps->link, &steps->connect));
	if (rc == -ETIMEDOUT)
		end_away(steps, rc, "it has no daemon");
	else if (rc)
		end_away(steps, rc, "its daemon can't be asked");
}

static void steps_held(struct stepped_move *steps, const struct session_msg *msg)
{
	if (msg->step < SESSION_CONNECTED || msg->step > SESSION_PREPARED) {
		end_away(steps, -EPROTO, LINK_OTHER_VERSION);
		return;
	}
	steps_reach(steps, msg->step);
	steps->held_ms = (uint32_t)msg->len;
	steps->held++;
}

static void steps_heed(struct stepped_move *steps, const struct session_msg *msg)
{
	if (msg->type == SESSION_HELD) {
		steps_held(steps, msg);
	} else if (msg->type == SESSION_ANSWER && msg->result == ESHUTDOWN) {
		link_rest(&steps->link);
	} else if (msg->type == SESSION_ANSWER && !msg->result &&
		   steps->connect.step < SESSION_TAKEN) {
		end_with(steps, -EALREADY, "another request has moved it there");
	} else if (msg->type == SESSION_ANSWER) {
		end_with(steps, -(int)msg->result, msg->text);
	}
}

/* Takes all that has come. */
static void steps_look(struct stepped_move *steps)
{
	struct session_msg msg;
	int rc = 0;

	while (!steps->ended && !rc) {
		rc = link_take(&steps->link, &msg);
		if (!rc)
			steps_heed(steps, &msg);
		else if (rc == -EPIPE)
			steps_ask_again(steps);
		else if (rc == -EPROTO)
			end_away(steps, rc, LINK_OTHER_VERSION);
	}
}

/* Lets it continue to that step; SESSION_HOLD: it waits for ms from now on. Where nothing can be sent, the
   next daemon is asked for it. */
static void go(struct stepped_move *steps, uint8_t step, unsigned ms)
{
	struct session_msg msg = {.type = SESSION_GO, .step = step, .len = ms};

	if (step == SESSION_HOLD)
		steps->connect.len = ms;
	else
		steps->connect.step = step;
	if (!steps->ended && steps->link.sock >= 0)
		session_send(steps->link.sock, &msg, NULL, 0, 0);
}

/* ---- the segment's -------------------------------------------------------------------------- */

static void steps_free(struct stepped_move *steps)
{
	link_close(&steps->link);
	pthread_mutex_destroy(&steps->calls);
	pthread_mutex_destroy(&steps->lock);
	free(steps);
}

/* Returns what the segment is connected by, with a reference; NULL: it is not. */
static struct stepped_move *steps_get(struct ramp_segment *segment)
{
	struct stepped_move *steps;

	pthread_mutex_lock(&all_steps);
	steps = segment->steps;
	if (steps)
		steps->refs++;
	pthread_mutex_unlock(&all_steps);
	return steps;
}

/* Gives a reference back. `over`: the segment is not connected any more. */
static void steps_put(struct ramp_segment *segment, struct stepped_move *steps, bool over)
{
	bool last;

	pthread_mutex_lock(&all_steps);
	if (over && segment->steps == steps) {
		segment->steps = NULL;
		steps->refs--;
	}
	last = --steps->refs == 0;
	pthread_mutex_unlock(&all_steps);
	if (last)
		steps_free(steps);
}

void steps_forget(struct ramp_segment *segment)
{
	struct stepped_move *steps = steps_get(segment);

	if (steps)
		steps_put(segment, steps, true);
}

/* Returns false where the segment is connected already. */
static bool steps_set(struct ramp_segment *segment, struct stepped_move *steps)
{
	bool free;

	pthread_mutex_lock(&all_steps);
	free = !segment->steps;
	if (free) {
		segment->steps = steps;
		steps->refs++;
	}
	pthread_mutex_unlock(&all_steps);
	return free;
}

static int not_connected(const char *call)
{
	return error_set(ENOTCONN, call, "the segment is not connected");
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* Waits until that step is reached and more than `held` HELD have come, or it has ended. Returns 0 or
   the result. */
static int wait_for(struct stepped_move *steps, uint8_t step, unsigned held)
{
	bool done, ended;
	int result;

	for (;;) {
		pthread_mutex_lock(&steps->lock);
		steps_look(steps);
		ended = steps->ended;
		result = steps->result;
		done = ended || (steps->reached >= step && steps->held > held);
		pthread_mutex_unlock(&steps->lock);
		if (done)
			return ended ? result : 0;
		link_wait(&steps->link, UINT64_MAX);
	}
}

/* Continues to that step; SESSION_HOLD: see go(). Returns as wait_for. */
static int go_and_wait(struct stepped_move *steps, uint8_t step, unsigned ms)
{
	unsigned held = 0;

	pthread_mutex_lock(&steps->lock);
	steps_look(steps);
	if (step == SESSION_HOLD)
		held = steps->held;
	go(steps, step, ms);
	pthread_mutex_unlock(&steps->lock);
	return wait_for(steps, step, held);
}

static int steps_tell(const struct stepped_move *steps, int result)
{
	return result ? error_set(-result, steps->connect.node, steps->text) : error_none();
}

/* Makes what a segment is connected by. Returns 0, or error_set's result. */
static int steps_new(struct ramp_segment *segment, const char *node,
		     const struct ramp_move_options *options, struct stepped_move **out)
{
	struct stepped_move *steps = calloc(1, sizeof(*steps));
	int rc;

	if (!steps)
		return error_set(ENOMEM, "ramp_connect", NULL);
	rc = move_put_request(&steps->connect, "ramp_connect", segment->id, node, options);
	if (rc) {
		free(steps);
		return rc;
	}
	steps->connect.type = SESSION_CONNECT;
	steps->connect.flags &= SESSION_WAIT | SESSION_UNSAID;
	steps->connect.step = SESSION_CONNECTED;
	steps->refs = 1;
	pthread_mutex_init(&steps->calls, NULL);
	pthread_mutex_init(&steps->lock, NULL);
	rc = link_open(&steps->link, segment->ramp);
	if (rc) {
		steps_free(steps);
		return error_set(-rc, "ramp_connect", NULL);
	}
	*out = steps;
	return 0;
}

EXPORT int ramp_connect(struct ramp_segment *segment, const char *node,
			const struct ramp_move_options *options)
{
	struct stepped_move *steps = NULL;
	int rc = steps_new(segment, node, options, &steps);

	if (!steps)
		return rc;
	pthread_mutex_lock(&steps->calls);
	if (!steps_set(segment, steps)) {
		pthread_mutex_unlock(&steps->calls);
		steps_free(steps);
		return error_set(EISCONN, "ramp_connect", "the segment is connected already");
	}
	pthread_mutex_lock(&steps->lock);
	steps_ask_again(steps);
	pthread_mutex_unlock(&steps->lock);
	rc = wait_for(steps, SESSION_CONNECTED, 0);
	rc = steps_tell(steps, rc);
	pthread_mutex_unlock(&steps->calls);
	steps_put(segment, steps, rc != 0);
	return rc;
}

static int left_ms_of(struct stepped_move *steps)
{
	int ms;

	pthread_mutex_lock(&steps->lock);
	ms = (int)steps->held_ms;
	pthread_mutex_unlock(&steps->lock);
	return ms;
}

EXPORT int ramp_extend(struct ramp_segment *segment, unsigned ms)
{
	struct stepped_move *steps = steps_get(segment);
	int rc, left_ms = 0;
	bool over = false;

	if (!steps)
		return not_connected("ramp_extend");
	pthread_mutex_lock(&steps->calls);
	if (steps->connect.step >= SESSION_PREPARED) {
		rc = error_set(EBUSY, "ramp_extend", "the move is prepared");
	} else {
		rc = go_and_wait(steps, SESSION_HOLD, ms);
		left_ms = left_ms_of(steps);
		over = rc != 0;
		rc = steps_tell(steps, rc);
	}
	pthread_mutex_unlock(&steps->calls);
	steps_put(segment, steps, over);
	return rc ? rc : left_ms;
}

EXPORT int ramp_prepare(struct ramp_segment *segment)
{
	struct stepped_move *steps = steps_get(segment);
	int rc;

	if (!steps)
		return not_connected("ramp_prepare");
	pthread_mutex_lock(&steps->calls);
	rc = steps_tell(steps, go_and_wait(steps, SESSION_PREPARED, 0));
	pthread_mutex_unlock(&steps->calls);
	steps_put(segment, steps, rc != 0);
	return rc;
}

EXPORT int ramp_transfer(struct ramp_segment *segment)
{
	struct stepped_move *steps = steps_get(segment);
	int rc;

	if (!steps)
		return not_connected("ramp_transfer");
	pthread_mutex_lock(&steps->calls);
	rc = steps_tell(steps, go_and_wait(steps, SESSION_TAKEN, 0));
	pthread_mutex_unlock(&steps->calls);
	steps_put(segment, steps, true);
	return rc;
}

/* ---- two steps ------------------------------------------------------------------------------ */

/* Returns how far it is, and whether it was closed to stores. One that has ended is past both: how it ended is the
   call's result. */
static uint8_t reached(struct stepped_move *steps, bool *closed)
{
	uint8_t step;

	pthread_mutex_lock(&steps->lock);
	steps_look(steps);
	step = steps->ended ? SESSION_TAKEN : steps->reached;
	*closed = steps->closed || steps->ended;
	pthread_mutex_unlock(&steps->lock);
	return step;
}

/* Has the target read ahead, where that was not asked for yet. Returns at once. */
static void read_ahead(struct stepped_move *steps)
{
	pthread_mutex_lock(&steps->lock);
	steps_look(steps);
	if (steps->connect.step < SESSION_READ_AHEAD)
		go(steps, SESSION_READ_AHEAD, 0);
	pthread_mutex_unlock(&steps->lock);
}

/* Closes it to stores, unless programs that were asked keep the daemon waiting: it says once more then that its target
   has read ahead. Returns the result; *asked: that. */
static int try_close(struct stepped_move *steps, bool *asked)
{
	unsigned held = 0;
	bool closed;
	int rc;

	pthread_mutex_lock(&steps->lock);
	steps_look(steps);
	if (steps->reached < SESSION_WRITES_CLOSED) {
		held = steps->held;
		go(steps, SESSION_WRITES_CLOSED, 0);
	}
	pthread_mutex_unlock(&steps->lock);
	rc = wait_for(steps, SESSION_READ_AHEAD, held);
	reached(steps, &closed);
	*asked = !rc && !closed;
	return rc;
}

static int finish_write(struct ramp_segment *segment, const char *call, bool waits)
{
	struct stepped_move *steps = steps_get(segment);
	bool over = false, asked = false, closed;
	int rc = 0;

	if (!steps)
		return not_connected(call);
	pthread_mutex_lock(&steps->calls);
	if (steps->connect.step >= SESSION_PREPARED) {
		rc = error_set(EBUSY, call, "the move is prepared");
	} else {
		if (!waits)
			read_ahead(steps);
		if (!waits && reached(steps, &closed) < SESSION_READ_AHEAD) {
			rc = error_set(EAGAIN, call, "its target has not read ahead yet");
		} else {
			rc = waits ? go_and_wait(steps, SESSION_WRITES_CLOSED, 0)
				   : try_close(steps, &asked);
			over = rc != 0;
			rc = asked ? error_set(
					     EAGAIN, call,
					     "a program was asked to let go of it, and has not yet")
				   : steps_tell(steps, rc);
		}
	}
	pthread_mutex_unlock(&steps->calls);
	steps_put(segment, steps, over);
	return rc;
}

EXPORT int ramp_finish_write(struct ramp_segment *segment)
{
	return finish_write(segment, "ramp_finish_write", true);
}

EXPORT int ramp_try_finish_write(struct ramp_segment *segment)
{
	return finish_write(segment, "ramp_try_finish_write", false);
}

static int finish_read(struct ramp_segment *segment, const char *call, bool waits)
{
	struct stepped_move *steps = steps_get(segment);
	bool over = false, closed;
	uint8_t step;
	int rc;

	if (!steps)
		return not_connected(call);
	pthread_mutex_lock(&steps->calls);
	step = reached(steps, &closed);
	if (!closed) {
		rc = error_set(EINVAL, call,
			       "it is not closed to stores: ramp_finish_write comes first");
	} else if (!waits && step < SESSION_ALL_READ) {
		rc = error_set(EAGAIN, call, "its target has not read all of it yet");
	} else {
		rc = steps_tell(steps, go_and_wait(steps, SESSION_TAKEN, 0));
		over = true;
	}
	pthread_mutex_unlock(&steps->calls);
	steps_put(segment, steps, over);
	return rc;
}

EXPORT int ramp_finish_read(struct ramp_segment *segment)
{
	return finish_read(segment, "ramp_finish_read", true);
}

EXPORT int ramp_try_finish_read(struct ramp_segment *segment)
{
	return finish_read(segment, "ramp_try_finish_read", false);
}

/* ---- giving up ------------------------------------------------------------------------------ */

static void cancel(struct stepped_move *steps)
{
	struct session_msg msg = {.type = SESSION_CANCEL};

	if (steps->ended || steps->cancelled)
		return;
	steps->cancelled = true;
	if (steps->link.sock >= 0)
		session_send(steps->link.sock, &msg, NULL, 0, 0);
	else
		steps_ask_again(steps); /* which ends it */
}

/* Waits for no other call: it ends them. */
EXPORT int ramp_abort(struct ramp_segment *segment)
{
	struct stepped_move *steps = steps_get(segment);
	int rc;

	if (!steps)
		return not_connected("ramp_abort");
	pthread_mutex_lock(&steps->lock);
	steps_look(steps);
	cancel(steps);
	pthread_mutex_unlock(&steps->lock);
	rc = wait_for(steps, UINT8_MAX, UINT_MAX);
	if (!rc)
		rc = error_set(EALREADY, steps->connect.node, "it has it by now");
	else if (rc == -EINPROGRESS)
		rc = steps_tell(steps, rc);
	else
		rc = error_none();
	steps_put(segment, steps, true);
	return rc;
}
