/*
 * R1: this daemon's incarnation takes part. And the scan of all records and rows on the move.
 */
#ifndef RAMP_REGISTRATION_H
#define RAMP_REGISTRATION_H

#include "transfer_core.h"

/* Proposes NODE_UP until the tables show this incarnation; hears of a fence. */
void registration_look(struct transfers *t);
/* Looks at every record and row that is on the move: at the start, and when a node's row says that
   an incarnation may be over. */
void registration_scan(struct transfers *t);

#endif
