/*
 * A program's view of a segment: run by rampfs-run, knows nothing of rampfs.
 *
 *	touch fill FILE MIB small|huge		makes FILE and stores into every page
 *	touch fault FILE COUNT			loads from COUNT random pages; us per load, one a
 *						line
 *	touch chase FILE			the same while FILE is being pulled, until its pages
 *						are there; of loads that found theirs there: nothing
 *	touch await FILE			says when the first load was made (seconds of
 *						CLOCK_MONOTONIC) after FILE was away
 *	touch write FILE THREADS [MIB]		stores at random until SIGBUS, in all of it or, when
 *						each page has been touched once, in the first MIB;
 *						says "ready" when it begins, and when the last store
 *						was made (seconds of CLOCK_MONOTONIC)
 *	touch sum FILE				loads every page once; says how long it took (ms)
 *	touch local FILE MIB small|huge file|memory
 *						random and sequential loads and stores, in FILE
 *						and in anonymous memory by turns: a line for each
 *						(case, ns in FILE, ns in memory); the last says
 *						which of the two gets its pages first
 *	touch loop FILE SECONDS			loads, stores, reads and stats without end; says the
 *						longest pause (ms) and how many calls failed
 *	touch chmod DIR FILES EACH		opens FILES files in DIR and changes the mode of each
 *						EACH times, all at once, a thread a file; seconds
 *	touch hold PREFIX FIRST COUNT MIB	makes COUNT files PREFIX-N and stores into every page; says
 *						"ready", and keeps them mapped until stdin ends
 *	touch warm MIB				memory that was just in use is free
 *	touch burn RUN REST			computes RUN us in empty system calls, rests REST us,
 *						and so on until it is ended
 *	touch exec COUNT			ms from the exec of a minimal daemon to its first
 *						answer, one a line
 */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

#define PAGE	     4096u
#define RANDOM_LOADS 2000000u
#define LOCAL_ROUNDS 2
#define CHASED	     1000000u
#define CHASED_NS    5000u
#define CHASE_ENDS   50000u /* ends after as many randomly drawn pages that were there */

static uint8_t *memory;
static size_t bytes, used_bytes; /* mapped; stored to in the end */
static __thread sigjmp_buf gone;

static void on_bus(int number)
{
	(void)number;
	siglongjmp(gone, 1);
}

static void map(const char *path, int flags, size_t make_bytes)
{
	int fd = open(path, flags, 0600);
	struct stat st;

	if (fd < 0 || (make_bytes && ftruncate(fd, (off_t)make_bytes) < 0) || fstat(fd, &st) < 0) {
		perror(path);
		exit(1);
	}
	bytes = (size_t)st.st_size;
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED) {
		perror(path);
		exit(1);
	}
	close(fd);
}

static int fill(const char *path, size_t mib, int small)
{
	map(path, O_RDWR | O_CREAT | O_TRUNC, mib << 20);
	if (small)
		madvise(memory, bytes, MADV_NOHUGEPAGE);
	for (size_t at = 0; at < bytes; at += 8)
		*(volatile uint64_t *)(memory + at) = at * UINT64_C(0x9e3779b97f4a7c15) + 1;
	return 0;
}

static int hold(const char *prefix, unsigned first, unsigned count, size_t mib)
{
	char path[4096], byte;

	for (unsigned i = first; i < first + count; i++) {
		snprintf(path, sizeof(path), "%s-%u", prefix, i);
		fill(path, mib, 1);
	}
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	return 0;
}

static uint64_t load_ns(size_t page)
{
	uint64_t since = now_ns();

	(void)*(volatile uint64_t *)(memory + page * PAGE);
	return now_ns() - since;
}

static int fault(const char *path, size_t count)
{
	uint64_t *took = calloc(count, sizeof(*took)), random = 88172645463325252u;
	uint8_t *seen;

	map(path, O_RDWR, 0);
	seen = calloc(bytes / PAGE, 1);
	if (!took || !seen || count > bytes / PAGE)
		return 1;
	for (size_t i = 0; i < count; i++) {
		size_t page;

		do {
			page = next_random(&random) % (bytes / PAGE);
		} while (seen[page]);
		seen[page] = 1;
		took[i] = load_ns(page);
	}
	for (size_t i = 0; i < count; i++)
		printf("%.2f\n", (double)took[i] / 1e3);
	return 0;
}

