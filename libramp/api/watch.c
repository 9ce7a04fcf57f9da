/*
 * Watches: LISTEN and EVENT of the session (base/session.h).
 *
 * Happy path: ramp_watch_begin sends LISTEN and waits for LISTENING; each ramp_watch_next takes an
 * EVENT.
 *
 * How it fails: where the daemon hangs up, the next one is asked, for as long as it takes. What
 * happened in between is not told, so the watch tells RAMP_MISSED. A segment that was pulled then is
 * told of again by the new daemon; the epoch of its attempt says so. A daemon that hangs up without a
 * word again and again does not know LISTEN; one that does so a few times may have been killed.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ahead.h"
#include "base/clock.h"
#include "daemon_link.h"
#include "error.h"
#include "segment.h"
#include "watch.h"

#define EXPORT	  __attribute__((visibility("default")))
#define ANSWER_MS 10000 /* for the first EVENT */
#define LISTED_MS 5000	/* for the commit of an arrival */
#define HEARD_MAX 64	/* arrivals that are remembered */

struct heard {
	uint64_t id, epoch;
};

struct ramp_watch {
	struct session_msg listen; /* what is asked */
	pthread_mutex_t lock;	   /* protects the rest */
	struct daemon_link link;
	bool listening;	 /* the daemon has said so */
	bool knows_asks; /* and that it tells of departures */
	bool missed;	 /* to be told */
	int refused;	 /* a positive errno, which a daemon has answered; it stays so */
	char why[SESSION_TEXT_MAX];
	struct heard heard[HEARD_MAX]; /* a ring */
	unsigned next_heard;
	struct ahead ahead; /* a receiver's */
	bool receiving;	    /* ramp_receive waits, for loads and stores */
};

/* ---- under watch->lock ---------------------------------------------------------------------- */

static void watch_ask_again(struct ramp_watch *watch)
{
	watch->missed |= watch->listening;
	watch->listening = false;
	if (link_ask(&watch->link, &watch->listen))
		link_rest(&watch->link);
}

/* Returns whether this arrival was told before: by a daemon that has ended since. */
static bool was_heard(struct ramp_watch *watch, const struct session_msg *msg)
{
	for (size_t i = 0; i < HEARD_MAX; i++)
		if (watch->heard[i].id == msg->segment && watch->heard[i].epoch == msg->all)
			return true;
	watch->heard[watch->next_heard++ % HEARD_MAX] =
		(struct heard){.id = msg->segment, .epoch = msg->all};
	return false;
}

/* Returns the epoch of that segment's last arrival that was heard of. */
static uint64_t heard_last(const struct ramp_watch *watch, uint64_t id)
{
	uint64_t epoch = 0;

	for (size_t i = 0; i < HEARD_MAX; i++)
		if (watch->heard[i].id == id && watch->heard[i].epoch > epoch)
			epoch = watch->heard[i].epoch;
	return epoch;
}

static void refuse(struct ramp_watch *watch, int code, const char *why)
{
	watch->refused = code;
	snprintf(watch->why, sizeof(watch->why), "%s", why);
	link_hang_up(&watch->link);
	link_stay_readable(&watch->link);
}

/* 0: none for the program. */
static const enum ramp_event_kind kinds[] = {
	[SESSION_ARRIVED] = RAMP_ARRIVED,
	[SESSION_WHOLE] = RAMP_WHOLE,
	[SESSION_LEFT] = RAMP_LEFT,
	[SESSION_COMING] = RAMP_COMING,
	[SESSION_HERE] = RAMP_ARRIVED,
	[SESSION_ASKED] = RAMP_ASKED,
	[SESSION_CONNECTING] = RAMP_CONNECTING,
	[SESSION_ALL_READY] = RAMP_READY,
	[SESSION_GAVE] = RAMP_GIVEN,
	[SESSION_SETTLED] = RAMP_SETTLED,
	[SESSION_FAILED] = RAMP_FAILED,
	[SESSION_CLOSED] = RAMP_CLOSED,
	[SESSION_ROUND] = RAMP_ROUND,
};

