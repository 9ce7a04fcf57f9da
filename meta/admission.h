/*
 * Voter admission: may this node vote, and which other nodes' votes count? Also the exchange of
 * members' names and addresses. All on the meta thread, but meta_is_nonvoting (meta.h).
 *
 * Why a node may not vote at once. A founder whose state directory was formatted again under its
 * old number has lost its log and its votes, and must not pretend to have them. At its first start
 * it can't know by itself whether that is so. So a freshly formatted founder asks the others, each
 * of which answers with two facts:
 *
 *	fresh		its log is as mkfs made it: no leader was ever elected with that node's
 *			help. When a quorum's worth of the *other* voters is fresh, no quorum has
 *			ever decided anything, and nothing can have been lost.
 *	instance	the instance that its tables have bound to the asking node's number
 *			(NODE_UP). If that is the asking one, it is the one that was, or a quorum
 *			that did not count it has admitted it again.
 *
 * Until then the core is not `confirmed`: it neither votes nor campaigns, and its acknowledgements
 * don't count. The node reports that to all members again and again (NONVOTING), so that no node is
 * removed while its vote is needed. A node whose number has another instance bound is never
 * admitted: it logs so, and needs --rejoin. A joiner's log is never fresh: it is
 * admitted by its instance, with its first NODE_UP, and no standby is promoted before.
 *
 * A number is bound to one instance, so every node that has applied the binding obeys it; MEMBER_AGAIN
 * alone binds it to another, in a configuration that does not count that node's words.
 * Another instance under that number is brought up to date and learns that it is another one, but
 * it isn't followed, and neither its votes nor its acknowledgements count. So a sole voter that was
 * formatted again, and confirms itself, is found out, too: the nodes that it tries to lead tell it,
 * and it leads no more until it is restarted.
 *
 * Names and addresses. A node that was down learns of new members from the leader, which may be one
 * of them and wait for that node to connect. So a node tells every peer that connects the members.
 */
#ifndef RAMP_META_ADMISSION_H
#define RAMP_META_ADMISSION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/wire.h"
#include "meta.h"
#include "raft_conf.h"

/* Another node that may not vote. */
struct nonvoting {
	ramp_node_t node;
	uint64_t since_ms, until_ms;
};

struct admission {
	uint64_t again_ms;
	bool fresh[RAFT_NODES_MAX + 1];	    /* founders, by number, that reported so */
	uint64_t bound[RAFT_NODES_MAX + 1]; /* instances that the tables have shown */
	bool format_logged;		    /* the line about a second format was logged */
	bool denied; /* confirmed, and another instance is bound: no vote in this life */
	uint64_t another_log_ms; /* when the next line about another's second format may come */
	pthread_mutex_t lock;
	struct nonvoting others[RAFT_NODES_MAX]; /* protected by lock */
};

/* Asks the other members, while this node is not admitted. */
void admission_tend(struct meta *meta);
/* Takes a question or an answer (WIRE_ADMISSION): flags, and the instance that the sender's tables
   have bound to this node's number (0: none). */
void admission_received(struct meta *meta, ramp_node_t from, uint8_t flags, uint64_t instance);
struct fsm_result;
/* Takes the result of an entry that was applied; NULL: all tables are those of a snapshot. */
void admission_applied(struct meta *meta, const struct fsm_result *result);
/* Returns true where `instance` isn't the one that the tables have bound to `from`. */
bool admission_is_another(struct meta *meta, ramp_node_t from, uint64_t instance);
/* Tells such an instance, which leads or would lead, that another one is bound. */
void admission_answer_another(struct meta *meta, ramp_node_t from);
/* Returns, on the leader, true where the voters without `node` that may vote and have answered
   lately are a quorum of the voters that remain then. */
bool admission_can_spare(struct meta *meta, ramp_node_t node);

/* Sends the members' names and addresses (WIRE_MEMBERS). */
void admission_tell_members(struct meta *meta, ramp_node_t to);
/* Takes them, and reports those that the tables do not have (config.heard_of). */
void admission_members(struct meta *meta, struct wire_r *body);

#endif
