/*
 * Random operations on names, modes, owners and times, as three users, on tmpfs and on rampfs at
 * once: the results, and the files afterwards, must be the same.
 *
 *	names [--ops N] [--seed S] TMPFS_DIR RAMPFS_DIR SAME_DIR_ON_ANOTHER_NODE
 *
 * Happy path: three children with the users' ids carry out the drawn operation in both directories
 * (both are root's, 1777); the parent compares result, errno and stat. Now and then an operation goes
 * through another node's mount, once that has heard of the operations before.
 *
 * by_design() has the intended differences: rampfs is flat and has neither links nor special
 * files, and does not exchange names. Times are the same where they were set, else within two
 * seconds; but whether a call is an access (reading nothing, O_NOATIME) is not compared.
 *
 * How it fails: the first difference ends it with the seed and the last 50 operations.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <limits.h>
#include <linux/falloc.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define USERS  3
#define SLOTS  4 /* open files of each user */
#define LOGGED 50
#define NAMES  14

enum verb {
	CREATE,
	CLOSE,
	WRITE,
	READ,
	FSTAT,
	FCHMOD,
	FCHOWN,
	FTRUNCATE,
	ALLOCATE,
	PUNCH,
	UNLINK,
	RENAME,
	CHMOD,
	CHOWN,
	UTIMENS,
	ACCESS,
	TRUNCATE,
	STAT,
	LINK,
	SYMLINK,
	MKDIR,
	MKNOD,
	RMDIR,
	READLINK,
	OPENDIR,
	VERBS
};

static const char *const verbs[] = {
	"open",	     "close",	  "write",    "read",	 "fstat",  "fchmod",  "fchown",
	"ftruncate", "fallocate", "punch",    "unlink",	 "rename", "chmod",   "chown",
	"utimes",    "access",	  "truncate", "stat",	 "link",   "symlink", "mkdir",
	"mknod",     "rmdir",	  "readlink", "opendir",
};

struct call {
	enum verb verb;
	char name[300], to[300];
	int slot, flags, mode, umask;
	uid_t uid;
	gid_t gid;
	long size;
	struct timespec times[2];
	bool far; /* through the other node's mount */
};

struct answer {
	int rc, code;
	struct stat st; /* of the file that it was about, if there is one */
	char data[64];
};

struct wire {
	struct call call;
	struct answer answers[2]; /* tmpfs, rampfs */
};

static const uid_t uids[USERS] = {0, 1001, 1002};
static const char *dirs[3]; /* tmpfs, rampfs, rampfs on another node */
static char names[NAMES][300];
static unsigned long seed = 1, all_ops = 20000, op, log_lines;
static uint64_t random_state;
static char logged[LOGGED][400];

static struct {
	pid_t pid;
	int sock;
	struct wire *wire;
	bool open[SLOTS];
} users[USERS];

/* ---- a user ---- */

static int slots[2][SLOTS];

static void at(char *path, int dir, const char *name)
{
	snprintf(path, PATH_MAX, "%s/%s", dirs[dir], name);
}

static int do_open(const struct call *c, int side, const char *path)
{
	int fd;

	umask((mode_t)c->umask);
	fd = open(path, c->flags | O_CLOEXEC, c->mode);
	if (fd >= 0)
		slots[side][c->slot] = fd;
	return fd < 0 ? -1 : 0;
}

static int do_close(int *fd)
{
	int rc = close(*fd);

	*fd = -1;
	return rc;
}

static int on_file(const struct call *c, int *fd, struct answer *a)
{
	switch (c->verb) {
	case CLOSE:
		return do_close(fd);
	case WRITE:
		return (int)pwrite(*fd, c->to, (size_t)c->slot + 5, c->size);
	case READ:
		return (int)pread(*fd, a->data, sizeof(a->data), c->size);
	case FCHMOD:
		return fchmod(*fd, (mode_t)c->mode);
	case FCHOWN:
		return fchown(*fd, c->uid, c->gid);
	case FTRUNCATE:
		return ftruncate(*fd, c->size);
	case ALLOCATE:
		return fallocate(*fd, c->slot % 2 ? FALLOC_FL_KEEP_SIZE : 0, c->size, 1 + c->mode);
	case PUNCH:
		return fallocate(*fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, c->size,
				 1 + c->mode);
	default:
		return fstat(*fd, &a->st);
	}
}