/* Returns true where it is an event for the program. */
static bool watch_heed(struct ramp_watch *watch, const struct session_msg *msg,
		       struct ramp_event *event)
{
	if (msg->type != SESSION_EVENT)
		return false;
	/* A refusal before LISTENING has no mode. */
	if (msg->mode == SESSION_LISTENING || (msg->result && msg->mode != SESSION_FAILED)) {
		watch->listening = !msg->result;
		watch->knows_asks = msg->done == SESSION_KNOWS_ASKS;
		if (msg->result)
			refuse(watch, (int)msg->result, msg->text);
		return false;
	}
	if (msg->mode == SESSION_COMING) {
		if (watch->receiving)
			ahead_map(&watch->ahead, watch->link.ramp, msg);
		if (!(watch->listen.flags & SESSION_PHASES))
			return false;
	}
	if (msg->mode == SESSION_HERE &&
	    !(watch->receiving && ahead_has(&watch->ahead, msg->segment)))
		return false;
	if ((msg->mode == SESSION_ARRIVED || msg->mode == SESSION_HERE) && was_heard(watch, msg))
		return false;
	if (msg->mode >= sizeof(kinds) / sizeof(kinds[0]))
		return false; /* of a later version */
	event->kind = kinds[msg->mode];
	event->id = msg->segment;
	event->size = msg->len;
	*(msg->mode == SESSION_ASKED ? &event->within_ms : &event->lost) = msg->done;
	event->result = -(int)msg->result;
	if (msg->mode == SESSION_FAILED) /* COMING's text is for the library */
		memcpy(event->why, msg->text, sizeof(event->why));
	memcpy(event->node, msg->node, sizeof(event->node));
	memcpy(event->name, msg->name, sizeof(event->name));
	return event->kind != 0;
}

/* Returns 0 with an event; -EAGAIN: none yet; or the negative errno of a refusal. */
static int watch_look(struct ramp_watch *watch, struct ramp_event *event)
{
	struct session_msg msg;
	int rc;

	if (watch->refused)
		return -watch->refused;
	/* A message that is none for the program may be followed by another one. */
	do {
		rc = link_take(&watch->link, &msg);
	} while (!rc && !watch_heed(watch, &msg, event));
	if (rc == -EPIPE)
		watch_ask_again(watch);
	if (rc == -EPROTO) {
		refuse(watch, EPROTO, LINK_OTHER_VERSION);
		return rc;
	}
	if (!rc || !watch->missed || !watch->listening)
		return rc ? -EAGAIN : 0;
	watch->missed = false;
	event->kind = RAMP_MISSED;
	return 0;
}

struct ramp_cluster *watch_cluster(const struct ramp_watch *watch)
{
	return watch->link.ramp;
}

int watch_send(struct ramp_watch *watch, const struct session_msg *msg)
{
	int rc = -ESTALE;

	pthread_mutex_lock(&watch->lock);
	if (watch->listening && watch->link.sock >= 0)
		rc = session_send(watch->link.sock, msg, NULL, 0, 0);
	pthread_mutex_unlock(&watch->lock);
	return rc == -EPIPE || rc == -ECONNRESET ? -ESTALE : rc;
}

/* ---- calls ---------------------------------------------------------------------------------- */

EXPORT int ramp_watch_fd(const struct ramp_watch *watch)
{
	return watch->link.epoll;
}

static int next_event(struct ramp_watch *watch, struct ramp_event *event)
{
	int rc;

	memset(event, 0, sizeof(*event));
	pthread_mutex_lock(&watch->lock);
	rc = watch_look(watch, event);
	pthread_mutex_unlock(&watch->lock);
	return rc;
}

static int next_until(struct ramp_watch *watch, uint64_t until_ms, struct ramp_event *event)
{
	int rc;

	while ((rc = next_event(watch, event)) == -EAGAIN)
		if (!link_wait(&watch->link, until_ms))
			return -ETIMEDOUT;
	return rc;
}

EXPORT int ramp_watch_next(struct ramp_watch *watch, int timeout_ms, struct ramp_event *event)
{
	int rc = next_until(watch, link_until_ms(timeout_ms), event);

	return rc ? error_set(-rc, "ramp_watch_next", watch->refused ? watch->why : NULL)
		  : error_none();
}

EXPORT void ramp_watch_end(struct ramp_watch *watch)
{
	if (!watch)
		return;
	ahead_free(&watch->ahead);
	link_close(&watch->link);
	pthread_mutex_destroy(&watch->lock);
	free(watch);
}

