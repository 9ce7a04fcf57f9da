/*
 * Users against each other: a user that takes all of a resource gets no more of it, and the other
 * users are served as before.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/kernel.h"
#include "programs_world.h"
#include "stranger.h"

static struct prog_report op(struct prog *prog, enum prog_op what, uint64_t value)
{
	return prog_do(prog, &(struct prog_order){.op = what, .value = value});
}

/* ---- priority ------------------------------------------------------------------------------- */

static bool is_lifted(uint64_t tid)
{
	int policy = sched_getscheduler((pid_t)tid);

	return (policy & ~SCHED_RESET_ON_FORK) == SCHED_RR ||
	       getpriority(PRIO_PROCESS, (id_t)tid) == -20;
}

static void wait_until_normal(uint64_t tid)
{
	for (int i = 0; i < PATIENCE && is_lifted(tid); i++)
		usleep(1000);
	ck_assert(!is_lifted(tid));
}

/* An agent that computes delays no page fault: its priority is below that of the threads that
   serve them. */
START_TEST(an_agent_goes_before_programs_and_not_before_page_faults)
{
	struct sched_param param = {0};
	struct prog prog;
	struct prog_report r;

	prog_start(&prog, world.socket);
	r = op(&prog, PROG_NAME, 0);
	ck_assert_int_eq(r.result, 0);
	ck_assert(is_lifted(r.value));
	ck_assert_int_eq(sched_getparam((pid_t)r.value, &param), 0);
	ck_assert_int_lt(param.sched_priority, KERNEL_FAULT_PRIORITY);
	prog_end(&prog);
}
END_TEST

/* The daemon has asked nothing of this agent. */
START_TEST(an_agent_that_computes_all_the_time_has_no_priority_any_more)
{
	struct prog_order computes = {.op = PROG_NAME, .flags = 2};
	struct prog prog[3];
	struct prog_report r, idle;

	for (int i = 0; i < 3; i++)
		prog_start(&prog[i], world.socket);
	idle = op(&prog[0], PROG_NAME, 0);
	r = prog_do(&prog[1], &computes);
	ck_assert_int_eq(r.result, 0);
	ck_assert(is_lifted(r.value));
	wait_until_normal(r.value);
	ck_assert(is_lifted(idle.value));
	/* A new agent of that user gets no priority either. */
	r = op(&prog[2], PROG_NAME, 0);
	ck_assert_int_eq(r.result, 0);
	ck_assert(!is_lifted(r.value));
	for (int i = 0; i < 3; i++)
		prog_end(&prog[i]);
}
END_TEST

/* After exec the agent's thread is the main thread of its process, with another id. */
START_TEST(an_agent_that_becomes_another_program_has_no_priority_any_more)
{
	struct prog_order becomes = {.op = PROG_NAME, .flags = 3};
	struct prog prog;
	struct prog_report r;

	prog_start(&prog, world.socket);
	r = prog_do(&prog, &becomes);
	ck_assert_int_eq(r.result, 0);
	ck_assert(is_lifted(r.value));
	while (sched_getscheduler((pid_t)r.value) >= 0)
		usleep(1000);
	wait_until_normal((uint64_t)prog.pid);
	prog_end(&prog);
}
END_TEST

START_TEST(an_agent_that_works_long_for_the_daemon_keeps_its_priority)
{
	struct seg *seg = world_segment("x", 5);
	struct ramp_err err = {0};
	struct prog prog;
	struct prog_report r;

	prog_start(&prog, world.socket);
	r = op(&prog, PROG_SESSION, 10);
	ck_assert_int_eq(r.result, 0);
	world_attach(&prog, seg, O_RDWR);
	ck_assert(is_lifted(r.value));
	must(programs_revoke(world.programs, seg, PATIENCE, &err), &err);
	programs_restore(world.programs, seg);
	ck_assert(is_lifted(r.value));
	usleep(1500000); /* until the daemon has looked at it again */
	ck_assert(is_lifted(r.value));
	prog_end(&prog);
	seg_put(seg);
}
END_TEST

