/*
 * rampfs-migrate [--mode MODE] [--max-rounds N] [--limit RATE] [--wait] [--force] [--progress]
 *                [--verbose] [--trace] FILE... NODE
 * rampfs-migrate --prefill [--limit RATE] FILE... NODE|none
 *
 * Moves segments to another node's directory through the session socket of this node's daemon,
 * several by one request (batch.c), so that no ls waits for it (mv holds the kernel's rename lock).
 *
 * Happy path: the directory in which FILE lies names the socket, stat(2) the segment. MIGRATE goes
 * out, PROGRESS comes in, one ANSWER ends it.
 *
 * How it fails: the daemon's answer is printed unchanged. Ctrl-C sends CANCEL and waits for the
 * ANSWER all the same: before the point of no return the segment stays where it is, after it the
 * move is done; either is printed. Where a daemon dies or is upgraded meanwhile, the next one gets
 * the same request: it finds the move that was begun, or begins it. After Ctrl-C the next daemon is
 * not asked; the result is read from where the segment is. A second Ctrl-C ends the wait.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "bar.h"
#include "base/clock.h"
#include "base/ioc.h"
#include "base/output.h"
#include "base/rate.h"
#include "base/session.h"
#include "base/transfer_mode.h"
#include "base/visible.h"
#include "batch.h"
#include "find_mount.h"
#include "last_move.h"
#include "set_prefill.h"
#include "steps.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_UNKNOWN = 3, EXIT_INTERRUPTED = 130 };
enum { MODE_RECLAIM = 16 }; /* as MIGRATE carries it, beside enum transfer_mode */

#define AWAY_S	 10 /* a daemon that is not back by then does not come back */
#define AGAIN_MS 50
#define SAME_MS	 200 /* between two signals that are two */

static const char usage[] =
	"usage: rampfs-migrate [--mode auto|lazy|demand|copy|precopy] [--max-rounds N]\n"
	"                      [--limit RATE] [--wait] [--force] [--progress] [--verbose] "
	"[--trace]\n"
	"                      FILE... NODE\n"
	"       rampfs-migrate --prefill [--limit RATE] FILE... NODE|none\n"
	"       rampfs-migrate --reclaim FILE...\n"
	"Move segments of a rampfs mount to another node. The owner changes in microseconds; "
	"pages\n"
	"follow.\n"
	"\n"
	"Without --mode as user.ramp.mode of the segment says, else as the mount option mode= of "
	"its\n"
	"node does, else auto.\n"
	"\n"
	"  --mode auto    whichever of lazy, precopy and (for a few MiB) copy pays\n"
	"  --mode lazy    pages follow in the background and as they are touched\n"
	"  --mode demand  only as they are touched\n"
	"  --mode copy    programs wait until every page is there; nothing depends on the\n"
	"                 old node afterwards\n"
	"  --mode precopy pages go ahead while programs continue; then only what they stored into\n"
	"                 meanwhile follows\n"
	"  --max-rounds N of a pre-copy, the first one included (1 to 100, default 5)\n"
	"  --limit RATE   bytes a second that go ahead of need, of all FILEs together, as 200M; "
	"at\n"
	"                 least 1M. Pages that programs wait for are not limited\n"
	"  --wait         return when every page is there, and the old node is free\n"
	"  --force        take it from programs that want to be asked (ramp_departure(3)) unasked\n"
	"  --progress     show how far it is\n"
	"  -v, --verbose  say in which mode it was moved, and why; and what it has cost: times,\n"
	"                 and with --wait pages by kind\n"
	"  --trace        print what was done when, at both nodes: the transfer, and the first "
	"page\n"
	"                 faults at the new owner (those of the first two seconds, or with --wait "
	"of\n"
	"                 the whole pull)\n"
	"  --prefill      move nothing, but keep NODE nearly up to date from now on, so that a "
	"later "
	"move\n"
	"                 there finds nearly all pages; none ends that (user.ramp.prefill)\n"
	"  --reclaim      accept a segment that was rolled back when the node it was moved to was\n"
	"                 lost, as it was when it left; on the node that has it\n"
	"  -h, --help     this text\n"
	"  --version      the version\n"
	"\n"
	"Ctrl-C before the transfer cancels: the segment stays where it is. After it the move is "
	"done.\n"
	"A second Ctrl-C does not wait for the daemon to say which it was.\n"
	"\n"
	"Exit status:\n"
	"  0    all were moved (also where Ctrl-C came too late)\n"
	"  1    some stay where they are, for the reason on stderr; or all were moved, and a\n"
	"       --trace could not be printed\n"
	"  2    usage: nothing was tried\n"
	"  3    past the point of no return, or the daemon did not come back, or Ctrl-C twice: "
	"none\n"
	"       failed, but it is not known yet that all were moved; rampfs-status shows what\n"
	"       becomes of them\n"
	"  130  cancelled by Ctrl-C: those under way stay (or were done, which is said); with\n"
	"       --trace or --verbose, one after the other, later ones were not tried\n"
	"Of several 130 outweighs 1, and 1 outweighs 3; but after 3 it stays 3 where Ctrl-C has "
	"only\n"
	"kept later ones from being tried.\n";

