/*
 * A program's thread maps a segment.
 *
 * Happy path: the FUSE ioctl gives a one-time token for the open, the agent of that daemon is
 * started if it does not run yet, and an ATTACH with the token goes to the daemon over a throw-away
 * connection. Before the answer comes, the agent has mapped the range and put it into the table.
 * Where part of the range is mapped already, that part is counted, and only the gaps are asked for,
 * each with a token of its own.
 *
 * How it fails: a daemon that is on its way back is asked again, for 10 s in all; then ETIMEDOUT.
 * An attach that is half done is undone.
 *
 * Locks: attach_lock, which may be held while a daemon answers, then the table's. An agent takes
 * only the table's.
 */
#include "attach.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent.h"
#include "base/clock.h"
#include "base/ioc.h"
#include "daemon_request.h"
#include "fork.h"
#include "guard.h"
#include "say.h"
#include "sys.h"
#include "table.h"

#define PATIENCE_MS	   10000 /* for one mmap */
#define RETRY_PAUSE_MS	   5
#define GONE_PAUSE_LAST_MS 256
#define PROT_ALL	   (PROT_READ | PROT_WRITE | PROT_EXEC)

/* The kernel's LEGACY_MAP_MASK: the flags that every file's mapping takes, MAP_SHARED_VALIDATE
   being MAP_SHARED | MAP_PRIVATE. The last are MAP_32BIT and MAP_ABOVE4G of x86, and the sizes of
   huge pages, which mean nothing without MAP_HUGETLB. */
#define MAP_LEGACY_MASK                                                                            \
	(MAP_SHARED_VALIDATE | MAP_FIXED | MAP_ANONYMOUS | MAP_DENYWRITE | MAP_EXECUTABLE |        \
	 MAP_GROWSDOWN | MAP_LOCKED | MAP_NORESERVE | MAP_POPULATE | MAP_NONBLOCK | MAP_STACK |    \
	 MAP_HUGETLB | MAP_X86_ONLY | 31 << MAP_HUGE_SHIFT)
#ifdef __x86_64__
#define MAP_X86_ONLY 0xc0
#else
#define MAP_X86_ONLY 0
#endif

#define MAP_PLACES (MAP_FIXED | MAP_FIXED_NOREPLACE)

/* RAMPFS_FIXED=hint: MAP_FIXED of a segment is taken for a hint. */
static bool fixed_is_hint;

/* One request to map a range, under attach_lock. */
struct attach {
	const struct attach_call *call;
	struct ramp_ioc_attach ioc; /* of the last token */
	bool has_token;		    /* the token has not been used yet */
	uint8_t session;
	uint64_t segment, end_max;
	uint64_t start, end; /* addresses; known once a first part is mapped */
	uint64_t deadline_ms;
	bool elsewhere;		       /* MAP_FIXED asked for another address */
	bool again;		       /* it failed because the daemon was away */
	bool asked_again;	       /* the daemon had forgotten the token: that is tried once */
	char reason[SESSION_TEXT_MAX]; /* why it failed; empty: errno says it */
};

static int attach_refuse(struct attach *a, int code, const char *reason)
{
	copy_text(a->reason, sizeof(a->reason), reason);
	return -code;
}

/* ---- requests to the daemon ---- */

/* Gets a token for the open. -ENOTTY: the file is no segment. */
static int get_token(struct attach *a)
{
	int rc = sys_ioctl(a->call->fd, a->call->ahead ? RAMP_IOC_AHEAD : RAMP_IOC_ATTACH, &a->ioc);

	a->has_token = rc == 0;
	return rc == -EREMOTE ? attach_refuse(a, EREMOTE, "the segment is on another node") : rc;
}

/* Asks the daemon once. It may be replaced by the next daemon meanwhile: then everything from the
   token on has to be done again (a->again). */
static int attach_once(struct attach *a, const struct session_msg *request,
		       struct session_msg *answer)
{
	struct agent_error err;
	int rc;

	a->again = false;
	if (!a->has_token) {
		rc = get_token(a);
		if (rc)
			return rc;
	}
	a->has_token = false;
	rc = agent_start(a->session, &err);
	a->again = rc == -EPIPE;
	if (rc)
		return attach_refuse(a, -rc, err.text);
	*answer = *request;
	answer->token[0] = a->ioc.token[0];
	answer->token[1] = a->ioc.token[1];
	rc = daemon_request(agent_socket(a->session), answer, a->deadline_ms);
	a->again = rc == -EPIPE || (rc == 0 && answer->result == EPERM && !a->asked_again);
	if (rc)
		return attach_refuse(a, -rc, rc == -ETIMEDOUT ? "the daemon does not answer" : "");
	a->asked_again = answer->result == EPERM;
	if (answer->result)
		return attach_refuse(a, (int)answer->result, answer->text);
	return 0;
}