START_TEST(one_thread_of_a_program_has_priority_and_none_that_is_not_its_own)
{
	struct prog_order shared = {.op = PROG_NAME, .flags = 1};
	struct prog prog, next;
	struct prog_report one, other;

	prog_start(&prog, world.socket);
	one = op(&prog, PROG_NAME, 0);
	ck_assert_int_eq(one.result, 0);
	ck_assert(is_lifted(one.value));
	other = op(&prog, PROG_NAME, 0);
	ck_assert_int_eq(other.result, 0);
	ck_assert(is_lifted(other.value));
	ck_assert(!is_lifted(one.value));
	/* When the session ends, the priority goes. */
	ck_assert_int_eq(op(&prog, PROG_UNNAME, 0).result, 0);
	wait_until_normal(other.value);
	/* A thread of another process: this test's. */
	ck_assert_int_eq(op(&prog, PROG_NAME, (uint64_t)getpid()).result, 0);
	ck_assert(!is_lifted((uint64_t)getpid()));
	prog_end(&prog);

	/* Another process that shares the memory is not another program. */
	prog_start(&next, world.socket);
	one = op(&next, PROG_NAME, 0);
	ck_assert(is_lifted(one.value));
	other = prog_do(&next, &shared);
	ck_assert_int_eq(other.result, 0);
	ck_assert(is_lifted(other.value));
	ck_assert(!is_lifted(one.value));
	kill((pid_t)other.value, SIGKILL);
	prog_end(&next);
}
END_TEST

/* ---- quotas --------------------------------------------------------------------------------- */

static int idle_connections(const void *arg)
{
	int n = 0;

	for (int i = 0; i < 1000; i++)
		n += stranger_connect() >= 0;
	(void)arg;
	return n;
}

START_TEST(idle_connections_of_one_user_keep_nobody_out)
{
	struct seg *seg = world_segment("x", 5);
	struct stranger s = stranger_start(STRANGER, idle_connections, NULL);
	struct prog prog;

	ck_assert_int_gt(stranger_said(&s), 500);
	world_prog(&prog); /* its first attempt to connect succeeds */
	world_attach(&prog, seg, O_RDWR);
	prog_end(&prog);
	stranger_end(&s);
	seg_put(seg);
}
END_TEST

/* Three sessions are allowed, the fourth is not; sessions that are over do not count. The
   broker's sockets stay open: a session ends when its own one is closed. */
static int four_sessions(const void *arg)
{
	int sock[4], door[4], rc;

	(void)arg;
	for (int i = 0; i < 4; i++) {
		sock[i] = stranger_hello();
		rc = stranger_welcome(sock[i], PATIENCE, &door[i]);
		if (rc != (i < 3 ? 0 : EUSERS))
			return -1;
	}
	close(sock[0]);
	for (int i = 0; i < PATIENCE; i++) { /* until the daemon has seen that */
		sock[0] = stranger_hello();
		rc = stranger_welcome(sock[0], PATIENCE, &door[0]);
		if (!rc)
			return 1;
		close(sock[0]);
		usleep(1000);
	}
	return 0;
}

START_TEST(a_user_has_so_many_sessions_and_no_more)
{
	struct seg *seg = world_segment("x", 5);
	struct prog prog[5];
	struct stranger s;

	world_programs_stop();
	world.user_sessions = 3;
	world_programs_start();
	s = stranger_start(STRANGER, four_sessions, NULL);
	ck_assert_int_eq(stranger_said(&s), 1);
	/* Other users have quotas of their own. */
	for (int i = 0; i < 3; i++) {
		world_prog(&prog[i]);
		world_attach(&prog[i], seg, O_RDWR);
	}
	for (int i = 0; i < 3; i++)
		prog_end(&prog[i]);
	stranger_end(&s);
	world.user_sessions = 0;
	seg_put(seg);
}
END_TEST

/* ---- tokens --------------------------------------------------------------------------------- */

