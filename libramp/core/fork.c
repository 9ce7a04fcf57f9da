/*
 * What a fork does to a process that has segments mapped.
 *
 * Happy path: the mappings are MADV_DONTFORK, so the child has none of them, nor the agents. Before
 * the fork the parent asks each daemon for a token that stands for what it has mapped, and takes a
 * copy of the table, since the table itself may be in the middle of a change when the child is
 * made. The child starts agents of its own and each daemon, given its token, has them map
 * everything again. Only the attach lock is held over the fork: no agent waits for it, and other
 * libraries' handlers may run into our wrappers meanwhile.
 *
 * A mapping is MADV_DONTFORK a moment after it was made, and no call makes one that is so from the
 * start (only mremap(2) session it on). A child of that moment would keep a part of the segment for
 * its life, which nobody could take away: so agents and forks stay out of each other's way (the
 * gate). Of the ways to make a child, clone(2) and _Fork(3) run no handlers and are wrapped for
 * this.
 *
 * There are two sets of handlers, since another library's take that library's locks, and what we do
 * for the child may need those: starting an agent allocates. The one that asks, holds the attach
 * lock and starts agents is registered at the first attach, so that of all that a program has by
 * then its prepare comes first and its child last; an allocator's locks are free at both. The other
 * is registered when the program begins and keeps the gate alone.
 *
 * Other threads of the parent go on meanwhile: what they have unmapped or protected between the
 * token and the copy, the child finds out when it has its mappings: the copy counts. What they have
 * put in the place of a segment until the fork, the child has itself, and none of the segment there.
 *
 * A child that came otherwise begins without anything: it knows itself by a page that forks wipe.
 * One that shares its parent's memory maps no segment: its agent would end with it, and the mapping
 * stay.
 *
 * How it fails: no token, or no answer in the child within 5 s: the child goes on without these
 * mappings (a touch is SIGSEGV, never zeros), and one line says so. A process that never asked for
 * a segment does nothing here. vfork, posix_spawn and system(3) never come here.
 */
#include "fork.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "agent.h"
#include "daemon_request.h"
#include "fork_child.h"
#include "fork_gate.h"
#include "guard.h"
#include "say.h"
#include "sys.h"
#include "table.h"

#define FORK_PATIENCE_MS 5000
#define RETRY_PAUSE_MS	 5

/* One daemon's answer to FORK. */
struct ticket {
	uint64_t token[2];
	uint64_t ranges; /* that the token stands for */
	bool needed;	 /* we have ranges there */
	int error;	 /* positive errno: no token */
};

/* Between prepare and the end of the fork; under the attach lock. */
static struct ticket tickets[AGENTS_MAX];
static struct ranges copy;

/* The handlers that need a ticket are registered: a segment was asked for. Before that, forks have
   nothing to do with us. Written under the attach lock. */
static _Atomic bool watched;

/* Of the forking thread: other threads may fork at the same time, before the first attach. */
static __thread struct {
	struct signal_guard guard;
	bool locked; /* prepare took the attach lock */
} own __attribute__((tls_model("initial-exec")));

/* ---- whose memory is this? ----------------------------------------------------------------------
 */

/* In a child: whoever else held these is not here. */
static void free_locks(void)
{
	table.lock.word = 0;
	attach_lock.word = 0;
	table.swaps = 0;
	agents_reset();
}

bool fork_settle(void)
{
	enum fork_memory memory = fork_gate_memory();

	if (memory == FORK_MEMORY_COPIED) {
		free_locks();
		table.ranges.n = 0;
	}
	return memory != FORK_MEMORY_SHARED;
}

/* ---- the handlers -------------------------------------------------------------------------------
 */

static bool has_ranges(int session)
{
	for (uint32_t i = 0; i < table.ranges.n; i++)
		if (table.ranges.at[i].session == session)
			return true;
	return false;
}

static void ask_ticket(int session)
{
	struct session_msg msg = {.type = SESSION_FORK};
	struct ticket *ticket = &tickets[session];
	uint64_t deadline_ms = sys_now_ms() + FORK_PATIENCE_MS;
	int rc;

	/* A daemon on its way back: its keeper holds the socket, so the next one is waited for. */
	while ((rc = daemon_request(agent_socket(session), &msg, deadline_ms)) == -EPIPE &&
	       sys_now_ms() < deadline_ms) {
		msg = (struct session_msg){.type = SESSION_FORK};
		sys_pause_ms(RETRY_PAUSE_MS);
	}
	ticket->error = rc ? -rc : (int)msg.result;
	ticket->token[0] = msg.token[0];
	ticket->token[1] = msg.token[1];
	ticket->ranges = msg.segment;
}

