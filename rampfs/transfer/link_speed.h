/*
 * How fast the links to other nodes have been, as moves have measured them. Control loop.
 */
#ifndef RAMP_LINK_SPEED_H
#define RAMP_LINK_SPEED_H

#include "transfer_core.h"

#define LINK_GUESS UINT64_C(1000000000) /* bytes a second, of a link that was not measured yet */

/* Notes that `bytes` came or went in that time. Too few say nothing of the link. */
void link_note(struct transfers *t, ramp_node_t node, uint64_t bytes, uint64_t us);
/* Returns bytes a second; 0: not measured in this daemon's life. */
uint64_t link_speed(const struct transfers *t, ramp_node_t node);

#endif
