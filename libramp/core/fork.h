/*
 * The handlers of fork(2) (pthread_atfork): the child has its mappings again before fork returns
 * there. A child that no handler saw gets nothing of ours.
 */
#ifndef RAMP_FORK_H
#define RAMP_FORK_H

#include <stdbool.h>

/* Part of core_init. */
void fork_init(void);
/* Registers the handlers that give a child its parent's mappings; once is enough. Before anything
   is attached, under the attach lock. Returns 0 or a negative errno. */
int fork_watch(void);

/* Before anything else of ours: makes a child that no handler saw begin without mappings and
   agents. Returns false where this process shares the memory of another one (vfork): the agents are
   the other one's. */
bool fork_settle(void);

#endif
