/*
 * A request, while no daemon can start:
 *
 *   read -> HELD -> answered EIO, at its time
 *                -> answered EINTR, interrupted
 *                -> left, at the end of this process: the next one has it sent again
 *
 * Happy path: the keeper starts this process where daemons end before they serve, and the next
 * daemon when it has ended. Most reasons end by themselves (memory that is short), or by an operator's
 * hand once .ramp/status was read.
 *
 * How it fails: without memory a request is answered at once. RELEASE and INIT are left to the next
 * process: no caller waits for the one, and the other must be answered by a daemon. It touches
 * neither the store nor the state directory. So an open that a dead daemon had begun to grant for
 * passthrough and that is answered EIO here keeps its segment from moving until the next mount.
 */
#include "stand_in.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/kernel.h"
#include "base/log.h"
#include "fuse_request.h"
#include "fuse_takeover.h"
#include "inode.h"
#include "keeper/inherited.h"
#include "keeper/protocol.h"

struct held {
	TAILQ_ENTRY(held) link;
	uint64_t unique; /* with the mark of a resend */
	uint64_t until_ms;
};

struct stand_in {
	TAILQ_HEAD(, held) held; /* the oldest first */
	char why[RAMP_ERR_TEXT_BYTES];
	uint8_t *buf; /* RECEIVE_BYTES */
	bool over, gone;
};

/* ---- answers -------------------------------------------------------------------------------- */

/* `body` may be NULL. A caller that waits no more is no error. */
static void answer(uint64_t unique, int error, const void *body, size_t len)
{
	struct fuse_out_header out = {
		.len = (uint32_t)(sizeof(out) + len), .error = error, .unique = unique};
	uint8_t reply[sizeof(out) + 4096];
	ssize_t n;

	memcpy(reply, &out, sizeof(out));
	if (len)
		memcpy(reply + sizeof(out), body, len);
	n = write(KEEPER_FD_FUSE, reply, out.len);
	if (n < 0 && errno != ENOENT)
		log_debug("answering a request: %s", strerror(errno));
}

static void hold(struct stand_in *s, uint64_t unique)
{
	struct held *h = malloc(sizeof(*h));

	if (!h) {
		answer(unique, -EIO, NULL, 0);
		return;
	}
	*h = (struct held){.unique = unique, .until_ms = clock_ms() + STAND_IN_HOLD_MS};
	TAILQ_INSERT_TAIL(&s->held, h, link);
}

static void held_end(struct stand_in *s, struct held *h, int error)
{
	answer(h->unique, error, NULL, 0);
	TAILQ_REMOVE(&s->held, h, link);
	free(h);
}

static void interrupt(struct stand_in *s, uint64_t unique)
{
	struct held *h;

	TAILQ_FOREACH (h, &s->held, link)
		if (((h->unique ^ unique) & ~KERNEL_FUSE_UNIQUE_RESEND) == 0) {
			held_end(s, h, -EINTR);
			return;
		}
}

