/*
 * A verifying load while the daemon is killed: no operation fails, no byte is wrong, only pauses.
 *
 *	kill_load MOUNT NODE KILLS
 *
 * Eight threads write, read, append, truncate, punch, create, rename and unlink under MOUNT/NODE
 * and check every result, while this program kills the daemon of MOUNT (-9) KILLS times. Then the
 * keeper is killed (the daemon executes another), the daemon again, and at last both at once; the
 * command that started them is executed again, and every byte is compared.
 *
 * Prints one line: operations, errors, kills, the longest operation. Exit status 0: no errors.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS 8
#define BLOCKS	64
#define BLOCK	4096
#define RECORD	100

static const char *mountpoint;
static char dir[512];
static bool stop;	      /* atomic */
static unsigned long errors;  /* atomic */
static unsigned long all_ops; /* atomic */

struct worker {
	pthread_t thread;
	int number;
	unsigned seed;
	int blocks, appended, unlinked; /* descriptors */
	uint32_t version[BLOCKS];	/* 0: a hole */
	long records;
	long turn;
	double longest_s;
	char last_name[600]; /* of the last file that was renamed and kept */
	long last_turn;
};

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void bad(const struct worker *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void bad(const struct worker *w, const char *fmt, ...)
{
	char text[300];
	va_list ap;
	int code = errno;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	__atomic_fetch_add(&errors, 1, __ATOMIC_RELAXED);
	fprintf(stderr, "kill_load: thread %d, turn %ld: %s (%s)\n", w->number, w->turn, text,
		strerror(code));
}

/* Counts and times one operation, and passes its result on. */
#define OP(call)                                                                                   \
	({                                                                                         \
		double op_since = now_s(), op_took;                                                \
		long op_result;                                                                    \
		errno = 0;                                                                         \
		op_result = (long)(call);                                                          \
		op_took = now_s() - op_since;                                                      \
		if (op_took > w->longest_s)                                                        \
			w->longest_s = op_took;                                                    \
		__atomic_fetch_add(&all_ops, 1, __ATOMIC_RELAXED);                                 \
		op_result;                                                                         \
	})

static void fill(uint32_t *words, int block, uint32_t version)
{
	for (uint32_t i = 0; i < BLOCK / 4; i++)
		words[i] = version ? version * 2654435761u + i + (uint32_t)block : 0;
}

static void write_block(struct worker *w, int block)
{
	uint32_t words[BLOCK / 4];

	fill(words, block, ++w->version[block]);
	if (OP(pwrite(w->blocks, words, BLOCK, (off_t)block * BLOCK)) != BLOCK)
		bad(w, "pwrite of block %d", block);
}

static void read_block(struct worker *w, int block)
{
	uint32_t words[BLOCK / 4], want[BLOCK / 4];

	fill(want, block, w->version[block]);
	if (OP(pread(w->blocks, words, BLOCK, (off_t)block * BLOCK)) != BLOCK)
		bad(w, "pread of block %d", block);
	else if (memcmp(words, want, BLOCK) != 0)
		bad(w, "block %d is not version %u", block, w->version[block]);
}

static void punch_block(struct worker *w, int block)
{
	if (OP(fallocate(w->blocks, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			 (off_t)block * BLOCK, BLOCK)))
		bad(w, "punching block %d", block);
	w->version[block] = 0;
}

static void check_records(struct worker *w)
{
	char buf[RECORD];
	struct stat st;
	long k;

	if (OP(fstat(w->appended, &st)) || st.st_size != w->records * RECORD)
		bad(w, "%ld bytes appended, %ld there", w->records * RECORD, (long)st.st_size);
	if (!w->records)
		return;
	k = rand_r(&w->seed) % w->records;
	if (OP(pread(w->appended, buf, RECORD, k * RECORD)) != RECORD || buf[0] != 'a' + k % 26 ||
	    buf[RECORD - 1] != buf[0])
		bad(w, "record %ld", k);
}

static void append_record(struct worker *w)
{
	char buf[RECORD];

	memset(buf, 'a' + (int)(w->records % 26), RECORD);
	if (OP(write(w->appended, buf, RECORD)) != RECORD)
		bad(w, "append");
	w->records++;
	if (w->records % 8 == 0)
		check_records(w);
	if (w->records >= 2000) {
		if (OP(ftruncate(w->appended, 0)))
			bad(w, "ftruncate");
		w->records = 0;
	}
}

static void check_file(struct worker *w, const char *name, long turn)
{
	long found = -1;
	int fd = (int)OP(open(name, O_RDONLY));

	if (fd < 0) {
		bad(w, "open of %s", name);
		return;
	}
	if (OP(read(fd, &found, sizeof(found))) != (long)sizeof(found) || found != turn)
		bad(w, "%s is of turn %ld, not %ld", name, found, turn);
	close(fd);
}

/* create, write, rename over the one before, look, maybe unlink while it is open. */
static void change_names(struct worker *w)
{
	char from[600], to[600];
	long found = -1;
	int fd;

	snprintf(from, sizeof(from), "%s/x%d.%ld", dir, w->number, w->turn);
	snprintf(to, sizeof(to), "%s/y%d", dir, w->number);
	fd = (int)OP(open(from, O_CREAT | O_EXCL | O_RDWR, 0600));
	if (fd < 0) {
		bad(w, "create of %s", from);
		return;
	}
	if (OP(write(fd, &w->turn, sizeof(w->turn))) != (long)sizeof(w->turn))
		bad(w, "write to a new file");
	if (OP(rename(from, to)))
		bad(w, "rename");
	if (OP(open(from, O_RDONLY)) >= 0 || errno != ENOENT)
		bad(w, "the old name is still there");
	check_file(w, to, w->turn);
	strcpy(w->last_name, to);
	w->last_turn = w->turn;
	if (rand_r(&w->seed) & 1) {
		if (OP(unlink(to)))
			bad(w, "unlink");
		w->last_name[0] = 0;
		if (OP(pread(fd, &found, sizeof(found), 0)) != (long)sizeof(found) ||
		    found != w->turn)
			bad(w, "an unlinked file's bytes");
	}
	close(fd);
}

static void change_attributes(struct worker *w)
{
	mode_t mode = (mode_t)(0600 | (w->turn & 077));
	struct timespec times[2] = {{.tv_sec = w->turn}, {.tv_sec = w->turn + 1}};
	struct stat st;

	if (OP(fchmod(w->unlinked, mode)))
		bad(w, "fchmod of an unlinked file");
	if (OP(fchmod(w->blocks, mode)) || OP(futimens(w->blocks, times)))
		bad(w, "fchmod, futimens");
	if (OP(fstat(w->blocks, &st)) || (st.st_mode & 0777) != mode ||
	    st.st_mtim.tv_sec != w->turn + 1 || st.st_size != BLOCKS * BLOCK)
		bad(w, "fstat: mode %o, mtime %ld, size %ld", st.st_mode, (long)st.st_mtim.tv_sec,
		    (long)st.st_size);
	if (OP(fstat(w->unlinked, &st)) || st.st_nlink != 0 || (st.st_mode & 0777) != mode)
		bad(w, "fstat of an unlinked file: %lu links, mode %o", (unsigned long)st.st_nlink,
		    st.st_mode);
}

static void list(struct worker *w)
{
	char name[32];
	struct dirent *e;
	DIR *d = opendir(dir);
	int found = 0;

	if (!d) {
		bad(w, "opendir");
		return;
	}
	snprintf(name, sizeof(name), "blocks%d", w->number);
	errno = 0;
	while ((e = readdir(d)))
		found += strcmp(e->d_name, name) == 0;
	if (errno || found != 1)
		bad(w, "%s is listed %d times", name, found);
	closedir(d);
}

static int create(struct worker *w, const char *kind, int flags)
{
	char name[600];
	int fd;

	snprintf(name, sizeof(name), "%s/%s%d", dir, kind, w->number);
	fd = (int)OP(open(name, O_RDWR | O_CREAT | O_EXCL | flags, 0600));
	if (fd < 0)
		bad(w, "create of %s", name);
	return fd;
}

static void open_files(struct worker *w)
{
	char name[600];

	w->blocks = create(w, "blocks", 0);
	w->appended = create(w, "appended", O_APPEND);
	w->unlinked = create(w, "unlinked", 0);
	snprintf(name, sizeof(name), "%s/unlinked%d", dir, w->number);
	if (OP(ftruncate(w->blocks, BLOCKS * BLOCK)) || OP(unlink(name)))
		bad(w, "making files");
}

static void *work(void *arg)
{
	struct worker *w = arg;

	open_files(w);
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED) &&
	       __atomic_load_n(&errors, __ATOMIC_RELAXED) < 20) {
		int block = rand_r(&w->seed) % BLOCKS;

		w->turn++;
		switch (rand_r(&w->seed) % 10) {
		case 0:
		case 1:
			write_block(w, block);
			break;
		case 2:
		case 3:
		case 4:
			read_block(w, block);
			break;
		case 5:
			punch_block(w, block);
			break;
		case 6:
		case 7:
			append_record(w);
			break;
		case 8:
			change_names(w);
			break;
		default:
			change_attributes(w);
			if (w->turn % 16 == 0)
				list(w);
		}
	}
	return NULL;
}

