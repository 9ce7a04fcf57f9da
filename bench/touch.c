/*
 * What a program sees of a segment: run by rampfs-run, knows nothing of rampfs.
 *
 *	touch fill FILE MIB small|huge		makes FILE and stores into every page
 *	touch fault FILE COUNT			loads from COUNT random pages; us per load, one a
 *line touch write FILE THREADS		stores at random until SIGBUS; says when the last store was
 *made (seconds of CLOCK_MONOTONIC)
 *	touch sum FILE				loads every page once; says how long it took (ms)
 */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096u

static uint8_t *memory;
static size_t bytes;
static __thread sigjmp_buf gone;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void on_bus(int number)
{
	(void)number;
	siglongjmp(gone, 1);
}

static uint64_t next_random(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return *state = x;
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

static int fault(const char *path, size_t count)
{
	uint64_t *took = calloc(count, sizeof(*took)), random = 88172645463325252u;
	uint8_t *seen;

	map(path, O_RDWR, 0);
	seen = calloc(bytes / PAGE, 1);
	if (!took || !seen || count > bytes / PAGE)
		return 1;
	for (size_t i = 0; i < count; i++) {
		uint64_t since;
		size_t page;

		do {
			page = next_random(&random) % (bytes / PAGE);
		} while (seen[page]);
		seen[page] = 1;
		since = now_ns();
		(void)*(volatile uint64_t *)(memory + page * PAGE);
		took[i] = now_ns() - since;
	}
	for (size_t i = 0; i < count; i++)
		printf("%.2f\n", (double)took[i] / 1e3);
	return 0;
}

static void write_for_ever(uint64_t random, volatile uint64_t *last)
{
	for (unsigned i = 1;; i++) {
		*(volatile uint64_t *)(memory + next_random(&random) % (bytes / 8) * 8) = i;
		if (i % 64 == 0)
			*last = now_ns();
	}
}

static void *write_at_random(void *arg)
{
	uint64_t *last = calloc(1, sizeof(*last));

	if (last && !sigsetjmp(gone, 1))
		write_for_ever(88172645463325252u + (uint64_t)(uintptr_t)arg * 7919, last);
	return last;
}

static int write_until_gone(const char *path, unsigned threads)
{
	pthread_t ids[16];
	uint64_t last = 0;

	map(path, O_RDWR, 0);
	signal(SIGBUS, on_bus);
	for (uintptr_t i = 0; i < threads && i < 16; i++)
		pthread_create(&ids[i], NULL, write_at_random, (void *)i);
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

int main(int argc, char **argv)
{
	if (argc == 5 && strcmp(argv[1], "fill") == 0)
		return fill(argv[2], strtoul(argv[3], NULL, 10), strcmp(argv[4], "small") == 0);
	if (argc == 4 && strcmp(argv[1], "fault") == 0)
		return fault(argv[2], strtoul(argv[3], NULL, 10));
	if (argc == 4 && strcmp(argv[1], "write") == 0)
		return write_until_gone(argv[2], (unsigned)atoi(argv[3]));
	if (argc == 3 && strcmp(argv[1], "sum") == 0)
		return sum(argv[2]);
	fprintf(stderr, "Usage: touch fill FILE MIB small|huge | fault FILE COUNT | write FILE "
			"THREADS | sum FILE\n");
	return 2;
}
