/*
 * A program that knows nothing of rampfs: shim_prog FILE SCENARIO, run by rampfs-run.
 *
 * FILE is a segment of SEGMENT_BYTES bytes, all zero. Each scenario maps it, checks what it sees
 * against what mmap(2) promises, and exits 0; at the first thing that is wrong it says what and
 * exits 1. The interactive ones say on stdout where they are and wait for a line on stdin.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE	      4096ul
#define SEGMENT_BYTES (4ul << 20)
#define EXTENT_BYTES  (64ul << 20)
#define RW	      (PROT_READ | PROT_WRITE)

extern char **environ;

static const char *file;

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: not true: %s (errno %d, %s)\n", __FILE__,          \
				__LINE__, #cond, errno, strerror(errno));                          \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static int open_file(int flags)
{
	int fd = open(file, flags | O_CLOEXEC);

	CHECK(fd >= 0);
	return fd;
}

static volatile unsigned char *map(size_t len, int prot, int flags, off_t offset)
{
	int fd = open_file(prot & PROT_WRITE ? O_RDWR : O_RDONLY);
	void *at = mmap(NULL, len, prot, flags, fd, offset);

	CHECK(at != MAP_FAILED);
	CHECK(close(fd) == 0);
	return at;
}

static unsigned char byte_of_file(off_t offset)
{
	unsigned char byte;
	int fd = open_file(O_RDONLY);

	CHECK(pread(fd, &byte, 1, offset) == 1);
	close(fd);
	return byte;
}

static bool is_mapped(const volatile void *at)
{
	unsigned char vec;

	return mincore((void *)((uintptr_t)at & ~(PAGE - 1)), PAGE, &vec) == 0;
}

static int count_entries(const char *dir)
{
	char command[128];
	int n = -1;
	FILE *p;

	snprintf(command, sizeof(command), "ls %s | wc -l", dir);
	p = popen(command, "r");
	CHECK(p && fscanf(p, "%d", &n) == 1);
	pclose(p);
	return n;
}

/* A touch that may end in a signal: 0, or the signal. */
static sigjmp_buf jump;
static void on_signal(int sig)
{
	siglongjmp(jump, sig);
}

static int touch(volatile unsigned char *at, bool write)
{
	struct sigaction action = {.sa_handler = on_signal}, bus, segv;
	int sig;

	sigaction(SIGBUS, &action, &bus);
	sigaction(SIGSEGV, &action, &segv);
	sig = sigsetjmp(jump, 1);
	if (sig == 0) {
		if (write)
			*at = 1;
		else
			(void)*at;
	}
	sigaction(SIGBUS, &bus, NULL);
	sigaction(SIGSEGV, &segv, NULL);
	return sig;
}

/* A mv that has come back may have returned before the mapping is in place again. */
static bool comes_back(volatile unsigned char *at)
{
	for (int i = 0; i < 5000; i++) {
		if (touch(at, false) == 0)
			return true;
		usleep(1000);
	}
	return false;
}

static void meet(const char *where)
{
	char line[64];

	printf("%s\n", where);
	fflush(stdout);
	CHECK(fgets(line, sizeof(line), stdin));
}

/* ---- scenarios ---------------------------------------------------------------------------------
 */

static void basic(void)
{
	int fd = open_file(O_RDWR);
	volatile unsigned char *p = mmap(NULL, SEGMENT_BYTES, RW, MAP_SHARED, fd, 0);

	CHECK(p != MAP_FAILED);
	CHECK((uintptr_t)p >= 0x100000000000ul && (uintptr_t)p % EXTENT_BYTES == 0);
	p[0] = 'a';
	p[SEGMENT_BYTES - 1] = 'z';
	CHECK(byte_of_file(0) == 'a' && byte_of_file(SEGMENT_BYTES - 1) == 'z');
	CHECK(pwrite(fd, "b", 1, 5) == 1 && p[5] == 'b');
	CHECK(msync((void *)p, SEGMENT_BYTES, MS_SYNC) == 0);
	CHECK(munmap((void *)p, SEGMENT_BYTES) == 0);
	CHECK(!is_mapped(p) && !is_mapped(p + SEGMENT_BYTES - 1));
	/* Nothing but the agent, and nothing of it in our table. */
	CHECK(count_entries("/proc/$PPID/task") == 2);
	CHECK(close(fd) == 0);
	CHECK(open("/dev/null", O_RDONLY) == fd);
}

