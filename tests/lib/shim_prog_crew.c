/* Programs with threads, children and grandchildren, and signal handlers, in the midst of
   mapping. */
#include "shim_prog.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static void *count_up(void *arg)
{
	volatile unsigned char *p = arg;

	for (int i = 0; i < 100000; i++)
		p[(unsigned int)i % PAGE]++;
	return NULL;
}

void scenario_forks(void)
{
	volatile unsigned char *p = map(SEGMENT_BYTES, RW, MAP_SHARED, 0);
	pthread_t thread;
	pid_t pid;

	p[0] = 1;
	pid = fork();
	if (pid == 0) {
		pid_t grandchild;

		CHECK(p[0] == 1);
		p[1] = 2;
		CHECK(pthread_create(&thread, NULL, count_up, (void *)(p + PAGE)) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
		grandchild = fork();
		if (grandchild == 0) {
			p[2] = 3;
			_exit(0);
		}
		wait_for(grandchild);
		CHECK(munmap((void *)p, SEGMENT_BYTES) == 0);
		_exit(0);
	}
	wait_for(pid);
	CHECK(p[1] == 2 && p[2] == 3);
	CHECK(munmap((void *)p, PAGE) == 0);
	pid = fork();
	if (pid == 0) {
		CHECK(touch((unsigned char *)p, false) == SIGSEGV);
		p[PAGE] = 9;
		_exit(0);
	}
	wait_for(pid);
	CHECK(p[PAGE] == 9);
}

void scenario_execs(void)
{
	volatile unsigned char *p = map(SEGMENT_BYTES, RW, MAP_SHARED, 0);
	char *const argv[] = {"true", NULL};
	pid_t pid;

	p[0] = 1;
	for (int i = 0; i < 20; i++) {
		pid = fork();
		if (pid == 0) {
			execvp("true", argv);
			_exit(9);
		}
		wait_for(pid);
		CHECK(posix_spawnp(&pid, "true", NULL, NULL, argv, environ) == 0);
		wait_for(pid);
		CHECK(system("true") == 0);
		pid = vfork();
		if (pid == 0) {
			execvp("true", argv);
			_exit(9);
		}
		wait_for(pid);
	}
	p[1] = 2;
	CHECK(p[0] == 1);
}

/* Children that no handler of fork(2) sees. */
void scenario_kin(void)
{
	int fd = open_file(O_RDWR);
	volatile unsigned char *p;
	void *at;
	pid_t pid;

	/* A child that shares our memory is refused, and leaves nothing behind. */
	pid = vfork();
	if (pid == 0) {
		at = mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0);
		_exit(at == MAP_FAILED && errno == EOPNOTSUPP ? 0 : 1);
	}
	wait_for(pid);
	p = map(2 * PAGE, RW, MAP_SHARED, 0);
	p[0] = 1;
	/* A child with a memory of its own begins without anything, even where we held a lock. */
	pid = _Fork();
	if (pid == 0) {
		CHECK(munmap((void *)(p + PAGE), PAGE) == 0);
		CHECK(touch((unsigned char *)p, false) == SIGSEGV);
		p = mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0);
		CHECK(p != MAP_FAILED && p[0] == 1);
		p[1] = 2;
		_exit(0);
	}
	wait_for(pid);
	CHECK(p[1] == 2);
	p[PAGE] = 3;
	close(fd);
}

/* A tree of children, three of each, three deep; every process has a byte of its own. */
static void grow_tree(volatile unsigned char *p, unsigned int node, int depth)
{
	pid_t pid[3];

	p[node]++;
	if (depth == 0)
		return;
	for (unsigned int i = 0; i < 3; i++) {
		pid[i] = fork();
		if (pid[i] == 0) {
			grow_tree(p, 3 * node + i + 1, depth - 1);
			_exit(0);
		}
	}
	for (int i = 0; i < 3; i++)
		wait_for(pid[i]);
}

