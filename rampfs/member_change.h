/*
 * The changes of members: fence, remove, add, promote, come again; and of settings. members.h names the proof that each needs.
 *
 * By the worker of members.c, after member_catch_up. Each returns 0 or a negative errno.
 */
#ifndef RAMP_MEMBER_CHANGE_H
#define RAMP_MEMBER_CHANGE_H

#include "member_view.h"

/* incarnation 0: the one that the tables name. */
int member_fence(struct member_view *v, const char *name, ramp_incarnation_t incarnation,
		 bool force, struct ramp_err *err);
int member_remove(struct member_view *v, const char *name, struct ramp_err *err);
/* Removes a member that no row names any more. */
int member_take_away(struct member_view *v, const struct node_row *row, struct ramp_err *err);
/* `node` may be NULL. */
int member_add(struct member_view *v, const char *name, const char *address,
	       uint64_t capacity_bytes, ramp_node_t *node, struct ramp_err *err);
int member_promote(struct member_view *v, const char *name, struct ramp_err *err);
/* Takes a member that has lost its journal for a standby under its number, with its segments. *life: that
   of meta_founding. */
int member_again(struct member_view *v, const struct node_row *row, uint64_t instance,
		 uint64_t *life, struct ramp_err *err);
/* Sets one of the cluster's settings; value 0: its default. */
int member_set(struct member_view *v, const char *name, uint64_t value, struct ramp_err *err);

#endif
