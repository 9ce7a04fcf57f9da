/*
 * Carrying out the daemon's commands in this process: system calls on its mappings, and the table
 * that goes with them.
 *
 * Happy path: MAP and PROTECT attach a range; DROP takes it away for a while; GONE puts an empty
 * file in its place, BACK maps the segment somewhere else, and SWAP puts that in place.
 *
 * How it fails: a command's errno goes to the daemon, and nothing is half done, but that of a SWAP
 * in parts the first ones may be in place: the daemon looks. What the program did meanwhile, it
 * knows better: DROP, GONE and SWAP leave out what it has unmapped, and the latter set the
 * protection that it has set; SWAP is EAGAIN where it has put something of its own in between. For
 * the lock see agent.c: it is waited for a second at most.
 */
#include "commands.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/kernel.h"
#include "fork.h"
#include "sys.h"
#include "table.h"

#define LOCK_PATIENCE_MS  1000
#define ASKED_PATIENCE_MS 100
#define DROP_PATIENCE_MS  5

/* Whether the lock could be had in time. Without it, the table is only read: a thread that holds it
   for so long is blocked on its own stack in a segment, or stopped by a debugger. */
static bool lock_table(void)
{
	return shim_lock_for(&table.lock, LOCK_PATIENCE_MS);
}

static void unlock_table(bool locked)
{
	if (locked)
		shim_unlock(&table.lock);
}

/* The table's pieces inside [addr, addr + len); nothing where the table is full. */
static void pieces_of(uint64_t addr, uint64_t len, uint32_t *first, uint32_t *last)
{
	if (ranges_isolate(&table.ranges, addr, addr + len, first, last))
		*first = *last = 0;
}

/* Where the table is full, also those of which a part lies there. */
static void pieces_at(uint64_t addr, uint64_t len, uint32_t *first, uint32_t *last)
{
	if (ranges_isolate(&table.ranges, addr, addr + len, first, last) == 0)
		return;
	*first = *last = ranges_first(&table.ranges, addr);
	while (*last < table.ranges.n && table.ranges.at[*last].addr < addr + len)
		++*last;
}

/* ---- the commands: a positive errno, or 0 -----------------------------------------------------
 */

/* What stands in the way and is nobody's any more: an attach that its daemon did not live to
   finish, or what is left of a segment that has gone and is now mapped through another node. */
static void clear_leftovers(const struct hands *hands, uint64_t addr, uint64_t len)
{
	uint32_t i, last;

	pieces_of(addr, len, &i, &last);
	for (uint32_t left = last - i; left; left--) {
		const struct range *r = &table.ranges.at[i];

		if ((r->flags & RANGE_PENDING) ||
		    ((r->flags & RANGE_GONE) && r->session != hands->session)) {
			shim_munmap(r->addr, r->len);
			ranges_remove(&table.ranges, i);
		} else {
			i++;
		}
	}
}

/* mmap(2) of something that no child gets. */
static long map_unforked(uint64_t addr, uint64_t len, int prot, int flags, int fd, uint64_t offset)
{
	long at;
	int rc = 0;

	fork_shut_out();
	at = shim_mmap(addr, len, prot, flags, fd, offset);
	if (at >= 0)
		rc = shim_madvise((uint64_t)at, len, MADV_DONTFORK);
	fork_let_in();
	if (rc)
		shim_munmap((uint64_t)at, len);
	return rc ? rc : at;
}

static int map_type(const struct session_msg *msg)
{
	return msg->flags & SESSION_PRIVATE ? MAP_PRIVATE | MAP_NORESERVE : MAP_SHARED;
}

static int map_file(const struct session_msg *msg, int fd)
{
	long at = map_unforked(msg->addr, msg->len, PROT_NONE, map_type(msg) | MAP_FIXED_NOREPLACE,
			       fd, msg->offset);

	if (at < 0)
		return (int)at;
	if (msg->flags & SESSION_NOHUGE)
		shim_madvise(msg->addr, msg->len, MADV_NOHUGEPAGE);
	return 0;
}

