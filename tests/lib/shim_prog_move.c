/* Beside a program its segment goes and comes back, freezes and thaws; its daemon dies. */
#include "shim_prog.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define AWAY (64ul << 30) /* as the daemon chooses it */

/* Whether the program has an entry for that page. */
static bool is_present(const unsigned char *at)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	unsigned long entry;

	CHECK(pread(fd, &entry, sizeof(entry), (off_t)((unsigned long)at / PAGE * sizeof(entry))) ==
	      sizeof(entry));
	close(fd);
	return entry >> 63;
}

static _Atomic bool stop;
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
void scenario_frozen(void)
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

/* Returns how much memory the process has locked, in KiB. */
static long locked_kib(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	char line[128];
	long kib = -1;

	CHECK(status);
	while (fgets(line, sizeof(line), status))
		if (strncmp(line, "VmLck:", 6) == 0)
			kib = strtol(line + 6, NULL, 10);
	fclose(status);
	return kib;
}

/* Page tables are moved away, and back: in several mappings, one of them locked, under a writer. The
   program's changes meanwhile count. */
void scenario_moved(void)
{
	unsigned char *q = (unsigned char *)map(SEGMENT_BYTES, RW, MAP_SHARED, 0);
	pthread_t writer;
	unsigned long before;
	pid_t child;

	for (unsigned int page = 0; page < SEGMENT_BYTES / PAGE; page++)
		q[page * PAGE] = (unsigned char)page;
	CHECK(mprotect(q + 600 * PAGE, PAGE, PROT_READ) == 0);
	CHECK(mlock(q + 900 * PAGE, 2 * PAGE) == 0);
	CHECK(pthread_create(&writer, NULL, store_on, q) == 0);
	while (stores < 10000)
		usleep(100);
	meet("writing");
	before = stores;
	usleep(20000);
	CHECK(stores <= before + 1);
	CHECK(!is_present(q + 600 * PAGE) && !is_present(q + 1000 * PAGE));
	CHECK(mprotect(q + 700 * PAGE, 2 * PAGE, PROT_READ) == 0);
	CHECK(munmap(q + 800 * PAGE, PAGE) == 0);
	child = fork();
	if (child == 0)
		_exit(is_mapped(q + AWAY));
	wait_for(child);
	meet("frozen");
	before = stores;
	for (int i = 0; i < 1000 && stores == before; i++)
		usleep(1000);
	CHECK(stores > before);
	CHECK(!is_mapped(q + AWAY) && !is_mapped(q + 800 * PAGE));
	meet("thawed");
	CHECK(munlock(q + 900 * PAGE, 2 * PAGE) == 0 && locked_kib() == 0);
	CHECK(touch(q + 600 * PAGE, true) == SIGSEGV && touch(q + 700 * PAGE, true) == SIGSEGV);
	CHECK(touch(q + 701 * PAGE, true) == SIGSEGV && touch(q + 702 * PAGE, true) == 0);
	for (unsigned int page = 512; page < SEGMENT_BYTES / PAGE; page++)
		CHECK(page == 702 || page == 800 || q[page * PAGE] == (unsigned char)page);
	stop = true;
	CHECK(pthread_join(writer, NULL) == 0);
}

/* Its limits allow it no second mapping. */
void scenario_limited(void)
{
	struct rlimit limit = {.rlim_cur = PAGE, .rlim_max = RLIM_INFINITY};

	(void)map(SEGMENT_BYTES, RW, MAP_SHARED, 0);
	meet("mapped");
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	meet("limited");
	limit.rlim_cur = RLIM_INFINITY;
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	scenario_frozen();
}

/* Goes and comes back. */
void scenario_gone(void)
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
	/* Changes of it while it is away hold when it is back. */
	CHECK(munmap(q + 4 * PAGE, PAGE) == 0);
	CHECK(pkey_mprotect(q + 5 * PAGE, PAGE, PROT_READ, -1) == 0);
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

/* Closes its stderr, which the shim does not keep open. */
void scenario_closer(void)
{
	CHECK(is_mapped(map(PAGE, RW, MAP_SHARED, 0)));
	CHECK(close(STDERR_FILENO) == 0);
	meet("closed");
}

static void *go_on_alone(void *arg)
{
	(void)arg;
	while (access("/proc/self/fd/0", F_OK) == 0)
		usleep(1000);
	scenario_gone();
	exit(0);
}

/* Its first thread has ended: /proc/PID/fd is empty. */
void scenario_headless(void)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, go_on_alone, NULL) == 0);
	pthread_exit(NULL);
}

