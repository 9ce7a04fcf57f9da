/*
 * POISON: page-table entries of a program that raise SIGBUS (poison.c). programs.h has the rest.
 */
#ifndef RAMP_PROGRAMS_POISON_H
#define RAMP_PROGRAMS_POISON_H

#include <stdbool.h>
#include <sys/types.h>

struct mapped_segment;
struct programs;

/* Begins to take out every POISON, on a worker. False: no memory. */
bool unpoison_begin(struct programs *p, struct mapped_segment *mseg, uid_t owner);

#endif