/*
 * What the table does not have is pending until its attach has ended. In a fork's child it has the
 * range already, as it was in the parent: where that was gone it has come back since, and what is
 * missing has been unmapped since (fork.c).
 */
static int note_mapped(const struct range *range)
{
	uint64_t end = range->addr + range->len, start, stop;
	struct range gap = *range;
	uint32_t i, last;
	int rc;

	pieces_of(range->addr, range->len, &i, &last);
	for (; i < last; i++)
		table.ranges.at[i].flags &= (uint8_t)~RANGE_GONE;
	ranges_join(&table.ranges);
	while (ranges_gap(&table.ranges, range->addr, end, &start, &stop)) {
		gap.addr = start;
		gap.len = stop - start;
		rc = table_add(&gap);
		if (rc)
			return rc;
	}
	return 0;
}

static int do_map(struct hands *hands, const struct session_msg *msg, int fd)
{
	struct range range = {
		.addr = msg->addr,
		.len = msg->len,
		.segment = msg->segment,
		.extent = msg->addr - msg->offset,
		.count = 1,
		.prot = (uint8_t)msg->prot,
		.session = hands->session,
		.flags = RANGE_PENDING | (msg->flags & SESSION_PRIVATE ? RANGE_READONLY : 0),
	};
	bool locked;
	int rc;

	if (fd < 0)
		return EINVAL;
	locked = lock_table();
	if (!locked)
		return EDEADLK;
	clear_leftovers(hands, msg->addr, msg->len);
	rc = map_file(msg, fd);
	if (rc == 0) {
		rc = note_mapped(&range);
		if (rc) {
			shim_munmap(msg->addr, msg->len);
			clear_leftovers(hands, msg->addr, msg->len);
		}
	}
	unlock_table(locked);
	return -rc;
}

static struct scratch *find_scratch(struct hands *hands, uint64_t at)
{
	for (int i = 0; i < SCRATCH_MAX; i++)
		if (hands->scratch[i].at == at)
			return &hands->scratch[i];
	return NULL;
}

/* The first bytes of it may have been put in place: they are somebody else's addresses by now. */
static void drop_scratch(struct scratch *scratch, uint64_t done)
{
	if (done < scratch->len)
		shim_munmap(scratch->at + done, scratch->len - done);
	*scratch = (struct scratch){0};
}

/* A scratch mapping, too: what the program maps there later is not ours to unmap. */
static int do_unmap(struct hands *hands, const struct session_msg *msg)
{
	struct scratch *scratch = find_scratch(hands, msg->addr);
	bool locked = lock_table();
	uint32_t first, last;
	int rc;

	if (locked) {
		pieces_of(msg->addr, msg->len, &first, &last);
		for (; first < last; last--)
			ranges_remove(&table.ranges, first);
	}
	rc = shim_munmap(msg->addr, msg->len);
	if (rc == 0 && scratch)
		*scratch = (struct scratch){0};
	unlock_table(locked);
	return -rc;
}

/* An mremap(2) that changes nothing says so of the mapping in which that page lies. */
static bool is_sealed(uint64_t addr)
{
	return shim_mremap(addr, RAMP_PAGE_BYTES, RAMP_PAGE_BYTES, 0, 0) == -EPERM;
}

/* Nothing can be put in the place of what is sealed (mseal(2)). Nobody knows without the lock. */
static int may_leave(const struct hands *hands, const struct session_msg *msg)
{
	bool locked = shim_lock_for(&table.lock, ASKED_PATIENCE_MS), sealed = false;

	for (uint32_t i = 0; locked && !sealed && i < table.ranges.n; i++) {
		const struct range *r = &table.ranges.at[i];

		if (r->segment == msg->segment && r->session == hands->session &&
		    !(r->flags & (RANGE_GONE | RANGE_PENDING)))
			sealed =
				is_sealed(r->addr) || is_sealed(r->addr + r->len - RAMP_PAGE_BYTES);
	}
	unlock_table(locked);
	return sealed ? EPERM : 0;
}