static int nothing(const void *arg)
{
	(void)arg;
	return 0;
}

START_TEST(a_user_has_so_many_tokens_and_others_have_theirs)
{
	struct seg *seg = world_segment("x", 5);
	struct stranger s[9];
	struct ramp_err err = {0};
	uint64_t token[2], first[2] = {0};
	struct prog prog;

	world_prog(&prog);
	for (int i = 0; i < 9; i++)
		s[i] = stranger_start(STRANGER, nothing, NULL);
	for (int i = 0; i < 9; i++)
		stranger_said(&s[i]);
	/* A process with too many tokens loses its oldest. A user with too many gets no new one. */
	for (int i = 0; i < 8; i++)
		for (int n = 0; n < 300; n++)
			ck_assert_int_eq(programs_token(world.programs, seg_id(seg), O_RDWR,
							s[i].pid, n ? token : first, &err),
					 0);
	ck_assert_int_eq(programs_token(world.programs, seg_id(seg), O_RDWR, s[8].pid, token, &err),
			 -EDQUOT);
	world_attach(&prog, seg, O_RDWR);
	for (int i = 0; i < 9; i++)
		stranger_end(&s[i]);
	prog_end(&prog);
	seg_put(seg);
}
END_TEST

START_TEST(an_old_token_is_none)
{
	struct prog_order order = {.op = PROG_ATTACH, .len = SEG_BYTES, .prot = PROT_READ};
	struct seg *seg = world_segment("x", 5);
	struct prog prog;

	world_programs_stop();
	world.token_ms = 30;
	world_programs_start();
	world_prog(&prog);
	ck_assert_int_eq(
		programs_token(world.programs, seg_id(seg), O_RDWR, prog.pid, order.token, NULL),
		0);
	usleep(60000);
	ck_assert_int_eq(prog_do(&prog, &order).result, -EPERM);
	prog_end(&prog);
	world.token_ms = 0;
	seg_put(seg);
}
END_TEST

START_TEST(a_forks_token_is_for_a_child)
{
	struct prog_order order = {.op = PROG_ADOPT};
	struct seg *seg = world_segment("x", 5);
	struct prog prog, other;
	struct prog_report r;

	world_prog(&prog);
	world_prog(&other);
	world_attach(&prog, seg, O_RDWR);
	r = op(&prog, PROG_TICKET, 0);
	ck_assert_int_eq(r.result, 0);
	order.token[0] = r.value;
	order.token[1] = r.addr;
	ck_assert_int_eq(prog_do(&other, &order).result, -EPERM);
	prog_end(&prog);
	prog_end(&other);
	seg_put(seg);
}
END_TEST

START_TEST(a_forks_token_outlives_a_parent_that_nobody_waits_for)
{
	struct prog_order order = {.op = PROG_ADOPT};
	struct seg *seg = world_segment("x", 5);
	struct prog prog, child;
	siginfo_t info;
	struct prog_report r;

	world_prog(&prog);
	world_attach(&prog, seg, O_RDWR);
	r = op(&prog, PROG_TICKET, 0);
	ck_assert_int_eq(r.result, 0);
	order.token[0] = r.value;
	order.token[1] = r.addr;
	world_prog(&child); /* a child of this process, as one is whose parent has ended */
	ck_assert_int_eq(kill(prog.pid, SIGKILL), 0);
	ck_assert_int_eq(waitid(P_PID, (id_t)prog.pid, &info, WEXITED | WNOWAIT), 0);
	ck_assert_int_eq(prog_do(&child, &order).result, 0);
	prog_end(&child);
	prog_end(&prog);
	seg_put(seg);
}
END_TEST

/* ---- the number of a process that has ended -------------------------------------------------- */

#define HELD_MAX 32

/* Duplicates the descriptors that the process has open, its session's socket among them. */
static void hold_files(pid_t pid, int held[HELD_MAX])
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

	ck_assert_int_ge(pidfd, 0);
	for (int i = 0; i < HELD_MAX; i++)
		held[i] = i < 4 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, i, 0);
	close(pidfd);
}

