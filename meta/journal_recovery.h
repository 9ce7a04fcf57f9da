/*
 * The journal's part in a recovery (recovery.h), and addresses that this node was told offline.
 */
#ifndef RAMP_META_JOURNAL_RECOVERY_H
#define RAMP_META_JOURNAL_RECOVERY_H

#include <stdint.h>

#include "base/err.h"
#include "meta.h"

struct journal;

/* Each works within a turn, and returns 0 or -EIO: the journal is dead. */

/* Writes another cluster id, and the certificate of it. */
int journal_put_cluster(struct journal *j, const uint8_t id[32], const void *certificate,
			size_t len);
/* Empties the tables and the log: a joiner's journal (meta.h), which the cluster sends a snapshot.
   Number, instance and the count of lives remain. */
int journal_forget(struct journal *j);
/* Notes that this node dials the node of that row, or listens where it is its own, at another
   address than the row's. No row is changed. */
int journal_put_address(struct journal *j, const struct node_row *row, const char *address);
/* Drops that note where the row has got another address since: its node has committed one. */
int journal_settle_address(struct journal *j, const struct node_row *row);
/* Calls fn for each segment, in the order of ids, until it returns nonzero; returns that. */
int journal_walk_segments(struct journal *j, int (*fn)(void *arg, const struct segment_row *row),
			  void *arg);

/* Writes a copy of the whole journal, outside of a turn; replaces an older one. -EIO. */
int journal_copy_to(struct journal *j, const char *path, struct ramp_err *err);
/* Reads the certificate into a malloc'ed text. -ENOENT: the cluster was never recovered; -ENOMEM,
   -EIO. */
int journal_get_certificate(struct journal *j, char **text);

#endif
