/*
 * The daemon's commands: system calls on the process's mappings, and the changes of the table that
 * go with them.
 *
 * Happy path: MAP and PROTECT attach a range; MOVE takes its page tables away for a while (away.c), or
 * DROP their entries, where a mapping refuses that or the daemon is an older one; GONE puts an empty file in its place, BACK maps the segment somewhere else (replace.c), and SWAP
 * puts that in place (swap.c).
 *
 * How it fails: a command's errno goes to the daemon, and nothing is half done, except that of a
 * SWAP in parts the first ones may be in place: the daemon looks. The program's changes meanwhile
 * count: DROP, GONE and SWAP leave out the parts that it has unmapped, and GONE and SWAP set the
 * protection that it has set. SWAP is EAGAIN where the program has put something of its own in
 * between. The table's lock is waited for a second at most (agent.c says why).
 */
#include "commands.h"

#include <errno.h>
#include <sys/mman.h>

#include "away.h"
#include "base/kernel.h"
#include "fork_gate.h"
#include "replace.h"
#include "say.h"
#include "swap.h"
#include "sys.h"
#include "table.h"

#define ASKED_PATIENCE_MS 100
#define DROP_PATIENCE_MS  5

/* ---- the commands: each returns 0 or a positive errno ---- */

/* Unmaps mappings that are in the way and no longer used: the rest of an attach that its daemon did
   not live to finish, or of a segment that has gone and is now mapped through another node. */
static void clear_leftovers(const struct agent_session *session, uint64_t addr, uint64_t len)
{
	uint32_t i, last;

	table_pieces(addr, len, &i, &last);
	for (uint32_t left = last - i; left; left--) {
		const struct range *r = &table.ranges.at[i];

		if ((r->flags & RANGE_PENDING) ||
		    ((r->flags & RANGE_GONE) && r->session != session->index)) {
			sys_munmap(r->addr, r->len);
			ranges_remove(&table.ranges, i);
		} else {
			i++;
		}
	}
}

static int map_file(const struct session_msg *msg, int fd)
{
	long at = fork_gate_mmap(msg->addr, msg->len, PROT_NONE,
				 segment_map_type(msg) | MAP_FIXED_NOREPLACE, fd, msg->offset);

	if (at < 0)
		return (int)at;
	if (msg->flags & SESSION_NOHUGE)
		sys_madvise(msg->addr, msg->len, MADV_NOHUGEPAGE);
	return 0;
}

/*
 * Enters a range that has been mapped. A part that the table does not have is pending until its
 * attach has ended. In a fork's child the table has the range already, as it was in the parent: a
 * part that was gone there has come back since, and a part that is missing has been unmapped since
 * (fork.c).
 */
static int note_mapped(const struct range *range)
{
	uint64_t end = range->addr + range->len, start, stop;
	struct range gap = *range;
	uint32_t i, last;
	int rc;

	table_pieces(range->addr, range->len, &i, &last);
	for (; i < last; i++)
		table.ranges.at[i].flags &= (uint8_t)~RANGE_GONE;
	ranges_join_near(&table.ranges, range->addr, end);
	while (ranges_gap(&table.ranges, range->addr, end, &start, &stop)) {
		gap.addr = start;
		gap.len = stop - start;
		rc = table_add(&gap);
		if (rc)
			return rc;
	}
	return 0;
}

static int do_map(struct agent_session *session, const struct session_msg *msg, int fd)
{
	struct range range = {
		.addr = msg->addr,
		.len = msg->len,
		.segment = msg->segment,
		.extent = msg->addr - msg->offset,
		.count = 1,
		.prot = (uint8_t)msg->prot,
		.session = session->index,
		.flags = RANGE_PENDING | (msg->flags & SESSION_PRIVATE ? RANGE_READONLY : 0),
	};
	bool locked;
	int rc;

	if (fd < 0)
		return EINVAL;
	rc = replace_read_second(session, msg);
	if (rc)
		return rc;
	locked = table_agent_lock();
	if (!locked)
		return EDEADLK;
	clear_leftovers(session, msg->addr, msg->len);
	rc = map_file(msg, fd);
	if (rc == 0) {
		rc = note_mapped(&range);
		if (rc) {
			sys_munmap(msg->addr, msg->len);
			clear_leftovers(session, msg->addr, msg->len);
		}
	}
	table_agent_unlock(locked);
	return -rc;
}

/* Also frees the entry of a scratch mapping: a later mapping of the program there is not ours to
   unmap. */
static int do_unmap(struct agent_session *session, const struct session_msg *msg)
{
	struct scratch *scratch = scratch_find(session, msg->addr);
	bool locked = table_agent_lock();
	uint32_t first, last;
	int rc;

	if (locked) {
		table_pieces(msg->addr, msg->len, &first, &last);
		for (; first < last; last--)
			ranges_remove(&table.ranges, first);
	}
	rc = sys_munmap(msg->addr, msg->len);
	if (rc == 0 && scratch)
		*scratch = (struct scratch){0};
	table_agent_unlock(locked);
	return -rc;
}

