/*
 * Live programs on every node, for a segment that moves between them while its nodes fail.
 *
 *	rampfs-run live FILE MOUNT/NODE... (the same file under each node's own mount)
 *
 * One process a node maps the segment when it first comes there and keeps that mapping for good.
 * Its threads count in random pages for ever: while the segment is elsewhere they get SIGBUS and
 * try again a little later, through the same pointer. Thread t of every process counts in the same
 * words, and holds lock t meanwhile, so that the word's mirror is exact: a load that differs from
 * it is stale, zero, or proves that a store of any process was lost.
 *
 * It says "filled" when the segment may move. It answers lines on stdin: "check" waits until one
 * process has compared every byte of the segment, and says "checked: STORES stores, ..."; the end of
 * the input ends the program. Any error is one line and exit status 1.
 */
#include <errno.h>
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
#include <time.h>
#include <unistd.h>

#define PAGE	  4096u
#define THREADS	  3u
#define NODES_MAX 8u

struct shared {
	pthread_mutex_t slot[THREADS]; /* of the words and mirrors of thread t in every process */
	atomic_int failed, quit;
	atomic_int want, checked; /* number of the last check asked for; of the last one done */
	atomic_ullong stores, gone, nodes_mapped;
	uint64_t mirror[]; /* [page][thread] */
};

static struct shared *shared;
static uint64_t pages;
static uint8_t *segment; /* of this process */
static unsigned self;
static __thread sigjmp_buf on_gone;
static __thread volatile sig_atomic_t armed;

static void bus(int number, siginfo_t *info, void *context)
{
	static const char lost[] = "live: SIGBUS says that pages are lost\n";
	static const char stray[] = "live: SIGBUS where nothing was touched\n";

	(void)number, (void)context;
	if (armed && info->si_code == BUS_ADRERR)
		siglongjmp(on_gone, 1);
	if (write(1, armed ? lost : stray, (armed ? sizeof(lost) : sizeof(stray)) - 1) < 0)
		_exit(4);
	_exit(3);
}

static void nap(long us)
{
	nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static uint64_t filler(uint64_t page, unsigned word)
{
	uint64_t x = page * 512 + word + 1;

	x ^= x >> 33;
	x *= UINT64_C(0xff51afd7ed558ccd);
	return x ^ x >> 33;
}

/* Returns the word of thread t: the first one in the page's t-th 64 bytes. */
static volatile uint64_t *word_of(uint64_t page, unsigned t)
{
	return (volatile uint64_t *)(segment + page * PAGE + 64 * (uint64_t)t);
}

static void wrong(const char *what, uint64_t page, unsigned word, uint64_t got, uint64_t right)
{
	printf("process %u: %s: page %llu word %u is %llu, not %llu\n", self, what,
	       (unsigned long long)page, word, (unsigned long long)got, (unsigned long long)right);
	shared->failed = 1;
}

/* Counts once. Returns false if the segment is not here. Called with lock t held. */
static bool count(uint64_t page, unsigned t)
{
	uint64_t *mirror = &shared->mirror[page * THREADS + t], got;

	if (sigsetjmp(on_gone, 1)) {
		armed = 0;
		return false;
	}
	armed = 1;
	got = *word_of(page, t);
	if (got != *mirror) {
		armed = 0;
		wrong("a load", page, t * 8, got, *mirror);
		return true;
	}
	*word_of(page, t) = got + 1;
	armed = 0;
	*mirror = got + 1;
	return true;
}

static void *writer(void *arg)
{
	unsigned t = (unsigned)(uintptr_t)arg;
	uint64_t x = 88172645463325252u + t * 7919 + self * 104729;
	bool here;

	while (!shared->quit && !shared->failed) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		pthread_mutex_lock(&shared->slot[t]);
		here = count(x % pages, t);
		pthread_mutex_unlock(&shared->slot[t]);
		if (here)
			shared->stores++;
		else
			shared->gone++;
		nap(here && x >> 58 ? 20 : 2000);
	}
	return NULL;
}

/* Compares every byte, with all writers waiting. Returns false if the segment is not here (any more). */
static bool check_all(void)
{
	if (sigsetjmp(on_gone, 1)) {
		armed = 0;
		return false;
	}
	for (uint64_t page = 0; page < pages; page++)
		for (unsigned w = 0; w < PAGE / 8; w++) {
			bool counted = w % 8 == 0 && w / 8 < THREADS;
			uint64_t right =
				counted ? shared->mirror[page * THREADS + w / 8] : filler(page, w);
			uint64_t got;

			armed = 1;
			got = ((volatile uint64_t *)(segment + page * PAGE))[w];
			armed = 0;
			if (got != right) {
				wrong("the check", page, w, got, right);
				return true;
			}
		}
	return true;
}

