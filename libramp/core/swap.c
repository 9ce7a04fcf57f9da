/*
 * Happy path: the range is claimed, the parts that the program has unmapped are filled with
 * placeholders, the scratch mapping is cut into parts of one protection each, and a bare thread
 * moves one part after the other (mremap) to its place. Then the program's changes of the meantime
 * are applied.
 *
 * How it fails: of a swap in parts the first ones may be in place; the daemon looks. A session that
 * hangs up leaves the swap to the next one (swap_finish).
 */
#include "swap.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "bare_thread.h"
#include "base/clock.h"
#include "fork_gate.h"
#include "sys.h"
#include "table.h"

/*
 * mremap of a registered range waits in the kernel until the daemon has read the event. If the
 * daemon dies first, the calling thread waits there for ever; were that the agent, no thread could
 * send the userfaultfd to the next daemon. So a bare thread does it, which lives for these calls
 * alone: it is not the C library's, runs on the agent's thread pointer and touches nothing of it.
 *
 * It begins at normal priority (SCHED_RESET_ON_FORK), and a busy machine would keep it from a processor for
 * milliseconds. So it owns a futex for which the agent waits at first, and the kernel lends it the agent's
 * priority. The futex has its number, 0 before that is known, or NO_OWNER when it is through.
 */
#define NO_OWNER      UINT32_C(1)
#define LEND_MS	      100u
#define LOCK_PI_CLOCK 13 /* FUTEX_LOCK_PI2: until a time of CLOCK_MONOTONIC. Linux 5.14 */

static void give_owner_up(struct agent_session *session)
{
	uint32_t owner = 0;

	if (atomic_compare_exchange_strong(&session->swap_owner, &owner, NO_OWNER))
		return;
	/* The agent waits, or is about to. */
	if (owner & FUTEX_WAITERS ||
	    !atomic_compare_exchange_strong(&session->swap_owner, &owner, 0))
		syscall(SYS_futex, &session->swap_owner, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0);
}

static int swap_thread(void *arg)
{
	struct agent_session *session = arg;
	uint64_t one = 1;

	session->swap_result = 0;
	for (uint32_t i = 0; i < session->swap_parts && session->swap_result >= 0; i++) {
		uint64_t done = session->swap_done, len = session->swap_ends[i] - done;

		session->swap_result =
			sys_mremap(session->swap_from + done, len, len,
				   MREMAP_MAYMOVE | MREMAP_FIXED, session->swap_to + done);
		if (session->swap_result >= 0)
			session->swap_done = session->swap_ends[i];
	}
	syscall(SYS_write, session->swap_event, &one, sizeof(one));
	give_owner_up(session);
	syscall(SYS_exit, 0);
	return 0;
}

/* Waits for that thread, LEND_MS at most: then the daemon's hanging up is to be noticed. Where the kernel lends
   nothing this does not wait. */
static void lend_priority(struct agent_session *session, int tid)
{
	uint64_t until_ms = clock_ms() + LEND_MS;
	struct timespec until = {.tv_sec = (time_t)(until_ms / 1000),
				 .tv_nsec = (long)(until_ms % 1000) * 1000000};
	uint32_t none = 0;

	if (atomic_compare_exchange_strong(&session->swap_owner, &none, (uint32_t)tid))
		syscall(SYS_futex, &session->swap_owner, LOCK_PI_CLOCK, 0, &until, NULL, 0);
}

static int swap_begin(struct agent_session *session, const struct session_msg *msg)
{
	int tid;

	session->swap_from = msg->scratch;
	session->swap_to = msg->addr;
	session->swap_len = msg->len;
	session->swap_event = eventfd(0, EFD_CLOEXEC);
	if (session->swap_event < 0)
		return errno;
	session->swap_alive = 1;
	session->swap_owner = 0;
	tid = bare_thread_begin(swap_thread, session, session->swap_stack + SWAP_STACK_BYTES,
				&session->swap_alive);
	if (tid < 0) {
		close(session->swap_event);
		return -tid;
	}
	session->swapping = true;
	lend_priority(session, tid);
	return 0;
}

/* Unmaps the parts where the program has nothing of ours mapped. Under table.lock. */
static void unmap_gaps(uint64_t at, uint64_t end)
{
	uint64_t gap_start, gap_end;

	while (ranges_gap(&table.ranges, at, end, &gap_start, &gap_end)) {
		sys_munmap(gap_start, gap_end - gap_start);
		at = gap_end;
	}
}

/*
 * Maps placeholders where the program has unmapped something, until the swap is over, so that the
 * swap destroys nothing that the program maps there. Returns -EAGAIN where the program has mapped
 * something there already. Reads the table only. No child gets a placeholder: the gate is blocked
 * once for all of them, because each wait may last.
 */
static int take_gaps(uint64_t start, uint64_t end)
{
	uint64_t at = start, gap_start, gap_end;
	int rc = 0;

	if (!ranges_gap(&table.ranges, at, end, &gap_start, &gap_end))
		return 0;
	fork_gate_block();
	while (!rc && ranges_gap(&table.ranges, at, end, &gap_start, &gap_end)) {
		long z = sys_mmap(gap_start, gap_end - gap_start, PROT_NONE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE,
				  -1, 0);

		at = z < 0 ? gap_start : gap_end;
		if (z < 0 || sys_madvise(gap_start, gap_end - gap_start, MADV_DONTFORK)) {
			unmap_gaps(start, at);
			rc = -EAGAIN;
		}
	}
	fork_gate_unblock();
	return rc;
}

/* Unmaps the placeholders of a range that was not swapped. */
static void give_gaps_back(uint64_t start, uint64_t end)
{
	bool locked = table_agent_lock();

	if (locked)
		unmap_gaps(start, end);
	table_agent_unlock(locked);
}

