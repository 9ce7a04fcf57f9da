/*
 * The oracle: live writers on two nodes, a segment that moves to and fro while they store, and
 * an account of every store.
 *
 *	rampfs-run oracle [--seed N] MOUNT_A DIR_A MOUNT_B DIR_B MEBIBYTES THREADS ROUNDS [small|huge|mixed]
 *
 * One process on each node keeps the segment mapped for the whole run; with `mixed` two, which share the
 * threads, and have it mapped by small and huge pages, 2 MiB by turns. In each round the threads of
 * one side bump counters in random pages, each store followed by one to a private mirror, with no
 * synchronisation at all, until the segment goes away under them (SIGBUS). The other side then,
 * before its first store, compares every byte: a counter is its mirror or its mirror plus one (the
 * store was made, the mirror's was not); every other byte of the page is as it was made.
 *
 * The pages are those of a span, drawn for each round: a few, a sixteenth of the segment, or all of it; seldom one
 * beside it. So most pages are clean in most rounds, and one whose store a pre-copy has missed is seen.
 *
 * ORACLE_MIGRATE names rampfs-migrate, ORACLE_MODES its modes, "lazy precopy": each move takes one of
 * them at random. Without them moves are renames. A run whose pre-copies all leave every page fails.
 * ORACLE_PREFILL: a node that is kept near, so that moves to it continue what they find of that.
 * ORACLE_IO: the first thread of each side stores by pwrite(2) instead, through the mount.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
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
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define PAGE	    4096u
#define THREADS_MAX 16u
#define MODES_MAX   8u
#define FEW	    8u /* pages of the smallest span */

struct shared {
	atomic_int round;   /* whose turn it is: side = round % 2; -1: quit */
	atomic_int checked; /* the round whose check has passed */
	atomic_int stopped; /* writers of this round that got SIGBUS */
	atomic_int failed;
	atomic_int ready[2];	    /* processes of that side that have begun */
	atomic_ullong stores, late; /* late: counters that were their mirror plus one */
	atomic_ullong io;	    /* those of the stores that were pwrite(2)'s */
	uint64_t first, span;	    /* pages that this round stores into; they may go round */
	uint64_t mirror[];	    /* [page][thread] */
};

static struct shared *shared;
static unsigned threads, rounds, moved, refused, processes = 1;
static uint64_t pages, seed = 1;
/* Moves by rampfs-migrate. `left`: pages that came after the hand-over, in the moves of which that is `told`. */
static struct mode {
	const char *name;
	unsigned moves, told;
	uint64_t left, least;
} modes[MODES_MAX];
static struct mode *drawn[MODES_MAX]; /* ORACLE_MODES, which may name one twice */
static unsigned n_drawn;
static const char *tool = "/usr/bin/false"; /* ORACLE_MIGRATE */
static struct mode *moved_by;		    /* the move before */
static uint8_t *segment;
static __thread sigjmp_buf on_gone;
static __thread volatile sig_atomic_t armed;

static void bus(int number)
{
	static const char text[] = "oracle: SIGBUS where nothing was stored\n";

	(void)number;
	if (armed)
		siglongjmp(on_gone, 1);
	if (write(2, text, sizeof(text) - 1) < 0)
		_exit(4);
	_exit(3);
}

static uint64_t filler(uint64_t page, unsigned word)
{
	uint64_t x = page * 512 + word + 1;

	x ^= x >> 33;
	x *= UINT64_C(0xff51afd7ed558ccd);
	x ^= x >> 33;
	return x;
}

/* Returns the counter of thread t: the first word of the page's t-th 64 bytes. */
static volatile uint64_t *counter(uint64_t page, unsigned t)
{
	return (volatile uint64_t *)(segment + page * PAGE + 64 * (uint64_t)t);
}

static void fill(void)
{
	for (uint64_t page = 0; page < pages; page++)
		for (unsigned w = 0; w < PAGE / 8; w++) {
			uint64_t v = w % 8 == 0 && w / 8 < threads ? 0 : filler(page, w);

			((volatile uint64_t *)(segment + page * PAGE))[w] = v;
		}
}

