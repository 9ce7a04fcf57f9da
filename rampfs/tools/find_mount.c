/*
 * The one rampfs mount of this machine, from /proc/self/mounts. See find_mount.h.
 */
#include "find_mount.h"

#include <errno.h>
#include <mntent.h>
#include <stdio.h>
#include <string.h>

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
		if (strcmp(entry->mnt_type, "fuse.rampfs") == 0 && found++ == 0)
			snprintf(path, PATH_MAX, "%s", entry->mnt_dir);
	endmntent(mounts);
	if (found == 1)
		return 0;
	fprintf(stderr, "%s: %s\n", tool,
		found ? "there are several rampfs mounts: say which" : "no rampfs is mounted here");
	return found ? 2 : 1;
}
