/*
 * How much of each huge page programs store into, by some that are split: for mode auto (source_weigh.c). A worker's
 * calls, in S_WEIGHING.
 */
#ifndef RAMP_SAMPLE_H
#define RAMP_SAMPLE_H

#include "move.h"

/* Splits some of the huge pages that the last look has found stored into. The next look is for sample_pages. Leaves the
   sample empty where there are none. 0, or the errno of work_err. Blocks shortly; programs continue. */
int sample_take(struct move *m);
/* Returns how many pages the last look would have found, if all huge pages were split: by the sample; without one, or
   where it says too little, as many as it did find. Notes whether it was by the sample. */
uint64_t sample_pages(struct move *m);

#endif
