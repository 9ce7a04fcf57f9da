/*
 * Makes a system call in a stopped process (inject.c).
 */
#ifndef RAMP_PROGRAMS_INJECT_H
#define RAMP_PROGRAMS_INJECT_H

#include <stddef.h>
#include <stdint.h>

#include "programs/proc/mappings.h"

struct client;

#define INJECT_WHY 96
/* Says whether inject_drop may be tried. 0: yes, and `why` is empty. -EBUSY: no, and `why`
   continues "process 4711 (x) ". */
int inject_ready(struct client *client, char why[INJECT_WHY]);
/* Drops the entries of those ranges in a stopped process, which stays stopped. 0; -errno with
   `why`. Blocks: a second; two more where a seccomp filter of the program's holds the call; 30 s
   where the kernel does not end the call. */
int inject_drop(struct client *client, const struct address_range *ranges, size_t count,
		uint64_t until_ms, char why[INJECT_WHY]);

#endif