static int open_dir(const char *path)
{
	DIR *d = opendir(path);

	return d ? closedir(d) : -1;
}

static int on_name(const struct call *c, int side, const char *path, const char *to)
{
	char target[PATH_MAX];

	switch (c->verb) {
	case CREATE:
		return do_open(c, side, path);
	case UNLINK:
		return unlink(path);
	case RENAME:
		return renameat2(AT_FDCWD, path, AT_FDCWD, to, (unsigned)c->flags);
	case CHMOD:
		return chmod(path, (mode_t)c->mode);
	case CHOWN:
		return chown(path, c->uid, c->gid);
	case UTIMENS:
		return utimensat(AT_FDCWD, path, c->times, 0);
	case ACCESS:
		return faccessat(AT_FDCWD, path, c->mode & 7, 0);
	case TRUNCATE:
		return truncate(path, c->size);
	case LINK:
		return link(path, to);
	case SYMLINK:
		return symlink("anywhere", path);
	case MKDIR:
		return mkdir(path, (mode_t)c->mode);
	case MKNOD:
		return mknod(path, S_IFIFO | 0600, 0);
	case RMDIR:
		return rmdir(path);
	case READLINK:
		return (int)readlink(path, target, sizeof(target));
	case OPENDIR:
		return open_dir(path);
	default:
		return 0;
	}
}

static bool needs_file(enum verb verb)
{
	return verb >= CLOSE && verb <= PUNCH;
}

static void carry_out(const struct call *c, int side, struct answer *a)
{
	char path[PATH_MAX], to[PATH_MAX];
	int dir = side && c->far ? 2 : side, *fd = &slots[side][c->slot];

	memset(a, 0, sizeof(*a));
	at(path, dir, c->name);
	at(to, dir, c->to);
	a->rc = needs_file(c->verb) ? on_file(c, fd, a) : on_name(c, side, path, to);
	a->code = a->rc < 0 ? errno : 0;
	if (needs_file(c->verb) && *fd >= 0 ? fstat(*fd, &a->st) : lstat(path, &a->st))
		a->st.st_mode = 0;
}

static void user(int n, int sock, struct wire *wire)
{
	gid_t gid = uids[n];
	char byte;

	memset(slots, -1, sizeof(slots));
	if (setgroups(0, NULL) || setresgid(gid, gid, gid) || setresuid(uids[n], uids[n], uids[n]))
		_exit(1);
	while (read(sock, &byte, 1) == 1) {
		carry_out(&wire->call, 0, &wire->answers[0]);
		carry_out(&wire->call, 1, &wire->answers[1]);
		if (write(sock, &byte, 1) != 1)
			break;
	}
	_exit(0);
}

/* ---- drawing ---- */

static long draw(long below)
{
	uint64_t x = random_state += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return (long)((x ^ x >> 31) % (uint64_t)below);
}

static void make_names(void)
{
	static const char *const fixed[] = {"a",	   "b",	 ".hidden", "-rf",
					    "a b\n\t",	   "*?", "...",	    "\xff\xfe\x01",
					    "caf\xc3\xa9", "a/", "",	    "a/b"};
	size_t n = sizeof(fixed) / sizeof(fixed[0]);

	for (size_t i = 0; i < n; i++)
		strcpy(names[i], fixed[i]);
	/* Names of the greatest length, of every byte that a name may have; and one that is too long. */
	for (int i = 0; i < 255; i++)
		names[n][i] = i + 1 == '/' ? 'x' : (char)(i + 1);
	memset(names[n + 1], 'x', 256);
}

/* Draws the odd names less often. */
static const char *draw_name(void)
{
	long n = draw(3) ? draw(4) : draw(NAMES);

	return names[n];
}

static void draw_time(struct timespec *t)
{
	long kind = draw(4);

	t->tv_sec = draw(2000000000);
	t->tv_nsec = kind == 0 ? UTIME_NOW : kind == 1 ? UTIME_OMIT : draw(1000000000);
}

static int draw_flags(void)
{
	static const int modes[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR};
	int flags = modes[draw(4)];

	flags |= draw(3) ? O_CREAT : 0;
	flags |= draw(4) == 0 ? O_EXCL & -(flags & O_CREAT ? 1 : 0) : 0;
	flags |= draw(8) == 0 ? O_TRUNC : 0;
	flags |= draw(16) == 0 ? O_APPEND : 0;
	flags |= draw(16) == 0 ? O_DIRECTORY & -(flags & O_CREAT ? 0 : 1) : 0;
	flags |= draw(16) == 0 ? O_NOFOLLOW : 0;
	return flags | (draw(16) == 0 ? O_NOATIME : 0);
}