#define MOSAIC 10000

/* Goes and comes back beside as many other mappings as a large program has. */
void scenario_mosaic(void)
{
	unsigned char *own = mmap(NULL, MOSAIC * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(own != MAP_FAILED);
	for (unsigned long i = 0; i < MOSAIC; i += 2)
		CHECK(mprotect(own + i * PAGE, PAGE, PROT_READ) == 0);
	CHECK(count_lines("/proc/$PPID/maps") > MOSAIC);
	scenario_gone();
}

/* Goes and comes back where there are as many pieces as there may be, and the kernel has cut
   one. */
void scenario_crammed(void)
{
	unsigned char *q = (unsigned char *)map_all_pieces();

	q[0] = 1;
	CHECK(mlock(q + 4 * PAGE, PAGE) == 0);
	meet("here");
	alarm(20); /* it must not wait for ever */
	for (unsigned int page = 3; page < 6; page++)
		CHECK(touch(q + page * PAGE, false) == SIGBUS);
	CHECK(touch(q + EXTENT_BYTES - 1, false) == SIGBUS);
	meet("gone");
	CHECK(touch(q, false) == SIGBUS);
	for (unsigned long i = LARGE_PAGES + 1; i < LARGE_PAGES + 4; i += 2)
		CHECK(munmap(q + i * PAGE, PAGE) == 0);
	meet("room");
	CHECK(comes_back(q) && q[0] == 1);
	CHECK(touch(q + 4 * PAGE, false) == SIGBUS);
}

/* Enters a chroot where there is neither /run nor /proc. */
void scenario_jailed(void)
{
	unsigned char *q = (unsigned char *)map(SEGMENT_BYTES, RW, MAP_SHARED, 0);

	q[0] = 1;
	q[SEGMENT_BYTES - 1] = 2;
	CHECK(chroot("/usr/lib") == 0 && chdir("/") == 0);
	meet("jailed");
	q[PAGE] = 3;
	meet("another daemon");
	CHECK(touch(q, false) == SIGBUS);
	meet("gone");
	CHECK(comes_back(q) && q[0] == 1 && q[PAGE] == 3 && q[SEGMENT_BYTES - 1] == 2);
}

/* Maps something of its own, past the shim, where it has unmapped a page of a segment that is
   gone. */
void scenario_squat(void)
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

/* Allows access to a part of a segment that is gone, and touches it all the time while it is put in
   place. */
void scenario_allowed(void)
{
	unsigned char *q = (unsigned char *)map(SEGMENT_BYTES, RW, MAP_SHARED, 0);
	int number;

	CHECK(mprotect(q, SEGMENT_BYTES, PROT_NONE) == 0);
	meet("here");
	for (unsigned int page = 2; page < 8; page += 2)
		CHECK(mprotect(q + page * PAGE, PAGE, page == 4 ? PROT_READ : RW) == 0);
	printf("allowed\n");
	fflush(stdout);
	while ((number = touch(q + 2 * PAGE, true)) == SIGBUS)
		usleep(1000);
	CHECK(number == 0);
	CHECK(touch(q + 4 * PAGE, false) == 0 && touch(q + 4 * PAGE, true) == SIGSEGV);
	CHECK(comes_back(q + 6 * PAGE) && touch(q + 6 * PAGE, true) == 0);
	for (unsigned int page = 1; page < 8; page += 2)
		CHECK(touch(q + page * PAGE, false) == SIGSEGV);
	CHECK(touch(q + SEGMENT_BYTES - PAGE, false) == SIGSEGV);
}

/* Allows access to a part in the midst of that: mprotect returns when all is in its place. */
void scenario_late(void)
{
	unsigned char *q = (unsigned char *)map(SEGMENT_BYTES, RW, MAP_SHARED, 0);

	CHECK(mprotect(q, SEGMENT_BYTES, PROT_NONE) == 0);
	meet("here");
	CHECK(mprotect(q + 2 * PAGE, PAGE, RW) == 0);
	printf("allowed\n");
	fflush(stdout);
	usleep(150000); /* the first part is in place by then */
	CHECK(mprotect(q + 8 * PAGE, PAGE, RW) == 0);
	CHECK(touch(q + 8 * PAGE, true) == 0);
	CHECK(touch(q + 2 * PAGE, true) == 0 && touch(q, false) == SIGSEGV);
}

/* Maps a part of it once more, with more access, in the midst of that. */
void scenario_widened(void)
{
	unsigned char *q = (unsigned char *)map(SEGMENT_BYTES, RW, MAP_SHARED, 0);

	meet("here");
	CHECK(mprotect(q + 2 * PAGE, PAGE, PROT_READ) == 0);
	printf("allowed\n");
	fflush(stdout);
	usleep(150000);
	CHECK(map(PAGE, RW, MAP_SHARED, 2 * PAGE) == q + 2 * PAGE);
	CHECK(touch(q + 2 * PAGE, true) == 0 && touch(q, true) == 0);
}

/* Lets it grow in the midst of that. */
void scenario_grown(void)
{
	unsigned char *q = (unsigned char *)map(SEGMENT_BYTES / 2, RW, MAP_SHARED, 0);

	meet("here");
	CHECK(mprotect(q + 2 * PAGE, PAGE, PROT_READ) == 0);
	printf("allowed\n");
	fflush(stdout);
	usleep(150000);
	CHECK(mremap(q, SEGMENT_BYTES / 2, SEGMENT_BYTES, 0) == q);
	CHECK(touch(q + SEGMENT_BYTES - 1, true) == 0 && touch(q, true) == 0);
}

/* Grows: refused, allowed, and without another question; by the next daemon; by an older one. */
void scenario_growing(void)
{
	unsigned char *q = (unsigned char *)map(4 * PAGE, RW, MAP_SHARED, 0);

	meet("here");
	CHECK(mremap(q, 4 * PAGE, 8 * PAGE, 0) == MAP_FAILED && errno == ENOMEM);
	CHECK(!is_mapped(q + 4 * PAGE) && touch(q, true) == 0);
	CHECK(mremap(q, 4 * PAGE, 2 * PAGE, 0) == q);
	meet("refused");
	CHECK(mremap(q, 2 * PAGE, 8 * PAGE, 0) == q && touch(q + 7 * PAGE, true) == 0);
	CHECK(mremap(q, 8 * PAGE, 9 * PAGE, MREMAP_MAYMOVE) == q);
	meet("allowed");
	CHECK(mremap(q, 9 * PAGE, 10 * PAGE, 0) == q && touch(q + 9 * PAGE, true) == 0);
	meet("again");
	CHECK(mremap(q, 10 * PAGE, 11 * PAGE, 0) == q && touch(q + 10 * PAGE, true) == 0);
	meet("older");
}

/* Makes a child in the midst of that: where nothing of it is mapped, the child has nothing
   either. */
void scenario_holed(void)
{
	unsigned char *q = (unsigned char *)map(SEGMENT_BYTES, RW, MAP_SHARED, 0);
	pid_t pid;

	meet("here");
	CHECK(mprotect(q + 2 * PAGE, PAGE, PROT_READ) == 0);
	CHECK(munmap(q + 8 * PAGE, PAGE) == 0);
	printf("allowed\n");
	fflush(stdout);
	usleep(150000); /* the first part is in place by then, and the part with the hole is not */
	CHECK(is_mapped(q + 8 * PAGE));
	pid = _Fork();
	if (pid == 0)
		_exit(is_mapped(q + 8 * PAGE));
	wait_for(pid);
	CHECK(comes_back(q + 9 * PAGE) && touch(q, true) == 0);
}

/* Puts something of its own over a segment that leaves while its pages are slowly filled. */
void scenario_covered(void)
{
	unsigned char *q = (unsigned char *)map(PAGE, RW, MAP_SHARED, 0);
	int fd = open_file(O_RDONLY);

	q[0] = 'x';
	meet("here");
	printf("covers\n");
	fflush(stdout);
	CHECK(mmap(q, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED | MAP_POPULATE, fd, 0) == q);
	meet("covered");
	CHECK(touch(q, false) == 0 && q[0] == 'x');
}

/* Has memory of its own in the midst of a segment, since its daemon has looked. */
void scenario_own(void)
{
	unsigned char *q = (unsigned char *)map(SEGMENT_BYTES, RW, MAP_SHARED, 0),
		      *own = q + 4 * PAGE;

	for (unsigned int page = 0; page < 16; page++)
		q[page * PAGE] = (unsigned char)(page + 1);
	CHECK(mprotect(q + PAGE, PAGE, PROT_READ) == 0);
	meet("here");
	CHECK(mmap(own, 2 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == own);
	CHECK(munmap(q + 8 * PAGE, PAGE) == 0);
	memset(own, 's', 2 * PAGE);
	meet("covered");
	CHECK(own[0] == 's' && own[2 * PAGE - 1] == 's');
	for (unsigned int page = 0; page < 16; page++)
		CHECK(page == 4 || page == 5 || page == 8 || !is_present(q + page * PAGE));
	CHECK(q[0] == 1 && q[PAGE] == 2 && q[6 * PAGE] == 7 && q[15 * PAGE] == 16);
}

static off_t bytes_of(const char *path)
{
	struct stat st;

	CHECK(stat(path, &st) == 0);
	return st.st_size;
}

/* Has closed stderr, whose number its data gets; then a log is in its place. */
void scenario_reused(void)
{
	char data[] = "/tmp/shim-data.XXXXXX", log[] = "/tmp/shim-log.XXXXXX";
	int fd = open_file(O_RDWR), pipefd[2], other;
	struct pollfd arrived;

	CHECK(mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0) != MAP_FAILED);
	CHECK(close(mkstemp(log)) == 0 && close(STDERR_FILENO) == 0);
	CHECK(mkstemp(data) == STDERR_FILENO);
	CHECK(mmap(NULL, 2 * EXTENT_BYTES, RW, MAP_SHARED, fd, 0) == MAP_FAILED);
	meet("here");
	CHECK(bytes_of(data) == 0 && unlink(data) == 0);
	CHECK(pipe(pipefd) == 0 && dup2(pipefd[1], STDERR_FILENO) == STDERR_FILENO);
	CHECK(mmap(NULL, 2 * EXTENT_BYTES, RW, MAP_SHARED, fd, 0) == MAP_FAILED);
	arrived = (struct pollfd){.fd = pipefd[0], .events = POLLIN};
	CHECK(poll(&arrived, 1, 0) == 0);
	other = open(log, O_WRONLY);
	CHECK(dup2(other, STDERR_FILENO) == STDERR_FILENO);
	CHECK(mmap(NULL, 2 * EXTENT_BYTES, RW, MAP_SHARED, fd, 0) == MAP_FAILED);
	CHECK(bytes_of(log) > 0 && unlink(log) == 0);
}

/* Follows its segment from node to node, in one process: it goes to $SHIM_OTHER. */
void scenario_follow(void)
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
	   forgotten us: so it is mapped again. */
	file = first;
	touch((unsigned char *)p, false);
	CHECK(map(SEGMENT_BYTES, RW, MAP_SHARED, 0) == p);
	CHECK(p[0] == 1 && p[1] == 2);
	p[2] = 3;
	CHECK(byte_of_file(2) == 3);
	meet("back");
	CHECK(touch((unsigned char *)p, false) == SIGBUS || p[2] == 3);
}

