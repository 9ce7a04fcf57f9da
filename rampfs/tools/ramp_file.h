/*
 * The texts that the daemon shows below .ramp of a mount.
 */
#ifndef RAMP_RAMP_FILE_H
#define RAMP_RAMP_FILE_H

/* Returns a file of .ramp as a string, or NULL after a complaint of rampfs-status. The caller
   frees. */
char *ramp_file_read(const char *mount, const char *name);

#endif