static void partial(void)
{
	volatile unsigned char *two = map(2 * PAGE, RW, MAP_SHARED, 3 * PAGE), *all, *more;

	two[0] = 3;
	CHECK(byte_of_file(3 * PAGE) == 3);
	all = map(SEGMENT_BYTES, RW, MAP_SHARED, 0);
	CHECK(all + 3 * PAGE == two && all[3 * PAGE] == 3);
	CHECK(munmap((void *)two, 2 * PAGE) == 0);
	CHECK(all[3 * PAGE] == 3); /* was mapped twice */
	CHECK(munmap((void *)(all + PAGE), PAGE) == 0);
	CHECK(!is_mapped(all + PAGE) && is_mapped(all) && is_mapped(all + 2 * PAGE));
	all[0] = 1;
	all[2 * PAGE] = 2;
	more = map(4 * PAGE, RW, MAP_SHARED, 0);
	CHECK(more == all && is_mapped(all + PAGE));
	CHECK(munmap((void *)all, SEGMENT_BYTES) == 0);
	CHECK(is_mapped(all) && !is_mapped(all + PAGE) && is_mapped(all + 2 * PAGE));
	CHECK(!is_mapped(all + 4 * PAGE));
	CHECK(munmap((void *)all, 4 * PAGE) == 0 && !is_mapped(all));
}

static void large(void)
{
	int fd = open_file(O_RDWR);
	volatile unsigned char *p = map(PAGE, RW, MAP_SHARED, 0); /* the extent is given now */
	unsigned char *q;

	CHECK(mmap(NULL, EXTENT_BYTES, RW, MAP_SHARED, fd, 0) == p);
	p[SEGMENT_BYTES - 1] = 1;
	CHECK(touch(p + SEGMENT_BYTES, false) == SIGBUS); /* past the file's end */
	CHECK(ftruncate(fd, SEGMENT_BYTES + PAGE) == 0);
	p[SEGMENT_BYTES] = 7;
	CHECK(byte_of_file(SEGMENT_BYTES) == 7);
	CHECK(ftruncate(fd, SEGMENT_BYTES) == 0);
	errno = 0;
	q = mmap(NULL, EXTENT_BYTES + PAGE, RW, MAP_SHARED, fd, 0);
	CHECK(q == MAP_FAILED && errno == ENOMEM);
	q = mmap(NULL, 2 * PAGE, RW, MAP_SHARED, fd, EXTENT_BYTES - PAGE);
	CHECK(q == MAP_FAILED && errno == ENOMEM);
	CHECK(is_mapped(p) && is_mapped(p + EXTENT_BYTES - PAGE));
}

static void arguments(void)
{
	int fd = open_file(O_RDWR), ro = open_file(O_RDONLY), wo = open_file(O_WRONLY);
	unsigned char *p, *q;

	CHECK(mmap(NULL, 0, RW, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EINVAL);
	CHECK(mmap(NULL, PAGE, RW, MAP_SHARED, fd, 1) == MAP_FAILED && errno == EINVAL);
	CHECK(mmap(NULL, PAGE, RW, MAP_SHARED, ro, 0) == MAP_FAILED && errno == EACCES);
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, wo, 0) == MAP_FAILED && errno == EACCES);
	CHECK(mmap(NULL, PAGE, RW, MAP_SHARED, 999, 0) == MAP_FAILED && errno == EBADF);
	p = mmap((void *)0x123456789000, PAGE, RW, MAP_SHARED, fd, 0); /* only a hint */
	CHECK(p != MAP_FAILED && p != (void *)0x123456789000);
	q = mmap((void *)0x123456789000, PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0);
	CHECK(q == MAP_FAILED && errno == EINVAL);
	q = mmap(p, PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0);
	CHECK(q == p);
	q = mmap(p, PAGE, RW, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
	CHECK(q == MAP_FAILED && errno == EEXIST);
	q = mmap(p + PAGE, PAGE, RW, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, PAGE);
	CHECK(q == p + PAGE);
	errno = 77;
	q = mmap(NULL, PAGE, RW, MAP_SHARED_VALIDATE | MAP_POPULATE, fd, 8 * PAGE);
	CHECK(q == p + 8 * PAGE && errno == 77);
}

