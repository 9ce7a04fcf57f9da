/*
 * Many segments moved by one request.
 *
 * Happy path: the files of one mount go to its daemon in BATCHes; a VERDICT comes for each segment, in
 * any order, and is printed as the answer of a single move is.
 *
 * How it fails: each segment by itself. Where the daemon dies or is upgraded, the next one is asked for
 * the segments that have no VERDICT: it finds those that are moved, and those that are on the move. A
 * daemon that hangs up on two BATCHes without a word is an older one: each file is moved by a request of
 * its own then.
 */
#include "batch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "find_mount.h"

#define AWAY_S	    10 /* as of a single move */
#define AGAIN_MS    50
#define OLDER_TRIES 2
#define REFUSED_S   1.0

struct batch_file {
	const char *name;
	char *socket; /* NULL: it is over */
	uint64_t segment;
};

struct batch {
	const struct migrate_options *o;
	const struct session_msg *what;
	const struct batch_ops *ops;
	struct batch_file *files; /* of one socket, by segment */
	size_t n, n_over;
	double began;
	bool cancelled;
	bool heard;		    /* by this daemon, or one before */
	bool lost;		    /* a daemon has gone that may have begun some */
	char why[SESSION_TEXT_MAX]; /* the daemon's words for its ANSWER, or "" */
};

static bool is_over(const struct batch_file *file)
{
	return !file->socket;
}

static void end_file(struct batch *b, struct batch_file *file)
{
	free(file->socket);
	file->socket = NULL;
	b->n_over++;
}

/* Ends a file, and hands its status out. */
static void batch_end(struct batch *b, struct batch_file *file, int status)
{
	end_file(b, file);
	b->ops->add(status);
}

static int by_segment(const void *a, const void *b)
{
	const struct batch_file *x = a, *y = b;
	int order = strcmp(x->socket, y->socket);

	return order ? order : (x->segment > y->segment) - (x->segment < y->segment);
}

/* The first file of that segment: another path may name it, too. */
static struct batch_file *find(struct batch *b, uint64_t segment)
{
	size_t lo = 0, hi = b->n, mid;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (b->files[mid].segment < segment)
			lo = mid + 1;
		else
			hi = mid;
	}
	return b->files + lo;
}

static void take_verdict(struct batch *b, const struct session_msg *verdict)
{
	struct batch_file *file = find(b, verdict->segment);

	for (; file < b->files + b->n && file->segment == verdict->segment; file++)
		if (!is_over(file))
			batch_end(b, file,
				  b->ops->report(file->name, b->o, verdict, clock_s() - b->began));
}

/* ---- one daemon ----------------------------------------------------------------------------- */

/* Sends all segments that have no verdict. */
static int send_batch(struct batch *b, int sock)
{
	struct session_msg msg = *b->what;
	uint64_t last = 0;
	int rc = 0;

	for (size_t i = 0; i < b->n && !rc; i++) {
		if (is_over(&b->files[i]) || b->files[i].segment == last)
			continue;
		last = b->files[i].segment;
		if (msg.count == SESSION_RANGES_MAX) {
			msg.flags |= SESSION_MORE;
			rc = session_send(sock, &msg, NULL, 0, 0);
			msg.count = 0;
		}
		msg.ranges[msg.count++] = (struct session_range){.addr = last};
	}
	msg.flags &= ~SESSION_MORE;
	return rc ? rc : session_send(sock, &msg, NULL, 0, 0);
}

static void cancel(struct batch *b, int sock)
{
	const struct session_msg msg = {.type = SESSION_CANCEL};

	b->cancelled = true;
	for (size_t i = 0; i < b->n; i++)
		if (!is_over(&b->files[i]))
			b->ops->complain(b->files[i].name, "cancelling");
	session_send(sock, &msg, NULL, 0, 0);
}

