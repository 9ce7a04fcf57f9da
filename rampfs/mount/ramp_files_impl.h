/*
 * Shared by view.c and metrics.c alone.
 */
#ifndef RAMP_VIEW_IMPL_H
#define RAMP_VIEW_IMPL_H

#include <stdio.h>

#include "ramp_files.h"

#define MAX_NODES 64
#define MAX_MOVES 256

/* The members, without those that were removed. */
struct node_list {
	struct node_row row[MAX_NODES];
	size_t n;
};

const char *view_node_name(const struct node_list *list, ramp_node_t node);
bool view_node_up(struct mount *m, const struct node_row *row);

/* `n_moves`: migrations under way here, which the control loop alone knows. */
void metrics_put(struct mount *m, const struct node_list *nodes, size_t n_moves, FILE *out);

#endif
