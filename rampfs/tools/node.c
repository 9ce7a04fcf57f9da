/*
 * rampfs-node [-m MOUNTPOINT] list|fence|remove|add|promote|set ...: the members of the cluster, and
 * its settings.
 * rampfs-node recover ... (recover.c): offline, where there is no quorum any more.
 *
 * Happy path: the mount names the session socket of this node's daemon; MEMBER goes out, one ANSWER
 * comes back when the cluster has decided. list prints .ramp/nodes.
 *
 * How it fails: the daemon's answer is printed unchanged. A fence always names the incarnation that
 * .ramp/nodes showed when it began, so that a node that has come back meanwhile is not fenced. With
 * --hook nothing is sent unless the hook's exit status is 0; the daemon may hear for a while the
 * node that the hook has ended, so the request is repeated.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/ioc.h"
#include "base/output.h"
#include "base/session.h"
#include "base/size.h"
#include "find_mount.h"
#include "recover.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

#define HEARD_TRIES   50
#define HEARD_WAIT_US 100000

static const char usage[] =
	"usage: rampfs-node [-m MOUNTPOINT] list\n"
	"       rampfs-node [-m MOUNTPOINT] add NAME HOST:PORT CAPACITY\n"
	"       rampfs-node [-m MOUNTPOINT] promote NAME\n"
	"       rampfs-node [-m MOUNTPOINT] fence [--hook COMMAND] [--force] NAME\n"
	"       rampfs-node [-m MOUNTPOINT] remove NAME\n"
	"       rampfs-node [-m MOUNTPOINT] set arena-user-max SIZE|default\n"
	"       rampfs-node recover [--lost NAME]... [--survivor NAME]... [--address "
	"NAME=HOST:PORT]...\n"
	"                           [--yes] STATE_DIR\n"
	"       rampfs-node recover --adopt CERTIFICATE [--address NAME=HOST:PORT]... [--yes] "
	"STATE_DIR\n"
	"       rampfs-node recover --show STATE_DIR\n"
	"Change the members of a rampfs cluster, or a setting, through the daemon of one of them.\n"
	"Root only, but for list.\n"
	"\n"
	"  list     name, role, state, address, capacity and incarnation of each\n"
	"  add      a new member, as a standby; on its machine mkfs.rampfs --join makes it\n"
	"           (which adds it by itself where this was not done before)\n"
	"  promote  a standby that is up becomes a voter\n"
	"  fence    your word that a node is over and will not come back as it was: what it owned "
	"is\n"
	"           lost, what was moving to it goes back, what it gave is pulled no more.\n"
	"           Refused while this node hears it\n"
	"           --hook COMMAND  fence only if COMMAND succeeds (a power switch, say); it "
	"finds\n"
	"                           RAMPFS_NODE, RAMPFS_ADDRESS and RAMPFS_INCARNATION set\n"
	"           -f, --force     although it is heard: its programs keep using segments that "
	"no node owns\n"
	"  remove   a node that has no segments leaves the cluster\n"
	"  set      arena-user-max: the addresses that each user's mapped segments may have; an "
	"eighth\n"
	"           of the arena by default. Root has no bound\n"
	"  recover  a quorum is lost for good: the node of STATE_DIR, which must not run, "
	"continues "
	"as "
	"the\n"
	"           one voter of a new cluster, with its segments. It dials all others first, says "
	"what\n"
	"           may be lost, and asks. rampfs(8) has it step by step\n"
	"           --lost NAME      your word that this node is over, as of fence; once for each\n"
	"           --survivor NAME  this one will be adopted, with its segments\n"
	"           --adopt CERTIFICATE  on such a survivor: the file that recover has written\n"
	"           --address NAME=HOST:PORT  where a node is now; this node alone is told. "
	"Without "
	"--lost,\n"
	"                            --survivor and --adopt that is all\n"
	"           -y, --yes        do not ask\n"
	"           --show           print the certificate again\n"
	"\n"
	"  -m, --mount MOUNTPOINT  a rampfs mount of this machine; default: the only one\n"
	"  -h, --help              this text\n"
	"  --version               the version\n"
	"\n"
	"Exit status: 0 done, 1 refused or failed, 2 usage.\n";

struct node_options {
	const char *mount, *hook;
	bool force;
	bool recovers; /* an option of recover was given */
	struct recover_options recover;
};

