/*
 * Programs that make it hard to take a segment away from them, and to give it back: whichever limits
 * they have, and whatever they do just then, a touch has an end, their loads are right, and their own
 * memory stays theirs.
 *
 *	rampfs-run awkward data|as|full|lock|files|filter FILE
 *		once it has mapped FILE it may have no more memory of its own, addresses (full: by
 *		less than the least part), locked memory or open files than it has, or may no longer
 *		call poll(2) (seccomp(2), all threads). Says "mapped", and "gone" when a load is the
 *		signal that it must be; ends when a load shows its stored word again.
 *		full: once a file GO is there it makes room. filter: ends when FILE has left once more
 *	rampfs-run awkward again FILE
 *		when FILE has gone it maps it again, through the same open file, until that succeeds
 *	rampfs-run awkward outlived|left FILE
 *		stores to every page. When FILE has gone, and a file GO is there, it waits until
 *		FILE has come back, says "back", and when a file GO0 is there, ends before a child
 *		that shares its memory. The child says "first" when it has loaded some of the pages,
 *		waits for a file GO2, and says "right" when it has loaded all
 *	rampfs-run awkward replaced FILE OTHER
 *		the same, but instead of ending it becomes another program, which maps OTHER, says
 *		"other", and ends when a file GO3 is there; its child waits for a file GO1
 *	rampfs-run awkward mosaic FILE
 *		protects every other of PIECES pages; when FILE has gone and come back, and a file
 *		GO2 is there, it and a child of it load all stored words, and may store exactly
 *		where they are allowed to
 *	rampfs-run awkward sealed FILE
 *		seals its mapping (mseal(2)), and ends when a file GO is there
 *	rampfs-run awkward forks FILE THERE ROUNDS
 *		moves FILE to THERE and back, while its threads make children of which no handler of
 *		fork(2) is told: no child has anything of FILE
 *	rampfs-run awkward holes FILE THERE ROUNDS
 *		moves FILE to THERE and back, while a thread of it stores to one page and punches
 *		another out past the shim, in turn, all the time: its last store is there
 *	rampfs-run awkward over FILE THERE ROUNDS
 *		moves FILE to THERE and back, and has put memory of its own in its place by then
 *	rampfs-run awkward covered FILE THERE ROUNDS
 *		forks, FILE being here or THERE in turn, and has put memory of its own over a part
 *		of it in the midst of that: its child has both
 *
 * Exit status 0: all was as it must be.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BYTES	    (64u << 20)
#define OVER_BYTES  (2u << 20)
#define ROOM	    (32u << 20) /* less than BYTES */
#define LOCKED	    (4u << 20)	/* a user may usually lock one and a half times as much */
#define PATIENCE_US 20000000u
#define STORED	    UINT64_C(0x5245544e454d4553)
#define NOBODY	    65534
#define PAGE_BYTES  4096
#define FORKERS	    4
#define PIECES	    12000
#define SYS_MSEAL   462 /* Linux 6.10 */
#define STACK_BYTES (256u << 10)

static sigjmp_buf on_signal;
static void *ballast;

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

/* Loads a word. Returns the signal that the load is; 0: *got is the word. */
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

/* Waits until a load is that signal, or for 0 shows the stored word. */
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

/* ---- limits ---- */

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

static void forbid_poll(void)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_poll, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {.len = sizeof(rules) / sizeof(rules[0]), .filter = rules};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter))
		fail("seccomp");
}

static void set_limit(const char *which, const volatile uint64_t *at)
{
	if (strcmp(which, "data") == 0) {
		limit(RLIMIT_DATA, ROOM);
	} else if (strcmp(which, "as") == 0) {
		limit(RLIMIT_AS, mapped_bytes() + ROOM);
	} else if (strcmp(which, "full") == 0) {
		ballast = mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (ballast == MAP_FAILED)
			fail("ballast");
		limit(RLIMIT_AS, mapped_bytes() + PAGE_BYTES);
	} else if (strcmp(which, "files") == 0) {
		limit(RLIMIT_NOFILE, 0);
	} else if (strcmp(which, "filter") == 0) {
		forbid_poll();
	} else {
		limit(RLIMIT_MEMLOCK, LOCKED + LOCKED / 2);
		if (setuid(NOBODY) || mlockall(MCL_FUTURE) || mlock((void *)at, LOCKED))
			fail("mlockall");
	}
}

