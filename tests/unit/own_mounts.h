/*
 * A mount namespace of the test's own, so that its mounts go with it whatever happens.
 */
#ifndef OWN_MOUNTS_H
#define OWN_MOUNTS_H

#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

/* Copies of the mounts of tests beside this one: while they are there, umount(8) ends no daemon. */
static inline void drop_strange_mounts(void)
{
	FILE *mounts = setmntent("/proc/self/mounts", "re");
	struct mntent *entry;

	while (mounts && (entry = getmntent(mounts)))
		if (strcmp(entry->mnt_type, "fuse.rampfs") == 0)
			umount2(entry->mnt_dir, MNT_DETACH);
	if (mounts)
		endmntent(mounts);
}

/*
 * 0 or -1 with errno. In a chroot whose root is no mount of its own nothing can be said about the
 * mount around it (EINVAL): the test's mounts are its own there, too, unless that one is shared;
 * then they show outside until the test unmounts them.
 */
static inline int own_mounts(void)
{
	struct statx root;

	if (unshare(CLONE_NEWNS))
		return -1;
	if (!mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) {
		drop_strange_mounts();
		return 0;
	}
	if (errno == EINVAL && !statx(AT_FDCWD, "/", 0, STATX_BASIC_STATS, &root) &&
	    !(root.stx_attributes & STATX_ATTR_MOUNT_ROOT))
		return 0;
	return -1;
}

#endif
