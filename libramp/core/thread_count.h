/*
 * Keeps a thread of ours out of the C library's count of threads.
 *
 * The C library ends a process with its last counted thread (pthread_exit(3)). A program must not
 * wait for ours.
 */
#ifndef RAMP_THREAD_COUNT_H
#define RAMP_THREAD_COUNT_H

/* Looks the counter up. Once, when the program begins: an agent looks up no symbol. */
void thread_count_init(void);
/* By a thread of ours: hides itself when it begins, and shows itself again before it ends. */
void thread_count_hide(void);
void thread_count_show(void);

#endif
