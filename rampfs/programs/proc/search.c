/*
 * Searching all processes for those that map a file.
 *
 * Happy path: a thread that can be left behind (bounded.c) goes through /proc and notes the
 * processes that map the file.
 *
 * A look at all of /proc costs milliseconds, and a batch of moves needs one for each segment. So what one
 * look finds is noted for every file of the store, and callers share it (shared.h).
 *
 * How it fails: a process that blocks the thread is -EBUSY: it may map the file. A process that
 * even root may not look into (it has more capabilities than this daemon, as a container's init may
 * have) is skipped, with one line in the log: the store's files are root's alone, and the process
 * of an agent can be looked into, or it would have no session. For what is left, there is the lease
 * that is taken before a segment is freed.
 */
#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/log.h"
#include "bounded.h"
#include "found.h"
#include "search.h"
#include "shared.h"

#define PROC_PATH 64

struct search {
	dev_t dev;
	uint64_t ino;
	bool others; /* look for files of `dev` other than `ino` (0: for all) */
	bool one;    /* the first one found is enough */
	pid_t only;  /* look into this process only; 0: into all */
	uint64_t lo, hi;
	struct found_list found;
};

static void pass_over(pid_t pid)
{
	static atomic_bool said;

	if (!atomic_exchange(&said, true))
		log_warn("process %d may not be looked into; assuming that it maps no segment",
			 (int)pid);
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
		rc = found_note(&s->found, pid, vma.inode, vma.start, vma.end);
		if (!rc)
			rc = s->one;
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

	found_free(&s->found);
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
	if (!bounded_look(look_at_all, s, search_free, &rc, stuck))
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
	struct shared_run run;
	dev_t dev;
	/* Once it is done; `search` is joined. */
	int rc;
	pid_t stuck;
	struct search *search;
};

static void look_for_all(struct shared_run *run)
{
	struct shared_look *look = (struct shared_look *)run;
	const struct search what = {.dev = look->dev, .others = true, .hi = UINT64_MAX};

	look->rc = search(&what, &look->search, &look->stuck);
	if (!look->rc)
		found_join(&look->search->found);
}

static void look_free(struct shared_run *run)
{
	struct shared_look *look = (struct shared_look *)run;

	if (look->search)
		search_free(look->search);
	free(look);
}

static struct shared looks = {.run = look_for_all, .free = look_free, SHARED_LOCKS};

int search_all(dev_t dev, uint64_t ino, uint64_t since_us, search_fn *fn, void *arg, pid_t *stuck)
{
	struct shared_look *look = calloc(1, sizeof(*look));
	const struct found_list *found;
	int rc;

	if (!look)
		return -ENOMEM;
	look->dev = dev;
	look = (struct shared_look *)shared_join(&looks, &look->run, dev, since_us);
	rc = look->rc;
	if (look->stuck)
		*stuck = look->stuck;
	found = rc ? NULL : &look->search->found;
	for (size_t i = rc ? 0 : found_first(found, ino);
	     !rc && i < found->n && found->at[i].ino == ino; i++)
		rc = fn(arg, found->at[i].pid, found->at[i].start, found->at[i].end);
	shared_put(&looks, &look->run);
	return rc;
}

/* ---- one file --------------------------------------------------------------------------------- */

static int any(const struct search *what, pid_t *pid)
{
	struct search *s = NULL;
	int rc = search(what, &s, pid);

	if (rc)
		return rc;
	rc = s->found.n > 0;
	if (rc)
		*pid = s->found.at[0].pid;
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
