/*
 * What status files and extended attributes say of a node or a segment: one place, so that they
 * agree.
 */
#ifndef RAMP_FACTS_H
#define RAMP_FACTS_H

#include <stdio.h>

#include "mount_ref.h"

#define FACTS_MAX_NODES 64
#define FACTS_PREFIX	"user.ramp."

/* The members, without those that were removed. */
struct node_list {
	struct node_row row[FACTS_MAX_NODES];
	size_t n;
};

/* NULL: there is no such member. */
const struct node_row *facts_find_node(const struct node_list *list, ramp_node_t node);
const char *facts_node_name(const struct node_list *list, ramp_node_t node);
bool facts_node_up(struct mount *m, const struct node_row *row);
/* "up", "fenced" or "down". */
const char *facts_node_state(struct mount *m, const struct node_row *row);
/* Another node, and this one has no connection to it. */
bool facts_is_silent(struct mount *m, ramp_node_t node);

/* "stable", "moving", ... as user.ramp.state and status say it. `owner` is row->node's row; NULL:
   there is none. */
const char *facts_state(struct mount *m, const struct segment_row *row,
			const struct node_row *owner);

/* Whether user.ramp.* has that name. */
bool facts_has(const char *name);
/* The value of that attribute. `seg` may be NULL. */
void facts_put_one(struct mount *m, const struct segment_row *row, struct seg *seg,
		   const char *name, FILE *out);
/* Of a listing: a tab and the name of each attribute; the same with the values of one segment
   (`seg` may be NULL). `node` is the caller's memory of the node that was looked up last, zeroed at
   first. */
void facts_put_names(FILE *out);
void facts_put(struct mount *m, const struct segment_row *row, struct seg *seg,
	       struct node_row *node, FILE *out);

#endif
