/*
 * The journal's rows of nodes, past incarnations, and the configuration as applied.
 *
 * Each function works within a turn of the writer, which sees its own changes. Each returns 0 (or
 * as noted), or -EIO: the journal is dead.
 */
#ifndef RAMP_META_JOURNAL_NODES_H
#define RAMP_META_JOURNAL_NODES_H

#include "meta.h"
#include "raft_conf.h"

struct journal;

int journal_get_node(struct journal *j, ramp_node_t node, struct node_row *row);  /* -ENOENT */
int journal_find_node(struct journal *j, const char *name, struct node_row *row); /* -ENOENT */
int journal_put_node(struct journal *j, const struct node_row *row);
int journal_next_node(struct journal *j, ramp_node_t *node); /* never given before */
/* No number up to that one is given any more. */
int journal_skip_nodes(struct journal *j, ramp_node_t node);
/* Calls fn for each node in order. Returns fn's first nonzero result. */
int journal_walk_nodes(struct journal *j, int (*fn)(void *arg, const struct node_row *row),
		       void *arg);
/* Past incarnations of a node are over because a newer one came. Returns 1 where `inc` is one; else
   0. */
int journal_is_past(struct journal *j, ramp_node_t node, ramp_incarnation_t inc);
int journal_put_past(struct journal *j, ramp_node_t node, ramp_incarnation_t inc);

/* The configuration as applied (table member). */
int journal_get_member(struct journal *j, ramp_node_t node, enum raft_role *role); /* -ENOENT */
int journal_put_members(struct journal *j, const struct raft_conf *conf);

#endif
