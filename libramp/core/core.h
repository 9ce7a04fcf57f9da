/*
 * The start of libramp's core, once a process, for each library that is built on it.
 */
#ifndef RAMP_CORE_H
#define RAMP_CORE_H

#include <stdbool.h>

/*
 * Prepares the core: stderr (`silent`: no lines go there, unless RAMPFS_QUIET=0), the C library's
 * count of threads, the handlers of fork(2). The first caller does it, after `first` (NULL: nothing);
 * later callers find it done. By a constructor, or
 * at the first call that comes before it: before the first attach and before any child. Before it
 * only mounts.h, sys.h, guard.h, lock.h and table_near() may be used.
 */
void core_init(void (*first)(void), bool silent);

#endif
