/*
 * A program's thread maps a segment, changes a mapping, or forks.
 *
 * Happy path of mmap: the FUSE ioctl gives a one-time token for the open, the agent of that daemon
 * is started if it is the first time, and an ATTACH with the token goes to the daemon over a
 * throw-away connection. Before its answer comes, the agent has mapped the range and put it into
 * the table. Where part of the range is mapped already, that part is counted, and only the gaps are
 * asked for, each with a token of its own.
 *
 * munmap, mprotect and mremap in place are system calls and entries of the table under its lock; no
 * message. The daemon learns what is mapped from /proc.
 *
 * fork: no mapping is inherited (MADV_DONTFORK). The parent's handler gets a token from each daemon
 * and holds both locks until the child has its copy of the table; the child starts agents of its
 * own, which map everything again, before fork returns there.
 *
 * How it fails: a daemon that is on its way back is asked again, for 10 s in all; then ETIMEDOUT.
 * What an attach has half done is taken back. A child whose daemon does not answer runs on without
 * its mappings, and a line says so.
 *
 * Locks: the attach lock, which may be held while a daemon answers, then the table's. An agent
 * takes only the latter.
 */
#include "attach.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"
#include "ids.h"
#include "ioc.h"
#include "kernel.h"
#include "session.h"
#include "shim.h"

#define PATIENCE_MS    10000 /* for one mmap */
#define RETRY_PAUSE_MS 5
#define PROT_ALL       (PROT_READ | PROT_WRITE | PROT_EXEC)

struct shim_lock attach_lock;
_Atomic bool attach_used;

/* One request to map a range, under the attach lock. */
struct attach {
	const struct attach_call *call;
	struct ramp_ioc_attach ioc; /* of the last token */
	bool has_token;		    /* ... which has not been used yet */
	uint8_t session;
	uint64_t segment, end_max;
	uint64_t start, end; /* addresses; known once a first part is mapped */
	uint64_t deadline_ms;
	bool again;		       /* it failed because the daemon was away */
	bool asked_again;	       /* ... or had forgotten the token: that is tried once */
	char reason[SESSION_TEXT_MAX]; /* why it failed; empty: errno says it */
};

bool attach_near(const void *addr, uint64_t len)
{
	uint64_t start = (uint64_t)(uintptr_t)addr, low = table.low;

	return low && start < table.high && len > 0 && start + len > low;
}

static uint64_t page_up(uint64_t bytes)
{
	return (bytes + RAMP_PAGE_BYTES - 1) & ~(uint64_t)(RAMP_PAGE_BYTES - 1);
}

static bool page_aligned(uint64_t bytes)
{
	return bytes % RAMP_PAGE_BYTES == 0;
}

static int say_refusal(const char *what, int code, const char *reason)
{
	shim_say("rampfs: ", what, ": ", reason[0] ? reason : strerrordesc_np(code), NULL);
	return -code;
}

static int refuse(struct attach *a, int code, const char *reason)
{
	shim_copy(a->reason, sizeof(a->reason), reason);
	return -code;
}

static void pause_ms(uint32_t ms)
{
	struct timespec time = {.tv_nsec = (long)ms * 1000000};

	nanosleep(&time, NULL);
}

/* ---- requests to the daemon --------------------------------------------------------------------
 */

/* No daemon, or one that died under the request: the next one is asked. */
static bool away(int rc)
{
	return rc == -EPIPE || rc == -ECONNREFUSED || rc == -ECONNRESET || rc == -ENOENT;
}

int attach_ask(const char *path, struct session_msg *msg, uint64_t deadline_ms)
{
	uint64_t now_ms = shim_now_ms();
	uint64_t left_ms = now_ms < deadline_ms ? deadline_ms - now_ms : 1;
	struct timeval time = {.tv_sec = (time_t)(left_ms / 1000),
			       .tv_usec = (suseconds_t)(left_ms % 1000) * 1000};
	int sock, rc;

	sock = session_connect(path);
	if (sock < 0)
		return away(sock) ? -EPIPE : sock;
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
	rc = session_send(sock, msg, NULL, 0, 0);
	if (rc == 0)
		rc = session_recv(sock, msg, NULL, NULL, 0);
	close(sock);
	if (rc == -EAGAIN)
		return -ETIMEDOUT;
	if (away(rc))
		return -EPIPE;
	if (rc == 0 && msg->type != SESSION_RESULT)
		return -EPROTO;
	return rc;
}

