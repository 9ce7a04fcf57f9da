/*
 * Searching all processes for those that map a file (search.c). Blocks; for threads that may.
 */
#ifndef RAMP_PROGRAMS_SEARCH_H
#define RAMP_PROGRAMS_SEARCH_H

#include <stdint.h>
#include <sys/types.h>

/* Calls fn for each process other than the daemon that maps the file, with the start of its
   first mapping of the file and the end of its last one, until fn returns nonzero. Returns that;
   0; or -errno. -EBUSY: process *stuck can't be looked into (it takes up to 3 s to see that),
   and may map the file. */
typedef int search_fn(void *arg, pid_t pid, uint64_t start, uint64_t end);
/* SEARCH_NEW: as of this call; else as of since_us (clock_us) or later: the answer may be as old. */
#define SEARCH_NEW UINT64_MAX
int search_all(dev_t dev, uint64_t ino, uint64_t since_us, search_fn *fn, void *arg, pid_t *stuck);
/* Returns 1 if a process, *pid, maps the file; 0; -errno; -EBUSY as above, with *pid. */
int search_any(dev_t dev, uint64_t ino, pid_t *pid);
/* The same for that one process. */
int search_one(dev_t dev, uint64_t ino, pid_t pid);
/* The same for a process that has a file of the store other than the segment's file `ino` mapped
   in the extent [lo, hi): the empty file, in its place. */
int search_replaced(dev_t dev, uint64_t ino, uint64_t lo, uint64_t hi, pid_t *pid);

#endif