struct migrate_options {
	int mode;
	int max_rounds; /* 0: the default */
	bool wait, progress, trace, reclaim, verbose, force, prefill;
	uint64_t limit, batch; /* as MIGRATE carries them */
	const char *node;
};

static volatile sig_atomic_t interrupted;

/* Counts Ctrl-C. A signal right after the first is the same one (timeout(1) signals the process and
   its group). */
static void on_interrupt(int sig)
{
	static uint64_t first_ms;
	uint64_t now_ms = clock_ms();

	(void)sig;
	if (!interrupted)
		first_ms = now_ms;
	if (!interrupted || now_ms - first_ms > SAME_MS)
		interrupted = interrupted + 1;
}

/* Whether the user does not want to wait for the daemon's answer to the first Ctrl-C. */
static bool impatient(void)
{
	return interrupted > 1;
}

/* Returns a path made safe for a terminal (another user may have named the file), until the next
   call. */
static const char *shown(const char *path)
{
	static char text[4 * PATH_MAX];

	visible(text, sizeof(text), path);
	return text;
}

static int complain(const char *file, const char *what)
{
	fprintf(stderr, "rampfs-migrate: %s: %s\n", shown(file), what);
	return EXIT_FAILED;
}

/* ---- one file ---- */

static const char *no_mount(int rc)
{
	return rc == -ENOTTY  ? "is not on a rampfs mount"
	       : rc == -EPERM ? "is not on a rampfs that root has mounted"
			      : strerror(-rc);
}

/* Finds the segment, and asks the mount of its directory. Returns 0, or an exit status. */
static int ask_mount(const char *file, struct asked_dir *dir, struct stat *st)
{
	int rc = asked_dir_find(dir, file, st);

	if (rc)
		return complain(file, no_mount(rc));
	if (!S_ISREG(st->st_mode) || st->st_ino < RAMP_SEGMENT_ID_MIN)
		return complain(file, "is not a segment");
	return 0;
}

static int send_migrate(int sock, const struct migrate_options *o, uint64_t segment)
{
	struct session_msg msg = {.type = SESSION_MIGRATE, .segment = segment};

	msg.mode = o->mode == TRANSFER_UNSAID ? TRANSFER_LAZY : (uint8_t)o->mode;
	msg.rounds = (uint8_t)o->max_rounds;
	msg.flags = (o->mode == TRANSFER_UNSAID ? SESSION_UNSAID : 0) |
		    (o->wait ? SESSION_WAIT : 0) | (o->progress ? SESSION_WATCH : 0) |
		    (o->trace ? SESSION_TRACE : 0) | (o->force ? SESSION_FORCE : 0);
	msg.limit = o->limit;
	msg.batch = o->batch;
	if (o->node)
		snprintf(msg.node, sizeof(msg.node), "%s", o->node);
	return session_send(sock, &msg, NULL, 0, 0);
}

