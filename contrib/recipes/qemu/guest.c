/*
 * The program of the guest: keeps storing into its memory, and checks what it stored.
 *
 *     guest MIB PAGES
 *
 * It has MIB MiB. Each word of a page follows from the page's number and from how often it was written;
 * a table beside counts that. Every 10 ms it takes PAGES pages at random, checks each and writes it
 * once more. After a line on stdin it checks all pages and prints a line:
 *
 *     checked PAGES pages after WRITES writes: WRONG wrong
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_WORDS 512u
#define PAUSE_US   10000

static uint64_t *memory;
static uint32_t *written; /* how often, of each page */
static size_t pages;
static uint64_t writes, wrong;

static uint64_t word(size_t page, uint32_t times, size_t at)
{
	uint64_t x = ((uint64_t)page << 32 | times) * 0x9e3779b97f4a7c15u + at;

	return x ^ x >> 29;
}

static void check(size_t page)
{
	const uint64_t *p = memory + page * PAGE_WORDS;

	for (size_t i = 0; i < PAGE_WORDS; i++)
		if (p[i] != word(page, written[page], i)) {
			printf("page %zu, word %zu: wrong after %u writes\n", page, i,
			       written[page]);
			wrong++;
			return;
		}
}

static void write_again(size_t page)
{
	uint64_t *p = memory + page * PAGE_WORDS;
	uint32_t times = ++written[page];

	for (size_t i = 0; i < PAGE_WORDS; i++)
		p[i] = word(page, times, i);
	writes++;
}

static void check_all(void)
{
	for (size_t page = 0; page < pages; page++)
		check(page);
	printf("checked %zu pages after %llu writes: %llu wrong\n", pages,
	       (unsigned long long)writes, (unsigned long long)wrong);
	fflush(stdout);
}

static void *room(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at != MAP_FAILED)
		return at;
	perror("guest: memory");
	exit(1);
}

int main(int argc, char **argv)
{
	size_t mib = argc == 3 ? strtoul(argv[1], NULL, 10) : 0;
	unsigned long each = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
	uint64_t random = 1;
	char line[64];

	pages = mib << 8;
	if (!pages || mib > 65536) {
		fprintf(stderr, "usage: guest MIB PAGES\n");
		return 2;
	}
	memory = room(pages * PAGE_WORDS * sizeof(*memory));
	written = room(pages * sizeof(*written));
	for (size_t page = 0; page < pages; page++)
		write_again(page);
	fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
	check_all();
	for (;;) {
		for (unsigned long i = 0; i < each; i++) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			check((size_t)(random >> 33) % pages);
			write_again((size_t)(random >> 33) % pages);
		}
		usleep(PAUSE_US);
		if (read(STDIN_FILENO, line, sizeof(line)) > 0)
			check_all();
	}
}
