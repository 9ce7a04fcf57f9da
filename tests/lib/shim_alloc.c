/*
 * A program with an allocator of its own, like a program that is linked with a static tcmalloc or
 * jemalloc: one lock, which the allocator's handlers hold over a fork. shim_alloc FILE, run by
 * rampfs-run.
 *
 * It maps its first segment while another thread is in the middle of a fork, and forks with its
 * mappings. A wrong order of locks hangs it.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "shim_prog.h"

#define SLOWLY_US 200000

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);
void __libc_free(void *old);

static pthread_mutex_t big = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool slow, locked;

void *malloc(size_t size)
{
	void *p;

	pthread_mutex_lock(&big);
	p = __libc_malloc(size);
	pthread_mutex_unlock(&big);
	return p;
}

void *calloc(size_t n, size_t size)
{
	void *p;

	pthread_mutex_lock(&big);
	p = __libc_calloc(n, size);
	pthread_mutex_unlock(&big);
	return p;
}

void *realloc(void *old, size_t size)
{
	void *p;

	pthread_mutex_lock(&big);
	p = __libc_realloc(old, size);
	pthread_mutex_unlock(&big);
	return p;
}

void free(void *old)
{
	pthread_mutex_lock(&big);
	__libc_free(old);
	pthread_mutex_unlock(&big);
}

static void take(void)
{
	pthread_mutex_lock(&big);
	locked = true;
	if (slow)
		usleep(SLOWLY_US);
}

static void give(void)
{
	pthread_mutex_unlock(&big);
}

static __attribute__((constructor)) void begin(void)
{
	pthread_atfork(take, give, give);
}

static void *fork_slowly(void *arg)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	CHECK(pid > 0 && waitpid(pid, NULL, 0) == pid);
	return arg;
}

int main(int argc, char **argv)
{
	volatile unsigned char *p;
	pthread_t thread;
	int fd, status;
	pid_t pid;

	CHECK(argc == 3);
	fd = open(argv[1], O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0);
	slow = true;
	CHECK(pthread_create(&thread, NULL, fork_slowly, NULL) == 0);
	while (!locked)
		usleep(1000);
	p = mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	CHECK(pthread_join(thread, NULL) == 0);
	slow = false;
	p[0] = 7;
	pid = fork();
	if (pid == 0)
		_exit(p[0] == 7 ? 0 : 1);
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}