/* After all processes were killed: checks the files by their names, opened again. */
static void check_all(struct worker *w)
{
	char name[600];
	struct stat st;

	close(w->blocks);
	close(w->appended);
	close(w->unlinked);
	snprintf(name, sizeof(name), "%s/blocks%d", dir, w->number);
	w->blocks = open(name, O_RDWR);
	snprintf(name, sizeof(name), "%s/appended%d", dir, w->number);
	w->appended = open(name, O_RDWR | O_APPEND);
	if (w->blocks < 0 || w->appended < 0) {
		bad(w, "files are gone");
		return;
	}
	for (int i = 0; i < BLOCKS; i++)
		read_block(w, i);
	check_records(w);
	append_record(w);
	if (w->last_name[0])
		check_file(w, w->last_name, w->last_turn);
	snprintf(name, sizeof(name), "%s/unlinked%d", dir, w->number);
	if (stat(name, &st) == 0)
		bad(w, "an unlinked file has come back");
}

/* ---- processes ---- */

/* Reads the arguments of a process, with NUL between them. Returns the length, or 0. */
static size_t cmdline(pid_t pid, char *buf, size_t cap)
{
	char path[64];
	ssize_t n = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, buf, cap - 1);
		close(fd);
	}
	buf[n > 0 ? n : 0] = 0;
	return n > 0 ? (size_t)n : 0;
}

