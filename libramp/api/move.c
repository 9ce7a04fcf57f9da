/*
 * Migrations over the session: MIGRATE, PROGRESS, ANSWER, CANCEL (base/session.h).
 *
 * Happy path: ramp_move_begin sends MIGRATE; each ramp_move_next takes what has come; the ANSWER
 * ends it.
 *
 * How it fails: where the daemon hangs up, the next one is asked the same again, which is harmless:
 * a segment that is at its target already is answered with success. After LINK_AWAY_MS without a daemon,
 * or with none but such as hang up without a word, the end is EINPROGRESS. So it is after a cancel that no daemon lived to answer, since a second
 * MIGRATE might move the segment after all.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/transfer_mode.h"
#include "daemon_link.h"
#include "error.h"
#include "move.h"

#define EXPORT __attribute__((visibility("default")))
/* Connections that ended without a word, until no daemon is hoped for: those of LINK_AWAY_MS. One that hangs up
   since its user has too many is asked again until then. */
#define MOVE_SILENT 100

struct ramp_move {
	struct session_msg migrate; /* what is asked */
	pthread_mutex_t lock;	    /* protects the rest */
	struct daemon_link link;
	bool cancelled, ended, told;
	bool again; /* another daemon was asked, too */
	int result;
	char text[SESSION_TEXT_MAX];
};

/* ---- under move->lock ----------------------------------------------------------------------- */

static void end_with(struct ramp_move *move, int result, const char *text)
{
	move->ended = true;
	move->result = result;
	snprintf(move->text, sizeof(move->text), "%s", text);
	link_hang_up(&move->link);
	link_stay_readable(&move->link);
}

/* Asks the next daemon, now or after a rest. */
static void ask_again(struct ramp_move *move)
{
	int rc;

	move->again = true;
	if (move->cancelled) {
		end_with(move, -EINPROGRESS, "the daemon ended before it had cancelled");
		return;
	}
	if (move->migrate.rounds && move->link.silent >= LINK_SILENT) {
		end_with(move, -ENOTSUP,
			 "its daemon is of an older version, which bounds no rounds of a pre-copy");
		return;
	}
	if (move->link.silent >= MOVE_SILENT) {
		end_with(move, -EINPROGRESS, "its daemon hangs up without an answer");
		return;
	}
	rc = link_next(&move->link, link_ask(&move->link, &move->migrate));
	if (rc == -ETIMEDOUT)
		end_with(move, -EINPROGRESS, "the daemon has ended, and none has come since");
	else if (rc)
		end_with(move, -EINPROGRESS,
			 "the daemon has ended, and the next one can't be asked");
}

static void tell_progress(struct ramp_move_event *event, const struct session_msg *msg)
{
	event->pages = msg->done;
	event->all = msg->all;
	snprintf(event->text, sizeof(event->text), "%s", msg->text);
}

/* Returns true where the message is news of its own; the end of the move is told later. */
static bool heed(struct ramp_move *move, const struct session_msg *msg,
		 struct ramp_move_event *event)
{
	if (msg->type == SESSION_ANSWER && msg->result == ESHUTDOWN) {
		link_rest(&move->link);
	} else if (msg->type == SESSION_ANSWER) {
		end_with(move, -(int)msg->result, msg->text);
	} else if (msg->type == SESSION_PROGRESS) {
		tell_progress(event, msg);
		return true;
	}
	return false;
}

static bool tell_end(struct ramp_move *move, struct ramp_move_event *event)
{
	event->ended = 1;
	event->result = move->result;
	memcpy(event->text, move->text, sizeof(event->text));
	move->told = true;
	return true;
}

static bool look(struct ramp_move *move, struct ramp_move_event *event)
{
	struct session_msg msg;
	int rc;

	if (!move->ended) {
		rc = link_take(&move->link, &msg);
		if (rc == -EPIPE)
			ask_again(move);
		else if (rc == -EPROTO)
			end_with(move, move->again ? -EINPROGRESS : rc, LINK_OTHER_VERSION);
		else if (!rc && heed(move, &msg, event))
			return true;
	}
	return move->ended && tell_end(move, event);
}

/* ---- calls ---------------------------------------------------------------------------------- */

static void move_free(struct ramp_move *move)
{
	link_close(&move->link);
	pthread_mutex_destroy(&move->lock);
	free(move);
}

