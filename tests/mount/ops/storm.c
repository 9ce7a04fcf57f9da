/*
 * Writers, readers, movers and a changer of names at once, on three nodes, for some seconds.
 *
 *	storm SECONDS SEED MOUNT_A MOUNT_B MOUNT_C
 *
 * Happy path: two writers on each node write ever higher numbers, each into places of its own in
 * every file, and append lines to one more; two movers take the files from node to node under
 * them, by rename(2) or with rampfs-migrate in copy mode. A writer that is not on the owner gets EREMOTE,
 * and its write must not be there. A reader, on any node that answers, finds every number that was
 * acknowledged before it began. In the end each place holds the number that was acknowledged last,
 * and the log has every line once, in order.
 *
 * How it fails: an errno that the design does not name for this, or a missing or superfluous
 * number; a line on stdout, exit status 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NODES	3
#define WRITERS 6
#define FILES	4
#define LOG	FILES /* the file that is appended to */
#define STRIDE	(256 * 1024L)
#define SIZE	(WRITERS * STRIDE)

struct line {
	uint32_t writer, check;
	uint64_t number;
};

static struct shared {
	atomic_bool stop, failed;
	atomic_ulong writes, lines, reads, moves, copies, refused, remote, names;
	_Atomic uint64_t issued[FILES][WRITERS], acked[FILES][WRITERS];
	uint64_t appended[WRITERS];
} * shared;

static const char *mounts[NODES];
static uint64_t random_state;

static void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fail(const char *fmt, ...)
{
	va_list ap;

	shared->failed = true;
	shared->stop = true;
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
	_exit(1);
}

static long draw(long below)
{
	uint64_t x = random_state += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return (long)((x ^ x >> 31) % (uint64_t)below);
}

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

static const char *path(int node, int dir, int file)
{
	static char paths[2][4096];
	static int turn;
	char *p = paths[turn++ % 2];

	snprintf(p, sizeof(paths[0]), "%s/%c/storm%d", mounts[node], 'a' + dir, file);
	return p;
}

/* Opens the file wherever it is now. While it moves it may be missed, but not for long. */
static int open_any(int node, int file, int flags)
{
	for (int i = 0; i < 3000; i++) {
		int fd = open(path(node, i % NODES, file), flags | O_CLOEXEC);

		if (fd >= 0)
			return fd;
		if (errno != ENOENT)
			fail("open on %c: %s", 'a' + node, strerror(errno));
		if (i % NODES == NODES - 1)
			nap();
	}
	fail("storm%d is nowhere on %c", file, 'a' + node);
}

static bool went(ssize_t rc, ssize_t want, const char *what)
{
	if (rc == want)
		return true;
	if (rc >= 0 || errno != EREMOTE)
		fail("%s: %zd, %s", what, rc, rc < 0 ? strerror(errno) : "short");
	shared->remote++;
	return false;
}

static long place(int writer, uint64_t number)
{
	return writer * STRIDE + (long)(number * 4096 % STRIDE);
}

/* Writes the number to the writer's first place, which counts, and also to another page. */
static bool write_number(int fd, int file, int writer)
{
	uint64_t number = ++shared->issued[file][writer];

	if (!went(pwrite(fd, &number, 8, place(writer, 0)), 8, "write"))
		return false;
	shared->acked[file][writer] = number;
	went(pwrite(fd, &number, 8, place(writer, number) + 8), 8, "write");
	shared->writes++;
	return true;
}

static bool append_line(int fd, int writer)
{
	struct line line = {.writer = (uint32_t)writer, .number = shared->appended[writer]};

	line.check = line.writer ^ (uint32_t)line.number ^ 0x5bd1e995;
	if (!went(write(fd, &line, sizeof(line)), sizeof(line), "append"))
		return false;
	shared->appended[writer]++;
	shared->lines++;
	return true;
}

static void be_writer(int writer)
{
	int node = writer % NODES, fds[FILES + 1];

	for (int f = 0; f <= FILES; f++)
		fds[f] = open_any(node, f, f == LOG ? O_WRONLY | O_APPEND : O_RDWR);
	while (!shared->stop) {
		int f = (int)draw(FILES + 1);

		if (draw(50) == 0) {
			close(fds[f]);
			fds[f] = open_any(node, f, f == LOG ? O_WRONLY | O_APPEND : O_RDWR);
		}
		if (f == LOG ? !append_line(fds[f], writer) : !write_number(fds[f], f, writer))
			nap();
	}
}