/* The time of a load shows whether its page was there: it is shorter than any page fault, or longer
   than a load. (A load that was preempted counts as a page fault.) */
static int chase(const char *path)
{
	static float took[CHASED];
	uint64_t random = 88172645463325252u, end;
	size_t n = 0;

	map(path, O_RDWR, 0);
	end = now_ns() + UINT64_C(20000000000);
	for (unsigned there = 0; there < CHASE_ENDS && n < CHASED && now_ns() < end; there++) {
		uint64_t ns = load_ns(next_random(&random) % (bytes / PAGE));

		if (ns < CHASED_NS)
			continue;
		took[n++] = (float)ns / 1e3f;
		there = 0;
	}
	for (size_t i = 0; i < n; i++)
		printf("%.2f\n", (double)took[i]);
	return 0;
}

static void write_for_ever(uint64_t random, volatile uint64_t *last)
{
	for (unsigned i = 1;; i++) {
		/* Before the store: a thread that is preempted after it would report the time when
		   it ran again. */
		uint64_t now = i % 64 ? 0 : now_ns();

		*(volatile uint64_t *)(memory + next_random(&random) % (used_bytes / 8) * 8) = i;
		if (now)
			*last = now;
	}
}

static void *write_at_random(void *arg)
{
	uint64_t *last = calloc(1, sizeof(*last));

	if (last && !sigsetjmp(gone, 1))
		write_for_ever(88172645463325252u + (uint64_t)(uintptr_t)arg * 7919, last);
	return last;
}

static int write_until_gone(const char *path, unsigned threads, size_t mib)
{
	pthread_t ids[16];
	uint64_t last = 0;

	map(path, O_RDWR, 0);
	used_bytes = mib && mib << 20 < bytes ? mib << 20 : bytes;
	for (size_t at = 0; used_bytes < bytes && at < bytes; at += PAGE)
		*(volatile uint64_t *)(memory + at) = 1;
	signal(SIGBUS, on_bus);
	for (uintptr_t i = 0; i < threads && i < 16; i++)
		pthread_create(&ids[i], NULL, write_at_random, (void *)i);
	puts("ready");
	fflush(stdout);
	for (unsigned i = 0; i < threads && i < 16; i++) {
		void *result;

		pthread_join(ids[i], &result);
		if (result && *(uint64_t *)result > last)
			last = *(uint64_t *)result;
		free(result);
	}
	printf("%.6f\n", (double)last / 1e9);
	return 0;
}

/* A process that has mapped FILE here before, and tries to load from it again and again. */
static int await_return(const char *path)
{
	const struct timespec rest = {.tv_nsec = 5000};
	volatile int away = 0;

	map(path, O_RDWR, 0);
	prctl(PR_SET_TIMERSLACK, 1UL);
	signal(SIGBUS, on_bus);
	puts("ready");
	fflush(stdout);
	for (;; nanosleep(&rest, NULL)) {
		if (sigsetjmp(gone, 1)) {
			away = 1;
			continue;
		}
		(void)*(volatile uint64_t *)memory;
		if (away)
			break;
	}
	printf("%.6f\n", (double)now_ns() / 1e9);
	return 0;
}

static int sum(const char *path)
{
	uint64_t since, total = 0;

	map(path, O_RDWR, 0);
	since = now_ns();
	for (size_t at = 0; at < bytes; at += PAGE)
		total += *(volatile uint64_t *)(memory + at);
	printf("%.3f %llx\n", (double)(now_ns() - since) / 1e6, (unsigned long long)total);
	return 0;
}

/* ---- local ---- */

/* Each address depends on the load before it, as in a list or a tree. */
static uint64_t load_at_random(volatile uint64_t *at, size_t words)
{
	uint64_t random = 88172645463325252u;

	for (unsigned i = 0; i < RANDOM_LOADS; i++)
		random = random * UINT64_C(6364136223846793005) + 1442695040888963407u +
			 (at[(random >> 20) % words] & 1);
	return RANDOM_LOADS;
}

static uint64_t store_at_random(volatile uint64_t *at, size_t words)
{
	uint64_t random = 88172645463325252u;

	for (unsigned i = 0; i < RANDOM_LOADS * 4; i++) {
		random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
		at[(random >> 20) % words] = i;
	}
	return RANDOM_LOADS * 4;
}

