/*
 * Lines to the program's stderr.
 *
 * RAMPFS_QUIET=1 silences all of them. No thread of the program waits for one: where stderr takes
 * nothing, the line is lost. An agent's line waits in the scribe until it does (scribe.h).
 */
#ifndef RAMP_SAY_H
#define RAMP_SAY_H

#include <stdbool.h>

/* Reads RAMPFS_QUIET, which `silent` stands in for where it is not set, and notes which file stderr
   is. Once, when the program begins. */
void say_init(bool silent);
/* Joins the strings up to a NULL and writes them with a newline. For threads of the program,
   between guard_enter and guard_leave. */
void say_line(const char *first, ...) __attribute__((sentinel));
/* Writes "rampfs: CALL: REASON", or the errno's text where the reason is empty. Returns -code. */
int say_refusal(const char *call, int code, const char *reason);
/* Before an agent starts, under attach_lock, with all signals blocked. */
void say_agents_begin(void);
/* say_line for agents. */
void say_agent_line(const char *first, ...) __attribute__((sentinel));

#endif
