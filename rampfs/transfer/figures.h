/*
 * Figures of each segment's last hand-over, as far as this node has heard of it.
 *
 * The source measures the way to the window, the target what was pulled; each tells the other one
 * (FIGURES), and the source tells the node that asked. A daemon begins with none, and keeps those of
 * the newest FIGURES_KEPT segments: they decide nothing.
 */
#ifndef RAMP_FIGURES_H
#define RAMP_FIGURES_H

#include "move.h"

struct figures;

/* NULL: no memory. */
struct figures *figures_new(void);
void figures_free(struct figures *figures);

/* At the source: TAKEN has come, and the window was that long. Control loop; so for all below. */
void figures_window(struct move *m, uint64_t window_us);
/* At the target: it has taken the segment, and nothing is pulled yet. */
void figures_taken(struct move *m);
/* At the target: every page is here, or lost. `copied`: all came while programs stood still. */
void figures_whole(struct move *m, bool copied);
/* Sends what is known of the segment's hand-over to a node, if anything is. */
void figures_send(struct transfers *t, ramp_node_t to, ramp_segment_t id);
void figures_listen(struct transfers *t);

#endif
