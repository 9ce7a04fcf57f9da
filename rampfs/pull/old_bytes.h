/*
 * Pages that have bytes of before a pre-copy's last round (old_bytes.c).
 */
#ifndef RAMP_OLD_BYTES_H
#define RAMP_OLD_BYTES_H

#include "pulled.h"

/* Clears those of the pages, which are the caller's (IN_FLIGHT), that have bytes in the file: the source
   has a hole there now. Allocates nothing. Does nothing where none can have old bytes. */
void old_bytes_clear(struct pulled *pulled, uint64_t first, uint64_t count);

#endif
