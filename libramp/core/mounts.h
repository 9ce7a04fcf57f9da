/*
 * Whether a file is on a rampfs mount.
 *
 * The answer is remembered for each mount, so it costs one statx(2). The first time a mount is
 * seen, its filesystem must be listed in /proc/self/mountinfo as a fuse.rampfs that root has
 * mounted: any user may mount a filesystem that calls itself so, and hand over a file of it. Where
 * there is no such list (a chroot without /proc) the mount itself is asked, and the listener at its
 * socket decides alone (daemon_request.h).
 *
 * Thread-safety: any thread, any time, no lock.
 */
#ifndef RAMP_MOUNTS_H
#define RAMP_MOUNTS_H

#include <stdbool.h>

bool mounts_has(int fd);
/* The same, but forgets the answer for the file's mount: before Linux 6.8 a mount is known by
   its device's number, which may come back as another filesystem's after an umount. */
bool mounts_look_again(int fd);

#endif
