/*
 * A thread whose page has come gets a processor soon.
 *
 * Who waits for a page sleeps; when it is there, whoever has the processor meanwhile keeps it to
 * the end of his time slice, milliseconds, unless the slice of who wakes is shorter. So a thread
 * that page faults has a short one for a while: that moves when it runs, not how much (sched(7) has
 * shares for that). With two processors and somebody who computes, the p99 of page faults is two
 * thirds of what it is otherwise; where nobody does, it is the same.
 *
 *   (none) --page fault--> short --none for FAULT_MS--> (none)
 *
 * Happy path: while the page is on its way its thread's slice is set; when it has not waited for
 * another page for a while, or its session is over, the slice is the usual one again, and so are
 * those of threads that it has begun meanwhile. A child that it has forked has it until its own
 * session is ready.
 *
 * How it fails: a thread that has asked for a slice of its own, or has another policy, keeps what it
 * has; so does one whose number in its namespace is not ours, one too many of its process, and all
 * where the kernel is older than 6.12 or CAP_SYS_NICE lacks: they wait as they would without this.
 * What a killed daemon has left is taken back when the session is ready with the next one.
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "local.h"

#define FAULT_MS 2000u

void slices_init(struct space *space)
{
	pthread_mutex_init(&space->slices.lock, NULL);
}

static void shorten(const struct space *space, pid_t tid)
{
	uint64_t ns;

	/* A thread of that process, by our numbers. */
	if (syscall(SYS_tgkill, space->pid, tid, 0) || !process_lives(space->pidfd))
		return;
	if (!kernel_slice(tid, &ns) && ns == space->programs->slice_ns)
		kernel_slice_set(tid, KERNEL_FAULT_SLICE_NS);
}

/* What can't be shortened is remembered, too: it is not tried again for each page. */
void space_waits(struct space *space, pid_t tid)
{
	struct slices *slices = &space->slices;
	size_t at = 0, none = SLICES_MAX;

	if (!tid || atomic_load(&space->orphan) || pthread_mutex_trylock(&slices->lock))
		return;
	while (at < SLICES_MAX && slices->of[at].tid != tid) {
		if (!slices->of[at].tid && none == SLICES_MAX)
			none = at;
		at++;
	}
	if (at == SLICES_MAX && none < SLICES_MAX) {
		at = none;
		shorten(space, tid);
		slices->of[at].tid = tid;
	}
	if (at < SLICES_MAX)
		slices->of[at].fault_ms = now_ms();
	pthread_mutex_unlock(&slices->lock);
}

static bool is_listed(const struct slices *slices, pid_t tid)
{
	for (size_t i = 0; i < SLICES_MAX; i++)
		if (slices->of[i].tid == tid)
			return true;
	return false;
}

/* slices.lock is held. */
static void restore_unlisted(struct space *space)
{
	char path[64];
	struct dirent *entry;
	uint64_t ns;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)space->pid);
	dir = process_lives(space->pidfd) ? opendir(path) : NULL;
	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (tid > 0 && !is_listed(&space->slices, tid) && !kernel_slice(tid, &ns) &&
		    ns == KERNEL_FAULT_SLICE_NS)
			kernel_slice_set(tid, 0);
	}
	closedir(dir);
}

void slices_restore(struct space *space, bool all)
{
	struct slices *slices = &space->slices;
	uint64_t now = now_ms();
	bool any = false;

	pthread_mutex_lock(&slices->lock);
	for (size_t i = 0; i < SLICES_MAX; i++) {
		if (slices->of[i].tid && (all || now >= slices->of[i].fault_ms + FAULT_MS)) {
			slices->of[i].tid = 0;
			any = true;
		}
	}
	if (any)
		restore_unlisted(space);
	pthread_mutex_unlock(&slices->lock);
}

void slices_inherited(struct space *space)
{
	pthread_mutex_lock(&space->slices.lock);
	restore_unlisted(space);
	pthread_mutex_unlock(&space->slices.lock);
}