/* The process that runs rampfs in `role` ("--daemon", "--adopt", "" for the first keeper) for our
   mountpoint; 0: none. */
static pid_t find(const char *role)
{
	DIR *proc = opendir("/proc");
	struct dirent *e;
	pid_t found = 0;

	while ((e = readdir(proc)) && !found) {
		char buf[4096], *second, *last;
		size_t n = cmdline((pid_t)atoi(e->d_name), buf, sizeof(buf));

		if (n < 2 || !strstr(buf, "rampfs"))
			continue;
		second = buf + strlen(buf) + 1;
		last = buf + n - 1;
		while (last > buf && last[-1])
			last--;
		if (strcmp(last, mountpoint) != 0)
			continue;
		if (*role ? strcmp(second, role) == 0
			  : strcmp(second, "--daemon") != 0 && strcmp(second, "--adopt") != 0)
			found = (pid_t)atoi(e->d_name);
	}
	closedir(proc);
	return found;
}

static pid_t find_keeper(void)
{
	pid_t adopted = find("--adopt");

	return adopted ? adopted : find("");
}

static pid_t wait_for(const char *what, pid_t (*look)(void), pid_t other_than)
{
	for (int i = 0; i < 20000; i++) {
		pid_t pid = look();

		if (pid && pid != other_than)
			return pid;
		usleep(1000);
	}
	fprintf(stderr, "kill_load: no %s after 20 s\n", what);
	exit(1);
}

static pid_t find_daemon(void)
{
	return find("--daemon");
}

static void kill_now(pid_t pid)
{
	if (kill(pid, SIGKILL) && errno != ESRCH)
		perror("kill");
}

/* Waits until the load has done an operation since `ops`. A sanitizer's daemon takes its time. */
static void wait_for_progress(unsigned long ops)
{
	for (int i = 0; i < 10000 && !__atomic_load_n(&errors, __ATOMIC_RELAXED) &&
			__atomic_load_n(&all_ops, __ATOMIC_RELAXED) < ops + THREADS;
	     i++)
		usleep(1000);
}

