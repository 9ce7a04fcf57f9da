/*
 * A file in memory, mapped at an address that every process of a test has free, as a segment would be.
 */
#ifndef RAMP_HEAP_FIXTURE_H
#define RAMP_HEAP_FIXTURE_H

#include <stdint.h>

#include "ramp_heap.h"

/* ThreadSanitizer's shadow lies where AddressSanitizer leaves room, and the other way round. */
#ifdef __SANITIZE_THREAD__
#define HEAP_BASE ((char *)0x1000000000)
#else
#define HEAP_BASE ((char *)0x200000000000)
#endif

/* Maps `len` bytes of a new file at HEAP_BASE, in place of what was there; the file is `size` bytes long. Returns the
   file, which is the caller's. */
int heap_map(uint64_t size, uint64_t len);
/* Maps a file there. */
void heap_map_file(int fd, uint64_t len);
/* Makes the file longer: ramp_heap_options' grow, its arg an int. */
int heap_grow_file(void *fd, uint64_t size);

/* The misuse that was named last, with heap_hear as ramp_heap_options' misuse; NULL: none since. */
const char *heap_heard(void);
void heap_hear(void *arg, const char *text);

#endif
