/*
 * Moves in steps: ramp_connect and its kin.
 */
#ifndef RAMP_API_STEPS_H
#define RAMP_API_STEPS_H

struct ramp_segment;

/* Hangs up where the segment is connected: its daemon gives the move up. No other call is under
   way. */
void steps_forget(struct ramp_segment *segment);

#endif
