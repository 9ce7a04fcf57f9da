/*
 * An SQLite VFS in memory, with disks that fill up, fail, and lose what was not synced.
 *
 * A path is "/sim/DISK/name"; every disk fails by itself. A file keeps two images: what the last
 * write made of it, and what the last xSync made durable. A process that dies keeps the first; a
 * power failure keeps the second and, of each write since then, all or nothing by chance. What a
 * sync that fails was to make durable is no more tried by a later one, as Linux has it: whoever
 * reads the file finds it there, until the power fails.
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

/* Registers the VFS (once). 0 or -EIO. */
int sim_vfs_register(void);
/* Every file goes; faults end; SQLite's own random numbers begin anew. */
void sim_vfs_reset(void);
/* Makes a durable file of these bytes, in place of one of that name. 0 or -ENOMEM. */
int sim_vfs_put(const char *path, const void *bytes, size_t len);
/* All files of the disk go (a wiped disk). No connection may be open. */
void sim_vfs_wipe(unsigned disk);

enum sim_disk_state {
	SIM_DISK_OK,
	SIM_DISK_FULL,	 /* files can't grow: SQLITE_FULL */
	SIM_DISK_BROKEN, /* every write and sync fails: SQLITE_IOERR */
	SIM_DISK_SLIPS,	 /* one sync fails, and all is well again; `after` counts syncs alone */
};
/* The state begins after this many more writes and syncs have gone well. */
void sim_vfs_fault(unsigned disk, enum sim_disk_state state, uint64_t after);

/*
 * A crash: between freeze and thaw nothing changes a file of the disk (writes fail), so that what
 * closing a connection would tidy up stands as the dead process left it. With `power` the thaw
 * drops what was not synced. Returns the number of connections that were left open (0 is right).
 */
void sim_vfs_freeze(unsigned disk);
unsigned sim_vfs_thaw(unsigned disk, bool power, struct sim_rng *rng);

#endif