/* Makes a process with that pid, which attaches with the token `given` (NULL: with one made for
   it). Returns the errno. */
static int attach_as(pid_t pid, struct seg *seg, const uint64_t *given, char text[SESSION_TEXT_MAX])
{
	struct clone_args args = {
		.exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&pid, .set_tid_size = 1};
	struct session_msg msg = {.type = SESSION_ATTACH, .len = SEG_BYTES, .prot = PROT_READ};
	int pair[2];
	long child;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	child = syscall(SYS_clone3, &args, sizeof(args));
	ck_assert_msg(child >= 0, "clone3: %s", strerror(errno));
	if (!child) {
		int sock = session_connect(world.socket);

		if (read(pair[1], msg.token, sizeof(msg.token)) != sizeof(msg.token) ||
		    session_send(sock, &msg, NULL, 0, 0) ||
		    session_recv(sock, &msg, NULL, NULL, 0) ||
		    write(pair[1], &msg, sizeof(msg)) != sizeof(msg))
			_exit(1);
		_exit(0);
	}
	if (given)
		memcpy(msg.token, given, sizeof(msg.token));
	else
		ck_assert_int_eq(
			programs_token(world.programs, seg_id(seg), O_RDWR, pid, msg.token, NULL),
			0);
	ck_assert_int_eq(write(pair[0], msg.token, sizeof(msg.token)), (ssize_t)sizeof(msg.token));
	ck_assert_int_eq(read(pair[0], &msg, sizeof(msg)), (ssize_t)sizeof(msg));
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	close(pair[0]);
	close(pair[1]);
	memcpy(text, msg.text, SESSION_TEXT_MAX);
	return (int)msg.result;
}

START_TEST(a_dead_processes_session_and_token_do_not_serve_the_next_of_its_number)
{
	struct seg *seg = world_segment("x", 1);
	char text[SESSION_TEXT_MAX];
	int held[HELD_MAX];
	uint64_t token[2];
	struct prog prog;

	world_prog(&prog);
	ck_assert_int_eq(programs_token(world.programs, seg_id(seg), O_RDWR, prog.pid, token, NULL),
			 0);
	hold_files(prog.pid, held);
	prog_end(&prog);
	usleep(20000); /* /proc counts in ticks of 10 ms */
	ck_assert_int_eq(attach_as(prog.pid, seg, token, text), EPERM);
	/* With a token of its own: the session that still exists is not its own. */
	ck_assert_int_eq(attach_as(prog.pid, seg, NULL, text), ESRCH);
	ck_assert_msg(strstr(text, "no session") != NULL, "%s", text);
	for (int i = 0; i < HELD_MAX; i++)
		if (held[i] >= 0)
			close(held[i]);
	seg_put(seg);
}
END_TEST

/* ---- agents that fall silent in the middle --------------------------------------------------- */

static uint64_t load_when_back(struct prog *prog, uint64_t addr)
{
	struct prog_order order = {.op = PROG_LOAD, .addr = addr};
	struct prog_report r = {.result = -1};

	for (int i = 0; i < PATIENCE && r.result; i++) {
		r = prog_do(prog, &order);
		if (r.result)
			usleep(1000);
	}
	ck_assert_int_eq(r.result, 0);
	return r.value;
}

