/*
 * Lines to the program's stderr.
 *
 * RAMPFS_QUIET=1 silences all of them. A line never waits: a stderr that takes nothing gets
 * nothing. A file that merely got descriptor 2 after the program closed its stderr gets nothing
 * either, as far as that can be told.
 */
#ifndef RAMP_SAY_H
#define RAMP_SAY_H

/* Reads RAMPFS_QUIET and notes which file stderr is. Once, when the program begins. */
void say_init(void);
/* Joins the strings up to a NULL and writes them with a newline. For threads of the program,
   between guard_enter and guard_leave. */
void say_line(const char *first, ...) __attribute__((sentinel));
/* Writes "rampfs: CALL: REASON", or the errno's text where the reason is empty. Returns -code. */
int say_refusal(const char *call, int code, const char *reason);
/* say_line for an agent, which has a file table of its own. */
void say_agent_line(const char *first, ...) __attribute__((sentinel));

#endif
