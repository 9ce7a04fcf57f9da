/*
 * rampfs-migrate [--mode lazy|demand] [--wait] [--progress] FILE... NODE
 *
 * Moves segments to another node's directory, one after the other, through the session socket of
 * this node's daemon, so that nobody's ls waits for it (mv holds the kernel's rename lock).
 *
 * Happy path: the directory that FILE lies in tells the socket, stat(2) the segment; MIGRATE goes
 * out, PROGRESS comes in, one ANSWER ends it.
 *
 * How it fails: the daemon's answer is printed as it stands. Ctrl-C sends CANCEL and waits for the
 * ANSWER all the same: before the point of no return the segment stays where it is, after it the
 * move is done, and either is said.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ioc.h"
#include "session.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };
enum { MODE_LAZY, MODE_DEMAND, MODE_RECLAIM = 16 }; /* as MIGRATE carries them */

#define BAR_CELLS 24

static const char usage[] =
	"usage: rampfs-migrate [--mode lazy|demand] [--wait] [--progress] FILE... NODE\n"
	"       rampfs-migrate --reclaim FILE...\n"
	"Move segments of a rampfs mount to another node. The owner changes in microseconds; "
	"pages\n"
	"follow.\n"
	"\n"
	"  --mode lazy    pages follow in the background and as they are touched (default)\n"
	"  --mode demand  only as they are touched\n"
	"  --wait         return when every page is there, and the old node is free\n"
	"  --progress     show how far it is\n"
	"  --reclaim      accept a segment that was rolled back when the node it was moved to was\n"
	"                 lost, as it was when it left; on the node that has it\n"
	"  --help, --version\n"
	"\n"
	"Exit status: 0 all moved, 1 some were not, 2 usage, 130 cancelled by Ctrl-C.\n";

struct options {
	int mode;
	bool wait, progress, reclaim;
	const char *node;
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
	(void)sig;
	interrupted = 1;
}

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int complain(const char *file, const char *what)
{
	fprintf(stderr, "rampfs-migrate: %s: %s\n", file, what);
	return EXIT_FAILED;
}

/* ---- progress ------------------------------------------------------------------------------- */

struct bar {
	const char *file;
	bool shown, tty;
	char state[SESSION_TEXT_MAX];
	double since;	/* when pages began to come */
	uint64_t first; /* how many there were then */
};

static void bar_clear(struct bar *bar)
{
	if (bar->shown && bar->tty)
		fputs("\r\033[K", stderr);
	bar->shown = false;
}

static void bar_pages(struct bar *bar, uint64_t done, uint64_t all)
{
	double gone = now_s() - bar->since;
	double rate = gone > 0.05 ? (double)(done - bar->first) / gone : 0;
	int cells = (int)(done * BAR_CELLS / all);

	fprintf(stderr, "\r\033[K%s [", bar->file);
	for (int i = 0; i < BAR_CELLS; i++)
		fputc(i < cells ? '#' : '.', stderr);
	fprintf(stderr, "] %" PRIu64 " %%  %" PRIu64 " of %" PRIu64 " pages", done * 100 / all,
		done, all);
	if (rate > 0)
		fprintf(stderr, "  %.2f GB/s  %.0f s left", rate * RAMP_PAGE_BYTES / 1e9,
			(double)(all - done) / rate);
	fflush(stderr);
}

/* A bar on a terminal; elsewhere one line for each state. */
static void bar_show(struct bar *bar, const struct session_msg *msg)
{
	bool fresh = strcmp(bar->state, msg->text) != 0;

	if (fresh) {
		snprintf(bar->state, sizeof(bar->state), "%s", msg->text);
		bar->since = now_s();
		bar->first = msg->done;
	}
	if (!bar->tty) {
		if (fresh)
			fprintf(stderr, "%s: %s\n", bar->file, bar->state);
		return;
	}
	if (msg->all && msg->done <= msg->all && msg->done >= bar->first)
		bar_pages(bar, msg->done, msg->all);
	else
		fprintf(stderr, "\r\033[K%s: %s", bar->file, bar->state);
	bar->shown = true;
}

/* ---- one file ------------------------------------------------------------------------------- */

/* What the mount says of itself, by the directory that the file is in. 0, or an exit status. */
static int ask_mount(const char *file, struct ramp_ioc_info *info, struct stat *st)
{
	char *copy = strdup(file);
	int dir, rc = 0;

	if (!copy)
		return complain(file, strerror(ENOMEM));
	dir = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		rc = complain(file, strerror(errno));
	else if (lstat(file, st))
		rc = complain(file, strerror(errno));
	else if (ioctl(dir, RAMP_IOC_INFO, info))
		rc = complain(file, errno == ENOTTY || errno == EOPNOTSUPP
					    ? "is not on a rampfs mount"
					    : strerror(errno));
	else if (!S_ISREG(st->st_mode) || st->st_ino < RAMP_SEGMENT_ID_MIN)
		rc = complain(file, "is not a segment");
	if (dir >= 0)
		close(dir);
	free(copy);
	return rc;
}

static int send_migrate(int sock, const struct options *o, uint64_t segment)
{
	struct session_msg msg = {.type = SESSION_MIGRATE, .segment = segment};

	msg.mode = (uint8_t)o->mode;
	msg.flags = (o->wait ? SESSION_WAIT : 0) | (o->progress ? SESSION_WATCH : 0);
	if (o->node)
		snprintf(msg.node, sizeof(msg.node), "%s", o->node);
	return session_send(sock, &msg, NULL, 0, 0);
}

static int send_cancel(int sock)
{
	struct session_msg msg = {.type = SESSION_CANCEL};

	return session_send(sock, &msg, NULL, 0, 0);
}

