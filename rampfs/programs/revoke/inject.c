/*
 * Makes a system call that a stopped process cannot make: in its agent's thread, by ptrace(2).
 *
 *   SEIZE, INTERRUPT --trap--> (registers kept) --each range: madvise, entry and exit--> registers
 *   put back --> DETACH: the process is as stopped as it was
 *
 * Happy path: the agent is parked in a system call, so the instruction before its program counter
 * is `syscall`; it is executed again with the registers of an madvise(2). At the end the kept
 * registers make the agent begin the interrupted call again. All of it happens on a thread of its
 * own (bounded.c), which lives for this alone: if the agent does not trap in time, the end of that
 * thread lets go of it.
 *
 * How it fails: another process traces the agent, its cgroup is frozen, it was stopped outside of a
 * system call, it keeps this thread waiting, or this is no x86-64: -EBUSY, and `why` says which. If
 * the daemon dies in the middle, the kernel lets go of the agent: once its process continues, the
 * agent continues as if its call had ended, and finds its session hung up, which it can bear.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "inject.h"
#include "programs/client/client.h"
#include "programs/proc/bounded.h"
#include "programs/proc/process.h"

#define TRAP_PAUSE_US 20
#define ODD_STOPS     16 /* let pass while one call is made */
#define OWN_MS	      1000u
#define OUT_MS	      1000u
#define OUT_MAX_MS    30000u

/* ---- obstacles ------------------------------------------------------------------------------ */

/* Whether it is a thread of this daemon, which lets the agent run for a moment (lone_run.c). */
static bool is_own_thread(pid_t tid)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/self/task/%d", (int)tid);
	return tid && !access(path, F_OK);
}

int inject_ready(struct client *client, char why[INJECT_WHY])
{
	pid_t tid = client_agent_thread(client), tracer = process_tracer(client->pid, tid);

	why[0] = 0;
	if (process_frozen(client->pid))
		snprintf(why, INJECT_WHY, "is in a frozen cgroup");
	else if (tracer && !is_own_thread(tracer))
		snprintf(why, INJECT_WHY, "is stopped and traced by process %d", (int)tracer);
#ifndef __x86_64__
	else
		snprintf(why, INJECT_WHY, "is stopped");
#endif
	return why[0] ? -EBUSY : 0;
}

#ifdef __x86_64__

#define SYSCALL_INSTRUCTION 0x050f
#define RESTART_BLOCK	    516 /* the kernel's ERESTART_RESTARTBLOCK */
#define USER_CS		    0x33

/* ---- one thread, traced --------------------------------------------------------------------- */

struct injection {
	struct bounded *bounded;
	pid_t pid, tid;
	uint64_t until_ms;
	char why[INJECT_WHY];
	size_t count;
	struct address_range ranges[];
};

/* Waits for a trap. 0: it came, and *status says how, as waitpid does; -ETIMEDOUT; -ESRCH: the
   thread has ended. */
static int wait_for_trap(struct injection *in, int *status)
{
	for (;;) {
		pid_t pid = waitpid(in->tid, status, __WALL | WNOHANG);

		if (pid == in->tid)
			return WIFSTOPPED(*status) ? 0 : -ESRCH;
		if (pid < 0 && errno != EINTR)
			return -ESRCH;
		if (clock_ms() >= in->until_ms)
			return -ETIMEDOUT;
		usleep(TRAP_PAUSE_US);
	}
}

static bool is_syscall_stop(int status)
{
	return WSTOPSIG(status) == (SIGTRAP | 0x80);
}

/* Returns the signal that this stop is about to deliver, which must be passed on; 0: other stops
   have none. */
static int signal_of(int status)
{
	return status >> 16 || is_syscall_stop(status) ? 0 : WSTOPSIG(status);
}

/* Begins to trace the agent. Waits, while there is time, for another thread of this daemon that
   traces it. */
