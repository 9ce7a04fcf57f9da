/*
 * rampfs-node recover: a cluster whose quorum is lost for good continues from a node that survives
 * (meta/recovery.h). Offline: the node's daemon must not run.
 */
#ifndef RAMP_TOOLS_RECOVER_H
#define RAMP_TOOLS_RECOVER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/config.h"

struct recover_options {
	const char *adopt; /* a certificate's file; NULL: found a new cluster */
	bool show, yes;
	const char *lost[CONFIG_NODES_MAX], *survivors[CONFIG_NODES_MAX];
	const char *addresses[CONFIG_NODES_MAX]; /* NAME=HOST:PORT */
	size_t n_lost, n_survivors, n_addresses;
};

/* Carries it out on a state directory. Returns the exit status, 0 or 1; all is said. */
int recover_run(const struct recover_options *o, const char *state_dir);

#endif
