/*
 * The journal's results of commands, and the floors below which proposals are stale.
 *
 * Each function works within a turn of the writer, which sees its own changes. Each returns 0 (or
 * as noted), or -EIO: the journal is dead.
 */
#ifndef RAMP_META_JOURNAL_RESULTS_H
#define RAMP_META_JOURNAL_RESULTS_H

#include <stdint.h>

#include "meta.h"

struct journal;

/* The results of the last META_RESULTS_KEPT commands of each client are kept, and some more. */
int journal_get_result(struct journal *j, struct meta_command_id cid,
		       struct meta_reply *reply); /* -ENOENT */
/* Keeps a result. `index`: of the command's entry. */
int journal_put_result(struct journal *j, struct meta_command_id cid,
		       const struct meta_reply *reply, uint64_t index);
/* Returns the floor below which a node's proposals are stale (command.h); 0, 0: none is. */
int journal_get_floor(struct journal *j, ramp_node_t node, uint64_t *life, uint64_t *lowest);
int journal_put_floor(struct journal *j, ramp_node_t node, uint64_t life, uint64_t lowest);

#endif
