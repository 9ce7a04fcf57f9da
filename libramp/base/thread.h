/*
 * A thread that gets no signals: those are the main thread's.
 */
#ifndef RAMP_THREAD_H
#define RAMP_THREAD_H

#include <pthread.h>
#include <signal.h>

/* Starts fn(arg) on a thread that blocks every signal. `name`: as pthread_setname_np(3), 15 bytes.
   0 or a positive errno, as pthread_create(3). */
static inline int thread_start_blocked(pthread_t *thread, const char *name, void *(*fn)(void *),
				       void *arg)
{
	sigset_t all, old;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(thread, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!rc)
		pthread_setname_np(*thread, name);
	return rc;
}

#endif