static int seize(struct injection *in)
{
	bool was_ours = true, ours;
	int code;

	while (ptrace(PTRACE_SEIZE, in->tid, NULL, PTRACE_O_TRACESYSGOOD)) {
		code = errno;
		ours = is_own_thread(process_tracer(in->pid, in->tid));
		/* Once more after that: it may have let go between the two calls. */
		if (code != EPERM || !(ours || was_ours) || clock_ms() >= in->until_ms)
			return -code;
		was_ours = ours;
		usleep(TRAP_PAUSE_US);
	}
	return 0;
}

/* Runs the thread to the next entry or exit of a system call. */
static int run_to_syscall(struct injection *in)
{
	int status, sig = 0, rc;

	for (int i = 0; i < ODD_STOPS; i++) {
		if (ptrace(PTRACE_SYSCALL, in->tid, NULL, sig))
			return -errno;
		rc = wait_for_trap(in, &status);
		if (rc || is_syscall_stop(status))
			return rc;
		sig = signal_of(status);
	}
	return -EBUSY;
}

/*
 * Runs the thread out of the call, past the deadline, too: only a thread that is out can be given
 * its registers back. A madvise ends by itself, and never sleeps in a way that a signal would end.
 * But a filter of the program's may keep the call waiting (seccomp(2), USER_NOTIF), and does that
 * in such a sleep: an interrupt ends it. A call that does not end at all is left as if the daemon
 * had died.
 */
static int run_out(struct injection *in)
{
	uint64_t until_ms = in->until_ms, end_ms = clock_ms() + OUT_MAX_MS;
	int status, rc;

	in->until_ms = clock_ms() + OUT_MS;
	rc = run_to_syscall(in);
	while (rc == -ETIMEDOUT && process_state(in->tid) != 'S' && clock_ms() < end_ms) {
		(void)bounded_enter(in->bounded, in->pid); /* it is at work, not stuck */
		in->until_ms = clock_ms() + OUT_MS;
		rc = wait_for_trap(in, &status);
	}
	if (rc == -ETIMEDOUT && !ptrace(PTRACE_INTERRUPT, in->tid, NULL, NULL)) {
		in->until_ms = clock_ms() + OUT_MS;
		if (wait_for_trap(in, &status) == -ESRCH)
			rc = -ESRCH;
	}
	in->until_ms = until_ms;
	return rc;
}

/* Makes one madvise(2). Returns its result; *broken: -errno where it could not be made. */
static long call_madvise(struct injection *in, const struct user_regs_struct *kept,
			 const struct address_range *range, int advice, int *broken)
{
	struct user_regs_struct regs = *kept;

	regs.rip = kept->rip - 2;
	regs.rax = SYS_madvise;
	regs.orig_rax = (unsigned long long)-1; /* no call begins again */
	regs.rdi = range->start;
	regs.rsi = range->end - range->start;
	regs.rdx = (unsigned long long)advice;
	*broken = ptrace(PTRACE_SETREGS, in->tid, NULL, &regs) ? -errno : 0;
	if (!*broken)
		*broken = run_to_syscall(in); /* entry */
	if (!*broken)
		*broken = run_out(in);
	if (!*broken && ptrace(PTRACE_GETREGS, in->tid, NULL, &regs))
		*broken = -errno;
	return *broken ? 0 : (long)regs.rax;
}

static int drop_ranges(struct injection *in, const struct user_regs_struct *kept)
{
	int broken = 0;

	for (size_t i = 0; i < in->count; i++) {
		long rc;

		if (clock_ms() >= in->until_ms)
			return -ETIMEDOUT;
		rc = call_madvise(in, kept, &in->ranges[i], MADV_DONTNEED_LOCKED, &broken);
		if (!broken && rc == -EINVAL)
			rc = call_madvise(in, kept, &in->ranges[i], MADV_DONTNEED, &broken);
		if (broken || (rc && rc != -ENOMEM))
			return broken ? broken : (int)rc;
	}
	return 0;
}

