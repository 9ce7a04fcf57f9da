/*
 * Programs that make it hard to take a segment away from them, and to give it back: whatever they
 * are allowed no more, whatever they do at that moment, a touch has an end, what they see is right,
 * and what is their own stays theirs.
 *
 *	rampfs-run awkward data|as|lock|files FILE
 *		after it has mapped FILE it may have no more memory of its own, addresses, locked
 *		memory or open files than it has. Says "mapped", and "gone" when a load is the
 *		signal that it shall be; ends when it has what it stored in its hands again
 *	rampfs-run awkward again FILE
 *		when FILE has gone it maps it again, through the same open file, until it may
 *	rampfs-run awkward over FILE THERE ROUNDS
 *		moves FILE to THERE and back, and has put memory of its own in its place by then
 *
 * Exit status 0: all was as it shall be.
 */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BYTES	    (64u << 20)
#define OVER_BYTES  (2u << 20)
#define ROOM	    (32u << 20) /* less than BYTES */
#define LOCKED	    (4u << 20)	/* once and a half is what a user may lock, as a rule */
#define PATIENCE_US 20000000u
#define STORED	    UINT64_C(0x5245544e454d4553)
#define NOBODY	    65534
#define PAGE_BYTES  4096

static sigjmp_buf on_signal;

static void jump(int number)
{
	siglongjmp(on_signal, number);
}

static uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static _Noreturn void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* The signal that a load is; 0: *got is what it shows. */
static int touch(const volatile uint64_t *at, uint64_t *got)
{
	int number = sigsetjmp(on_signal, 1);

	if (number)
		return number;
	*got = *at;
	return 0;
}