static enum verb draw_verb(void)
{
	static const unsigned char weights[VERBS] = {24, 8, 10, 6, 4, 4, 3, 4, 3, 3, 10, 12, 8,
						     8,	 6, 6,	4, 4, 2, 1, 1, 1, 1, 1,	 1};
	long all = 0, which;
	int v = 0;

	for (int i = 0; i < VERBS; i++)
		all += weights[i];
	for (which = draw(all); which >= weights[v]; v++)
		which -= weights[v];
	return (enum verb)v;
}

static void draw_call(struct call *c)
{
	static const int modes[] = {0644,  0600,  0666,	 0444,	0,     04755, 02755,
				    02770, 01666, 06777, 02666, 06666, 02676, 02660};
	static const unsigned flags[] = {
		0, 0, 0, RENAME_NOREPLACE, RENAME_NOREPLACE, RENAME_EXCHANGE};
	static const int masks[] = {022, 0, 077};
	static const uint32_t ids[] = {(uint32_t)-1, 0, 1001, 1002};

	memset(c, 0, sizeof(*c));
	c->verb = draw_verb();
	strcpy(c->name, draw_name());
	strcpy(c->to, draw_name());
	c->slot = (int)draw(SLOTS);
	c->mode = modes[draw(sizeof(modes) / sizeof(modes[0]))];
	c->umask = masks[draw(3)];
	c->flags = c->verb == RENAME ? (int)flags[draw(6)] : draw_flags();
	c->uid = ids[draw(4)];
	c->gid = ids[draw(4)];
	c->size = draw(4) ? draw(100) : draw(100000);
	draw_time(&c->times[0]);
	draw_time(&c->times[1]);
}

/* ---- comparing ---- */

static void print_name(char *out, size_t cap, const char *name)
{
	size_t n = 0, len = strlen(name);

	for (const char *p = name; *p && n + 8 < cap && p < name + 12; p++)
		n += (size_t)snprintf(out + n, cap - n, *p > ' ' && *p < 127 ? "%c" : "\\%03o",
				      (unsigned char)*p);
	snprintf(out + n, cap - n, "%s", len > 12 ? len > 255 ? "...(256)" : "...(255)" : "");
}

static void note(int n, const struct call *c)
{
	char name[80], to[80];

	print_name(name, sizeof(name), c->name);
	print_name(to, sizeof(to), c->to);
	snprintf(logged[log_lines++ % LOGGED], sizeof(logged[0]),
		 "%lu uid %u%s: %s \"%s\" (\"%s\") slot %d flags %o mode %o umask %o ids %d:%d "
		 "size %ld times %ld.%09ld %ld.%09ld",
		 op, uids[n], c->far ? " far" : "", verbs[c->verb], name, to, c->slot,
		 (unsigned)c->flags, (unsigned)c->mode, (unsigned)c->umask, (int)c->uid,
		 (int)c->gid, c->size, c->times[0].tv_sec, c->times[0].tv_nsec, c->times[1].tv_sec,
		 c->times[1].tv_nsec);
}

static void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fail(const char *fmt, ...)
{
	unsigned long first = log_lines > LOGGED ? log_lines - LOGGED : 0;
	va_list ap;

	for (; first < log_lines; first++)
		printf("  %s\n", logged[first % LOGGED]);
	printf("seed %lu, operation %lu: ", seed, op);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
	for (int n = 0; n < USERS; n++)
		kill(users[n].pid, SIGKILL);
	_exit(1);
}

/*
 * Returns rampfs' errno for an operation that tmpfs does; 0: the same result. If tmpfs refuses, rampfs
 * may say the same or this: the kernel decides first, or it does not.
 */
static int by_design(const struct call *c)
{
	switch (c->verb) {
	case LINK:
	case SYMLINK:
	case MKNOD:
	case RMDIR:
		return EPERM;
	case MKDIR:
		return EOPNOTSUPP;
	case RENAME:
		/* The kernel is done with a name that is exchanged with itself. */
		return c->flags & RENAME_EXCHANGE && strcmp(c->name, c->to) ? EINVAL : 0;
	default:
		return 0;
	}
}

