/*
 * Pages that have not come yet: PULL and GIVE_UP of the session (base/session.h), and hints.
 *
 * Happy path: ramp_pull_begin sends PULL with a token of the segment's open; PROGRESS says that it is under way,
 * and the ANSWER that the range is here. ramp_pull is that and a wait.
 *
 * How it fails: where the daemon hangs up the next one is asked the same, with another token, for as long as
 * LINK_AWAY_MS without a daemon. Hanging up ends the request; pages that have come stay. A daemon of an older version
 * hangs up on PULL without a word, each time.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "daemon_link.h"
#include "error.h"
#include "segment.h"

#define EXPORT __attribute__((visibility("default")))

struct ramp_pulling {
	const char *call; /* of the API */
	int fd;		  /* of the segment: it may be put meanwhile */
	struct session_msg pull;
	pthread_mutex_t lock; /* protects the rest */
	struct daemon_link link;
	bool ended;
	int result;
	char text[SESSION_TEXT_MAX];
};

/* ---- under pulling->lock -------------------------------------------------------------------- */

static void pulling_end_with(struct ramp_pulling *pulling, int result, const char *text)
{
	pulling->ended = true;
	pulling->result = result;
	snprintf(pulling->text, sizeof(pulling->text), "%s", text);
	link_hang_up(&pulling->link);
	link_stay_readable(&pulling->link);
}

static int pulling_ask(struct ramp_pulling *pulling)
{
	struct ramp_ioc_attach open_token;

	if (ioctl(pulling->fd, RAMP_IOC_ATTACH, &open_token))
		return -errno;
	memcpy(pulling->pull.token, open_token.token, sizeof(pulling->pull.token));
	return link_ask(&pulling->link, &pulling->pull);
}

/* Asks this daemon or the next one, now or after a rest. EIO is also the answer where no daemon can start. */
static void pulling_ask_again(struct ramp_pulling *pulling)
{
	int asked, rc;

	if (pulling->link.silent >= LINK_SILENT) {
		pulling_end_with(pulling, -ENOTSUP,
				 "its daemon is of an older version, which does not do that");
		return;
	}
	asked = pulling_ask(pulling);
	rc = link_next(&pulling->link, asked == -EIO ? -ETIMEDOUT : asked);
	if (rc == -ETIMEDOUT)
		pulling_end_with(pulling, asked == -EIO ? asked : rc, "it has no daemon");
	else if (rc)
		pulling_end_with(pulling, rc, rc == -EREMOTE ? "it is not on this node" : "");
}

/* Takes all that has come. */
static void pulling_look(struct ramp_pulling *pulling)
{
	struct session_msg msg;
	int rc = 0;

	while (!pulling->ended && !rc) {
		rc = link_take(&pulling->link, &msg);
		if (rc == -EPIPE)
			pulling_ask_again(pulling);
		else if (rc == -EPROTO)
			pulling_end_with(pulling, rc, LINK_OTHER_VERSION);
		if (!rc && msg.type == SESSION_ANSWER && msg.result == ESHUTDOWN)
			link_rest(&pulling->link);
		else if (!rc && msg.type == SESSION_ANSWER)
			pulling_end_with(pulling, -(int)msg.result, msg.text);
	}
}

/* ---- calls ---------------------------------------------------------------------------------- */

static void pulling_free(struct ramp_pulling *pulling)
{
	link_close(&pulling->link);
	if (pulling->fd >= 0)
		close(pulling->fd);
	pthread_mutex_destroy(&pulling->lock);
	free(pulling);
}

