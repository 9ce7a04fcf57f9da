/*
 * Drops page-table entries before the window, so that a revoke within it finds few.
 *
 * The cost of a revoke is the entries that it finds. A dropped entry costs a program a page fault
 * at its next touch, which the kernel resolves alone: so entries that are in use come back by
 * themselves, and the others do not.
 *
 * Happy path: at CONNECT entries of small pages only are dropped, chunk by chunk and with pauses,
 * since a gigabyte of them takes its time (drop_ahead_cold). Right before the freeze all entries
 * are dropped at once, and then again those that have come back meanwhile, for as long as there are
 * fewer every time (drop_ahead_last): the window is left with what programs touch in the time of
 * the last round, however much they use.
 *
 * How it fails: it is a help and no promise. Where an agent does not answer, or is stopped, or the
 * time is over, the revoke finds more. Private mappings are left to the revoke, too, since a
 * program may make copies in them at any time. Nothing has to be undone.
 */
#include <unistd.h>

#include "base/clock.h"
#include "base/session.h"
#include "drop_ahead.h"
#include "programs/attach/agent_call.h"
#include "programs/attach/mapped_segment.h"
#include "programs/client/clients.h"

#define CHUNK_BYTES  (UINT64_C(4) << 20)
#define HUGE_BYTES   (UINT64_C(2) << 20)
#define COLD_MS	     1000u
#define LAST_MS	     500u
#define LAST_ROUNDS  6
#define FEW_US	     150u
#define ANSWER_MS    200u
#define PAUSE_MAX_US 2000u

static bool can_drop(const struct mapping_ref *ref)
{
	return !ref->gone && ref->writable && !atomic_load(&ref->client->stopped);
}

static bool ask_drop(struct mapped_segment *mseg, struct client *client, struct session_msg *msg)
{
	msg->type = SESSION_DROP;
	msg->segment = mseg->id;
	return !agent_call(client, msg, -1, clock_ms() + ANSWER_MS, NULL);
}

/* ---- at CONNECT ----------------------------------------------------------------------------- */

/* How far the chunks have come: refs are sorted by client and address. */
struct cursor {
	const struct client *client;
	uint64_t at;
};

/* Finds the next chunk that has small pages mapped; false: there is none. */
static bool find_chunk(const struct mapping_ref *refs, size_t count, struct cursor *cursor,
		       struct client **client, struct session_range *range)
{
	for (size_t i = 0; i < count; i++) {
		const struct mapping_ref *ref = &refs[i];
		uint64_t from = ref->start, at;

		if (!can_drop(ref) || (uintptr_t)ref->client < (uintptr_t)cursor->client)
			continue;
		if (ref->client == cursor->client && cursor->at > from)
			from = cursor->at;
		if (from >= ref->end ||
		    mappings_small(&ref->client->mappings, from, ref->end, &at) <= 0)
			continue;
		*client = ref->client;
		range->addr = at - at % HUGE_BYTES > from ? at - at % HUGE_BYTES : from;
		range->len = CHUNK_BYTES;
		if (range->len > ref->end - range->addr)
			range->len = ref->end - range->addr;
		*cursor = (struct cursor){ref->client, range->addr + range->len};
		return true;
	}
	return false;
}

/* Drops one chunk. Takes change for this chunk only, so that attaches need not wait. Returns 1; 0
   when all is done. */
static int drop_chunk(struct mapped_segment *mseg, struct cursor *cursor)
{
	struct session_msg msg = {.count = 1};
	struct mapping_ref *refs = NULL;
	struct client *client;
	size_t count = 0;
	int found = 0;

	pthread_mutex_lock(&mseg->change);
	if (mseg->state == MSEG_OPEN && !mseg->pulling && !mseg_refs(mseg, &refs, &count))
		found = find_chunk(refs, count, cursor, &client, &msg.ranges[0]);
	if (found && (client_stopped(client) || !ask_drop(mseg, client, &msg)))
		cursor->at = UINT64_MAX;
	mapping_refs_free(refs, count);
	pthread_mutex_unlock(&mseg->change);
	return found;
}

void drop_ahead_cold(struct mapped_segment *mseg)
{
	uint64_t until_us = clock_us() + COLD_MS * 1000u, began_us = clock_us();
	struct cursor cursor = {0};

	while (drop_chunk(mseg, &cursor) && clock_us() < until_us) {
		uint64_t took_us = clock_us() - began_us;

		/* The agent runs before every thread of the program: these get their turn now. */
		usleep((useconds_t)(took_us < PAUSE_MAX_US ? took_us : PAUSE_MAX_US) / 2);
		began_us = clock_us();
	}
}

/* ---- right before the window ---------------------------------------------------------------- */

/* Drops all ranges of one client, from refs[*i] on. */
static void drop_client(struct mapped_segment *mseg, const struct mapping_ref *refs, size_t count,
			size_t *i)
{
	struct client *client = refs[*i].client;

	while (*i < count && refs[*i].client == client) {
		struct session_msg msg = {0};

		for (; *i < count && refs[*i].client == client && msg.count < SESSION_RANGES_MAX;
		     ++*i)
			if (can_drop(&refs[*i]))
				msg.ranges[msg.count++] = (struct session_range){
					refs[*i].start, refs[*i].end - refs[*i].start};
		if (msg.count)
			ask_drop(mseg, client, &msg);
	}
}

void drop_ahead_last(struct mapped_segment *mseg, const struct mapping_ref *refs, size_t count)
{
	uint64_t began_us = clock_us(), last_us = UINT64_MAX, took_us = 0;

	if (mseg->pulling)
		return;
	for (int round = 0; round < LAST_ROUNDS && clock_us() - began_us < LAST_MS * 1000u;
	     round++) {
		uint64_t from_us = clock_us();

		for (size_t i = 0; i < count;)
			drop_client(mseg, refs, count, &i);
		took_us = clock_us() - from_us;
		if (took_us < FEW_US || took_us > last_us / 4 * 3)
			return;
		last_us = took_us;
	}
}