static void check_when_asked(void)
{
	int want = shared->want;
	bool done = false;

	if (shared->checked >= want)
		return;
	for (unsigned t = 0; t < THREADS; t++)
		pthread_mutex_lock(&shared->slot[t]);
	if (shared->checked < want)
		done = check_all();
	for (unsigned t = 0; t < THREADS; t++)
		pthread_mutex_unlock(&shared->slot[t]);
	if (done)
		shared->checked = want;
}

/* Maps the segment when it first comes here. Tries again after an error of an open or a mapping, which
   comes from a daemon that dies just then. */
static void map(const char *path)
{
	void *at;
	int fd;

	while (!shared->quit && !shared->failed) {
		fd = open(path, O_RDWR | O_CLOEXEC);
		at = fd < 0 ? MAP_FAILED
			    : mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (fd >= 0)
			close(fd);
		if (at != MAP_FAILED) {
			segment = at;
			shared->nodes_mapped++;
			return;
		}
		nap(50000);
	}
}

static int node_main(const char *path)
{
	struct sigaction action = {.sa_sigaction = bus, .sa_flags = SA_SIGINFO};
	pthread_t ids[THREADS];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigaction(SIGBUS, &action, NULL);
	map(path);
	if (!segment)
		return 0;
	for (uintptr_t t = 0; t < THREADS; t++)
		if (pthread_create(&ids[t], NULL, writer, (void *)t))
			abort();
	while (!shared->quit && !shared->failed) {
		check_when_asked();
		nap(20000);
	}
	for (unsigned t = 0; t < THREADS; t++)
		pthread_join(ids[t], NULL);
	return shared->failed;
}

/* Fills the file through the first node, which owns it at the beginning. */
static int fill(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	uint64_t page[PAGE / 8];

	for (uint64_t p = 0; fd >= 0 && p < pages; p++) {
		for (unsigned w = 0; w < PAGE / 8; w++)
			page[w] = w % 8 == 0 && w / 8 < THREADS ? 0 : filler(p, w);
		if (pwrite(fd, page, PAGE, (off_t)(p * PAGE)) != (ssize_t)PAGE)
			break;
		if (p == pages - 1)
			return close(fd);
	}
	perror(path);
	return -1;
}

static int share(void)
{
	pthread_mutexattr_t attr;

	shared = mmap(NULL, sizeof(*shared) + pages * THREADS * 8, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return -1;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	for (unsigned t = 0; t < THREADS; t++)
		pthread_mutex_init(&shared->slot[t], &attr);
	return 0;
}

static void answer_lines(void)
{
	char line[64];

	while (!shared->failed && fgets(line, sizeof(line), stdin)) {
		int number = ++shared->want;

		while (shared->checked < number && !shared->failed)
			nap(1000);
		if (!shared->failed)
			printf("checked: %llu stores, %llu times elsewhere, mapped by %llu\n",
			       (unsigned long long)shared->stores, (unsigned long long)shared->gone,
			       (unsigned long long)shared->nodes_mapped);
	}
	shared->quit = 1;
}

int main(int argc, char **argv)
{
	char path[NODES_MAX][600];
	pid_t child[NODES_MAX];
	unsigned nodes = (unsigned)argc - 2;
	struct stat st;
	int status, rc = 0;

	setlinebuf(stdout);
	if (argc < 3 || nodes > NODES_MAX) {
		fprintf(stderr, "Usage: live FILE MOUNT/NODE...\n");
		return 2;
	}
	for (unsigned n = 0; n < nodes; n++)
		snprintf(path[n], sizeof(path[n]), "%s/%s", argv[2 + n], argv[1]);
	if (stat(path[0], &st) < 0 || st.st_size < (off_t)PAGE) {
		fprintf(stderr, "%s: make it with its size first\n", path[0]);
		return 2;
	}
	pages = (uint64_t)st.st_size / PAGE;
	if (share() < 0 || fill(path[0]) < 0)
		return 1;
	puts("filled");
	for (self = 0; self < nodes; self++) {
		child[self] = fork();
		if (child[self] == 0)
			_exit(node_main(path[self]));
	}
	answer_lines();
	for (unsigned n = 0; n < nodes; n++)
		if (waitpid(child[n], &status, 0) < 0 || status) {
			printf("process %u ended with status %x\n", n, (unsigned)status);
			rc = 1;
		}
	return rc || shared->failed;
}
