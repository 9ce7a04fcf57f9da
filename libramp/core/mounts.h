/*
 * Is this file on a rampfs mount?
 *
 * The answer is remembered per mount, so it costs one statx(2). The first time a mount is seen its
 * file system must stand in /proc/self/mountinfo as a fuse.rampfs that root has mounted: anybody
 * may mount what calls itself so, and hand over a file of it. Where there is no such list (a chroot
 * without /proc) the mount is asked itself, and who listens decides alone (listener.h).
 *
 * Thread-safety: any thread, any time, no lock.
 */
#ifndef RAMP_MOUNTS_H
#define RAMP_MOUNTS_H

#include <stdbool.h>

bool mounts_has(int fd);
/* The same, forgetting what was known of the file's mount: before Linux 6.8 that is by its device's
   number, which may come back as another filesystem's after an umount. */
bool mounts_look_again(int fd);

#endif
