/*
 * Is this file on a rampfs mount?
 *
 * The answer is remembered per device (st_dev), so it costs one fstat(2). The first time a device
 * is seen it must be a FUSE filesystem whose type in /proc/self/mountinfo is fuse.rampfs; a mount
 * that is not listed there (detached, or out of a chroot's sight) is asked itself.
 *
 * Thread-safety: any thread, any time, no lock.
 */
#ifndef RAMP_MOUNTS_H
#define RAMP_MOUNTS_H

#include <stdbool.h>

bool mounts_has(int fd);
/* The same, forgetting what was known of the file's device: a number may come back as another
   filesystem's after an umount. */
bool mounts_look_again(int fd);

#endif
