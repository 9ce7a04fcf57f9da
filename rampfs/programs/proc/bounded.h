/*
 * Work that looks into processes, on a thread that its caller can leave behind (bounded.c).
 */
#ifndef RAMP_PROGRAMS_BOUNDED_H
#define RAMP_PROGRAMS_BOUNDED_H

#include <stdbool.h>
#include <sys/types.h>

struct bounded;
/* Says with bounded_enter into which process it is about to look; ends where that is not 0: -EBUSY:
   it is known not to let anybody; -ECANCELED: nobody waits any more. Has nothing locked that others
   need but to look into that process. */
typedef int bounded_fn(struct bounded *bounded, void *arg);
typedef void bounded_forget(void *arg);
int bounded_enter(struct bounded *bounded, pid_t pid);
/* The same of who is about to take the lock of its memory. */
int bounded_enter_memory(struct bounded *bounded, pid_t pid);
/* 1: the processes share their memory; 0; -errno, as bounded_enter. */
int bounded_same_memory(struct bounded *bounded, pid_t a, pid_t b);
/* Runs fn(arg) on a thread of its own, as urgent as the caller's. True: it has ended, *rc is what
   it says (-EBUSY: process *stuck does not let it), and arg is the caller's. False: process *stuck
   keeps it for 3 s by now, and forget(arg) comes when it ends. */
bool bounded_run(bounded_fn *fn, void *arg, bounded_forget *forget, int *rc, pid_t *stuck);

#endif
