#include "guard.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>

void guard_enter(struct signal_guard *guard)
{
	sigset_t all;

	guard->saved_errno = errno;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &guard->mask);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &guard->cancel);
}

void guard_leave(const struct signal_guard *guard)
{
	int ignored;

	pthread_setcancelstate(guard->cancel, &ignored);
	pthread_sigmask(SIG_SETMASK, &guard->mask, NULL);
	errno = guard->saved_errno;
}
