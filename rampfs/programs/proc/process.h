/*
 * One process, as /proc shows it. Any thread; none of these functions takes the mmap lock of a
 * program's memory.
 */
#ifndef RAMP_PROGRAMS_PROCESS_H
#define RAMP_PROGRAMS_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Identifies a process, and no later one with the same pid. */
struct process {
	pid_t pid;
	uid_t uid;
	uint64_t start_ticks; /* since boot */
};

/* Finds the process with that pid. 0; -ESRCH: there is none; -errno: it can't be looked at. */
int process_find(pid_t pid, struct process *process);
/* Returns whether the process of that pidfd is still there (a zombie is: its pid is not used
   again). -1: no. */
bool process_lives(int pidfd);
/* Writes "4711 (memcached)", for messages. */
void process_name(pid_t pid, char name[64]);
/* Returns 'R', 'S', 'T', ... from /proc/PID/status; 0: no such process. Never waits. */
char process_state(pid_t pid);
pid_t process_tracer(pid_t pid, pid_t tid); /* the tracer of that thread of it; 0: none */
bool process_frozen(pid_t pid);		    /* whether a cgroup freezes it */
pid_t process_parent(pid_t pid);	    /* 0: none, or no such process */
/* Returns the thread of `pid` whose id in its own pid namespace is `tid`; 0: none. */
pid_t process_tid(pid_t pid, uint32_t tid);
/* Returns the first thread of `pid` with that name (prctl(2), PR_SET_NAME); 0: none. */
pid_t process_thread_named(pid_t pid, const char *name);

#endif
