/*
 * mkfs.rampfs: makes a node's state directory.
 *
 * Everything is made in a new directory beside STATE_DIR and renamed into place when it is whole,
 * so a failure at any point leaves nothing behind. An existing node is replaced only with --force,
 * and only where no rampfs runs on it and its store is not mounted.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hmac.h"
#include "base/output.h"
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
	"  -r, --rejoin HOST:PORT  the same for a member whose state directory is lost or was "
	"formatted\n"
	"                        again: it comes back under a new number. It says that nothing of "
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

static int parse(int argc, char **argv, struct mkfs_options *o)
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

static int write_file(const char *dir, const char *name, const void *bytes, size_t len,
		      struct ramp_err *err)
{
	char file[PATH_MAX];
	int fd, rc = statedir_file(dir, name, file, err);

	if (rc)
		return rc;
	fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return ramp_err_sys(err, errno, "%s", file);
	errno = ENOSPC; /* a short write means that */
	if (write(fd, bytes, len) != (ssize_t)len || fsync(fd) < 0)
		rc = ramp_err_sys(err, errno, "%s", file);
	close(fd);
	return rc;
}

static int fill(const char *dir, const struct mkfs_options *o, const struct plan *plan,
		const uint8_t *key_bytes, size_t key_len, struct ramp_err *err)
{
	char file[PATH_MAX], node[RAMP_NODE_NAME_MAX + 2];
	char *text = config_canonical(&plan->config);
	int rc;

	if (!text)
		return ramp_err_sys(err, ENOMEM, "%s", dir);
	rc = write_file(dir, "cluster.conf", text, strlen(text), err);
	free(text);
	if (!rc)
		rc = write_file(dir, "key", key_bytes, key_len, err);
	snprintf(node, sizeof(node), "%s\n", o->node);
	if (!rc)
		rc = write_file(dir, "node", node, strlen(node), err);
	if (!rc)
		rc = statedir_file(dir, "store", file, err);
	if (!rc && mkdir(file, 0700) < 0)
		rc = ramp_err_sys(err, errno, "%s", file);
	if (!rc)
		rc = statedir_file(dir, "journal.db", file, err);
	return rc ? rc : meta_format(file, &plan->founding, err);
}

/* Removes a directory's files and its empty folders; -EBUSY where a store is mounted in it. */
static int remove_dir(const char *path, struct ramp_err *err)
{
	DIR *d = opendir(path);
	struct dirent *e;
	int rc = 0;

	if (!d)
		return errno == ENOENT ? 0 : ramp_err_sys(err, errno, "%s", path);
	while (!rc && (e = readdir(d))) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (unlinkat(dirfd(d), e->d_name, 0) < 0 &&
		    (errno != EISDIR || unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR) < 0))
			rc = ramp_err_sys(err, errno, "%s/%s", path, e->d_name);
	}
	closedir(d);
	if (!rc && rmdir(path) < 0)
		rc = ramp_err_sys(err, errno, "%s", path);
	return rc;
}

static bool store_mounted(const char *dir)
{
	char store[PATH_MAX];
	struct stat in, at;

	return statedir_file(dir, "store", store, NULL) == 0 && stat(store, &in) == 0 &&
	       stat(dir, &at) == 0 && in.st_dev != at.st_dev;
}

/* Checks that STATE_DIR may be made: it is absent or empty, or a node with --force. *lock is the
   lock of a node that is replaced, or -1. */
static int may_make(const struct mkfs_options *o, int *lock, struct ramp_err *err)
{
	char journal[PATH_MAX];
	DIR *d = opendir(o->dir);
	struct dirent *e;
	bool empty = true;
	int rc;

	if (!d)
		return errno == ENOENT ? 0 : ramp_err_sys(err, errno, "%s", o->dir);
	while ((e = readdir(d)))
		empty = empty && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0);
	closedir(d);
	if (empty)
		return 0;
	rc = statedir_file(o->dir, "journal.db", journal, err);
	if (rc)
		return rc;
	if (access(journal, F_OK) < 0)
		return ramp_err_set(err, ENOTEMPTY, "%s: not empty, and not a state directory",
				    o->dir);
	if (!o->force)
		return ramp_err_set(err, EEXIST,
				    "%s: holds a node already (--force replaces it: its metadata "
				    "is lost)",
				    o->dir);
	*lock = statedir_lock(o->dir, err);
	if (*lock < 0)
		return *lock;
	if (store_mounted(o->dir))
		return ramp_err_set(err, EBUSY,
				    "%s: its store is still mounted (rampfs --destroy %s gives it "
				    "up)",
				    o->dir, o->dir);
	return 0;
}

/* Moves the finished directory to STATE_DIR. `replace`: in the place of the node that may_make has
   checked and locked; anything else there by now came while this directory was made. */
static int put_in_place(const char *made, const struct mkfs_options *o, bool replace,
			struct ramp_err *err)
{
	struct ramp_err left = {0};
	char old[PATH_MAX + 8];

	if (rename(made, o->dir) == 0)
		return 0;
	if (errno == EBUSY)
		return ramp_err_set(err, EBUSY,
				    "%s: is a mount point, and can't be replaced: give a directory "
				    "in it",
				    o->dir);
	if (errno != ENOTEMPTY && errno != EEXIST)
		return ramp_err_sys(err, errno, "%s", o->dir);
	if (!replace)
		return ramp_err_set(err, EEXIST, "%s: is not empty any more: another made it",
				    o->dir);
	snprintf(old, sizeof(old), "%s.old", made);
	if (rename(o->dir, old) < 0)
		return ramp_err_sys(err, errno, "%s", o->dir);
	if (rename(made, o->dir) < 0) {
		int code = errno;

		if (rename(old, o->dir) < 0)
			return ramp_err_sys(err, errno, "%s: the node that was there is now %s",
					    o->dir, old);
		return ramp_err_sys(err, code, "%s", o->dir);
	}
	/* The new directory is there: its key is used, and nothing of it is removed again. */
	if (remove_dir(old, &left))
		fprintf(stderr, "mkfs.rampfs: a part of the node that was replaced is left: %s\n",
			left.text);
	return 0;
}

/* Makes the directory beside STATE_DIR and puts it there. */
static int make_dir(const struct mkfs_options *o, const struct plan *plan, bool replace,
		    const uint8_t *key_bytes, size_t key_len, struct ramp_err *err)
{
	char made[PATH_MAX], parent[PATH_MAX], *in;
	int rc;

	snprintf(parent, sizeof(parent), "%s", o->dir);
	in = dirname(parent);
	snprintf(made, sizeof(made), "%.*s/.mkfs.rampfs.XXXXXX", PATH_MAX - 32, in);
	if (!mkdtemp(made))
		return ramp_err_sys(err, errno, "%s", in);
	rc = fill(made, o, plan, key_bytes, key_len, err);
	if (!rc)
		rc = put_in_place(made, o, replace, err);
	if (rc)
		remove_dir(made, NULL);
	return rc;
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
		rc = make_with_key(o, &plan, lock >= 0, err);
	if (!rc && o->join)
		printf("mkfs.rampfs: node %s joins cluster %s as number %u\n", o->node,
		       plan.config.name, plan.founding.self);
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
	if (parse(argc, argv, &o)) {
		fputs("Try 'mkfs.rampfs --help'.\n", stderr);
		return 2;
	}
	if (mkfs_make(&o, &err)) {
		fprintf(stderr, "mkfs.rampfs: %s\n", err.text);
		return 1;
	}
	return 0;
}