/* Makes a range that the agent has mapped the program's. Other pending ranges belong to an attach
   that was given up, and have no access; one of them is taken along only where it can't be cut
   off. */
static void own_pending(const struct attach *a, uint64_t extent, uint64_t start, uint64_t end)
{
	uint32_t first, last;

	futex_lock(&table.lock);
	if (ranges_isolate(&table.ranges, start, end, &first, &last)) {
		first = 0;
		last = table.ranges.n;
	}
	for (uint32_t i = first; i < last; i++)
		table.ranges.at[i].flags &= (uint8_t)~RANGE_PENDING;
	/* All of the segment lies in its extent. */
	for (uint32_t i = ranges_first(&table.ranges, extent);
	     i < table.ranges.n && table.ranges.at[i].addr < a->end_max; i++) {
		struct range *r = &table.ranges.at[i];

		if (r->segment == a->segment && r->session == a->session)
			r->end_max = a->end_max;
	}
	futex_unlock(&table.lock);
}

/* Attaches bytes [offset, offset + len) of the segment. Nothing of them is mapped, or, with
   SESSION_REPLACE, all of them with less access. */
static int attach_part(struct attach *a, uint64_t offset, uint64_t len, uint32_t flags,
		       uint64_t *at)
{
	struct session_msg request = {.type = SESSION_ATTACH,
				      .flags = flags | (a->call->ahead ? SESSION_AHEAD : 0),
				      .offset = offset,
				      .len = len,
				      .prot = (uint32_t)a->call->prot & PROT_ALL};
	struct session_msg answer = {0};
	int rc;

	while ((rc = attach_once(a, &request, &answer)) != 0) {
		table_drop_pending();
		if (!a->again)
			return rc;
		if (clock_ms() >= a->deadline_ms)
			return -ETIMEDOUT;
		sys_pause_ms(RETRY_PAUSE_MS);
	}
	a->reason[0] = '\0';
	a->end_max = answer.addr - offset + answer.all;
	own_pending(a, answer.addr - offset, answer.addr, answer.addr + len);
	*at = answer.addr;
	return 0;
}

/* ---- mmap ---- */

/* Counts each part that is mapped already once more. A part that has gone from another mount of this
   machine, where the segment was mapped before, is unmapped: nothing would put it back. */
static int count_parts(const struct attach *a)
{
	uint32_t i, last;
	int rc;

	futex_lock(&table.lock);
	table_drop_pending_locked();
	rc = ranges_isolate(&table.ranges, a->start, a->end, &i, &last);
	for (uint32_t left = rc ? 0 : last - i; left; left--) {
		struct range *r = &table.ranges.at[i];

		if (r->session == a->session) {
			r->count++;
			i++;
		} else if ((r->flags & RANGE_GONE) && sys_munmap(r->addr, r->len) == 0) {
			ranges_remove(&table.ranges, i);
		} else {
			i++;
		}
	}
	futex_unlock(&table.lock);
	return rc;
}

/* Gives the first piece from `from` on that allows less than this mapping asks for the access that
   it lacks, and returns 0. -EACCES: *piece was mapped through an open that does not allow that. */
static int widen_next(const struct attach *a, uint64_t from, struct range *piece)
{
	uint32_t first, last;
	int rc;

	*piece = (struct range){.addr = a->end};
	table_lock_settled(); /* a swap under way would put the old protection in place */
	rc = ranges_isolate(&table.ranges, from, a->end, &first, &last);
	for (; rc == 0 && first < last; first++) {
		struct range *r = &table.ranges.at[first];
		uint8_t prot = (uint8_t)(r->prot | (a->call->prot & PROT_ALL));

		if (prot == r->prot)
			continue;
		*piece = *r;
		rc = table_protect(r, prot);
	}
	ranges_join_near(&table.ranges, from, a->end);
	futex_unlock(&table.lock);
	return rc;
}

/* Gives older mappings of the same bytes, which are the same mapping, the access that they lack.
   They lose none. */
