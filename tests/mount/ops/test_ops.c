/*
 * Every operation on a real mount. Tests of behaviour that tmpfs shares run on both; tests of
 * rampfs' own behaviour follow the table in contrib/doc/design.md.
 *
 * RAMPFS_A and RAMPFS_B: the mounts of two nodes a and b of one cluster (tests/mount/ops/ops.sh).
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "base/ids.h"
#include "base/ioc.h"
#include "lib/run_suite.h"

#define NOBODY 65534
#define MIB    (1 << 20)

static char tmpfs_dir[PATH_MAX], a[PATH_MAX], b[PATH_MAX], here[PATH_MAX];
static const char *dirs[2]; /* tmpfs, and a's directory seen on a */

/* ---- helpers -------------------------------------------------------------------------------- */

static const char *path(const char *dir, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static const char *path(const char *dir, const char *fmt, ...)
{
	static __thread char bufs[4][PATH_MAX];
	static __thread unsigned turn;
	char *buf = bufs[turn++ % 4], name[NAME_MAX * 2];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	snprintf(buf, PATH_MAX, "%s/%s", dir, name);
	return buf;
}

static void must(long rc, const char *what)
{
	ck_assert_msg(rc >= 0, "%s: %s", what, strerror(errno));
}

static void fails(long rc, int code, const char *what)
{
	ck_assert_msg(rc < 0, "%s went through", what);
	ck_assert_msg(errno == code, "%s: %s instead of %s", what, strerror(errno), strerror(code));
}

static int make(const char *file)
{
	int fd = open(file, O_RDWR | O_CREAT | O_EXCL, 0644);

	must(fd, file);
	return fd;
}

static void put(int fd, const void *bytes, size_t len, off_t at)
{
	ck_assert_int_eq(pwrite(fd, bytes, len, at), (ssize_t)len);
}

static void has(int fd, const void *bytes, size_t len, off_t at)
{
	char *buf = malloc(len);

	ck_assert_int_eq(pread(fd, buf, len, at), (ssize_t)len);
	ck_assert_mem_eq(buf, bytes, len);
	free(buf);
}

static off_t size_of(int fd)
{
	struct stat st;

	must(fstat(fd, &st), "fstat");
	return st.st_size;
}

static void clear(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d)))
		if (e->d_name[0] != '.')
			unlink(path(dir, "%s", e->d_name));
	closedir(d);
}

static void setup(void)
{
	umask(022);
	clear(dirs[0]);
	clear(dirs[1]);
}

/* Runs fn in a child as an unprivileged user; fn returns 0 or an errno. */
static int as_nobody(int (*fn)(const char *dir), const char *dir)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (setgid(NOBODY) || setuid(NOBODY))
			_exit(255);
		_exit(fn(dir));
	}
	waitpid(pid, &status, 0);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* ---- as on tmpfs ---------------------------------------------------------------------------- */

START_TEST(open_and_create)
{
	const char *dir = dirs[_i], *f = path(dir, "f");
	struct stat st;
	int fd;

	fails(open(f, O_RDONLY), ENOENT, "open of nothing");
	umask(027);
	fd = open(f, O_RDWR | O_CREAT | O_EXCL, 0666);
	must(fd, "create");
	must(fstat(fd, &st), "fstat");
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0640);
	ck_assert_uint_eq(st.st_nlink, 1);
	ck_assert_int_eq(st.st_size, 0);
	ck_assert_int_eq(st.st_blocks, 0);
	put(fd, "hello", 5, 0);
	close(fd);
	fails(open(f, O_RDWR | O_CREAT | O_EXCL, 0666), EEXIST, "O_EXCL");
	fd = open(f, O_RDWR | O_CREAT, 0666);
	must(fd, "open of what is there");
	has(fd, "hello", 5, 0);
	close(fd);
	fd = open(f, O_RDWR | O_TRUNC);
	must(fd, "O_TRUNC");
	ck_assert_int_eq(size_of(fd), 0);
	close(fd);
	fails(open(path(dir, "f/x"), O_RDONLY), ENOTDIR, "a file as a directory");
	fails(open(dir, O_RDWR), EISDIR, "a directory for writing");
}
END_TEST

START_TEST(read_and_write)
{
	int fd = make(path(dirs[_i], "f"));
	char zeros[100] = {0}, buf[8];

	put(fd, "abc", 3, 0);
	put(fd, "xyz", 3, 100000);
	ck_assert_int_eq(size_of(fd), 100003);
	has(fd, "abc", 3, 0);
	has(fd, zeros, 100, 3);
	has(fd, zeros, 100, 50000);
	has(fd, "xyz", 3, 100000);
	ck_assert_int_eq(pread(fd, buf, 8, 100001), 2);
	ck_assert_int_eq(pread(fd, buf, 8, 100003), 0);
	ck_assert_int_eq(pread(fd, buf, 8, 1 << 30), 0);
	close(fd);
	fd = open(path(dirs[_i], "f"), O_RDONLY);
	fails(pwrite(fd, "x", 1, 0), EBADF, "writing a file open for reading");
	close(fd);
	fd = open(path(dirs[_i], "f"), O_WRONLY);
	fails(pread(fd, buf, 1, 0), EBADF, "reading a file open for writing");
	close(fd);
}
END_TEST

