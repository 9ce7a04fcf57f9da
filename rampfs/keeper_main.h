/*
 * The process that the user starts, and --adopt: becomes the keeper.
 */
#ifndef RAMP_KEEPER_MAIN_H
#define RAMP_KEEPER_MAIN_H

#include <stdbool.h>

struct daemon_options;

/* Locks the state directory, leaves the terminal unless -f, and keeps the mount until it ends.
   `adopt`: the mount is there already, and its daemon runs. Returns the exit status; exit_failed is
   the one of a failure that is on stderr. */
int keeper_main(const struct daemon_options *o, int argc, char **argv, bool adopt, int exit_failed);

#endif