static int send_cancel(int sock)
{
	struct session_msg msg = {.type = SESSION_CANCEL};

	return session_send(sock, &msg, NULL, 0, 0);
}

/* Sleeps. A signal ends the pause, and one that came before it makes it none. Signals are blocked
   except here and while an answer is waited for, so that none comes in between. */
static void pause_ms(long ms)
{
	struct timespec pause = {.tv_nsec = ms * 1000000};
	sigset_t none;

	sigemptyset(&none);
	ppoll(NULL, 0, &pause, &none);
}

/* Waits for the ANSWER; shows the messages before it. Returns 0, or -errno where the daemon is
   gone. */
static int wait_answer(int sock, struct bar *bar, const struct migrate_options *o, bool *cancelled,
		       struct steps *steps, struct session_msg *msg)
{
	struct pollfd pfd = {.fd = sock, .events = POLLIN};
	sigset_t none;
	int rc;

	sigemptyset(&none);
	for (;;) {
		pause_ms(0); /* where a message is there already, ppoll(2) looks for no signal */
		if (interrupted && !*cancelled) {
			bar_clear(bar);
			complain(bar->file, "cancelling");
			*cancelled = true;
			send_cancel(sock);
		}
		if (impatient())
			return -EINTR;
		if (ppoll(&pfd, 1, NULL, &none) < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		rc = session_recv(sock, msg, NULL, NULL, 0);
		/* The daemon answered and hung up before it read our CANCEL: the error comes first,
		   once. */
		if (rc == -ECONNRESET && *cancelled)
			rc = session_recv(sock, msg, NULL, NULL, 0);
		if (rc)
			return rc;
		if (msg->type == SESSION_ANSWER) /* ESHUTDOWN: it ends, or has only begun */
			return msg->result == ESHUTDOWN ? -ESHUTDOWN : 0;
		if (msg->type == SESSION_PROGRESS && o->progress)
			bar_show(bar, msg);
		if (msg->type == SESSION_STEP)
			steps_add(steps, msg);
	}
}

static int report(const char *file, const struct migrate_options *o,
		  const struct session_msg *answer, double took_s)
{
	int code = (int)answer->result;

	if (code == EINTR && strcmp(answer->text, "cancelled") == 0) {
		complain(file, "cancelled: it stays where it is");
		return EXIT_INTERRUPTED;
	}
	if (code) {
		complain(file, answer->text[0] ? answer->text : strerror(code));
		return code == EINTR	     ? EXIT_INTERRUPTED
		       : code == EINPROGRESS ? EXIT_UNKNOWN
					     : EXIT_FAILED;
	}
	if (o->verbose && answer->text[0])
		fprintf(stderr, "%s: %s\n", shown(file), answer->text);
	if (interrupted && o->reclaim)
		complain(file, "it is reclaimed already");
	else if (interrupted)
		fprintf(stderr,
			"rampfs-migrate: %s: past the point of no return: it is on node %s%s\n",
			shown(file), o->node,
			o->wait ? ", and its pages follow by themselves" : "");
	else if (o->progress && o->reclaim)
		fprintf(stderr, "%s: reclaimed\n", shown(file));
	else if (o->progress)
		fprintf(stderr, "%s: on node %s%s after %.3f s\n", shown(file), o->node,
			o->wait ? " with every page" : "", took_s);
	return 0;
}

static bool is_segment(const char *path, uint64_t segment)
{
	struct stat st;

	return lstat(path, &st) == 0 && st.st_ino == segment;
}

/* Whether the segment is listed under this name and on no move: the mount tells its state. */
static bool is_settled(const char *path)
{
	char state[64];
	ssize_t n = getxattr(path, "user.ramp.state", state, sizeof(state) - 1);

	if (n < 0)
		return false;
	state[n] = 0;
	return strcmp(state, "moving") != 0 && strcmp(state, "in doubt") != 0;
}

/* After a cancel that the daemon did not live to answer: finds the directory of the mount that has
   the segment, which tells how the move ended, and fills an answer as the daemon would have. Asks
   no daemon. */
static int see_where(const char *file, const struct migrate_options *o, uint64_t segment,
		     struct session_msg *answer)
{
	char there[PATH_MAX], *dir = strdup(file), *base = strdup(file);
	double until = clock_s() + AWAY_S;
	int rc = -ENOMEM;