/* Waits for LISTENING. */
static int await_listening(struct ramp_watch *watch)
{
	uint64_t until_ms = link_until_ms(ANSWER_MS);
	struct session_msg msg;
	struct ramp_event none;
	int rc;

	while (!watch->listening && !watch->refused) {
		rc = link_take(&watch->link, &msg);
		if (rc && watch->link.silent >= LINK_SILENT && watch->link.sock < 0)
			return error_set(EOPNOTSUPP, watch->link.ramp->path,
					 "its daemon tells no events: it is of an older version");
		if (rc == -EPIPE)
			watch_ask_again(watch);
		else if (rc == -EPROTO)
			refuse(watch, EPROTO, LINK_OTHER_VERSION);
		else if (!rc)
			watch_heed(watch, &msg, &none);
		else if (!link_wait(&watch->link, until_ms))
			return error_set(ETIMEDOUT, watch->link.ramp->path,
					 "its daemon does not answer");
	}
	if (watch->refused)
		return error_set(watch->refused, "ramp_watch_begin", watch->why);
	if ((watch->listen.flags & (SESSION_PHASES | SESSION_ASKS)) && !watch->knows_asks)
		return error_set(EOPNOTSUPP, watch->link.ramp->path,
				 "its daemon asks no program before a departure: it is of an older "
				 "version");
	return 0;
}

EXPORT int ramp_watch_begin(struct ramp_cluster *ramp, const struct ramp_watch_options *options,
			    struct ramp_watch **out)
{
	struct ramp_watch *watch = calloc(1, sizeof(*watch));
	int rc;

	*out = NULL;
	if (!watch)
		return error_set(ENOMEM, "ramp_watch_begin", NULL);
	if (options && options->pattern && strlen(options->pattern) > RAMP_NAME_MAX) {
		free(watch);
		return error_set(EINVAL, "ramp_watch_begin",
				 "no pattern of a name: it is too long");
	}
	pthread_mutex_init(&watch->lock, NULL);
	watch->listen.type = SESSION_LISTEN;
	if (options) {
		watch->listen.segment = options->id;
		watch->listen.flags = (options->receive ? SESSION_ARM : 0) |
				      (options->demand ? SESSION_DEMAND : 0) |
				      (options->phases ? SESSION_PHASES : 0) |
				      (options->asked ? SESSION_PHASES | SESSION_ASKS : 0);
		if (options->pattern)
			snprintf(watch->listen.name, sizeof(watch->listen.name), "%s",
				 options->pattern);
	}
	rc = link_open(&watch->link, ramp);
	if (!rc)
		rc = link_ask(&watch->link, &watch->listen);
	rc = rc ? error_set(-rc, ramp->path, "its daemon can't be asked") : await_listening(watch);
	if (rc) {
		ramp_watch_end(watch);
		return rc;
	}
	*out = watch;
	return error_none();
}

static void set_receiving(struct ramp_watch *watch, bool receiving)
{
	pthread_mutex_lock(&watch->lock);
	watch->receiving = receiving;
	pthread_mutex_unlock(&watch->lock);
}

/* Maps a segment that has arrived, unless it was mapped ahead. */
static int map_arrived(struct ramp_watch *watch, uint64_t id, int flags, struct ramp_segment **out)
{
	struct ramp_segment *ahead;
	uint64_t came_in;

	pthread_mutex_lock(&watch->lock);
	ahead = ahead_take(&watch->ahead, id);
	came_in = heard_last(watch, id);
	pthread_mutex_unlock(&watch->lock);
	if (ahead && !flags) {
		atomic_store(&watch->link.ramp->listed_by_ms, clock_ms() + LISTED_MS);
		ahead->came_in = came_in;
		*out = ahead;
		return error_none();
	}
	ramp_put(ahead);
	return ramp_get_id(watch->link.ramp, id, flags, out);
}

static int watch_receive(struct ramp_watch *watch, uint64_t until_ms, int flags,
			 struct ramp_segment **out)
{
	struct ramp_event event;
	int rc;

	for (;;) {
		rc = next_until(watch, until_ms, &event);
		if (rc)
			return error_set(-rc, "ramp_receive", watch->refused ? watch->why : NULL);
		if (event.kind == RAMP_MISSED)
			return error_set(ESTALE, "ramp_receive",
					 "the daemon was followed by another one: segments may "
					 "have come meanwhile");
		if (event.kind != RAMP_ARRIVED)
			continue;
		rc = map_arrived(watch, event.id, flags, out);
		if (rc != -ENOENT && rc != -EREMOTE)
			return rc; /* else it has gone again */
	}
}

EXPORT int ramp_receive(struct ramp_watch *watch, int timeout_ms, int flags,
			struct ramp_segment **out)
{
	int rc;

	*out = NULL;
	set_receiving(watch, !flags);
	rc = watch_receive(watch, link_until_ms(timeout_ms), flags, out);
	set_receiving(watch, false);
	return rc;
}