static int check(const char *call, const char *node, const struct ramp_move_options *options)
{
	if (!node || !node[0] || strlen(node) > RAMP_NODE_NAME_MAX)
		return error_set(EINVAL, call, "no name of a node");
	if (options && (unsigned)options->mode > RAMP_AUTO)
		return error_set(EINVAL, call, "no such mode");
	if (options && (options->max_rounds < 0 || options->max_rounds > TRANSFER_ROUNDS_MAX))
		return error_set(EINVAL, call, "a pre-copy has 1 to 100 rounds");
	if (options && options->new_name &&
	    (!options->new_name[0] || strlen(options->new_name) > RAMP_NAME_MAX))
		return error_set(EINVAL, call, "no name of a segment");
	return 0;
}

int move_put_request(struct session_msg *msg, const char *call, uint64_t id, const char *node,
		     const struct ramp_move_options *options)
{
	int rc = check(call, node, options);

	if (rc)
		return rc;
	msg->type = SESSION_MIGRATE;
	msg->segment = id;
	snprintf(msg->node, sizeof(msg->node), "%s", node);
	msg->flags = SESSION_UNSAID;
	if (!options)
		return 0;
	if (options->mode != RAMP_AS_SET) {
		msg->mode = (uint8_t)(options->mode - RAMP_LAZY);
		msg->flags = 0;
	}
	msg->rounds = (uint8_t)options->max_rounds;
	msg->flags |=
		(options->wait_whole ? SESSION_WAIT : 0) | (options->progress ? SESSION_WATCH : 0);
	if (options->new_name)
		snprintf(msg->name, sizeof(msg->name), "%s", options->new_name);
	return 0;
}

EXPORT int ramp_move_begin(struct ramp_cluster *ramp, uint64_t id, const char *node,
			   const struct ramp_move_options *options, struct ramp_move **out)
{
	struct session_msg migrate = {0};
	struct ramp_move *move;
	int rc = move_put_request(&migrate, "ramp_move_begin", id, node, options);

	*out = NULL;
	if (rc)
		return rc;
	move = calloc(1, sizeof(*move));
	if (!move)
		return error_set(ENOMEM, "ramp_move_begin", NULL);
	pthread_mutex_init(&move->lock, NULL);
	move->migrate = migrate;
	rc = link_open(&move->link, ramp);
	if (!rc)
		rc = link_ask(&move->link, &move->migrate);
	if (rc) {
		move_free(move);
		return error_set(-rc, ramp->path, "its daemon can't be asked");
	}
	*out = move;
	return error_none();
}

EXPORT int ramp_move_fd(const struct ramp_move *move)
{
	return move->link.epoll;
}

/* Returns 0 with news; -EAGAIN: none yet; -EALREADY. */
static int next_news(struct ramp_move *move, struct ramp_move_event *event)
{
	int rc = -EAGAIN;

	pthread_mutex_lock(&move->lock);
	if (move->told)
		rc = -EALREADY;
	else if (look(move, event))
		rc = 0;
	pthread_mutex_unlock(&move->lock);
	return rc;
}

EXPORT int ramp_move_next(struct ramp_move *move, int timeout_ms, struct ramp_move_event *event)
{
	uint64_t until_ms = link_until_ms(timeout_ms);
	int rc;

	memset(event, 0, sizeof(*event));
	while ((rc = next_news(move, event)) == -EAGAIN)
		if (!link_wait(&move->link, until_ms))
			return error_set(ETIMEDOUT, "ramp_move_next", NULL);
	return rc ? error_set(-rc, "ramp_move_next", "its end was told") : error_none();
}

EXPORT int ramp_move_cancel(struct ramp_move *move)
{
	struct session_msg msg = {.type = SESSION_CANCEL};

	pthread_mutex_lock(&move->lock);
	if (!move->ended && !move->cancelled) {
		move->cancelled = true;
		if (move->link.sock >= 0)
			session_send(move->link.sock, &msg, NULL, 0, 0);
		else
			end_with(move, -EINPROGRESS, "the daemon ended before it had cancelled");
	}
	pthread_mutex_unlock(&move->lock);
	return error_none();
}

EXPORT int ramp_move_end(struct ramp_move *move)
{
	struct ramp_move_event event;
	int rc;

	if (!move)
		return error_none();
	while (!move->told)
		ramp_move_next(move, -1, &event);
	rc = move->result ? error_set(-move->result, move->migrate.node, move->text) : error_none();
	move_free(move);
	return rc;
}
