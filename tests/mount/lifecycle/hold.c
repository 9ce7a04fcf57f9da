/*
 * Steps of a daemon that do not end: a library for LD_PRELOAD.
 *
 * In the daemon of the mount $HOLD_MOUNT, while the file $HOLD_FILE is there, an answer to write(2)
 * on /dev/fuse waits: the request is done, and its caller is not told. While $HOLD_FILE.sync is
 * there, each thread waits that syncs a file; $HOLD_FILE.proc, that begins to list /proc;
 * $HOLD_FILE.cut, that is about to punch a hole or to truncate a file. All other threads continue,
 * so that a test may act meanwhile; $HOLD_FILE.held shows that a thread waits.
 * While $HOLD_FILE.lost is there, an answer that says success or EBUSY is not written: as if the
 * daemon had been killed right before, except that it continues until the test kills it.
 * While $HOLD_FILE.deadly is there, a daemon that is about to write "deadly" into a file dies.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define FUSE_FD	    3 /* KEEPER_FD_FUSE */
#define WRITE_BYTES (sizeof(struct fuse_out_header) + sizeof(struct fuse_write_out))

static const char *held; /* NULL: not in this process */

/* `rampfs --daemon ... MOUNT` */
__attribute__((constructor)) static void begin(void)
{
	const char *mount = getenv("HOLD_MOUNT"), *last;
	char line[4096] = "";
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);

	if (fd >= 0)
		close(fd);
	if (n < 2 || !mount || strcmp(line + strlen(line) + 1, "--daemon") != 0)
		return;
	for (last = line + n - 1; last > line && last[-1]; last--)
		;
	if (strcmp(last, mount) == 0)
		held = getenv("HOLD_FILE");
}

static bool begun(const char *what)
{
	char path[4096];
	int fd;

	if (!held)
		return false;
	snprintf(path, sizeof(path), "%s.%s", held, what);
	if (access(path, F_OK))
		return false;
	snprintf(path, sizeof(path), "%s.held", held);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
	return true;
}

static void wait_for(const char *what)
{
	char path[4096];

	if (!begun(what))
		return;
	snprintf(path, sizeof(path), "%s.%s", held, what);
	while (access(path, F_OK) == 0)
		usleep(1000);
}

static bool is_lost(const struct iovec *iov, size_t len)
{
	const struct fuse_out_header *out = iov->iov_base;

	return len == sizeof(*out) && out->unique && (!out->error || out->error == -EBUSY) &&
	       begun("lost");
}

__attribute__((visibility("default"))) ssize_t writev(int fd, const struct iovec *iov, int count)
{
	ssize_t (*real)(int, const struct iovec *, int) =
		(ssize_t(*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
	size_t len = 0;

	for (int i = 0; i < count; i++)
		len += iov[i].iov_len;
	while (held && fd == FUSE_FD && len == WRITE_BYTES && access(held, F_OK) == 0)
		usleep(1000);
	if (fd == FUSE_FD && is_lost(iov, len))
		return (ssize_t)len;
	return real(fd, iov, count);
}

__attribute__((visibility("default"))) ssize_t pwrite(int fd, const void *bytes, size_t len,
						      off_t offset)
{
	ssize_t (*real)(int, const void *, size_t, off_t) =
		(ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");

	if (len == 6 && memcmp(bytes, "deadly", len) == 0 && begun("deadly"))
		kill(getpid(), SIGKILL);
	return real(fd, bytes, len, offset);
}

__attribute__((visibility("default"))) int fdatasync(int fd)
{
	int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");

	wait_for("sync");
	return real(fd);
}

__attribute__((visibility("default"))) DIR *opendir(const char *path)
{
	DIR *(*real)(const char *) = (DIR * (*)(const char *)) dlsym(RTLD_NEXT, "opendir");

	if (strcmp(path, "/proc") == 0)
		wait_for("proc");
	return real(path);
}

__attribute__((visibility("default"))) int fallocate(int fd, int mode, off_t offset, off_t len)
{
	int (*real)(int, int, off_t, off_t) =
		(int (*)(int, int, off_t, off_t))dlsym(RTLD_NEXT, "fallocate");

	if (mode & FALLOC_FL_PUNCH_HOLE)
		wait_for("cut");
	return real(fd, mode, offset, len);
}

__attribute__((visibility("default"))) int ftruncate(int fd, off_t size)
{
	int (*real)(int, off_t) = (int (*)(int, off_t))dlsym(RTLD_NEXT, "ftruncate");

	wait_for("cut");
	return real(fd, size);
}