void scenario_tree(void)
{
	volatile unsigned char *p = map(PAGE, RW, MAP_SHARED, 0);

	grow_tree(p, 0, 3);
	for (int i = 0; i < 40; i++)
		CHECK(p[i] == 1);
	CHECK(p[40] == 0);
}

#define CROWD 1000

static pthread_barrier_t all_there;

/* Every thread has a byte of its own; each tenth maps and unmaps beside it. */
static void *be_one_of_many(void *arg)
{
	volatile unsigned char *own = arg, *p;

	pthread_barrier_wait(&all_there);
	for (int i = 0; i < 100; i++)
		own[0]++;
	if ((uintptr_t)own % 10 == 0) {
		p = map(2 * PAGE, RW, MAP_SHARED, 16 * PAGE);
		p[0] = 1;
		CHECK(munmap((void *)p, 2 * PAGE) == 0);
	}
	pthread_barrier_wait(&all_there);
	return NULL;
}

void scenario_crowd(void)
{
	volatile unsigned char *p = map(PAGE, RW, MAP_SHARED, 0);
	static pthread_t crew[CROWD];
	pthread_attr_t attr;
	pid_t pid;

	CHECK(pthread_barrier_init(&all_there, NULL, CROWD + 1) == 0);
	CHECK(pthread_attr_init(&attr) == 0 && pthread_attr_setstacksize(&attr, 65536) == 0);
	for (int i = 0; i < CROWD; i++)
		CHECK(pthread_create(&crew[i], &attr, be_one_of_many, (void *)(p + i)) == 0);
	CHECK(count_entries("/proc/$PPID/task") == CROWD + 3);
	pthread_barrier_wait(&all_there);
	pid = fork();
	if (pid == 0) {
		p[CROWD] = 7;
		_exit(0);
	}
	wait_for(pid);
	pthread_barrier_wait(&all_there);
	for (int i = 0; i < CROWD; i++) {
		CHECK(pthread_join(crew[i], NULL) == 0);
		CHECK(p[i] == 100);
	}
	CHECK(p[CROWD] == 7);
}

static _Atomic bool stop;

static void *map_and_unmap(void *arg)
{
	uintptr_t slot = (uintptr_t)arg;
	off_t offset = (off_t)(slot * 8 * PAGE);

	for (unsigned int i = 0; i < 60; i++) {
		size_t len = (1 + i % 8) * PAGE;
		volatile unsigned char *p = map(len, RW, MAP_SHARED, offset);

		p[slot] = (unsigned char)i;
		CHECK(p[slot] == (unsigned char)i);
		CHECK(munmap((void *)p, len) == 0);
	}
	return NULL;
}

static void *fork_often(void *arg)
{
	while (!stop) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(0);
		wait_for(pid);
	}
	return arg;
}

void scenario_threads(void)
{
	volatile unsigned char *p = map(PAGE, RW, MAP_SHARED, SEGMENT_BYTES - PAGE);
	pthread_t mappers[4], forker;

	CHECK(pthread_create(&forker, NULL, fork_often, NULL) == 0);
	for (uintptr_t i = 0; i < 4; i++)
		CHECK(pthread_create(&mappers[i], NULL, map_and_unmap, (void *)i) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(mappers[i], NULL) == 0);
	stop = true;
	CHECK(pthread_join(forker, NULL) == 0);
	p[0] = 5;
	CHECK(byte_of_file(SEGMENT_BYTES - PAGE) == 5);
}

/* The same for some seconds, while the test kills the daemon. */
void scenario_endure(void)
{
	time_t end = time(NULL) + 6;

	while (time(NULL) < end) {
		stop = false;
		scenario_threads();
	}
}

