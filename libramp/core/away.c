/*
 * Happy path: RESERVE keeps an address range free for each mapping, and begins the guard
 * (move_guard.c). MOVE moves the page tables there, which takes as long for a gigabyte as for a page:
 * the mapping stays, empty, and each access to it waits. RETURN moves them back, and nothing has to be
 * faulted in again.
 *
 * How it fails: a mapping that refuses, or is locked, is dropped instead (commands.c). To unmap what is away is
 * the same as to drop it, and right at any time: so that is done where it can't be moved back, where
 * the program has unmapped its mapping meanwhile, and where the segment has gone. It takes 50 ms a
 * gigabyte of small pages, and waits for no message at the session's socket.
 *
 * What the program does meanwhile happens to the mapping that is in place, and counts: protection and
 * huge pages are set again by the table. Other advice, and a lock (mlock) that it sets meanwhile, are
 * lost: they were of the mapping that was in place.
 */
#include "away.h"

#include <errno.h>
#include <poll.h>
#include <sys/mman.h>

#include "fork_gate.h"
#include "sys.h"
#include "table.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

#define RETURN_TRIES	   10
#define SETTLE_PATIENCE_MS 5
/* unmapped at a time, a millisecond of small pages at most */
#define TRASH_BYTES    (UINT64_C(16) << 20)
#define TRASH_PAUSE_MS 1

/* ---- places ---- */

static struct away *find_free(struct agent_session *session)
{
	for (uint32_t i = 0; i < session->n_away; i++)
		if (!session->away[i].at)
			return &session->away[i];
	if (session->n_away == AWAY_MAX)
		return NULL;
	session->away[session->n_away] = (struct away){0};
	return &session->away[session->n_away++];
}

int away_reserve(struct agent_session *session, const struct session_msg *msg)
{
	struct away *away = msg->len ? find_free(session) : NULL;
	long at;
	int rc;

	if (!away)
		return msg->len ? ENOSPC : 0;
	if (!msg->scratch || !page_aligned(msg->addr | msg->len | msg->scratch))
		return EINVAL;
	rc = move_guard_begin(&session->guard, session->sock, session->uffd);
	if (rc)
		return rc;
	at = fork_gate_mmap(msg->scratch, msg->len, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
			    0);
	if (at < 0)
		return (int)-at;
	*away = (struct away){
		.home = msg->addr, .at = msg->scratch, .len = msg->len, .segment = msg->segment};
	return 0;
}

static void give_up(struct away *away)
{
	sys_munmap(away->at, away->len);
	*away = (struct away){0};
}

/* ---- MOVE ---- */

static bool is_live(const struct agent_session *session, const struct away *away,
		    const struct range *r)
{
	return r->segment == away->segment && r->session == session->index &&
	       !(r->flags & RANGE_GONE);
}

/* Whether all of the mapping is the program's and the segment's by the table; notes how it is
   mapped. */
static bool is_whole(const struct agent_session *session, struct away *away)
{
	uint64_t at = away->home, end = away->home + away->len;

	for (uint32_t i = ranges_first(&table.ranges, at);
	     i < table.ranges.n && table.ranges.at[i].addr <= at && at < end; i++) {
		const struct range *r = &table.ranges.at[i];

		if (!is_live(session, away, r))
			return false;
		away->prot = r->prot;
		away->nohuge = r->flags & RANGE_NOHUGE;
		at = r->addr + r->len;
	}
	return at >= end;
}

/* Whether a part of the mapping is locked (mlock): MREMAP_DONTUNMAP would count it as locked twice,
   for ever (tried: Linux 6.18). For that msync(2) with MS_INVALIDATE alone is EBUSY, and it does nothing
   else. (MADV_COLD would say it, too, but splits a huge page and has all processors flush.) */
static bool is_locked(const struct away *away)
{
	return sys_msync(away->home, away->len, MS_INVALIDATE) == -EBUSY;
}

static bool is_asked(const struct session_msg *msg, const struct away *away)
{
	for (uint32_t i = 0; i < msg->count; i++)
		if (away->home >= msg->ranges[i].addr &&
		    away->home + away->len <= msg->ranges[i].addr + msg->ranges[i].len)
			return true;
	return false;
}

void away_move(struct agent_session *session, const struct session_msg *msg)
{
	for (uint32_t i = 0; i < session->n_away; i++) {
		struct away *away = &session->away[i];

		if (!away->at || away->moved || away->segment != msg->segment ||
		    !is_asked(msg, away))
			continue;
		if (move_guard_stands(&session->guard) && is_whole(session, away) &&
		    !is_locked(away))
			away->moved = sys_mremap(away->home, away->len, away->len,
						 MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
						 away->at) >= 0;
		if (!away->moved)
			give_up(away);
	}
}

static bool is_moved(const struct away *away, uint64_t segment)
{
	return away->at && away->moved && !away->trash && away->segment == segment;
}

/* Returns the end of what was moved from around that address, or 0. Looks from entry *from on: the
   daemon names places in the order of addresses. */
static uint64_t moved_until(const struct agent_session *session, uint64_t segment, uint64_t at,
			    uint32_t *from)
{
	for (uint32_t i = 0; i < session->n_away; i++) {
		uint32_t entry = (*from + i) % session->n_away;
		const struct away *away = &session->away[entry];

		if (is_moved(away, segment) && away->home <= at && away->home + away->len > at) {
			*from = entry + 1;
			return away->home + away->len;
		}
	}
	return 0;
}

