/*
 * bench-heap PATTERN THREADS: nanoseconds that one block costs (taken, touched, given back), by malloc(3), then by the heap
 * in a segment: "MALLOC HEAP". Both by turns, the best of several turns, each with threads of its own.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "ramp_heap.h"

#define BASE	((void *)0x200000000000)
#define BYTES	(UINT64_C(4) << 30)
#define TURNS	5
#define THREADS 16

/* How many blocks live at once, which sizes they have, and how many are taken in all by each thread. */
static const struct pattern {
	const char *name;
	unsigned int live, least, most, count;
} patterns[] = {
	{"one", 1, 64, 64, 10000000},	      {"small", 10000, 16, 512, 3000000},
	{"nodes", 500000, 40, 72, 3000000},   {"mixed", 10000, 16, 32000, 500000},
	{"large", 64, 40000, 400000, 100000},
};

static const struct pattern *pattern;
static struct ramp_heap *heap; /* NULL: malloc */

static inline unsigned char *take(size_t size)
{
	return heap ? ramp_heap_malloc(heap, size) : malloc(size);
}

static inline void give(void *block)
{
	if (heap)
		ramp_heap_free(heap, block);
	else
		free(block);
}

static void *work(void *number)
{
	uint64_t random = 88172645463325252u + *(uint64_t *)number;
	unsigned char **live = calloc(pattern->live, sizeof(*live));

	if (!live)
		abort();
	for (unsigned int i = 0; i < pattern->count; i++) {
		unsigned char **at;
		size_t size;

		next_random(&random);
		at = &live[random % pattern->live];
		size = pattern->least + (random >> 32) % (pattern->most - pattern->least + 1);
		give(*at);
		*at = take(size);
		if (!*at)
			abort();
		(*at)[0] = (*at)[size - 1] = 1;
	}
	for (unsigned int i = 0; i < pattern->live; i++)
		give(live[i]);
	free(live);
	return NULL;
}

static double turn(unsigned int threads)
{
	pthread_t thread[THREADS];
	uint64_t number[THREADS];
	struct timespec from, to;

	clock_gettime(CLOCK_MONOTONIC, &from);
	for (unsigned int i = 0; i < threads; i++) {
		number[i] = i;
		if (pthread_create(&thread[i], NULL, work, &number[i]))
			abort();
	}
	for (unsigned int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	clock_gettime(CLOCK_MONOTONIC, &to);
	return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) /
	       pattern->count;
}

static struct ramp_heap *make_heap(void)
{
	int fd = memfd_create("heap", MFD_CLOEXEC);
	struct ramp_heap_err err = {.text = "no memory for the segment"};
	struct ramp_heap *made = NULL;

	if (fd >= 0 && ftruncate(fd, BYTES) == 0 &&
	    mmap(BASE, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0) ==
		    BASE)
		made = ramp_heap_format(BASE, BYTES, NULL, &err);
	if (!made) {
		fprintf(stderr, "bench-heap: %s\n", err.text);
		exit(1);
	}
	return made;
}

int main(int argc, char **argv)
{
	int threads = argc == 3 ? atoi(argv[2]) : 0;
	struct ramp_heap *made;
	double best[2] = {1e18, 1e18};

	for (size_t i = 0; threads && i < sizeof(patterns) / sizeof(*patterns); i++) {
		if (strcmp(patterns[i].name, argv[1]) == 0)
			pattern = &patterns[i];
	}
	if (!pattern || threads < 1 || threads > THREADS) {
		fprintf(stderr, "Usage: bench-heap one|small|nodes|mixed|large THREADS\n");
		return 2;
	}
	made = make_heap();
	for (int i = 0; i < 2 * TURNS; i++) {
		double took;

		heap = i % 2 ? made : NULL;
		took = turn((unsigned int)threads);
		if (took < best[i % 2])
			best[i % 2] = took;
	}
	printf("%.2f %.2f\n", best[0], best[1]);
	return ramp_heap_close(made) != 0;
}
