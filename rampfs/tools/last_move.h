/* The lines of rampfs-migrate --verbose: what a move has cost. */
#ifndef RAMP_LAST_MOVE_H
#define RAMP_LAST_MOVE_H

#include <stdbool.h>

/* Prints them to stdout. `path`: the segment in its new directory; `file`: its name for the user.
   `whole`: its pages are there, and their figures are waited for shortly, since they come by another
   way than the answer. */
void last_move_print(const char *path, const char *file, bool whole);

#endif