/* Handlers that map and unmap, in the middle of mapping and unmapping. */
static _Atomic int alarms;
static void on_alarm(int sig)
{
	int fd, saved = errno;
	void *p;

	(void)sig;
	fd = open(file, O_RDWR | O_CLOEXEC);
	p = mmap(NULL, PAGE, RW, MAP_SHARED, fd, 64 * PAGE);
	if (p != MAP_FAILED && munmap(p, PAGE) == 0)
		alarms++;
	close(fd);
	errno = saved;
}

void scenario_signals(void)
{
	struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	struct itimerval timer = {{0, 3000}, {0, 3000}};

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	map_and_unmap((void *)1);
	while (alarms < 50)
		map_and_unmap((void *)1);
	memset(&timer, 0, sizeof(timer));
	setitimer(ITIMER_REAL, &timer, NULL);
}

/* A program that tidies up: descriptors, privileges, its main thread. */
void scenario_daemonlike(void)
{
	volatile unsigned char *p = map(SEGMENT_BYTES, RW, MAP_SHARED, 0);
	pid_t pid;

	closefrom(3);
	p[0] = 1;
	if (geteuid() == 0) {
		CHECK(setgid(65534) == 0 && setuid(65534) == 0);
		CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
	}
	p[1] = 1;
	pid = fork();
	if (pid == 0) {
		CHECK(p[0] == 1);
		_exit(0);
	}
	wait_for(pid);
	CHECK(munmap((void *)p, PAGE) == 0);
	CHECK(p[2 * PAGE] == 0);
}

static void *exit_late(void *arg)
{
	usleep(50000);
	return arg;
}

/* Ends with its last thread, as pthread_exit(3) says. */
void scenario_leaver(void)
{
	volatile unsigned char *p = map(PAGE, RW, MAP_SHARED, 0);
	pthread_t thread;

	p[0] = 1;
	CHECK(pthread_create(&thread, NULL, exit_late, NULL) == 0);
	pthread_detach(thread);
	pthread_exit(NULL);
}

#define CHANGED_US 100000 /* the daemon has looked by then */

static void *change_meanwhile(void *arg)
{
	unsigned char *p = arg;

	usleep(CHANGED_US);
	CHECK(munmap(p + 2 * PAGE, 2 * PAGE) == 0);
	CHECK(mprotect(p + 5 * PAGE, PAGE, PROT_READ) == 0);
	CHECK(mprotect(p + 6 * PAGE, PAGE, RW) == 0);
	CHECK(mremap(p + 8 * PAGE, 8 * PAGE, 12 * PAGE, 0) == p + 8 * PAGE);
	return NULL;
}

/* Another thread changes the mappings while the daemon looks which ones a child is to have. */
void scenario_meanwhile(void)
{
	unsigned char *p = (unsigned char *)map(8 * PAGE, RW, MAP_SHARED, 0);
	pthread_t thread;
	pid_t pid;

	CHECK(map(8 * PAGE, RW, MAP_SHARED, 8 * PAGE) == p + 8 * PAGE);
	for (unsigned int i = 0; i < 16; i++)
		p[i * PAGE] = 1;
	CHECK(mprotect(p + 6 * PAGE, PAGE, PROT_READ) == 0);
	meet("mapped");
	CHECK(pthread_create(&thread, NULL, change_meanwhile, p) == 0);
	pid = fork();
	if (pid == 0) {
		for (unsigned int i = 0; i < 16; i++)
			CHECK(touch(p + i * PAGE, false) == (i == 2 || i == 3 ? SIGSEGV : 0));
		CHECK(touch(p + 5 * PAGE, true) == SIGSEGV);
		CHECK(touch(p + 6 * PAGE, true) == 0);
		/* Ranges that it has and ranges that it lacks can be mapped. */
		CHECK(map(16 * PAGE, RW, MAP_SHARED, 0) == p);
		for (unsigned int i = 0; i < 16; i++)
			CHECK(touch(p + i * PAGE, true) == 0);
		_exit(0);
	}
	wait_for(pid);
	CHECK(pthread_join(thread, NULL) == 0);
}
