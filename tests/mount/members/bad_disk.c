/*
 * A disk that fails: a library for LD_PRELOAD.
 *
 * While the file $BAD_DISK exists, which holds an errno, each call that changes something below the directory
 * $BAD_DISK_BELOW fails with it: as on a disk with errors (EIO), or a file system that the kernel has made
 * read-only (EROFS). It can still be read. The memory of segments, in its store/, is no disk.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT	__attribute__((visibility("default")))
#define REAL(f) ((__typeof__(&(f)))dlsym(RTLD_NEXT, #f))

/* Returns the errno with which that path's disk fails now, or 0. */
static int bad_path(const char *path)
{
	const char *below = getenv("BAD_DISK_BELOW"), *told = getenv("BAD_DISK");
	size_t len = below ? strlen(below) : 0;
	int code = 0;
	FILE *f;

	if (!len || !told || strncmp(path, below, len) != 0 || path[len] != '/' ||
	    strncmp(path + len, "/store/", 7) == 0)
		return 0;
	f = fopen(told, "re");
	if (!f)
		return 0;
	if (fscanf(f, "%d", &code) != 1)
		code = EIO;
	fclose(f);
	return code;
}

static int bad_fd(int fd)
{
	char link[64], path[4096];
	ssize_t n;
	int was = errno, code;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	path[n < 0 ? 0 : n] = 0;
	code = bad_path(path);
	errno = code ? code : was;
	return code;
}

EXPORT ssize_t write(int fd, const void *bytes, size_t len)
{
	return bad_fd(fd) ? -1 : REAL(write)(fd, bytes, len);
}

EXPORT ssize_t pwrite(int fd, const void *bytes, size_t len, off_t at)
{
	return bad_fd(fd) ? -1 : REAL(pwrite)(fd, bytes, len, at);
}

EXPORT ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t at)
{
	return bad_fd(fd) ? -1 : REAL(pwrite64)(fd, bytes, len, at);
}

EXPORT int fsync(int fd)
{
	return bad_fd(fd) ? -1 : REAL(fsync)(fd);
}

EXPORT int fdatasync(int fd)
{
	return bad_fd(fd) ? -1 : REAL(fdatasync)(fd);
}

EXPORT int ftruncate(int fd, off_t size)
{
	return bad_fd(fd) ? -1 : REAL(ftruncate)(fd, size);
}

EXPORT int ftruncate64(int fd, off64_t size)
{
	return bad_fd(fd) ? -1 : REAL(ftruncate64)(fd, size);
}

/* A file is opened, for writing as well, on a disk with errors; on a read-only one that is refused. */
static int bad_open(const char *path, int flags)
{
	int was = errno, code = flags & (O_WRONLY | O_RDWR | O_CREAT) ? bad_path(path) : 0;

	errno = code == EROFS ? code : was;
	return code == EROFS ? -1 : 0;
}

#define OPEN(name)                                                                                 \
	EXPORT int name(const char *path, int flags, ...)                                          \
	{                                                                                          \
		va_list args;                                                                      \
		unsigned int mode;                                                                 \
                                                                                                   \
		va_start(args, flags);                                                             \
		mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, unsigned int) : 0;             \
		va_end(args);                                                                      \
		return bad_open(path, flags) ? -1 : REAL(name)(path, flags, mode);                 \
	}
OPEN(open)
OPEN(open64)
