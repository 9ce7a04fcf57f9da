/*
 * Facts of a node or a segment for status files and extended attributes: in one place, so that they
 * agree.
 */
#ifndef RAMP_FACTS_H
#define RAMP_FACTS_H

#include <stdio.h>

#include "mount_ref.h"

#define FACTS_MAX_NODES 64
#define FACTS_PREFIX	"user.ramp."

/* The members of the cluster, without removed ones. */
struct node_list {
	struct node_row row[FACTS_MAX_NODES];
	size_t n;
};

/* Returns the member with that number; NULL: none. */
const struct node_row *facts_find_node(const struct node_list *list, ramp_node_t node);
const char *facts_node_name(const struct node_list *list, ramp_node_t node);
bool facts_node_up(struct mount *m, const struct node_row *row);
/* Returns "up", "fenced" or "down". */
const char *facts_node_state(struct mount *m, const struct node_row *row);
/* Returns true for another node to which this one has no connection. */
bool facts_is_silent(struct mount *m, ramp_node_t node);

/* Returns "stable", "moving", ... for user.ramp.state and status. `owner` is row->node's row; NULL:
   there is none. */
const char *facts_state(struct mount *m, const struct segment_row *row,
			const struct node_row *owner);

/* Returns whether an attribute user.ramp.* has that full name. */
bool facts_has(const char *name);
/* Writes the value of that attribute. `seg` may be NULL. */
void facts_put_one(struct mount *m, const struct segment_row *row, struct seg *seg,
		   const char *name, FILE *out);
/* Write a part of a listing's line: a tab and the name of each attribute; a tab and each value of
   one segment (`seg` may be NULL). `node` caches the row of the node that was looked up last;
   zeroed at first. */
void facts_put_names(FILE *out);
void facts_put(struct mount *m, const struct segment_row *row, struct seg *seg,
	       struct node_row *node, FILE *out);

#endif
