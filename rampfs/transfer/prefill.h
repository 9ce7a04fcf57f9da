/*
 * Segments of this node that are kept near at another one (prefill.c). Control loop.
 */
#ifndef RAMP_PREFILL_H
#define RAMP_PREFILL_H

#include "move.h"

/* Hooks of transfer_core.h. */
void prefill_look(struct transfers *t, ramp_segment_t id);
void prefill_note(struct move *m);
void prefill_over(struct move *m);

/* A node is connected, or its row has changed: those to it are tried again. 0: those to any. */
void prefills_try(struct transfers *t, ramp_node_t node);
/* This node is being unmounted: each ends, and none begins. */
void prefills_end(struct transfers *t);
/* The daemon ends. */
void prefills_close(struct transfers *t);

#endif
