/* Threads of ours in the program. */
#ifndef RAMP_SPAWN_H
#define RAMP_SPAWN_H

/* Starts a detached thread of the C library's, so that a setuid(2) of the program applies to it.
   The caller has all signals blocked, and so has the thread. Returns 0 or a positive errno. */
int spawn_thread(void *(*thread_main)(void *), void *arg);

#endif
