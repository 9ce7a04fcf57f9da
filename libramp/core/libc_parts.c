#include "libc_parts.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

/* glibc's. Its pthread_atfork is a part of the caller that calls this, and so can't be weak. */
/* NOLINTBEGIN(bugprone-reserved-identifier) */
extern int __register_atfork(void (*prepare)(void), void (*in_parent)(void), void (*in_child)(void),
			     void *library) __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));
/* NOLINTEND(bugprone-reserved-identifier) */
#pragma weak strerrordesc_np

/* musl's strerror(3) is what glibc's strerrordesc_np(3) is: a look into a table. glibc's translates
   and may allocate. */
const char *errno_text(int code)
{
	const char *text = strerrordesc_np ? strerrordesc_np(code) : strerror(code);

	return text ? text : "unknown error";
}

int register_fork_handlers(void (*prepare)(void), void (*in_parent)(void), void (*in_child)(void))
{
	int (*atfork)(void (*)(void), void (*)(void), void (*)(void));
	void *found;

	if (__register_atfork)
		return __register_atfork(prepare, in_parent, in_child, &__dso_handle);
	found = dlsym(RTLD_DEFAULT, "pthread_atfork");
	if (!found)
		return ENOSYS;
	memcpy(&atfork, &found, sizeof(atfork));
	return atfork(prepare, in_parent, in_child);
}
