/*
 * The rampfs mounts of this machine, from /proc/self/mounts, and which user has made one. See
 * find_mount.h.
 */
#include "find_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define FS_TYPE "fuse.rampfs"

/* Whether root has mounted it, by the options that the kernel shows of each FUSE filesystem. */
static bool is_roots(const char *options)
{
	return strncmp(options, "user_id=0,", 10) == 0 || strstr(options, ",user_id=0,");
}

int find_mount(const char *tool, char path[PATH_MAX])
{
	FILE *mounts = setmntent("/proc/self/mounts", "r");
	struct mntent *entry;
	int found = 0;

	if (!mounts) {
		fprintf(stderr, "%s: /proc/self/mounts: %s\n", tool, strerror(errno));
		return 1;
	}
	while ((entry = getmntent(mounts)))
		if (strcmp(entry->mnt_type, FS_TYPE) == 0 && is_roots(entry->mnt_opts) &&
		    found++ == 0)
			snprintf(path, PATH_MAX, "%s", entry->mnt_dir);
	endmntent(mounts);
	if (found == 1)
		return 0;
	fprintf(stderr, "%s: %s\n", tool,
		found ? "there are several rampfs mounts: say which" : "no rampfs is mounted here");
	return found ? 2 : 1;
}

/* Whether a line of /proc/self/mountinfo ("ID PARENT MAJOR:MINOR ROOT WHERE OPTIONS [TAG...] - TYPE
   SOURCE OPTIONS") is of this device, and a rampfs that root has mounted. */
static bool line_is_roots(const char *line, dev_t dev)
{
	const char *rest = strstr(line, " - ");
	unsigned int major, minor;
	char type[32];
	int options = 0;

	return rest && sscanf(line, "%*d %*d %u:%u", &major, &minor) == 2 &&
	       makedev(major, minor) == dev &&
	       sscanf(rest, " - %31s %*s %n", type, &options) == 1 && options &&
	       strcmp(type, FS_TYPE) == 0 && is_roots(rest + options);
}

static int device_is_roots(dev_t dev)
{
	FILE *mounts = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t room = 0;
	bool found = false;

	if (!mounts)
		return -errno;
	while (!found && getline(&line, &room, mounts) > 0)
		found = line_is_roots(line, dev);
	free(line);
	fclose(mounts);
	return found ? 0 : -EPERM;
}

int ask_mount_info(int dir, struct ramp_ioc_info *info)
{
	struct stat st;

	if (ioctl(dir, RAMP_IOC_INFO, info))
		return errno == EOPNOTSUPP ? -ENOTTY : -errno;
	info->socket[RAMP_SOCKET_PATH_MAX] = 0;
	return fstat(dir, &st) ? -errno : device_is_roots(st.st_dev);
}

/* ---- the directory that was asked last ------------------------------------------------------- */

void asked_dir_close(struct asked_dir *dir)
{
	if (dir->fd >= 0)
		close(dir->fd);
	free(dir->name);
	dir->name = NULL;
	dir->fd = -1;
	dir->asked = false;
}

static int asked_dir_open(struct asked_dir *dir, const char *file, size_t len)
{
	asked_dir_close(dir);
	dir->name = strndup(file, len);
	if (!dir->name)
		return -ENOMEM;
	dir->fd = open(len ? dir->name : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir->fd < 0 ? -errno : 0;
}

int asked_dir_find(struct asked_dir *dir, const char *file, struct stat *st)
{
	const char *slash = strrchr(file, '/'), *base = slash ? slash + 1 : file;
	size_t len = (size_t)(base - file);
	int rc = 0;

	if (dir->fd < 0 || strlen(dir->name) != len || strncmp(dir->name, file, len) != 0)
		rc = asked_dir_open(dir, file, len);
	if (rc)
		return rc;
	if (fstatat(dir->fd, *base ? base : ".", st, AT_SYMLINK_NOFOLLOW))
		return -errno;
	if (!dir->asked)
		rc = ask_mount_info(dir->fd, &dir->info);
	dir->asked = !rc;
	return rc;
}
