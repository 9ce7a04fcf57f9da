/*
 * The certificate of a recovery: which nodes of an old cluster continue in which new one. It is a text,
 * proved by an HMAC under the cluster key, that the recovering node writes and the other survivors
 * are adopted with.
 *
 *	rampfs recovery certificate 1
 *	cluster NAME
 *	from ID			the old cluster's id, 64 digits
 *	to ID			the new one's: an HMAC under the key of `from` and `salt`
 *	salt DIGITS		32
 *	by NODE			the number of the node that recovered it
 *	last TERM INDEX		of its journal in the old cluster
 *	member NODE INSTANCE recovered|survivor|lost CAPACITY NAME ADDRESS
 *	mac DIGITS		64, over all lines above
 */
#ifndef RAMP_TOOLS_CERTIFICATE_H
#define RAMP_TOOLS_CERTIFICATE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/statedir.h"
#include "meta/recovery.h"

#define CERTIFICATE_SALT_BYTES 16
#define CERTIFICATE_MAX_BYTES  (64u << 10)

enum fate { FATE_RECOVERED, FATE_SURVIVOR, FATE_LOST };

struct certificate {
	char cluster[RAMP_NODE_NAME_MAX + 1];
	uint8_t from[32], to[32], salt[CERTIFICATE_SALT_BYTES];
	ramp_node_t by;
	struct recovery_position last;
	size_t n_members;
	struct certificate_member {
		struct node_row row; /* node, name, address, capacity, instance */
		enum fate fate;
	} members[CONFIG_NODES_MAX];
};

/* Fills salt and to from `from`. */
int certificate_make_id(struct certificate *c, const uint8_t key[STATEDIR_KEY_BYTES],
			struct ramp_err *err);
/* Writes it as a malloc'ed text. */
int certificate_write(const struct certificate *c, const uint8_t key[STATEDIR_KEY_BYTES],
		      char **text, struct ramp_err *err);
/* Reads a text that is proved under the key. -EKEYREJECTED: it is not; -EPROTO. */
int certificate_parse(const char *text, const uint8_t key[STATEDIR_KEY_BYTES],
		      struct certificate *c, struct ramp_err *err);
/* Reads a file into a malloc'ed text. */
int certificate_read_file(const char *path, char **text, struct ramp_err *err);

const struct certificate_member *certificate_find(const struct certificate *c, ramp_node_t node);

#endif
