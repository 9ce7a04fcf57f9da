/*
 * A program that never stops storing to a segment which leaves and comes back, for inject.py.
 *
 *	rampfs-run stores FILE SLOT
 *
 * A thread stores ever larger numbers to word SLOT of each page of FILE, and checks before each store
 * whether its last one is still there: if it is not, a store is lost, and the exit status is 3.
 * While the segment is gone (SIGBUS) nothing is stored, and the thread tries again. The program says
 * "ready", and then answers each line:
 *
 *	gone	when a touch has been SIGBUS since then
 *	here	when every page has been stored to since then
 *	change	when it has protected, dropped, unmapped and forked: of the last four pages of FILE, to which it
 *		does not store, one after the other
 *	end	with the last number that it has stored to each page; then it ends
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
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE  4096u
#define SPARE 4 /* pages at the end that are not stored to */

static unsigned char *bytes;
static size_t pages, slot;
static uint64_t *stored;
static atomic_ulong gone, rounds;
static atomic_bool stop;
static bool changed;
static sigjmp_buf on_gone;

static void bus(int number)
{
	siglongjmp(on_gone, number);
}

static volatile uint64_t *word(size_t page)
{
	return (volatile uint64_t *)(bytes + page * PAGE) + slot;
}

static void store(size_t page, uint64_t number)
{
	uint64_t now = *word(page);

	if (now != stored[page]) {
		fprintf(stderr, "stores: page %zu had %lx and has %lx\n", page,
			(unsigned long)stored[page], (unsigned long)now);
		_exit(3);
	}
	*word(page) = number;
	stored[page] = number;
}

static void *storer(void *arg)
{
	volatile size_t page = 0; /* kept over a jump */
	volatile uint64_t number = 1;

	(void)arg;
	while (!atomic_load(&stop)) {
		if (sigsetjmp(on_gone, 0)) {
			atomic_fetch_add(&gone, 1);
			usleep(1000);
			continue;
		}
		store(page, number);
		page++;
		if (page < pages - SPARE)
			continue;
		page = 0;
		number++;
		atomic_fetch_add(&rounds, 1);
		usleep(100);
	}
	return NULL;
}

/* Waits until the count is more than `more` higher than now: a round may have begun before. */
static void wait_for(atomic_ulong *count, unsigned long more)
{
	unsigned long now = atomic_load(count);

	while (atomic_load(count) <= now + more)
		usleep(1000);
}

/* A child loads from a page: it waits as its parent does, and ends by SIGBUS where the segment has gone
   meanwhile. */
static bool child_loads(void)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		signal(SIGBUS, SIG_DFL);
		_exit(*word(pages - 1) != stored[pages - 1]);
	}
	return child > 0 && waitpid(child, &status, 0) == child &&
	       (status == 0 || WTERMSIG(status) == SIGBUS);
}

static void change(void)
{
	unsigned char *spare = bytes + (pages - SPARE) * PAGE;

	if (mprotect(spare, PAGE, PROT_READ) || madvise(spare + PAGE, PAGE, MADV_DONTNEED) ||
	    munmap(spare + 2 * PAGE, PAGE) || !child_loads()) {
		perror("stores: a change");
		_exit(4);
	}
	changed = true;
}

/* Whether the kernel can copy a byte there. */
static bool can_write(unsigned char *at)
{
	int zero = open("/dev/zero", O_RDONLY);
	bool can = read(zero, at, 1) == 1;

	close(zero);
	return can;
}

/* Each change must have stayed. */
static void look_at_changes(void)
{
	unsigned char *spare = bytes + (pages - SPARE) * PAGE;

	if (can_write(spare) || can_write(spare + 2 * PAGE) ||
	    *word(pages - 3) != stored[pages - 3] || *word(pages - 1) != stored[pages - 1]) {
		fprintf(stderr, "stores: a change is lost\n");
		_exit(5);
	}
}

static int set_out(const char *path)
{
	struct sigaction on_bus = {.sa_handler = bus, .sa_flags = SA_NODEFER};
	int fd = open(path, O_RDWR);
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return -1;
	pages = (size_t)st.st_size / PAGE;
	bytes = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	stored = calloc(pages, sizeof(*stored));
	if (bytes == MAP_FAILED || !stored || sigaction(SIGBUS, &on_bus, NULL))
		return -1;
	for (size_t i = 0; i < pages; i++)
		stored[i] = *word(i);
	return 0;
}

int main(int argc, char **argv)
{
	char line[16] = "";
	pthread_t thread;

	if (argc != 3)
		return 2;
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* ends with inject.py */
	slot = (size_t)atoi(argv[2]);
	if (set_out(argv[1]) || pthread_create(&thread, NULL, storer, NULL)) {
		perror(argv[1]);
		return 1;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	while (strcmp(line, "end\n") != 0 && fgets(line, sizeof(line), stdin)) {
		if (strcmp(line, "gone\n") == 0)
			wait_for(&gone, 0);
		else if (strcmp(line, "here\n") == 0)
			wait_for(&rounds, 1);
		else if (strcmp(line, "change\n") == 0)
			change();
		else
			continue;
		puts("so it is");
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	if (changed)
		look_at_changes();
	for (size_t i = 0; i < pages; i++)
		printf("%lu ", (unsigned long)stored[i]);
	puts("");
	return 0;
}