/* Forks while the segment goes and comes: a child gets its parent's view, the segment's bytes or
   SIGBUS, and never anything else. */
void scenario_beside(void)
{
	volatile unsigned char *p = map(SEGMENT_BYTES, RW, MAP_SHARED, 0);
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	unsigned int children = 0, there = 0;
	pid_t pid;
	int status;

	for (unsigned long at = 0; at < SEGMENT_BYTES; at += PAGE)
		p[at] = (unsigned char)(1 + at / PAGE % 251);
	printf("forking\n");
	fflush(stdout);
	while (poll(&in, 1, 0) == 0) {
		unsigned long page = children * 7919ul % (SEGMENT_BYTES / PAGE);

		pid = fork();
		if (pid == 0) {
			signal(SIGBUS, _exit);
			signal(SIGSEGV, _exit);
			_exit(p[page * PAGE] != 1 + page % 251);
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
void scenario_restart(void)
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

/* Its child gets no answer from the daemon, or a bad one: the child has no mapping, nor gets one
   later. */
void scenario_orphan(void)
{
	volatile unsigned char *p = map(PAGE, RW, MAP_SHARED, 0);
	pid_t pid;

	meet("mapped");
	p[0] = 1;
	pid = fork();
	if (pid == 0) {
		for (int i = 0; i < 30; i++) {
			CHECK(touch((unsigned char *)p, false) == SIGSEGV);
			usleep(10000);
		}
		_exit(0);
	}
	wait_for(pid);
	CHECK(p[0] == 1);
}

/* Forks while the segment is gone; it is here again before the child has its mappings. */
void scenario_reborn(void)
{
	volatile unsigned char *p = map(PAGE, RW, MAP_SHARED, 0);
	pid_t pid;

	p[0] = 1;
	meet("here");
	pid = fork();
	if (pid == 0) {
		CHECK(p[0] == 1);
		CHECK(map(PAGE, RW, MAP_SHARED, 0) == p);
		_exit(0);
	}
	wait_for(pid);
}
