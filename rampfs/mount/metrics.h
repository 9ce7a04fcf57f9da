/*
 * The text for Prometheus: .ramp/metrics.
 */
#ifndef RAMP_METRICS_H
#define RAMP_METRICS_H

#include "facts.h"

#define METRICS_MAX_MOVES 256
#define METRICS_MAX_USERS 100 /* those that have most of the arena */

/* Writes all metrics. `n_moves`: migrations under way here, which the control loop alone knows. */
void metrics_put(struct mount *m, const struct node_list *nodes, size_t n_moves, FILE *out);

#endif
