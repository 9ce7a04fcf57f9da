/*
 * Which of our processes this is, by its command line, and the control page that the test shares with it:
 * $INJECT_DIR/NODE for the daemon of a node (NODE: the last part of its mountpoint), $INJECT_DIR/keeper-NODE
 * for its keeper, $INJECT_DIR/broker for the brokers, $INJECT_DIR/$INJECT_PROGRAM for a program that has the
 * shim. For libraries that are preloaded into all of them.
 */
#ifndef INJECT_ROLE_H
#define INJECT_ROLE_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static inline const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Finds the name of our control: "" if this process is none of those. */
static inline void role_name(char *name, size_t cap)
{
	char line[4096];
	FILE *f = fopen("/proc/self/cmdline", "re");
	size_t len = f ? fread(line, 1, sizeof(line) - 1, f) : 0;
	const char *program = getenv("INJECT_PROGRAM"), *second, *last = "";

	if (f)
		fclose(f);
	line[len] = 0;
	second = line + strlen(line) + 1;
	for (const char *at = line; at < line + len; at += strlen(at) + 1)
		last = at;
	if (program)
		snprintf(name, cap, "%s", program);
	else if (second >= line + len || strcmp(last_part(line), "rampfs") != 0)
		return;
	else if (strcmp(second, "--broker") == 0)
		snprintf(name, cap, "broker");
	else if (strcmp(second, "--daemon") == 0)
		snprintf(name, cap, "%s", last_part(last));
	else if (strncmp(second, "--", 2) != 0 || strcmp(second, "--adopt") == 0)
		snprintf(name, cap, "keeper-%s", last_part(last));
}

/* Maps our control page; NULL: none. *program: this is a program that has the shim. */
static inline void *role_control(size_t size, bool *program)
{
	const char *dir = getenv("INJECT_DIR");
	char name[64] = "", path[4096];
	void *at;
	int fd;

	*program = getenv("INJECT_PROGRAM") != NULL;
	if (dir)
		role_name(name, sizeof(name));
	if (!name[0])
		return NULL;
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return at == MAP_FAILED ? NULL : at;
}

#endif
