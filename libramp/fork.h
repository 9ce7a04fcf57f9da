/*
 * fork(2)'s three handlers (pthread_atfork): the child has its mappings again before fork returns
 * there.
 */
#ifndef RAMP_FORK_H
#define RAMP_FORK_H

void fork_prepare(void);
void fork_in_parent(void);
void fork_in_child(void);

#endif
