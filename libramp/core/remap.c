/*
 * Happy path: a system call, and the change of the table's entries that goes with it, under the
 * table's lock; no message. The daemon reads the mappings from /proc. Only a hole (MADV_REMOVE)
 * is punched by the daemon; and it is asked once before a mapping grows, which takes its neighbour's
 * registration over.
 *
 * How it fails: a call that would move a segment from its address, let it grow past its extent or
 * have a fork copy it is refused with a line; all else fails as the kernel says. A mapping that is
 * gone is changed all the same: it comes back as it was left.
 */
#include "remap.h"

#include <errno.h>
#include <sys/mman.h>

#include "agent.h"
#include "base/clock.h"
#include "base/kernel.h"
#include "base/session.h"
#include "daemon_request.h"
#include "say.h"
#include "sys.h"
#include "table.h"

/* Longer than a daemon takes to give up by itself (SESSION_PUNCH_MS): after it, the daemon has died
   or hangs. */
#define PUNCH_PATIENCE_MS 10000
#define PUNCH_PART	  (UINT64_C(1) << 30) /* bytes, which the kernel punches in no time */
#define GROW_PATIENCE_MS  10000
#define RETRY_PAUSE_MS	  5
#define PROT_ALL	  (PROT_READ | PROT_WRITE | PROT_EXEC)

/* Whether the range has pages, and the last one does not lie before the first. */
static bool ends_behind(uint64_t start, uint64_t len)
{
	return len <= UINT64_MAX - RAMP_PAGE_BYTES && start + page_up(len) > start;
}

static bool any_of_ours(uint64_t start, uint64_t end)
{
	uint32_t index;
	bool found;

	futex_lock(&table.lock);
	index = ranges_first(&table.ranges, start);
	found = index < table.ranges.n && table.ranges.at[index].addr < end;
	futex_unlock(&table.lock);
	return found;
}

int remap_over_begin(struct signal_guard *guard, const void *addr, uint64_t len)
{
	uint64_t start = (uint64_t)(uintptr_t)addr;
	uint32_t ignored;
	int rc = 0;

	guard_enter(guard);
	table_lock_settled();
	/* After the call it would be too late to find the table full. */
	if (page_aligned(start) && ends_behind(start, len))
		rc = ranges_isolate(&table.ranges, start, start + page_up(len), &ignored, &ignored);
	if (rc) {
		futex_unlock(&table.lock);
		guard_leave(guard);
	}
	return rc;
}

void remap_over_end(const struct signal_guard *guard, const void *addr, uint64_t len)
{
	uint64_t start = (uint64_t)(uintptr_t)addr;
	uint32_t first, last;

	if (len && ranges_isolate(&table.ranges, start, start + page_up(len), &first, &last) == 0)
		for (; first < last; last--)
			ranges_remove(&table.ranges, first);
	ranges_join(&table.ranges);
	futex_unlock(&table.lock);
	guard_leave(guard);
}

static int munmap_ranges(void *addr, uint64_t len, int session,
			 int (*unmap_rest)(void *addr, size_t length))
{
	uint64_t start = (uint64_t)(uintptr_t)addr;
	struct signal_guard guard;
	int rc;

	if (!page_aligned(start) || !ends_behind(start, len))
		return -EINVAL;
	guard_enter(&guard);
	futex_lock(&table.lock);
	rc = session == TABLE_ANY ? table_release(start, start + page_up(len), unmap_rest)
				  : table_release_of(start, start + page_up(len), (uint8_t)session);
	futex_unlock(&table.lock);
	guard_leave(&guard);
	return rc;
}

int remap_munmap(void *addr, uint64_t len, int (*unmap_rest)(void *addr, size_t length))
{
	return munmap_ranges(addr, len, TABLE_ANY, unmap_rest);
}

int remap_munmap_of(void *addr, uint64_t len, uint8_t session)
{
	return munmap_ranges(addr, len, session, NULL);
}

/* Whether the kernel came this far before it failed. *at is the end of the range before; it becomes
   this range's end. */
static bool is_protected(const struct range *r, uint64_t *at, int prot)
{
	bool next = r->addr == *at;

	*at = r->addr + r->len;
	return next && sys_mprotect(r->addr, r->len, prot) == 0;
}

/* Under table.lock. pkey: a protection key, -1 for none. */
static int protect(uint64_t start, uint64_t len, int prot, int pkey)
{
	uint32_t first, last;
	int rc;

	rc = ranges_isolate(&table.ranges, start, start + len, &first, &last);
	if (rc)
		return rc;
	for (uint32_t i = first; i < last; i++)
		if ((prot & PROT_WRITE) && (table.ranges.at[i].flags & RANGE_READONLY))
			return -EACCES;
	rc = pkey == -1 ? sys_mprotect(start, len, prot)
			: sys_pkey_mprotect(start, len, prot, pkey);
	for (; first < last && (rc == 0 || is_protected(&table.ranges.at[first], &start, prot));
	     first++)
		table.ranges.at[first].prot = (uint8_t)(prot & PROT_ALL);
	ranges_join(&table.ranges);
	return rc;
}