	if (dir && base)
		snprintf(there, sizeof(there), "%s/../%s/%s", dirname(dir), o->node,
			 basename(base));
	for (; dir && base && rc; pause_ms(AGAIN_MS)) {
		memset(answer, 0, sizeof(*answer));
		rc = 0;
		if (is_segment(there, segment))
			break;
		if (is_segment(file, segment) && is_settled(file)) {
			answer->result = EINTR;
			snprintf(answer->text, sizeof(answer->text), "cancelled");
			break;
		}
		rc = -ETIMEDOUT;
		if (clock_s() > until || impatient())
			break;
	}
	free(dir);
	free(base);
	return rc;
}

/* Asks one daemon. Returns 0, or -errno where it is gone. */
static int migrate_ask_once(const char *socket, const struct migrate_options *o, uint64_t segment,
			    struct bar *bar, bool *cancelled, struct session_msg *answer)
{
	struct steps steps = {0};
	int rc, sock = session_connect(socket);

	if (sock < 0)
		return sock;
	rc = send_migrate(sock, o, segment);
	if (!rc)
		rc = wait_answer(sock, bar, o, cancelled, &steps, answer);
	bar_clear(bar);
	if (steps.n)
		steps_print(&steps, shown(bar->file));
	close(sock);
	return rc;
}

/* Asks until a daemon answers, or none comes back in time. */
static int migrate_ask(const char *file, const char *socket, const struct migrate_options *o,
		       uint64_t segment, struct session_msg *answer)
{
	struct bar bar;
	double asked, away_since = 0;
	bool cancelled = false;
	int rc;

	bar_begin(&bar, file);
	for (;;) {
		asked = clock_s();
		rc = migrate_ask_once(socket, o, segment, &bar, &cancelled, answer);
		if (rc == 0 || rc == -EACCES || rc == -EPROTO || rc == -ENAMETOOLONG)
			return rc;
		if (impatient())
			return rc;
		if (interrupted)
			return o->reclaim ? rc : see_where(file, o, segment, answer);
		if (away_since == 0 || clock_s() - asked > 1) {
			fprintf(stderr,
				"rampfs-migrate: %s: the daemon is gone (%s); asking the next "
				"one\n",
				shown(file), strerror(-rc));
			away_since = clock_s();
		}
		if (clock_s() - away_since > AWAY_S)
			return rc;
		pause_ms(AGAIN_MS);
	}
}

/* Says what the move has cost. */
static void tell_cost(const char *file, const struct migrate_options *o)
{
	char path[PATH_MAX], *dir = strdup(file), *base = strdup(file);

	if (dir && base) {
		snprintf(path, sizeof(path), "%s/../%s/%s", dirname(dir), o->node, basename(base));
		last_move_print(path, shown(file), o->wait && !interrupted);
	}
	free(dir);
	free(base);
}

static int migrate(const char *file, const struct migrate_options *o)
{
	struct asked_dir dir = ASKED_DIR_NONE;
	double began = clock_s();
	struct session_msg answer = {0};
	struct stat st;
	int rc = ask_mount(file, &dir, &st);

	asked_dir_close(&dir);
	if (rc)
		return rc;
	rc = migrate_ask(file, dir.info.socket, o, st.st_ino, &answer);
	if (rc) {
		fprintf(stderr,
			"rampfs-migrate: %s: the daemon does not answer (%s); the move may "
			"continue "
			"by itself, rampfs-status shows it\n",
			shown(file), strerror(-rc));
		return EXIT_UNKNOWN;
	}
	rc = report(file, o, &answer, clock_s() - began);
	if (!rc && o->verbose && !o->reclaim)
		tell_cost(file, o);
	return rc;
}

/* ---- options ---- */

/* `about` may be NULL. */
static int misused(const char *what, const char *about)
{
	fprintf(stderr, "rampfs-migrate: %s%s%s\nTry 'rampfs-migrate --help'.\n", what,
		about ? ": " : "", about ? shown(about) : "");
	return EXIT_USAGE;
}

static int parse_mode(const char *mode, struct migrate_options *o)
{
	o->mode = transfer_mode_of(mode);
	return o->mode < 0 ? misused("no such mode", mode) : 0;
}

static int parse_max_rounds(const char *text, struct migrate_options *o)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10);
	if (errno || end == text || *end || n < 1 || n > TRANSFER_ROUNDS_MAX)
		return misused("--max-rounds takes 1 to 100", text);
	o->max_rounds = (int)n;
	return 0;
}

