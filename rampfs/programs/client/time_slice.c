/*
 * Short time slices: a thread whose page has come gets a processor soon.
 *
 * A thread that waits for a page sleeps. When the page is there, the thread that has the processor
 * meanwhile keeps it to the end of its time slice, milliseconds, unless the slice of the thread
 * that wakes is shorter. So a thread that has page faults gets a short slice for a while: that
 * changes when it runs, not how much (for that, sched(7) has weights). With two processors and a
 * program that computes, the p99 of page faults is two thirds of what it is otherwise; without such
 * a program it is the same. (What is left: of two threads that are entitled to run, the scheduler
 * takes the one whose slice ends sooner. So a thread with less left of its slice than the short one
 * keeps the processor, and is interrupted only by the next tick: beside a program that computes all
 * the time, one page fault in fifty waits for that, hundreds of microseconds.)
 *
 *   (none) --page fault--> short --none for FAULT_MS, session over--> (none)
 *
 * Happy path: while the page is on its way, its thread's slice is set to the short one. When the
 * thread has had no page fault for a while, or its session is over, the slice is the usual one
 * again, and so are the slices of other threads of its process that have inherited the short one
 * meanwhile. A child that the thread has forked has the short slice until its own session is ready,
 * or for good if it gets no session (vfork and execve at once).
 *
 * How it fails: a thread that has asked for a slice of its own, or has another scheduling policy,
 * keeps what it has. A thread keeps its usual slice, and waits as it would without this, if its
 * number in its pid namespace is not the daemon's; if its process has TIME_SLICES_MAX such threads
 * already; and in any case if the kernel is older than 6.12, CAP_SYS_NICE is missing, or the usual
 * slice has changed since the daemon began. Going through the threads of a process takes a bounded
 * share of the time, however many they are: it is done later then. The slices that a killed daemon
 * has left short are set back when the session is ready with the next daemon.
 */
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "base/kernel.h"
#include "clients.h"
#include "programs/proc/process.h"
#include "time_slice.h"

#define FAULT_MS 2000u
#define AGAIN_MS 500u /* the daemon of another mount may have set it back */
/* A process is not scanned again before this many times the time of its last scan. */
#define SCAN_SHARE 100u

void time_slices_init(struct client *client)
{
	pthread_mutex_init(&client->time_slices.lock, NULL);
}

static void shorten(const struct client *client, pid_t tid)
{
	uint64_t ns;

	/* It must be a thread of that process, by the daemon's numbers. */
	if (syscall(SYS_tgkill, client->pid, tid, 0) || !process_lives(client->pidfd))
		return;
	if (!kernel_slice(tid, &ns) && ns == client->programs->slice_ns &&
	    (sched_getscheduler(tid) & ~SCHED_RESET_ON_FORK) == SCHED_OTHER)
		kernel_slice_set(tid, KERNEL_FAULT_SLICE_NS);
}

/* Notes a page fault of a thread, and shortens its slice at most every AGAIN_MS. A thread whose
   slice can't be shortened is noted, too: it is not tried again for each page. lock is held. */
static void note_fault(struct client *client, pid_t tid, uint64_t now)
{
	struct time_slices *time_slices = &client->time_slices;
	size_t at = 0, none = TIME_SLICES_MAX;

	while (at < TIME_SLICES_MAX && time_slices->of[at].tid != tid) {
		if (!time_slices->of[at].tid && none == TIME_SLICES_MAX)
			none = at;
		at++;
	}
	if (at == TIME_SLICES_MAX) {
		at = none;
		if (at == TIME_SLICES_MAX)
			return;
		time_slices->of[at].tid = tid;
		time_slices->of[at].set_ms = 0;
	}
	time_slices->of[at].fault_ms = now;
	if (now >= time_slices->of[at].set_ms + AGAIN_MS) {
		time_slices->of[at].set_ms = now;
		shorten(client, tid);
	}
}

void client_waits(struct client *client, pid_t tid)
{
	struct time_slices *time_slices = &client->time_slices;

	if (!tid || !client->programs->slice_ns || pthread_mutex_trylock(&time_slices->lock))
		return;
	if (!time_slices->over)
		note_fault(client, tid, clock_ms());
	pthread_mutex_unlock(&time_slices->lock);
}

static bool is_listed(const struct time_slices *time_slices, pid_t tid)
{
	for (size_t i = 0; i < TIME_SLICES_MAX; i++)
		if (time_slices->of[i].tid == tid)
			return true;
	return false;
}

/* Gives every thread of the process that is not listed its usual slice back. True: there were
   some that had the short one; a thread that started meanwhile may have been missed. lock is
   held. */
static bool restore_unlisted(struct client *client)
{
	struct dirent *entry;
	bool any = false;
	char path[64];
	uint64_t ns;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)client->pid);
	dir = client->programs->slice_ns && process_lives(client->pidfd) ? opendir(path) : NULL;
	if (!dir)
		return false;
	while ((entry = readdir(dir))) {
		pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (tid > 0 && !is_listed(&client->time_slices, tid) && !kernel_slice(tid, &ns) &&
		    ns == KERNEL_FAULT_SLICE_NS)
			any |= !kernel_slice_set(tid, 0);
	}
	closedir(dir);
	return any;
}

/* Drops threads without page faults for FAULT_MS from the list. True: there are slices to
   restore. lock is held. */
static bool expire(struct time_slices *time_slices, uint64_t now)
{
	bool any = time_slices->again;

	if (now < time_slices->next_ms)
		return false;
	for (size_t i = 0; i < TIME_SLICES_MAX; i++) {
		if (time_slices->of[i].tid && now >= time_slices->of[i].fault_ms + FAULT_MS) {
			time_slices->of[i].tid = 0;
			any = true;
		}
	}
	return any;
}

uint64_t time_slices_restore(struct client *client)
{
	struct time_slices *time_slices = &client->time_slices;
	uint64_t began = clock_us(), took = 0;

	if (pthread_mutex_trylock(&time_slices->lock))
		return 0;
	if (expire(time_slices, began / 1000)) {
		time_slices->again = restore_unlisted(client);
		took = clock_us() - began;
		time_slices->next_ms = (began + took * SCAN_SHARE) / 1000;
	}
	pthread_mutex_unlock(&time_slices->lock);
	return took;
}

void time_slices_inherited(struct client *client)
{
	pthread_mutex_lock(&client->time_slices.lock);
	client->time_slices.again = restore_unlisted(client);
	pthread_mutex_unlock(&client->time_slices.lock);
}

void time_slices_over(struct client *client)
{
	struct time_slices *time_slices = &client->time_slices;

	pthread_mutex_lock(&time_slices->lock);
	time_slices->over = true;
	for (size_t i = 0; i < TIME_SLICES_MAX; i++)
		time_slices->of[i].tid = 0;
	restore_unlisted(client);
	pthread_mutex_unlock(&time_slices->lock);
}
