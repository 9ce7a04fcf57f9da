/*
 * A program that allocates segments.
 *
 *	alloc_user bad MOUNT
 *		is refused what is too large, or taken, in words, and nothing is left of it
 *	alloc_user full MOUNT
 *		allocates until the user, or the arena, has no more addresses; says "EDQUOT N" or "ENOSPC N"
 *		of N segments; frees them, and one more is allocated, with a mode of 0400
 *	alloc_user many MOUNT NAME COUNT
 *		allocates NAME0, NAME1, ... of 3 MiB and an extent of 64 MiB, stores, and puts them
 *	alloc_user one MOUNT NAME
 *		the same once, by that name; says what is wrong with it, or nothing
 *
 * Exit status 0: all was as it must be.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "user.h"

static int count(void *arg, const struct ramp_info *info)
{
	(void)info;
	++*(int *)arg;
	return 0;
}

static int listed(struct ramp_cluster *ramp)
{
	int n = 0;

	CHECK(ramp_list(ramp, NULL, count, &n) == 0);
	return n;
}

static void refused(struct ramp_cluster *ramp, struct ramp_alloc what, int result,
		    const char *words)
{
	int before = listed(ramp);
	struct ramp_segment *s = (void *)ramp;

	CHECK(ramp_alloc(ramp, &what, &s) == result && !s);
	if (!strstr(ramp_error(), words) || !strstr(ramp_error(), what.name))
		fail(words);
	CHECK(listed(ramp) == before);
}

static void bad(const char *mount)
{
	struct ramp_cluster *ramp;
	struct ramp_segment *s;
	struct statvfs space;
	uint64_t capacity, arena;

	CHECK(ramp_open(mount, &ramp) == 0 && statvfs(mount, &space) == 0);
	capacity = (uint64_t)space.f_blocks * space.f_frsize;
	ramp_arena(ramp, &arena);
	refused(ramp, (struct ramp_alloc){.name = "wide", .size = capacity + MIB}, -ENOSPC,
		"MiB that node");
	refused(ramp, (struct ramp_alloc){.name = "wide", .size = 1, .extent = arena + 1}, -ENOSPC,
		"MiB of addresses");
	refused(ramp, (struct ramp_alloc){.name = "wide", .size = 1, .extent = UINT64_C(1) << 61},
		-ENOSPC, "MiB of addresses");
	CHECK(ramp_alloc(ramp, &(struct ramp_alloc){.name = "taken", .size = 1}, &s) == 0);
	CHECK(ramp_size(s) == 4096);
	refused(ramp, (struct ramp_alloc){.name = "taken", .size = MIB}, -EEXIST, "File exists");
	ramp_put(s);
	refused(ramp, (struct ramp_alloc){.name = "taken", .size = MIB}, -EEXIST, "File exists");
	CHECK(ramp_free(ramp, NULL, "taken") == 0);
	ramp_close(ramp);
}

static struct ramp_segment *allocate(struct ramp_cluster *ramp, const char *name, mode_t mode,
				     int *result)
{
	struct ramp_alloc what = {
		.name = name, .size = 3 * MIB, .extent = 64 * MIB, .mode = mode, .no_huge = 1};
	struct ramp_segment *s;

	*result = ramp_alloc(ramp, &what, &s);
	return s;
}

static void has_mode(const struct ramp_cluster *ramp, const char *name, mode_t mode)
{
	char path[512];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s/%s", ramp_mount(ramp), ramp_node(ramp), name);
	CHECK(stat(path, &st) == 0 && (st.st_mode & 07777) == mode);
}

static void full(const char *mount)
{
	struct ramp_segment *s[64];
	struct ramp_cluster *ramp;
	char name[32];
	int rc, n = 0, again = 0;

	CHECK(ramp_open(mount, &ramp) == 0);
	for (;; n++) {
		CHECK(n < 64);
		snprintf(name, sizeof(name), "full%d", n);
		s[n] = allocate(ramp, name, 0640, &rc);
		if (rc)
			break;
	}
	CHECK((rc == -EDQUOT && strstr(ramp_error(), "arena-user-max")) ||
	      (rc == -ENOSPC && strstr(ramp_error(), "no free range")));
	printf("%s %d\n", rc == -EDQUOT ? "EDQUOT" : "ENOSPC", n);
	CHECK(ramp_get(ramp, name, 0, &s[n]) == -ENOENT);
	for (int i = 0; i < n; i++) {
		ramp_put(s[i]);
		snprintf(name, sizeof(name), "full%d", i);
		CHECK(ramp_free(ramp, NULL, name) == 0);
	}
	/* Its addresses are free as soon as its memory is. */
	for (rc = -1; rc && again < 2000; again++)
		s[0] = allocate(ramp, "again", 0400, &rc);
	CHECK(s[0]);
	has_mode(ramp, "again", 0400);
	*(volatile uint64_t *)ramp_data(s[0]) = 4711;
	ramp_put(s[0]);
	CHECK(ramp_free(ramp, NULL, "again") == 0);
	ramp_close(ramp);
}

static void one(struct ramp_cluster *ramp, const char *name)
{
	struct ramp_segment *s;
	struct ramp_info info;
	volatile uint64_t *words;
	int rc;

	s = allocate(ramp, name, 0640, &rc);
	CHECK(rc == 0 && s);
	words = ramp_data(s);
	CHECK(ramp_size(s) == 3 * MIB && ramp_extent(s) == 64 * MIB);
	CHECK(load(words) == 0 && load(words + 3 * MIB / 8 - 1) == 0);
	CHECK(load(words + 3 * MIB / 8) == -1);
	CHECK(ramp_stat(s, &info) == 0 && info.addr == (uintptr_t)words);
	CHECK(info.size == 3 * MIB && info.extent == 64 * MIB && !strcmp(info.name, name));
	words[1] = 4711;
	ramp_put(s);
	CHECK(ramp_get(ramp, name, 0, &s) == 0 && ramp_data(s) == words && load(words + 1) == 4711);
	ramp_put(s);
}

static void many(const char *mount, const char *name, int n)
{
	struct ramp_cluster *ramp;
	char text[64];

	CHECK(ramp_open(mount, &ramp) == 0);
	if (!n)
		one(ramp, name);
	for (int i = 0; i < n; i++) {
		snprintf(text, sizeof(text), "%s%d", name, i);
		one(ramp, text);
	}
	ramp_close(ramp);
}

int main(int argc, char **argv)
{
	catch_bus();
	if (argc == 3 && !strcmp(argv[1], "bad"))
		bad(argv[2]);
	else if (argc == 3 && !strcmp(argv[1], "full"))
		full(argv[2]);
	else if (argc == 5 && !strcmp(argv[1], "many"))
		many(argv[2], argv[3], atoi(argv[4]));
	else if (argc == 4 && !strcmp(argv[1], "one"))
		many(argv[2], argv[3], 0);
	else
		return fprintf(stderr, "alloc_user: see alloc_user.c\n"), 2;
	return 0;
}