/* Makes the registers begin the interrupted call again, whether the process is still stopped or
   not. */
static void restart_call(struct user_regs_struct *regs)
{
	long long rax = (long long)regs->rax;

	regs->rip -= 2;
	regs->rax = rax == -RESTART_BLOCK ? SYS_restart_syscall : regs->orig_rax;
	regs->orig_rax = (unsigned long long)-1;
}

static bool was_interrupted(const struct user_regs_struct *regs)
{
	long long rax = (long long)regs->rax;

	return (long long)regs->orig_rax >= 0 && rax <= -512 && rax >= -RESTART_BLOCK;
}

/* Drops the ranges in the thread, which is trapped. */
static int drop_in(struct injection *in)
{
	struct user_regs_struct kept;
	long word;
	int rc;

	if (ptrace(PTRACE_GETREGS, in->tid, NULL, &kept))
		return -errno;
	errno = 0;
	word = ptrace(PTRACE_PEEKTEXT, in->tid, kept.rip - 2, NULL);
	if (errno || kept.cs != USER_CS || (word & 0xffff) != SYSCALL_INSTRUCTION ||
	    (long long)kept.orig_rax < 0) {
		snprintf(in->why, INJECT_WHY, "is stopped where no system call can be made in it");
		return -EBUSY;
	}
	rc = drop_ranges(in, &kept);
	if (was_interrupted(&kept))
		restart_call(&kept);
	ptrace(PTRACE_SETREGS, in->tid, NULL, &kept);
	return rc;
}

/* All requests to a traced thread must come from one tracer thread, this one. It waits in here
   while the process is in an execve that does not end. */
static int inject(struct bounded *bounded, void *arg)
{
	struct injection *in = arg;
	int status, rc = bounded_enter(bounded, in->pid);

	if (rc)
		return rc;
	in->bounded = bounded;
	rc = seize(in);
	if (rc) {
		snprintf(in->why, INJECT_WHY, "is stopped, and tracing it failed: %s",
			 strerror(-rc));
		return rc;
	}
	rc = bounded_enter(bounded, in->pid); /* -ECANCELED: too much time went by */
	if (!rc) {
		ptrace(PTRACE_INTERRUPT, in->tid, NULL, NULL);
		rc = wait_for_trap(in, &status);
	}
	if (!rc)
		rc = drop_in(in);
	/* Where it has not trapped, the end of this thread detaches it. */
	ptrace(PTRACE_DETACH, in->tid, NULL, NULL);
	return rc;
}

int inject_drop(struct client *client, const struct address_range *ranges, size_t count,
		uint64_t until_ms, char why[INJECT_WHY])
{
	uint64_t own_ms = clock_ms() + OWN_MS;
	struct injection *in;
	pid_t stuck;
	int rc;

	if (inject_ready(client, why))
		return -EBUSY;
	if (!process_lives(client->pidfd))
		return -ESRCH;
	in = malloc(sizeof(*in) + count * sizeof(*ranges));
	if (!in)
		return -ENOMEM;
	*in = (struct injection){.pid = client->pid,
				 .tid = client_agent_thread(client),
				 .until_ms = until_ms < own_ms ? until_ms : own_ms,
				 .count = count};
	memcpy(in->ranges, ranges, count * sizeof(*ranges));
	if (!bounded_run(inject, in, free, &rc, &stuck)) {
		snprintf(why, INJECT_WHY, "is stopped, and keeps its tracer waiting");
		return -EBUSY;
	}
	memcpy(why, in->why, INJECT_WHY);
	free(in);
	if (rc && !why[0])
		snprintf(why, INJECT_WHY, "is stopped, and dropping it there failed: %s",
			 strerror(-rc));
	return rc;
}

#else

int inject_drop(struct client *client, const struct address_range *ranges, size_t count,
		uint64_t until_ms, char why[INJECT_WHY])
{
	(void)ranges;
	(void)count;
	(void)until_ms;
	return inject_ready(client, why);
}

#endif
