/*
 * Lines wait in a ring. `given` and `written` count them; the scribe sleeps while they are equal.
 * Agents fill the ring under the lock, which is held for a copy alone; a line without room in it is
 * lost.
 */
#include "scribe.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/session.h"
#include "lock.h"
#include "program_stderr.h"
#include "spawn.h"
#include "sys.h"
#include "thread_count.h"

#define LINES_MAX	 16
#define LOCK_PATIENCE_MS 100
#define LINE_PATIENCE_MS 100
/* Of one call, in which the scribe holds what descriptor 2 was at its beginning: a file that the
   program closes meanwhile is closed no later. */
#define ROOM_PATIENCE_MS 500
#define SLEEP_MS	 1000000
#define SLICE_NS	 100000

/* The beginning of the kernel's struct sched_attr, which libcs do not have. */
struct slice {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime_ns, deadline_ns, period_ns;
};

static struct {
	bool running;		  /* protected by attach_lock */
	struct futex_lock lock;	  /* of agents that give a line */
	_Atomic uint32_t given;	  /* a futex */
	_Atomic uint32_t written; /* a futex; the scribe's */
	struct {
		char bytes[SCRIBE_LINE_BYTES];
		size_t len;
	} lines[LINES_MAX]; /* from `written` to `given`; protected by these */
} scribe;

/* Has it run soon when it is woken, on a busy machine too: an agent waits for its line, and a
   process that ends keeps its mappings until its last thread has run once more. */
static void take_short_slices(void)
{
	struct slice attr = {0};

	if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) || attr.policy != SCHED_OTHER ||
	    !attr.runtime_ns)
		return;
	attr.runtime_ns = SLICE_NS;
	syscall(SYS_sched_setattr, 0, &attr, 0);
}

static void *scribe_main(void *arg)
{
	(void)arg;
	take_short_slices();
	prctl(PR_SET_NAME, SESSION_SCRIBE, 0, 0, 0);
	thread_count_hide();
	/* setns(2) of a mount namespace wants a root and a working directory that no thread shares.
	   A container's seccomp may forbid it. */
	syscall(SYS_unshare, CLONE_FS);
	for (;;) {
		uint32_t next = scribe.written;

		if (scribe.given == next) {
			sys_futex_wait(&scribe.given, next, SLEEP_MS);
			continue;
		}
		while (program_stderr_write(scribe.lines[next % LINES_MAX].bytes,
					    scribe.lines[next % LINES_MAX].len,
					    ROOM_PATIENCE_MS) == -EAGAIN)
			;
		scribe.written = next + 1;
		sys_futex_wake(&scribe.written);
	}
	return NULL;
}

void scribe_start(void)
{
	if (!scribe.running)
		scribe.running = spawn_thread(scribe_main, NULL) == 0;
}

void scribe_reset(void)
{
	scribe.running = false;
	scribe.lock.word = 0;
	scribe.given = 0;
	scribe.written = 0;
}

/* Returns the number of lines that were given before, or -EAGAIN. */
static int64_t give(const char *line, size_t len)
{
	uint32_t given;

	if (!futex_lock_for(&scribe.lock, LOCK_PATIENCE_MS))
		return -EAGAIN;
	given = scribe.given;
	if (given - scribe.written == LINES_MAX) {
		futex_unlock(&scribe.lock);
		return -EAGAIN;
	}
	memcpy(scribe.lines[given % LINES_MAX].bytes, line, len);
	scribe.lines[given % LINES_MAX].len = len;
	scribe.given = given + 1;
	futex_unlock(&scribe.lock);
	sys_futex_wake(&scribe.given);
	return given;
}

void scribe_write(const char *line, size_t len)
{
	uint64_t end_ms = clock_ms() + LINE_PATIENCE_MS, now_ms;
	int64_t before = give(line, len);
	uint32_t written;

	if (before < 0)
		return;
	/* A line that waits before ours waits for room. */
	while ((written = scribe.written) == (uint32_t)before && (now_ms = clock_ms()) < end_ms)
		sys_futex_wait(&scribe.written, written, (uint32_t)(end_ms - now_ms));
}