static void be_reader(int node)
{
	int fds[FILES];

	for (int f = 0; f < FILES; f++)
		fds[f] = open_any(node, f, O_RDONLY);
	while (!shared->stop) {
		int f = (int)draw(FILES), w = (int)draw(WRITERS);
		uint64_t least = shared->acked[f][w], number;

		if (!went(pread(fds[f], &number, 8, place(w, 0)), 8, "read")) {
			nap();
			continue;
		}
		if (number < least || number > shared->issued[f][w])
			fail("storm%d on %c: writer %d's number is %lu, %lu was acknowledged", f,
			     'a' + node, w, number, least);
		shared->reads++;
	}
}

/* Returns whether a move, or a change of a row that is moving, may fail with this errno. */
static bool may_be_refused(int code)
{
	switch (code) {
	case ENOENT: /* it is elsewhere by now */
	case EEXIST: /* it is there by now */
	case EBUSY:
		return true;
	case EROFS:
	case EHOSTUNREACH:
	case ETIMEDOUT:
	case EINPROGRESS: /* a machine with much else to do */
		shared->refused++;
		return true;
	default:
		return false;
	}
}

/* Moves by copy: writers and readers of the file wait meanwhile. It may fail as rename does, in words. */
static void move_as_copy(const char *file, int to)
{
	char node[] = {(char)('a' + to), '\0'};
	char *const args[] = {"rampfs-migrate", "--mode", "copy", "--", (char *)file, node, NULL};
	posix_spawn_file_actions_t quiet;
	int status;
	pid_t pid;

	posix_spawn_file_actions_init(&quiet);
	posix_spawn_file_actions_addopen(&quiet, 2, "/dev/null", O_WRONLY, 0);
	errno = posix_spawnp(&pid, args[0], &quiet, NULL, args, environ);
	if (errno)
		fail("posix_spawn: %s", strerror(errno));
	posix_spawn_file_actions_destroy(&quiet);
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) == 2 ||
	    WEXITSTATUS(status) > 3)
		fail("rampfs-migrate of %s to %s: status %x", file, node, (unsigned)status);
	if (WEXITSTATUS(status) == 0)
		shared->copies++;
}

static void be_mover(void)
{
	while (!shared->stop) {
		int f = (int)draw(FILES + 1), on = (int)draw(NODES), to = (int)draw(NODES);
		int from = (to + 1 + (int)draw(2)) % NODES;

		if (draw(4) == 0)
			move_as_copy(path(on, from, f), to);
		else if (rename(path(on, from, f), path(on, to, f)) == 0)
			shared->moves++;
		else if (!may_be_refused(errno))
			fail("rename on %c: %s", 'a' + on, strerror(errno));
		nap();
	}
}

static void must(int rc, const char *what)
{
	if (rc)
		fail("%s: %s", what, strerror(errno));
}

/* Changes names of its own, which no other process touches, and the modes of the files that move. */
static void be_namer(int node)
{
	char x[4096], y[4096];
	struct stat st;

	snprintf(x, sizeof(x), "%s/%c/x%d", mounts[node], 'a' + node, node);
	snprintf(y, sizeof(y), "%s/%c/y%d", mounts[node], 'a' + node, node);
	while (!shared->stop) {
		int fd = open(x, O_RDWR | O_CREAT | O_EXCL, 0600), dir = (int)draw(NODES);

		must(fd < 0, "create");
		must(write(fd, "x", 1) != 1, "write");
		must(rename(x, y), "rename");
		must(unlink(y), "unlink");
		must(fstat(fd, &st) || st.st_size != 1, "fstat of an unlinked file");
		must(close(fd), "close");
		if (chmod(path(node, dir, 0), draw(2) ? 0600 : 0644) && !may_be_refused(errno))
			fail("chmod: %s", strerror(errno));
		if (stat(path(node, dir, 1), &st) == 0 ? st.st_size != SIZE : errno != ENOENT)
			fail("stat: size %ld (%s)", st.st_size, strerror(errno));
		shared->names++;
	}
}

/* ---- */