/* Takes an operation back that tmpfs did and rampfs does not do. */
static void take_back(const struct call *c)
{
	char path[PATH_MAX], to[PATH_MAX];

	at(path, 0, c->name);
	at(to, 0, c->to);
	if (c->verb == RENAME ? renameat2(AT_FDCWD, path, AT_FDCWD, to, RENAME_EXCHANGE)
			      : remove(c->verb == LINK ? to : path))
		fail("cannot take back what tmpfs did: %s", strerror(errno));
}

static bool near(struct timespec x, struct timespec y)
{
	long difference = x.tv_sec - y.tv_sec;

	return (x.tv_sec == y.tv_sec && x.tv_nsec == y.tv_nsec) ||
	       (labs(difference) <= 2 && labs(x.tv_sec - time(NULL)) < 3600);
}

static const char *stat_differs(const struct stat *x, const struct stat *y)
{
	if (x->st_mode != y->st_mode)
		return "mode";
	if (x->st_mode == 0)
		return NULL;
	if (x->st_uid != y->st_uid || x->st_gid != y->st_gid)
		return "owner";
	if (x->st_nlink != y->st_nlink)
		return "links";
	if (S_ISREG(x->st_mode) && x->st_size != y->st_size)
		return "size";
	if (S_ISREG(x->st_mode) && !near(x->st_mtim, y->st_mtim))
		return "time of change";
	if (S_ISREG(x->st_mode) && labs(x->st_atim.tv_sec - time(NULL)) > 3600 &&
	    labs(y->st_atim.tv_sec - time(NULL)) > 3600 && !near(x->st_atim, y->st_atim))
		return "time of access";
	return NULL;
}

static void say_stat(const char *what, const struct answer *a)
{
	printf("%s: result %d (%s), mode %o owner %u:%u links %lu size %ld atime %ld.%09ld mtime "
	       "%ld.%09ld\n",
	       what, a->rc, a->rc < 0 ? strerror(a->code) : "done", a->st.st_mode, a->st.st_uid,
	       a->st.st_gid, a->st.st_nlink, a->st.st_size, a->st.st_atim.tv_sec,
	       a->st.st_atim.tv_nsec, a->st.st_mtim.tv_sec, a->st.st_mtim.tv_nsec);
}

static void compare(const struct call *c, const struct answer *a)
{
	const struct answer *t = &a[0], *r = &a[1];
	int other = by_design(c);
	const char *what;

	if (other && r->rc < 0 && (r->code == other || (t->rc < 0 && r->code == t->code)))
		return;
	what = stat_differs(&t->st, &r->st);
	if (other || t->rc != r->rc || t->code != r->code)
		what = "result";
	else if (memcmp(t->data, r->data, sizeof(t->data)) != 0)
		what = "data";
	if (!what)
		return;
	say_stat("tmpfs ", t);
	say_stat("rampfs", r);
	fail("the %s differs", what);
}

/* ---- whole directories ---- */

static int by_text(const void *x, const void *y)
{
	return strcmp(*(char *const *)x, *(char *const *)y);
}

/* Lists names, and the attributes that every node knows at once; sorted. */
static int list(int dir, char *lines[64])
{
	DIR *d = opendir(dirs[dir]);
	struct dirent *e;
	struct stat st;
	int n = 0;

	while (d && (e = readdir(d)) && n < 64) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW))
			memset(&st, 0, sizeof(st));
		if (asprintf(&lines[n++], "%s %o %u:%u", e->d_name, st.st_mode, st.st_uid,
			     st.st_gid) < 0)
			abort();
	}
	if (d)
		closedir(d);
	qsort(lines, (size_t)n, sizeof(lines[0]), by_text);
	return n;
}

static bool same_lists(int x, int y, bool say)
{
	char *lines[2][64];
	int n[2] = {list(x, lines[0]), list(y, lines[1])};
	bool same = n[0] == n[1];

	for (int i = 0; same && i < n[0]; i++)
		same = strcmp(lines[0][i], lines[1][i]) == 0;
	for (int k = 0; k < 2; k++)
		for (int i = 0; i < n[k]; i++) {
			if (say && !same)
				printf("%s: %s\n", dirs[k ? y : x], lines[k][i]);
			free(lines[k][i]);
		}
	return same;
}