/* Attaches read-only first, then writable in its place; the agent leaves one command unanswered. */
START_TEST(an_agent_that_leaves_a_replacement_half_done_is_hung_up_on)
{
	struct prog_order order = {.op = PROG_ATTACH,
				   .len = SEG_BYTES,
				   .prot = PROT_READ | PROT_WRITE,
				   .flags = SESSION_REPLACE};
	struct seg *seg = world_segment("x", 5);
	struct ramp_err err = {0};
	struct prog prog;
	uint64_t addr;

	prog_start(&prog, world.socket);
	ck_assert_int_eq(op(&prog, PROG_SESSION, (uint64_t)_i).result, 0);
	addr = world_attach(&prog, seg, O_RDONLY);
	programs_token(world.programs, seg_id(seg), O_RDWR, prog.pid, order.token, NULL);
	ck_assert_int_eq(prog_do(&prog, &order).result, -ETIMEDOUT);
	world_wait_session(&prog, 2);
	/* The segment can be revoked as before, and the old mapping is still there. */
	ck_assert_uint_eq(load_when_back(&prog, addr), UINT64_C(0x0505050505050505));
	for (int i = 0; i < 100 && programs_revoke(world.programs, seg, 1000, &err); i++)
		usleep(10000); /* until its new session is ready */
	programs_restore(world.programs, seg);
	programs_token(world.programs, seg_id(seg), O_RDWR, prog.pid, order.token, NULL);
	ck_assert_int_eq(prog_do(&prog, &order).result, 0);
	ck_assert_int_eq(
		prog_do(&prog, &(struct prog_order){.op = PROG_STORE, .addr = addr}).result, 0);
	/* A child gets the same mapping, and no private copy because the mapping looks
	   read-only. */
	ck_assert_int_eq(prog_do(&prog, &(struct prog_order){.op = PROG_FORK, .addr = addr}).result,
			 0);
	prog_end(&prog);
	seg_put(seg);
}
END_TEST

START_TEST(a_segment_that_comes_back_to_a_silent_agent_is_sigbus_until_it_comes_again)
{
	struct seg *seg = world_segment("x", 5);
	struct ramp_err err = {0};
	struct prog prog;
	uint64_t addr;

	prog_start(&prog, world.socket);
	ck_assert_int_eq(op(&prog, PROG_SESSION, 8).result, 0);
	addr = world_attach(&prog, seg, O_RDWR);
	ck_assert_int_eq(programs_revoke(world.programs, seg, REVOKE_MS, &err), 0);
	world_give(seg);
	programs_gone(world.programs, seg, "b");
	ck_assert_int_eq(prog_do(&prog, &(struct prog_order){.op = PROG_LOAD, .addr = addr}).result,
			 -SIGBUS);
	seg = world_take(seg, 0, SEG_BYTES / RAMP_PAGE_BYTES);
	ck_assert_int_eq(programs_pulling(world.programs, seg, &err), 0);
	programs_back(world.programs, seg);
	/* The agent was hung up on since it did not answer SWAP; it connects again and gets the
	   segment. */
	world_wait_session(&prog, 2);
	ck_assert_uint_eq(load_when_back(&prog, addr), FILLED);
	prog_end(&prog);
	seg_put(seg);
}
END_TEST

/* ---- what one program's page faults cost the pager ------------------------------------------- */

int64_t __real_kernel_uffd_continue(int uffd, uint64_t addr, uint64_t len, bool wake);
int64_t __wrap_kernel_uffd_continue(int uffd, uint64_t addr, uint64_t len, bool wake);

/* No page can be mapped at this address; 0: pages can be mapped everywhere. */
static _Atomic uint64_t remapped;
static _Atomic uint64_t tries; /* to map a page there all the same */
static _Atomic unsigned continues;
static _Atomic uint64_t held_at; /* a thread that maps a page there blocks until this is 0 */
/* Threads that have blocked there; those of them that have continued. */
static _Atomic unsigned holds, freed;

int64_t __wrap_kernel_uffd_continue(int uffd, uint64_t addr, uint64_t len, bool wake)
{
	continues++;
	if (addr && addr == held_at) {
		holds++;
		while (held_at)
			usleep(1000);
		freed++;
	}
	if (addr != remapped)
		return __real_kernel_uffd_continue(uffd, addr, len, wake);
	tries++;
	return -EAGAIN;
}

/* The program that waits for its page has the page fault again and again, and each time other
   programs get their pages meanwhile. */
