/*
 * fork(2)'s three handlers (pthread_atfork): the child has its mappings again before fork returns
 * there. And what keeps a child from having anything of ours otherwise.
 */
#ifndef RAMP_FORK_H
#define RAMP_FORK_H

#include <stdbool.h>

/* In the constructor, or at the first call that comes before it. */
void fork_init(void);
/* Before anything is attached, under the attach lock: forks that begin from now on give the child
   what its parent has. 0 or a negative errno; once is enough. */
int fork_watch(void);

/* Before anything else of ours: a child that no handler saw begins without mappings and agents.
   False: this process shares the memory of another one (vfork), whose agents are not its own. */
bool fork_settle(void);
/* Around a call that makes a child with a memory of its own, where no handlers run: by any thread,
   also in a signal's handler. The child does not come back to the second one. */
void fork_begin(void);
void fork_end(void);
/*
 * Around an mmap(2) and the MADV_DONTFORK that follows: no child is made in between, except by a
 * raw system call. By agents. Each side waits for the other a second at most.
 */
void fork_shut_out(void);
void fork_let_in(void);

#endif
