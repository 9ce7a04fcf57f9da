/*
 * cluster.conf: the founding configuration of a cluster.
 *
 *	[cluster]
 *	name=NAME
 *	arena=0x200000000000:32T	optional
 *	arena-user-max=4T		optional: by rule (meta.h, META_ARENA_USER_MAX)
 *	[node NAME]			one section per node, in the order of their numbers
 *	address=HOST:PORT
 *	capacity=8G			of the node's store
 *	transport=auto|verbs|tcp	optional: auto
 *	streams=auto|1..8		optional: auto
 *	voter=yes|no			optional: yes for the first five
 *
 * Every mistake is refused with `FILE:LINE: reason`; nothing is guessed and no key is ignored.
 */
#ifndef RAMP_CONFIG_H
#define RAMP_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "ids.h"

#define CONFIG_NODES_MAX      64 /* as many as Raft's configuration has room for */
#define CONFIG_VOTERS_DEFAULT 5
#define CONFIG_ARENA_ADDR     UINT64_C(0x200000000000)
#define CONFIG_ARENA_LEN      (UINT64_C(32) << 40)
#define CONFIG_STREAMS_MAX    8
#define CONFIG_CAPACITY_MIN   (UINT64_C(16) << 20)
/* A line of inih's is 198 bytes: a joiner gets the address of each node, and writes them all into
   its file. */
#define CONFIG_ADDRESS_MAX 190

enum config_transport { CONFIG_TRANSPORT_AUTO, CONFIG_TRANSPORT_VERBS, CONFIG_TRANSPORT_TCP };

struct config_node {
	char name[RAMP_NODE_NAME_MAX + 1];
	char address[RAMP_ADDRESS_MAX + 1];
	uint64_t capacity_bytes;
	enum config_transport transport;
	unsigned streams; /* connections for prefetch; 0: auto */
	bool voter;
	int line; /* of its section's first key */
};

struct config_cluster {
	char name[RAMP_NODE_NAME_MAX + 1];
	uint64_t arena_addr, arena_len;
	uint64_t arena_user_max;   /* 0: not given */
	struct config_node *nodes; /* n_nodes of them; number = index + 1 */
	size_t n_nodes;
};

/* Reads and checks `path`. On success the caller frees with config_free. */
int config_read(const char *path, struct config_cluster *config, struct ramp_err *err);
/* The same for a text; `name` is said in front of errors. */
int config_parse(const char *text, const char *name, struct config_cluster *config,
		 struct ramp_err *err);
void config_free(struct config_cluster *config);
/* Returns the node of that name, or NULL. */
const struct config_node *config_find(const struct config_cluster *config, const char *name);

/* Says, a line each, what is allowed in a node's section and hardly meant: an address that no other
   node can reach, and, of the node that this machine is (`here`), a capacity above its memory. */
void config_doubts(const struct config_node *node, bool here, void (*say)(const char *line));

/*
 * Returns the canonical text, malloc'ed: the same for two files that mean the same. It is a
 * cluster.conf itself; the cluster's id is an HMAC of it under the key. NULL without memory.
 */
char *config_canonical(const struct config_cluster *config);

/* Whether it is of letters, digits, '.', '_', '-', and does not begin with '.' ("." and ".."). */
bool config_name_ok(const char *name);
/* Whether it is HOST:PORT or [V6]:PORT, of at most CONFIG_ADDRESS_MAX bytes; a port of 1..65535. */
bool config_address_ok(const char *address);

#endif