static volatile uint64_t *map(int fd, size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

/* Until a load is that signal, or for 0 shows what was stored. */
static void await(const volatile uint64_t *at, int wanted)
{
	uint64_t until = now_us() + PATIENCE_US, got = 0;
	int number;

	while ((number = touch(at, &got)) != wanted) {
		if (now_us() > until) {
			printf("a load is signal %d, not %d\n", number, wanted);
			exit(1);
		}
		usleep(200);
	}
	if (!wanted && got != STORED) {
		printf("a load shows %lx\n", (unsigned long)got);
		exit(1);
	}
}

/* ---- limits ------------------------------------------------------------------------------------
 */

static rlim_t mapped_bytes(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	unsigned long pages = 0;

	if (!file || fscanf(file, "%lu", &pages) != 1)
		fail("statm");
	fclose(file);
	return (rlim_t)pages * PAGE_BYTES;
}

static void limit(__rlimit_resource_t what, rlim_t most)
{
	struct rlimit limit = {most, most};

	if (setrlimit(what, &limit))
		fail("setrlimit");
}

static void set_limit(const char *which, const volatile uint64_t *at)
{
	if (strcmp(which, "data") == 0) {
		limit(RLIMIT_DATA, ROOM);
	} else if (strcmp(which, "as") == 0) {
		limit(RLIMIT_AS, mapped_bytes() + ROOM);
	} else if (strcmp(which, "files") == 0) {
		limit(RLIMIT_NOFILE, 0);
	} else {
		limit(RLIMIT_MEMLOCK, LOCKED + LOCKED / 2);
		if (setuid(NOBODY) || mlockall(MCL_FUTURE) || mlock((void *)at, LOCKED))
			fail("mlockall");
	}
}

/* Without room for both there is no way back into its place, but room for it when that is free. */
static void map_anew(const char *path, const volatile uint64_t *at)
{
	uint64_t until = now_us() + PATIENCE_US;
	const volatile uint64_t *anew;
	int fd;

	while ((fd = open(path, O_RDWR)) < 0)
		if (now_us() > until)
			fail(path);
	if (munmap((void *)at, BYTES))
		fail("munmap");
	while (!(anew = map(fd, BYTES))) /* what shall put it in its place may have its room yet */
		if (now_us() > until)
			fail("mapping it anew");
	if (anew != at)
		exit(1);
	await(at, 0);
}

static int limited(const char *which, const char *path)
{
	bool files = strcmp(which, "files") == 0, locked = strcmp(which, "lock") == 0;
	volatile uint64_t *at = map(open(path, O_RDWR), locked ? LOCKED : BYTES);

	if (!at)
		fail(path);
	*at = STORED;
	set_limit(which, at);
	puts("mapped");
	await(at, files ? SIGSEGV : SIGBUS);
	puts("gone");
	if (strcmp(which, "as") == 0)
		map_anew(path, at);
	else if (!files)
		await(at, 0);
	return 0;
}

/* ---- again -------------------------------------------------------------------------------------
 */

static int again(const char *path)
{
	int fd = open(path, O_RDWR), number;
	volatile uint64_t *at = map(fd, BYTES), *anew;
	uint64_t until = now_us() + PATIENCE_US, got = 0;

	if (!at)
		fail(path);
	*at = STORED;
	puts("mapped");
	await(at, SIGBUS);
	puts("gone");
	while (!(anew = map(fd, BYTES)))
		if (now_us() > until)
			fail("mapping it again");
	number = touch(anew, &got);
	if (anew == at && number == 0 && got == STORED)
		return 0;
	printf("mapped again, a load is signal %d, or %lx\n", number, (unsigned long)got);
	return 1;
}

/* ---- over --------------------------------------------------------------------------------------
 */

static char **paths;

static void *come_back(void *unused)
{
	(void)unused;
	while (rename(paths[1], paths[0]))
		usleep(1000);
	return NULL;
}

static nlink_t count_threads(void)
{
	struct stat st;

	if (stat("/proc/self/task", &st))
		fail("/proc/self/task");
	return st.st_nlink;
}

/* Until the shim has a thread more, which puts the segment in its place, or for long enough. */
static bool await_swap(void)
{
	uint64_t until = now_us() + 200000;
	nlink_t before;

	usleep(300); /* for the thread that moves it to have begun */
	before = count_threads();
	while (now_us() < until)
		if (count_threads() > before)
			return true;
	return false;
}

static void write_own(volatile uint64_t *at)
{
	for (size_t i = 0; i < OVER_BYTES / sizeof(*at); i += 512)
		at[i] = STORED + i;
}

static bool is_own(const volatile uint64_t *at)
{
	bool own = true;

	for (size_t i = 0; i < OVER_BYTES / sizeof(*at); i += 512)
		own &= at[i] == STORED + i;
	return own;
}

static volatile uint64_t *send_away(void)
{
	int fd = open(paths[0], O_RDWR);
	volatile uint64_t *at = map(fd, OVER_BYTES);

	if (!at)
		fail(paths[0]);
	close(fd);
	*at = STORED;
	while (rename(paths[0], paths[1]))
		usleep(1000);
	await(at, SIGBUS);
	return at;
}

/* False: there was nothing to meet. */
static bool put_over(void)
{
	volatile uint64_t *at = send_away();
	pthread_t thread;
	bool met, own;
	int number;

	if (pthread_create(&thread, NULL, come_back, NULL))
		fail("a thread");
	met = await_swap();
	if (mmap((void *)at, OVER_BYTES, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at)
		fail("memory of its own");
	number = sigsetjmp(on_signal, 1);
	if (number) {
		printf("memory of its own is signal %d\n", number);
		exit(1);
	}
	write_own(at);
	pthread_join(thread, NULL);
	usleep(1000);
	own = is_own(at);
	if (!own)
		puts("memory of its own shows something else");
	if (!own || munmap((void *)at, OVER_BYTES))
		exit(1);
	return met;
}

static int over(int rounds)
{
	int met = 0;

	for (int i = 0; i < rounds; i++)
		met += put_over();
	printf("met it %d times of %d\n", met, rounds);
	return met == 0;
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = jump};

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 3 || sigaction(SIGBUS, &action, NULL) || sigaction(SIGSEGV, &action, NULL))
		return 2;
	paths = argv + 2;
	if (strcmp(argv[1], "over") == 0)
		return argc == 5 ? over(atoi(argv[4])) : 2;
	return strcmp(argv[1], "again") == 0 ? again(argv[2]) : limited(argv[1], argv[2]);
}
