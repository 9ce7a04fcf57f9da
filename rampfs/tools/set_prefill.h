/*
 * rampfs-migrate --prefill: which node is kept near.
 */
#ifndef RAMP_SET_PREFILL_H
#define RAMP_SET_PREFILL_H

#include <stdint.h>

/* Sets user.ramp.prefill of the segment; node "none": none any more; limit 0: the usual one. NULL, or why not,
   until the next call. */
const char *set_prefill(const char *file, const char *node, uint64_t limit_bytes_s);

#endif
