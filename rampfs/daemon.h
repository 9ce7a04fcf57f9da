/*
 * The daemon: one of the processes of a mount (main.c).
 */
#ifndef RAMP_DAEMON_H
#define RAMP_DAEMON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "options.h"

struct statedir;

struct daemon_config {
	const struct daemon_options *options;
	const struct statedir *dir;
	uint64_t connection;	/* the FUSE connection's, as keeper_inherited gives it */
	bool living;		/* an earlier daemon has served it */
	const char *mountpoint; /* absolute */
	const char *session_path;
	char *const *adopt_argv; /* executes a keeper that adopts this daemon */
};

/* Runs until the mount has ended. keeper_inherited was called. Returns 0 where it ended as it was asked to. */
int daemon_run(const struct daemon_config *config, struct ramp_err *err);

#endif
