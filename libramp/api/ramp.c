/*
 * A mount: ramp_open and its kin.
 */
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/mounts.h"
#include "error.h"
#include "handle.h"

#define EXPORT __attribute__((visibility("default")))

static bool mount_is_roots(const char *options)
{
	return strncmp(options, "user_id=0,", 10) == 0 || strstr(options, ",user_id=0,");
}

/* Finds the only rampfs mount. Returns 0 or a negative errno after its words. */
static int find_only(char path[PATH_MAX])
{
	FILE *mounts = setmntent("/proc/self/mounts", "re");
	char line[2 * PATH_MAX];
	struct mntent entry;
	int found = 0;

	if (!mounts)
		return error_set(errno, "/proc/self/mounts", NULL);
	while (getmntent_r(mounts, &entry, line, sizeof(line)))
		if (strcmp(entry.mnt_type, "fuse.rampfs") == 0 && mount_is_roots(entry.mnt_opts) &&
		    found++ == 0)
			snprintf(path, PATH_MAX, "%s", entry.mnt_dir);
	endmntent(mounts);
	if (found == 1)
		return 0;
	return found ? error_set(ENOTUNIQ, "ramp_open",
				 "there are several rampfs mounts: say which")
		     : error_set(ENOENT, "ramp_open", "no rampfs is mounted here");
}

static int find_path(const char *mount, char path[PATH_MAX])
{
	if (!mount || !mount[0])
		mount = getenv("RAMPFS_MOUNT");
	if (!mount || !mount[0])
		return find_only(path);
	if (strlen(mount) >= PATH_MAX)
		return error_set(ENAMETOOLONG, "ramp_open", NULL);
	strcpy(path, mount);
	return 0;
}

char *handle_read(const struct ramp_cluster *ramp, const char *name)
{
	char path[64], *text = NULL;
	size_t len = 0;
	FILE *in, *out;
	int c, fd;

	snprintf(path, sizeof(path), ".ramp/%s", name);
	fd = openat(ramp->fd, path, O_RDONLY | O_CLOEXEC);
	in = fd < 0 ? NULL : fdopen(fd, "r");
	if (!in) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	out = open_memstream(&text, &len);
	while (out && (c = getc_unlocked(in)) != EOF)
		putc_unlocked(c, out);
	if (!out || (ferror(in) | fclose(out))) {
		free(text);
		text = NULL;
		errno = EIO;
	}
	fclose(in);
	return text;
}

/* Returns whether one of the words of that text is "here". */
static bool says_here(char *text)
{
	char *word;

	while ((word = strsep(&text, " ")))
		if (strcmp(word, "here") == 0)
			return true;
	return false;
}

/* Finds this node's name: that of the line of .ramp/nodes, NAME and words, that says "here". */
static int find_node(struct ramp_cluster *ramp)
{
	char *text = handle_read(ramp, "nodes"), *line, *rest = text;
	int rc = -ENOENT;

	if (!text)
		return -errno;
	while ((line = strsep(&rest, "\n"))) {
		const char *name = strsep(&line, " ");

		if (line && says_here(line)) {
			snprintf(ramp->node, sizeof(ramp->node), "%s", name);
			rc = 0;
		}
	}
	free(text);
	return rc;
}

static int ramp_fill(struct ramp_cluster *ramp, const char *mount)
{
	int rc = find_path(mount, ramp->path);

	if (rc)
		return rc;
	ramp->fd = open(ramp->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (ramp->fd < 0)
		return error_set(errno, ramp->path, NULL);
	/* Any user's FUSE filesystem may call itself rampfs, and name a daemon of its own. */
	if (ioctl(ramp->fd, RAMP_IOC_INFO, &ramp->info))
		return error_set(ENOTTY, ramp->path, "is not a rampfs mount");
	if (!mounts_has(ramp->fd))
		return error_set(EPERM, ramp->path, "is a rampfs mount that root has not mounted");
	ramp->info.socket[sizeof(ramp->info.socket) - 1] = '\0';
	rc = find_node(ramp);
	return rc ? error_set(-rc, ramp->path, "its .ramp/nodes does not name this node") : 0;
}

EXPORT int ramp_open(const char *mount, struct ramp_cluster **out)
{
	struct ramp_cluster *ramp = calloc(1, sizeof(*ramp));
	int rc;

	*out = NULL;
	if (!ramp)
		return error_set(ENOMEM, "ramp_open", NULL);
	ramp->fd = -1;
	atomic_init(&ramp->refs, 1);
	rc = ramp_fill(ramp, mount);
	if (rc) {
		handle_put(ramp);
		return rc;
	}
	*out = ramp;
	return error_none();
}

struct ramp_cluster *handle_get(struct ramp_cluster *ramp)
{
	atomic_fetch_add(&ramp->refs, 1);
	return ramp;
}

void handle_put(struct ramp_cluster *ramp)
{
	if (atomic_fetch_sub(&ramp->refs, 1) > 1)
		return;
	if (ramp->fd >= 0)
		close(ramp->fd);
	free(ramp);
}

EXPORT void ramp_close(struct ramp_cluster *ramp)
{
	if (ramp)
		handle_put(ramp);
}

EXPORT const char *ramp_mount(const struct ramp_cluster *ramp)
{
	return ramp->path;
}

EXPORT const char *ramp_node(const struct ramp_cluster *ramp)
{
	return ramp->node;
}

EXPORT void *ramp_arena(const struct ramp_cluster *ramp, uint64_t *len)
{
	if (len)
		*len = ramp->info.arena_len;
	return (void *)(uintptr_t)ramp->info.arena_addr;
}