static int complain(const char *what, const char *why)
{
	fprintf(stderr, "rampfs-node: %s: %s\n", what, why);
	return EXIT_FAILED;
}

static int misused(const char *what)
{
	fprintf(stderr, "rampfs-node: %s\nTry 'rampfs-node --help'.\n", what);
	return EXIT_USAGE;
}

/* ---- the mount ---- */

/* A node in .ramp/nodes. */
struct listed_node {
	char address[RAMP_ADDRESS_MAX + 1];
	uint64_t incarnation;
};

static FILE *open_nodes(const char *mount)
{
	char path[PATH_MAX + 16];
	FILE *nodes;

	snprintf(path, sizeof(path), "%s/.ramp/nodes", mount);
	nodes = fopen(path, "re");
	if (!nodes && (errno == ENOENT || errno == ENOTDIR) && access(mount, F_OK) == 0)
		complain(mount, "is not a rampfs mount");
	else if (!nodes)
		complain(path, strerror(errno));
	return nodes;
}

/* "NAME role state HOST:PORT capacity=N incarnation=HEX ..." */
static int look_up(const char *mount, const char *name, struct listed_node *listed)
{
	FILE *nodes = open_nodes(mount);
	char *line = NULL, seen[RAMP_NODE_NAME_MAX + 1];
	size_t cap = 0;
	bool found = false;

	if (!nodes)
		return EXIT_FAILED;
	while (!found && getline(&line, &cap, nodes) > 0)
		found = sscanf(line, "%63s %*s %*s %255s %*s incarnation=%" SCNx64, seen,
			       listed->address, &listed->incarnation) == 3 &&
			strcmp(seen, name) == 0;
	free(line);
	fclose(nodes);
	return found ? 0 : complain(name, "no such node");
}

static int list(const char *mount)
{
	FILE *nodes = open_nodes(mount);
	char *line = NULL;
	size_t cap = 0;

	if (!nodes)
		return EXIT_FAILED;
	while (getline(&line, &cap, nodes) > 0)
		fputs(line, stdout);
	free(line);
	fclose(nodes);
	return output_end("rampfs-node");
}

/* ---- asking the daemon ---- */

