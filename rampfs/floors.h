/*
 * The floors of the daemon, from the loop up to the mount: opened from the bottom up, wired,
 * started, and closed in the opposite order.
 */
#ifndef RAMP_FLOORS_H
#define RAMP_FLOORS_H

#include <stdint.h>

#include "base/err.h"
#include "base/loop.h"
#include "cluster.h"
#include "mount/mount.h"

struct daemon_config;
struct programs;
struct pull;
struct serve;
struct store;
struct transfers;

struct floors_config {
	const struct daemon_config *daemon;
	uint64_t capacity_bytes;
	enum transport_choice transport;
	unsigned streams; /* as struct pull_config has it */
	/* mount_config's, control loop. */
	void (*ended)(void *arg, enum mount_end why);
	void *arg;
};

/* NULL: not open. All zero before floors_open. */
struct floors {
	struct floors_config config;
	struct loop *loop;
	struct store *store;
	struct cluster cluster;
	struct programs *programs;
	struct transfers *transfers;
	struct serve *serve;
	struct pull *pull;
	struct mount *mount;
};

/* Opens every floor. The structs that config points to outlive the floors. On failure, too, the
   caller closes. */
int floors_open(const struct floors_config *config, struct floors *floors, struct ramp_err *err);
/* Lets meta and peers call up, and starts transfers and the mount. */
int floors_start(struct floors *floors, struct ramp_err *err);
void floors_close(struct floors *floors);

#endif
