/*
 * A segment's bytes, stored and checked through a mapping, as programs do.
 *
 *   bytes fill FILE MIB SEED    makes FILE and stores all of it
 *   bytes check FILE MIB SEED   loads all of it, in an order that is no order first; status 1: one is wrong
 *   bytes change FILE MIB SEED  stores to every 61st page, so that it is as `fill` with SEED makes it
 *   bytes mixed FILE MIB SEED CHANGED   checks what `change` with CHANGED has left of `fill` with SEED
 *   bytes slowly FILE MIB SEED  as check, page after page, for some seconds
 *   bytes write FILE MIB        stores into each page's first word for as long as it may (SIGBUS ends it); says "ready"
 *                               when it has stored into all
 *   bytes written FILE MIB SEED checks what `write` has left of `fill` with SEED, once it was ready
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_BYTES 4096u
#define WORDS	   (PAGE_BYTES / sizeof(uint64_t))
#define EVERY	   61u

static uint64_t *map;
static uint64_t pages;

static uint64_t word(uint64_t seed, uint64_t page, uint64_t i)
{
	return (page * WORDS + i + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ seed << 32;
}

static void store(uint64_t page, uint64_t seed)
{
	for (uint64_t i = 0; i < WORDS; i++)
		map[page * WORDS + i] = word(seed, page, i);
}

static void check_words(uint64_t page, uint64_t seed, uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++)
		if (map[page * WORDS + i] != word(seed, page, i)) {
			fprintf(stderr, "page %llu, word %llu: %llx, not %llx\n",
				(unsigned long long)page, (unsigned long long)i,
				(unsigned long long)map[page * WORDS + i],
				(unsigned long long)word(seed, page, i));
			exit(1);
		}
}

static void check(uint64_t page, uint64_t seed)
{
	check_words(page, seed, 0, WORDS);
}

static void check_all(uint64_t seed, uint64_t changed)
{
	for (uint64_t n = 0; n < 200; n++) {
		uint64_t page = n * UINT64_C(2654435761) % pages;

		check(page, page % EVERY ? seed : changed);
	}
	for (uint64_t page = 0; page < pages; page++)
		check(page, page % EVERY ? seed : changed);
}

static void check_slowly(uint64_t seed)
{
	for (uint64_t page = 0; page < pages; page++) {
		check(page, seed);
		if (page % 16 == 0)
			usleep(2000);
	}
}

/* Ends by a signal. */
static void write_on(void)
{
	for (uint64_t n = 0;; n++) {
		((volatile uint64_t *)map)[n % pages * WORDS] = word(0, n % pages, 0);
		if (n % 128 == 0)
			usleep(2000); /* it has the guest's one processor */
		if (n == pages)
			puts("ready");
		fflush(stdout);
	}
}

static void check_written(uint64_t seed)
{
	for (uint64_t page = 0; page < pages; page++) {
		check_words(page, 0, 0, 1);
		check_words(page, seed, 1, WORDS);
	}
}

static void map_file(const char *path, uint64_t mib, bool make)
{
	int fd = open(path, make ? O_RDWR | O_CREAT : O_RDWR, 0644);

	pages = (mib << 20) / PAGE_BYTES;
	if (fd < 0 || (make && ftruncate(fd, (off_t)(mib << 20)))) {
		perror(path);
		exit(2);
	}
	map = mmap(NULL, mib << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		perror("mmap");
		exit(2);
	}
	close(fd);
}

int main(int argc, char **argv)
{
	const char *what = argc > 3 ? argv[1] : "";
	uint64_t seed = argc > 4 ? strtoull(argv[4], NULL, 10) : 0;

	if (argc < 4)
		return 2;
	map_file(argv[2], strtoull(argv[3], NULL, 10), strcmp(what, "fill") == 0);
	if (strcmp(what, "fill") == 0) {
		for (uint64_t page = 0; page < pages; page++)
			store(page, seed);
	} else if (strcmp(what, "change") == 0) {
		for (uint64_t page = 0; page < pages; page += EVERY)
			store(page, seed);
	} else if (strcmp(what, "check") == 0) {
		check_all(seed, seed);
	} else if (strcmp(what, "mixed") == 0 && argc > 5) {
		check_all(seed, strtoull(argv[5], NULL, 10));
	} else if (strcmp(what, "slowly") == 0) {
		check_slowly(seed);
	} else if (strcmp(what, "write") == 0) {
		write_on();
	} else if (strcmp(what, "written") == 0) {
		check_written(seed);
	} else {
		return 2;
	}
	return 0;
}
