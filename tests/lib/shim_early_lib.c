/*
 * A library that maps a segment in its constructor: shim_early is linked with it. Constructors of
 * such libraries run before the shim's.
 */
#include "shim_early.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include "shim_prog.h"

volatile unsigned char *early;

static int end(void *arg)
{
	(void)arg;
	_exit(0);
}

/* With the program's arguments, as glibc calls it. */
static __attribute__((constructor)) void begin(int argc, char **argv)
{
	static _Alignas(16) char stack[16384];
	int fd, status;
	pid_t pid;

	CHECK(argc == 3);
	fd = open(argv[1], O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0);
	early = mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0);
	CHECK(early != MAP_FAILED && close(fd) == 0);
	early[0] = 7;
	pid = clone(end, stack + sizeof(stack), SIGCHLD, NULL);
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}
