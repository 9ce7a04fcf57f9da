/*
 * Page tables that a revoke moves away, and back.
 *
 * Happy path: before the window each mapping (VMA) of the segment gets a place in its process where
 * nothing is mapped (RESERVE), outside of the arena, at the same offset within a gigabyte: so whole
 * page tables are moved. In the window the agent moves them there (revoke.c: MOVE). If the move of
 * the segment is given up, they are moved back (RETURN); if it has left, they are unmapped there
 * (RETURN with FORGET), in the background.
 *
 * How it fails: an agent of an older version, a mapping for which there is no place (RLIMIT_AS), or
 * too many of them: these are dropped, as ever. An agent that does not answer a RETURN has it in its
 * socket and carries it out later: until then its process is not revoked from outside
 * (move_away_owes). Meanwhile its program has access all the same: both mappings show the same pages.
 *
 * A daemon that dies leaves page tables away. Its agents say so to the next daemon (SESSION_AWAY),
 * which has them moved back, or unmapped, by the segment's state.
 */
#include <errno.h>

#include "agent_call.h"
#include "attachments.h"
#include "base/clock.h"
#include "base/kernel.h"
#include "move_away.h"
#include "programs/client/away.h"
#include "programs/client/clients.h"
#include "programs/proc/lone_run.h"
#include "programs/programs.h"

#define RESERVE_MS  200u
#define RETURN_MS   1000u
#define PLACE_TRIES 8
#define GIB	    (UINT64_C(1) << 30)
#define LITTLE	    (UINT64_C(256) << 10)
/* Places lie above the arena, where nothing is as a rule, or else below it. */
#define PLACES_LOW  (UINT64_C(1) << 36)
#define PLACES_HIGH UINT64_C(0x700000000000)

/* ---- places --------------------------------------------------------------------------------- */

/* The mappings of one segment in one client. */
struct vmas {
	ramp_segment_t id;
	size_t count;
	struct address_range at[AWAY_MAX];
};

static int on_vma(void *arg, const struct proc_mapping *m)
{
	struct vmas *vmas = arg;

	if (m->id != vmas->id || m->gone)
		return 0;
	if (vmas->count == AWAY_MAX)
		return 1;
	vmas->at[vmas->count++] = (struct address_range){m->start, m->end};
	return 0;
}

/* Finds the first place in [from, end). */
static bool find_place(struct client *client, const struct address_range *vma, uint64_t from,
		       uint64_t end, uint64_t *at)
{
	uint64_t len = vma->end - vma->start;
	struct address_range gap;

	for (; from < end && mappings_gap(&client->mappings, from, end, &gap) == 1;
	     from = gap.end) {
		*at = gap.start + (vma->start - gap.start) % GIB;
		if (*at < gap.end && gap.end - *at >= len)
			return true;
	}
	return false;
}

/* Asks the agent to keep a place for that mapping. -EEXIST: something has been mapped there. */
static int reserve(struct mapped_segment *mseg, struct client *client,
		   const struct address_range *vma, uint64_t at)
{
	struct session_msg msg = {
		.type = SESSION_RESERVE,
		.segment = mseg->id,
		.addr = vma->start,
		.len = vma->end - vma->start,
		.scratch = at,
	};
	int rc = away_note(client, mseg->id, msg.addr, at, msg.len);

	return rc ? rc : agent_call(client, &msg, -1, clock_ms() + RESERVE_MS, NULL);
}

/* Where places may be, and how far each area is used. The mappings come in the order of addresses, so
   their places do, too. */
struct areas {
	struct address_range at[2];
};

/* Returns false where the agent can keep no more. */
static bool prepare_vma(struct mapped_segment *mseg, struct client *client, struct areas *areas,
			const struct address_range *vma)
{
	int rc = -EEXIST;

	for (size_t i = 0; i < 2 && rc == -EEXIST; i++) {
		struct address_range *area = &areas->at[i];
		uint64_t at;

		for (int tries = 0; tries < PLACE_TRIES && rc == -EEXIST &&
				    find_place(client, vma, area->start, area->end, &at);
		     tries++) {
			rc = reserve(mseg, client, vma, at);
			area->start = rc == -EEXIST ? at + GIB : at + (vma->end - vma->start);
		}
	}
	return rc != -ETIMEDOUT && rc != -ESRCH && rc != -EPROTO && rc != -ENOSPC;
}

/*
 * Whether to drop the entries takes no longer than to move them, which is an event for each mapping and
 * a flush for each 2 MiB, unless they lie in whole gigabytes: so where there are few, or huge ones
 * alone. Written bits are lost by that: a segment whose stores are watched is always moved.
 */
static bool is_soon_dropped(struct client *client, const struct address_range *vma)
{
	const struct kernel_page_kind small = {.all = KERNEL_PAGE_PRESENT,
					       .none = KERNEL_PAGE_HUGE};
	uint64_t len = vma->end - vma->start;

	if (len < LITTLE || len >= GIB)
		return len < LITTLE;
	return kernel_pagemap_find(client->mappings.pagemap, vma->start, vma->end, small, NULL) ==
	       0;
}