/* `call`: which call of the API it is for. Returns 0, or error_set's result. */
static int pulling_new(struct ramp_segment *segment, const char *call,
		       const struct session_msg *msg, struct ramp_pulling **out)
{
	struct ramp_pulling *pulling = calloc(1, sizeof(*pulling));
	int rc;

	if (!pulling)
		return error_set(ENOMEM, call, NULL);
	pulling->call = call;
	pulling->pull = *msg;
	pthread_mutex_init(&pulling->lock, NULL);
	rc = link_open(&pulling->link, segment->ramp);
	pulling->fd = fcntl(segment->fd, F_DUPFD_CLOEXEC, 3);
	if (!rc && pulling->fd < 0)
		rc = -errno;
	if (rc) {
		pulling_free(pulling);
		return error_set(-rc, call, NULL);
	}
	*out = pulling;
	return 0;
}

EXPORT int ramp_pull_begin(struct ramp_segment *segment, uint64_t offset, uint64_t len,
			   struct ramp_pulling **out)
{
	const struct session_msg msg = {.type = SESSION_PULL, .offset = offset, .len = len};
	struct ramp_pulling *pulling = NULL;
	int rc;

	*out = NULL;
	if (len > UINT64_MAX - offset)
		return error_set(EINVAL, "ramp_pull", "no range of bytes");
	rc = pulling_new(segment, "ramp_pull", &msg, &pulling);
	if (!pulling)
		return rc;
	pulling_ask_again(pulling);
	*out = pulling;
	return error_none();
}

EXPORT int ramp_pull_fd(const struct ramp_pulling *pulling)
{
	return pulling->link.epoll;
}

static bool pulling_is_over(struct ramp_pulling *pulling)
{
	bool ended;

	pthread_mutex_lock(&pulling->lock);
	pulling_look(pulling);
	ended = pulling->ended;
	pthread_mutex_unlock(&pulling->lock);
	return ended;
}

EXPORT int ramp_pull_wait(struct ramp_pulling *pulling, int timeout_ms)
{
	uint64_t until_ms = link_until_ms(timeout_ms);
	int rc;

	while (!pulling_is_over(pulling)) {
		rc = link_poll(&pulling->link, until_ms);
		if (rc <= 0)
			return error_set(rc ? -rc : ETIMEDOUT, pulling->call, NULL);
	}
	/* Written once. */
	return pulling->result ? error_set(-pulling->result, pulling->call, pulling->text)
			       : error_none();
}

EXPORT void ramp_pull_end(struct ramp_pulling *pulling)
{
	if (pulling)
		pulling_free(pulling);
}

EXPORT int ramp_pull(struct ramp_segment *segment, uint64_t offset, uint64_t len, int timeout_ms)
{
	struct ramp_pulling *pulling = NULL;
	int rc = ramp_pull_begin(segment, offset, len, &pulling);

	if (!pulling)
		return rc;
	rc = ramp_pull_wait(pulling, timeout_ms);
	pulling_free(pulling);
	return rc;
}

EXPORT int ramp_give_up_rest(struct ramp_segment *segment, int flags)
{
	const struct session_msg msg = {.type = SESSION_GIVE_UP,
					.flags = flags & RAMP_ZEROS ? SESSION_ZEROS : 0};
	struct ramp_pulling *pulling = NULL;
	int rc;

	if (flags & ~RAMP_ZEROS)
		return error_set(EINVAL, "ramp_give_up_rest", "an unknown flag");
	rc = pulling_new(segment, "ramp_give_up_rest", &msg, &pulling);
	if (!pulling)
		return rc;
	pulling_ask_again(pulling);
	do /* it is begun, and is not taken back */
		rc = ramp_pull_wait(pulling, -1);
	while (rc == -EINTR);
	pulling_free(pulling);
	return rc;
}

EXPORT int ramp_hint(struct ramp_segment *segment, uint64_t offset, uint64_t len)
{
	char range[64];
	int n = snprintf(range, sizeof(range), "%llu %llu", (unsigned long long)offset,
			 (unsigned long long)len);

	if (len > UINT64_MAX - offset)
		return error_set(EINVAL, "ramp_hint", "no range of bytes");
	if (fsetxattr(segment->fd, "user.ramp.hint", range, (size_t)n, 0))
		return error_set(errno, "ramp_hint", NULL);
	return error_none();
}
