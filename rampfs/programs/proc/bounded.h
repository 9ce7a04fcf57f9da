/*
 * Work that looks into processes, on a thread that its caller can leave behind (bounded.c).
 */
#ifndef RAMP_PROGRAMS_BOUNDED_H
#define RAMP_PROGRAMS_BOUNDED_H

#include <stdbool.h>
#include <sys/types.h>

struct bounded;
/* The work. It calls bounded_enter before it looks into a process, and returns if that is not 0:
   -EBUSY: the process is known to block each thread that looks; -ECANCELED: the caller has left.
   It holds no locks that other threads need, except those that looking into the process takes. */
typedef int bounded_fn(struct bounded *bounded, void *arg);
typedef void bounded_forget(void *arg);
/* Says which process the work looks into from now on. */
int bounded_enter(struct bounded *bounded, pid_t pid);
/* The same for work that also takes the mmap lock of the process's memory. */
int bounded_enter_memory(struct bounded *bounded, pid_t pid);
/* Returns 1: the processes share their memory; 0: they don't; -errno, as bounded_enter. */
int bounded_same_memory(struct bounded *bounded, pid_t a, pid_t b);
/* Runs fn(arg) on a thread of its own, at the caller's priority. True: it has ended, *rc is what
   it returned (-EBUSY: process *stuck blocks it), and arg is the caller's. False: process *stuck
   has blocked it for 3 s, and forget(arg) is called when it ends. */
bool bounded_run(bounded_fn *fn, void *arg, bounded_forget *forget, int *rc, pid_t *stuck);
/* The same for work that leaves nothing of its own on its thread, which others may use. */
bool bounded_look(bounded_fn *fn, void *arg, bounded_forget *forget, int *rc, pid_t *stuck);

#endif
