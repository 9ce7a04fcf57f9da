/*
 * Searching all processes for those that map a file.
 *
 * Happy path: a thread that can be left behind (bounded.c) goes through /proc and notes the
 * processes that map the file.
 *
 * A look at all of /proc costs milliseconds, and a batch of moves needs one for each segment. So what one
 * look finds is noted for every file of the store, and all callers that come while a look is under way
 * share the next one: it begins after they have come.
 *
 * How it fails: a process that blocks the thread is -EBUSY: it may map the file. A process that
 * even root may not look into (it has more capabilities than this daemon, as a container's init may
 * have) is skipped, with one line in the log: the store's files are root's alone, and the process
 * of an agent can be looked into, or it would have no session. For what is left, there is the lease
 * that is taken before a segment is freed.
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/log.h"
#include "bounded.h"
#include "search.h"

#define PROC_PATH 64

struct found {
	uint64_t ino;
	pid_t pid;
	uint64_t start, end;
};

struct search {
	dev_t dev;
	uint64_t ino;
	bool others; /* look for files of `dev` other than `ino` (0: for all) */
	bool one;    /* the first one found is enough */
	pid_t only;  /* look into this process only; 0: into all */
	uint64_t lo, hi;
	struct found *found;
	size_t n, cap;
};

static void pass_over(pid_t pid)
{
	static atomic_bool said;

	if (!atomic_exchange(&said, true))
		log_warn("process %d may not be looked into; assuming that it maps no segment",
			 (int)pid);
}

