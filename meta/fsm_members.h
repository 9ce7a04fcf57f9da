/*
 * The commands about nodes and members, and the configuration that Raft is to have.
 */
#ifndef RAMP_META_FSM_MEMBERS_H
#define RAMP_META_FSM_MEMBERS_H

#include "fsm_core.h"

/* One command, one function. Each returns the command's result; -EIO only where the journal is
   dead. */
int fsm_node_up(struct apply *a);
int fsm_node_fence(struct apply *a);
int fsm_member_add(struct apply *a);
int fsm_member_promote(struct apply *a);
int fsm_member_remove(struct apply *a);
int fsm_member_again(struct apply *a);

/* Makes the returning node, if there is one, a standby where the configuration, which was just applied,
   lacks it. Returns 0 or -EIO. */
int fsm_member_has_left(struct journal *j, const struct raft_conf *conf);

/*
 * Compares the members that the node table wants with the configuration in force, and finds the one
 * change that comes next (the lowest node whose role differs). The leader proposes it (replica.c).
 * Returns 1 and fills *next and *subject, 0 where nothing differs, or -EIO.
 */
int fsm_next_conf(struct journal *j, const struct raft_conf *in_force, struct raft_conf *next,
		  ramp_node_t *subject);
/* Returns 1 where the configuration as applied gives the node the role of its row; 0: not yet;
   -EIO. */
int fsm_member_settled(struct journal *j, ramp_node_t node);

#endif