/* -ENOTTY: the file is no segment. */
static int get_token(struct attach *a)
{
	int rc = shim_ioctl(a->call->fd, RAMP_IOC_ATTACH, &a->ioc);

	a->has_token = rc == 0;
	return rc == -EREMOTE ? refuse(a, EREMOTE, "the segment is on another node") : rc;
}

/* The daemon may come back under our hands: then everything from the token on is done anew. */
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
	a->again = away(rc);
	if (rc)
		return refuse(a, -rc, err.text);
	*answer = *request;
	answer->token[0] = a->ioc.token[0];
	answer->token[1] = a->ioc.token[1];
	rc = attach_ask(agent_socket(a->session), answer, a->deadline_ms);
	a->again = rc == -EPIPE || (rc == 0 && answer->result == EPERM && !a->asked_again);
	if (rc)
		return refuse(a, -rc, rc == -ETIMEDOUT ? "the daemon does not answer" : "");
	a->asked_again = answer->result == EPERM;
	if (answer->result)
		return refuse(a, (int)answer->result, answer->text);
	return 0;
}

/* What an attach left behind that never ended: its agent mapped, its daemon died. */
static void drop_pending(void)
{
	shim_lock(&table.lock);
	for (uint32_t i = 0; i < table.ranges.n;) {
		struct range *r = &table.ranges.at[i];

		if (!(r->flags & RANGE_PENDING)) {
			i++;
			continue;
		}
		shim_munmap(r->addr, r->len);
		ranges_remove(&table.ranges, i);
	}
	shim_unlock(&table.lock);
}

/* The agent has mapped it; from now on the range is the program's. */
static void own_pending(const struct attach *a)
{
	shim_lock(&table.lock);
	for (uint32_t i = 0; i < table.ranges.n; i++) {
		struct range *r = &table.ranges.at[i];

		r->flags &= (uint8_t)~RANGE_PENDING;
		if (r->segment == a->segment && r->session == a->session)
			r->end_max = a->end_max;
	}
	shim_unlock(&table.lock);
}

/* Bytes [offset, offset + len) of the segment: nothing of it is mapped, or, with SESSION_REPLACE,
   all of it with less access. */
static int attach_part(struct attach *a, uint64_t offset, uint64_t len, uint32_t flags,
		       uint64_t *at)
{
	struct session_msg request = {.type = SESSION_ATTACH,
				      .flags = flags,
				      .offset = offset,
				      .len = len,
				      .prot = (uint32_t)a->call->prot & PROT_ALL};
	struct session_msg answer;
	int rc;

	while ((rc = attach_once(a, &request, &answer)) != 0) {
		drop_pending();
		if (!a->again)
			return rc;
		if (shim_now_ms() >= a->deadline_ms)
			return -ETIMEDOUT;
		pause_ms(RETRY_PAUSE_MS);
	}
	a->reason[0] = '\0';
	a->end_max = answer.addr - offset + answer.all;
	own_pending(a);
	*at = answer.addr;
	return 0;
}

/* ---- mmap ---------------------------------------------------------------------------------------
 */

/* Everything in [start, end) once less; what was mapped once only is unmapped, and with
   `gaps_too` also what is not ours. Under table.lock. */
static int release(uint64_t start, uint64_t end, bool gaps_too)
{
	uint32_t i, last;
	uint64_t gap_start, gap_end, at = start;
	int rc, worst = 0;

	rc = ranges_isolate(&table.ranges, start, end, &i, &last);
	if (rc)
		return rc;
	while (gaps_too && ranges_gap(&table.ranges, at, end, &gap_start, &gap_end)) {
		rc = shim_next.munmap((void *)(uintptr_t)gap_start, gap_end - gap_start);
		if (rc)
			worst = -errno;
		at = gap_end;
	}
	for (uint32_t left = last - i; left; left--) {
		struct range *r = &table.ranges.at[i];

		if (r->count > 1) {
			r->count--;
			i++;
			continue;
		}
		rc = shim_munmap(r->addr, r->len);
		if (rc) {
			worst = rc;
			i++;
			continue;
		}
		ranges_remove(&table.ranges, i);
	}
	ranges_join(&table.ranges);
	return worst;
}

/* The parts that stand already: one more each. */
static int count_parts(const struct attach *a)
{
	uint32_t first, last;
	int rc;

	shim_lock(&table.lock);
	rc = ranges_isolate(&table.ranges, a->start, a->end, &first, &last);
	for (; rc == 0 && first < last; first++)
		table.ranges.at[first].count++;
	shim_unlock(&table.lock);
	return rc;
}

/* The first piece from `from` on that allows less than this mapping asks for: what it shall allow
   is allowed. -EACCES: it was mapped through an open that does not allow that. 0: all is well. */