/* Receives verdicts until the ANSWER. Returns 0, or -errno where the daemon is gone. */
static int batch_receive(struct batch *b, int sock)
{
	struct pollfd pfd = {.fd = sock, .events = POLLIN};
	struct session_msg msg;
	sigset_t none;
	int rc;

	sigemptyset(&none);
	for (;;) {
		b->ops->pause_ms(0); /* signals come here, and in ppoll(2) */
		if (b->ops->interrupts() && !b->cancelled)
			cancel(b, sock);
		if (b->ops->interrupts() > 1)
			return -EINTR;
		if (ppoll(&pfd, 1, NULL, &none) < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		rc = session_recv(sock, &msg, NULL, NULL, 0);
		if (rc == -ECONNRESET && b->cancelled) /* the error comes first, once */
			rc = session_recv(sock, &msg, NULL, NULL, 0);
		if (rc)
			return rc;
		b->heard = true;
		if (msg.type == SESSION_VERDICT)
			take_verdict(b, &msg);
		if (msg.type == SESSION_ANSWER) {
			memcpy(b->why, msg.text, sizeof(b->why));
			return -(int)msg.result;
		}
	}
}

static int ask_once(struct batch *b, const char *socket)
{
	int rc, sock = session_connect(socket);

	if (sock < 0)
		return sock;
	rc = send_batch(b, sock);
	if (!rc || rc == -EPIPE || rc == -ECONNRESET)
		rc = batch_receive(b, sock);
	close(sock);
	return rc;
}

/* ---- all daemons ---------------------------------------------------------------------------- */

/* Ends those without a verdict: by where they are after Ctrl-C, else it is not known. */
static void end_rest(struct batch *b, int rc)
{
	struct session_msg answer = {0};
	char why[SESSION_TEXT_MAX + 8];
	bool not_begun = (rc == -EUSERS || rc == -ENOMEM) && !b->lost;

	snprintf(why, sizeof(why),
		 rc == -EUSERS || rc == -EPROTO || rc == -EACCES || rc == -ENOMEM
			 ? "%s"
			 : "the daemon does not answer (%s); the move may continue by itself, "
			   "rampfs-status shows it",
		 b->why[0] ? b->why : strerror(-rc));
	for (struct batch_file *file = b->files; file < b->files + b->n; file++) {
		if (is_over(file))
			continue;
		if (b->ops->interrupts() == 1 &&
		    !b->ops->see_where(file->name, b->o, file->segment, &answer)) {
			batch_end(b, file, b->ops->report(file->name, b->o, &answer, 0));
			continue;
		}
		b->ops->complain(file->name, why);
		batch_end(b, file, not_begun ? b->ops->status_failed : b->ops->status_unknown);
	}
}

static void one_by_one(struct batch *b)
{
	for (struct batch_file *file = b->files; file < b->files + b->n; file++) {
		if (is_over(file))
			continue;
		if (b->ops->interrupts()) {
			b->ops->complain(file->name, "not tried");
			end_file(b, file);
			b->ops->add_not_tried();
		} else {
			batch_end(b, file, b->ops->one(file->name, b->o));
		}
	}
}

/* Asks until each file has a verdict, or no daemon comes back in time. */
static void ask_all(struct batch *b)
{
	char *socket = strdup(b->files->socket);
	double asked, away_since = 0;
	int rc = socket ? -EAGAIN : -ENOMEM, tries = 0;

	while (socket && b->n_over < b->n) {
		size_t before = b->n_over;

		asked = clock_s();
		b->why[0] = 0;
		rc = ask_once(b, socket);
		if (rc == -EUSERS && b->n_over > before && !b->ops->interrupts())
			continue; /* more than a user may have at a time: the next part */
		if (b->n_over == b->n || b->ops->interrupts() || rc == -EUSERS || rc == -EACCES ||
		    rc == -EPROTO || rc == -ENAMETOOLONG)
			break;
		if ((rc == -EPIPE || rc == -ECONNRESET) && !b->heard && ++tries == OLDER_TRIES) {
			one_by_one(b);
			break;
		}
		b->lost = b->lost || b->heard || rc == -EPIPE || rc == -ECONNRESET;
		if (away_since == 0 || clock_s() - asked > REFUSED_S)
			away_since = clock_s();
		if (clock_s() - away_since > AWAY_S)
			break;
		b->ops->pause_ms(AGAIN_MS);
	}
	end_rest(b, rc);
	free(socket);
}

/* Complains of that; returns a status. */
static int no_memory(const struct batch_ops *ops, const char *file)
{
	ops->complain(file, strerror(ENOMEM));
	return ops->status_failed;
}

/* Finds the segments of the files that are there. Returns how many. */
static size_t look_up(char *const *names, size_t n, struct batch_file *files,
		      const struct batch_ops *ops)
{
	struct asked_dir dir = ASKED_DIR_NONE;
	size_t found = 0;

	for (size_t i = 0; i < n; i++) {
		struct stat st;
		int status = ops->ask_mount(names[i], &dir, &st);
		char *socket = status ? NULL : strdup(dir.info.socket);

		if (socket)
			files[found++] = (struct batch_file){names[i], socket, st.st_ino};
		else
			ops->add(status ? status : no_memory(ops, names[i]));
	}
	asked_dir_close(&dir);
	return found;
}

void batch_move(char *const *names, size_t n, const struct migrate_options *o,
		const struct session_msg *what, const struct batch_ops *ops)
{
	struct batch_file *files = calloc(n, sizeof(*files));
	size_t found = files ? look_up(names, n, files, ops) : 0, end;

	if (!files)
		ops->add(no_memory(ops, names[0]));
	else
		qsort(files, found, sizeof(*files), by_segment);
	for (size_t at = 0; at < found; at = end) {
		struct batch b = {
			.o = o, .what = what, .ops = ops, .files = files + at, .began = clock_s()};

		for (end = at; end < found && strcmp(files[at].socket, files[end].socket) == 0;)
			end++;
		b.n = end - at;
		ask_all(&b);
	}
	free(files);
}