static uint64_t load_in_order(volatile uint64_t *at, size_t words)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < words; i++)
		sum += at[i];
	return words + (sum == 1);
}

static uint64_t store_in_order(volatile uint64_t *at, size_t words)
{
	for (size_t i = 0; i < words; i++)
		at[i] = i;
	return words;
}

static const struct way {
	const char *name;
	uint64_t (*run)(volatile uint64_t *at, size_t words);
} ways[] = {
	{"random loads", load_at_random},
	{"random stores", store_at_random},
	{"sequential loads", load_in_order},
	{"sequential stores", store_in_order},
};

static double ns_each(const struct way *way, void *at)
{
	uint64_t since = now_ns(), count = way->run(at, bytes / 8);

	return (double)(now_ns() - since) / (double)count;
}

/* Maps as much anonymous memory, each page of it there. */
static uint8_t *anonymous(size_t size, int small)
{
	uint8_t *at = mmap(NULL, size + (2u << 20), PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return NULL;
	at += (2u << 20) - (uintptr_t)at % (2u << 20);
	madvise(at, size, small ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
	store_in_order((volatile uint64_t *)(void *)at, size / 8);
	return at;
}

/* The place of its pages makes any memory faster or slower by a tenth, and the one that gets its
   pages first gets others: so each comes first in one run of two. */
static int local(const char *path, size_t mib, int small, int memory_first)
{
	uint8_t *other = memory_first ? anonymous(mib << 20, small) : NULL;

	fill(path, mib, small);
	if (!other)
		other = anonymous(bytes, small);
	if (!other)
		return 1;
	for (int round = 0; round < LOCAL_ROUNDS; round++)
		for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
			/* the order gives neither of them an advantage */
			double a = ns_each(&ways[i], round % 2 ? other : memory);
			double b = ns_each(&ways[i], round % 2 ? memory : other);

			printf("%s:%.4f:%.4f\n", ways[i].name, round % 2 ? b : a,
			       round % 2 ? a : b);
		}
	return 0;
}

/* ---- loop ---- */

static int loop(const char *path, double seconds)
{
	uint64_t random = 88172645463325252u, longest = 0, begin, last, now, bad = 0;
	uint8_t page[PAGE];
	struct stat st;
	int fd;

	map(path, O_RDWR, 0);
	fd = open(path, O_RDWR);
	begin = last = now_ns();
	do {
		volatile uint64_t *at =
			(volatile uint64_t *)(void *)(memory +
						      next_random(&random) % (bytes / 8) * 8);

		*at = *at + 1;
		bad += pread(fd, page, PAGE,
			     (off_t)(next_random(&random) % (bytes / PAGE) * PAGE)) != PAGE;
		bad += stat(path, &st) != 0;
		now = now_ns();
		if (now - last > longest)
			longest = now - last;
		last = now;
	} while ((double)(now - begin) < seconds * 1e9);
	printf("%.3f %llu\n", (double)longest / 1e6, (unsigned long long)bad);
	return 0;
}

/* ---- beside it ---- */

/* Touches memory: the machine's host may have taken back pages that were free for long, and then
   the first touch pays. */
static struct {
	pthread_barrier_t begin;
	const char *dir;
	unsigned each;
} changing;

/* Keeps the files open, so that each change is a commit and nothing else, without a path walk. */
static void *change_modes(void *arg)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/f%u", changing.dir, (unsigned)(uintptr_t)arg);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	pthread_barrier_wait(&changing.begin);
	for (unsigned i = 0; i < changing.each; i++)
		if (fchmod(fd, i % 2 ? 0600 : 0640)) {
			perror(path);
			exit(1);
		}
	close(fd);
	return NULL;
}

static int change_all(const char *dir, unsigned files, unsigned each)
{
	pthread_t threads[files];
	uint64_t since;

	changing.dir = dir;
	changing.each = each;
	pthread_barrier_init(&changing.begin, NULL, files + 1);
	for (unsigned i = 0; i < files; i++)
		if (pthread_create(&threads[i], NULL, change_modes, (void *)(uintptr_t)i))
			return 1;
	pthread_barrier_wait(&changing.begin);
	since = now_ns();
	for (unsigned i = 0; i < files; i++)
		pthread_join(threads[i], NULL);
	printf("%.6f\n", (double)(now_ns() - since) / 1e9);
	return 0;
}

