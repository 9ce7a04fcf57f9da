/*
 * Counted bytes, and configurations: the members of the cluster and their roles. The ground of the
 * Raft core.
 *
 * Fails only where memory runs out, and where bytes are no configuration.
 */
#ifndef RAMP_META_RAFT_CONF_H
#define RAMP_META_RAFT_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ids.h"

#define RAFT_NODES_MAX 64 /* voters and standbys */

/* Immutable bytes with a reference count: an entry's command or a configuration. For one thread. */
struct raft_data {
	uint32_t refs, len;
	uint8_t bytes[];
};
/* Copies the bytes. Returns them with one reference, the caller's; NULL: out of memory. */
struct raft_data *raft_data_make(const void *bytes, size_t len);
struct raft_data *raft_data_ref(struct raft_data *d); /* NULL stays NULL */
void raft_data_unref(struct raft_data *d);

enum raft_role { RAFT_VOTER, RAFT_LEARNER };

/* A configuration; as bytes it is the data of a RAFT_CONF entry. Sorted by node, no node twice. */
struct raft_conf {
	uint32_t n;
	struct raft_member {
		ramp_node_t node;
		enum raft_role role;
	} member[RAFT_NODES_MAX];
};
/* Returns the bytes with one reference, the caller's; NULL: out of memory. */
struct raft_data *raft_conf_encode(const struct raft_conf *conf);
/* Returns 0, or -EPROTO: the bytes are no configuration. */
int raft_conf_decode(const void *bytes, size_t len, struct raft_conf *conf);
/* Returns the node's place in conf, borrowed; NULL: it is no member. */
const struct raft_member *raft_conf_find(const struct raft_conf *conf, ramp_node_t node);
uint32_t raft_conf_voters(const struct raft_conf *conf); /* how many there are */
/* Returns true when `b` is `a` with one node added, removed or given another role (4.1). */
bool raft_conf_single(const struct raft_conf *a, const struct raft_conf *b);

#endif
