/*
 * The absolute paths of a mount.
 */
#ifndef RAMP_PATHS_H
#define RAMP_PATHS_H

#include <limits.h>

#include "base/err.h"

struct daemon_options;
struct statedir;

struct mount_paths {
	char state_dir[PATH_MAX], mountpoint[PATH_MAX], exe[PATH_MAX], session[PATH_MAX];
};

/* Finds the paths, and makes the directory of the session sockets. `exe`: where this program was
   executed from, by itself, which may not be there any more; NULL: to be found. Returns 0 or a
   negative errno. */
int paths_find(const struct daemon_options *o, const struct statedir *dir, const char *exe,
	       struct mount_paths *p, struct ramp_err *err);
/* Refuses a mountpoint that lies on the daemon's way to its own files: the daemon would wait for
   itself. */
int paths_check(const struct mount_paths *p, struct ramp_err *err);
/*
 * Returns the arguments with which this program executes itself, or NULL without memory: the role,
 * the options as they were given, and the absolute paths in place of the last two (getopt_long has
 * put them last). The caller frees the array; the strings stay p's and argv's.
 */
char **paths_own_argv(const struct mount_paths *p, char *role, int argc, char **argv);

#endif
