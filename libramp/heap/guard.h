/*
 * Debug heaps. A block of B bytes of which n were asked for, n <= B - 16: the program's n bytes, 0xfd up to the last
 * eight, and there n, mixed with the block's address. Freed blocks are filled with 0xdf.
 */
#ifndef RAMP_HEAP_GUARD_H
#define RAMP_HEAP_GUARD_H

#include "slabs.h"

#define GUARD_BYTES 16

/* Arms the guard of a block that is given out. */
void guard_arm(void *block, uint64_t bytes, size_t asked);
/* Returns how much was asked for, or -1: the guard was overwritten. */
int64_t guard_asked(const void *block, uint64_t bytes);
/* Names an overwritten guard. */
void guard_misuse(const struct heap_process *p, const void *block, uint64_t bytes);
/* Fills a small block that is freed; checks that nothing was written to it since. */
void guard_fill(void *block, uint64_t bytes);
bool guard_filled(const void *block, uint64_t bytes);

#endif
