#include "statedir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hmac.h"
#include "log.h"

int statedir_file(const char *path, const char *name, char *out, struct ramp_err *err)
{
	int len = snprintf(out, PATH_MAX, "%s/%s", path, name);

	if (len < 0 || len >= PATH_MAX)
		return ramp_err_sys(err, ENAMETOOLONG, "%s/%s", path, name);
	return 0;
}

/* Reads all of a small file; returns its length, -E2BIG if it is longer than cap. */
static ssize_t read_all(int fd, uint8_t *bytes, size_t cap)
{
	size_t len = 0;

	for (;;) {
		uint8_t one;
		ssize_t n = len < cap ? read(fd, bytes + len, cap - len) : read(fd, &one, 1);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return (ssize_t)len;
		if (len == cap)
			return -E2BIG;
		len += (size_t)n;
	}
}

/* Waits for the maker of the file. True: the maker has removed it again. Does not wait on a
   filesystem without locks. */
static bool wait_for_maker(int fd, const char *path)
{
	struct stat st;

	if (flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
		log_warn("key file %s: waiting for the process that has locked it", path);
		flock(fd, LOCK_SH);
	}
	return fstat(fd, &st) < 0 || st.st_nlink == 0;
}

int statedir_read_key_file(const char *path, uint8_t bytes[STATEDIR_KEY_FILE_BYTES],
			   struct ramp_err *err)
{
	struct stat st;
	ssize_t len;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	if (fd < 0)
		return ramp_err_sys(err, errno, "key file %s", path);
	if (fstat(fd, &st) < 0)
		len = ramp_err_sys(err, errno, "key file %s", path);
	else if (!S_ISREG(st.st_mode))
		len = ramp_err_set(err, EINVAL, "key file %s: not a regular file", path);
	else if (st.st_mode & 077)
		len = ramp_err_set(err, EPERM,
				   "key file %s: others may read it (mode %04o; chmod 600 it)",
				   path, st.st_mode & 07777);
	else if (wait_for_maker(fd, path))
		len = ramp_err_sys(err, ENOENT, "key file %s", path);
	else {
		len = read_all(fd, bytes, STATEDIR_KEY_FILE_BYTES);
		if (len < 0 && len != -E2BIG)
			ramp_err_sys(err, (int)-len, "key file %s", path);
		else if (len < STATEDIR_KEY_FILE_MIN)
			len = ramp_err_set(err, EINVAL, "key file %s: a key has %d to %d bytes",
					   path, STATEDIR_KEY_FILE_MIN, STATEDIR_KEY_FILE_BYTES);
	}
	close(fd);
	return (int)len;
}

/* Gives a file its name, which must be free. */
static int name_key(const char *made, const char *path)
{
	if (renameat2(AT_FDCWD, made, AT_FDCWD, path, RENAME_NOREPLACE) == 0)
		return 0;
	/* EINVAL: a filesystem without RENAME_NOREPLACE. */
	if (errno != EINVAL || link(made, path) < 0)
		return -errno;
	unlink(made);
	return 0;
}

/* Writes the key into a new file beside `path`, and gives it its name. Returns the locked
   descriptor. */
static int place_key(const char *path, const uint8_t *bytes, size_t len)
{
	char made[PATH_MAX];
	int fd, rc = 0;

	if (snprintf(made, sizeof(made), "%s.XXXXXX", path) >= (int)sizeof(made))
		return -ENAMETOOLONG;
	fd = mkostemp(made, O_CLOEXEC); /* 0600 */
	if (fd < 0)
		return -errno;
	flock(fd, LOCK_EX);
	errno = ENOSPC; /* the cause of a short write */
	if (write(fd, bytes, len) != (ssize_t)len || fsync(fd) < 0)
		rc = -errno;
	rc = rc ? rc : name_key(made, path);
	if (!rc)
		return fd;
	unlink(made);
	close(fd);
	return rc;
}

int statedir_make_key_file(const char *path, uint8_t bytes[STATEDIR_KEY_FILE_BYTES], int *fd,
			   struct ramp_err *err)
{
	uint8_t random[32];
	char text[2 * sizeof(random) + 2];
	size_t len = 2 * sizeof(random) + 1;

	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return ramp_err_sys(err, errno, "random bytes for a key");
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(text + 2 * i, 3, "%02x", random[i]);
	text[len - 1] = '\n';
	memcpy(bytes, text, len);
	*fd = place_key(path, bytes, len);
	hmac_wipe(random, sizeof(random));
	hmac_wipe(text, sizeof(text));
	return *fd < 0 ? ramp_err_sys(err, -*fd, "key file %s", path) : (int)len;
}

