/*
 * The keeping of a store. See keep.h.
 *
 * How it fails: with STATE_DIR as it was, or with new files that a daemon without a journal does not
 * mind; the same command completes it then.
 */
#include "keep.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads a file of one line, without its end. Returns its length, or a negative errno. */
static ssize_t keep_read_line(const char *dir, const char *name, char *line, size_t cap)
{
	char path[PATH_MAX];
	ssize_t n;
	int fd;

	if (statedir_file(dir, name, path, NULL))
		return -ENAMETOOLONG;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	n = read(fd, line, cap - 1);
	n = n < 0 ? -errno : n;
	close(fd);
	line[n < 0 ? 0 : n] = '\0';
	line[strcspn(line, "\n")] = '\0';
	return n < 0 ? n : (ssize_t)strlen(line);
}

bool store_mounted(const char *dir)
{
	char store[PATH_MAX];
	struct stat in, at;

	return statedir_file(dir, "store", store, NULL) == 0 && stat(store, &in) == 0 &&
	       stat(dir, &at) == 0 && in.st_dev != at.st_dev;
}

bool keep_is_due(const struct mkfs_options *o)
{
	char name[RAMP_NODE_NAME_MAX + 2];

	return o->again && !o->force && statedir_is_one(o->dir) && store_mounted(o->dir) &&
	       keep_read_line(o->dir, "node", name, sizeof(name)) > 0 && strcmp(name, o->node) == 0;
}

int keep_incarnation(const struct mkfs_options *o, ramp_incarnation_t *incarnation,
		     struct ramp_err *err)
{
	char text[32], *end;
	ssize_t n = keep_read_line(o->dir, "store/incarnation", text, sizeof(text));

	if (n < 0)
		return ramp_err_sys(err, (int)-n, "%s/store/incarnation", o->dir);
	*incarnation = strtoull(text, &end, 16);
	return n == 16 && *end == '\0' && *incarnation
		       ? 0
		       : ramp_err_set(err, EIO, "%s/store/incarnation is damaged", o->dir);
}

void keep_say_aside(const struct mkfs_options *o)
{
	char path[PATH_MAX];
	struct dirent *e;
	struct stat st;
	DIR *d;

	if (statedir_file(o->dir, "store", path, NULL))
		return;
	d = opendir(path);
	while (d && (e = readdir(d))) {
		if (strspn(e->d_name, "0123456789") != strlen(e->d_name) ||
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		fprintf(stderr, "mkfs.rampfs: kept aside: segment %s, %jd bytes: %s/%s\n",
			e->d_name, (intmax_t)st.st_size, path, e->d_name);
	}
	if (d)
		closedir(d);
}

/* Renames DIR/from to DIR/to; 0 also where there is none. */
static int rename_in(const char *dir, const char *from, const char *to, struct ramp_err *err)
{
	char old[PATH_MAX], new[PATH_MAX];
	int rc = statedir_file(dir, from, old, err);

	rc = rc ? rc : statedir_file(dir, to, new, err);
	if (!rc && rename(old, new) < 0 && errno != ENOENT)
		rc = ramp_err_sys(err, errno, "%s", old);
	return rc;
}

/* Puts the old journal away, its tables before its log: without the log they would be an old copy that
   looks whole. */
static int put_old_away(const char *dir, struct ramp_err *err)
{
	char shm[PATH_MAX];
	int rc = rename_in(dir, "journal.db", "journal.db.old", err);

	rc = rc ? rc : rename_in(dir, "journal.db-wal", "journal.db.old-wal", err);
	rc = rc ? rc : statedir_file(dir, "journal.db-shm", shm, err);
	if (!rc && unlink(shm) < 0 && errno != ENOENT)
		rc = ramp_err_sys(err, errno, "%s", shm);
	return rc;
}

static int move_in(const char *made, const char *dir, const char *name, struct ramp_err *err)
{
	char from[PATH_MAX], to[PATH_MAX];
	int rc = statedir_file(made, name, from, err);

	rc = rc ? rc : statedir_file(dir, name, to, err);
	if (!rc && rename(from, to) < 0)
		rc = ramp_err_sys(err, errno, "%s", to);
	return rc;
}

/* Makes the names durable. */
static int sync_dir(const char *dir, struct ramp_err *err)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = fd < 0 || fsync(fd) < 0 ? ramp_err_sys(err, errno, "%s", dir) : 0;

	if (fd >= 0)
		close(fd);
	return rc;
}

int keep_place(const char *made, const struct mkfs_options *o, struct ramp_err *err)
{
	char note[PATH_MAX];
	int rc = put_old_away(o->dir, err);

	rc = rc ? rc : move_in(made, o->dir, "cluster.conf", err);
	rc = rc ? rc : move_in(made, o->dir, "key", err);
	rc = rc ? rc : move_in(made, o->dir, "journal.db", err);
	rc = rc ? rc : sync_dir(o->dir, err);
	rc = rc ? rc : statedir_file(o->dir, STATEDIR_NOTE, note, err);
	/* Where it stays, the next daemon finds out a little later that there is a journal. */
	if (!rc)
		unlink(note);
	return rc;
}