static int warm(size_t mib)
{
	uint8_t *at =
		mmap(NULL, mib << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED || madvise(at, mib << 20, MADV_HUGEPAGE))
		return 1;
	for (size_t i = 0; i < mib << 20; i += PAGE)
		((volatile uint8_t *)at)[i] = 1;
	return 0;
}

static uint64_t computed_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static _Noreturn void burn(uint64_t run_us, uint64_t rest_us)
{
	const struct timespec rest = {.tv_sec = (time_t)(rest_us / 1000000),
				      .tv_nsec = (long)(rest_us % 1000000 * 1000)};

	prctl(PR_SET_TIMERSLACK, 1UL); /* not 50 us: most attackers rest less */
	puts("ready");
	fflush(stdout);
	for (;;) {
		uint64_t until = computed_ns() + run_us * 1000;

		while (computed_ns() < until)
			syscall(SYS_getppid);
		if (rest_us)
			nanosleep(&rest, NULL);
	}
}

static int answer(int sock)
{
	char byte;

	return read(sock, &byte, 1) != 1 || write(sock, &byte, 1) != 1;
}

static int exec_and_ask(char *self, int count)
{
	for (int i = 0; i < count; i++) {
		char number[16], *argv[] = {self, "answer", number, NULL}, byte = 'a';
		int ends[2], status;
		uint64_t since;
		pid_t pid;

		if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
			return 1;
		snprintf(number, sizeof(number), "%d", ends[1]);
		since = now_ns();
		if (posix_spawn(&pid, self, NULL, NULL, argv, NULL) ||
		    write(ends[0], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1)
			return 1;
		printf("%.3f\n", (double)(now_ns() - since) / 1e6);
		waitpid(pid, &status, 0);
		close(ends[0]);
		close(ends[1]);
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 5 && strcmp(argv[1], "fill") == 0)
		return fill(argv[2], strtoul(argv[3], NULL, 10), strcmp(argv[4], "small") == 0);
	if (argc == 4 && strcmp(argv[1], "fault") == 0)
		return fault(argv[2], strtoul(argv[3], NULL, 10));
	if (argc == 3 && strcmp(argv[1], "chase") == 0)
		return chase(argv[2]);
	if (argc == 3 && strcmp(argv[1], "await") == 0)
		return await_return(argv[2]);
	if ((argc == 4 || argc == 5) && strcmp(argv[1], "write") == 0)
		return write_until_gone(argv[2], (unsigned)atoi(argv[3]),
					argc == 5 ? strtoul(argv[4], NULL, 10) : 0);
	if (argc == 3 && strcmp(argv[1], "sum") == 0)
		return sum(argv[2]);
	if (argc == 6 && strcmp(argv[1], "local") == 0)
		return local(argv[2], strtoul(argv[3], NULL, 10), strcmp(argv[4], "small") == 0,
			     strcmp(argv[5], "memory") == 0);
	if (argc == 4 && strcmp(argv[1], "loop") == 0)
		return loop(argv[2], strtod(argv[3], NULL));
	if (argc == 5 && strcmp(argv[1], "chmod") == 0)
		return change_all(argv[2], (unsigned)atoi(argv[3]), (unsigned)atoi(argv[4]));
	if (argc == 6 && strcmp(argv[1], "hold") == 0)
		return hold(argv[2], (unsigned)atoi(argv[3]), (unsigned)atoi(argv[4]),
			    strtoul(argv[5], NULL, 10));
	if (argc == 3 && strcmp(argv[1], "warm") == 0)
		return warm(strtoul(argv[2], NULL, 10));
	if (argc == 4 && strcmp(argv[1], "burn") == 0)
		burn(strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10));
	if (argc == 3 && strcmp(argv[1], "exec") == 0)
		return exec_and_ask(argv[0], atoi(argv[2]));
	if (argc == 3 && strcmp(argv[1], "answer") == 0)
		return answer(atoi(argv[2]));
	fprintf(stderr, "Usage: touch fill FILE MIB small|huge | fault FILE COUNT | chase FILE | "
			"await FILE | write FILE THREADS [MIB] | sum FILE | local FILE MIB "
			"small|huge file|memory | "
			"loop FILE SECONDS | chmod DIR FILES EACH | "
			"hold PREFIX FIRST COUNT MIB | warm MIB | burn RUN REST | exec COUNT\n");
	return 2;
}