static void readonly(void)
{
	volatile unsigned char *p = map(SEGMENT_BYTES, PROT_READ, MAP_SHARED, 0), *q;

	CHECK(p[17] == 0);
	CHECK(touch((unsigned char *)p, true) == SIGSEGV);
	CHECK(mprotect((void *)p, PAGE, RW) == -1 && errno == EACCES);
	/* The same bytes through an open that may write: the same mapping, which may now. */
	q = map(4 * PAGE, RW, MAP_SHARED, 0);
	CHECK(q == p);
	q[0] = 'w';
	CHECK(p[0] == 'w' && byte_of_file(0) == 'w');
	CHECK(touch((unsigned char *)p + 4 * PAGE, true) == SIGSEGV);
}

static void protect(void)
{
	volatile unsigned char *p = map(4 * PAGE, RW, MAP_SHARED, 0);

	p[0] = 1;
	CHECK(mprotect((void *)p, PAGE, PROT_READ) == 0);
	CHECK(touch((unsigned char *)p, true) == SIGSEGV && touch((unsigned char *)p, false) == 0);
	CHECK(mprotect((void *)p, PAGE, PROT_NONE) == 0);
	CHECK(touch((unsigned char *)p, false) == SIGSEGV);
	CHECK(mprotect((void *)p, PAGE, RW) == 0);
	p[0] = 2;
	CHECK(madvise((void *)p, 4 * PAGE, MADV_DONTNEED) == 0 && p[0] == 2);
	CHECK(madvise((void *)p, 4 * PAGE, MADV_RANDOM) == 0);
	CHECK(madvise((void *)p, 4 * PAGE, MADV_DONTFORK) == 0);
	CHECK(madvise((void *)p, 4 * PAGE, MADV_DOFORK) == -1 && errno == EINVAL);
	p[2 * PAGE] = 9;
	CHECK(madvise((void *)(p + 2 * PAGE), PAGE, MADV_REMOVE) == 0);
	CHECK(p[2 * PAGE] == 0 && p[0] == 2 && byte_of_file(2 * PAGE) == 0);
}

static void remap(void)
{
	unsigned char *p = (unsigned char *)map(4 * PAGE, RW, MAP_SHARED, 0);

	p[0] = 1;
	CHECK(mremap(p, 4 * PAGE, 8 * PAGE, 0) == p);
	p[7 * PAGE] = 7;
	CHECK(byte_of_file(7 * PAGE) == 7);
	CHECK(mremap(p, 8 * PAGE, 2 * PAGE, MREMAP_MAYMOVE) == p);
	CHECK(!is_mapped(p + 2 * PAGE) && is_mapped(p + PAGE));
	CHECK(mremap(p, 2 * PAGE, SEGMENT_BYTES, MREMAP_MAYMOVE) == p && p[7 * PAGE] == 7);
	CHECK(mremap(p, SEGMENT_BYTES, EXTENT_BYTES + PAGE, MREMAP_MAYMOVE) == MAP_FAILED);
	CHECK(errno == ENOMEM);
	CHECK(mremap(p, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)0x123456789000) ==
	      MAP_FAILED);
	CHECK(errno == EINVAL && p[0] == 1);
	/* Over a part that is mapped by itself already. */
	CHECK(munmap(p + PAGE, SEGMENT_BYTES - PAGE) == 0);
	CHECK(map(PAGE, RW, MAP_SHARED, 2 * PAGE) == p + 2 * PAGE);
	CHECK(mremap(p, PAGE, 4 * PAGE, 0) == p);
	CHECK(munmap(p + 2 * PAGE, PAGE) == 0 && is_mapped(p + 2 * PAGE));
	CHECK(munmap(p, 4 * PAGE) == 0 && !is_mapped(p + 2 * PAGE));
}

/* Private copies stay private, in the child too. */
static void private(void)
{
	volatile unsigned char *p = map(4 * PAGE, RW, MAP_PRIVATE, 0);
	int status;
	pid_t pid;

	p[0] = 'p';
	CHECK(byte_of_file(0) == 0);
	pid = fork();
	if (pid == 0)
		_exit(p[0] == 'p' ? 0 : 1);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(mremap((void *)p, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE) != MAP_FAILED);
}

static void *count_up(void *arg)
{
	volatile unsigned char *p = arg;

	for (int i = 0; i < 100000; i++)
		p[(unsigned int)i % PAGE]++;
	return NULL;
}