/* Waits for the ANSWER; shows what comes before it. 0, or -errno where the daemon has gone. */
static int wait_answer(int sock, struct bar *bar, const struct options *o, struct session_msg *msg)
{
	struct pollfd pfd = {.fd = sock, .events = POLLIN};
	bool cancelled = false;
	sigset_t none;
	int rc;

	sigemptyset(&none);
	for (;;) {
		if (interrupted && !cancelled) {
			bar_clear(bar);
			fprintf(stderr, "rampfs-migrate: %s: cancelling\n", bar->file);
			cancelled = true;
			send_cancel(sock);
		}
		/* The signal is blocked but here, so that it can't come between. */
		if (ppoll(&pfd, 1, NULL, &none) < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		rc = session_recv(sock, msg, NULL, NULL, 0);
		if (rc)
			return rc;
		if (msg->type == SESSION_ANSWER)
			return 0;
		if (msg->type == SESSION_PROGRESS && o->progress)
			bar_show(bar, msg);
	}
}

static int report(const char *file, const struct options *o, const struct session_msg *answer,
		  double took_s)
{
	if (answer->result) {
		fprintf(stderr, "rampfs-migrate: %s: %s\n", file,
			answer->text[0] ? answer->text : strerror((int)answer->result));
		return answer->result == EINTR ? EXIT_INTERRUPTED : EXIT_FAILED;
	}
	if (interrupted)
		fprintf(stderr, "rampfs-migrate: %s: past the point of no return: it is done\n",
			file);
	else if (o->progress && o->reclaim)
		fprintf(stderr, "%s: reclaimed\n", file);
	else if (o->progress)
		fprintf(stderr, "%s: on node %s%s after %.3f s\n", file, o->node,
			o->wait ? " with every page" : "", took_s);
	return 0;
}

static int migrate(const char *file, const struct options *o)
{
	struct bar bar = {.file = file, .tty = isatty(STDERR_FILENO)};
	struct ramp_ioc_info info = {0};
	double began = now_s();
	struct session_msg answer = {0};
	struct stat st;
	int sock, rc = ask_mount(file, &info, &st);

	if (rc)
		return rc;
	info.socket[RAMP_SOCKET_PATH_MAX] = 0;
	sock = session_connect(info.socket);
	if (sock < 0) {
		fprintf(stderr, "rampfs-migrate: %s: %s: %s\n", file, info.socket, strerror(-sock));
		return EXIT_FAILED;
	}
	rc = send_migrate(sock, o, st.st_ino);
	if (!rc)
		rc = wait_answer(sock, &bar, o, &answer);
	bar_clear(&bar);
	close(sock);
	if (rc) {
		fprintf(stderr,
			"rampfs-migrate: %s: the daemon has gone (%s); it may go on by itself, "
			"rampfs-status shows it\n",
			file, strerror(-rc));
		return EXIT_FAILED;
	}
	return report(file, o, &answer, now_s() - began);
}

/* ---- options -------------------------------------------------------------------------------- */

static int parse_mode(const char *mode, struct options *o)
{
	if (strcmp(mode, "lazy") == 0) {
		o->mode = MODE_LAZY;
	} else if (strcmp(mode, "demand") == 0) {
		o->mode = MODE_DEMAND;
	} else if (strcmp(mode, "copy") == 0 || strcmp(mode, "precopy") == 0) {
		fprintf(stderr,
			"rampfs-migrate: mode %s is not there yet in version %s (lazy and demand "
			"are)\n",
			mode, RAMPFS_VERSION);
		return EXIT_USAGE;
	} else {
		fprintf(stderr, "rampfs-migrate: no such mode: %s\n%s", mode, usage);
		return EXIT_USAGE;
	}
	return 0;
}

/* 0: go on; else an exit status + 1 (so that --help's 0 can be told from going on). */
static int parse_options(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
		{"mode", required_argument, NULL, 'm'},
		{"wait", no_argument, NULL, 'w'},
		{"progress", no_argument, NULL, 'p'},
		{"reclaim", no_argument, NULL, 'r'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{NULL, 0, NULL, 0},
	};
	int c, rc;

	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		switch (c) {
		case 'm':
			rc = parse_mode(optarg, o);
			if (rc)
				return rc + 1;
			break;
		case 'w':
			o->wait = true;
			break;
		case 'p':
			o->progress = true;
			break;
		case 'r':
			o->reclaim = true;
			o->mode = MODE_RECLAIM;
			break;
		case 'h':
			fputs(usage, stdout);
			return 1;
		case 'V':
			printf("rampfs-migrate %s\n", RAMPFS_VERSION);
			return 1;
		default:
			fputs(usage, stderr);
			return EXIT_USAGE + 1;
		}
	}
	return 0;
}

static void catch_interrupt(void)
{
	struct sigaction action = {.sa_handler = on_interrupt};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

int main(int argc, char **argv)
{
	struct options o = {.mode = MODE_LAZY};
	int status = 0, last, rc = parse_options(argc, argv, &o);

	if (rc)
		return rc - 1;
	last = o.reclaim ? argc : argc - 1;
	if (optind >= last) {
		fputs(usage, stderr);
		return EXIT_USAGE;
	}
	if (!o.reclaim)
		o.node = argv[last];
	if (o.node && strlen(o.node) > RAMP_NODE_NAME_MAX) {
		fprintf(stderr, "rampfs-migrate: no such node: %s\n", o.node);
		return EXIT_FAILED;
	}
	catch_interrupt();
	for (int i = optind; i < last && !interrupted; i++) {
		rc = migrate(argv[i], &o);
		if (rc)
			status = rc;
	}
	return status;
}