/* The program could not get the segment back and was told so; it gets it when there is room. */
static void make_room(const volatile uint64_t *at)
{
	uint64_t got;

	while (access("GO", F_OK))
		usleep(10000);
	if (touch(at, &got) != SIGBUS) {
		puts("a segment that could not be put in its place is no SIGBUS");
		exit(1);
	}
	if (munmap(ballast, ROOM))
		fail("munmap");
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
	if (strcmp(which, "full") == 0)
		make_room(at);
	if (!files)
		await(at, 0);
	if (strcmp(which, "filter") == 0)
		await(at, SIGBUS);
	return 0;
}

/* ---- again ---- */

static int again(const char *path)
{
	int fd = open(path, O_RDWR), number;
	volatile uint64_t *at = map(fd, BYTES), *second;
	uint64_t until = now_us() + PATIENCE_US, got = 0;

	if (!at)
		fail(path);
	*at = STORED;
	puts("mapped");
	await(at, SIGBUS);
	puts("gone");
	while (!(second = map(fd, BYTES)))
		if (now_us() > until)
			fail("mapping it again");
	number = touch(second, &got);
	if (second == at && number == 0 && got == STORED)
		return 0;
	printf("mapped again, a load is signal %d, or %lx\n", number, (unsigned long)got);
	return 1;
}

/* ---- outlived ---- */

static void await_file(const char *name)
{
	uint64_t until = now_us() + 2 * PATIENCE_US;

	while (access(name, F_OK)) {
		if (now_us() > until)
			fail(name);
		usleep(10000);
	}
}

static void check_pages(const volatile uint64_t *at, uint64_t count)
{
	uint64_t got = 0;

	for (uint64_t page = 0; page < count; page++) {
		int number = touch(at + page * PAGE_BYTES / sizeof(*at), &got);

		if (number || got != STORED + page) {
			printf("page %lu: a load is signal %d, or %lx\n", (unsigned long)page,
			       number, (unsigned long)got);
			_exit(1);
		}
	}
}

static pid_t outlived_by;

static int outlive(void *at)
{
	while (getppid() == outlived_by && access("GO1", F_OK))
		usleep(1000);
	check_pages(at, BYTES / PAGE_BYTES / 4);
	puts("first");
	await_file("GO2");
	check_pages(at, BYTES / PAGE_BYTES);
	puts("right");
	_exit(0);
}

/* other: the file that the next program in this process maps; NULL: there is no next one. */
static int outlived(const char *path, const char *other)
{
	static char stack[STACK_BYTES] __attribute__((aligned(16)));
	volatile uint64_t *at = map(open(path, O_RDWR), BYTES);

	if (!at)
		fail(path);
	for (uint64_t page = 0; page < BYTES / PAGE_BYTES; page++)
		at[page * PAGE_BYTES / sizeof(*at)] = STORED + page;
	puts("mapped");
	await(at, SIGBUS);
	puts("gone");
	await_file("GO");
	await(at, 0);
	puts("back");
	await_file("GO0");
	outlived_by = getpid();
	if (clone(outlive, stack + sizeof(stack), CLONE_VM | SIGCHLD, (void *)at) < 0)
		fail("a child");
	if (other)
		execl("/proc/self/exe", "awkward", "other", other, (char *)NULL);
	_exit(other != NULL);
}

static int map_other(const char *path)
{
	if (!map(open(path, O_RDWR), OVER_BYTES))
		fail(path);
	puts("other");
	await_file("GO3");
	return 0;
}

/* Stores a word. Returns the signal that the store is, or 0. */
static int store(volatile uint64_t *at, uint64_t number)
{
	int caught = sigsetjmp(on_signal, 1);

	if (!caught)
		*at = number;
	return caught;
}

static void check_mosaic(volatile uint64_t *at)
{
	check_pages(at, BYTES / PAGE_BYTES);
	for (uint64_t page = 0; page < PIECES; page++) {
		int number = store(at + page * PAGE_BYTES / sizeof(*at), STORED + page);

		if (number != (page % 2 ? 0 : SIGSEGV)) {
			printf("a store to page %lu is signal %d\n", (unsigned long)page, number);
			_exit(1);
		}
	}
}

static int mosaic(const char *path)
{
	volatile uint64_t *at = map(open(path, O_RDWR), BYTES);
	int status;
	pid_t pid;

	if (!at)
		fail(path);
	for (uint64_t page = 0; page < BYTES / PAGE_BYTES; page++)
		at[page * PAGE_BYTES / sizeof(*at)] = STORED + page;
	for (uint64_t page = 0; page < PIECES; page += 2)
		if (mprotect((char *)at + page * PAGE_BYTES, PAGE_BYTES, PROT_READ))
			fail("mprotect");
	puts("mapped");
	await(at, SIGBUS);
	puts("gone");
	await(at, 0);
	puts("back");
	await_file("GO2");
	pid = fork();
	check_mosaic(at);
	if (pid == 0)
		_exit(0);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		fail("a child");
	return status != 0;
}

