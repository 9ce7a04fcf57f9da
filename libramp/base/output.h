/*
 * The beginning and the end of a program's standard output. A descriptor of 0 to 2 that it was
 * started without must not become a socket or a pipe, into which messages would be printed; and a
 * table that a full disk has cut must not pass for whole.
 */
#ifndef RAMP_OUTPUT_H
#define RAMP_OUTPUT_H

/* First of all in main: what of 0 to 2 is closed is /dev/null from now on, so opened that reading
   and writing fail as if it were closed. */
void output_begin(void);
/* Writes out what stdout still holds. 0 where all that was printed has been taken; else 1, and one
   line on stderr that begins with the program's name. */
int output_end(const char *program);

#endif
