/*
 * The fork of a process that has segments mapped.
 *
 * Happy path: the mappings are MADV_DONTFORK, so the child has none of them, and none of the
 * agents. Before the fork the parent asks each daemon for a token for its mappings there, and
 * takes a copy of the table, because the table itself may be in the middle of a change when the
 * child is made. The child starts agents of its own, and each daemon, given its token, has them map
 * everything again. Only attach_lock is held over the fork: no agent waits for it, and other
 * libraries' handlers may call our wrappers meanwhile.
 *
 * A mapping becomes MADV_DONTFORK shortly after it was made; no call makes one that is so from the
 * start (only mremap(2) hands it on). A child made in between would keep a part of the segment for
 * its life, and nothing could take it away: so agents and forks exclude each other (fork_gate.h).
 * Of the ways to make a child, clone(2) and _Fork(3) run no handlers; they are wrapped for this.
 *
 * There are two sets of handlers. Handlers of another library take that library's locks, and our
 * work for the child may need these: starting an agent allocates. The set that asks the daemons,
 * holds attach_lock and starts agents is registered at the first attach. So of all handlers that
 * the program has by then its prepare runs first and its child handler last; an allocator's locks
 * are free at both. The other set is registered when the program begins and keeps the gate alone.
 *
 * Other threads of the parent continue meanwhile. The child applies their changes (munmap,
 * mprotect) between the token and the copy when it has its mappings: the copy counts. Mappings that
 * they have put in the place of a segment until the fork are in the child, too, and nothing of the
 * segment there.
 *
 * A child made in another way begins without anything: it recognises itself by a page that forks
 * wipe. A child that shares its parent's memory maps no segment: its agent would end with it, and
 * the mapping would remain.
 *
 * How it fails: no token, or no answer in the child within 5 s: the child continues without these
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
#include "base/clock.h"
#include "daemon_request.h"
#include "fork_child.h"
#include "fork_gate.h"
#include "guard.h"
#include "libc_parts.h"
#include "say.h"
#include "sys.h"
#include "table.h"

#define FORK_PATIENCE_MS 5000
#define RETRY_PAUSE_MS	 5

/* One daemon's answer to FORK. */
struct ticket {
	uint64_t token[2];
	uint64_t ranges; /* how many the token covers */
	bool needed;	 /* the table has ranges of that daemon */
	int error;	 /* positive errno: no token */
};

/* Between prepare and the end of the fork; protected by attach_lock. */
static struct ticket tickets[AGENTS_MAX];
static struct ranges copy;

/* The handlers that take tickets are registered: a segment was asked for. Before that, forks have
   nothing to do with us. Written under attach_lock. */
static _Atomic bool watched;

/* Of the forking thread: before the first attach, other threads may fork at the same time. */
static __thread struct {
	struct signal_guard guard;
	bool locked; /* prepare took attach_lock */
} own __attribute__((tls_model("initial-exec")));

/* ---- a child at its first call ---- */

/* In a child: frees the locks of threads that the child does not have. */
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

/* ---- the handlers ---- */

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
	uint64_t deadline_ms = clock_ms() + FORK_PATIENCE_MS;
	int rc;

	/* A daemon on its way back: its keeper holds the socket, so the next daemon is waited
	   for. */
	while ((rc = daemon_request(agent_socket(session), &msg, deadline_ms)) == -EPIPE &&
	       clock_ms() < deadline_ms) {
		msg = (struct session_msg){.type = SESSION_FORK};
		sys_pause_ms(RETRY_PAUSE_MS);
	}
	ticket->error = rc ? -rc : (int)msg.result;
	ticket->token[0] = msg.token[0];
	ticket->token[1] = msg.token[1];
	ticket->ranges = msg.segment;
}

/* Takes attach_lock, a ticket of each daemon, and a copy of the table. */
static void take_tickets(void)
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

static void ticket_prepare(void)
{
	if (!watched || own.locked)
		return;
	take_tickets();
	own.locked = true;
}

static void ticket_in_parent(void)
{
	if (!own.locked)
		return;
	own.locked = false;
	futex_unlock(&attach_lock);
	guard_leave(&own.guard);
}

/* Gives the child its table, before any other code reads it. */
static void gate_in_child(void)
{
	fork_gate_reset();
	free_locks();
	/* Where this thread holds nothing, another thread may have been in its first attach. */
	table.ranges.n = own.locked ? copy.n : 0;
	memcpy(table.ranges.at, copy.at, table.ranges.n * sizeof(copy.at[0]));
}

/* Whether the daemon's answer did not come or makes no sense, or the agent's answer to the
   daemon. */
static bool unanswered(int code)
{
	return code == EPIPE || code == ETIMEDOUT || code == ESRCH || code == EPROTO;
}

/* Asks for one ADOPT. Returns 0, or a positive errno and the reason. */
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
 * Gets the child's mappings from one daemon. Returns 0 or a positive errno. A daemon that has died
 * since it gave the token takes the token with it: the next daemon is asked without one, for our
 * parent's mappings.
 */
static int adopt(int session, struct agent_error *err)
{
	static const uint64_t parents[2] = {0, 0};
	const struct ticket *ticket = &tickets[session];
	uint64_t deadline_ms = clock_ms() + FORK_PATIENCE_MS;
	int code;

	if (ticket->error)
		return ticket->error;
	if (ticket->ranges == 0)
		return 0;
	code = ask_adopt(session, ticket->token, deadline_ms, err);
	if (code == EPERM)
		code = ask_adopt(session, parents, deadline_ms, err);
	while (code == EPIPE && clock_ms() < deadline_ms) {
		sys_pause_ms(RETRY_PAUSE_MS);
		fork_child_unmap(session);
		code = ask_adopt(session, parents, deadline_ms, err);
	}
	return code;
}

static void ticket_in_child(void)
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
				 err.text[0] ? err.text : errno_text(code), NULL);
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
	register_fork_handlers(fork_gate_begin_fork, fork_gate_end_fork, gate_in_child);
}

int fork_watch(void)
{
	if (!watched && register_fork_handlers(ticket_prepare, ticket_in_parent, ticket_in_child))
		return -ENOMEM;
	watched = true;
	return 0;
}
