/*
 * Executing a daemon or a keeper with the descriptors that it inherits.
 */
#ifndef RAMP_KEEPER_SPAWN_H
#define RAMP_KEEPER_SPAWN_H

#include <sys/types.h>

#include "protocol.h"

/*
 * Executes argv[0]. given[i] becomes its descriptor KEEPER_FD_FIRST + i; besides those it inherits
 * 0 to 2 alone. Its signals are as at login. `flags`: further POSIX_SPAWN_*. Returns 0 or -errno.
 * Where that file can't be executed (an upgrade may be replacing it), this process's own program is.
 */
int keeper_spawn(const int given[KEEPER_FDS], char *const *argv, char **env, short flags,
		 pid_t *pid);
/* The same, and always this process's own program. */
int keeper_spawn_self(const int given[KEEPER_FDS], char *const *argv, char **env, short flags,
		      pid_t *pid);

#endif
