/*
 * The text of .ramp/status, .ramp/nodes and .ramp/segments.
 */
#ifndef RAMP_STATUS_H
#define RAMP_STATUS_H

#include "facts.h"

/* Writes status, for people. `moves`: migrations under way here, which the control loop alone
   knows. */
void status_put(struct mount *m, const struct node_list *nodes, const struct transfer_row *moves,
		size_t n_moves, FILE *out);
/* Writes nodes, for scripts: a line a node. */
void status_put_nodes(struct mount *m, const struct node_list *nodes, FILE *out);
/* Writes segments, for programs: all facts, a line a segment. The first and the last line are
   `number`. */
void status_put_segments(struct mount *m, const struct node_list *nodes, uint64_t number,
			 FILE *out);

#endif
