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
 * start (only mremap(2) hands it on). A child of that moment would keep a part of the segment for
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
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent.h"
#include "attach.h"
#include "base/ids.h"
#include "sys.h"
#include "table.h"

#define FORK_PATIENCE_MS 5000
#define RETRY_PAUSE_MS	 5
#define GATE_PATIENCE_MS 1000
#define ONE_FORK	 1u
#define ALL_FORKS	 0xffffu
#define ONE_AGENT	 0x10000u
#define ALL_AGENTS	 0xffff0000u

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

/* Of the forking thread: other threads may fork at the same time, before the first attach. */
static __thread struct {
	struct shim_guard guard;
	bool locked; /* prepare took the attach lock */
} own __attribute__((tls_model("initial-exec")));

/* ---- the gate: forks under way, or agents with a mapping that a child would get ----------------
 */

/* What a child with a memory of its own finds all zero, however it was made. */
struct unforked {
	_Atomic uint32_t gate; /* how many of either, in its two halves */
	_Atomic pid_t owner;   /* whose memory it is */
};

/* Until there is such a page, and where there is none: a child finds its parent's. */
static struct unforked first_unforked;
static struct unforked *unforked = &first_unforked;

static void make_unforked(void)
{
	long at = shim_mmap(0, RAMP_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);

	if (at < 0)
		return;
	if (shim_madvise((uint64_t)at, RAMP_PAGE_BYTES, MADV_WIPEONFORK))
		shim_munmap((uint64_t)at, RAMP_PAGE_BYTES);
	else
		unforked = (struct unforked *)at;
	unforked->owner = getpid();
}

/* False: the time is over. */
static bool gate_wait(uint32_t seen, uint64_t end_ms)
{
	uint64_t now_ms = shim_now_ms();

	if (now_ms >= end_ms)
		return false;
	shim_futex_wait(&unforked->gate, seen, (uint32_t)(end_ms - now_ms));
	return true;
}

static void gate_leave(uint32_t one)
{
	atomic_fetch_sub(&unforked->gate, one);
	shim_futex_wake(&unforked->gate);
}

void fork_begin(void)
{
	uint64_t end_ms = shim_now_ms() + GATE_PATIENCE_MS;
	uint32_t seen = unforked->gate;

	do
		while ((seen & ALL_AGENTS) && gate_wait(seen, end_ms))
			seen = unforked->gate;
	while (!atomic_compare_exchange_strong(&unforked->gate, &seen, seen + ONE_FORK));
}

void fork_end(void)
{
	gate_leave(ONE_FORK);
}

/* Forks that come later wait: there may always be one under way. */
void fork_shut_out(void)
{
	uint64_t end_ms = shim_now_ms() + GATE_PATIENCE_MS;
	uint32_t seen = atomic_fetch_add(&unforked->gate, ONE_AGENT);

	while ((seen & ALL_FORKS) && gate_wait(seen, end_ms))
		seen = unforked->gate;
}

void fork_let_in(void)
{
	gate_leave(ONE_AGENT);
}

/* ---- whose memory is this? ----------------------------------------------------------------------
 */

/* In a child: whoever else held these is not here. */
static void let_go(void)
{
	table.lock.word = 0;
	attach_lock.word = 0;
	table.swaps = 0;
	agents_reset();
}

bool fork_settle(void)
{
	pid_t self = getpid(), none = 0;

	if (unforked == &first_unforked || unforked->owner == self)
		return true;
	if (!atomic_compare_exchange_strong(&unforked->owner, &none, self))
		return false;
	let_go();
	table.ranges.n = 0;
	return true;
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
	uint64_t deadline_ms = shim_now_ms() + FORK_PATIENCE_MS;
	int rc;

	/* A daemon on its way back: its keeper holds the socket, so the next one is waited for. */
	while ((rc = attach_ask(agent_socket(session), &msg, deadline_ms)) == -EPIPE &&
	       shim_now_ms() < deadline_ms) {
		msg = (struct session_msg){.type = SESSION_FORK};
		shim_pause_ms(RETRY_PAUSE_MS);
	}
	ticket->error = rc ? -rc : (int)msg.result;
	ticket->token[0] = msg.token[0];
	ticket->token[1] = msg.token[1];
	ticket->ranges = msg.segment;
}

/* Tickets, and a copy of the table. Takes the attach lock. */
static void take_stock(void)
{
	shim_enter(&own.guard);
	shim_lock(&attach_lock);
	for (int i = 0; i < AGENTS_MAX; i++) {
		shim_lock(&table.lock);
		tickets[i] = (struct ticket){.needed = has_ranges(i)};
		shim_unlock(&table.lock);
		if (tickets[i].needed)
			ask_ticket(i);
	}
	shim_lock(&table.lock);
	copy.n = table.ranges.n;
	memcpy(copy.at, table.ranges.at, copy.n * sizeof(copy.at[0]));
	shim_unlock(&table.lock);
}

static void stock_prepare(void)
{
	if (!attach_used || own.locked)
		return;
	take_stock();
	own.locked = true;
}

static void stock_in_parent(void)
{
	if (!own.locked)
		return;
	own.locked = false;
	shim_unlock(&attach_lock);
	shim_leave(&own.guard);
}

