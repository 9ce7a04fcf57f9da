/*
 * May this node vote, and whose votes count?
 */
#ifndef RAMP_META_ADMISSION_H
#define RAMP_META_ADMISSION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/wire.h"
#include "meta.h"
#include "raft_conf.h"

/* Another node that has no voice. */
struct nonvoting {
	ramp_node_t node;
	uint64_t until_ms;
};

struct admission {
	uint64_t again_ms;
	bool fresh[RAFT_NODES_MAX + 1];	    /* founders, by number, that said so */
	uint64_t bound[RAFT_NODES_MAX + 1]; /* instances that the tables have shown, for good */
	bool format_logged;		    /* the line about a second format was logged */
	bool denied; /* confirmed, and another instance is bound: no voice in this life */
	uint64_t another_log_ms; /* when the next line about another's second format may come */
	pthread_mutex_t lock;
	struct nonvoting others[RAFT_NODES_MAX]; /* protected by lock */
};

void admission_tend(struct meta *meta);
void admission_received(struct meta *meta, ramp_node_t from, uint8_t flags, uint64_t instance);
/* True: `instance` isn't the one that the tables have bound to `from`. */
bool admission_is_another(struct meta *meta, ramp_node_t from, uint64_t instance);
/* Leader: without `node`, who has a voice and was heard of late is a quorum of those who vote. */
bool admission_can_spare(struct meta *meta, ramp_node_t node);
void admission_answer_another(struct meta *meta, ramp_node_t from); /* such a one leads, or would */
void admission_tell_members(struct meta *meta, ramp_node_t to);
void admission_members(struct meta *meta, struct wire_r *body);

#endif
