/*
 * The Raft core's state as a value: made, restored after a restart, copied, written as bytes and
 * checked; and the actions of a turn.
 */
#ifndef RAMP_META_RAFT_STATE_H
#define RAMP_META_RAFT_STATE_H

#include "raft.h"

/*
 * Makes a node as it stands after a restart. `conf` (NULL: a joiner, which waits for a snapshot)
 * is the configuration at snap_index; a reference is taken. applied >= snap_index. Then
 * raft_restore for each log entry in order, then raft_start.
 */
int raft_init(struct raft *r, const struct raft_options *opt); /* -ENOMEM */
void raft_set_durable(struct raft *r, uint64_t term, ramp_node_t vote, bool confirmed);
void raft_set_snapshot(struct raft *r, uint64_t index, uint64_t term, struct raft_data *conf,
		       uint64_t conf_index);
int raft_restore(struct raft *r, uint64_t index, const struct raft_entry *e); /* takes a reference;
										 -EINVAL, -ENOSPC */
void raft_fini(struct raft *r);
int raft_clone(struct raft *to, const struct raft *from); /* `to` is not initialised; -ENOMEM */
/* Writes all that decides what the node will do, but for clock and rng, into buf: equal bytes are
   equal states. Returns the length, or 0 where cap is too small. */
size_t raft_canonical(const struct raft *r, void *buf, size_t cap);

const char *raft_state_name(enum raft_state state); /* "FOLLOWER" */

/* Asserts what holds between the fields; NULL or the name of what doesn't. */
const char *raft_check(const struct raft *r);

void raft_actions_init(struct raft_actions *a);
void raft_actions_reset(struct raft_actions *a); /* keeps the memory */
void raft_actions_fini(struct raft_actions *a);
/* True when the transaction has something to write; durable when it must be synced. */
bool raft_actions_write(const struct raft_actions *a, bool *durable);

#endif