static void answer_due(struct stand_in *s)
{
	struct held *h;

	/* The analyzer does not see that held_end takes the first out of the list.
	   NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
	while ((h = TAILQ_FIRST(&s->held)) && h->until_ms <= clock_ms())
		held_end(s, h, -EIO);
}

/* ---- .ramp ---------------------------------------------------------------------------------- */

static const char *const names[] = {[INODE_STATUS] = "status",
				    [INODE_NODES] = "nodes",
				    [INODE_METRICS] = "metrics",
				    [INODE_SEGMENTS] = "segments"};

static bool is_ramp_file(uint64_t ino)
{
	return ino >= INODE_STATUS && ino <= INODE_SEGMENTS;
}

/* Fills in what can be said of an inode. False: nothing. */
static bool fill_attr(uint64_t ino, struct fuse_attr *attr)
{
	bool file = is_ramp_file(ino);

	if (!file && ino != INODE_ROOT && ino != INODE_RAMP)
		return false;
	*attr = (struct fuse_attr){.ino = ino,
				   .mode = file ? S_IFREG | 0444 : S_IFDIR | 0755,
				   .nlink = file ? 1 : 2,
				   .blksize = 4096};
	return true;
}

static void answer_attr(uint64_t unique, uint64_t ino)
{
	struct fuse_attr_out out = {0};

	fill_attr(ino, &out.attr);
	answer(unique, 0, &out, sizeof(out));
}

/* Returns the inode of a name in the root or in .ramp; 0: not known here. */
static uint64_t find_name(uint64_t parent, const char *name)
{
	if (parent == INODE_ROOT)
		return strcmp(name, ".ramp") == 0 ? INODE_RAMP : 0;
	for (uint64_t ino = INODE_STATUS; parent == INODE_RAMP && ino <= INODE_SEGMENTS; ino++)
		if (strcmp(name, names[ino]) == 0)
			return ino;
	return 0;
}

static void answer_entry(uint64_t unique, uint64_t ino)
{
	struct fuse_entry_out out = {.nodeid = ino, .generation = 1};

	fill_attr(ino, &out.attr);
	answer(unique, 0, &out, sizeof(out));
}

static void answer_open(uint64_t unique)
{
	struct fuse_open_out out = {.open_flags = FOPEN_DIRECT_IO | KERNEL_FOPEN_NOFLUSH};

	answer(unique, 0, &out, sizeof(out));
}

static void answer_read(const struct stand_in *s, uint64_t unique, uint64_t ino,
			const struct fuse_read_in *in)
{
	char text[1024] = "";
	size_t len, n;

	if (ino == INODE_STATUS)
		snprintf(text, sizeof(text),
			 "rampfs %s, not serving\nwhy: %s\nquorum: no\nleader: none\n\nnodes: 0\n"
			 "\nsegments: 0\n\nmigrations: 0\n",
			 RAMPFS_VERSION, s->why);
	else if (ino == INODE_SEGMENTS)
		snprintf(text, sizeof(text), "1\nnode\tname\n1\n");
	len = strlen(text);
	n = in->offset < len ? len - in->offset : 0;
	answer(unique, 0, n ? text + in->offset : NULL, n < in->size ? n : in->size);
}

/* Answers a request about .ramp. False: it is about something else. */
static bool answer_ramp(const struct stand_in *s, const struct fuse_in_header *in,
			const uint8_t *body, size_t len)
{
	struct fuse_read_in read_in;
	struct fuse_attr unused;
	uint64_t ino = 0;

	if (in->opcode == FUSE_LOOKUP && len && !body[len - 1])
		ino = find_name(in->nodeid, (const char *)body);
	if (ino)
		answer_entry(in->unique, ino);
	else if (in->opcode == FUSE_GETATTR && fill_attr(in->nodeid, &unused))
		answer_attr(in->unique, in->nodeid);
	else if (in->opcode == FUSE_OPEN && is_ramp_file(in->nodeid))
		answer_open(in->unique);
	else if (in->opcode == FUSE_READ && is_ramp_file(in->nodeid) && len >= sizeof(read_in)) {
		memcpy(&read_in, body, sizeof(read_in));
		answer_read(s, in->unique, in->nodeid, &read_in);
	} else {
		return false;
	}
	return true;
}

/* ---- requests ------------------------------------------------------------------------------- */

static void stand_in_take_request(struct stand_in *s, const uint8_t *bytes, size_t len)
{
	struct fuse_interrupt_in interrupted;
	struct fuse_in_header in;

	if (len < sizeof(in))
		return;
	memcpy(&in, bytes, sizeof(in));
	bytes += sizeof(in);
	len -= sizeof(in);
	switch (in.opcode) {
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_RELEASE:
	case FUSE_INIT:
		return;
	case FUSE_INTERRUPT:
		if (len >= sizeof(interrupted)) {
			memcpy(&interrupted, bytes, sizeof(interrupted));
			interrupt(s, interrupted.unique);
		}
		return;
	case FUSE_DESTROY:
		answer(in.unique, 0, NULL, 0);
		return;
	default:
		if (!answer_ramp(s, &in, bytes, len))
			hold(s, in.unique);
	}
}

static void read_requests(struct stand_in *s)
{
	ssize_t n;

	while ((n = read(KEEPER_FD_FUSE, s->buf, RECEIVE_BYTES)) >= 0 || errno == ENOENT ||
	       errno == EINTR)
		if (n > 0)
			stand_in_take_request(s, s->buf, (size_t)n);
	if (errno == ENODEV)
		s->gone = s->over = true;
}

/* The keeper's first message says why no daemon serves; any other ends us, and so does its end. */
static void read_keeper(struct stand_in *s)
{
	char message[1 + RAMP_ERR_TEXT_BYTES] = "";
	ssize_t n = recv(KEEPER_FD_CONTROL, message, sizeof(message) - 1, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0 && message[0] == KEEPER_SAY_FAILED)
		snprintf(s->why, sizeof(s->why), "%s", message + 1);
	else
		s->over = true;
}

static void ask_resend(void)
{
	struct fuse_out_header notice = {.len = sizeof(notice),
					 .error = (int32_t)KERNEL_FUSE_NOTIFY_RESEND};

	if (write(KEEPER_FD_FUSE, &notice, sizeof(notice)) < 0)
		log_warn("requests that a dead daemon had read are not sent again: %s",
			 strerror(errno));
}

/* The descriptor is shared with the daemons, which wait in read(2). */
static void set_nonblocking(bool on)
{
	int flags = fcntl(KEEPER_FD_FUSE, F_GETFL);

	flags = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
	if (fcntl(KEEPER_FD_FUSE, F_SETFL, flags))
		log_warn("/dev/fuse: %s", strerror(errno));
}

static int next_timeout(const struct stand_in *s, uint64_t end_ms)
{
	const struct held *h = TAILQ_FIRST(&s->held);
	uint64_t at = h && h->until_ms < end_ms ? h->until_ms : end_ms, now = clock_ms();

	return at > now ? (int)(at - now) : 0;
}

static void serve(struct stand_in *s)
{
	uint64_t end_ms = clock_ms() + STAND_IN_MS;

	while (!s->over && clock_ms() < end_ms) {
		struct pollfd p[2] = {{.fd = KEEPER_FD_CONTROL, .events = POLLIN},
				      {.fd = KEEPER_FD_FUSE, .events = POLLIN}};

		if (poll(p, 2, next_timeout(s, end_ms)) < 0)
			continue;
		if (p[0].revents)
			read_keeper(s);
		if (p[1].revents && !s->over)
			read_requests(s);
		answer_due(s);
	}
}

int stand_in_run(void)
{
	struct stand_in s = {.why = "no daemon can be started (see its log)"};
	struct ramp_err err = {0};
	struct held *h;
	uint64_t connection;

	TAILQ_INIT(&s.held);
	s.buf = locked_buffer(RECEIVE_BYTES);
	if (!s.buf || keeper_inherited(&connection, &err))
		return KEEPER_EXIT_FATAL;
	read_keeper(&s);
	set_nonblocking(true);
	ask_resend();
	serve(&s);
	set_nonblocking(false);
	if (s.gone)
		keeper_tell(KEEPER_SAY_GONE);
	while ((h = TAILQ_FIRST(&s.held))) {
		TAILQ_REMOVE(&s.held, h, link);
		free(h);
	}
	return 0;
}
