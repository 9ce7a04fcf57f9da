/*
 * A program that never stops touching a segment which leaves and comes back: at any time a load
 * shows the stored word, or is SIGBUS. A mapping that is put back just before its missing pages are
 * watched would show zeros, in a window that a program which waits for mv to return never meets.
 *
 *	rampfs-run returning FILE SECONDS [locked]
 *
 * locked: after mlockall(2), so that the kernel fills later mappings by itself.
 *
 * It fills FILE, of 4 MiB, with words that follow from their places, says "filled", and loads words
 * drawn at random until the time is over. Then it prints one line of figures. Exit status 1: a word
 * was wrong, or the segment never left or never came back.
 */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES	(4u << 20)
#define WORDS	(BYTES / sizeof(uint64_t))
#define THREADS 2

static volatile uint64_t *words;
static atomic_bool stop;
static atomic_ulong right, wrong, gone, returns;
static __thread sigjmp_buf on_gone;

static void bus(int number)
{
	siglongjmp(on_gone, number);
}

static uint64_t word_of(uint64_t place)
{
	return (place + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

static void *toucher(void *arg)
{
	volatile uint32_t random = (uint32_t)(uintptr_t)arg; /* kept over a jump */
	volatile bool away = false;

	while (!atomic_load(&stop)) {
		uint64_t place, got;

		random = random * 1103515245u + 12345u;
		place = (random >> 4) % WORDS;
		if (sigsetjmp(on_gone, 0)) {
			away = true;
			atomic_fetch_add(&gone, 1);
			continue;
		}
		got = words[place];
		if (away)
			atomic_fetch_add(&returns, 1);
		away = false;
		if (got == word_of(place))
			atomic_fetch_add(&right, 1);
		else if (atomic_fetch_add(&wrong, 1) == 0)
			printf("word %lu is %lx\n", (unsigned long)place, (unsigned long)got);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct sigaction on_bus = {.sa_handler = bus, .sa_flags = SA_NODEFER};
	pthread_t threads[THREADS];
	int fd;

	if (argc < 3 || argc > 4)
		return 2;
	if (argc == 4 && mlockall(MCL_CURRENT | MCL_FUTURE)) {
		perror("mlockall");
		return 1;
	}
	fd = open(argv[1], O_RDWR);
	words = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd < 0 || words == MAP_FAILED || sigaction(SIGBUS, &on_bus, NULL)) {
		perror(argv[1]);
		return 1;
	}
	for (uint64_t i = 0; i < WORDS; i++)
		words[i] = word_of(i);
	puts("filled");
	fflush(stdout);
	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, toucher, (void *)(i + 7)))
			return 1;
	sleep((unsigned)atoi(argv[2]));
	atomic_store(&stop, true);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("%lu loads right, %lu wrong, %lu found it gone, %lu found it back\n", right, wrong,
	       gone, returns);
	return wrong || !gone || !returns;
}