/* Whether the mapping in which that page lies is sealed: an mremap(2) that changes nothing
   tells. */
static bool is_sealed(uint64_t addr)
{
	return sys_mremap(addr, RAMP_PAGE_BYTES, RAMP_PAGE_BYTES, 0, 0) == -EPERM;
}

/* Answers a DROP without ranges. EPERM: a range is sealed (mseal(2)), and nothing can be put in its
   place. Without the lock that can't be known, and the answer is 0. */
static int may_leave(const struct agent_session *session, const struct session_msg *msg)
{
	bool locked = futex_lock_for(&table.lock, ASKED_PATIENCE_MS), sealed = false;

	for (uint32_t i = 0; locked && !sealed && i < table.ranges.n; i++) {
		const struct range *r = &table.ranges.at[i];

		if (r->segment == msg->segment && r->session == session->index &&
		    !(r->flags & (RANGE_GONE | RANGE_PENDING)))
			sealed =
				is_sealed(r->addr) || is_sealed(r->addr + r->len - RAMP_PAGE_BYTES);
	}
	table_agent_unlock(locked);
	return sealed ? EPERM : 0;
}

/* Takes away the page-table entries. Returns 0 or a positive errno. */
static int drop_entries(uint64_t addr, uint64_t len)
{
	int rc = sys_madvise(addr, len, MADV_DONTNEED_LOCKED);

	if (rc == -EINVAL)
		rc = sys_madvise(addr, len, MADV_DONTNEED);
	return rc == -ENOMEM ? 0 : -rc;
}

/* Drops only the ranges of the segment that the table has, neighbours in one call. The daemon
   may have looked before the program put something of its own there, of which there is no
   other copy. */
static int drop_ours(const struct agent_session *session, const struct session_msg *msg,
		     uint64_t at, uint64_t end)
{
	uint64_t start = at;
	int rc = 0;

	for (uint32_t i = ranges_first(&table.ranges, at);
	     !rc && i < table.ranges.n && table.ranges.at[i].addr < end; i++) {
		const struct range *r = &table.ranges.at[i];

		if (r->segment != msg->segment || r->session != session->index)
			continue;
		if (r->addr > at) {
			rc = start < at ? drop_entries(start, at - start) : 0;
			start = r->addr;
		}
		at = r->addr + r->len < end ? r->addr + r->len : end;
	}
	return !rc && start < at ? drop_entries(start, at - start) : rc;
}

/* This runs in the window of a transfer, so it waits 5 ms at most for the lock. A range that is
   read wrong without the lock lies in the daemon's ranges all the same; of a range that is left out
   the daemon finds the page-table entries (verify). A DROP without ranges is a question that the
   daemon asks before the window. */
static int do_drop(const struct agent_session *session, const struct session_msg *msg)
{
	bool locked;
	int rc = 0;

	if (msg->count == 0)
		return may_leave(session, msg);
	locked = futex_lock_for(&table.lock, DROP_PATIENCE_MS);
	for (uint32_t i = 0; i < msg->count && !rc; i++)
		rc = drop_ours(session, msg, msg->ranges[i].addr,
			       msg->ranges[i].addr + msg->ranges[i].len);
	table_agent_unlock(locked);
	return rc;
}

/* Moves the page tables that can be moved, and drops the entries of what is left. Without the lock,
   which a thread of the program may hold that is just changing these mappings, all is dropped. */
static int do_move(struct agent_session *session, const struct session_msg *msg)
{
	bool locked = futex_lock_for(&table.lock, DROP_PATIENCE_MS);
	int rc = 0;

	if (locked)
		away_move(session, msg);
	for (uint32_t i = 0; i < msg->count && !rc; i++) {
		uint64_t at = msg->ranges[i].addr, end = at + msg->ranges[i].len, to;

		for (; !rc && away_gap(session, msg->segment, at, end, &at, &to); at = to)
			rc = drop_ours(session, msg, at, to);
	}
	table_agent_unlock(locked);
	return rc;
}

int command_run(struct agent_session *session, const struct session_msg *msg, int fd,
		struct session_msg *done, bool *hung_up)
{
	switch (msg->type) {
	case SESSION_MAP:
		return do_map(session, msg, fd);
	case SESSION_PROTECT:
		return -sys_mprotect(msg->addr, msg->len, (int)msg->prot);
	case SESSION_UNMAP:
		return do_unmap(session, msg);
	case SESSION_DROP:
		return do_drop(session, msg);
	case SESSION_RESERVE:
		return away_reserve(session, msg);
	case SESSION_MOVE:
		return do_move(session, msg);
	case SESSION_RETURN:
		return away_return(session, msg);
	case SESSION_GONE:
		return replace_gone(session, msg, fd);
	case SESSION_BACK:
		return replace_back(session, msg, fd, &done->addr);
	case SESSION_SWAP:
		return swap_run(session, msg, hung_up);
	case SESSION_SAY:
		say_agent_line(msg->text, NULL);
		return 0;
	default:
		return EPROTO;
	}
}
