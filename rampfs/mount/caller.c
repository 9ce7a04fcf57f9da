/*
 * The caller of a request; see caller.h.
 */
#include "caller.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

char *caller_status(pid_t pid, const char *name)
{
	char path[64], *line = NULL;
	size_t len = strlen(name), cap = 0;
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return NULL;
	while (!found && getline(&line, &cap, f) > 0)
		found = !strncmp(line, name, len);
	fclose(f);
	if (found)
		memmove(line, line + len, strlen(line + len) + 1);
	else
		free(line);
	return found ? line : NULL;
}

static bool in_our_user_namespace(pid_t pid)
{
	struct stat theirs, ours;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	return stat(path, &theirs) == 0 && stat("/proc/self/ns/user", &ours) == 0 &&
	       theirs.st_ino == ours.st_ino && theirs.st_dev == ours.st_dev;
}

/* Returns true if the thread has the capability in its own user namespace, whichever that is. */
static bool has_somewhere(pid_t pid, int cap)
{
	char *line = caller_status(pid, "CapEff:");
	bool has = line && strtoull(line, NULL, 16) >> cap & 1;

	free(line);
	return has;
}

bool caller_has(pid_t pid, int cap)
{
	return has_somewhere(pid, cap) && in_our_user_namespace(pid);
}

/* Returns true if the user namespace of that process knows the id. `map`: uid_map or gid_map, as
   user_namespaces(7) describes them. */
static bool maps(pid_t pid, const char *map, uint32_t id)
{
	unsigned long inside, outside, count;
	bool found = false;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, map);
	f = fopen(path, "re");
	if (!f)
		return false;
	while (!found && fscanf(f, "%lu %lu %lu", &inside, &outside, &count) == 3)
		found = id >= outside && id - outside < count;
	fclose(f);
	return found;
}

bool caller_is_limited(fuse_req_t req, int cap, const struct segment_row *seen, uint32_t *owner)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	*owner = ctx->uid;
	if (ctx->uid == 0)
		return false;
	if (!has_somewhere(ctx->pid, cap))
		return true;
	if (in_our_user_namespace(ctx->pid))
		return false;
	if (seen && maps(ctx->pid, "uid_map", seen->uid) && maps(ctx->pid, "gid_map", seen->gid))
		*owner = seen->uid;
	return true;
}