static void wait_for(pid_t pid)
{
	int status;

	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void forks(void)
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

static void execs(void)
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

static void tree(void)
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

static void crowd(void)
{
	volatile unsigned char *p = map(PAGE, RW, MAP_SHARED, 0);
	static pthread_t crew[CROWD];
	pthread_attr_t attr;
	pid_t pid;

	CHECK(pthread_barrier_init(&all_there, NULL, CROWD + 1) == 0);
	CHECK(pthread_attr_init(&attr) == 0 && pthread_attr_setstacksize(&attr, 65536) == 0);
	for (int i = 0; i < CROWD; i++)
		CHECK(pthread_create(&crew[i], &attr, be_one_of_many, (void *)(p + i)) == 0);
	CHECK(count_entries("/proc/$PPID/task") == CROWD + 2);
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

#define MANY 250

/* So many segments, each closed when it is mapped; a child has them all, and they outlive their
   names. */
static void many(void)
{
	static volatile unsigned char *at[MANY];
	char name[PATH_MAX];
	pid_t pid;
	int fd;

	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "%s.%d", file, i);
		fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		CHECK(fd >= 0 && ftruncate(fd, PAGE) == 0);
		at[i] = mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0);
		CHECK(at[i] != MAP_FAILED);
		CHECK(close(fd) == 0);
		at[i][0] = (unsigned char)i;
	}
	pid = fork();
	if (pid == 0) {
		for (int i = 0; i < MANY; i++) {
			CHECK(at[i][0] == (unsigned char)i);
			at[i][1] = (unsigned char)~i;
		}
		_exit(0);
	}
	wait_for(pid);
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "%s.%d", file, i);
		CHECK(unlink(name) == 0);
	}
	for (int i = 0; i < MANY; i++)
		CHECK(at[i][0] == (unsigned char)i && at[i][1] == (unsigned char)~i);
	for (int i = 0; i < MANY; i += 2)
		CHECK(munmap((void *)at[i], PAGE) == 0 && !is_mapped(at[i]));
	CHECK(at[1][0] == 1);
}

/* A name that goes before the first mapping takes the address with it; one that goes later does
   not. */
static void unlinked(void)
{
	int fd = open_file(O_RDWR), other;
	volatile unsigned char *p, *q;
	char name[PATH_MAX];

	snprintf(name, sizeof(name), "%s.never", file);
	other = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	CHECK(other >= 0 && ftruncate(other, PAGE) == 0 && unlink(name) == 0);
	CHECK(pwrite(other, "x", 1, 0) == 1);
	CHECK(mmap(NULL, PAGE, RW, MAP_SHARED, other, 0) == MAP_FAILED && errno == ENODEV);
	p = mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED && unlink(file) == 0);
	p[0] = 1;
	q = mmap(NULL, 2 * PAGE, RW, MAP_SHARED, fd, 0);
	CHECK(q == p && q[0] == 1);
	q[PAGE] = 2;
	CHECK(munmap((void *)p, 2 * PAGE) == 0);
	q = mmap(NULL, 2 * PAGE, RW, MAP_SHARED, fd, 0);
	CHECK(q == p && q[0] == 1 && q[PAGE] == 2);
}

/* A library that the program has loaded by itself maps; one in a namespace of its own has another C
   library, past the shim: refused, as without it. */
static void loaded(void)
{
	typedef void *map_file(const char *name, unsigned long len);
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);
	volatile unsigned char *p;
	map_file *fn;
	void *lib;

	CHECK(n > 0);
	path[n] = 0;
	memcpy(strrchr(path, '/'), "/shim_plugin.so", sizeof("/shim_plugin.so"));
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	CHECK(lib);
	*(void **)&fn = dlsym(lib, "map_file");
	p = fn(file, SEGMENT_BYTES);
	CHECK(p && p == map(SEGMENT_BYTES, RW, MAP_SHARED, 0));
	p[0] = 5;
	CHECK(byte_of_file(0) == 5);
	lib = dlmopen(LM_ID_NEWLM, path, RTLD_NOW | RTLD_LOCAL);
	CHECK(lib);
	*(void **)&fn = dlsym(lib, "map_file");
	CHECK(!fn(file, SEGMENT_BYTES));
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

static void threads(void)
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