/* The table is as the child shall have it, before anybody looks. */
static void gate_in_child(void)
{
	unforked->gate = 0;
	unforked->owner = getpid();
	let_go();
	/* Where we hold nothing, another thread may have been in its first attach. */
	table.ranges.n = own.locked ? copy.n : 0;
	memcpy(table.ranges.at, copy.at, table.ranges.n * sizeof(copy.at[0]));
}

/* All of it is mapped, and gets what it had in the parent at last. */
static bool is_there(const struct range *r)
{
	if (shim_madvise(r->addr, r->len, MADV_DONTFORK))
		return false;
	if (r->flags & RANGE_NOHUGE)
		shim_madvise(r->addr, r->len, MADV_NOHUGEPAGE);
	shim_mprotect(r->addr, r->len, r->prot);
	return true;
}

/* Nothing of it is mapped, as far as the kernel says. */
static bool is_free(uint64_t start, uint64_t len)
{
	long at =
		shim_mmap(start, len, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

	if (at >= 0)
		shim_munmap(start, len);
	return at != -EEXIST;
}

/* All of it is mapped. Changes nothing. */
static bool is_full(uint64_t start, uint64_t end)
{
	return !shim_msync(start, end - start, MS_ASYNC);
}

/* Nothing of a segment is there yet: what is mapped is the program's own, and stays. */
static void forget_taken(uint64_t start, uint64_t end)
{
	uint64_t half = start + (end - start) / 2 / RAMP_PAGE_BYTES * RAMP_PAGE_BYTES;
	uint32_t first, last;

	if (is_free(start, end - start))
		return;
	if (half > start && !is_full(start, end)) {
		forget_taken(start, half);
		forget_taken(half, end);
		return;
	}
	/* Where the table is full, the child lacks more. */
	if (ranges_isolate(&table.ranges, start, end, &first, &last))
		first = ranges_first(&table.ranges, start);
	while (first < table.ranges.n && table.ranges.at[first].addr < end)
		ranges_remove(&table.ranges, first);
}

/* Neighbours are looked at as one. */
static void forget_all_taken(void)
{
	uint64_t start, end = 0;
	uint32_t i;

	shim_lock(&table.lock);
	while ((i = ranges_first(&table.ranges, end)) < table.ranges.n) {
		start = end = table.ranges.at[i].addr;
		for (; i < table.ranges.n && table.ranges.at[i].addr == end; i++)
			end += table.ranges.at[i].len;
		forget_taken(start, end);
	}
	shim_unlock(&table.lock);
}

/* What is not mapped after all is none of ours; where that is a part of a range, that part. */
static void forget_missing(int session)
{
	uint32_t ignored;

	shim_lock(&table.lock);
	for (uint32_t i = 0; i < table.ranges.n;) {
		const struct range *r = &table.ranges.at[i];
		uint64_t pages = r->len / RAMP_PAGE_BYTES;
		uint64_t half = r->addr + pages / 2 * RAMP_PAGE_BYTES;

		if (r->session != session || is_there(r))
			i++;
		else if (pages == 1 || is_free(r->addr, r->len) ||
			 ranges_isolate(&table.ranges, r->addr, half, &ignored, &ignored))
			ranges_remove(&table.ranges, i);
	}
	ranges_join(&table.ranges);
	shim_unlock(&table.lock);
}

/* What a daemon that died had us map already. */
static void unmap_all(int session)
{
	for (uint32_t i = 0; i < table.ranges.n; i++)
		if (table.ranges.at[i].session == session)
			shim_munmap(table.ranges.at[i].addr, table.ranges.at[i].len);
}

/* Nobody has said that it is all as it should be: a range may be mapped and not watched yet, and what
   is missing there would read as zeros. One that is mapped only afterwards is pending (commands.c),
   and gets no access. */
static void forget_all(int session)
{
	shim_lock(&table.lock);
	unmap_all(session);
	for (uint32_t i = 0; i < table.ranges.n;)
		if (table.ranges.at[i].session == session)
			ranges_remove(&table.ranges, i);
		else
			i++;
	shim_unlock(&table.lock);
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
	rc = attach_ask(agent_socket(session), &msg, deadline_ms);
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
	uint64_t deadline_ms = shim_now_ms() + FORK_PATIENCE_MS;
	int code;

	if (ticket->error)
		return ticket->error;
	if (ticket->ranges == 0)
		return 0;
	code = ask_adopt(session, ticket->token, deadline_ms, err);
	if (code == EPERM)
		code = ask_adopt(session, parents, deadline_ms, err);
	while (code == EPIPE && shim_now_ms() < deadline_ms) {
		shim_pause_ms(RETRY_PAUSE_MS);
		unmap_all(session);
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
	forget_all_taken();
	for (int i = 0; i < AGENTS_MAX; i++) {
		if (!tickets[i].needed)
			continue;
		err.text[0] = '\0';
		code = adopt(i, &err);
		if (code)
			shim_say("rampfs: fork: the child lacks mappings: ",
				 err.text[0] ? err.text : strerrordesc_np(code), NULL);
		attach_drop_pending();
		if (unanswered(code))
			forget_all(i);
		else
			forget_missing(i);
	}
	shim_leave(&own.guard);
}

void fork_init(void)
{
	make_unforked();
	pthread_atfork(fork_begin, fork_end, gate_in_child);
}

int fork_watch(void)
{
	static bool watched; /* the attach lock */

	if (!watched && pthread_atfork(stock_prepare, stock_in_parent, stock_in_child))
		return -ENOMEM;
	watched = true;
	return 0;
}