int remap_mprotect(void *addr, uint64_t len, int prot, int pkey)
{
	uint64_t start = (uint64_t)(uintptr_t)addr;
	struct signal_guard guard;
	int rc;

	if (!page_aligned(start))
		return -EINVAL;
	if (len && !ends_behind(start, len))
		return -ENOMEM;
	guard_enter(&guard);
	/* A mapping that comes back has no key: memory that the key guarded would be open. */
	if (pkey > 0 && any_of_ours(start, start + page_up(len))) {
		rc = say_refusal("pkey_mprotect", EINVAL, "a segment takes no protection key");
	} else {
		table_lock_settled(); /* a swap under way would put the old protection in place */
		rc = protect(start, page_up(len), prot, pkey);
		futex_unlock(&table.lock);
	}
	guard_leave(&guard);
	return rc;
}

/* Which daemon is to be asked before a mapping grows, and in which of its sessions. */
struct growth_question {
	bool is_due;
	uint8_t agent;
	uint32_t session;
};

/*
 * Grows the mapping before the gap over the gap. The kernel wants a range that ends where its
 * mapping ends, so the mapping's last page is given. Under table.lock.
 */
static int grow_over(uint64_t start, uint64_t end, struct growth_question *question)
{
	uint32_t before = ranges_first(&table.ranges, start - 1);
	struct range range = table.ranges.at[before];
	long at;
	int rc;

	question->agent = range.session;
	question->is_due = agent_asks_growth(range.session, &question->session);
	if (question->is_due)
		return -EAGAIN;
	at = sys_mremap(start - RAMP_PAGE_BYTES, RAMP_PAGE_BYTES, RAMP_PAGE_BYTES + (end - start),
			0, 0);
	if (at < 0)
		return (int)at;
	range.addr = start;
	range.len = end - start;
	range.count = 1;
	rc = table_add(&range);
	if (rc)
		sys_munmap(start, end - start);
	return rc;
}

/* Adds [start, end), and counts the parts of it that are mapped already. Under table.lock. */
static int grow(uint64_t start, uint64_t end, struct growth_question *question)
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
		rc = grow_over(gap_start, gap_end, question);
		if (rc)
			break;
		at = gap_end;
	}
	/* Something foreign is there, or the kernel has no room: all is as before. */
	if (rc)
		table_release(start, end, NULL);
	ranges_join(&table.ranges);
	return rc;
}

struct mremap_call {
	uint64_t old, old_len, new_len;
	int flags;
	struct growth_question question;
};

/* Under table.lock. *reason: the text to write, where the kernel's errno is not enough. */
static int remap(struct mremap_call *call, const char **reason)
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
	if (old_end <= call->old)
		return -EFAULT;
	if (new_end <= call->old)
		return -ENOMEM;
	if (ranges_gap(&table.ranges, call->old, old_end, &gap_start, &gap_end))
		return -EFAULT;
	if (new_end <= old_end)
		return new_end == old_end ? 0 : table_release(new_end, old_end, NULL);
	if (new_end > table.ranges.at[index].end_max) {
		*reason = "the segment's extent ends before; set user.ramp.extent before its first "
			  "mapping";
		return -ENOMEM;
	}
	return grow(old_end, new_end, &call->question);
}

/* Asks the daemon, also one that has just started. 0; -EAGAIN: another session has begun, or no daemon is to be
   asked any more; another negative errno: it must not grow. */
static int ask_to_grow(const struct growth_question *question)
{
	uint64_t deadline_ms = clock_ms() + GROW_PATIENCE_MS;
	struct session_msg msg;
	uint32_t session;
	bool same;
	int rc;

	for (;;) {
		msg = (struct session_msg){.type = SESSION_GROW};
		rc = daemon_request(agent_socket(question->agent), &msg, deadline_ms);
		futex_lock(&table.lock);
		same = agent_asks_growth(question->agent, &session) && session == question->session;
		if (same && !rc && !msg.result)
			agent_note_grown(question->agent, session);
		futex_unlock(&table.lock);
		if (!same)
			return -EAGAIN;
		if (!rc)
			return -(int)msg.result;
		if (rc != -EPIPE || clock_ms() >= deadline_ms)
			return rc;
		sys_pause_ms(RETRY_PAUSE_MS);
	}
}

int remap_mremap(void *old, uint64_t old_len, uint64_t new_len, int flags)
{
	struct mremap_call call = {.old = (uint64_t)(uintptr_t)old,
				   .old_len = page_up(old_len),
				   .new_len = page_up(new_len),
				   .flags = flags};
	const char *reason = NULL;
	struct signal_guard guard;
	int rc;

	guard_enter(&guard);
	do {
		call.question.is_due = false;
		/* Settled: else the empty file would grow, and not the mapping that replaces it. */
		table_lock_settled();
		rc = remap(&call, &reason);
		futex_unlock(&table.lock);
		if (call.question.is_due)
			rc = ask_to_grow(&call.question);
	} while (call.question.is_due && (!rc || rc == -EAGAIN));
	if (call.question.is_due) {
		reason = "the daemon does not agree that it grows, or does not answer";
		rc = -ENOMEM;
	}
	if (reason)
		say_refusal("mremap", -rc, reason);
	guard_leave(&guard);
	return rc;
}