int statedir_cluster_id(const struct config_cluster *config, const uint8_t key[STATEDIR_KEY_BYTES],
			uint8_t id[32], struct ramp_err *err)
{
	char *text = config_canonical(config);
	int rc;

	if (!text)
		return ramp_err_sys(err, ENOMEM, "the cluster's id");
	rc = hmac_derive(key, "rampfs cluster id", text, strlen(text), id);
	free(text);
	return rc ? ramp_err_sys(err, -rc, "the cluster's id") : 0;
}

int statedir_lock(const char *path, struct ramp_err *err)
{
	char file[PATH_MAX], text[32] = "";
	int fd, rc;

	rc = statedir_file(path, "lock", file, err);
	if (rc)
		return rc;
	fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return ramp_err_sys(err, errno, "%s", file);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		rc = errno;
		if (rc == EWOULDBLOCK) {
			if (pread(fd, text, sizeof(text) - 1, 0) < 0)
				text[0] = 0;
			text[strcspn(text, "\n")] = 0;
			ramp_err_set(
				err, EBUSY,
				"%s: a rampfs runs on it already (pid %s; after umount until its "
				"pulls are done)",
				path, text[0] ? text : "unknown");
			rc = EBUSY;
		} else {
			ramp_err_sys(err, rc, "%s", file);
		}
		close(fd);
		return -rc;
	}
	snprintf(text, sizeof(text), "%d\n", getpid());
	if (ftruncate(fd, 0) < 0 || pwrite(fd, text, strlen(text), 0) < 0) {
		rc = ramp_err_sys(err, errno, "%s", file);
		close(fd);
		return rc;
	}
	return fd;
}

static int read_key(struct statedir *dir, struct ramp_err *err)
{
	uint8_t bytes[STATEDIR_KEY_FILE_BYTES];
	char file[PATH_MAX];
	int rc = statedir_file(dir->path, "key", file, err);

	if (rc)
		return rc;
	rc = statedir_read_key_file(file, bytes, err);
	if (rc < 0)
		return rc;
	rc = hmac_cluster_key(bytes, (size_t)rc, dir->key);
	hmac_wipe(bytes, sizeof(bytes));
	return rc ? ramp_err_sys(err, -rc, "%s", file) : 0;
}

static int read_node(struct statedir *dir, struct ramp_err *err)
{
	char file[PATH_MAX];
	ssize_t len;
	int fd, rc = statedir_file(dir->path, "node", file, err);

	if (rc)
		return rc;
	fd = open(file, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return ramp_err_sys(err, errno, "%s", file);
	len = read_all(fd, (uint8_t *)dir->node, sizeof(dir->node) - 1);
	close(fd);
	if (len < 0)
		return ramp_err_sys(err, (int)-len, "%s", file);
	dir->node[len] = 0;
	dir->node[strcspn(dir->node, "\n")] = 0;
	if (!config_name_ok(dir->node))
		return ramp_err_set(err, EINVAL, "%s: not a node's name", file);
	return 0;
}

bool statedir_is_one(const char *path)
{
	static const char *const names[] = {"journal.db", "node"};
	char file[PATH_MAX];
	bool found = false;

	for (size_t i = 0; !found && i < sizeof(names) / sizeof(names[0]); i++)
		found = statedir_file(path, names[i], file, NULL) == 0 && access(file, F_OK) == 0;
	return found;
}

int statedir_read(const char *path, struct statedir *dir, struct ramp_err *err)
{
	char file[PATH_MAX];
	int rc;

	memset(dir, 0, sizeof(*dir));
	if (!realpath(path, dir->path))
		return ramp_err_sys(err, errno, "state directory %s", path);
	if (!statedir_is_one(dir->path))
		return ramp_err_set(err, ENOENT,
				    "%s: not a state directory (mkfs.rampfs makes one)", dir->path);
	rc = read_node(dir, err);
	if (!rc)
		rc = read_key(dir, err);
	if (!rc)
		rc = statedir_file(dir->path, "cluster.conf", file, err);
	if (!rc)
		rc = config_read(file, &dir->config, err);
	return rc;
}

void statedir_free(struct statedir *dir)
{
	config_free(&dir->config);
	hmac_wipe(dir->key, sizeof(dir->key));
}
