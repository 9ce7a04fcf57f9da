/*
 * mkfs.rampfs: makes a node's state directory. Here: options, the key, and the order of the steps.
 *
 * Everything is made in a new directory beside STATE_DIR and renamed into place when it is whole,
 * so a failure at any point leaves nothing behind. An existing node is replaced only with --force,
 * and only where no rampfs runs on it and its store is not mounted.
 */
#include <errno.h>
#include <getopt.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hmac.h"
#include "base/output.h"
#include "keep.h"
#include "make_dir.h"
#include "plan.h"

#define KEY_TRIES 10 /* each after another founder's mkfs has failed */

static const char usage_text[] =
	"Usage: mkfs.rampfs --config FILE --node NAME [--key FILE] [--force] STATE_DIR\n"
	"       mkfs.rampfs --join HOST:PORT --key FILE --node NAME [--config FILE]\n"
	"                   [--address HOST:PORT] [--capacity SIZE] [--force] STATE_DIR\n"
	"       mkfs.rampfs --rejoin HOST:PORT --key FILE --node NAME ... STATE_DIR\n"
	"Makes the state directory of one node of a rampfs cluster: of a founder, or of one that "
	"joins.\n"
	"\n"
	"  -c, --config FILE     the cluster's configuration, the same for every founding node; "
	"where it\n"
	"                        joins: its own [node NAME] section says address, capacity, "
	"transport\n"
	"  -n, --node NAME       the node that this machine is\n"
	"  -k, --key FILE        the cluster key: read, or made by a founder where there is none "
	"(mode\n"
	"                        0600); default: FILE of --config with .key behind it.\n"
	"                        Every node needs the same key: copy it there first\n"
	"  -j, --join HOST:PORT  a member of the running cluster, which takes this node in as a "
	"standby\n"
	"                        (a name that is free, or that rampfs-node add gave).\n"
	"                        The key is the proof, for both\n"
	"  -r, --rejoin HOST:PORT  the same for a member that comes back. Where its store is "
	"mounted in\n"
	"                        STATE_DIR (its journal.db is lost, say), it keeps its number and "
	"its\n"
	"                        segments. Else it gets a new number, and you say that nothing of "
	"the\n"
	"                        old one runs any more, daemon or program: its incarnation is "
	"fenced,\n"
	"                        and what it owned is lost\n"
	"  -a, --address HOST:PORT  where the joining node listens\n"
	"  -s, --capacity SIZE   of the joining node's store, as 8G\n"
	"  -f, --force           replace a node that STATE_DIR holds already; its metadata is "
	"lost\n"
	"  -h, --help            this text\n"
	"  -V, --version         the version\n"
	"\n"
	"Then: rampfs STATE_DIR MOUNTPOINT; a node that joined votes after rampfs-node promote "
	"NAME\n";

static const struct option long_options[] = {{"config", required_argument, NULL, 'c'},
					     {"node", required_argument, NULL, 'n'},
					     {"key", required_argument, NULL, 'k'},
					     {"join", required_argument, NULL, 'j'},
					     {"rejoin", required_argument, NULL, 'r'},
					     {"address", required_argument, NULL, 'a'},
					     {"capacity", required_argument, NULL, 's'},
					     {"force", no_argument, NULL, 'f'},
					     {"help", no_argument, NULL, 'h'},
					     {"version", no_argument, NULL, 'V'},
					     {NULL, 0, NULL, 0}};

static int take_option(int c, struct mkfs_options *o)
{
	switch (c) {
	case 'c':
		o->config = optarg;
		return 0;
	case 'n':
		o->node = optarg;
		return 0;
	case 'k':
		o->key = optarg;
		return 0;
	case 'r':
		o->again = true;
		/* fallthrough */
	case 'j':
		if (o->join) {
			fputs("mkfs.rampfs: one of --join and --rejoin, once\n", stderr);
			return -EINVAL;
		}
		o->join = optarg;
		return 0;
	case 'a':
		o->address = optarg;
		return 0;
	case 's':
		o->capacity = optarg;
		return 0;
	case 'f':
		o->force = true;
		return 0;
	case 'h':
		fputs(usage_text, stdout);
		exit(output_end("mkfs.rampfs"));
	case 'V':
		puts("mkfs.rampfs " RAMPFS_VERSION);
		exit(output_end("mkfs.rampfs"));
	default:
		return -EINVAL;
	}
}

static const char *what_is_wrong(const struct mkfs_options *o, int rest)
{
	if (!o->config && !o->join)
		return "--config is missing (or --join)";
	if (!o->node)
		return "--node is missing";
	if (o->join && !o->key && !o->config)
		return "--key is missing: it is what proves that this node may join";
	if (!o->join && (o->address || o->capacity))
		return "--address and --capacity are for --join; a founder's stand in --config";
	return rest == 1 ? NULL : "one STATE_DIR is needed";
}

/* Whether a path ends with . or .. */
static bool is_dots(const char *path)
{
	char copy[PATH_MAX];
	const char *last;

	snprintf(copy, sizeof(copy), "%s", path);
	last = basename(copy);
	return strcmp(last, ".") == 0 || strcmp(last, "..") == 0;
}

/* Returns the directory that is replaced or made: the target of a symbolic link. */
static const char *follow(const char *dir)
{
	static char real[PATH_MAX];

	return realpath(dir, real) ? real : dir;
}

