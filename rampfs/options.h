/*
 * The command line of rampfs and of mount.rampfs.
 */
#ifndef RAMP_OPTIONS_H
#define RAMP_OPTIONS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/log.h"
#include "base/transfer_mode.h"

enum options_mode { MODE_MOUNT, MODE_DESTROY, MODE_HELP, MODE_OPTIONS_HELP, MODE_VERSION };

struct daemon_options {
	enum options_mode mode;
	bool foreground, debug, force, fake;
	bool sloppy; /* mount(8)'s -s, which comes before -o: unknown mount options are ignored */
	bool rollback_auto;
	enum transfer_mode move_mode; /* of moves whose mode neither request nor segment names */
	gid_t uffd_group;	      /* (gid_t)-1: every group */
	int64_t threads;	      /* 0: default */
	int64_t quiesce_ms;	      /* 0: default */
	int64_t nice;		      /* of the threads that move pages */
	uint64_t limit_sent, limit_received; /* bytes a second, ahead of need; 0: none */
	unsigned long mount_flags;
	enum log_level log_level;
	char log[PATH_MAX]; /* "": syslog (stderr with -f); "syslog", "stderr", or a path */
	const char *state_dir, *mountpoint; /* point into argv */
};

/* 0, or -EINVAL with one sentence. Puts the options in front of the other arguments, as
   getopt_long(3) does, and leaves the strings as they are. `own`: this program has executed itself
   with the arguments that a user or mount(8) gave it. */
int options_parse(int argc, char **argv, bool own, struct daemon_options *options,
		  struct ramp_err *err);

/* Whether this name is that of mount(8)'s helper. */
bool options_helper(const char *name);

extern const char options_usage[], options_mount_usage[];

#endif