START_TEST(big_and_crooked_io)
{
	int fd = make(path(dirs[_i], "f"));
	size_t len = 8 * MIB + 12345;
	uint8_t *out = malloc(len), *in = malloc(len);

	for (size_t i = 0; i < len; i++)
		out[i] = (uint8_t)(i * 2654435761u >> 13);
	ck_assert_int_eq(pwrite(fd, out, len, 777), (ssize_t)len);
	ck_assert_int_eq(pread(fd, in, len, 777), (ssize_t)len);
	ck_assert(memcmp(in, out, len) == 0);
	for (size_t at = 0; at + 70000 < len; at += 70001) {
		ck_assert_int_eq(pread(fd, in, 70000, (off_t)(777 + at)), 70000);
		ck_assert(memcmp(in, out + at, 70000) == 0);
	}
	ck_assert_int_eq(size_of(fd), (off_t)(777 + len));
	free(out);
	free(in);
	close(fd);
}
END_TEST

START_TEST(appending)
{
	const char *f = path(dirs[_i], "f");
	int fd = make(f), x = open(f, O_WRONLY | O_APPEND), y = open(f, O_WRONLY | O_APPEND);

	ck_assert_int_eq(write(x, "one", 3), 3);
	ck_assert_int_eq(write(y, "two", 3), 3);
	ck_assert_int_eq(write(x, "three", 5), 5);
	has(fd, "onetwothree", 11, 0);
	must(ftruncate(fd, 3), "ftruncate");
	ck_assert_int_eq(write(y, "four", 4), 4);
	has(fd, "onefour", 7, 0);
	must(fcntl(fd, F_SETFL, O_APPEND), "F_SETFL");
	ck_assert_int_eq(write(fd, "!", 1), 1);
	ck_assert_int_eq(size_of(fd), 8);
	close(fd);
	close(x);
	close(y);
}
END_TEST

struct appender {
	const char *file;
	int number;
};

#define APPENDS 200
#define LINE	64

static void *append_lines(void *arg)
{
	struct appender *ap = arg;
	int fd = open(ap->file, O_WRONLY | O_APPEND);
	char line[LINE];

	for (int i = 0; i < APPENDS && fd >= 0; i++) {
		memset(line, 'a' + ap->number, LINE);
		snprintf(line, LINE, "%d %d ", ap->number, i);
		if (write(fd, line, LINE) != LINE)
			break;
	}
	close(fd);
	return NULL;
}

START_TEST(many_appenders_lose_nothing)
{
	char file[PATH_MAX], line[LINE];
	struct appender appenders[8];
	pthread_t threads[8];
	int fd, next[8] = {0};

	snprintf(file, sizeof(file), "%s", path(dirs[_i], "f"));
	fd = make(file);
	for (int i = 0; i < 8; i++) {
		appenders[i] = (struct appender){file, i};
		pthread_create(&threads[i], NULL, append_lines, &appenders[i]);
	}
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(size_of(fd), 8 * APPENDS * LINE);
	for (int i = 0; i < 8 * APPENDS; i++) {
		int who, which;

		ck_assert_int_eq(pread(fd, line, LINE, i * LINE), LINE);
		ck_assert_int_eq(sscanf(line, "%d %d", &who, &which), 2);
		ck_assert(who >= 0 && who < 8);
		ck_assert_int_eq(which, next[who]++);
	}
	close(fd);
}
END_TEST

START_TEST(truncating)
{
	const char *f = path(dirs[_i], "f");
	int fd = make(f);
	char zeros[1000] = {0}, ones[1000];

	memset(ones, 1, sizeof(ones));
	put(fd, ones, 1000, 0);
	must(ftruncate(fd, 500), "shrink");
	must(ftruncate(fd, 1000), "grow");
	has(fd, ones, 500, 0);
	has(fd, zeros, 500, 500);
	must(truncate(f, 0), "truncate");
	ck_assert_int_eq(size_of(fd), 0);
	must(ftruncate(fd, (off_t)1 << 40), "a TiB of nothing");
	ck_assert_int_eq(size_of(fd), (off_t)1 << 40);
	has(fd, zeros, 1000, ((off_t)1 << 40) - 1000);
	fails(ftruncate(fd, -1), EINVAL, "a negative size");
	close(fd);
	fd = open(f, O_RDONLY);
	fails(ftruncate(fd, 0), EINVAL, "truncating a file open for reading");
	close(fd);
}
END_TEST

START_TEST(allocating)
{
	int fd = make(path(dirs[_i], "f"));
	struct stat st;
	char zeros[4096] = {0}, ones[4096];

	memset(ones, 1, sizeof(ones));
	must(fallocate(fd, 0, 0, MIB), "fallocate");
	must(fstat(fd, &st), "fstat");
	ck_assert_int_eq(st.st_size, MIB);
	ck_assert_int_ge(st.st_blocks, MIB / 512);
	must(fallocate(fd, FALLOC_FL_KEEP_SIZE, MIB, MIB), "keep size");
	ck_assert_int_eq(size_of(fd), MIB);
	for (int i = 0; i < 16; i++)
		put(fd, ones, 4096, i * 4096);
	must(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 8192), "punch");
	has(fd, ones, 4096, 0);
	has(fd, zeros, 4096, 4096);
	has(fd, zeros, 4096, 8192);
	has(fd, ones, 4096, 12288);
	must(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100, 200), "crooked punch");
	has(fd, ones, 100, 0);
	has(fd, zeros, 200, 100);
	has(fd, ones, 100, 300);
	fails(fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, 4096), EOPNOTSUPP, "zero range");
	fails(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, 4096), EOPNOTSUPP, "collapse range");
	fails(fallocate(fd, 0, 0, (off_t)1 << 50), ENOSPC, "a PiB");
	close(fd);
}
END_TEST

