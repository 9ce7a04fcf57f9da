/*
 * What /proc says of one process. Any thread; none of these takes the lock of a program's memory.
 */
#ifndef RAMP_PROGRAMS_PROCESS_H
#define RAMP_PROGRAMS_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Which process, and no later one of its number. */
struct process {
	pid_t pid;
	uid_t uid;
	uint64_t start_ticks; /* since boot */
};

/* 0; -ESRCH: there is none; why it can't be looked at. */
int process_find(pid_t pid, struct process *process);
/* Whether the process that this pidfd stands for is still there (a zombie is: its number is not
   used anew). -1: no. */
bool process_lives(int pidfd);
/* "4711 (memcached)", for messages. */
void process_name(pid_t pid, char name[64]);
/* 'R', 'S', 'T', ... of /proc/PID/status; 0: no such process. Never waits. */
char process_state(pid_t pid);
pid_t process_tracer(pid_t pid, pid_t tid); /* who traces that thread of it; 0: nobody */
bool process_frozen(pid_t pid);		    /* by a cgroup */
pid_t process_parent(pid_t pid);	    /* 0: none, or no such process */
/* The thread of `pid` that calls itself `tid` in its own pid namespace; 0: none. */
pid_t process_tid(pid_t pid, uint32_t tid);

#endif