START_TEST(a_program_that_mremaps_all_the_time_keeps_the_pager_from_nobody)
{
	struct seg *seg[2];
	struct prog prog[2];
	struct prog_report r;
	uint64_t addr[2], faults, before;

	for (int i = 0; i < 2; i++) {
		seg[i] = world_take(world_segment(i ? "y" : "x", 5), 0, 100);
		ck_assert_int_eq(programs_pulling(world.programs, seg[i], NULL), 0);
		world_prog(&prog[i]);
		addr[i] = world_attach(&prog[i], seg[i], O_RDWR);
	}
	remapped = addr[0];
	faults = world_faults();
	prog_send(&prog[0], &(struct prog_order){.op = PROG_LOAD, .addr = addr[0]});
	ck_assert(!prog_wait(&prog[0], &r, BLOCKED_MS));
	before = tries;
	ck_assert_uint_gt(before, 0);
	ck_assert_uint_le(before, 30 * (world_faults() - faults));
	for (uint64_t page = 0; page < 100; page++)
		ck_assert_uint_eq(prog_load(&prog[1], addr[1] + page * 4096), FILLED);
	ck_assert_uint_gt(tries, before);
	remapped = 0;
	ck_assert(prog_wait(&prog[0], &r, PATIENCE));
	ck_assert_int_eq(r.result, 0);
	ck_assert_uint_eq(r.value, FILLED);
	for (int i = 0; i < 2; i++) {
		prog_end(&prog[i]);
		seg_put(seg[i]);
	}
}
END_TEST

/* A page that is mapped after a freeze would give access to a segment that has left. */
START_TEST(a_freeze_is_refused_while_a_program_holds_who_maps_a_page)
{
	struct seg *seg = world_take(world_segment("x", 5), 0, 100);
	struct ramp_err err = {0};
	struct prog_report r;
	struct prog prog;
	uint64_t addr;

	ck_assert_int_eq(programs_pulling(world.programs, seg, NULL), 0);
	world_prog(&prog);
	addr = world_attach(&prog, seg, O_RDWR);
	held_at = addr;
	prog_send(&prog, &(struct prog_order){.op = PROG_LOAD, .addr = addr});
	while (!holds)
		usleep(1000);
	ck_assert_int_eq(programs_revoke(world.programs, seg, PATIENCE, &err), -EBUSY);
	ck_assert_ptr_nonnull(strstr(err.text, "keeps the lock of its memory"));
	ck_assert_uint_eq(freed, 0);
	held_at = 0;
	ck_assert(prog_wait(&prog, &r, PATIENCE));
	ck_assert_uint_eq(r.value, FILLED);
	must(programs_revoke(world.programs, seg, PATIENCE, &err), &err);
	programs_restore(world.programs, seg);
	ck_assert_uint_eq(prog_load(&prog, addr + RAMP_PAGE_BYTES), FILLED);
	prog_end(&prog);
	seg_put(seg);
}
END_TEST

/* It blocks neither the pager a second time nor a write(2). */
START_TEST(a_program_that_has_kept_the_pager_is_served_apart)
{
	struct seg *seg = world_take(world_segment("x", 5), 0, 100);
	struct prog prog[2];
	struct prog_report r;
	uint64_t addr[2];

	ck_assert_int_eq(programs_pulling(world.programs, seg, NULL), 0);
	world.apart = true;
	for (int i = 0; i < 2; i++) {
		world_prog(&prog[i]);
		addr[i] = world_attach(&prog[i], seg, O_RDWR);
	}
	ck_assert_uint_eq(prog_load(&prog[0], addr[0]), FILLED);
	held_at = addr[0] + RAMP_PAGE_BYTES;
	prog_send(&prog[0], &(struct prog_order){.op = PROG_LOAD, .addr = held_at});
	while (!holds)
		usleep(1000);
	for (uint64_t page = 2; page < 100; page++) /* the segment is at the same address in both */
		ck_assert_uint_eq(prog_load(&prog[1], addr[1] + page * RAMP_PAGE_BYTES), FILLED);
	programs_written(world.programs, seg_id(seg), 1, 1);
	ck_assert_uint_eq(freed, 0);
	held_at = 0;
	ck_assert(prog_wait(&prog[0], &r, PATIENCE));
	ck_assert_uint_eq(r.value, FILLED);
	world.apart = false;
	for (int i = 0; i < 2; i++)
		prog_end(&prog[i]);
	seg_put(seg);
}
END_TEST

