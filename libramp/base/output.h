/*
 * The beginning and the end of a program's standard output. A descriptor of 0 to 2 that the program
 * was started without must not become a socket or a pipe, into which messages would be printed; and
 * a table that a full disk has cut must not pass for whole.
 */
#ifndef RAMP_OUTPUT_H
#define RAMP_OUTPUT_H

/* Called first in main. Opens /dev/null for each closed descriptor of 0 to 2, so that reading and
   writing fail as if it were closed. */
void output_begin(void);
/* Flushes stdout. Returns 0 if all output was accepted; else 1, and prints one line on stderr that
   begins with the program's name. */
int output_end(const char *program);

#endif
