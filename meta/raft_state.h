/*
 * The Raft core's state as a value: made, restored after a restart, copied, written as bytes and
 * checked; and the actions of a turn.
 */
#ifndef RAMP_META_RAFT_STATE_H
#define RAMP_META_RAFT_STATE_H

#include "raft.h"

/*
 * A restart: raft_init, raft_set_durable, raft_set_snapshot, raft_restore for each entry of the log
 * in order, raft_start (raft.h).
 */
int raft_init(struct raft *r, const struct raft_options *opt); /* 0 or -ENOMEM */
void raft_set_durable(struct raft *r, uint64_t term, ramp_node_t vote, bool confirmed);
/* Sets the beginning of the log. `conf` is the configuration at `index` (NULL: a joiner's, which
   waits for a snapshot); a reference is taken. */
void raft_set_snapshot(struct raft *r, uint64_t index, uint64_t term, struct raft_data *conf,
		       uint64_t conf_index);
/* Appends an entry that is durable; takes a reference of its data. Returns 0, -EINVAL: it does not
   continue the log, or holds no configuration; -ENOSPC: the ring is full. */
int raft_restore(struct raft *r, uint64_t index, const struct raft_entry *e);
void raft_fini(struct raft *r);

/* Copies the state; `to` is not initialised before. Returns 0 or -ENOMEM. */
int raft_clone(struct raft *to, const struct raft *from);
/* Writes all that decides what the node will do, but for clock and rng, into buf: equal bytes are
   equal states. Returns the length, or 0 where cap is too small. */
size_t raft_canonical(const struct raft *r, void *buf, size_t cap);
const char *raft_state_name(enum raft_state state); /* "FOLLOWER" */
/* Checks the invariants between the fields. Returns NULL, or the name of a broken one. */
const char *raft_check(const struct raft *r);

void raft_actions_init(struct raft_actions *a);
void raft_actions_reset(struct raft_actions *a); /* keeps the memory */
void raft_actions_fini(struct raft_actions *a);
/* Returns true when the transaction has something to write; *durable when it must be synced. */
bool raft_actions_write(const struct raft_actions *a, bool *durable);

#endif