/* Applies the program's changes during the swap (munmap, mprotect) to a range that is in place. */
static void settle_range(uint64_t addr, uint64_t len, const struct scratch *scratch)
{
	bool locked = table_agent_lock();
	uint32_t first, last;

	if (!locked)
		return;
	unmap_gaps(addr, addr + len);
	table_pieces(addr, len, &first, &last);
	for (; first < last; first++) {
		struct range *r = &table.ranges.at[first];

		r->flags &= (uint8_t) ~(RANGE_GONE | RANGE_READONLY);
		if (scratch->readonly)
			r->flags |= RANGE_READONLY;
		if (r->prot != scratch->prot)
			sys_mprotect(r->addr, r->len, r->prot);
		if (r->flags & RANGE_NOHUGE)
			sys_madvise(r->addr, r->len, MADV_NOHUGEPAGE);
	}
	ranges_join(&table.ranges);
	table_agent_unlock(locked);
}

/* Waits for the bare thread. Returns false where the daemon hung up first. Where the program's
   seccomp forbids poll(2), that is not noticed. */
static bool swap_over(const struct agent_session *session)
{
	struct pollfd wait[2] = {{.fd = session->swap_event, .events = POLLIN},
				 {.fd = session->sock, .events = POLLRDHUP}};

	while (poll(wait, 2, -1) >= 0 || errno == EINTR) {
		if (wait[0].revents & POLLIN)
			return true;
		if (wait[1].revents)
			return false;
	}
	return true;
}

bool swap_finish(struct agent_session *session)
{
	struct scratch *scratch = scratch_find(session, session->swap_from);
	uint64_t done;

	if (!swap_over(session))
		return false;
	while (session->swap_alive)
		syscall(SYS_futex, &session->swap_alive, FUTEX_WAIT, 1, NULL, NULL, 0);
	session->swapping = false;
	close(session->swap_event);
	done = session->swap_done;
	if (scratch && done)
		settle_range(session->swap_to, done, scratch);
	if (session->swap_result < 0)
		give_gaps_back(session->swap_to + done, session->swap_to + session->swap_len);
	if (scratch)
		scratch_drop(scratch, done);
	table.swaps--;
	return true;
}

/* Ends a part: up to `end` the scratch mapping gets that protection, and is moved by itself. */
static void end_part(struct agent_session *session, const struct scratch *scratch, uint64_t end,
		     uint32_t prot)
{
	uint64_t start = session->swap_parts ? session->swap_ends[session->swap_parts - 1] : 0;

	if (prot != scratch->prot)
		sys_mprotect(scratch->at + start, end - start, (int)prot);
	session->swap_ends[session->swap_parts++] = end;
}

/*
 * Cuts the scratch mapping into parts of one protection each, so that a range whose protection the
 * program has changed since the daemon looked has the new protection as soon as it is in place. No
 * kernel before 6.17 moves more than one mapping at a time. The program changes no protection until
 * the swap is over (table_lock_settled). Under table.lock, or with a table that is only read. Where
 * there are more parts than there is room for, the last ones get their protection once they are in
 * place.
 */
static void plan_parts(struct agent_session *session, const struct scratch *scratch, uint64_t addr)
{
	uint64_t end = addr + scratch->len, at = addr;
	uint32_t prot = scratch->prot;

	session->swap_parts = 0;
	session->swap_done = 0;
	for (uint32_t i = ranges_first(&table.ranges, addr);
	     i < table.ranges.n && table.ranges.at[i].addr < end; i++) {
		const struct range *r = &table.ranges.at[i];

		if (r->prot == prot || session->swap_parts == SESSION_PARTS_MAX - 1)
			continue;
		if (r->addr > at)
			end_part(session, scratch, r->addr - addr, prot);
		at = r->addr > at ? r->addr : at;
		prot = r->prot;
	}
	end_part(session, scratch, scratch->len, prot);
}

/* Returns 1 where the program still has a part of the range mapped. That part belongs to this
   session from now on: a GONE from the node that had the segment in between comes too late.
   Returns 0: nothing is mapped; -EAGAIN: the program has something else there; -ENOMEM: the table
   is full. */
static int claim_range(struct agent_session *session, const struct scratch *scratch, uint64_t addr)
{
	bool locked = table_agent_lock();
	uint64_t len = scratch->len;
	uint32_t first, last;
	int rc = 1;

	if (locked) {
		rc = ranges_isolate(&table.ranges, addr, addr + len, &first, &last);
		rc = rc ? rc : first < last;
	}
	if (rc > 0 && take_gaps(addr, addr + len))
		rc = -EAGAIN;
	for (; locked && rc > 0 && first < last; first++)
		table.ranges.at[first].session = session->index;
	if (rc > 0) {
		plan_parts(session, scratch, addr);
		table.swaps++;
	}
	table_agent_unlock(locked);
	return rc;
}

int swap_run(struct agent_session *session, const struct session_msg *msg, bool *hung_up)
{
	struct scratch *scratch = scratch_find(session, msg->scratch);
	int rc;

	if (!scratch || msg->scratch == 0 || scratch->len != msg->len)
		return EINVAL;
	rc = claim_range(session, scratch, msg->addr);
	if (rc <= 0) {
		scratch_drop(scratch, 0);
		return -rc;
	}
	rc = swap_begin(session, msg);
	if (rc) {
		give_gaps_back(msg->addr, msg->addr + msg->len);
		scratch_drop(scratch, 0);
		table.swaps--;
		return rc;
	}
	if (!swap_finish(session)) {
		*hung_up = true;
		return 0;
	}
	return session->swap_result < 0 ? (int)-session->swap_result : 0;
}
