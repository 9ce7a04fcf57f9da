/*
 * What the programs that measure have in common.
 */
#ifndef RAMP_BENCH_H
#define RAMP_BENCH_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <time.h>
#include <unistd.h>

/* Ends the program where it is not so. */
static inline void must(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
	exit(1);
}

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The seed is not 0. */
static inline uint64_t next_random(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return *state = x;
}

/* Returns a file of a tmpfs that no path leads to. huge: the tmpfs's option. */
static inline int tmpfs_file(const char *huge, size_t bytes)
{
	char dir[] = "/tmp/rampfs-bench.XXXXXX", path[64], options[64];
	int fd;

	/* EINVAL: in a chroot whose root is no mount of its own. */
	must(unshare(CLONE_NEWNS) == 0 &&
		     (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == 0 || errno == EINVAL),
	     "mount namespace");
	must(mkdtemp(dir) != NULL, dir);
	snprintf(options, sizeof(options), "huge=%s,noswap", huge);
	must(mount("bench", dir, "tmpfs", 0, options) == 0, "tmpfs");
	snprintf(path, sizeof(path), "%s/f", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	must(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0, path);
	must(umount2(dir, MNT_DETACH) == 0 && rmdir(dir) == 0, dir);
	return fd;
}

#endif
