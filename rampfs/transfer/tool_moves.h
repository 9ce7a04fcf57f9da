/*
 * Requests of tools (rampfs-migrate) to move a segment.
 */
#ifndef RAMP_TOOL_MOVES_H
#define RAMP_TOOL_MOVES_H

#include "transfer_core.h"

/* tool_migrate.mode of rampfs-migrate --reclaim: no mode of a transfer, since nothing moves. */
enum { TOOL_RECLAIM = 16 };

void tool_moves_listen(struct transfers *t);

#endif
