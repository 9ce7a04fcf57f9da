/*
 * Sizes as people write them.
 */
#ifndef RAMP_SIZE_H
#define RAMP_SIZE_H

#include <stdint.h>

/* Reads a size such as "8G" or "4096": digits and one of K M G T (powers of 1024), nothing else;
   "1.5T" is none. -EINVAL, -ERANGE. */
int size_parse(const char *text, uint64_t *bytes);

#endif