static void check(int round)
{
	for (uint64_t page = 0; page < pages; page++)
		for (unsigned w = 0; w < PAGE / 8; w++) {
			uint64_t got = ((volatile uint64_t *)(segment + page * PAGE))[w];
			uint64_t *mirror = &shared->mirror[page * threads + w / 8];

			if (w % 8 || w / 8 >= threads) {
				if (got == filler(page, w))
					continue;
				printf("round %d: page %llu word %u is %llx, was made as %llx\n",
				       round, (unsigned long long)page, w, (unsigned long long)got,
				       (unsigned long long)filler(page, w));
				shared->failed = 1;
				return;
			}
			if (got == *mirror + 1) {
				*mirror = got;
				shared->late++;
			} else if (got != *mirror) {
				printf("round %d: page %llu thread %u: counter %llu, mirror %llu\n",
				       round, (unsigned long long)page, w / 8,
				       (unsigned long long)got, (unsigned long long)*mirror);
				shared->failed = 1;
				return;
			}
		}
}

static void nap(long us)
{
	nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

/*
 * Threads wait on futexes, never by short naps: threads that wake every 100 us beside others
 * that spin in one scheduling group (autogroup, or a cgroup) keep every other group of the machine,
 * kernel threads too, off the processors for up to half a minute (Linux 6.18, two cores; without
 * groups the longest delay is 10 ms). This happens without rampfs, too.
 */
static void wake(atomic_int *what)
{
	syscall(SYS_futex, what, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void set(atomic_int *what, int value)
{
	*what = value;
	wake(what);
}

/* Waits until *what is no longer `value`; may return early. */
static void while_it_is(atomic_int *what, int value)
{
	struct timespec longest = {.tv_sec = 1};

	syscall(SYS_futex, what, FUTEX_WAIT, value, &longest, NULL, 0);
}

struct writer {
	unsigned thread, side;
	const char *path; /* NULL: it stores into memory */
};

/* Returns the page of the next store: one in 262,144 is anywhere. */
static uint64_t next_page(uint64_t *random)
{
	uint64_t x = *random;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	*random = x;
	if (x >> 46 == 0)
		return x % pages;
	return (shared->first + x % shared->span) % pages;
}

static void write_until_gone(unsigned t, uint64_t *random)
{
	for (;;) {
		uint64_t page = next_page(random);

		armed = 1;
		(*counter(page, t))++;
		atomic_signal_fence(memory_order_seq_cst);
		armed = 0;
		shared->mirror[page * threads + t]++;
		shared->stores++;
	}
}

/* The same by pwrite(2): it is all there, or not at all. */
static void pwrite_until_gone(unsigned t, uint64_t *random, const char *path)
{
	int fd = open(path, O_RDWR), error = errno;

	while (fd >= 0) {
		uint64_t page = next_page(random), *mirror = &shared->mirror[page * threads + t];
		uint64_t count = *mirror + 1;
		ssize_t n =
			pwrite(fd, &count, sizeof(count), (off_t)(page * PAGE + UINT64_C(64) * t));

		error = errno;
		if (n != sizeof(count))
			break;
		*mirror = count;
		shared->stores++;
		shared->io++;
	}
	if (fd >= 0)
		close(fd);
	if (error != EREMOTE && error != ENOENT) {
		printf("pwrite: %s\n", strerror(error));
		shared->failed = 1;
	}
}

static void *writer(void *arg)
{
	struct writer *w = arg;
	uint64_t random = 88172645463325252u + w->thread * 7919 + w->side + seed * 15485863;
	volatile int done = -1;

	while (shared->round >= 0) {
		int round = shared->checked;

		if (round < 0 || round == done || round % 2 != (int)w->side) {
			while_it_is(&shared->checked, round);
			continue;
		}
		if (w->path)
			pwrite_until_gone(w->thread, &random, w->path);
		else if (!sigsetjmp(on_gone, 1))
			write_until_gone(w->thread, &random);
		armed = 0;
		done = round;
		shared->stopped++;
		wake(&shared->stopped);
	}
	return NULL;
}

/* Makes every other 2 MiB a mapping of small pages. */
static void mix(void)
{
	for (uint64_t at = 0; at < pages * PAGE; at += UINT64_C(4) << 20)
		madvise(segment + at, UINT64_C(2) << 20, MADV_NOHUGEPAGE);
}

/* Process `which` of that side; the first one checks. */
static int side_main(unsigned side, unsigned which, const char *path)
{
	unsigned from = threads * which / processes, to = threads * (which + 1) / processes;
	pthread_t ids[THREADS_MAX] = {0};
	struct writer writers[THREADS_MAX];
	int fd, last = -1;

	signal(SIGBUS, bus);
	for (;;) {
		int round = shared->round;

		if (round < 0)
			break;
		if (round == last || round % 2 != (int)side) {
			while_it_is(&shared->round, round);
			continue;
		}
		last = round;
		if (!segment) {
			fd = open(path, O_RDWR);
			segment = fd < 0 ? MAP_FAILED
					 : mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
						MAP_SHARED, fd, 0);
			if (segment == MAP_FAILED) {
				printf("side %u: %s: %s\n", side, path, strerror(errno));
				shared->failed = 1;
				return 1;
			}
			close(fd);
			if (processes > 1)
				mix();
			if (round == 0 && which == 0)
				fill();
			for (unsigned t = from; t < to; t++) {
				writers[t] = (struct writer){.thread = t, .side = side};
				if (t == 0 && getenv("ORACLE_IO"))
					writers[t].path = path;
				pthread_create(&ids[t], NULL, writer, &writers[t]);
			}
		}
		if (which > 0) {
			shared->ready[side]++;
			wake(&shared->ready[side]);
			continue;
		}
		check(round);
		while (shared->ready[side] < (int)processes - 1 && !shared->failed)
			while_it_is(&shared->ready[side], shared->ready[side]);
		set(&shared->checked, round);
	}
	for (unsigned t = from; segment && t < to; t++)
		pthread_join(ids[t], NULL);
	return 0;
}

/* Waits until `what` is `value`. Returns whether nothing has failed. */
static int await(atomic_int *what, int value)
{
	time_t until = time(NULL) + 60;

	while (time(NULL) < until) {
		int now = *what;

		if (shared->failed)
			return 0;
		if (now == value)
			return 1;
		while_it_is(what, now);
	}
	printf("waited 60 s in vain\n");
	return 0;
}

/*
 * Moves the file. On an overloaded machine a move may be refused for want of a quorum or because the
 * other node seems to be down: nothing has happened then, and the move is repeated.
 */
static int move(unsigned round, const char *from, const char *to)
{
	for (int i = 0; i < 600; i++) {
		if (rename(from, to) == 0)
			return 0;
		if (errno == EINPROGRESS || errno == ETIMEDOUT || errno == ENOENT)
			for (int k = 0; k < 300; k++) {
				if (access(to, F_OK) == 0)
					return 0;
				nap(100000);
			}
		else if (errno != EROFS && errno != EHOSTUNREACH && errno != EBUSY)
			break;
		refused++;
		nap(100000);
	}
	printf("round %u: rename %s %s: %s\n", round, from, to, strerror(errno));
	return 1;
}

/* Waits until the cluster's rules know it. */
static int keep_near(int fd, const char *node)
{
	int rc = -1;

	for (int i = 0; node && rc && i < 200; i++) {
		rc = fsetxattr(fd, "user.ramp.prefill", node, strlen(node), 0);
		if (rc)
			nap(100000);
	}
	return node ? rc : 0;
}

/* Waits for a second at most until the prefill has begun, or has been all over there. */
static void await_prefill(const char *path, const char *node, bool all)
{
	const char *near = getenv("ORACLE_PREFILL");
	char words[400];
	ssize_t n;

	for (int i = 0; near && strcmp(near, node) == 0 && i < 100; i++) {
		n = getxattr(path, "user.ramp.prefill_state", words, sizeof(words) - 1);
		words[n > 0 ? n : 0] = 0;
		if (strstr(words, "state=keeping") || (!all && strstr(words, "state=filling")))
			return;
		nap(10000);
	}
}

static void read_modes(const char *text)
{
	static char copy[256];
	char *words = text ? copy : NULL, *name;

	snprintf(copy, sizeof(copy), "%s", text ? text : "");
	while (n_drawn < MODES_MAX && (name = strsep(&words, " "))) {
		struct mode *m = modes;

		while (m->name && strcmp(m->name, name) != 0)
			m++;
		if (!m->name)
			*m = (struct mode){.name = name, .least = UINT64_MAX};
		drawn[n_drawn++] = m;
	}
}

/* Adds up which pages came after the hand-over. All of them have been loaded at the target, so that its pull ends. */
static void add_left(const char *path, const char *node)
{
	char words[1024], to[64], *demand, *prefetch;
	uint64_t left;
	ssize_t n;

	snprintf(to, sizeof(to), " to=%s ", node);
	for (int i = 0; moved_by && i < 200; i++) {
		n = getxattr(path, "user.ramp.last_move", words, sizeof(words) - 1);
		words[n > 0 ? n : 0] = 0;
		demand = strstr(words, " demand_pages=");
		prefetch = strstr(words, " prefetch_pages=");
		if (strstr(words, to) && demand && prefetch) {
			left = strtoull(strchr(demand, '=') + 1, NULL, 10) +
			       strtoull(strchr(prefetch, '=') + 1, NULL, 10);
			moved_by->told++;
			moved_by->left += left;
			if (left < moved_by->least)
				moved_by->least = left;
			break;
		}
		nap(5000);
	}
	moved_by = NULL;
}

/* Returns whether something is wrong. */
static int report_modes(void)
{
	int rc = 0;

	for (struct mode *m = modes; m < modes + MODES_MAX; m++) {
		uint64_t all = pages * m->told;

		if (!all)
			continue;
		printf("mode %s: %u moves, which left %llu pages of %llu, the best %llu\n", m->name,
		       m->moves, (unsigned long long)m->left, (unsigned long long)all,
		       (unsigned long long)m->least);
		if (strcmp(m->name, "precopy") == 0 && m->least >= pages) {
			printf("every pre-copy left all pages\n");
			rc = 1;
		}
	}
	return rc;
}

/* The same by rampfs-migrate, in one of the modes. */
static int migrate(unsigned round, uint64_t random, const char *from, const char *to,
		   const char *node)
{
	struct mode *mode = drawn[random % n_drawn];

	await_prefill(from, node, random >> 16 & 1);
	for (int i = 0; i < 600; i++) {
		int status = 1;
		pid_t child = fork();

		if (child == 0) {
			unsetenv("LD_PRELOAD"); /* the shim is for programs that map segments */
			execl(tool, "rampfs-migrate", "--mode", mode->name, from, node, NULL);
			_exit(127);
		}
		if (waitpid(child, &status, 0) == child && status == 0) {
			mode->moves++;
			moved_by = mode;
			return 0;
		}
		if (access(to, F_OK) == 0)
			return 0;
		refused++;
		nap(100000);
	}
	printf("round %u: %s does not move to %s\n", round, from, node);
	return 1;
}

static void draw_span(uint64_t random)
{
	const uint64_t spans[] = {FEW, pages / 16, pages};

	shared->span = spans[random % 3];
	shared->first = (random >> 8) % pages;
}

/* `own`: as each side sees it. */
static int move_to_and_fro(char paths[2][600], char own[2][600], char *const nodes[2])
{
	uint64_t random = seed;

	for (unsigned r = 0; r < rounds; r++) {
		unsigned side = r % 2;

		random = random * 6364136223846793005u + 1442695040888963407u;
		draw_span(random >> 33);
		shared->stopped = 0;
		set(&shared->round, (int)r);
		if (!await(&shared->checked, (int)r))
			return 1;
		add_left(own[side], nodes[side]);
		random = random * 6364136223846793005u + 1442695040888963407u;
		nap((long)(random >> 40) % 20000);
		if (n_drawn ? migrate(r, random >> 33, paths[side], paths[1 - side],
				      nodes[1 - side])
			    : move(r, paths[side], paths[1 - side]))
			return 1;
		moved++;
		if (!await(&shared->stopped, (int)threads)) {
			printf("round %u: %d of %u writers stopped after the move\n", r,
			       (int)shared->stopped, threads);
			return 1;
		}
	}
	return 0;
}

static int make(const char *path, const char *of_pages)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || ftruncate(fd, (off_t)(pages * PAGE)) < 0 ||
	    (of_pages && fsetxattr(fd, "user.ramp.pages", of_pages, strlen(of_pages), 0) < 0) ||
	    keep_near(fd, getenv("ORACLE_PREFILL"))) {
		perror(path);
		return 1;
	}
	close(fd);
	return 0;
}