static int widen_next(const struct attach *a, uint64_t from, struct range *piece)
{
	uint32_t first, last;
	int rc;

	*piece = (struct range){.addr = a->end};
	shim_lock(&table.lock);
	rc = ranges_isolate(&table.ranges, from, a->end, &first, &last);
	for (; rc == 0 && first < last; first++) {
		struct range *r = &table.ranges.at[first];
		uint8_t prot = (uint8_t)(r->prot | (a->call->prot & PROT_ALL));

		if (prot == r->prot)
			continue;
		*piece = *r;
		rc = shim_mprotect(r->addr, r->len, prot);
		if (rc == 0)
			r->prot = prot;
	}
	ranges_join(&table.ranges);
	shim_unlock(&table.lock);
	return rc;
}

/* An older mapping of the same bytes is the same mapping, and loses nothing. */
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

/* Where the segment lies, if anything of it is mapped already. */
static bool known_place(struct attach *a)
{
	const struct range *r;

	shim_lock(&table.lock);
	r = ranges_of(&table.ranges, a->session, a->segment);
	if (r) {
		a->start = r->extent + a->call->offset;
		a->end = a->start + a->call->len;
		a->end_max = r->end_max;
	}
	shim_unlock(&table.lock);
	return r != NULL;
}

static bool next_gap(const struct attach *a, uint64_t from, uint64_t *start, uint64_t *end)
{
	bool found;

	shim_lock(&table.lock);
	found = ranges_gap(&table.ranges, from, a->end, start, end);
	shim_unlock(&table.lock);
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

static int refuse_place(struct attach *a)
{
	return refuse(a, EINVAL,
		      "MAP_FIXED: a segment has its own address, the same in every process; map it "
		      "without");
}

static int attach_known(struct attach *a)
{
	uint64_t start, end;
	int rc;

	if ((a->call->flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) && a->call->addr != a->start)
		return refuse_place(a);
	if ((a->call->flags & MAP_FIXED_NOREPLACE) &&
	    !(next_gap(a, a->start, &start, &end) && start == a->start && end == a->end))
		return -EEXIST;
	rc = count_parts(a);
	if (rc)
		return rc;
	rc = fill_gaps(a);
	if (rc) {
		shim_lock(&table.lock);
		release(a->start, a->end, false);
		shim_unlock(&table.lock);
	}
	return rc;
}

static int attach_new(struct attach *a)
{
	int rc = attach_part(a, a->call->offset, a->call->len, 0, &a->start);

	if (rc)
		return rc;
	a->end = a->start + a->call->len;
	if ((a->call->flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) && a->call->addr != a->start) {
		shim_lock(&table.lock);
		release(a->start, a->end, false);
		shim_unlock(&table.lock);
		return refuse_place(a);
	}
	return 0;
}

/* As the kernel would refuse them: silently. */
static int check_call(const struct attach_call *call)
{
	long mode = syscall(SYS_fcntl, call->fd, F_GETFL);

	if (mode < 0 || (mode & O_PATH))
		return -EBADF;
	if ((mode & O_ACCMODE) == O_WRONLY)
		return -EACCES;
	if ((call->prot & PROT_WRITE) && (mode & O_ACCMODE) != O_RDWR)
		return -EACCES;
	if (call->len == 0 || !page_aligned(call->offset))
		return -EINVAL;
	if ((call->flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) && !page_aligned(call->addr))
		return -EINVAL;
	if (call->len > UINT64_MAX / 4 || call->offset > UINT64_MAX / 4)
		return -EOVERFLOW;
	return 0;
}

static int map_segment(struct attach *a)
{
	int rc, session;

	drop_pending();
	rc = get_token(a);
	if (rc)
		return rc;
	session = agent_of(a->ioc.socket);
	if (session < 0)
		return refuse(a, -session, "segments of too many mounts in one process");
	a->session = (uint8_t)session;
	a->segment = a->ioc.segment;
	return known_place(a) ? attach_known(a) : attach_new(a);
}

/* What the kernel does at the end of mmap, as far as it can: failures are no failure of it. */
static void after_map(const struct attach_call *call, uint64_t at)
{
	if (call->flags & MAP_LOCKED)
		syscall(SYS_mlock, at, call->len);
	else if (call->flags & MAP_POPULATE)
		shim_madvise(at, call->len, MADV_POPULATE_READ);
}

int attach_mmap(const struct attach_call *given, uint64_t *at)
{
	struct attach_call call = *given;
	struct attach a = {.call = &call, .deadline_ms = shim_now_ms() + PATIENCE_MS};
	struct shim_guard guard;
	int rc = check_call(&call);

	if (rc)
		return rc;
	call.len = page_up(call.len);
	attach_used = true;
	shim_enter(&guard);
	shim_lock(&attach_lock);
	rc = map_segment(&a);
	shim_unlock(&attach_lock);
	if (rc && rc != -ENOTTY && rc != -EEXIST)
		say_refusal("mmap", -rc, a.reason);
	shim_leave(&guard);
	*at = a.start;
	if (rc == 0 && (call.flags & (MAP_LOCKED | MAP_POPULATE)))
		after_map(&call, *at);
	return rc;
}

/* ---- munmap, mprotect, mremap, madvise
 * ----------------------------------------------------------- */

void attach_forget(const void *addr, uint64_t len)
{
	uint64_t start = (uint64_t)(uintptr_t)addr;
	struct shim_guard guard;
	uint32_t first, last;

	shim_enter(&guard);
	shim_lock(&table.lock);
	if (ranges_isolate(&table.ranges, start, start + page_up(len), &first, &last) == 0)
		for (; first < last; last--)
			ranges_remove(&table.ranges, first);
	shim_unlock(&table.lock);
	shim_leave(&guard);
}

int attach_munmap(void *addr, uint64_t len)
{
	uint64_t start = (uint64_t)(uintptr_t)addr;
	struct shim_guard guard;
	int rc;

	if (!page_aligned(start) || len == 0 || page_up(len) == 0)
		return -EINVAL;
	shim_enter(&guard);
	shim_lock(&table.lock);
	rc = release(start, start + page_up(len), true);
	shim_unlock(&table.lock);
	shim_leave(&guard);
	return rc;
}

/* Under table.lock. */
static int protect(uint64_t start, uint64_t len, int prot)
{
	uint32_t first, last;
	int rc;

	rc = ranges_isolate(&table.ranges, start, start + len, &first, &last);
	if (rc)
		return rc;
	rc = shim_mprotect(start, len, prot);
	for (; rc == 0 && first < last; first++)
		table.ranges.at[first].prot = (uint8_t)(prot & PROT_ALL);
	ranges_join(&table.ranges);
	return rc;
}

int attach_mprotect(void *addr, uint64_t len, int prot)
{
	uint64_t start = (uint64_t)(uintptr_t)addr;
	struct shim_guard guard;
	int rc;

	if (!page_aligned(start))
		return -EINVAL;
	shim_enter(&guard);
	shim_lock(&table.lock);
	rc = protect(start, page_up(len), prot);
	shim_unlock(&table.lock);
	shim_leave(&guard);
	return rc;
}

/*
 * The mapping before the gap grows over it. The kernel wants a range that ends where its mapping
 * ends, so its last page stands for it. Under table.lock.
 */
static int grow_over(uint64_t start, uint64_t end)
{
	uint32_t before = ranges_first(&table.ranges, start - 1);
	struct range range = table.ranges.at[before];
	long at;
	int rc;

	at = shim_mremap(start - RAMP_PAGE_BYTES, RAMP_PAGE_BYTES, RAMP_PAGE_BYTES + (end - start),
			 0, 0);
	if (at < 0)
		return (int)at;
	range.addr = start;
	range.len = end - start;
	range.count = 1;
	rc = table_add(&range);
	if (rc)
		shim_munmap(start, end - start);
	return rc;
}

/* Under table.lock. [start, end) is what comes on top; what is there of it is counted. */
static int grow(uint64_t start, uint64_t end)
{
	uint32_t first, last;
	uint64_t gap_start, gap_end, at = start;
	int rc;

	rc = ranges_isolate(&table.ranges, start, end, &first, &last);
	if (rc)
		return rc;
	for (; first < last; first++)
		table.ranges.at[first].count++;
	while (ranges_gap(&table.ranges, at, end, &gap_start, &gap_end)) {
		rc = grow_over(gap_start, gap_end);
		if (rc)
			break;
		at = gap_end;
	}
	/* Something foreign stands there, or the kernel has no room: as before. */
	if (rc)
		release(start, end, false);
	ranges_join(&table.ranges);
	return rc;
}

struct mremap_call {
	uint64_t old, old_len, new_len;
	int flags;
};

/* Under table.lock. *reason: what to say, where the kernel's errno is not enough. */
static int remap(const struct mremap_call *call, const char **reason)
{
	uint32_t index = ranges_first(&table.ranges, call->old);
	uint64_t old_end = call->old + call->old_len, new_end = call->old + call->new_len;
	uint64_t gap_start, gap_end;

	if (index == table.ranges.n ||
	    table.ranges.at[index].addr >= call->old + (call->old_len ? call->old_len : 1))
		return -ENOTTY;
	if ((call->flags & ~MREMAP_MAYMOVE) || call->old_len == 0) {
		*reason = "a segment stays at its address";
		return -EINVAL;
	}
	if (!page_aligned(call->old) || call->new_len == 0)
		return -EINVAL;
	if (ranges_gap(&table.ranges, call->old, old_end, &gap_start, &gap_end))
		return -EFAULT;
	if (new_end <= old_end)
		return new_end == old_end ? 0 : release(new_end, old_end, false);
	if (new_end > table.ranges.at[index].end_max) {
		*reason = "the segment's extent ends before; set user.ramp.extent before its first "
			  "mapping";
		return -ENOMEM;
	}
	return grow(old_end, new_end);
}

int attach_mremap(void *old, uint64_t old_len, uint64_t new_len, int flags)
{
	struct mremap_call call = {.old = (uint64_t)(uintptr_t)old,
				   .old_len = page_up(old_len),
				   .new_len = page_up(new_len),
				   .flags = flags};
	const char *reason = NULL;
	struct shim_guard guard;
	int rc;

	shim_enter(&guard);
	shim_lock(&table.lock);
	rc = remap(&call, &reason);
	shim_unlock(&table.lock);
	if (reason)
		say_refusal("mremap", -rc, reason);
	shim_leave(&guard);
	return rc;
}

/* The daemon punches the hole, part by part. */
static int punch(uint64_t start, uint64_t end, char *reason)
{
	uint64_t deadline_ms = shim_now_ms() + PATIENCE_MS;
	int rc = 0;

	while (rc == 0 && start < end) {
		struct session_msg msg = {.type = SESSION_PUNCH};
		struct range r = {0};
		uint32_t index;

		shim_lock(&table.lock);
		index = ranges_first(&table.ranges, start);
		if (index < table.ranges.n && table.ranges.at[index].addr <= start)
			r = table.ranges.at[index];
		shim_unlock(&table.lock);
		if (r.len == 0)
			return -ENOMEM;
		msg.segment = r.segment;
		msg.offset = start - r.extent;
		msg.len = (r.addr + r.len < end ? r.addr + r.len : end) - start;
		start += msg.len;
		rc = attach_ask(agent_socket(r.session), &msg, deadline_ms);
		if (rc == 0 && msg.result) {
			shim_copy(reason, SESSION_TEXT_MAX, msg.text);
			rc = -(int)msg.result;
		}
	}
	return rc;
}

static bool any_of_ours(uint64_t start, uint64_t end)
{
	uint32_t index;
	bool found;

	shim_lock(&table.lock);
	index = ranges_first(&table.ranges, start);
	found = index < table.ranges.n && table.ranges.at[index].addr < end;
	shim_unlock(&table.lock);
	return found;
}

/* Remembered for when the segment goes and comes back. */
static void note_nohuge(uint64_t start, uint64_t end, bool nohuge)
{
	uint32_t first, last;

	shim_lock(&table.lock);
	if (ranges_isolate(&table.ranges, start, end, &first, &last) == 0)
		for (; first < last; first++) {
			uint8_t *flags = &table.ranges.at[first].flags;

			*flags = (uint8_t)(nohuge ? *flags | RANGE_NOHUGE : *flags & ~RANGE_NOHUGE);
		}
	ranges_join(&table.ranges);
	shim_unlock(&table.lock);
}

int attach_madvise(void *addr, uint64_t len, int advice)
{
	uint64_t start = (uint64_t)(uintptr_t)addr, end = start + page_up(len);
	char reason[SESSION_TEXT_MAX] = "";
	struct shim_guard guard;
	int rc = -ENOTTY;

	if (!page_aligned(start) || end <= start)
		return -ENOTTY;
	shim_enter(&guard);
	if (!any_of_ours(start, end)) {
		rc = -ENOTTY;
	} else if (advice == MADV_DOFORK) {
		rc = say_refusal("madvise", EINVAL,
				 "MADV_DOFORK: a child gets its mappings of segments by itself");
	} else if (advice == MADV_REMOVE) {
		rc = punch(start, end, reason);
		if (rc)
			say_refusal("madvise(MADV_REMOVE)", -rc, reason);
	} else if (advice == MADV_NOHUGEPAGE || advice == MADV_HUGEPAGE) {
		note_nohuge(start, end, advice == MADV_NOHUGEPAGE);
	}
	shim_leave(&guard);
	return rc;
}
