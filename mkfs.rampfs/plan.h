/*
 * The contents of a node's state directory, whether the node founds its cluster or joins one.
 */
#ifndef RAMP_MKFS_PLAN_H
#define RAMP_MKFS_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/config.h"
#include "base/err.h"
#include "base/statedir.h"
#include "meta/meta.h"

struct mkfs_options {
	const char *config, *node, *key, *dir;
	const char *join;		/* HOST:PORT of a member; NULL: a founder */
	const char *address, *capacity; /* a joiner's, where no configuration says it */
	bool again;			/* --rejoin */
	bool force;
};

struct plan {
	bool keeps; /* the store, of this incarnation */
	ramp_incarnation_t incarnation;
	struct config_cluster config; /* the contents of cluster.conf */
	struct node_row *nodes;
	struct meta_founding founding; /* its nodes are these; its instance is the caller's */
};

/* For a founder: from the configuration that it read. Returns 0 or a negative errno. */
int plan_found(const struct mkfs_options *o, const uint8_t key[STATEDIR_KEY_BYTES],
	       struct plan *plan, struct ramp_err *err);
/* For a joiner: asks the member, which takes it in. Its own section of --config, where that is
   given, says its address, capacity and transport. */
int plan_join(const struct mkfs_options *o, const uint8_t key[STATEDIR_KEY_BYTES],
	      struct plan *plan, struct ramp_err *err);
void plan_free(struct plan *plan);

#endif