START_TEST(seeking_data_and_holes)
{
	int fd = make(path(dirs[_i], "f"));
	off_t at;

	must(ftruncate(fd, 16 * MIB), "ftruncate");
	put(fd, "x", 1, 8 * MIB);
	ck_assert_int_eq(lseek(fd, 0, SEEK_DATA), 8 * MIB);
	at = lseek(fd, 8 * MIB, SEEK_HOLE);
	ck_assert(at > 8 * MIB && at <= 10 * MIB);
	ck_assert_int_eq(lseek(fd, 0, SEEK_HOLE), 0);
	fails(lseek(fd, 12 * MIB, SEEK_DATA), ENXIO, "data in a hole's end");
	fails(lseek(fd, 16 * MIB, SEEK_HOLE), ENXIO, "a hole behind the end");
	ck_assert_int_eq(lseek(fd, -1, SEEK_END), 16 * MIB - 1);
	close(fd);
}
END_TEST

START_TEST(unlinked_files_live_on)
{
	const char *f = path(dirs[_i], "f");
	int fd = open(f, O_RDWR | O_CREAT | O_EXCL, 0604);
	struct stat st;

	must(fd, "create");
	put(fd, "still here", 10, 0);
	must(unlink(f), "unlink");
	fails(unlink(f), ENOENT, "unlink again");
	fails(access(f, F_OK), ENOENT, "access");
	must(fstat(fd, &st), "fstat");
	ck_assert_uint_eq(st.st_nlink, 0);
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0604);
	ck_assert_int_eq(st.st_size, 10);
	has(fd, "still here", 10, 0);
	put(fd, "more", 4, 4096);
	must(ftruncate(fd, 5), "ftruncate");
	must(fchmod(fd, 0640), "fchmod");
	must(fstat(fd, &st), "fstat");
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0640);
	has(fd, "still", 5, 0);
	close(make(f)); /* the name is free */
	close(fd);
}
END_TEST

START_TEST(renaming)
{
	const char *x = path(dirs[_i], "x"), *y = path(dirs[_i], "y");
	int fx = make(x), fy = make(y), fd;

	put(fx, "x", 1, 0);
	put(fy, "y", 1, 0);
	fails(renameat2(AT_FDCWD, x, AT_FDCWD, y, RENAME_NOREPLACE), EEXIST, "no replace");
	must(rename(x, x), "onto itself");
	must(rename(x, y), "replacing");
	fails(access(x, F_OK), ENOENT, "the old name");
	fd = open(y, O_RDONLY);
	has(fd, "x", 1, 0);
	close(fd);
	has(fx, "x", 1, 0);
	has(fy, "y", 1, 0); /* replaced, and open */
	fails(rename(x, y), ENOENT, "nothing");
	must(renameat2(AT_FDCWD, y, AT_FDCWD, x, RENAME_NOREPLACE), "no replace");
	fails(rename(x, path(dirs[_i], ".")), EBUSY, "onto a directory");
	close(fx);
	close(fy);
}
END_TEST

START_TEST(modes_owners_and_times)
{
	const char *f = path(dirs[_i], "f");
	int fd = make(f);
	struct timespec times[2] = {{.tv_sec = 1000, .tv_nsec = 1}, {.tv_sec = 2000, .tv_nsec = 2}};
	struct stat st, old;

	must(fstat(fd, &old), "fstat");
	ck_assert_int_le(labs(old.st_mtim.tv_sec - time(NULL)), 2);
	must(chmod(f, 0604), "chmod");
	must(chown(f, 12, 34), "chown");
	must(stat(f, &st), "stat");
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0604);
	ck_assert_uint_eq(st.st_uid, 12);
	ck_assert_uint_eq(st.st_gid, 34);
	ck_assert(st.st_ctim.tv_sec > old.st_ctim.tv_sec ||
		  st.st_ctim.tv_nsec > old.st_ctim.tv_nsec);
	must(utimensat(AT_FDCWD, f, times, 0), "utimens");
	must(stat(f, &st), "stat");
	ck_assert_int_eq(st.st_atim.tv_sec, 1000);
	ck_assert_int_eq(st.st_mtim.tv_sec, 2000);
	ck_assert_int_eq(st.st_mtim.tv_nsec, 2);
	usleep(1200 * 1000); /* behind the back, nothing changes them */
	must(stat(f, &st), "stat");
	ck_assert_int_eq(st.st_mtim.tv_sec, 2000);
	put(fd, "x", 1, 0);
	must(stat(f, &st), "stat");
	ck_assert_int_gt(st.st_mtim.tv_sec, 2000);
	times[0].tv_nsec = UTIME_OMIT;
	times[1].tv_nsec = UTIME_NOW;
	must(futimens(fd, times), "UTIME_NOW");
	must(stat(f, &st), "stat");
	ck_assert_int_le(labs(st.st_mtim.tv_sec - time(NULL)), 2);
	close(fd);
}
END_TEST