/* Positive errno. */
static int drop(uint64_t addr, uint64_t len)
{
	int rc = shim_madvise(addr, len, MADV_DONTNEED_LOCKED);

	if (rc == -EINVAL)
		rc = shim_madvise(addr, len, MADV_DONTNEED);
	return rc == -ENOMEM ? 0 : -rc;
}

/* The daemon's look may be older than what the program has put there of its own, whose bytes are
   nowhere else: so what the table has of the segment, neighbours in one call. */
static int drop_ours(const struct hands *hands, const struct session_msg *msg, uint64_t at,
		     uint64_t end)
{
	uint64_t start = at;
	int rc = 0;

	for (uint32_t i = ranges_first(&table.ranges, at);
	     !rc && i < table.ranges.n && table.ranges.at[i].addr < end; i++) {
		const struct range *r = &table.ranges.at[i];

		if (r->segment != msg->segment || r->session != hands->session)
			continue;
		if (r->addr > at) {
			rc = start < at ? drop(start, at - start) : 0;
			start = r->addr;
		}
		at = r->addr + r->len < end ? r->addr + r->len : end;
	}
	return !rc && start < at ? drop(start, at - start) : rc;
}

/* In the window: hardly any patience. What is read wrong without the lock lies in the daemon's ranges
   all the same, and of what is left out it finds the entries (verify). Without ranges: a question,
   before. */
static int do_drop(const struct hands *hands, const struct session_msg *msg)
{
	bool locked;
	int rc = 0;

	if (msg->count == 0)
		return may_leave(hands, msg);
	locked = shim_lock_for(&table.lock, DROP_PATIENCE_MS);
	for (uint32_t i = 0; i < msg->count && !rc; i++)
		rc = drop_ours(hands, msg, msg->ranges[i].addr,
			       msg->ranges[i].addr + msg->ranges[i].len);
	unlock_table(locked);
	return rc;
}

static int put_beside(const struct range *r, int empty_fd)
{
	long z, at;

	z = map_unforked(0, r->len, r->prot, MAP_PRIVATE | MAP_NORESERVE, empty_fd, 0);
	if (z < 0)
		return (int)z;
	at = shim_mremap((uint64_t)z, r->len, r->len, MREMAP_MAYMOVE | MREMAP_FIXED, r->addr);
	if (at < 0) {
		shim_munmap((uint64_t)z, r->len);
		return (int)at;
	}
	return 0;
}

static int put_over(const struct range *r, int prot, int empty_fd)
{
	long at = map_unforked(r->addr, r->len, prot, MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED,
			       empty_fd, 0);

	return at < 0 ? (int)at : 0;
}

/*
 * What the process may have (RLIMIT_AS, RLIMIT_MEMLOCK, mappings) may not suffice for both at a
 * time: then the empty file takes the very room of the segment. And what it may write to of its own
 * (RLIMIT_DATA) may not suffice for that one: then a store there is SIGSEGV. What touches it must
 * not wait for ever, nor its bytes stay on this node.
 */
static int put_empty(struct range *r, int empty_fd)
{
	int rc = put_beside(r, empty_fd);

	if (rc) {
		shim_munlock(r->addr, r->len);
		rc = put_over(r, r->prot, empty_fd);
	}
	if (rc && (r->prot & PROT_WRITE))
		rc = put_over(r, r->prot & ~PROT_WRITE, empty_fd);
	if (rc == 0)
		r->flags |= RANGE_GONE;
	return rc;
}

/*
 * What the program has unmapped meanwhile stays unmapped; what it has mapped through another node
 * since, which has the segment now, is that one's. Where no empty file can be put there, nothing
 * is: a touch is SIGSEGV, and the segment is not put back when it returns. All of the segment goes:
 * so where a piece can't be cut, the rest of it does so a moment earlier.
 */
static int put_empty_pieces(const struct hands *hands, const struct session_msg *msg, int fd)
{
	uint32_t i, last;
	int rc = 0;

	pieces_at(msg->addr, msg->len, &i, &last);
	for (uint32_t left = last - i; left && rc == 0; left--) {
		struct range *r = &table.ranges.at[i];

		if (r->segment != msg->segment || r->session != hands->session ||
		    put_empty(r, fd) == 0) {
			i++;
			continue;
		}
		rc = shim_munmap(r->addr, r->len);
		if (rc == 0)
			ranges_remove(&table.ranges, i);
	}
	ranges_join(&table.ranges);
	return rc;
}

