/*
 * An SQLite VFS in memory, with disks that fill up, fail, and lose what was not synced.
 *
 * A path is "/sim/DISK/name"; every disk fails by itself. A file keeps two images: the one after the
 * last write, and the one that the last xSync made durable. The death of a process keeps the first;
 * a power failure keeps the second and, of each write since then, all or nothing by chance. Writes
 * that a failed sync was to make durable are not tried again by a later sync, as in Linux: readers
 * of the file find them, until the power fails.
 *
 * Thread-safety: none; one process simulates one world at a time.
 */
#ifndef RAMP_SIM_VFS_H
#define RAMP_SIM_VFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim_rng.h"

#define SIM_VFS	     "ramp-sim"
#define SIM_DISKS    16
#define SIM_PATH_MAX 64

/* Registers the VFS (once). Returns 0 or -EIO. */
int sim_vfs_register(void);
/* Removes every file, ends the faults, and starts SQLite's own random numbers again. */
void sim_vfs_reset(void);
/* Makes a durable file of these bytes, in place of one of that name. Returns 0 or -ENOMEM. */
int sim_vfs_put(const char *path, const void *bytes, size_t len);
/* Removes all files of the disk (a wiped disk). No connection may be open. */
void sim_vfs_wipe(unsigned disk);

enum sim_disk_state {
	SIM_DISK_OK,
	SIM_DISK_FULL,	 /* files can't grow: SQLITE_FULL */
	SIM_DISK_BROKEN, /* every write and sync fails: SQLITE_IOERR */
	SIM_DISK_SLIPS,	 /* one sync fails, and later ones succeed; `after` counts syncs alone */
};
/* Sets the state, which begins after this many more writes and syncs have succeeded. */
void sim_vfs_fault(unsigned disk, enum sim_disk_state state, uint64_t after);

/*
 * A crash: between freeze and thaw nothing changes a file of the disk (writes fail), so files
 * that closing a connection would tidy up remain as the dead process left them. With `power` the thaw
 * drops what was not synced. Returns the number of connections that were left open (0 is right).
 */
void sim_vfs_freeze(unsigned disk);
unsigned sim_vfs_thaw(unsigned disk, bool power, struct sim_rng *rng);

#endif