static int what_nobody_may(const char *dir)
{
	int fd = open(path(dir, "root-only"), O_RDWR);

	if (fd >= 0 || errno != EACCES)
		return 1;
	if (unlink(path(dir, "root-only")) == 0 || errno != EPERM) /* sticky */
		return 2;
	if (rename(path(dir, "root-only"), path(dir, "n")) == 0 || errno != EPERM)
		return 3;
	if (chmod(path(dir, "root-only"), 0666) == 0 || errno != EPERM)
		return 4;
	fd = open(path(dir, "own"), O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0 || write(fd, "x", 1) != 1)
		return 5;
	if (chown(path(dir, "own"), 0, 0) == 0 || errno != EPERM)
		return 6;
	return chmod(path(dir, "own"), 0444) || rename(path(dir, "own"), path(dir, "own2")) ? 7 : 0;
}

/* The changes that a user outside the group may make to a file of its own; each clears its
   set-group-ID. */
static int change_by(int how, const char *file)
{
	int fd = open(file, O_RDWR);

	if (fd < 0)
		return -1;
	switch (how) {
	case 0:
		return pwrite(fd, "x", 1, 0) == 1 ? 0 : -1;
	case 1:
		return truncate(file, 10);
	case 2:
		return ftruncate(fd, 10);
	case 3:
		return fallocate(fd, 0, 0, 8192);
	case 4:
		return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096);
	case 5:
		return chown(file, (uid_t)-1, NOBODY);
	case 6:
		return chmod(file, 02666);
	case 7:
		return open(file, O_RDWR | O_TRUNC) < 0 ? -1 : 0;
	default:
		return 1;
	}
}

static int as_a_stranger(const char *dir)
{
	struct stat st;

	for (int how = 0; how < 8; how++)
		for (int i = 0; i < 3; i++) {
			const char *file = path(dir, "own-%d-%d", how, i);
			if (change_by(how, file) || stat(file, &st))
				return 1 + how * 3 + i;
			if (st.st_mode & (S_ISGID | S_ISUID))
				return 101 + how * 3 + i;
		}
	return 0;
}

START_TEST(set_group_id_goes)
{
	static const mode_t modes[] = {02666, 02676, 06666};

	for (int how = 0; how < 8; how++)
		for (int i = 0; i < 3; i++) {
			const char *file = path(dirs[_i], "own-%d-%d", how, i);
			int fd = make(file);

			put(fd, "bytes", 5, 0);
			close(fd);
			must(chown(file, NOBODY, 4242), "chown");
			must(chmod(file, modes[i]), "chmod");
		}
	ck_assert_int_eq(as_nobody(as_a_stranger, dirs[_i]), 0);
}
END_TEST

/* A process that may keep it keeps it. */
START_TEST(set_group_id_stays)
{
	const char *file = path(dirs[_i], "f");
	struct stat st;
	int fd = make(file);

	must(chown(file, NOBODY, 4242), "chown");
	must(chmod(file, 02666), "chmod");
	must(ftruncate(fd, 10), "truncate");
	must(fallocate(fd, 0, 0, 8192), "fallocate");
	must(chown(file, NOBODY, 4243), "chown");
	must(fstat(fd, &st), "fstat");
	ck_assert_uint_eq(st.st_mode, S_IFREG | 02666);
	close(fd);
}
END_TEST

START_TEST(permissions)
{
	int fd = open(path(dirs[_i], "root-only"), O_RDWR | O_CREAT, 0600);
	struct stat st;

	must(fd, "create");
	close(fd);
	ck_assert_int_eq(as_nobody(what_nobody_may, dirs[_i]), 0);
	must(stat(path(dirs[_i], "own2"), &st), "stat");
	ck_assert_uint_eq(st.st_uid, NOBODY);
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0444);
}
END_TEST

START_TEST(direct_io)
{
	int fd = open(path(dirs[_i], "f"), O_RDWR | O_CREAT | O_DIRECT, 0600);
	uint8_t *buf = aligned_alloc(4096, 65536), *in = aligned_alloc(4096, 65536);

	must(fd, "O_DIRECT");
	memset(buf, 7, 65536);
	ck_assert_int_eq(pwrite(fd, buf, 65536, 65536), 65536);
	ck_assert_int_eq(pread(fd, in, 65536, 65536), 65536);
	ck_assert(memcmp(buf, in, 65536) == 0);
	free(buf);
	free(in);
	close(fd);
}
END_TEST

START_TEST(listing)
{
	bool seen[300] = {false};
	DIR *d;
	struct dirent *e;
	long middle = -1;
	int n = 0;

	for (int i = 0; i < 300; i++)
		close(make(path(dirs[_i], "a-name-that-is-not-short-%d", i)));
	d = opendir(dirs[_i]);
	while ((e = readdir(d))) {
		int i;

		if (e->d_name[0] == '.')
			continue;
		ck_assert_int_eq(sscanf(e->d_name, "a-name-that-is-not-short-%d", &i), 1);
		ck_assert(i >= 0 && i < 300 && !seen[i]);
		ck_assert_uint_eq(e->d_type, DT_REG);
		seen[i] = true;
		if (++n == 150)
			middle = telldir(d);
	}
	ck_assert_int_eq(n, 300);
	seekdir(d, middle);
	for (n = 0; (e = readdir(d)); n++)
		;
	ck_assert_int_eq(n, 150);
	closedir(d);
}
END_TEST