/* The same for some seconds, while somebody kills the daemon. */
static void endure(void)
{
	time_t end = time(NULL) + 6;

	while (time(NULL) < end) {
		stop = false;
		threads();
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

static void signals(void)
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
static void daemonlike(void)
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
static void leaver(void)
{
	volatile unsigned char *p = map(PAGE, RW, MAP_SHARED, 0);
	pthread_t thread;

	p[0] = 1;
	CHECK(pthread_create(&thread, NULL, exit_late, NULL) == 0);
	pthread_detach(thread);
	pthread_exit(NULL);
}

/* ---- with somebody who moves the segment --------------------------------------------------------
 */

static _Atomic unsigned long stores;

static void *store_on(void *arg)
{
	volatile unsigned char *p = arg;

	while (!stop) {
		p[(stores % 512) * PAGE]++;
		stores++;
	}
	return NULL;
}

/* Freezes and thaws under a writer. */
static void frozen(void)
{
	volatile unsigned char *p = map(SEGMENT_BYTES, RW, MAP_SHARED, 0);
	pthread_t writer;
	unsigned long before;

	CHECK(pthread_create(&writer, NULL, store_on, (void *)p) == 0);
	while (stores < 10000) /* every page is mapped */
		usleep(100);
	meet("writing");
	before = stores;
	usleep(20000);
	CHECK(stores <= before + 1); /* revoked */
	meet("frozen");
	before = stores;
	for (int i = 0; i < 1000 && stores == before; i++)
		usleep(1000);
	CHECK(stores > before);
	stop = true;
	CHECK(pthread_join(writer, NULL) == 0);
}

/* Goes and comes back. */
static void gone(void)
{
	volatile unsigned char *p = map(SEGMENT_BYTES, RW, MAP_SHARED, 0);
	unsigned char *q = (unsigned char *)p;
	int pipes[2];

	CHECK(pipe(pipes) == 0);
	for (unsigned int i = 0; i < 8; i++)
		p[i * PAGE] = (unsigned char)(i + 1);
	CHECK(mprotect(q + 2 * PAGE, PAGE, PROT_READ) == 0);
	meet("here");
	CHECK(touch(q, false) == SIGBUS && touch(q, true) == SIGBUS);
	CHECK(touch(q + SEGMENT_BYTES - 1, false) == SIGBUS);
	CHECK(write(pipes[1], q + PAGE, 1) == -1 && errno == EFAULT);
	/* What is done to it while it is away holds when it is back. */
	CHECK(munmap(q + 4 * PAGE, PAGE) == 0);
	CHECK(mprotect(q + 5 * PAGE, PAGE, PROT_READ) == 0);
	meet("gone");
	CHECK(comes_back(q) && comes_back(q + 2 * PAGE) && comes_back(q + SEGMENT_BYTES - 1));
	CHECK(p[0] == 1 && p[PAGE] == 2 && p[3 * PAGE] == 4);
	p[0] = 'x';
	CHECK(byte_of_file(0) == 'x');
	CHECK(touch(q + 2 * PAGE, true) == SIGSEGV && p[2 * PAGE] == 3);
	CHECK(!is_mapped(q + 4 * PAGE));
	CHECK(touch(q + 5 * PAGE, true) == SIGSEGV && p[5 * PAGE] == 6);
	CHECK(munmap(q, SEGMENT_BYTES) == 0 && !is_mapped(q));
}

/* Puts something of its own, past the shim, where it has unmapped a page of what is gone. */
static void squat(void)
{
	unsigned char *q = (unsigned char *)map(SEGMENT_BYTES, RW, MAP_SHARED, 0),
		      *own = q + 4 * PAGE;

	q[0] = 1;
	meet("here");
	CHECK(munmap(own, PAGE) == 0);
	CHECK(syscall(SYS_mmap, own, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
		      -1, 0) == (long)own);
	memset(own, 's', PAGE);
	meet("squats");
	CHECK(own[0] == 's' && own[PAGE - 1] == 's');
	CHECK(touch(q, false) == SIGBUS);
	CHECK(syscall(SYS_munmap, own, PAGE) == 0);
	meet("left");
	CHECK(comes_back(q) && q[0] == 1);
	CHECK(!is_mapped(own));
}

/* Follows its segment from node to node, in one process: $SHIM_OTHER is where it goes. */
static void follow(void)
{
	volatile unsigned char *p = map(SEGMENT_BYTES, RW, MAP_SHARED, 0), *q;
	const char *first = file;

	p[0] = 1;
	meet("first");
	CHECK(touch((unsigned char *)p, false) == SIGBUS);
	file = getenv("SHIM_OTHER");
	q = map(SEGMENT_BYTES, RW, MAP_SHARED, 0);
	CHECK(q == p && q[0] == 1);
	q[1] = 2;
	meet("other");
	/* Back again. The first node may have seen that we map it through the other, and have
	   forgotten us: so it is mapped anew. */
	file = first;
	touch((unsigned char *)p, false);
	CHECK(map(SEGMENT_BYTES, RW, MAP_SHARED, 0) == p);
	CHECK(p[0] == 1 && p[1] == 2);
	p[2] = 3;
	CHECK(byte_of_file(2) == 3);
	meet("back");
	CHECK(touch((unsigned char *)p, false) == SIGBUS || p[2] == 3);
}

/* Forks while the segment goes and comes: a child has what its parent has, the segment's bytes or
   SIGBUS, and never anything else. */
static void beside(void)
{
	volatile unsigned char *p = map(SEGMENT_BYTES, RW, MAP_SHARED, 0);
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	unsigned int children = 0, there = 0;
	pid_t pid;
	int status, sig;

	for (unsigned long at = 0; at < SEGMENT_BYTES; at += PAGE)
		p[at] = (unsigned char)(1 + at / PAGE % 251);
	printf("forking\n");
	fflush(stdout);
	while (poll(&in, 1, 0) == 0) {
		unsigned long page = children * 7919ul % (SEGMENT_BYTES / PAGE);

		pid = fork();
		if (pid == 0) {
			sig = touch((unsigned char *)p + page * PAGE, false);
			if (sig == 0 && p[page * PAGE] != 1 + page % 251)
				_exit(1);
			_exit(sig);
		}
		CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
		if (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != SIGBUS)
			fprintf(stderr, "child %u: %d\n", children, WEXITSTATUS(status));
		CHECK(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == SIGBUS);
		there += WEXITSTATUS(status) == 0;
		children++;
	}
	CHECK(children > 20 && there > 0);
	CHECK(comes_back((unsigned char *)p));
}

/* Waits while the daemon goes and comes, and maps and forks afterwards. */
static void restart(void)
{
	volatile unsigned char *p = map(PAGE, RW, MAP_SHARED, 0), *q;
	pid_t pid;

	p[0] = 1;
	meet("mapped");
	p[0] = 2;
	q = map(PAGE, RW, MAP_SHARED, 8 * PAGE);
	CHECK(q == p + 8 * PAGE);
	pid = fork();
	if (pid == 0) {
		CHECK(p[0] == 2);
		q[0] = 4;
		_exit(0);
	}
	wait_for(pid);
	CHECK(q[0] == 4);
	meet("forked");
}

/* Its child gets no answer from the daemon. */
static void orphan(void)
{
	volatile unsigned char *p = map(PAGE, RW, MAP_SHARED, 0);
	pid_t pid;

	meet("mapped");
	p[0] = 1;
	pid = fork();
	if (pid == 0) {
		CHECK(touch((unsigned char *)p, false) == SIGSEGV);
		_exit(0);
	}
	wait_for(pid);
	CHECK(p[0] == 1);
}

static const struct scenario {
	const char *name;
	void (*run)(void);
} scenarios[] = {
	{"basic", basic},	{"partial", partial},
	{"large", large},	{"arguments", arguments},
	{"readonly", readonly}, {"protect", protect},
	{"remap", remap},	{"private", private},
	{"forks", forks},	{"execs", execs},
	{"threads", threads},	{"endure", endure},
	{"signals", signals},	{"daemonlike", daemonlike},
	{"leaver", leaver},	{"frozen", frozen},
	{"gone", gone},		{"restart", restart},
	{"orphan", orphan},	{"follow", follow},
	{"tree", tree},		{"crowd", crowd},
	{"many", many},		{"unlinked", unlinked},
	{"loaded", loaded},	{"beside", beside},
	{"squat", squat},
};

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	file = argv[1];
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
		if (strcmp(argv[2], scenarios[i].name) == 0) {
			scenarios[i].run();
			return 0;
		}
	fprintf(stderr, "no scenario %s\n", argv[2]);
	return 2;
}
