/*
 * The keeper's mount: finding it in /proc/self/mounts, making it, detaching dead ones.
 */
#include "keeper_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/ids.h"
#include "base/kernel.h"
#include "base/log.h"
#include "keeper_held.h"
#include "protocol.h"

#define FSTYPE "fuse.rampfs"

/* Returns whether a listed source is this one. The kernel writes a # in a source as \043, and
   getmntent(3) leaves it so. */
static bool is_source(const char *listed, const char *source)
{
	for (; *source; source++) {
		if (*source == '#' && strncmp(listed, "\\043", 4) == 0)
			listed += 4;
		else if (*listed++ != *source)
			return false;
	}
	return !*listed;
}

/* Returns true where `dir` is mounted and is ours by type and source. *other: another rampfs is
   mounted there. */
static bool our_mount(const char *source, const char *dir, bool *other)
{
	FILE *mounts = setmntent("/proc/self/mounts", "re");
	struct mntent *e;
	bool ours = false;

	*other = false;
	while (mounts && (e = getmntent(mounts))) {
		if (strcmp(e->mnt_dir, dir) != 0)
			continue;
		/* The mount listed last covers the others. */
		ours = strcmp(e->mnt_type, FSTYPE) == 0 && is_source(e->mnt_fsname, source);
		*other = !ours && strcmp(e->mnt_type, FSTYPE) == 0;
	}
	if (mounts)
		endmntent(mounts);
	return ours;
}

/* Finds a mount of our source anywhere: its mountpoint in `dir`. */
static bool find_ours(const char *source, char *dir, size_t cap)
{
	FILE *mounts = setmntent("/proc/self/mounts", "re");
	struct mntent *e;
	bool found = false;

	while (mounts && (e = getmntent(mounts))) {
		if (strcmp(e->mnt_type, FSTYPE) != 0 || !is_source(e->mnt_fsname, source) ||
		    strlen(e->mnt_dir) >= cap)
			continue;
		strcpy(dir, e->mnt_dir);
		found = true;
	}
	if (mounts)
		endmntent(mounts);
	return found;
}

static int detach(const char *dir, struct ramp_err *err)
{
	log_warn("detaching the dead mount %s", dir);
	if (umount2(dir, MNT_DETACH))
		return ramp_err_sys(err, errno, "detaching the dead mount %s", dir);
	return 0;
}

int keeper_detach_dead(const struct keeper_config *config, struct ramp_err *err)
{
	char dir[4096];
	struct statfs fs;
	bool other;
	int rc;

	while (find_ours(config->source, dir, sizeof(dir))) {
		rc = detach(dir, err);
		if (rc)
			return rc;
	}
	while (our_mount(config->source, config->mountpoint, &other) || other) {
		if (statfs(config->mountpoint, &fs) == 0 || errno != ENOTCONN)
			return ramp_err_set(err, EBUSY, "another rampfs is mounted at %s",
					    config->mountpoint);
		rc = detach(config->mountpoint, err);
		if (rc)
			return rc;
	}
	return 0;
}

int keeper_make_mount(struct keeper *k, struct ramp_err *err)
{
	char options[128], connection[32];
	int rc, fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return ramp_err_sys(err, errno, "/dev/fuse");
	snprintf(options, sizeof(options),
		 "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions", fd);
	if (mount(k->config->source, k->config->mountpoint, FSTYPE,
		  MS_NOSUID | MS_NODEV | k->config->mount_flags, options)) {
		int code = errno;

		close(fd);
		return ramp_err_sys(err, code, "mounting %s", k->config->mountpoint);
	}
	rc = keeper_move_high(fd, &k->fuse);
	if (rc)
		return ramp_err_sys(err, -rc, "/dev/fuse");
	snprintf(connection, sizeof(connection), "%016llx", (unsigned long long)ramp_random64());
	setenv(KEEPER_ENV_CONNECTION, connection, 1);
	return 0;
}

void keeper_drop_mount(struct keeper *k)
{
	bool other;

	if (our_mount(k->config->source, k->config->mountpoint, &other) &&
	    umount2(k->config->mountpoint, 0) && errno == EBUSY)
		umount2(k->config->mountpoint, MNT_DETACH);
}
