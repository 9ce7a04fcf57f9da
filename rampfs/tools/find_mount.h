/*
 * The mount of a tool that was given none, and whether a mount may be trusted.
 */
#ifndef RAMP_FIND_MOUNT_H
#define RAMP_FIND_MOUNT_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "base/ioc.h"

/* Finds the one rampfs mount of root's in this mount namespace. Returns 0, or the tool's exit
   status after a line on stderr: 1 there is none (or /proc can't be read), 2 there are several. */
int find_mount(const char *tool, char path[PATH_MAX]);

/*
 * Asks the mount in which `dir` lies for its facts, and trusts it only where root has mounted it:
 * any user's FUSE filesystem may call itself rampfs, and name a segment and a daemon that are not
 * its own. Returns 0; -ENOTTY: it is no rampfs mount; -EPERM: root has not mounted it; or another
 * negative errno.
 */
int ask_mount_info(int dir, struct ramp_ioc_info *info);

/*
 * The directory of the file that was asked about last. While it is open its mount stays the same one, so
 * what was asked holds for all files of it: each costs a stat(2), and no look at all mounts.
 */
struct asked_dir {
	char *name; /* as the file's path has it, up to its last slash; NULL: none */
	int fd;
	bool asked;
	struct ramp_ioc_info info;
};

#define ASKED_DIR_NONE ((struct asked_dir){.fd = -1})

/* Finds a file in its directory, without following it, and asks the directory's mount where that is
   another directory than the last one. Returns as ask_mount_info. */
int asked_dir_find(struct asked_dir *dir, const char *file, struct stat *st);
void asked_dir_close(struct asked_dir *dir); /* `info` stays */

#endif
