/*
 * The scribe: our thread that writes the agents' lines to the program's stderr.
 *
 * An agent has a file table of its own, so that nothing that it does with descriptors touches the
 * program. For the same reason it can't reach the program's stderr: another open of that file is
 * refused for a socket (ENXIO) and for a file of another user, and pidfd_getfd(2) ends a program
 * whose seccomp filter has only what services need (systemd's @system-service). The scribe shares
 * the program's file table: its descriptor 2 is the program's, whatever that is by now. It holds no
 * descriptor, touches no segment, and may wait for room as long as it takes.
 */
#ifndef RAMP_SCRIBE_H
#define RAMP_SCRIBE_H

#include <stddef.h>

#define SCRIBE_LINE_BYTES 512

/* Starts it, unless it runs. Where no thread can be made, lines are lost and the next call tries
   again. Under attach_lock, with all signals blocked. */
void scribe_start(void);
/* In a fork's child, which has none of its parent's threads. */
void scribe_reset(void);
/* Hands it a line of at most SCRIBE_LINE_BYTES, and waits a moment until that is written: the
   program may die just after. Where stderr takes nothing the line waits there without us. For
   agents. */
void scribe_write(const char *line, size_t len);

#endif