/* Whether it may open nothing any more: the message has come, its descriptor could not. */
static bool opens_nothing(int sock)
{
	int fd = dup(sock);

	if (fd >= 0)
		close(fd);
	return fd < 0 && errno == EMFILE;
}

static int do_gone(const struct hands *hands, const struct session_msg *msg, int fd)
{
	struct range whole = {.addr = msg->addr, .len = msg->len, .prot = PROT_READ | PROT_WRITE};
	bool locked;
	int rc;

	if (fd < 0 && !opens_nothing(hands->sock))
		return EINVAL;
	locked = lock_table();
	rc = locked ? put_empty_pieces(hands, msg, fd) : put_empty(&whole, fd);
	unlock_table(locked);
	return -rc;
}

static int do_back(struct hands *hands, const struct session_msg *msg, int fd, uint64_t *at)
{
	struct scratch *scratch = find_scratch(hands, 0);
	long z;
	int rc;

	if (fd < 0)
		return EINVAL;
	if (!scratch)
		return ENOMEM;
	/* Without access at first: where the program has said mlockall(MCL_FUTURE), mmap(2) would
	   fill it at once, before it is registered, and put zeros where pages are still missing. */
	z = map_unforked(0, msg->len, PROT_NONE, map_type(msg), fd, msg->offset);
	/* What stands in its place is locked as well, and RLIMIT_MEMLOCK not enough for both. */
	if (z == -EAGAIN && shim_munlock(msg->addr, msg->len) == 0)
		z = map_unforked(0, msg->len, PROT_NONE, map_type(msg), fd, msg->offset);
	if (z < 0)
		return (int)-z;
	rc = shim_mprotect((uint64_t)z, msg->len, (int)msg->prot);
	if (rc) {
		shim_munmap((uint64_t)z, msg->len);
		return -rc;
	}
	if (msg->flags & SESSION_NOHUGE)
		shim_madvise((uint64_t)z, msg->len, MADV_NOHUGEPAGE);
	*scratch = (struct scratch){.at = (uint64_t)z,
				    .len = msg->len,
				    .prot = msg->prot,
				    .readonly = (msg->flags & SESSION_PRIVATE) != 0};
	*at = (uint64_t)z;
	return 0;
}

/* ---- SWAP ---------------------------------------------------------------------------------------
 */

/*
 * mremap of a registered range waits in the kernel until the daemon has read the event. A daemon
 * that dies first would leave this thread there for ever, and with it the one who could send the
 * userfaultfd to the next daemon. So a bare thread does it, which lives for these calls alone: it
 * is not the C library's, runs on the agent's thread pointer and touches nothing of it.
 */
static int swap_thread(void *arg)
{
	struct hands *hands = arg;
	uint64_t one = 1;

	hands->swap_result = 0;
	for (uint32_t i = 0; i < hands->swap_parts && hands->swap_result >= 0; i++) {
		uint64_t done = hands->swap_done, len = hands->swap_ends[i] - done;

		hands->swap_result =
			shim_mremap(hands->swap_from + done, len, len,
				    MREMAP_MAYMOVE | MREMAP_FIXED, hands->swap_to + done);
		if (hands->swap_result >= 0)
			hands->swap_done = hands->swap_ends[i];
	}
	syscall(SYS_write, hands->swap_event, &one, sizeof(one));
	syscall(SYS_exit, 0);
	return 0;
}

static int swap_begin(struct hands *hands, const struct session_msg *msg)
{
	hands->swap_from = msg->scratch;
	hands->swap_to = msg->addr;
	hands->swap_len = msg->len;
	hands->swap_event = eventfd(0, EFD_CLOEXEC);
	if (hands->swap_event < 0)
		return errno;
	hands->swap_alive = 1;
	if (clone(swap_thread, hands->swap_stack + SWAP_STACK_BYTES,
		  CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
			  CLONE_CHILD_CLEARTID,
		  hands, NULL, NULL, &hands->swap_alive) < 0) {
		int code = errno;

		close(hands->swap_event);
		return code;
	}
	hands->swapping = true;
	return 0;
}