/* Other programs have the same segment attached, each in many ranges. */
START_TEST(a_page_fault_is_resolved_where_it_was_and_nowhere_else)
{
	struct seg *seg = world_take(world_segment("x", 5), 0, 100);
	struct prog_order unmap = {.op = PROG_MUNMAP, .len = RAMP_PAGE_BYTES};
	struct programs_status status;
	struct prog prog[4];
	uint64_t addr = 0;

	ck_assert_int_eq(programs_pulling(world.programs, seg, NULL), 0);
	for (int i = 0; i < 4; i++) {
		world_prog(&prog[i]);
		addr = world_attach(&prog[i], seg, O_RDWR);
		for (uint64_t page = 1; page < 100; page += 2) {
			unmap.addr = addr + page * RAMP_PAGE_BYTES;
			ck_assert_int_eq(prog_do(&prog[i], &unmap).result, 0);
		}
		/* An attach makes the daemon look again and find the ranges. */
		ck_assert_int_eq(world_try_attach(&prog[i], seg, O_RDWR, PROT_READ | PROT_WRITE,
						  99 * RAMP_PAGE_BYTES, RAMP_PAGE_BYTES)
					 .result,
				 0);
	}
	programs_status(world.programs, &status);
	ck_assert_uint_ge(status.attachments, 200);
	for (uint64_t page = 0; page < 100; page += 2) {
		continues = 0;
		ck_assert_uint_eq(prog_load(&prog[page / 2 % 4], addr + page * RAMP_PAGE_BYTES),
				  FILLED);
		ck_assert_uint_eq(continues, 1);
	}
	for (int i = 0; i < 4; i++)
		prog_end(&prog[i]);
	seg_put(seg);
}
END_TEST

static void add_tests(TCase *tc)
{
	tcase_add_test(tc, an_agent_goes_before_programs_and_not_before_page_faults);
	tcase_add_test(tc, an_agent_that_computes_all_the_time_has_no_priority_any_more);
	tcase_add_test(tc, an_agent_that_becomes_another_program_has_no_priority_any_more);
	tcase_add_test(tc, an_agent_that_works_long_for_the_daemon_keeps_its_priority);
	tcase_add_test(tc, one_thread_of_a_program_has_priority_and_none_that_is_not_its_own);
	tcase_add_test(tc, idle_connections_of_one_user_keep_nobody_out);
	tcase_add_test(tc, a_user_has_so_many_sessions_and_no_more);
	tcase_add_test(tc, a_user_has_so_many_tokens_and_others_have_theirs);
	tcase_add_test(tc, an_old_token_is_none);
	tcase_add_test(tc, a_forks_token_is_for_a_child);
	tcase_add_test(tc, a_forks_token_outlives_a_parent_that_nobody_waits_for);
	tcase_add_test(tc, a_dead_processes_session_and_token_do_not_serve_the_next_of_its_number);
	tcase_add_loop_test(tc, an_agent_that_leaves_a_replacement_half_done_is_hung_up_on, 7, 9);
	tcase_add_test(tc, a_program_that_mremaps_all_the_time_keeps_the_pager_from_nobody);
	tcase_add_test(tc, a_freeze_is_refused_while_a_program_holds_who_maps_a_page);
	tcase_add_test(tc, a_program_that_has_kept_the_pager_is_served_apart);
	tcase_add_test(tc, a_page_fault_is_resolved_where_it_was_and_nowhere_else);
	tcase_add_test(tc,
		       a_segment_that_comes_back_to_a_silent_agent_is_sigbus_until_it_comes_again);
}

int main(int argc, char **argv)
{
	return world_main(argc, argv, "strangers", add_tests);
}
