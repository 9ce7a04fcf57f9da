/*
 * The end of a program's standard output: a table that a full disk has cut must not pass for whole.
 */
#ifndef RAMP_OUTPUT_H
#define RAMP_OUTPUT_H

/* Writes out what stdout still holds. 0 where all that was printed has been taken; else 1, and one
   line on stderr that begins with the program's name. */
int output_end(const char *program);

#endif