/* Where the program has nothing of ours mapped. Under table.lock. */
static void unmap_gaps(uint64_t at, uint64_t end)
{
	uint64_t gap_start, gap_end;

	while (ranges_gap(&table.ranges, at, end, &gap_start, &gap_end)) {
		shim_munmap(gap_start, gap_end - gap_start);
		at = gap_end;
	}
}

/*
 * What the program has unmapped is taken until the swap is over, so that the swap destroys nothing
 * that the program maps there. -EAGAIN: it has done so already. Reads the table only. No child has
 * it: forks are shut out once for all of it, as each may last.
 */
static int take_gaps(uint64_t start, uint64_t end)
{
	uint64_t at = start, gap_start, gap_end;
	int rc = 0;

	if (!ranges_gap(&table.ranges, at, end, &gap_start, &gap_end))
		return 0;
	fork_shut_out();
	while (!rc && ranges_gap(&table.ranges, at, end, &gap_start, &gap_end)) {
		long z = shim_mmap(
			gap_start, gap_end - gap_start, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

		at = z < 0 ? gap_start : gap_end;
		if (z < 0 || shim_madvise(gap_start, gap_end - gap_start, MADV_DONTFORK)) {
			unmap_gaps(start, at);
			rc = -EAGAIN;
		}
	}
	fork_let_in();
	return rc;
}

/* Nothing was swapped. */
static void give_gaps_back(uint64_t start, uint64_t end)
{
	bool locked = lock_table();

	if (locked)
		unmap_gaps(start, end);
	unlock_table(locked);
}

/* The range is in place: the program's wishes of the meantime, what it unmapped and protected. */
static void settle_range(uint64_t addr, uint64_t len, const struct scratch *scratch)
{
	bool locked = lock_table();
	uint32_t first, last;

	if (!locked)
		return;
	unmap_gaps(addr, addr + len);
	pieces_of(addr, len, &first, &last);
	for (; first < last; first++) {
		struct range *r = &table.ranges.at[first];

		r->flags &= (uint8_t) ~(RANGE_GONE | RANGE_READONLY);
		if (scratch->readonly)
			r->flags |= RANGE_READONLY;
		if (r->prot != scratch->prot)
			shim_mprotect(r->addr, r->len, r->prot);
		if (r->flags & RANGE_NOHUGE)
			shim_madvise(r->addr, r->len, MADV_NOHUGEPAGE);
	}
	ranges_join(&table.ranges);
	unlock_table(locked);
}

/* False: the daemon has hung up before. Where the program's seccomp forbids poll(2), nobody looks
   for that. */
static bool swap_over(const struct hands *hands)
{
	struct pollfd wait[2] = {{.fd = hands->swap_event, .events = POLLIN},
				 {.fd = hands->sock, .events = POLLRDHUP}};

	while (poll(wait, 2, -1) >= 0 || errno == EINTR) {
		if (wait[0].revents & POLLIN)
			return true;
		if (wait[1].revents)
			return false;
	}
	return true;
}

bool hands_finish_swap(struct hands *hands)
{
	struct scratch *scratch = find_scratch(hands, hands->swap_from);
	uint64_t done;

	if (!swap_over(hands))
		return false;
	while (hands->swap_alive)
		syscall(SYS_futex, &hands->swap_alive, FUTEX_WAIT, 1, NULL, NULL, 0);
	hands->swapping = false;
	close(hands->swap_event);
	done = hands->swap_done;
	if (scratch && done)
		settle_range(hands->swap_to, done, scratch);
	if (hands->swap_result < 0)
		give_gaps_back(hands->swap_to + done, hands->swap_to + hands->swap_len);
	if (scratch)
		drop_scratch(scratch, done);
	table.swaps--;
	return true;
}

/* Up to there the scratch mapping is protected so, and moved by itself. */
static void end_part(struct hands *hands, const struct scratch *scratch, uint64_t end,
		     uint32_t prot)
{
	uint64_t start = hands->swap_parts ? hands->swap_ends[hands->swap_parts - 1] : 0;

	if (prot != scratch->prot)
		shim_mprotect(scratch->at + start, end - start, (int)prot);
	hands->swap_ends[hands->swap_parts++] = end;
}

/*
 * What the program has protected otherwise since the daemon looked is so from the moment when it is
 * in place: a part of each protection, since no kernel before 6.17 moves more than one mapping at a
 * time. The program changes none until the swap is over (change.c). Under table.lock, or of what is
 * only read. More parts than there is room for: the last ones are protected once they are in place.
 */
static void plan_parts(struct hands *hands, const struct scratch *scratch, uint64_t addr)
{
	uint64_t end = addr + scratch->len, at = addr;
	uint32_t prot = scratch->prot;

	hands->swap_parts = 0;
	hands->swap_done = 0;
	for (uint32_t i = ranges_first(&table.ranges, addr);
	     i < table.ranges.n && table.ranges.at[i].addr < end; i++) {
		const struct range *r = &table.ranges.at[i];

		if (r->prot == prot || hands->swap_parts == SESSION_PARTS_MAX - 1)
			continue;
		if (r->addr > at)
			end_part(hands, scratch, r->addr - addr, prot);
		at = r->addr > at ? r->addr : at;
		prot = r->prot;
	}
	end_part(hands, scratch, scratch->len, prot);
}

/* 1: the program still has something of it mapped, which is this session's from now on: a GONE of
   the node that had it between comes too late. 0: nothing. -EAGAIN: it has something else there.
   -ENOMEM: the table is full. */
static int claim_range(struct hands *hands, const struct scratch *scratch, uint64_t addr)
{
	bool locked = lock_table();
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
		table.ranges.at[first].session = hands->session;
	if (rc > 0) {
		plan_parts(hands, scratch, addr);
		table.swaps++;
	}
	unlock_table(locked);
	return rc;
}

static int do_swap(struct hands *hands, const struct session_msg *msg, bool *hung_up)
{
	struct scratch *scratch = find_scratch(hands, msg->scratch);
	int rc;

	if (!scratch || msg->scratch == 0 || scratch->len != msg->len)
		return EINVAL;
	rc = claim_range(hands, scratch, msg->addr);
	if (rc <= 0) {
		drop_scratch(scratch, 0);
		return -rc;
	}
	rc = swap_begin(hands, msg);
	if (rc) {
		give_gaps_back(msg->addr, msg->addr + msg->len);
		drop_scratch(scratch, 0);
		table.swaps--;
		return rc;
	}
	if (!hands_finish_swap(hands)) {
		*hung_up = true;
		return 0;
	}
	return hands->swap_result < 0 ? (int)-hands->swap_result : 0;
}

void hands_drop_scratch(struct hands *hands)
{
	for (int i = 0; i < SCRATCH_MAX; i++)
		if (hands->scratch[i].at != 0)
			drop_scratch(&hands->scratch[i], 0);
}

int hands_carry_out(struct hands *hands, const struct session_msg *msg, int fd,
		    struct session_msg *done, bool *hung_up)
{
	switch (msg->type) {
	case SESSION_MAP:
		return do_map(hands, msg, fd);
	case SESSION_PROTECT:
		return -shim_mprotect(msg->addr, msg->len, (int)msg->prot);
	case SESSION_UNMAP:
		return do_unmap(hands, msg);
	case SESSION_DROP:
		return do_drop(hands, msg);
	case SESSION_GONE:
		return do_gone(hands, msg, fd);
	case SESSION_BACK:
		return do_back(hands, msg, fd, &done->addr);
	case SESSION_SWAP:
		return do_swap(hands, msg, hung_up);
	case SESSION_SAY:
		shim_say_agent(msg->text, NULL);
		return 0;
	default:
		return EPROTO;
	}
}
