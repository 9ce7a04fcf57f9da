/*
 * A thread whose page has come gets a processor soon.
 *
 * Who waits for a page sleeps; when it is there, whoever has the processor meanwhile keeps it to
 * the end of his time slice, milliseconds, unless the slice of who wakes is shorter. So a thread
 * that page faults has a short one for a while: that moves when it runs, not how much (sched(7) has
 * shares for that). With two processors and somebody who computes, the p99 of page faults is two
 * thirds of what it is otherwise; where nobody does, it is the same. (What is left: of two that are
 * entitled to run the scheduler takes the one whose slice ends sooner, so that who has less left of
 * his than the short one keeps the processor, and is asked again by the next tick alone: beside one
 * who computes all the time one page fault in fifty waits for that, hundreds of microseconds.)
 *
 *   (none) --page fault--> short --none for FAULT_MS, session over--> (none)
 *
 * Happy path: while the page is on its way its thread's slice is set; when it has not waited for
 * another page for a while, or its session is over, the slice is the usual one again, and so are
 * those that others of its process have inherited meanwhile. A child that it has forked has it until
 * its own session is ready, or for good where it gets none (vfork, and execve at once).
 *
 * How it fails: a thread that has asked for a slice of its own, or has another policy, keeps what it
 * has; so does one whose number in its namespace is not ours, one too many of its process, and all
 * where the kernel is older than 6.12, CAP_SYS_NICE lacks, or the usual slice is another than when
 * the daemon began: they wait as they would without this. To look through the threads of a process
 * takes a part of the time and no more, however many there are: it is done later then. What a killed
 * daemon has left is taken back when the session is ready with the next one.
 */
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "programs/local.h"

#define FAULT_MS   2000u
#define AGAIN_MS   500u /* somebody else may have taken it back: another mount's daemon */
#define SCAN_SHARE 100u /* until its next scan a process has so many times as long as one took */

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
	if (!kernel_slice(tid, &ns) && ns == space->programs->slice_ns &&
	    (sched_getscheduler(tid) & ~SCHED_RESET_ON_FORK) == SCHED_OTHER)
		kernel_slice_set(tid, KERNEL_FAULT_SLICE_NS);
}

/* What can't be shortened is remembered, too: it is not tried again for each page. lock is held. */
static void note_fault(struct space *space, pid_t tid, uint64_t now)
{
	struct slices *slices = &space->slices;
	size_t at = 0, none = SLICES_MAX;

	while (at < SLICES_MAX && slices->of[at].tid != tid) {
		if (!slices->of[at].tid && none == SLICES_MAX)
			none = at;
		at++;
	}
	if (at == SLICES_MAX) {
		at = none;
		if (at == SLICES_MAX)
			return;
		slices->of[at].tid = tid;
		slices->of[at].set_ms = 0;
	}
	slices->of[at].fault_ms = now;
	if (now >= slices->of[at].set_ms + AGAIN_MS) {
		slices->of[at].set_ms = now;
		shorten(space, tid);
	}
}

void space_waits(struct space *space, pid_t tid)
{
	struct slices *slices = &space->slices;

	if (!tid || !space->programs->slice_ns || pthread_mutex_trylock(&slices->lock))
		return;
	if (!slices->over)
		note_fault(space, tid, now_ms());
	pthread_mutex_unlock(&slices->lock);
}

static bool is_listed(const struct slices *slices, pid_t tid)
{
	for (size_t i = 0; i < SLICES_MAX; i++)
		if (slices->of[i].tid == tid)
			return true;
	return false;
}

/* True: there were some; one that it has begun meanwhile may not have been seen. lock is held. */
static bool restore_unlisted(struct space *space)
{
	struct dirent *entry;
	bool any = false;
	char path[64];
	uint64_t ns;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)space->pid);
	dir = space->programs->slice_ns && process_lives(space->pidfd) ? opendir(path) : NULL;
	if (!dir)
		return false;
	while ((entry = readdir(dir))) {
		pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (tid > 0 && !is_listed(&space->slices, tid) && !kernel_slice(tid, &ns) &&
		    ns == KERNEL_FAULT_SLICE_NS)
			any |= !kernel_slice_set(tid, 0);
	}
	closedir(dir);
	return any;
}

/* True: there is something to restore. lock is held. */
static bool expire(struct slices *slices, uint64_t now)
{
	bool any = slices->again;

	if (now < slices->next_ms)
		return false;
	for (size_t i = 0; i < SLICES_MAX; i++) {
		if (slices->of[i].tid && now >= slices->of[i].fault_ms + FAULT_MS) {
			slices->of[i].tid = 0;
			any = true;
		}
	}
	return any;
}

uint64_t slices_restore(struct space *space)
{
	struct slices *slices = &space->slices;
	uint64_t began = now_us(), took = 0;

	if (pthread_mutex_trylock(&slices->lock))
		return 0;
	if (expire(slices, began / 1000)) {
		slices->again = restore_unlisted(space);
		took = now_us() - began;
		slices->next_ms = (began + took * SCAN_SHARE) / 1000;
	}
	pthread_mutex_unlock(&slices->lock);
	return took;
}

void slices_inherited(struct space *space)
{
	pthread_mutex_lock(&space->slices.lock);
	space->slices.again = restore_unlisted(space);
	pthread_mutex_unlock(&space->slices.lock);
}

void slices_over(struct space *space)
{
	struct slices *slices = &space->slices;

	pthread_mutex_lock(&slices->lock);
	slices->over = true;
	for (size_t i = 0; i < SLICES_MAX; i++)
		slices->of[i].tid = 0;
	restore_unlisted(space);
	pthread_mutex_unlock(&slices->lock);
}