bool away_gap(const struct agent_session *session, uint64_t segment, uint64_t at, uint64_t end,
	      uint64_t *from, uint64_t *to)
{
	uint32_t entry = 0;
	uint64_t until;

	while (at < end && (until = moved_until(session, segment, at, &entry)))
		at = until;
	*from = at;
	*to = end;
	for (uint32_t i = 0; i < session->n_away; i++) {
		const struct away *away = &session->away[i];

		if (is_moved(away, segment) && away->home > at && away->home < *to)
			*to = away->home;
	}
	return at < end;
}

/* ---- RETURN ---- */

/* Moves one part back, with the protection that the program wants by now. Where the process may have
   no more mappings, the part is unmapped: its pages are faulted in again. */
static void return_part(const struct away *away, const struct range *r)
{
	uint64_t from = away->at + (r->addr - away->home);
	bool nohuge = r->flags & RANGE_NOHUGE;
	long at = -1;

	if (r->prot != away->prot)
		sys_mprotect(from, r->len, r->prot);
	for (int i = 0; at < 0 && i < RETURN_TRIES; i++) {
		if (i)
			sys_pause_ms(1);
		at = sys_mremap(from, r->len, r->len, MREMAP_MAYMOVE | MREMAP_FIXED, r->addr);
	}
	if (at < 0)
		sys_munmap(from, r->len);
	else if (nohuge != away->nohuge)
		sys_madvise(r->addr, r->len, nohuge ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
}

/* Moves back what the program still has there, and unmaps the rest. Under table.lock. */
static void return_one(const struct agent_session *session, struct away *away)
{
	uint64_t at = away->home, end = away->home + away->len;
	uint32_t i, last;

	table_pieces(away->home, away->len, &i, &last);
	for (; i < last; i++) {
		const struct range *r = &table.ranges.at[i];

		if (!is_live(session, away, r))
			continue;
		if (r->addr > at)
			sys_munmap(away->at + (at - away->home), r->addr - at);
		return_part(away, r);
		at = r->addr + r->len;
	}
	if (at < end)
		sys_munmap(away->at + (at - away->home), end - at);
	ranges_join(&table.ranges);
	*away = (struct away){0};
}

static bool is_idle(const struct agent_session *session)
{
	for (uint32_t i = 0; i < session->n_away; i++)
		if (session->away[i].at && !session->away[i].trash)
			return false;
	return true;
}

int away_return(struct agent_session *session, const struct session_msg *msg)
{
	bool forget = msg->flags & SESSION_FORGET;
	bool locked = !forget && table_agent_lock();

	for (uint32_t i = 0; i < session->n_away; i++) {
		struct away *away = &session->away[i];

		if (!away->at || away->segment != msg->segment)
			continue;
		if (!away->moved || (msg->flags & SESSION_NOW))
			give_up(away);
		else if (away->trash || !locked)
			away->trash = true;
		else
			return_one(session, away);
	}
	table_agent_unlock(locked);
	if (is_idle(session))
		move_guard_end(&session->guard);
	return 0;
}

/* ---- what is not moved back ---- */

bool away_any(const struct agent_session *session)
{
	for (uint32_t i = 0; i < session->n_away; i++)
		if (session->away[i].at && session->away[i].moved && !session->away[i].trash)
			return true;
	return false;
}

static bool has_home(const struct agent_session *session, const struct away *away)
{
	for (uint32_t i = ranges_first(&table.ranges, away->home);
	     i < table.ranges.n && table.ranges.at[i].addr < away->home + away->len; i++)
		if (is_live(session, away, &table.ranges.at[i]))
			return true;
	return false;
}

void away_settle(struct agent_session *session)
{
	if (!away_any(session) || !futex_lock_for(&table.lock, SETTLE_PATIENCE_MS))
		return;
	for (uint32_t i = 0; i < session->n_away; i++) {
		struct away *away = &session->away[i];

		if (away->at && away->moved && !has_home(session, away))
			away->trash = true;
	}
	futex_unlock(&table.lock);
}

static struct away *find_trash(struct agent_session *session)
{
	for (uint32_t i = 0; i < session->n_away; i++)
		if (session->away[i].at && session->away[i].trash)
			return &session->away[i];
	return NULL;
}

void away_unmap(struct agent_session *session)
{
	struct pollfd wait = {.fd = session->sock, .events = POLLIN | POLLRDHUP};
	struct away *away;

	while ((away = find_trash(session))) {
		uint64_t len = away->len < TRASH_BYTES ? away->len : TRASH_BYTES;

		sys_munmap(away->at, len);
		away->at += len;
		away->len -= len;
		if (!away->len)
			*away = (struct away){0};
		else if (poll(&wait, 1, TRASH_PAUSE_MS) > 0)
			return;
	}
	while (session->n_away && !session->away[session->n_away - 1].at)
		session->n_away--;
}

void away_hang_up(struct agent_session *session)
{
	move_guard_end(&session->guard);
	for (uint32_t i = 0; i < session->n_away; i++)
		if (session->away[i].at && !session->away[i].moved)
			give_up(&session->away[i]);
	away_settle(session);
}

void away_let_go(struct agent_session *session)
{
	for (uint32_t i = 0; i < session->n_away; i++)
		if (session->away[i].at)
			session->away[i].trash = true;
}