START_TEST(long_names)
{
	char name[400];

	memset(name, 'n', sizeof(name));
	name[255] = 0;
	close(make(path(dirs[_i], "%s", name)));
	must(access(path(dirs[_i], "%s", name), F_OK), "255 bytes");
	name[255] = 'n';
	name[256] = 0;
	fails(open(path(dirs[_i], "%s", name), O_RDWR | O_CREAT, 0600), ENAMETOOLONG, "create");
	fails(access(path(dirs[_i], "%s", name), F_OK), ENAMETOOLONG, "lookup");
	name[255] = 0;
	fails(rename(path(dirs[_i], "%s", name), path(dirs[_i], "%sn", name)), ENAMETOOLONG,
	      "rename");
}
END_TEST

START_TEST(private_mappings_and_exec)
{
	const char *f = path(dirs[_i], "true");
	int fd = make(f), from = open("/bin/true", O_RDONLY), status;
	char buf[65536];
	ssize_t n;
	char *map;
	pid_t pid;

	while ((n = read(from, buf, sizeof(buf))) > 0)
		ck_assert_int_eq(write(fd, buf, (size_t)n), n);
	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	ck_assert(map != MAP_FAILED);
	ck_assert_mem_eq(map, "\177ELF", 4);
	map[0] = 'x'; /* private */
	has(fd, "\177ELF", 4, 0);
	munmap(map, 4096);
	must(fchmod(fd, 0755), "chmod");
	close(fd);
	close(from);
	pid = fork();
	if (pid == 0) {
		execl(f, f, NULL);
		_exit(errno);
	}
	waitpid(pid, &status, 0);
	ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(locks_and_sync)
{
	const char *f = path(dirs[_i], "f");
	int x = make(f), y = open(f, O_RDWR);
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};

	must(flock(x, LOCK_EX | LOCK_NB), "flock");
	fails(flock(y, LOCK_EX | LOCK_NB), EWOULDBLOCK, "flock by another");
	must(flock(x, LOCK_UN), "unlock");
	must(fcntl(x, F_OFD_SETLK, &lock), "fcntl lock");
	fails(fcntl(y, F_OFD_SETLK, &lock), EAGAIN, "fcntl lock by another");
	must(fsync(x), "fsync");
	must(fdatasync(x), "fdatasync");
	close(x);
	close(y);
}
END_TEST

/* ---- rampfs alone --------------------------------------------------------------------------- */

START_TEST(what_it_has_not)
{
	char f[PATH_MAX];
	int fd;

	snprintf(f, sizeof(f), "%s", path(here, "f"));
	fd = make(f);
	put(fd, "x", 1, 0);
	close(make(path(here, "g")));
	fails(renameat2(AT_FDCWD, f, AT_FDCWD, path(here, "g"), RENAME_EXCHANGE), EINVAL,
	      "exchange");
	fails(mkdir(path(here, "d"), 0755), EOPNOTSUPP, "mkdir");
	fails(mkdir(path(b, "a/d"), 0755), EOPNOTSUPP, "mkdir by another node");
	fails(mkdir(path(a, "d"), 0755), EOPNOTSUPP, "mkdir in the root");
	fails(mkdir(here, 0755), EEXIST, "mkdir of a node");
	fails(rmdir(here), EPERM, "rmdir");
	fails(symlink("f", path(here, "s")), EPERM, "symlink");
	fails(link(f, path(here, "l")), EPERM, "link");
	fails(mknod(path(here, "p"), S_IFIFO | 0600, 0), EPERM, "mknod");
	fails(mknod(path(here, "p"), S_IFREG | 0600, 0), EPERM, "mknod of a file");
	fails(open(here, O_TMPFILE | O_RDWR, 0600), EOPNOTSUPP, "O_TMPFILE");
	fails(open(path(a, "f"), O_RDWR | O_CREAT, 0600), EPERM, "create in the root");
	fails(open(path(a, ".ramp/f"), O_RDWR | O_CREAT, 0600), EPERM, "create in .ramp");
	fails(rename(f, path(a, "f")), EPERM, "rename into the root");
	fails(rename(here, path(a, "z")), EPERM, "rename of a node");
	fails(unlink(path(a, ".ramp/status")), EPERM, "unlink of status");
	fails(truncate(path(a, ".ramp/status"), 0), EPERM, "truncate of status");
	fails(chmod(here, 0755), EPERM, "chmod of a node");
	fails((long)mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0), ENODEV, "a shared mapping");
	close(fd);
}
END_TEST

START_TEST(the_namespace)
{
	struct stat root, node, ramp;

	must(stat(a, &root), "stat");
	must(stat(here, &node), "stat");
	must(stat(path(a, ".ramp"), &ramp), "stat");
	ck_assert_uint_eq(root.st_mode, S_IFDIR | 0755);
	ck_assert_uint_eq(node.st_mode, S_IFDIR | 01777);
	ck_assert_uint_eq(root.st_uid, 0);
	ck_assert_uint_eq(root.st_ino, 1);
	ck_assert_uint_eq(ramp.st_ino, 2);
	ck_assert_uint_eq(node.st_ino, 17);
	fails(access(path(a, "absent"), F_OK), ENOENT, "a node that does not exist");
	must(access(path(a, "b"), F_OK), "the other node");
}
END_TEST