/* Kills the daemon at moments that do not depend on its work: every fourth hardly started,
   the others young or old. Returns the last one that was killed. */
static pid_t kill_daemons(int kills)
{
	static const unsigned age_us[] = {5000, 20000, 60000, 200000};
	unsigned seed = 4711;
	pid_t last = 0;

	for (int i = 0; i < kills; i++) {
		unsigned long ops = __atomic_load_n(&all_ops, __ATOMIC_RELAXED);
		pid_t pid = wait_for("daemon", find_daemon, last);

		if (i % 4)
			wait_for_progress(ops);
		usleep((unsigned)rand_r(&seed) % age_us[i % 4]);
		kill_now(pid);
		last = pid;
	}
	return last;
}

/* Kills the keeper: the daemon sees it die and executes another, which then does its work. */
static void kill_keeper_then_daemon(pid_t dead)
{
	pid_t daemon = wait_for("daemon", find_daemon, dead),
	      keeper = wait_for("keeper", find_keeper, 0);
	pid_t successor;

	usleep(200000); /* the daemon serves */
	kill_now(keeper);
	wait_for("new keeper", find_keeper, keeper);
	usleep(200000);
	successor = find_keeper(); /* a child of the executed process, which has ended */
	if (find_daemon() != daemon) {
		fputs("kill_load: the daemon did not outlive its keeper\n", stderr);
		exit(1);
	}
	kill_now(daemon);
	daemon = wait_for("daemon of the new keeper", find_daemon, daemon);
	usleep(200000);
	if (find_keeper() != successor || find_daemon() != daemon) {
		fputs("kill_load: the new keeper does not keep\n", stderr);
		exit(1);
	}
}

static bool gone(pid_t pid)
{
	char buf[4096];

	return cmdline(pid, buf, sizeof(buf)) == 0;
}

/* Kills both, and starts rampfs again as it was started. */
static void kill_both_and_start(char *command, size_t len)
{
	pid_t keeper = find_keeper(), daemon = find_daemon(), pid;
	char *argv[32];
	int argc = 0, status;
	struct statfs fs;

	kill(keeper, SIGSTOP); /* so that it starts no daemon between the two kills */
	kill_now(daemon);
	kill_now(keeper);
	while (!gone(keeper) || !gone(daemon))
		usleep(1000);
	usleep(100000);
	if (statfs(mountpoint, &fs) == 0 || errno != ENOTCONN)
		fprintf(stderr, "kill_load: the dead mount says %s\n", strerror(errno));
	for (char *p = command; p < command + len && argc < 31; p += strlen(p) + 1)
		argv[argc++] = p;
	argv[argc] = NULL;
	pid = fork();
	if (pid == 0) {
		execvp(argv[0], argv);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	if (status) {
		fprintf(stderr, "kill_load: %s does not start again\n", argv[0]);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	static struct worker workers[THREADS];
	static char command[4096];
	size_t len;
	double longest = 0;

	if (argc != 4) {
		fputs("usage: kill_load MOUNT NODE KILLS\n", stderr);
		return 2;
	}
	mountpoint = argv[1];
	snprintf(dir, sizeof(dir), "%s/%s", mountpoint, argv[2]);
	len = cmdline(wait_for("keeper", find_keeper, 0), command, sizeof(command));
	for (int i = 0; i < THREADS; i++) {
		workers[i].number = i;
		workers[i].seed = (unsigned)i * 7919 + 1;
		pthread_create(&workers[i].thread, NULL, work, &workers[i]);
	}
	kill_keeper_then_daemon(kill_daemons(atoi(argv[3])));
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		if (workers[i].longest_s > longest)
			longest = workers[i].longest_s;
	}
	if (!errors) {
		kill_both_and_start(command, len);
		for (int i = 0; i < THREADS; i++)
			check_all(&workers[i]);
	}
	printf("kill_load: %lu operations, %lu errors, %s kills, longest operation %.0f ms\n",
	       all_ops, errors, argv[3], longest * 1e3);
	return errors ? 1 : 0;
}
