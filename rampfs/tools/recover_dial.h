/*
 * Dials every address at which a member may be, before a quorum is declared lost.
 */
#ifndef RAMP_TOOLS_RECOVER_DIAL_H
#define RAMP_TOOLS_RECOVER_DIAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/statedir.h"

#define DIAL_MAX (4 * CONFIG_NODES_MAX)

struct dial {
	char name[RAMP_NODE_NAME_MAX + 1];
	char address[RAMP_ADDRESS_MAX + 1];
};

/* Dials all of them at once, and says what does not answer as a node. -EADDRINUSE: one is a node,
   or takes connections and is silent. */
int recover_dial(const struct dial *dials, size_t n, const uint8_t key[STATEDIR_KEY_BYTES],
		 const uint8_t cluster_id[32], struct ramp_err *err);

#endif