static int widen(struct attach *a)
{
	struct range piece;
	uint64_t at, replaced = a->start;
	int rc;

	while ((rc = widen_next(a, a->start, &piece)) == -EACCES && piece.addr >= replaced) {
		rc = attach_part(a, piece.addr - piece.extent, piece.len, SESSION_REPLACE, &at);
		if (rc)
			return rc;
		replaced = piece.addr + piece.len;
	}
	return rc;
}

/* Sets the address of the range, if anything of the segment is mapped already. */
static bool known_place(struct attach *a)
{
	const struct range *r;

	futex_lock(&table.lock);
	table_drop_pending_locked();
	r = ranges_of(&table.ranges, a->session, a->segment);
	if (r) {
		a->start = r->extent + a->call->offset;
		a->end = a->start + a->call->len;
		a->end_max = r->end_max;
	}
	futex_unlock(&table.lock);
	return r != NULL;
}

static bool next_gap(const struct attach *a, uint64_t from, uint64_t *start, uint64_t *end)
{
	bool found;

	futex_lock(&table.lock);
	table_drop_pending_locked();
	found = ranges_gap(&table.ranges, from, a->end, start, end);
	futex_unlock(&table.lock);
	return found;
}

static int fill_gaps(struct attach *a)
{
	uint64_t start, end, at, from = a->start;
	int rc;

	while (next_gap(a, from, &start, &end)) {
		rc = attach_part(a, a->call->offset + (start - a->start), end - start, 0, &at);
		if (rc)
			return rc;
		from = end;
	}
	return widen(a);
}

static bool any_gone(const struct attach *a)
{
	bool gone = false;

	futex_lock(&table.lock);
	for (uint32_t i = ranges_first(&table.ranges, a->start);
	     i < table.ranges.n && table.ranges.at[i].addr < a->end; i++)
		gone |= (table.ranges.at[i].flags & RANGE_GONE) != 0;
	futex_unlock(&table.lock);
	return gone;
}

/* Waits for a segment that left and is here again, but not in its place yet: the daemon is about to
   put it there. */
static int await_back(struct attach *a)
{
	uint32_t pause_ms = 1;
	int rc;

	while (any_gone(a)) {
		if (clock_ms() >= a->deadline_ms)
			return attach_refuse(
				a, ETIMEDOUT,
				"it is here again, and the daemon could not put it in its "
				"place; munmap what is left of it there");
		sys_pause_ms(pause_ms);
		if (pause_ms < GONE_PAUSE_LAST_MS)
			pause_ms *= 2;
		rc = get_token(a);
		if (rc && !daemon_is_away(rc))
			return rc;
	}
	return 0;
}

/* Refuses MAP_FIXED at another address than the segment's own, or takes it for a hint: what is mapped
   at the other address stays then. MAP_FIXED_NOREPLACE was a hint before Linux 4.17: a program that
   asks for it looks at the address that it gets. */
static int check_address(struct attach *a)
{
	a->elsewhere = (a->call->flags & MAP_PLACES) && a->call->addr != a->start;
	if (!a->elsewhere || fixed_is_hint)
		return 0;
	return attach_refuse(
		a, EINVAL,
		"MAP_FIXED: a segment has its own address, the same in every process; map it "
		"without (rampfs-run --fixed=hint: for a program that uses what mmap returns)");
}

static int attach_known(struct attach *a)
{
	uint64_t start, end;
	int rc = check_address(a);

	if (rc)
		return rc;
	if ((a->call->flags & MAP_FIXED_NOREPLACE) && !a->elsewhere &&
	    !(next_gap(a, a->start, &start, &end) && start == a->start && end == a->end))
		return -EEXIST;
	rc = count_parts(a);
	if (rc)
		return rc;
	rc = fill_gaps(a);
	if (rc == 0 && !a->call->ahead)
		rc = await_back(a);
	if (rc) {
		futex_lock(&table.lock);
		table_release(a->start, a->end, NULL);
		futex_unlock(&table.lock);
	}
	return rc;
}

static int attach_new(struct attach *a)
{
	int rc = attach_part(a, a->call->offset, a->call->len, 0, &a->start);

	if (rc)
		return rc;
	a->end = a->start + a->call->len;
	rc = check_address(a);
	if (rc) {
		futex_lock(&table.lock);
		table_release(a->start, a->end, NULL);
		futex_unlock(&table.lock);
	}
	return rc;
}