static int sealed(const char *path)
{
	volatile uint64_t *at = map(open(path, O_RDWR), BYTES);

	if (!at)
		fail(path);
	*at = STORED;
	if (syscall(SYS_MSEAL, at, (size_t)BYTES, 0UL)) {
		puts("no mseal");
		return errno == ENOSYS ? 0 : 1;
	}
	puts("mapped");
	await_file("GO");
	await(at, 0);
	return 0;
}

/* ---- over ---- */

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

/* Waits until the shim has a thread more, which puts the segment in its place, or long enough. */
static bool await_swap(void)
{
	uint64_t until = now_us() + 200000;
	nlink_t before;

	usleep(300); /* until the thread that moves it has begun */
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

/* Returns false if the shim had no such thread meanwhile. */
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

/* ---- forks ---- */

static atomic_bool forking = true, found;

/* Returns whether a line of /proc/self/maps names a file of the store. */
static bool has_any(void)
{
	static char text[1 << 20];
	int fd = open("/proc/self/maps", O_RDONLY);
	size_t len = 0;
	ssize_t n;

	while ((n = read(fd, text + len, sizeof(text) - 1 - len)) > 0)
		len += (size_t)n;
	text[len] = '\0';
	return strstr(text, "/store/") != NULL;
}

static int look(void *unused)
{
	(void)unused;
	_exit(has_any());
}

static pid_t fork_here(void *unused)
{
	pid_t pid = _Fork();

	(void)unused;
	if (pid == 0)
		_exit(has_any());
	return pid;
}

static pid_t clone_here(void *stack)
{
	return clone(look, (char *)stack + STACK_BYTES, SIGCHLD, NULL);
}

static void *fork_on(void *make)
{
	pid_t (*const *child)(void *) = make;
	char *stack = malloc(STACK_BYTES);

	while (stack && atomic_load(&forking)) {
		pid_t pid = (*child)(stack);
		int status;

		if (pid < 0 || waitpid(pid, &status, 0) != pid)
			fail("a child");
		if (status)
			atomic_store(&found, true);
	}
	free(stack);
	return NULL;
}

/* Memory that takes long to copy: then the forks wait for each other, and come right behind an agent. */
static void fill_memory(void)
{
	char *at = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		fail("memory");
	madvise(at, ROOM, MADV_NOHUGEPAGE);
	memset(at, 1, ROOM);
}

static int forks(int rounds)
{
	pid_t (*ways[])(void *) = {fork_here, clone_here};
	volatile uint64_t *at = send_away();
	pthread_t threads[FORKERS];

	fill_memory();
	for (int i = 0; i < FORKERS; i++)
		if (pthread_create(&threads[i], NULL, fork_on, &ways[i % 2]))
			fail("a thread");
	for (int i = 0; i < rounds && !atomic_load(&found); i++) {
		come_back(NULL);
		await(at, 0);
		while (rename(paths[0], paths[1]))
			usleep(1000);
		await(at, SIGBUS);
	}
	atomic_store(&forking, false);
	for (int i = 0; i < FORKERS; i++)
		pthread_join(threads[i], NULL);
	if (found)
		puts("a child has the segment's file mapped");
	return found;
}

/* ---- holes ---- */

#define STRIDE (OVER_BYTES / 2 / sizeof(uint64_t))

static volatile uint64_t stored; /* plus its number: the word of a page */

static void *punch_on(void *arg)
{
	volatile uint64_t *at = arg;
	volatile uint64_t number;

	if (sigsetjmp(on_signal, 1))
		return NULL;
	for (number = stored + 1;; number++) {
		at[number % 2 * STRIDE] = number;
		stored = number;
		syscall(SYS_madvise, at + (number + 1) % 2 * STRIDE, PAGE_BYTES, MADV_REMOVE);
		usleep(20);
	}
}

static int holes(int rounds)
{
	volatile uint64_t *at = map(open(paths[0], O_RDWR), OVER_BYTES);
	pthread_t thread;

	if (!at || madvise((void *)at, OVER_BYTES, MADV_NOHUGEPAGE))
		fail(paths[0]);
	for (int i = 0; i < rounds; i++) {
		uint64_t got = 0;
		int number;

		if (pthread_create(&thread, NULL, punch_on, (void *)at))
			fail("a thread");
		while (rename(paths[0], paths[1]))
			usleep(1000);
		pthread_join(thread, NULL);
		come_back(NULL);
		number = touch(at + stored % 2 * STRIDE, &got);
		if (number || got != stored) {
			printf("stored %lu, a load is signal %d, or %lu\n", (unsigned long)stored,
			       number, (unsigned long)got);
			return 1;
		}
	}
	return 0;
}

/* ---- covered ---- */

#define COVER_PAGES 4 /* of each COVER_EACH, but for the first page */
#define COVER_EACH  8
#define COVERED	    UINT64_C(0x434f564552454400)

static volatile uint64_t *page_of(volatile uint64_t *at, uint64_t page)
{
	return at + page * PAGE_BYTES / sizeof(*at);
}

static struct {
	volatile uint64_t *at;
	uint64_t parts; /* that are covered */
	bool one_more;
} covers;

/* Runs after the shim's own handler, which does not know of this mapping. */
static void cover_one(void)
{
	uint64_t first = 1 + covers.parts * COVER_EACH;

	if (!covers.one_more)
		return;
	covers.one_more = false;
	covers.parts++;
	if (mmap((void *)page_of(covers.at, first), COVER_PAGES * PAGE_BYTES,
		 PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		 0) == MAP_FAILED)
		fail("memory over it");
	for (uint64_t page = first; page < first + COVER_PAGES; page++)
		*page_of(covers.at, page) = COVERED + page;
}

static bool check_covers(const char *who, bool away)
{
	for (uint64_t page = 0; page < OVER_BYTES / PAGE_BYTES; page++) {
		bool own = page > 0 && (page - 1) / COVER_EACH < covers.parts &&
			   (page - 1) % COVER_EACH < COVER_PAGES;
		int wanted = away && !own ? SIGBUS : 0;
		uint64_t got = 0;
		int number = touch(page_of(covers.at, page), &got);

		if (number == wanted && (number || got == (own ? COVERED : STORED) + page) &&
		    (!own || !store(page_of(covers.at, page), got)))
			continue;
		printf("%s, %s: page %lu is signal %d, or %lx\n", who, away ? "away" : "here",
		       (unsigned long)page, number, (unsigned long)got);
		return false;
	}
	return true;
}

static bool ended_well(pid_t child)
{
	int status;

	return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static int covered_child(bool away)
{
	pid_t child;

	if (!check_covers("a child", away))
		return 1;
	child = fork();
	if (!child)
		_exit(!check_covers("a child's child", away));
	return !ended_well(child);
}

static int covered(int rounds)
{
	pthread_atfork(cover_one, NULL, NULL);
	covers.at = map(open(paths[0], O_RDWR), OVER_BYTES);
	if (!covers.at)
		fail(paths[0]);
	for (uint64_t page = 0; page < OVER_BYTES / PAGE_BYTES; page++)
		*page_of(covers.at, page) = STORED + page;
	for (int i = 0; i < rounds; i++) {
		bool away = i % 2;
		pid_t child;

		if (away && rename(paths[0], paths[1]))
			fail(paths[1]);
		covers.one_more = true;
		child = fork();
		if (!child)
			_exit(covered_child(away));
		if (!ended_well(child) || !check_covers("the parent", away))
			return 1;
		if (away && rename(paths[1], paths[0]))
			fail(paths[0]);
		await(covers.at, 0);
	}
	return 0;
}

static const struct mover {
	const char *name;
	int (*run)(int rounds);
} movers[] = {{"over", over}, {"forks", forks}, {"holes", holes}, {"covered", covered}};

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = jump};

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 3 || sigaction(SIGBUS, &action, NULL) || sigaction(SIGSEGV, &action, NULL))
		return 2;
	paths = argv + 2;
	for (size_t i = 0; i < sizeof(movers) / sizeof(movers[0]); i++)
		if (strcmp(argv[1], movers[i].name) == 0)
			return argc == 5 ? movers[i].run(atoi(argv[4])) : 2;
	if (strcmp(argv[1], "mosaic") == 0)
		return mosaic(argv[2]);
	if (strcmp(argv[1], "sealed") == 0)
		return sealed(argv[2]);
	if (strcmp(argv[1], "outlived") == 0 || strcmp(argv[1], "left") == 0)
		return outlived(argv[2], NULL);
	if (strcmp(argv[1], "replaced") == 0)
		return argc == 4 ? outlived(argv[2], argv[3]) : 2;
	if (strcmp(argv[1], "other") == 0)
		return map_other(argv[2]);
	return strcmp(argv[1], "again") == 0 ? again(argv[2]) : limited(argv[1], argv[2]);
}
