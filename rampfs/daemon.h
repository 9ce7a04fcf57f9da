/*
 * The daemon: one of the processes of a mount (main.c).
 */
#ifndef RAMP_DAEMON_H
#define RAMP_DAEMON_H

#include "base/err.h"
#include "options.h"

struct daemon_config {
	const struct daemon_options *options;
	const char *state_dir;	/* absolute */
	const char *mountpoint; /* absolute */
	const char *session_path;
	char *const *adopt_argv; /* executes a keeper that adopts this daemon */
};

/* Runs until the mount has ended. The descriptors that the keeper gives (keeper.c) are in place.
   Returns 0 where it ended as it was asked to. */
int daemon_run(const struct daemon_config *config, struct ramp_err *err);

#endif