/* Checks the place that a call asks for, as the kernel does: first of all. */
static int check_place(const struct attach_call *call)
{
	if (call->len == 0)
		return -EINVAL;
	if (call->len > UINT64_MAX / 4)
		return -ENOMEM;
	if (call->offset > UINT64_MAX / 4)
		return -EOVERFLOW;
	if ((call->flags & MAP_PLACES) && !page_aligned(call->addr))
		return -EINVAL;
	return 0;
}

/* Refuses calls that the kernel would refuse, in its order, and like the kernel without a line. Of
   the flags that MAP_SHARED_VALIDATE has checked MAP_SYNC is unknown here: with it a program takes
   its stores for durable. */
static int check_call(const struct attach_call *call)
{
	long mode = syscall(SYS_fcntl, call->fd, F_GETFL);
	int rc;

	if (!page_aligned(call->offset))
		return -EINVAL;
	if (mode < 0 || (mode & O_PATH))
		return -EBADF;
	if (call->flags & MAP_HUGETLB)
		return -EINVAL;
	rc = check_place(call);
	if (rc)
		return rc;
	if ((call->flags & MAP_TYPE) == MAP_SHARED_VALIDATE && (call->flags & ~MAP_LEGACY_MASK))
		return -EOPNOTSUPP;
	if ((mode & O_ACCMODE) == O_WRONLY)
		return -EACCES;
	if ((call->prot & PROT_WRITE) && (mode & O_ACCMODE) != O_RDWR)
		return -EACCES;
	return call->flags & MAP_GROWSDOWN ? -EINVAL : 0;
}

static int map_segment(struct attach *a)
{
	int rc, session;

	table_drop_pending();
	rc = get_token(a);
	if (rc)
		return rc;
	session = agent_of(a->ioc.socket);
	if (session < 0)
		return attach_refuse(a, -session, "segments of too many mounts in one process");
	a->session = (uint8_t)session;
	a->segment = a->ioc.segment;
	return known_place(a) ? attach_known(a) : attach_new(a);
}

/* Locks or fills the range as the kernel does at the end of mmap, as far as possible. A failure
   here is no failure of mmap. */
static void after_map(const struct attach_call *call, uint64_t at)
{
	if (call->flags & MAP_LOCKED)
		syscall(SYS_mlock, at, call->len);
	else if (call->flags & MAP_POPULATE)
		sys_madvise(at, call->len, MADV_POPULATE_READ);
}

/* Says why mmap fails, if its errno alone does not: one that asks for EEXIST gets it without a line. Says
   once that a segment lies elsewhere than it was asked for. */
static void say_outcome(const struct attach *a, int rc)
{
	static _Atomic bool said;
	bool asks = (a->call->flags & MAP_FIXED_NOREPLACE) &&
		    (!fixed_is_hint || a->call->addr == a->start);

	if (rc == 0 && a->elsewhere && !atomic_exchange(&said, true))
		say_line("rampfs: mmap: MAP_FIXED is taken for a hint (--fixed=hint): the segment "
			 "is mapped at its own address, which mmap returns",
			 NULL);
	if (rc && rc != -ENOTTY && !(rc == -EEXIST && asks))
		say_refusal("mmap", -rc, a->reason);
}

void attach_init(void)
{
	const char *value = getenv("RAMPFS_FIXED");

	fixed_is_hint = value && strcmp(value, "hint") == 0;
}

int attach_mmap(const struct attach_call *given, uint64_t *at)
{
	struct attach_call call = *given;
	struct attach a = {.call = &call, .deadline_ms = clock_ms() + PATIENCE_MS};
	struct signal_guard guard;
	int rc = check_call(&call);

	if (rc)
		return rc;
	call.len = page_up(call.len);
	guard_enter(&guard);
	if (fork_settle()) {
		futex_lock(&attach_lock);
		rc = fork_watch();
		if (rc == 0)
			rc = map_segment(&a);
		futex_unlock(&attach_lock);
	} else {
		rc = attach_refuse(
			&a, EOPNOTSUPP,
			"a process that shares its parent's memory (vfork) maps no segment; "
			"its parent can");
	}
	if (call.reason)
		copy_text(call.reason, SESSION_TEXT_MAX, a.reason);
	else
		say_outcome(&a, rc);
	guard_leave(&guard);
	*at = a.start;
	if (rc == 0 && call.session)
		*call.session = a.session;
	if (rc == 0 && (call.flags & (MAP_LOCKED | MAP_POPULATE)))
		after_map(&call, *at);
	return rc;
}
