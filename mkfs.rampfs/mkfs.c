/*
 * mkfs.rampfs: makes a node's state directory.
 *
 * Everything is made in a new directory beside the one that is asked for and renamed into place
 * when it is whole, so a failure at any point leaves nothing behind. An existing node is replaced
 * only with --force, and only where nobody runs on it and its store is not mounted.
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

#include "config.h"
#include "hmac.h"
#include "meta.h"
#include "statedir.h"

struct options {
	const char *config, *node, *key, *dir;
	bool force;
};

static const char usage_text[] =
	"Usage: mkfs.rampfs --config FILE --node NAME [--key FILE] [--force] STATE_DIR\n"
	"Makes the state directory of one node of a rampfs cluster.\n"
	"\n"
	"  -c, --config FILE  the cluster's configuration, the same for every founding node\n"
	"  -n, --node NAME    the node of that configuration that this machine is\n"
	"  -k, --key FILE     the cluster key: read, or made where there is none (mode 0600);\n"
	"                     default: FILE of --config with .key behind it.\n"
	"                     Every node needs the same key: copy it there first\n"
	"  -f, --force        replace a node that STATE_DIR holds already; its metadata is lost\n"
	"  -h, --help         this text\n"
	"  -V, --version      the version\n"
	"\n"
	"Then: rampfs STATE_DIR MOUNTPOINT\n";

static int parse(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {{"config", required_argument, NULL, 'c'},
					      {"node", required_argument, NULL, 'n'},
					      {"key", required_argument, NULL, 'k'},
					      {"force", no_argument, NULL, 'f'},
					      {"help", no_argument, NULL, 'h'},
					      {"version", no_argument, NULL, 'V'},
					      {NULL, 0, NULL, 0}};
	int c;

	while ((c = getopt_long(argc, argv, "c:n:k:fhV", longs, NULL)) != -1)
		switch (c) {
		case 'c':
			o->config = optarg;
			break;
		case 'n':
			o->node = optarg;
			break;
		case 'k':
			o->key = optarg;
			break;
		case 'f':
			o->force = true;
			break;
		case 'h':
			fputs(usage_text, stdout);
			exit(0);
		case 'V':
			puts("mkfs.rampfs " RAMPFS_VERSION);
			exit(0);
		default:
			return -EINVAL;
		}
	if (!o->config || !o->node || optind + 1 != argc) {
		fprintf(stderr, "mkfs.rampfs: %s\n",
			!o->config ? "--config is missing"
			: !o->node ? "--node is missing"
				   : "one STATE_DIR is needed");
		return -EINVAL;
	}
	o->dir = argv[optind];
	return 0;
}

/* Reads the key, or makes it; *made says which, so that a failure later takes it away again. */
static int get_key(const char *path, uint8_t key[STATEDIR_KEY_BYTES], bool *made, uint8_t *bytes,
		   size_t *len, struct ramp_err *err)
{
	int rc = 0;

	if (access(path, F_OK) < 0 && errno == ENOENT) {
		rc = statedir_make_key_file(path, err);
		*made = rc == 0;
	}
	if (!rc)
		rc = statedir_read_key_file(path, bytes, err);
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
	errno = ENOSPC; /* what a short write means */
	if (write(fd, bytes, len) != (ssize_t)len || fsync(fd) < 0)
		rc = ramp_err_sys(err, errno, "%s", file);
	close(fd);
	return rc;
}

static int make_journal(const char *dir, const struct options *o,
			const struct config_cluster *config, const uint8_t *key,
			struct ramp_err *err)
{
	struct meta_founding founding = {.instance = ramp_random64(),
					 .arena_addr = config->arena_addr,
					 .arena_len = config->arena_len,
					 .n_nodes = config->n_nodes};
	struct node_row *nodes = calloc(config->n_nodes, sizeof(*nodes));
	char file[PATH_MAX];
	int rc;