static void read_text(const char *file, char *buf, size_t cap)
{
	int fd = open(file, O_RDONLY);
	ssize_t n;

	must(fd, file);
	n = read(fd, buf, cap - 1);
	must(n, "read");
	buf[n] = 0;
	ck_assert_int_eq(read(fd, buf + n, 1), 0);
	close(fd);
}

START_TEST(views)
{
	static char buf[256 * 1024];
	char part[64];
	int fd;

	close(make(path(here, "seen-in-status")));
	read_text(path(a, ".ramp/status"), buf, sizeof(buf));
	ck_assert_ptr_nonnull(strstr(buf, "\nquorum: yes\n"));
	ck_assert_ptr_nonnull(strstr(buf, "a/seen-in-status"));
	read_text(path(a, ".ramp/nodes"), buf, sizeof(buf));
	ck_assert(strncmp(buf, "a voter up ", 11) == 0);
	ck_assert_ptr_nonnull(strstr(buf, "\nb voter up "));
	read_text(path(a, ".ramp/metrics"), buf, sizeof(buf));
	ck_assert_ptr_nonnull(strstr(buf, "\nrampfs_demand_pages_total "));
	ck_assert_ptr_nonnull(strstr(buf, "\nrampfs_prefetch_pages_total "));
	ck_assert_ptr_nonnull(strstr(buf, "\nrampfs_window_last_microseconds "));
	/* Read in pieces it is the same text. */
	fd = open(path(a, ".ramp/status"), O_RDONLY);
	ck_assert_int_eq(read(fd, buf, 10), 10);
	ck_assert_int_eq(read(fd, part, 6), 6);
	ck_assert(pread(fd, buf, sizeof(buf), 0) > 16);
	close(fd);
	ck_assert_mem_eq(buf + 10, part, 6);
	fails(open(path(a, ".ramp/status"), O_RDWR), EACCES, "writing status");
}
END_TEST

static void xattr_is(const char *file, const char *name, const char *value)
{
	char buf[256];
	ssize_t n = getxattr(file, name, buf, sizeof(buf) - 1);

	ck_assert_msg(n >= 0, "%s: %s", name, strerror(errno));
	buf[n] = 0;
	ck_assert_str_eq(buf, value);
}

static void set_fails(const char *file, const char *name, const char *value, int code)
{
	fails(setxattr(file, name, value, strlen(value), 0), code, value);
}

START_TEST(extended_attributes)
{
	const char *f = path(here, "f");
	char text[64], small[1];
	struct stat st;
	int fd = make(f);

	must(fstat(fd, &st), "fstat");
	snprintf(text, sizeof(text), "%lu", st.st_ino);
	xattr_is(f, "user.ramp.id", text);
	ck_assert_uint_ge(st.st_ino, RAMP_SEGMENT_ID_MIN);
	xattr_is(f, "user.ramp.addr", "none");
	xattr_is(f, "user.ramp.extent", "0");
	xattr_is(f, "user.ramp.owner", "a");
	xattr_is(f, "user.ramp.state", "stable");
	xattr_is(f, "user.ramp.source", "none");
	xattr_is(f, "user.ramp.lost", "none");
	xattr_is(f, "user.ramp.pages", "auto");
	xattr_is(f, "user.ramp.mmap", "none");
	xattr_is(f, "user.ramp.mode", "default");
	xattr_is(f, "user.ramp.resident_bytes", "0");
	put(fd, "x", 1, 0);
	xattr_is(f, "user.ramp.resident_bytes", "4096");
	must(setxattr(f, "user.ramp.pages", "small", 5, 0), "pages");
	xattr_is(f, "user.ramp.pages", "small");
	must(setxattr(f, "user.ramp.extent", "1G", 2, 0), "extent");
	xattr_is(f, "user.ramp.extent", "1073741824");
	set_fails(f, "user.ramp.extent", "3G", EINVAL);
	set_fails(f, "user.ramp.extent", "1M", EINVAL);
	set_fails(f, "user.ramp.extent", "many", EINVAL);
	set_fails(f, "user.ramp.extent", "1024T", EINVAL);
	set_fails(f, "user.ramp.pages", "large", EINVAL);
	set_fails(f, "user.ramp.mmap", "sometimes", EINVAL);
	set_fails(f, "user.ramp.mode", "fast", EINVAL);
	set_fails(f, "user.ramp.mode", "", EINVAL);
	must(setxattr(f, "user.ramp.mmap", "passthrough", 11, 0), "mmap");
	xattr_is(f, "user.ramp.mmap", "passthrough");
	/* It is known once every member of the cluster knows it. */
	while (setxattr(f, "user.ramp.mode", "precopy", 7, 0))
		ck_assert_int_eq(errno, EOPNOTSUPP);
	xattr_is(f, "user.ramp.mode", "precopy");
	xattr_is(f, "user.ramp.mmap", "passthrough");
	must(setxattr(f, "user.ramp.mmap", "none", 4, 0), "mmap");
	xattr_is(f, "user.ramp.mode", "precopy");
	must(removexattr(f, "user.ramp.mode"), "mode");
	xattr_is(f, "user.ramp.mode", "default");
	xattr_is(f, "user.ramp.pages", "small");
	set_fails(f, "user.ramp.owner", "b", EPERM);
	set_fails(f, "user.other", "x", EOPNOTSUPP);
	fails(getxattr(f, "user.other", text, sizeof(text)), ENODATA, "another name");
	fails(getxattr(f, "user.ramp.owners", text, sizeof(text)), ENODATA, "another name");
	ck_assert_int_eq(getxattr(f, "user.ramp.extent", NULL, 0), 10);
	fails(getxattr(f, "user.ramp.extent", small, 1), ERANGE, "no room");
	ck_assert_int_eq(listxattr(f, text, sizeof(text)), 0);
	fails(removexattr(f, "user.ramp.pages"), EPERM, "removexattr");
	close(fd);
}
END_TEST

