/*
 * Running one thread of a stopped process, while the others stay stopped (lone_run.c).
 */
#ifndef RAMP_PROGRAMS_LONE_RUN_H
#define RAMP_PROGRAMS_LONE_RUN_H

#include <stdint.h>
#include <sys/types.h>

struct lone_run;

/* Lets the thread `tid` of that process run, with the threads that it makes and the scribe, until
   lone_run_end or until_ms (CLOCK_MONOTONIC). NULL: a frozen cgroup or another tracer keeps it, or
   memory is lacking. Blocks until it runs, for at most a second. */
struct lone_run *lone_run_begin(pid_t pid, pid_t tid, int pidfd, uint64_t until_ms);
/* Ends that: the thread is as stopped as it was, unless its process was continued. NULL is allowed. */
void lone_run_end(struct lone_run *run);

#endif
