/*
 * POISON: entries of a program that give SIGBUS (poison.c). The rest of it is in programs.h.
 */
#ifndef RAMP_PROGRAMS_POISON_H
#define RAMP_PROGRAMS_POISON_H

#include <stdbool.h>
#include <sys/types.h>

struct mapped_segment;
struct programs;

/* Takes out every POISON, on a worker. False: no memory. */
bool unpoison_begin(struct programs *p, struct mapped_segment *mseg, uid_t owner);

#endif