static int connect_daemon(const char *mount)
{
	struct ramp_ioc_info info = {0};
	int sock, dir = open(mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = dir < 0 ? -errno : ask_mount_info(dir, &info);

	if (dir >= 0)
		close(dir);
	if (rc) {
		complain(mount, rc == -ENOTTY  ? "is not a rampfs mount"
				: rc == -EPERM ? "is not a rampfs that root has mounted"
					       : strerror(-rc));
		return -1;
	}
	sock = session_connect(info.socket);
	if (sock < 0)
		complain(info.socket, strerror(-sock));
	return sock;
}

static int node_ask_once(const char *mount, struct session_msg *msg, struct session_msg *answer)
{
	int rc, sock = connect_daemon(mount);

	if (sock < 0)
		return EXIT_FAILED;
	msg->type = SESSION_MEMBER;
	rc = session_send(sock, msg, NULL, 0, 0);
	if (!rc)
		rc = session_recv(sock, answer, NULL, NULL, 0);
	close(sock);
	if (rc || answer->type != SESSION_ANSWER)
		return complain(msg->node, "the daemon is gone; it may still happen (rampfs-node "
					   "list shows it)");
	return 0;
}

/* Asks again while the answer is EBUSY, `tries` times in all at most. */
static int node_ask(const char *mount, struct session_msg *msg, unsigned int tries)
{
	struct session_msg answer;
	int rc = node_ask_once(mount, msg, &answer);

	while (!rc && answer.result == EBUSY && --tries) {
		usleep(HEARD_WAIT_US);
		rc = node_ask_once(mount, msg, &answer);
	}
	if (rc || !answer.result)
		return rc;
	return complain(msg->node, answer.text[0] ? answer.text : strerror((int)answer.result));
}

/* ---- the verbs ---- */

static int run_hook(const char *hook, const char *name, const struct listed_node *listed)
{
	char incarnation[17];
	int status;

	snprintf(incarnation, sizeof(incarnation), "%016" PRIx64, listed->incarnation);
	if (setenv("RAMPFS_NODE", name, 1) || setenv("RAMPFS_ADDRESS", listed->address, 1) ||
	    setenv("RAMPFS_INCARNATION", incarnation, 1))
		return complain(hook, strerror(errno));
	status = system(hook);
	if (status == -1)
		return complain(hook, strerror(errno));
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	fprintf(stderr, "rampfs-node: %s: the hook failed (%s %d): it is not fenced\n", name,
		WIFEXITED(status) ? "exit status" : "signal",
		WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
	return EXIT_FAILED;
}

static int fence(const struct node_options *o, struct session_msg *msg)
{
	struct listed_node listed;
	int rc = look_up(o->mount, msg->node, &listed);

	if (!rc && o->hook)
		rc = run_hook(o->hook, msg->node, &listed);
	if (rc)
		return rc;
	msg->mode = SESSION_MEMBER_FENCE;
	msg->addr = listed.incarnation;
	msg->flags = o->force ? SESSION_FORCE : 0;
	return node_ask(o->mount, msg, o->hook ? HEARD_TRIES : 1);
}

/* Returns the complaint about the words of a command; NULL: they are right. */
static const char *what_is_wrong(const struct node_options *o, int argc, char **argv)
{
	static const struct {
		const char *verb, *takes;
		int argc;
	} verbs[] = {
		{"list", "list takes nothing", 1},
		{"add", "add takes NAME HOST:PORT CAPACITY", 4},
		{"promote", "promote takes one NAME", 2},
		{"fence", "fence takes one NAME", 2},
		{"remove", "remove takes one NAME", 2},
		{"set", "set takes arena-user-max SIZE, or arena-user-max default", 3},
		{"recover", "recover takes one STATE_DIR", 2},
	};

	if (argc == 0)
		return "one of list, add, promote, fence, remove, set and recover is needed";
	if ((o->hook || o->force) && strcmp(argv[0], "fence") != 0)
		return "--hook and --force are fence's";
	if (o->recovers && strcmp(argv[0], "recover") != 0)
		return "--lost, --survivor, --adopt, --address, --show and --yes are recover's";
	if (o->recover.adopt && (o->recover.n_lost || o->recover.n_survivors || o->recover.show))
		return "--adopt goes with --address and --yes alone";
	if (o->recover.show && (o->recover.n_lost || o->recover.n_survivors))
		return "--show goes alone";
	if (o->mount && strcmp(argv[0], "recover") == 0)
		return "recover takes a STATE_DIR, no mount";
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (strcmp(argv[0], verbs[i].verb) == 0)
			return argc == verbs[i].argc ? NULL : verbs[i].takes;
	return "it knows list, add, promote, fence, remove, set and recover";
}

static int set(const struct node_options *o, struct session_msg *msg, const char *value)
{
	if (strcmp(value, "default") != 0 && (size_parse(value, &msg->len) || !msg->len))
		return complain(value, "not a size like 512M or 8G, nor default");
	msg->mode = SESSION_MEMBER_SET;
	return node_ask(o->mount, msg, 1);
}

static int carry_out(const struct node_options *o, char **argv)
{
	struct session_msg msg = {0};
	const char *verb = argv[0];

	if (strcmp(verb, "list") == 0)
		return list(o->mount);
	if (!argv[1][0] || strlen(argv[1]) > RAMP_NODE_NAME_MAX)
		return complain(argv[1], strcmp(verb, "set") == 0 ? "not a setting's name"
								  : "not a node's name");
	snprintf(msg.node, sizeof(msg.node), "%s", argv[1]);
	if (strcmp(verb, "fence") == 0)
		return fence(o, &msg);
	if (strcmp(verb, "set") == 0)
		return set(o, &msg, argv[2]);
	if (strcmp(verb, "add") == 0) {
		if (strlen(argv[2]) > RAMP_ADDRESS_MAX)
			return complain(argv[2], "not HOST:PORT");
		if (size_parse(argv[3], &msg.len))
			return complain(argv[3], "not a size like 512M or 8G");
		snprintf(msg.name, sizeof(msg.name), "%s", argv[2]);
		msg.mode = SESSION_MEMBER_ADD;
	} else if (strcmp(verb, "remove") == 0) {
		msg.mode = SESSION_MEMBER_REMOVE;
	} else {
		msg.mode = SESSION_MEMBER_PROMOTE;
	}
	return node_ask(o->mount, &msg, 1);
}

enum { OPT_LOST = 256, OPT_SURVIVOR, OPT_ADOPT, OPT_ADDRESS, OPT_SHOW };

static bool list_add(const char *list[CONFIG_NODES_MAX], size_t *n, const char *text)
{
	if (*n == CONFIG_NODES_MAX)
		return false;
	list[(*n)++] = text;
	return true;
}

/* Takes an option of recover. Returns false: it is none, or one too many. */
static bool take_recover(struct node_options *o, int c)
{
	struct recover_options *r = &o->recover;

	o->recovers = true;
	switch (c) {
	case OPT_LOST:
		return list_add(r->lost, &r->n_lost, optarg);
	case OPT_SURVIVOR:
		return list_add(r->survivors, &r->n_survivors, optarg);
	case OPT_ADDRESS:
		return list_add(r->addresses, &r->n_addresses, optarg);
	case OPT_ADOPT:
		r->adopt = optarg;
		return true;
	case OPT_SHOW:
		r->show = true;
		return true;
	case 'y':
		r->yes = true;
		return true;
	default:
		return false;
	}
}

/* Returns 0 to continue; else an exit status + 1 (so that --help's 0 differs from continuing). */
static int parse_options(int argc, char **argv, struct node_options *o)
{
	static const struct option longs[] = {
		{"mount", required_argument, NULL, 'm'},
		{"hook", required_argument, NULL, 'k'},
		{"force", no_argument, NULL, 'f'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{"lost", required_argument, NULL, OPT_LOST},
		{"survivor", required_argument, NULL, OPT_SURVIVOR},
		{"adopt", required_argument, NULL, OPT_ADOPT},
		{"address", required_argument, NULL, OPT_ADDRESS},
		{"show", no_argument, NULL, OPT_SHOW},
		{"yes", no_argument, NULL, 'y'},
		{NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "m:fyh", longs, NULL)) != -1) {
		switch (c) {
		case 'm':
			o->mount = optarg;
			break;
		case 'k':
			o->hook = optarg;
			break;
		case 'f':
			o->force = true;
			break;
		case 'h':
			fputs(usage, stdout);
			return output_end("rampfs-node") + 1;
		case 'V':
			printf("rampfs-node %s\n", RAMPFS_VERSION);
			return output_end("rampfs-node") + 1;
		default:
			if (take_recover(o, c))
				break;
			fputs("Try 'rampfs-node --help'.\n", stderr);
			return EXIT_USAGE + 1;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct node_options o = {0};
	char mount[PATH_MAX];
	const char *wrong;
	int status;

	output_begin();
	status = parse_options(argc, argv, &o);
	if (status)
		return status - 1;
	wrong = what_is_wrong(&o, argc - optind, argv + optind);
	if (wrong)
		return misused(wrong);
	if (strcmp(argv[optind], "recover") == 0)
		return recover_run(&o.recover, argv[optind + 1]);
	if (!o.mount) {
		status = find_mount("rampfs-node", mount);
		o.mount = mount;
	}
	return status ? status : carry_out(&o, argv + optind);
}
