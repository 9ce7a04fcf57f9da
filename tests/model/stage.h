/*
 * A stage for scripted cases: puppets, and the messages between them held back until the script
 * delivers, repeats or drops them. Everything here is asserted: a script that asks for a message
 * that isn't there fails.
 */
#ifndef RAMP_STAGE_H
#define RAMP_STAGE_H

#include "puppet.h"

#define STAGE_NODES 6 /* ids 1 .. 5 */
#define STAGE_POOL  256
#define STAGE_READS 16
#define ANY	    0u
#define BIT(id)	    (1u << (id))

/* Makes voters 1 .. `voters` and the next `learners`, all confirmed. compact: 0: never. */
void stage_open(uint32_t voters, uint32_t learners, uint32_t compact);
void stage_close(void);
struct puppet *stage_node(ramp_node_t id);
const struct raft *stage_raft(ramp_node_t id);
uint64_t stage_commit_of(ramp_node_t id);

/* Each makes one event and its turns, to the end. */
int stage_event(ramp_node_t id, enum raft_event_type type);
int stage_propose(ramp_node_t id, uint32_t command);
int stage_propose_conf(ramp_node_t id, const struct raft_conf *conf);
int stage_read(ramp_node_t id, uint64_t ctx);
/* Each makes one event without its turn: the script continues with early, commit, finish or
   crash. */
int stage_step(ramp_node_t id, enum raft_event_type type);
int stage_step_message(ramp_node_t id, const struct raft_message *m);
void stage_early(ramp_node_t id);
void stage_commit(ramp_node_t id);
void stage_finish(ramp_node_t id);
void stage_turns(ramp_node_t id);
void stage_crash(ramp_node_t id);
/* Ends the node's lease on its leader, without a campaign of its own. */
void stage_lease_over(ramp_node_t id);

/* Messages that were sent and not delivered yet; type 0, from ANY and to ANY match all. */
uint32_t stage_count(ramp_node_t from, ramp_node_t to, enum raft_message_type type);
struct raft_message *stage_take(ramp_node_t from, ramp_node_t to, enum raft_message_type type);
void stage_give(const struct raft_message *m); /* delivers it, with turns; m stays the script's */
void stage_free(struct raft_message *m);
void stage_deliver(ramp_node_t from, ramp_node_t to, enum raft_message_type type); /* the oldest */
void stage_drop(ramp_node_t from, ramp_node_t to, enum raft_message_type type);	   /* all */
/* Delivers all among the nodes of the mask until nothing is left; drops the others'. */
void stage_settle(uint32_t mask);
/* Makes node id campaign and win with the votes of the mask; nothing else is delivered. */
void stage_elect(ramp_node_t id, uint32_t mask);
/* The same, and its first entry is committed among the mask. */
void stage_lead(ramp_node_t id, uint32_t mask);

/* Answers to reads since the last call of stage_reads_clear. */
uint32_t stage_reads_good(uint64_t ctx, uint64_t *index);
void stage_reads_clear(void);

/* A message as a leader would send it; the script fills in the rest. */
struct raft_message stage_append(ramp_node_t from, ramp_node_t to, uint64_t term, uint64_t index,
				 uint64_t log_term, uint64_t commit);
void stage_add_entry(struct raft_message *m, uint64_t term, uint32_t command);

#endif