/* Asks for one part of a hole. How much a daemon that dies meanwhile has done is not known; the
   next daemon does it (again) once our agent has connected to it. */
static int ask_punch(const char *path, struct session_msg *msg)
{
	const struct session_msg asked = *msg;
	uint64_t deadline_ms = clock_ms() + PUNCH_PATIENCE_MS;
	int rc = daemon_request(path, msg, deadline_ms);

	while ((rc == -EPIPE || (rc == 0 && msg->result == EPERM)) && clock_ms() < deadline_ms) {
		sys_pause_ms(RETRY_PAUSE_MS);
		*msg = asked;
		rc = daemon_request(path, msg, clock_ms() + PUNCH_PATIENCE_MS);
	}
	return rc == -EPIPE || (rc == 0 && msg->result == EPERM) ? -ETIMEDOUT : rc;
}

/* Has the daemon punch the hole, part by part. */
static int punch(uint64_t start, uint64_t end, char *reason)
{
	int rc = 0;

	while (rc == 0 && start < end) {
		struct session_msg msg = {.type = SESSION_PUNCH};
		struct range r = {0};
		uint64_t left;
		uint32_t index;

		futex_lock(&table.lock);
		index = ranges_first(&table.ranges, start);
		if (index < table.ranges.n && table.ranges.at[index].addr <= start)
			r = table.ranges.at[index];
		futex_unlock(&table.lock);
		if (r.len == 0)
			return -ENOMEM;
		msg.segment = r.segment;
		msg.offset = start - r.extent;
		msg.len = (r.addr + r.len < end ? r.addr + r.len : end) - start;
		left = PUNCH_PART - msg.offset % PUNCH_PART;
		if (msg.len > left)
			msg.len = left;
		start += msg.len;
		rc = ask_punch(agent_socket(r.session), &msg);
		if (rc == 0 && msg.result) {
			copy_text(reason, SESSION_TEXT_MAX, msg.text);
			rc = -(int)msg.result;
		}
	}
	return rc;
}

/* Whether any page of it is locked: MADV_COLD, which changes nothing but how long pages that are not
   used stay, is EINVAL there. */
static bool any_locked(uint64_t start, uint64_t end)
{
	return sys_madvise(start, end - start, MADV_COLD) == -EINVAL;
}

/* Notes the advice for when the segment goes and comes back. */
static void note_nohuge(uint64_t start, uint64_t end, bool nohuge)
{
	uint32_t first, last;

	futex_lock(&table.lock);
	if (ranges_isolate(&table.ranges, start, end, &first, &last) == 0)
		for (; first < last; first++) {
			uint8_t *flags = &table.ranges.at[first].flags;

			*flags = (uint8_t)(nohuge ? *flags | RANGE_NOHUGE : *flags & ~RANGE_NOHUGE);
		}
	ranges_join(&table.ranges);
	futex_unlock(&table.lock);
}

int remap_madvise(void *addr, uint64_t len, int advice)
{
	uint64_t start = (uint64_t)(uintptr_t)addr, end = start + page_up(len);
	char reason[SESSION_TEXT_MAX] = "";
	struct signal_guard guard;
	int rc = -ENOTTY;

	if (!page_aligned(start) || end <= start)
		return -ENOTTY;
	guard_enter(&guard);
	if (!any_of_ours(start, end)) {
		rc = -ENOTTY;
	} else if (advice == MADV_DOFORK) {
		rc = say_refusal("madvise", EINVAL,
				 "MADV_DOFORK: a child gets its mappings of segments by itself");
	} else if (advice == MADV_GUARD_INSTALL) {
		/* In a range whose writes are tracked the kernel would not return from it. */
		rc = say_refusal("madvise", EINVAL,
				 "MADV_GUARD_INSTALL: a segment takes no guard pages");
	} else if (advice == MADV_REMOVE && any_locked(start, end)) {
		rc = -EINVAL;
	} else if (advice == MADV_REMOVE) {
		rc = punch(start, end, reason);
		if (rc)
			say_refusal("madvise(MADV_REMOVE)", -rc, reason);
	} else if (advice == MADV_NOHUGEPAGE || advice == MADV_HUGEPAGE) {
		note_nohuge(start, end, advice == MADV_NOHUGEPAGE);
	}
	guard_leave(&guard);
	return rc;
}

/* Refuses: the kernel would map the file again there, not registered, and also in a fork's
   child. */
int remap_file_pages_refuse(void *addr, uint64_t len)
{
	uint64_t start = (uint64_t)(uintptr_t)addr;
	struct signal_guard guard;
	int rc = -ENOTTY;

	guard_enter(&guard);
	if (any_of_ours(start, start + page_up(len)))
		rc = say_refusal("remap_file_pages", EINVAL,
				 "the pages of a segment stay in their order");
	guard_leave(&guard);
	return rc;
}