static int parse_limit(const char *limit, struct migrate_options *o)
{
	int rc = rate_parse(limit, &o->limit);

	o->batch = ramp_random64();
	return rc == 0	       ? 0
	       : rc == -ERANGE ? misused("--limit is at least 1M (bytes a second), not", limit)
			       : misused("--limit takes bytes a second, as 200M or 1G, not", limit);
}

static const struct option longs[] = {
	{"mode", required_argument, NULL, 'm'},
	{"wait", no_argument, NULL, 'w'},
	{"progress", no_argument, NULL, 'p'},
	{"prefill", no_argument, NULL, 'P'},
	{"reclaim", no_argument, NULL, 'r'},
	{"trace", no_argument, NULL, 't'},
	{"max-rounds", required_argument, NULL, 'n'},
	{"limit", required_argument, NULL, 'l'},
	{"verbose", no_argument, NULL, 'v'},
	{"force", no_argument, NULL, 'f'},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},
	{NULL, 0, NULL, 0},
};

/* Returns 0 to continue; else an exit status + 1 (so that --help's 0 differs from continuing). */
static int parse_options(int argc, char **argv, struct migrate_options *o)
{
	int c, rc = 0;

	while (!rc && (c = getopt_long(argc, argv, "hv", longs, NULL)) != -1) {
		switch (c) {
		case 'm':
			rc = parse_mode(optarg, o);
			break;
		case 'l':
			rc = parse_limit(optarg, o);
			break;
		case 'n':
			rc = parse_max_rounds(optarg, o);
			break;
		case 'w':
			o->wait = true;
			break;
		case 'p':
			o->progress = true;
			break;
		case 't':
			o->trace = true;
			break;
		case 'v':
			o->verbose = true;
			break;
		case 'f':
			o->force = true;
			break;
		case 'P':
			o->prefill = true;
			break;
		case 'r':
			o->reclaim = true;
			break;
		case 'h':
			fputs(usage, stdout);
			return output_end("rampfs-migrate") + 1;
		case 'V':
			printf("rampfs-migrate %s\n", RAMPFS_VERSION);
			return output_end("rampfs-migrate") + 1;
		default:
			fputs("Try 'rampfs-migrate --help'.\n", stderr);
			return EXIT_USAGE + 1;
		}
	}
	return rc ? rc + 1 : 0;
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

/* ---- prefill ---- */

static int prefill(char *const *files, int n, const struct migrate_options *o)
{
	struct asked_dir dir = ASKED_DIR_NONE;
	const char *why;
	struct stat st;
	int status = 0;

	for (int i = 0; i < n; i++) {
		if (ask_mount(files[i], &dir, &st)) {
			status = EXIT_FAILED;
			continue;
		}
		why = set_prefill(files[i], o->node, o->limit);
		if (why)
			status = complain(files[i], why);
	}
	asked_dir_close(&dir);
	return status;
}

/* ---- many files ---- */

static int exit_status;

/* 130 outweighs a failure, a failure an unknown result. */
static void add_status(int status)
{
	if (status == EXIT_INTERRUPTED || (status && exit_status == 0) ||
	    (status == EXIT_FAILED && exit_status == EXIT_UNKNOWN))
		exit_status = status;
}

/* An unknown result stays one where Ctrl-C has only kept later files from being tried. */
static void add_not_tried(void)
{
	if (exit_status != EXIT_UNKNOWN)
		add_status(EXIT_INTERRUPTED);
}

static void complain_of(const char *file, const char *what)
{
	complain(file, what);
}

static int interrupts(void)
{
	return interrupted;
}

static int migrate_many(char *const *files, size_t n, const struct migrate_options *o)
{
	const struct batch_ops ops = {
		.ask_mount = ask_mount,
		.report = report,
		.see_where = see_where,
		.one = migrate,
		.complain = complain_of,
		.pause_ms = pause_ms,
		.interrupts = interrupts,
		.add = add_status,
		.add_not_tried = add_not_tried,
		.status_failed = EXIT_FAILED,
		.status_unknown = EXIT_UNKNOWN,
	};
	struct session_msg what = {
		.type = SESSION_BATCH,
		.mode = o->mode == TRANSFER_UNSAID ? TRANSFER_LAZY : (uint8_t)o->mode,
		.rounds = (uint8_t)o->max_rounds,
		.flags = (o->mode == TRANSFER_UNSAID ? SESSION_UNSAID : 0) |
			 (o->wait ? SESSION_WAIT : 0) | (o->force ? SESSION_FORCE : 0),
		.limit = o->limit,
		.batch = o->batch};

	snprintf(what.node, sizeof(what.node), "%s", o->node);
	batch_move(files, n, o, &what, &ops);
	return exit_status;
}

int main(int argc, char **argv)
{
	struct migrate_options o = {.mode = TRANSFER_UNSAID};
	int last, rc;

	output_begin();
	rc = parse_options(argc, argv, &o);
	if (rc)
		return rc - 1;
	if (o.reclaim &&
	    (o.mode != TRANSFER_UNSAID || o.max_rounds || o.limit || o.wait || o.trace || o.force))
		return misused("--reclaim moves nothing: no --mode, --max-rounds, --limit, --wait, "
			       "--force or --trace with it",
			       NULL);
	if (o.prefill && (o.mode != TRANSFER_UNSAID || o.max_rounds || o.wait || o.trace ||
			  o.force || o.progress || o.reclaim))
		return misused("--prefill moves nothing: only --limit with it", NULL);
	if (o.max_rounds && o.mode != TRANSFER_UNSAID && o.mode != TRANSFER_PRECOPY &&
	    o.mode != TRANSFER_AUTO)
		return misused("--max-rounds is of modes precopy and auto", NULL);
	last = o.reclaim ? argc : argc - 1;
	if (optind >= last)
		return misused(o.reclaim ? "--reclaim takes at least one FILE"
					 : "at least one FILE and a NODE are needed",
			       NULL);
	if (o.reclaim)
		o.mode = MODE_RECLAIM;
	else
		o.node = argv[last];
	if (o.node && strlen(o.node) > RAMP_NODE_NAME_MAX) {
		fprintf(stderr, "rampfs-migrate: no such node: %s\n", shown(o.node));
		return EXIT_FAILED;
	}
	if (o.prefill)
		return prefill(argv + optind, last - optind, &o);
	catch_interrupt();
	if (last - optind > 1 && !o.reclaim && !o.trace && !o.verbose)
		return migrate_many(argv + optind, (size_t)(last - optind), &o);
	for (int i = optind; i < last; i++) {
		if (interrupted) {
			complain(argv[i], "not tried");
			add_not_tried();
		} else {
			add_status(migrate(argv[i], &o));
		}
	}
	return exit_status ? exit_status : output_end("rampfs-migrate"); /* a trace */
}