START_TEST(ioctls)
{
	const char *f = path(here, "f");
	int fd = make(f), dir = open(here, O_RDONLY | O_DIRECTORY), wo = open(f, O_WRONLY);
	struct ramp_ioc_attach attach = {0};
	struct ramp_ioc_info info = {0};
	struct stat st;

	must(fstat(fd, &st), "fstat");
	must(ioctl(fd, RAMP_IOC_INFO, &info), "INFO");
	ck_assert_uint_eq(info.nodeid, st.st_ino);
	ck_assert_uint_ne(info.arena_len, 0);
	must(access(info.socket, F_OK), info.socket);
	must(ioctl(dir, RAMP_IOC_INFO, &info), "INFO of a directory");
	ck_assert_uint_eq(info.nodeid, 17);
	must(ioctl(fd, RAMP_IOC_ATTACH, &attach), "ATTACH");
	ck_assert_uint_eq(attach.segment, st.st_ino);
	ck_assert(attach.token[0] || attach.token[1]);
	ck_assert_str_eq(attach.socket, info.socket);
	fails(ioctl(wo, RAMP_IOC_ATTACH, &attach), EACCES, "ATTACH of a write-only open");
	fails(ioctl(dir, RAMP_IOC_ATTACH, &attach), ENOTTY, "ATTACH of a directory");
	fails(ioctl(fd, 0x5401 /* TCGETS */, &info), ENOTTY, "another ioctl");
	close(fd);
	close(dir);
	close(wo);
}
END_TEST

START_TEST(space_comes_back)
{
	struct statvfs before, full, after;
	int fd = make(path(here, "f"));

	must(statvfs(here, &before), "statvfs");
	must(fallocate(fd, 0, 0, 32 * MIB), "fallocate");
	must(statvfs(here, &full), "statvfs");
	/* Some pages of another segment may have been freed meanwhile. */
	ck_assert_uint_le(full.f_bfree, before.f_bfree - 31 * MIB / 4096);
	must(unlink(path(here, "f")), "unlink");
	has(fd, "\0", 1, 32 * MIB - 1);
	close(fd);
	for (int i = 0; i < 100; i++) {
		must(statvfs(here, &after), "statvfs");
		if (after.f_bfree >= full.f_bfree + 32 * MIB / 4096)
			return;
		usleep(50000);
	}
	ck_abort_msg("the space of an unlinked file is not free after 5 s");
}
END_TEST

/* ---- from another node ---------------------------------------------------------------------- */

/* Hints are at most a second old. */
static void size_seen(const char *file, off_t size)
{
	struct stat st;

	for (int i = 0; i < 30; i++) {
		must(stat(file, &st), "stat");
		if (st.st_size == size)
			return;
		usleep(50000);
	}
	ck_abort_msg("the size is %ld after 1.5 s", (long)st.st_size);
}

START_TEST(another_node_sees_and_changes)
{
	char f[PATH_MAX], seen[PATH_MAX], buf[8];
	struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 2000}};
	struct stat st, there;
	int fd, other;

	snprintf(f, sizeof(f), "%s", path(here, "f"));
	snprintf(seen, sizeof(seen), "%s", path(b, "a/f"));
	fd = make(f);
	put(fd, "hello", 5, 0);
	for (int i = 0; i < 100 && access(seen, F_OK); i++)
		usleep(10000);
	size_seen(seen, 5);
	must(fstat(fd, &st), "fstat");
	must(stat(seen, &there), "stat");
	ck_assert_uint_eq(st.st_ino, there.st_ino);
	ck_assert_uint_eq(st.st_mode, there.st_mode);

	other = open(seen, O_RDWR);
	must(other, "open");
	fails(pread(other, buf, 5, 0), EREMOTE, "read");
	fails(pwrite(other, "x", 1, 0), EREMOTE, "write");
	fails(ftruncate(other, 0), EREMOTE, "truncate");
	fails(fallocate(other, 0, 0, 4096), EREMOTE, "fallocate");
	fails(lseek(other, 0, SEEK_DATA), EREMOTE, "seek");
	fails(open(seen, O_RDWR | O_TRUNC), EREMOTE, "O_TRUNC");
	fails(open(path(b, "a/new"), O_RDWR | O_CREAT, 0600), EREMOTE, "create");
	xattr_is(seen, "user.ramp.owner", "a");
	close(other);

	must(chmod(seen, 0600), "chmod");
	must(utimensat(AT_FDCWD, seen, times, 0), "utimens");
	must(stat(seen, &there), "stat");
	ck_assert_int_eq(there.st_mtim.tv_sec, 2000);
	for (int i = 0; i < 100; i++) {
		must(stat(f, &st), "stat");
		if (st.st_mtim.tv_sec == 2000 && st.st_mode == (S_IFREG | 0600))
			break;
		usleep(10000);
	}
	ck_assert_int_eq(st.st_mtim.tv_sec, 2000);
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0600);
	must(rename(seen, path(b, "a/g")), "rename");
	must(access(path(b, "a/g"), F_OK), "the new name");
	must(unlink(path(b, "a/g")), "unlink");
	has(fd, "hello", 5, 0);
	for (int i = 0; i < 100 && access(path(here, "g"), F_OK) == 0; i++)
		usleep(10000);
	fails(access(path(here, "g"), F_OK), ENOENT, "the name at the owner");
	close(fd);
}
END_TEST

