/*
 * The program's stderr: what descriptor 2 is in the caller's file table.
 *
 * A file that merely got that number after the program closed its stderr gets nothing, as far as
 * that can be told.
 */
#ifndef RAMP_PROGRAM_STDERR_H
#define RAMP_PROGRAM_STDERR_H

#include <stddef.h>

/* Notes which file stderr is. Once, when the program begins. */
void program_stderr_init(void);
/* Writes the line, waiting for room up to patience_ms. Returns 0; -EAGAIN where there is no room
   yet; another negative errno where it takes none (-EBADF: it is closed or not for lines). The
   caller has all signals blocked; a SIGPIPE is taken back. */
int program_stderr_write(const char *line, size_t len, int patience_ms);

#endif
