/*
 * The journal's rows of nodes: themselves, past incarnations, the configuration as applied.
 *
 * All of it runs within a turn of the writer, and the writer sees its own rows.
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
int journal_walk_nodes(struct journal *j, int (*fn)(void *arg, const struct node_row *row),
		       void *arg);
/* Incarnations of a node that are over because a newer one came. 1: it is one; 0: not. */
int journal_is_past(struct journal *j, ramp_node_t node, ramp_incarnation_t inc);
int journal_put_past(struct journal *j, ramp_node_t node, ramp_incarnation_t inc);

/* The configuration as applied (table member). */
int journal_get_member(struct journal *j, ramp_node_t node, enum raft_role *role); /* -ENOENT */
int journal_put_members(struct journal *j, const struct raft_conf *conf);

#endif
