/*
 * The making of the state directory. See make_dir.h.
 *
 * How it fails: any failure before the last rename removes the new directory and leaves nothing
 * behind. A store that is still mounted, and a directory that is not a node's, are refused.
 */
#include "make_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keep.h"

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

int may_make(const struct mkfs_options *o, int *lock, struct ramp_err *err)
{
	DIR *d = opendir(o->dir);
	struct dirent *e;
	bool empty = true;

	if (!d)
		return errno == ENOENT ? 0 : ramp_err_sys(err, errno, "%s", o->dir);
	while ((e = readdir(d)))
		empty = empty && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0);
	closedir(d);
	if (empty)
		return 0;
	if (!statedir_is_one(o->dir))
		return ramp_err_set(err, ENOTEMPTY, "%s: not empty, and not a state directory",
				    o->dir);
	if (keep_is_due(o)) {
		*lock = statedir_lock(o->dir, err);
		return *lock < 0 ? *lock : 0;
	}
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

int make_dir(const struct mkfs_options *o, const struct plan *plan, bool replace,
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
	if (!rc && plan->keeps)
		rc = keep_place(made, o, err);
	else if (!rc)
		rc = put_in_place(made, o, replace, err);
	if (rc || plan->keeps)
		remove_dir(made, NULL);
	return rc;
}