static void prepare(void)
{
	char *bytes = calloc(1, SIZE);

	for (long i = 4095; i < SIZE; i += 4096)
		bytes[i] = (char)(1 + i / 4096 % 100);
	for (int f = 0; f <= FILES; f++) {
		int fd = open(path(f % NODES, f % NODES, f), O_RDWR | O_CREAT | O_EXCL, 0644);

		must(fd < 0, "create");
		must(f != LOG && write(fd, bytes, SIZE) != SIZE, "write");
		close(fd);
	}
	free(bytes);
	/* Every node knows the size. */
	nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 500000000}, NULL);
}

/* Opens the file where it is: at the first node that can read it. */
static int open_at_owner(int file)
{
	uint64_t byte;

	for (int i = 0; i < 5000; i++) {
		int fd = open_any(i % NODES, file, O_RDONLY);

		if (pread(fd, &byte, 1, 0) >= 0)
			return fd;
		close(fd);
		nap();
	}
	fail("no node has storm%d", file);
}

static void check_numbers(int file)
{
	int fd = open_at_owner(file);
	char byte;

	for (int w = 0; w < WRITERS; w++) {
		uint64_t number;

		must(pread(fd, &number, 8, place(w, 0)) != 8, "read");
		if (number != shared->acked[file][w])
			fail("storm%d: writer %d's number is %lu, %lu was acknowledged", file, w,
			     number, shared->acked[file][w]);
	}
	for (long i = 4095; i < SIZE; i += 4096) {
		must(pread(fd, &byte, 1, i) != 1, "read");
		if (byte != (char)(1 + i / 4096 % 100))
			fail("storm%d: byte %ld is %d", file, i, byte);
	}
	close(fd);
}

static void check_log(void)
{
	int fd = open_at_owner(LOG);
	uint64_t next[WRITERS] = {0};
	struct line line;
	ssize_t n;

	while ((n = read(fd, &line, sizeof(line))) == sizeof(line)) {
		if (line.writer >= WRITERS || line.number != next[line.writer]++ ||
		    line.check != (line.writer ^ (uint32_t)line.number ^ 0x5bd1e995))
			fail("the log has a wrong line: writer %u, number %lu", line.writer,
			     line.number);
	}
	if (n)
		fail("the log ends with %zd bytes", n);
	for (int w = 0; w < WRITERS; w++)
		if (next[w] != shared->appended[w])
			fail("the log has %lu lines of writer %d, not %lu", next[w], w,
			     shared->appended[w]);
	close(fd);
}

static void begin(void (*what)(int), int arg, uint64_t seed)
{
	pid_t pid = fork();

	if (pid)
		return;
	random_state = seed * UINT64_C(0x2545f4914f6cdd1d);
	what(arg);
	_exit(0);
}

/* Waits for all processes: each must end only as it was told. */
static void await_all(void)
{
	int status;
	pid_t pid;

	while ((pid = wait(&status)) > 0) {
		if (status && !shared->failed)
			printf("process %d ended with status %x\n", (int)pid, (unsigned)status);
		if (status)
			shared->failed = true;
	}
}

static void mover(int unused)
{
	(void)unused;
	be_mover();
}

int main(int argc, char **argv)
{
	uint64_t seed;
	unsigned seconds;

	if (argc != 3 + NODES)
		return 2;
	seconds = (unsigned)atoi(argv[1]);
	seed = strtoul(argv[2], NULL, 0) * 16; /* and each process has one of its own */
	for (int n = 0; n < NODES; n++)
		mounts[n] = argv[3 + n];
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	printf("storm: seed %s, %u s\n", argv[2], seconds);
	fflush(stdout);
	prepare();
	for (int w = 0; w < WRITERS; w++)
		begin(be_writer, w, seed++);
	for (int n = 0; n < NODES; n++)
		begin(be_reader, n, seed++);
	begin(be_namer, 0, seed++);
	begin(be_namer, 1, seed++);
	begin(mover, 0, seed++);
	begin(mover, 0, seed++);
	for (unsigned i = 0; i < seconds * 10 && !shared->stop; i++)
		nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
	shared->stop = true;
	await_all();
	if (shared->failed)
		return 1;
	for (int f = 0; f < FILES; f++)
		check_numbers(f);
	check_log();
	printf("%lu writes, %lu lines, %lu reads, %lu names; %lu moves, %lu more as copies, "
	       "%lu refused, %lu times remote: nothing lost\n",
	       shared->writes, shared->lines, shared->reads, shared->names, shared->moves,
	       shared->copies, shared->refused, shared->remote);
	return shared->moves && shared->copies && shared->writes && shared->lines &&
			       shared->reads && shared->names
		       ? 0
		       : 1;
}
