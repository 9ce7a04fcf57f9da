/*
 * Which processes map a file, of all that there are (search.c). Blocks; any thread that may.
 */
#ifndef RAMP_PROGRAMS_SEARCH_H
#define RAMP_PROGRAMS_SEARCH_H

#include <stdint.h>
#include <sys/types.h>

/* fn for each process but the daemon that maps the file, with where its first mapping of it begins
   and its last one ends, until it returns nonzero. 0, that, or -errno; -EBUSY: process *stuck can't
   be looked at (it takes up to 3 s to see that), and may map it. */
typedef int search_fn(void *arg, pid_t pid, uint64_t start, uint64_t end);
int search_all(dev_t dev, uint64_t ino, search_fn *fn, void *arg, pid_t *stuck);
/* 1 when a process, *pid, maps the file; 0; -errno, of -EBUSY as above with *pid. */
int search_any(dev_t dev, uint64_t ino, pid_t *pid);
/* The same of that one process. */
int search_one(dev_t dev, uint64_t ino, pid_t pid);
/* The same of who has something of the store mapped in the extent [lo, hi) that is not the
   segment's file `ino`: an empty file, in its place. */
int search_replaced(dev_t dev, uint64_t ino, uint64_t lo, uint64_t hi, pid_t *pid);

#endif
