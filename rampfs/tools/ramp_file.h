/*
 * The texts that the daemon shows below .ramp of a mount.
 */
#ifndef RAMP_RAMP_FILE_H
#define RAMP_RAMP_FILE_H

/* Ends the process, after a complaint of rampfs-status, where one file of `mount` takes 10 s to be read. The
   string is kept. */
void ramp_file_watch(const char *mount);
/* Returns a file of .ramp as a string, or NULL after a complaint of rampfs-status. The caller
   frees. */
char *ramp_file_read(const char *mount, const char *name);

#endif
