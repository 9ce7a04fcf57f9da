/*
 * This node's view of the members, and the checks that several changes of members share.
 *
 * By the worker of members.c.
 */
#ifndef RAMP_MEMBER_VIEW_H
#define RAMP_MEMBER_VIEW_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/err.h"
#include "base/ids.h"

struct meta;
struct meta_command;
struct meta_reply;
struct node_row;
struct peers;

struct member_view {
	struct meta *meta;
	struct peers *peers;
	const char *cluster; /* its name */
	atomic_bool closing;
};

/* Returns when everything that was committed anywhere before this call is in this node's tables. 0
   or a negative errno. */
int member_catch_up(struct member_view *v, struct ramp_err *err);
/* Waits for the cluster's decision. Returns 0 or a negative errno. `reply` may be NULL. */
int member_propose(struct member_view *v, struct meta_command *command, struct meta_reply *reply);
/* Words a negative errno of member_propose that no caller words better, and returns one. */
int member_explain(int rc, struct ramp_err *err);

int member_find(struct member_view *v, const char *name, struct node_row *row,
		struct ramp_err *err);
bool member_is_self(struct member_view *v, const struct node_row *row);
/* Whether this node hears it, or is it. */
bool member_is_heard(struct member_view *v, ramp_node_t node);

struct member_use {
	ramp_node_t node;
	unsigned int n, others; /* rows that name it; those of them where it is not the owner */
	char first[RAMP_NAME_MAX + 1];
};

/* Counts the segments' rows that name the node. */
void member_look_at_use(struct member_view *v, ramp_node_t node, struct member_use *use);
/* Refuses to take a voter away without which the others could decide nothing: no member could ever
   change a configuration without a quorum back. */
int member_check_rest(struct member_view *v, const struct node_row *row, struct ramp_err *err);
/* Refuses an address that is none, or that another node than `name` has. */
int member_check_address(struct member_view *v, const char *name, const char *address,
			 struct ramp_err *err);

#endif