static int note_mapper(struct search *s, pid_t pid, uint64_t ino, uint64_t start, uint64_t end)
{
	struct found *last = s->n ? &s->found[s->n - 1] : NULL;

	if (last && last->pid == pid && last->ino == ino) {
		last->start = start < last->start ? start : last->start;
		last->end = end > last->end ? end : last->end;
		return 0;
	}
	if (!s->found || s->n == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 16;
		struct found *more = realloc(s->found, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		s->found = more;
		s->cap = cap;
	}
	s->found[s->n++] = (struct found){ino, pid, start, end};
	return s->one;
}

/* Looks into one process through one of its threads, and notes every mapping of the file.
   -ESRCH: that thread has no memory. */
static int look_at_thread(struct search *s, pid_t pid, pid_t tid)
{
	struct kernel_maps maps;
	struct kernel_vma vma = {0};
	uint64_t at = s->lo;
	int rc = kernel_maps_open(&maps, tid);

	if (rc == -EACCES || rc == -EPERM) {
		pass_over(pid);
		return 0;
	}
	if (rc)
		return rc == -ENOENT ? -ESRCH : rc;
	while ((rc = kernel_maps_next(&maps, at, s->hi, &vma)) > 0) {
		at = vma.end;
		if ((vma.inode == s->ino) == s->others ||
		    makedev(vma.dev_major, vma.dev_minor) != s->dev)
			continue;
		rc = note_mapper(s, pid, vma.inode, vma.start, vma.end);
		if (rc)
			break;
	}
	kernel_maps_close(&maps);
	/* Older kernels show an empty text for a thread without memory. For a thread that has
	   memory, at least its stack is read, which lies beyond every range that is looked at. */
	return rc || vma.end ? rc : -ESRCH;
}

/* Looks into one process: through the main thread, or through another one, since the main thread
   may have ended while others live. */
static int look_at(struct search *s, pid_t pid)
{
	int rc = look_at_thread(s, pid, pid);
	char path[PROC_PATH];
	struct dirent *entry;
	DIR *dir;

	if (rc != -ESRCH)
		return rc;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	if (!dir)
		return errno == ENOENT || errno == ESRCH ? 0 : -errno;
	while (rc == -ESRCH && (entry = readdir(dir))) {
		pid_t tid = atoi(entry->d_name);

		if (tid > 0 && tid != pid)
			rc = look_at_thread(s, pid, tid);
	}
	closedir(dir);
	return rc == -ESRCH ? 0 : rc;
}

static int look_at_one(struct bounded *bounded, struct search *s)
{
	int rc = bounded_enter(bounded, s->only);

	rc = rc ? rc : look_at(s, s->only);
	return rc < 0 ? rc : 0;
}

static int look_at_all(struct bounded *bounded, void *arg)
{
	struct search *s = arg;
	DIR *dir = s->only ? NULL : opendir("/proc");
	struct dirent *entry;
	int rc = 0;

	if (s->only)
		return look_at_one(bounded, s);
	if (!dir)
		return -errno;
	while (!rc && (entry = readdir(dir))) {
		pid_t pid = atoi(entry->d_name);

		if (pid <= 0 || pid == getpid())
			continue;
		rc = bounded_enter(bounded, pid);
		if (!rc)
			rc = look_at(s, pid);
	}
	closedir(dir);
	return rc < 0 ? rc : 0;
}

static void search_free(void *arg)
{
	struct search *s = arg;

	free(s->found);
	free(s);
}

/* Returns 0: *out is the caller's; -EBUSY: process *stuck blocks it; -errno. */
static int search(const struct search *what, struct search **out, pid_t *stuck)
{
	struct search *s = malloc(sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	*s = *what;
	if (!bounded_run(look_at_all, s, search_free, &rc, stuck))
		return -EBUSY;
	if (rc)
		search_free(s);
	else
		*out = s;
	return rc;
}

/* ---- shared looks ---------------------------------------------------------------------------- */

/* A look at all files of a store, for all callers that came before it began. */
struct shared_look {
	dev_t dev;
	unsigned refs;
	bool done;
	/* Once it is done; `search` is sorted by file and process. */
	int rc;
	pid_t stuck;
	struct search *search;
};

static struct {
	pthread_mutex_t lock; /* protects the rest */
	pthread_cond_t changed;
	bool running;
	struct shared_look *next; /* has not begun; NULL: none */
} looks = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, NULL};

static int by_file(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	return (x->start > y->start) - (x->start < y->start);
}

/* Of one process's mappings of one file there may have been others in between. */
static void join_found(struct search *s)
{
	size_t kept = 0;

	if (!s->n)
		return;
	qsort(s->found, s->n, sizeof(*s->found), by_file);
	for (size_t i = 1; i < s->n; i++) {
		struct found *last = &s->found[kept], *more = &s->found[i];

		if (last->ino != more->ino || last->pid != more->pid)
			s->found[++kept] = *more;
		else if (more->end > last->end)
			last->end = more->end;
	}
	s->n = kept + 1;
}

/* The lock is held, and released meanwhile. */
static void look_for_all(struct shared_look *look)
{
	const struct search what = {.dev = look->dev, .others = true, .hi = UINT64_MAX};

	while (looks.running)
		pthread_cond_wait(&looks.changed, &looks.lock);
	looks.running = true;
	looks.next = NULL;
	pthread_mutex_unlock(&looks.lock);
	look->rc = search(&what, &look->search, &look->stuck);
	if (!look->rc)
		join_found(look->search);
	pthread_mutex_lock(&looks.lock);
	looks.running = false;
	look->done = true;
	pthread_cond_broadcast(&looks.changed);
}

/* NULL: no memory. */
static struct shared_look *look_shared(dev_t dev)
{
	struct shared_look *look;

	pthread_mutex_lock(&looks.lock);
	while (looks.next && looks.next->dev != dev) /* of another store: of tests alone */
		pthread_cond_wait(&looks.changed, &looks.lock);
	look = looks.next;
	if (look) {
		look->refs++;
		while (!look->done)
			pthread_cond_wait(&looks.changed, &looks.lock);
	} else {
		look = calloc(1, sizeof(*look));
		if (look) {
			look->dev = dev;
			look->refs = 1;
			looks.next = look;
			look_for_all(look);
		}
	}
	pthread_mutex_unlock(&looks.lock);
	return look;
}

static void look_put(struct shared_look *look)
{
	bool last;

	pthread_mutex_lock(&looks.lock);
	last = --look->refs == 0;
	pthread_mutex_unlock(&looks.lock);
	if (!last)
		return;
	if (look->search)
		search_free(look->search);
	free(look);
}

/* Returns where entries of that file begin, if there are any. */
static size_t first_found(const struct search *s, uint64_t ino)
{
	size_t lo = 0, hi = s->n, mid;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (s->found[mid].ino < ino)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

int search_all(dev_t dev, uint64_t ino, search_fn *fn, void *arg, pid_t *stuck)
{
	struct shared_look *look = look_shared(dev);
	const struct search *s = look ? look->search : NULL;
	int rc = look ? look->rc : -ENOMEM;

	if (look && look->stuck)
		*stuck = look->stuck;
	for (size_t i = rc ? 0 : first_found(s, ino); !rc && i < s->n && s->found[i].ino == ino;
	     i++)
		rc = fn(arg, s->found[i].pid, s->found[i].start, s->found[i].end);
	if (look)
		look_put(look);
	return rc;
}

/* ---- one file --------------------------------------------------------------------------------- */

static int any(const struct search *what, pid_t *pid)
{
	struct search *s;
	int rc = search(what, &s, pid);

	if (rc)
		return rc;
	rc = s->n > 0;
	if (rc)
		*pid = s->found[0].pid;
	search_free(s);
	return rc;
}

int search_any(dev_t dev, uint64_t ino, pid_t *pid)
{
	const struct search what = {.dev = dev, .ino = ino, .hi = UINT64_MAX, .one = true};

	return any(&what, pid);
}

int search_one(dev_t dev, uint64_t ino, pid_t pid)
{
	const struct search what = {
		.dev = dev, .ino = ino, .hi = UINT64_MAX, .one = true, .only = pid};

	return any(&what, &pid);
}

int search_replaced(dev_t dev, uint64_t ino, uint64_t lo, uint64_t hi, pid_t *pid)
{
	const struct search what = {
		.dev = dev, .ino = ino, .others = true, .lo = lo, .hi = hi, .one = true};

	return any(&what, pid);
}