/* Waits for another node, which hears of a change when it is committed, some milliseconds later. */
static void wait_for(int dir)
{
	for (int i = 0; i < 1000; i++) {
		if (same_lists(0, dir, false))
			return;
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	}
	same_lists(0, dir, true);
	fail("%s does not become as %s", dirs[dir], dirs[0]);
}

/* ---- */

static bool can_be_far(enum verb verb)
{
	return verb == UNLINK || verb == RENAME || verb == CHMOD || verb == CHOWN || verb == ACCESS;
}

static void ask(int n, const struct call *c)
{
	struct wire *wire = users[n].wire;
	char byte = 0;

	note(n, c);
	wire->call = *c;
	if (write(users[n].sock, &byte, 1) != 1 || read(users[n].sock, &byte, 1) != 1)
		fail("uid %u is gone", uids[n]);
}

/* truncate(2) to the size that it has leaves the time of the last write of a file without pages on
   tmpfs. To a FUSE filesystem it looks as O_TRUNC does, which does not. */
static void draw_another_size(struct call *c)
{
	char path[PATH_MAX];
	struct stat st;

	at(path, 0, c->name);
	if (c->verb == TRUNCATE && stat(path, &st) == 0 && st.st_size == c->size)
		c->size++;
}

static void run_one(void)
{
	int n = (int)draw(USERS);
	struct call c;

	draw_call(&c);
	draw_another_size(&c);
	/* rampfs refuses to change the directory itself: EPERM; tmpfs would do it. */
	/* FUSE has no part in a chown that changes nothing, which may be EPERM on tmpfs. */
	if ((c.verb == CHOWN || c.verb == FCHOWN) && c.uid == (uid_t)-1 && c.gid == (gid_t)-1)
		return;
	if (c.name[0] == 0 &&
	    (c.verb == CREATE || c.verb == CHMOD || c.verb == CHOWN || c.verb == UTIMENS))
		return;
	if (needs_file(c.verb) && !users[n].open[c.slot])
		return;
	if (c.verb == CREATE && users[n].open[c.slot]) {
		struct call first = {.verb = CLOSE, .slot = c.slot};

		ask(n, &first);
		users[n].open[c.slot] = false;
	}
	c.far = can_be_far(c.verb) && draw(8) == 0;
	if (c.far)
		wait_for(2);
	ask(n, &c);
	if (by_design(&c) && users[n].wire->answers[0].rc == 0)
		take_back(&c);
	if (c.far) {
		wait_for(1);
		/* Its times and sizes may be a second old: a later look finds a difference. */
		users[n].wire->answers[1].st = users[n].wire->answers[0].st;
	}
	compare(&c, users[n].wire->answers);
	if (c.verb == CREATE)
		users[n].open[c.slot] = users[n].wire->answers[0].rc == 0;
	if (c.verb == CLOSE)
		users[n].open[c.slot] = false;
	if (op % 50 == 0 && !same_lists(0, 1, true))
		fail("the directories differ");
}

static void start_user(int n)
{
	int socks[2];

	users[n].wire = mmap(NULL, sizeof(struct wire), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (users[n].wire == MAP_FAILED ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks))
		fail("no user: %s", strerror(errno));
	users[n].sock = socks[0];
	users[n].pid = fork();
	if (users[n].pid == 0) {
		close(socks[0]);
		user(n, socks[1], users[n].wire);
	}
	close(socks[1]);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"ops", required_argument, NULL, 'o'}, {"seed", required_argument, NULL, 's'}, {0}};
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) >= 0)
		*(opt == 'o' ? &all_ops : &seed) = strtoul(optarg ? optarg : "", NULL, 0);
	if (argc - optind != 3) {
		fputs("usage: names [--ops N] [--seed S] TMPFS_DIR DIR DIR_ON_ANOTHER_NODE\n",
		      stderr);
		return 2;
	}
	for (int i = 0; i < 3; i++)
		dirs[i] = argv[optind + i];
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("names: seed %lu, %lu operations\n", seed, all_ops);
	random_state = seed * UINT64_C(0x2545f4914f6cdd1d);
	make_names();
	for (int n = 0; n < USERS; n++)
		start_user(n);
	for (op = 1; op <= all_ops; op++)
		run_one();
	wait_for(2);
	printf("%lu operations as three users: all as in tmpfs\n", all_ops);
	return 0;
}
