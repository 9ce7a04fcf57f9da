/*
 * Requests to the kernel about our own mount, from outside: by its mountpoint.
 */
#include "mount_self.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/log.h"

uint64_t mount_device(struct mount *m)
{
	struct statx stx;

	if (statx(AT_FDCWD, m->config.mountpoint, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE,
		  &stx))
		return 0;
	return makedev(stx.stx_dev_major, stx.stx_dev_minor);
}

/*
 * Reconfigures the mount without changing anything: the kernel first empties the superblock's cache
 * of names (fs/super.c, reconfigure_super). A notification would need each name, and another node
 * has removed it; FUSE_NOTIFY_PRUNE, which takes inodes, came with Linux 6.18.
 */
void mount_drop_names(struct mount *m)
{
	int fd = fspick(AT_FDCWD, m->config.mountpoint, FSPICK_CLOEXEC | FSPICK_NO_AUTOMOUNT);

	/* If another filesystem is mounted there by now, that one loses its cached names, and
	   nothing else. */
	if (fd < 0 || fsconfig(fd, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0))
		log_debug("names stay in the kernel's cache: %s", strerror(errno));
	else
		log_debug("the kernel's cache of names is emptied");
	if (fd >= 0)
		close(fd);
}