static void dated(int i, char f[PATH_MAX], char seen[PATH_MAX])
{
	snprintf(seen, PATH_MAX, "%s", path(b, "a/dated-%d", i));
	snprintf(f, PATH_MAX, "%s", path(here, "dated-%d", i));
}

/* Whether or not the owner has proposed it yet. */
START_TEST(another_nodes_times_count_from_the_beginning)
{
	char f[PATH_MAX], seen[PATH_MAX];
	struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 2000}};
	struct stat st;
	int fd;

	for (int i = 0; i < 5; i++) {
		dated(i, f, seen);
		fd = make(f);
		put(fd, "hello", 5, 0);
		close(fd);
		while (access(seen, F_OK))
			usleep(1000);
		must(utimensat(AT_FDCWD, seen, times, 0), "utimens");
		usleep(130 * 1000); /* at different times of the owner's sweep */
	}
	usleep(1200 * 1000);
	for (int i = 0; i < 5; i++) {
		dated(i, f, seen);
		must(stat(f, &st), "stat");
		ck_assert_int_eq(st.st_mtim.tv_sec, 2000);
		ck_assert_int_eq(st.st_atim.tv_sec, 1000);
		must(stat(seen, &st), "stat");
		ck_assert_int_eq(st.st_mtim.tv_sec, 2000);
		must(unlink(f), "unlink");
	}
}
END_TEST

static void add_both(Suite *suite)
{
	TCase *tc = tcase_create("as on tmpfs");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, open_and_create, 0, 2);
	tcase_add_loop_test(tc, read_and_write, 0, 2);
	tcase_add_loop_test(tc, big_and_crooked_io, 0, 2);
	tcase_add_loop_test(tc, appending, 0, 2);
	tcase_add_loop_test(tc, many_appenders_lose_nothing, 0, 2);
	tcase_add_loop_test(tc, truncating, 0, 2);
	tcase_add_loop_test(tc, allocating, 0, 2);
	tcase_add_loop_test(tc, seeking_data_and_holes, 0, 2);
	tcase_add_loop_test(tc, unlinked_files_live_on, 0, 2);
	tcase_add_loop_test(tc, renaming, 0, 2);
	tcase_add_loop_test(tc, modes_owners_and_times, 0, 2);
	tcase_add_loop_test(tc, set_group_id_goes, 0, 2);
	tcase_add_loop_test(tc, set_group_id_stays, 0, 2);
	tcase_add_loop_test(tc, permissions, 0, 2);
	tcase_add_loop_test(tc, direct_io, 0, 2);
	tcase_add_loop_test(tc, listing, 0, 2);
	tcase_add_loop_test(tc, long_names, 0, 2);
	tcase_add_loop_test(tc, private_mappings_and_exec, 0, 2);
	tcase_add_loop_test(tc, locks_and_sync, 0, 2);
	suite_add_tcase(suite, tc);
}

static void add_own(Suite *suite)
{
	TCase *tc = tcase_create("rampfs");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, what_it_has_not);
	tcase_add_test(tc, the_namespace);
	tcase_add_test(tc, views);
	tcase_add_test(tc, extended_attributes);
	tcase_add_test(tc, ioctls);
	tcase_add_test(tc, space_comes_back);
	tcase_add_test(tc, another_node_sees_and_changes);
	tcase_add_test(tc, another_nodes_times_count_from_the_beginning);
	suite_add_tcase(suite, tc);
}

int main(void)
{
	const char *mount_a = getenv("RAMPFS_A"), *mount_b = getenv("RAMPFS_B");
	Suite *suite = suite_create("operations");
	int failed;

	if (!mount_a || !mount_b) {
		fputs("run tests/mount/ops/ops.sh\n", stderr);
		return EXIT_FAILURE;
	}
	snprintf(a, sizeof(a), "%s", mount_a);
	snprintf(b, sizeof(b), "%s", mount_b);
	snprintf(here, sizeof(here), "%s/a", mount_a);
	strcpy(tmpfs_dir, "/dev/shm/rampfs-ops-XXXXXX");
	if (!mkdtemp(tmpfs_dir) || chmod(tmpfs_dir, 01777))
		return EXIT_FAILURE;
	dirs[0] = tmpfs_dir;
	dirs[1] = here;
	add_both(suite);
	add_own(suite);
	failed = run_suite(suite);
	rmdir(tmpfs_dir);
	return failed;
}
