/*
 * Which parts of an attachment are registered while pages of its segment are missing (stretches.c).
 *
 * change is held, unless said otherwise.
 */
#ifndef RAMP_PROGRAMS_STRETCHES_H
#define RAMP_PROGRAMS_STRETCHES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "mapped_segment.h"

/* Registers the stretches in which a page is missing, or all of the attachment. Others stay as they are.
   0; -EINVAL: nothing is mapped there any more, or something else is; another -errno. */
int stretches_arm(struct mapped_segment *mseg, struct client *client, const struct attachment *a);
/* Unregisters the stretches in which no page is missing, in all programs. False: not all by until_us (CLOCK_MONOTONIC). */
bool stretches_trim(struct mapped_segment *mseg, uint64_t until_us);
/* Has a worker do that, in the share of that user. change need not be held. */
void stretches_trim_soon(struct programs *p, struct mapped_segment *mseg, uid_t owner);

#endif
