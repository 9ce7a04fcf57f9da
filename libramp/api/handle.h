/*
 * A mount in use, for the files of the API.
 */
#ifndef RAMP_API_HANDLE_H
#define RAMP_API_HANDLE_H

#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/ids.h"
#include "base/ioc.h"
#include "include/ramp.h"

struct ramp_cluster {
	atomic_uint refs; /* of its user, and of what was made of it */
	int fd;		  /* the mount's root directory */
	char path[PATH_MAX];
	char node[RAMP_NODE_NAME_MAX + 1];
	struct ramp_ioc_info info;
	/* Until then (CLOCK_MONOTONIC) a segment that was received may not be listed here yet. */
	_Atomic uint64_t listed_by_ms;
};

struct ramp_cluster *handle_get(struct ramp_cluster *ramp);
void handle_put(struct ramp_cluster *ramp);

/* Reads a file of .ramp. Returns its text, which the caller frees; NULL: errno says why. */
char *handle_read(const struct ramp_cluster *ramp, const char *name);

#endif