	if (!nodes)
		return ramp_err_sys(err, ENOMEM, "the journal");
	for (size_t i = 0; i < config->n_nodes; i++) {
		const struct config_node *n = &config->nodes[i];

		nodes[i] = (struct node_row){.node = (ramp_node_t)i + 1,
					     .capacity = n->capacity_bytes,
					     .role = n->voter ? NODE_VOTER : NODE_STANDBY};
		memcpy(nodes[i].name, n->name, sizeof(nodes[i].name));
		memcpy(nodes[i].address, n->address, sizeof(nodes[i].address));
		if (strcmp(n->name, o->node) == 0)
			founding.self = nodes[i].node;
	}
	founding.nodes = nodes;
	rc = statedir_cluster_id(config, key, founding.cluster_id, err);
	if (!rc)
		rc = statedir_file(dir, "journal.db", file, err);
	if (!rc)
		rc = meta_format(file, &founding, err);
	free(nodes);
	return rc;
}

static int fill(const char *dir, const struct options *o, const struct config_cluster *config,
		const uint8_t *key, const uint8_t *key_bytes, size_t key_len, struct ramp_err *err)
{
	char store[PATH_MAX], node[RAMP_NODE_NAME_MAX + 2];
	char *text = config_canonical(config);
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
		rc = statedir_file(dir, "store", store, err);
	if (!rc && mkdir(store, 0700) < 0)
		rc = ramp_err_sys(err, errno, "%s", store);
	if (!rc)
		rc = make_journal(dir, o, config, key, err);
	return rc;
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

/* Is STATE_DIR free to be made? Absent or empty: yes; a node: with --force; else no. *lock is the
   lock of a node that is replaced, or -1. */
static int may_make(const struct options *o, int *lock, struct ramp_err *err)
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

/* Puts the finished directory where it was asked for. */
static int put_in_place(const char *made, const struct options *o, struct ramp_err *err)
{
	char old[PATH_MAX + 8];

	if (rename(made, o->dir) == 0)
		return 0;
	if (errno != ENOTEMPTY && errno != EEXIST)
		return ramp_err_sys(err, errno, "%s", o->dir);
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
	return remove_dir(old, err);
}

static int make(const struct options *o, struct ramp_err *err)
{
	uint8_t key[STATEDIR_KEY_BYTES], bytes[STATEDIR_KEY_FILE_BYTES];
	char made[PATH_MAX], key_path[PATH_MAX], parent[PATH_MAX];
	struct config_cluster config;
	bool made_key = false;
	size_t key_len = 0;
	int lock = -1, rc;

	rc = config_read(o->config, &config, err);
	if (rc)
		return rc;
	if (!config_find(&config, o->node)) {
		rc = ramp_err_set(err, EINVAL, "%s: has no [node %s]", o->config, o->node);
		goto out_config;
	}
	rc = may_make(o, &lock, err);
	if (rc)
		goto out_lock;
	snprintf(key_path, sizeof(key_path), "%s%s", o->key ? o->key : o->config,
		 o->key ? "" : ".key");
	rc = get_key(key_path, key, &made_key, bytes, &key_len, err);
	if (rc)
		goto out_key;
	snprintf(parent, sizeof(parent), "%s", o->dir);
	snprintf(made, sizeof(made), "%.*s/.mkfs.rampfs.XXXXXX", PATH_MAX - 32, dirname(parent));
	if (!mkdtemp(made)) {
		rc = ramp_err_sys(err, errno, "%s", made);
		goto out_key;
	}
	rc = fill(made, o, &config, key, bytes, key_len, err);
	if (!rc)
		rc = put_in_place(made, o, err);
	if (rc)
		remove_dir(made, NULL);
	else if (made_key)
		printf("mkfs.rampfs: made the cluster key %s; every node needs it\n", key_path);
out_key:
	if (rc && made_key)
		unlink(key_path);
	hmac_wipe(key, sizeof(key));
	hmac_wipe(bytes, sizeof(bytes));
out_lock:
	if (lock >= 0)
		close(lock);
out_config:
	config_free(&config);
	return rc;
}

int main(int argc, char **argv)
{
	struct options o = {0};
	struct ramp_err err = {0};

	if (parse(argc, argv, &o)) {
		fputs("Try 'mkfs.rampfs --help'.\n", stderr);
		return 2;
	}
	if (make(&o, &err)) {
		fprintf(stderr, "mkfs.rampfs: %s\n", err.text);
		return 1;
	}
	return 0;
}