/* `failed`: they may hang. Returns whether one has not ended well. */
static int end_children(const pid_t *children, unsigned count, int failed)
{
	int status, rc = 0;

	for (unsigned s = 0; s < count; s++) {
		for (int i = 0; failed && i < 50 && waitpid(children[s], &status, WNOHANG) == 0;
		     i++)
			nap(100000);
		if (failed)
			kill(children[s], SIGKILL);
		if (waitpid(children[s], &status, 0) > 0 && status) {
			printf("side %u ended with status %x\n", s % 2, (unsigned)status);
			rc = 1;
		}
	}
	return rc;
}

int main(int argc, char **argv)
{
	/* Each end has its own mount; renames go through the first one, or with `own` through the owner's. */
	char paths[2][600], own[2][600];
	pid_t children[4];
	unsigned count;
	int rc;

	setlinebuf(stdout);
	if (argc > 2 && strcmp(argv[1], "--seed") == 0) {
		seed = strtoull(argv[2], NULL, 10);
		argv += 2;
		argc -= 2;
	}
	if (argc != 8 && argc != 9) {
		fprintf(stderr, "Usage: oracle [--seed N] MOUNT_A DIR_A MOUNT_B DIR_B MIB THREADS "
				"ROUNDS [small|huge|mixed]\n");
		return 2;
	}
	for (int s = 0; s < 2; s++) {
		snprintf(paths[s], sizeof(paths[s]), "%s/%s/oracle", argv[1], argv[2 + 2 * s]);
		snprintf(own[s], sizeof(own[s]), "%s/%s/oracle", argv[1 + 2 * s], argv[2 + 2 * s]);
	}
	pages = strtoull(argv[5], NULL, 10) * 256;
	threads = (unsigned)atoi(argv[6]);
	rounds = (unsigned)atoi(argv[7]);
	if (threads < 1 || threads > THREADS_MAX || pages == 0)
		return 2;
	if (argc == 9 && strcmp(argv[8], "mixed") == 0) {
		processes = 2;
		argc = 8;
	}
	read_modes(getenv("ORACLE_MODES"));
	if (getenv("ORACLE_MIGRATE"))
		tool = getenv("ORACLE_MIGRATE");
	shared = mmap(NULL, sizeof(*shared) + pages * threads * 8, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	shared->checked = -1; /* round 0 begins at once */
	if (make(own[0], argc == 9 ? argv[8] : NULL))
		return 1;
	for (count = 0; count < 2 * processes; count++) {
		children[count] = fork();
		if (children[count] == 0)
			_exit(side_main(count % 2, count / 2, own[count % 2]));
	}
	rc = move_to_and_fro(paths, own, (char *const[]){argv[2], argv[4]});
	set(&shared->round, -1);
	wake(&shared->checked); /* the writers sleep on it */
	if (end_children(children, count, rc))
		rc = 1;
	printf("seed %llu: %u moves (%u refused), %llu stores, %llu caught between a store and its "
	       "mirror\n",
	       (unsigned long long)seed, moved, refused, (unsigned long long)shared->stores,
	       (unsigned long long)shared->late);
	if (getenv("ORACLE_IO"))
		printf("%llu of the stores by pwrite\n", (unsigned long long)shared->io);
	if (report_modes() || (getenv("ORACLE_IO") && !shared->io))
		rc = 1;
	unlink(paths[rounds % 2]);
	return rc || shared->failed;
}