/* Keeps nothing: so the agent expects the window. An older one says that this is EINVAL, and expects it, too. */
static void say_soon(struct mapped_segment *mseg, struct client *client)
{
	struct session_msg msg = {.type = SESSION_RESERVE, .segment = mseg->id};

	agent_call(client, &msg, -1, clock_ms() + RESERVE_MS, NULL);
}

static void prepare_client(struct programs *p, struct mapped_segment *mseg, struct client *client)
{
	struct areas areas = {{{p->arena_hi, PLACES_HIGH}, {PLACES_LOW, p->arena_lo}}};
	struct vmas vmas = {.id = mseg->id};
	bool said = false;

	if (!client->moves || atomic_load(&client->stopped) ||
	    mappings_each(&client->mappings, mseg->lo, mseg->hi, on_vma, &vmas) < 0)
		return;
	for (size_t i = 0; i < vmas.count; i++) {
		if (!mseg->watch && is_soon_dropped(client, &vmas.at[i]))
			continue;
		if (!prepare_vma(mseg, client, &areas, &vmas.at[i]))
			return;
		said = true;
	}
	if (!said)
		say_soon(mseg, client);
}

void move_away_prepare(struct programs *p, struct mapped_segment *mseg)
{
	struct client **clients;
	size_t count;

	clients = mseg_clients(mseg, &count);
	if (!clients) /* no memory: all is dropped */
		return;
	for (size_t i = 0; i < count; i++)
		prepare_client(p, mseg, clients[i]);
	clients_free(clients, count);
}

/* ---- back ----------------------------------------------------------------------------------- */

bool move_away_owes(const struct client *client)
{
	return client->return_serial != 0;
}

/* Sends RETURN and waits for its DONE. */
static void ask_return(struct client *client, ramp_segment_t id, uint32_t flags, uint64_t until_ms)
{
	struct session_msg msg = {.type = SESSION_RETURN, .flags = flags, .segment = id};

	pthread_mutex_lock(&client->io);
	if (agent_ask(client, &msg, -1, until_ms, NULL) == -ETIMEDOUT && !(flags & SESSION_FORGET))
		client->return_serial = msg.serial;
	pthread_mutex_unlock(&client->io);
}

/* The same, also where the process is stopped: its agent is let run, alone. */
static void ask_return_stopped(struct client *client, ramp_segment_t id, uint64_t until_ms)
{
	struct lone_run *run = NULL;

	if (client_stopped(client) && client->pidfd >= 0)
		run = lone_run_begin(client->pid, client_agent_thread(client), client->pidfd,
				     until_ms);
	ask_return(client, id, 0, until_ms);
	lone_run_end(run);
}

/* Whether page tables of that segment may be away there. An agent that has come back for an earlier
   daemon's mappings knows by itself. */
static bool may_be_away(struct client *client, ramp_segment_t id)
{
	return client->came_away || away_has(client, id);
}

/* Unregisters what is to be moved back: so the agent need not wait for its events to be read, and
   no mapping comes back registered, however late. */
static void unregister_places(struct client *client, ramp_segment_t id)
{
	struct address_range places[AWAY_MAX];
	size_t n = away_places(client, id, places);

	for (size_t i = 0; i < n; i++)
		kernel_uffd_unregister(client->uffd, places[i].start,
				       places[i].end - places[i].start);
}

void move_away_return(struct programs *p, struct mapped_segment *mseg)
{
	uint64_t until_ms = clock_ms() + RETURN_MS;
	struct client **clients;
	size_t count;

	if (clients_get_ready(p, &clients, &count))
		return; /* the next RETURN, or FORGET, takes them along */
	for (size_t i = 0; i < count; i++) {
		if (!may_be_away(clients[i], mseg->id))
			continue;
		if (!mseg->pulling)
			unregister_places(clients[i], mseg->id);
		ask_return_stopped(clients[i], mseg->id, until_ms);
		away_drop_notes(clients[i], mseg->id);
	}
	clients_free(clients, count);
}

void move_away_forget(struct programs *p, struct mapped_segment *mseg, struct client *only,
		      bool now)
{
	uint64_t until_ms = now ? clock_ms() + RETURN_MS : 0;
	struct client **clients;
	size_t count;

	if (clients_get_ready(p, &clients, &count))
		return; /* agents whose mappings have gone find out by themselves */
	for (size_t i = 0; i < count; i++) {
		if ((only && clients[i] != only) || !may_be_away(clients[i], mseg->id))
			continue;
		ask_return(clients[i], mseg->id, SESSION_FORGET | (now ? SESSION_NOW : 0),
			   until_ms);
		away_drop_notes(clients[i], mseg->id);
	}
	clients_free(clients, count);
}

/* ---- a session that has come ---------------------------------------------------------------- */

static void return_mseg(struct client *client, struct mapped_segment *mseg)
{
	pthread_mutex_lock(&mseg->change);
	if (mseg->state == MSEG_OPEN)
		ask_return_stopped(client, mseg->id, clock_ms() + RETURN_MS);
	pthread_mutex_unlock(&mseg->change);
}

void move_away_return_client(struct programs *p, struct client *client)
{
	struct mapped_segment *mseg;
	ramp_segment_t last = 0;

	while (client->came_away && (mseg = client_next_mseg(p, client, last))) {
		last = mseg->id;
		return_mseg(client, mseg);
		mseg_put(p, mseg);
	}
}
