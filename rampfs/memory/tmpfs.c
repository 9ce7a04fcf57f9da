/*
 * The tmpfs of a store: mounted once between two boots, adopted by every daemon after the first.
 *
 * Happy path: mount, write `incarnation` before anything else, take the lock. A later daemon finds
 * the mount, reads the incarnation, and fits the size to the configuration.
 *
 * How it fails: on a path that can't be examined nothing is mounted. A kill between mount and
 * incarnation leaves an empty tmpfs, which the next daemon gives one. A second daemon on the same
 * state directory finds the lock taken (-EBUSY).
 */
#include "tmpfs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/log.h"
#include "base/page.h"
#include "spare.h"

int tmpfs_mounted(const char *path, struct ramp_err *err)
{
	char parent[PATH_MAX + sizeof("/..")];
	struct stat here, above;
	struct statfs fs;

	snprintf(parent, sizeof(parent), "%s/..", path);
	if (stat(path, &here))
		return errno == ENOENT ? 0 : ramp_err_sys(err, errno, "%s", path);
	/* If a mounted store were taken for not mounted, an empty one would cover it. */
	if (stat(parent, &above) || statfs(path, &fs))
		return ramp_err_sys(err, errno, "%s", path);
	return here.st_dev != above.st_dev && fs.f_type == TMPFS_MAGIC;
}

/*
 * No MS_NOEXEC: the shim maps the store's files themselves, and a program may ask for PROT_EXEC
 * (tmpfs_set_flags where it may not). nr_inodes=0: the space is the limit, not a number of files.
 */
static int do_mount(const char *path, uint64_t capacity_bytes, unsigned long flags)
{
	char options[160];

	snprintf(options, sizeof(options), "%ssize=%" PRIu64 ",nr_inodes=0",
		 flags & MS_REMOUNT ? "" : "huge=within_size,noswap,mode=0700,", capacity_bytes);
	return mount("rampfs-store", path, "tmpfs", flags | MS_NOSUID | MS_NODEV, options) ? -errno
											   : 0;
}

static int fit_size(const char *path, uint64_t capacity_bytes, struct ramp_err *err)
{
	struct statfs fs;
	int rc;

	if (statfs(path, &fs))
		return ramp_err_sys(err, errno, "%s", path);
	if ((uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize == capacity_bytes)
		return 0;
	rc = do_mount(path, capacity_bytes, MS_REMOUNT);
	if (rc)
		log_warn("%s: the size stays as it was (is the new one smaller than the used "
			 "memory?): %s",
			 path, strerror(-rc));
	return 0;
}

int tmpfs_mount(const char *path, uint64_t capacity_bytes, struct ramp_err *err)
{
	int rc;

	/* tmpfs counts whole pages. */
	capacity_bytes = page_down(capacity_bytes);
	if (capacity_bytes == 0)
		return ramp_err_set(err, EINVAL, "a store needs a capacity of at least a page");
	capacity_bytes += SPARE_BYTES;
	if (mkdir(path, 0700) && errno != EEXIST)
		return ramp_err_sys(err, errno, "mkdir %s", path);
	rc = tmpfs_mounted(path, err);
	if (rc)
		return rc < 0 ? rc : fit_size(path, capacity_bytes, err);
	rc = do_mount(path, capacity_bytes, 0);
	if (rc == -EINVAL)
		return ramp_err_set(err, EINVAL,
				    "%s: this kernel has no tmpfs with huge=within_size,noswap "
				    "(Linux 6.4 with transparent huge pages)",
				    path);
	if (rc)
		return ramp_err_sys(err, -rc, "mount tmpfs at %s", path);
	return 0;
}

/* Sets flags of the mount, not of the filesystem: they hold also for files that are open already. A
   flag that is not named would stay as it is. */
int tmpfs_set_flags(const char *path, unsigned long mount_flags)
{
	unsigned long atime = mount_flags & (MS_NOATIME | MS_STRICTATIME);
	unsigned long flags =
		MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | (mount_flags & MS_NOEXEC);

	return mount(NULL, path, NULL, flags | (atime ? atime : MS_RELATIME), NULL) ? -errno : 0;
}

int tmpfs_unmount(const char *path, bool force, struct ramp_err *err)
{
	if (!umount2(path, 0) || errno == EINVAL)
		return 0;
	if (errno == EBUSY && force && !umount2(path, MNT_DETACH))
		return 0;
	return ramp_err_sys(err, errno, "umount %s", path);
}

/*
 * A lock of fcntl(2), not of flock(2): it is the process's own, so that no child of a dead daemon
 * (a broker) keeps it. It is lost when the process closes any descriptor of the file: no other
 * function opens that file.
 */
int tmpfs_lock(int dir_fd, int *lock_fd, struct ramp_err *err)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = openat(dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	int saved;

	if (fd < 0)
		return ramp_err_sys(err, errno, "the store's lock");
	if (fcntl(fd, F_SETLK, &lock)) {
		saved = errno;
		if (fcntl(fd, F_GETLK, &lock))
			lock.l_pid = 0;
		close(fd);
		if (saved == EACCES || saved == EAGAIN)
			return ramp_err_set(err, EBUSY, "the store is in use by process %d",
					    (int)lock.l_pid);
		return ramp_err_sys(err, saved, "the store's lock");
	}
	*lock_fd = fd;
	return 0;
}

static int write_incarnation(int dir_fd, ramp_incarnation_t incarnation, struct ramp_err *err)
{
	int fd = openat(dir_fd, "incarnation.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	bool ok;

	if (fd < 0)
		return ramp_err_sys(err, errno, "the store's incarnation");
	ok = dprintf(fd, "%016" PRIx64 "\n", incarnation) == 17;
	close(fd);
	if (!ok || renameat(dir_fd, "incarnation.new", dir_fd, "incarnation"))
		return ramp_err_sys(err, ok ? errno : ENOSPC, "the store's incarnation");
	return 0;
}

int tmpfs_incarnation(int dir_fd, ramp_incarnation_t *incarnation, struct ramp_err *err)
{
	int fd = openat(dir_fd, "incarnation", O_RDONLY | O_CLOEXEC);
	char text[32] = "";
	char *end;
	ssize_t n;

	if (fd < 0 && errno == ENOENT) {
		*incarnation = ramp_random64();
		return write_incarnation(dir_fd, *incarnation, err);
	}
	if (fd < 0)
		return ramp_err_sys(err, errno, "the store's incarnation");
	n = read(fd, text, sizeof(text) - 1);
	if (n < 0)
		ramp_err_sys(err, errno, "the store's incarnation");
	close(fd);
	if (n < 0)
		return -EIO;
	*incarnation = strtoull(text, &end, 16);
	if (n != 17 || end != text + 16 || *incarnation == 0)
		return ramp_err_set(err, EIO, "the store's file `incarnation` is damaged");
	return 0;
}
