#include "spawn.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>

#define STACK_BYTES (256 * 1024)

static int spawn_with(size_t stack_bytes, void *(*thread_main)(void *), void *arg)
{
	pthread_attr_t attr;
	pthread_t thread;
	int rc = pthread_attr_init(&attr);

	if (rc)
		return rc;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (stack_bytes)
		pthread_attr_setstacksize(&attr, stack_bytes);
	rc = pthread_create(&thread, &attr, thread_main, arg);
	pthread_attr_destroy(&attr);
	return rc;
}

/* A program's thread-local storage may be larger than the stack that we need: then the thread gets
   the default stack. */
int spawn_thread(void *(*thread_main)(void *), void *arg)
{
	int rc = spawn_with(STACK_BYTES, thread_main, arg);

	return rc == EINVAL ? spawn_with(0, thread_main, arg) : rc;
}