/* Tickets, and a copy of the table. Takes the attach lock. */
static void take_stock(void)
{
	guard_enter(&own.guard);
	futex_lock(&attach_lock);
	for (int i = 0; i < AGENTS_MAX; i++) {
		futex_lock(&table.lock);
		tickets[i] = (struct ticket){.needed = has_ranges(i)};
		futex_unlock(&table.lock);
		if (tickets[i].needed)
			ask_ticket(i);
	}
	futex_lock(&table.lock);
	copy.n = table.ranges.n;
	memcpy(copy.at, table.ranges.at, copy.n * sizeof(copy.at[0]));
	futex_unlock(&table.lock);
}

static void stock_prepare(void)
{
	if (!watched || own.locked)
		return;
	take_stock();
	own.locked = true;
}

static void stock_in_parent(void)
{
	if (!own.locked)
		return;
	own.locked = false;
	futex_unlock(&attach_lock);
	guard_leave(&own.guard);
}

/* The table is as the child shall have it, before anybody looks. */
static void gate_in_child(void)
{
	fork_gate_reset();
	free_locks();
	/* Where we hold nothing, another thread may have been in its first attach. */
	table.ranges.n = own.locked ? copy.n : 0;
	memcpy(table.ranges.at, copy.at, table.ranges.n * sizeof(copy.at[0]));
}

/* The daemon's answer did not come, or makes no sense; or our agent's to the daemon. */
static bool unanswered(int code)
{
	return code == EPIPE || code == ETIMEDOUT || code == ESRCH || code == EPROTO;
}

/* One ADOPT: 0, or a positive errno and why. */
static int ask_adopt(int session, const uint64_t token[2], uint64_t deadline_ms,
		     struct agent_error *err)
{
	struct session_msg msg = {.type = SESSION_ADOPT, .token = {token[0], token[1]}};
	int rc = agent_start(session, err);

	if (rc)
		return -rc;
	rc = daemon_request(agent_socket(session), &msg, deadline_ms);
	if (rc)
		return -rc;
	memcpy(err->text, msg.text, sizeof(err->text));
	return (int)msg.result;
}

/*
 * A daemon that has died since it gave the token has forgotten it: the next one is asked without,
 * for what our parent has mapped.
 */
static int adopt(int session, struct agent_error *err)
{
	static const uint64_t parents[2] = {0, 0};
	const struct ticket *ticket = &tickets[session];
	uint64_t deadline_ms = sys_now_ms() + FORK_PATIENCE_MS;
	int code;

	if (ticket->error)
		return ticket->error;
	if (ticket->ranges == 0)
		return 0;
	code = ask_adopt(session, ticket->token, deadline_ms, err);
	if (code == EPERM)
		code = ask_adopt(session, parents, deadline_ms, err);
	while (code == EPIPE && sys_now_ms() < deadline_ms) {
		sys_pause_ms(RETRY_PAUSE_MS);
		fork_child_unmap(session);
		code = ask_adopt(session, parents, deadline_ms, err);
	}
	return code;
}

static void stock_in_child(void)
{
	struct agent_error err = {0};
	int code;

	if (!own.locked)
		return;
	own.locked = false;
	fork_child_forget_replaced();
	for (int i = 0; i < AGENTS_MAX; i++) {
		if (!tickets[i].needed)
			continue;
		err.text[0] = '\0';
		code = adopt(i, &err);
		if (code)
			say_line("rampfs: fork: the child lacks mappings: ",
				 err.text[0] ? err.text : strerrordesc_np(code), NULL);
		table_drop_pending();
		if (unanswered(code))
			fork_child_forget_all(i);
		else
			fork_child_forget_missing(i);
	}
	guard_leave(&own.guard);
}

void fork_init(void)
{
	fork_gate_init();
	pthread_atfork(fork_gate_begin_fork, fork_gate_end_fork, gate_in_child);
}

int fork_watch(void)
{
	if (!watched && pthread_atfork(stock_prepare, stock_in_parent, stock_in_child))
		return -ENOMEM;
	watched = true;
	return 0;
}