static int mkfs_parse_options(int argc, char **argv, struct mkfs_options *o)
{
	const char *wrong;
	int c;

	while ((c = getopt_long(argc, argv, "c:n:k:j:r:a:s:fhV", long_options, NULL)) != -1)
		if (take_option(c, o))
			return -EINVAL;
	wrong = what_is_wrong(o, argc - optind);
	if (wrong) {
		fprintf(stderr, "mkfs.rampfs: %s\n", wrong);
		return -EINVAL;
	}
	if (is_dots(argv[optind])) {
		fputs("mkfs.rampfs: STATE_DIR is made again: give its name, not . or ..\n", stderr);
		return -EINVAL;
	}
	o->dir = follow(argv[optind]);
	return 0;
}

/* Reads the key, or lets a founder make it where there is none. *made is its descriptor then, so
   that no other mkfs reads a key that a failure later removes again; else negative. */
static int get_key(const char *path, bool founder, uint8_t key[STATEDIR_KEY_BYTES], int *made,
		   uint8_t *bytes, size_t *len, struct ramp_err *err)
{
	int rc, tries = 0;

	do { /* -EEXIST: another founder's, meanwhile; or a link without a target */
		rc = statedir_read_key_file(path, bytes, err);
		if (rc == -ENOENT && founder)
			rc = statedir_make_key_file(path, bytes, made, err);
	} while (rc == -EEXIST && ++tries < KEY_TRIES);
	if (rc < 0)
		return rc;
	*len = (size_t)rc;
	rc = hmac_cluster_key(bytes, *len, key);
	return rc ? ramp_err_sys(err, -rc, "key file %s", path) : 0;
}

static int make_with_key(const struct mkfs_options *o, struct plan *plan, bool replace,
			 struct ramp_err *err)
{
	uint8_t key[STATEDIR_KEY_BYTES], bytes[STATEDIR_KEY_FILE_BYTES];
	char key_path[PATH_MAX];
	size_t key_len = 0;
	int rc, made = -1;

	snprintf(key_path, sizeof(key_path), "%s%s", o->key ? o->key : o->config,
		 o->key ? "" : ".key");
	rc = get_key(key_path, !o->join, key, &made, bytes, &key_len, err);
	if (!rc)
		rc = o->join ? plan_join(o, key, plan, err) : plan_found(o, key, plan, err);
	if (!rc)
		rc = make_dir(o, plan, replace, bytes, key_len, err);
	if (rc && made >= 0)
		unlink(key_path);
	else if (made >= 0)
		printf("mkfs.rampfs: made the cluster key %s; every node needs it\n", key_path);
	if (made >= 0)
		close(made);
	hmac_wipe(key, sizeof(key));
	hmac_wipe(bytes, sizeof(bytes));
	return rc;
}

static void warn(const char *line)
{
	fprintf(stderr, "mkfs.rampfs: warning: %s\n", line);
}

/* Reads what the directory that is kept says. */
static int look_at_kept(const struct mkfs_options *o, struct plan *plan, struct ramp_err *err)
{
	struct ramp_err ignored = {0};
	char config[PATH_MAX];
	int rc;

	plan->keeps = keep_is_due(o);
	if (!plan->keeps)
		return 0;
	rc = keep_incarnation(o, &plan->incarnation, err);
	/* Its own section has settings that the cluster does not know. Without it they are the defaults. */
	if (!rc && !o->config && !statedir_file(o->dir, "cluster.conf", config, &ignored))
		config_read(config, &plan->config, &ignored);
	return rc;
}

static void say_joined(const struct mkfs_options *o, const struct plan *plan)
{
	if (!plan->keeps)
		printf("mkfs.rampfs: node %s joins cluster %s as number %u\n", o->node,
		       plan->config.name, plan->founding.self);
	else
		printf("mkfs.rampfs: node %s comes again, as number %u, with the segments in "
		       "%s/store. It is "
		       "a standby (rampfs-node promote %s gives it its vote)\n",
		       o->node, plan->founding.self, o->dir, o->node);
}

static int mkfs_make(const struct mkfs_options *o, struct ramp_err *err)
{
	struct plan plan = {0};
	int lock = -1, rc = 0;

	/* First: without random numbers it ends the process. */
	plan.founding.instance = ramp_random64();
	if (o->config)
		rc = config_read(o->config, &plan.config, err);
	if (rc)
		return rc;
	if (o->config && !config_find(&plan.config, o->node))
		rc = ramp_err_set(err, EINVAL, "%s: has no [node %s]", o->config, o->node);
	if (!rc)
		rc = may_make(o, &lock, err);
	if (!rc)
		rc = look_at_kept(o, &plan, err);
	if (!rc)
		rc = make_with_key(o, &plan, lock >= 0, err);
	if (!rc && o->join)
		say_joined(o, &plan);
	if (plan.keeps && (rc == -ESTALE || rc == -EPERM))
		keep_say_aside(o);
	for (size_t i = 0; !rc && i < plan.config.n_nodes; i++)
		config_doubts(&plan.config.nodes[i],
			      strcmp(plan.config.nodes[i].name, o->node) == 0, warn);
	if (lock >= 0)
		close(lock);
	plan_free(&plan);
	return rc;
}

int main(int argc, char **argv)
{
	struct mkfs_options o = {0};
	struct ramp_err err = {0};

	output_begin();
	if (mkfs_parse_options(argc, argv, &o)) {
		fputs("Try 'mkfs.rampfs --help'.\n", stderr);
		return 2;
	}
	if (mkfs_make(&o, &err)) {
		fprintf(stderr, "mkfs.rampfs: %s\n", err.text);
		return 1;
	}
	return 0;
}
