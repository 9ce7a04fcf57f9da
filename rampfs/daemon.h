/*
 * The daemon: every floor opened, wired and closed again, in one place.
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

/* Runs until the mount has ended; the descriptors that keeper.c gives are in place. 0: ended as it
   was asked to. */
int daemon_run(const struct daemon_config *config, struct ramp_err *err);

#endif
