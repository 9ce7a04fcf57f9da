/*
 * A store that fills up while programs map segments. The kernel lets a program take a page of the
 * store without asking the daemon, and answers with SIGBUS when there is none left. A program that
 * dies of that can't say why, so its agent says it before.
 *
 * Happy path: the daemon looks at the store's free memory, the more often the less of it there is,
 * for as long as programs have sessions, and when one of them ends. When little is left, the log
 * and each program get a line; again when it was freed and has run out, at most once a minute. A
 * program that comes when there is little left gets one, too, but of many that come at once one.
 *
 * How it fails: a program that fills faster than it is looked at dies before its line; the log has
 * it all the same.
 */
#include "full_store.h"

#include <stdio.h>
#include <string.h>

#include "attach/agent_call.h"
#include "base/clock.h"
#include "base/log.h"
#include "client/client.h"
#include "client/clients.h"
#include "client/workers.h"
#include "memory/store.h"
#include "programs.h"

#define NEAR_PART      32 /* of the capacity: nearly full */
#define NEAR_MIN_BYTES (UINT64_C(4) << 20)
#define NEAR_MAX_BYTES (UINT64_C(256) << 20)
#define FILL_PER_MS    (UINT64_C(4) << 20) /* what programs fill at most */
#define LOOK_MIN_MS    10u
#define LOOK_MAX_MS    1000u
#define SAY_AGAIN_MS   60000u
#define NEW_MS	       1000u
#define TELL_MS	       1000u
#define LINE_BYTES     160
#define MIB(bytes)     ((double)(bytes) / (1 << 20))

static void put_line(const struct store_space *space, char line[LINE_BYTES])
{
	snprintf(line, LINE_BYTES,
		 "the store of this node is nearly full, %.1f of %.1f MiB are free: a program's "
		 "store "
		 "into a page that takes no memory yet is SIGBUS when it is full",
		 MIB(space->free_bytes), MIB(space->capacity_bytes));
}

/* Takes the caller's reference. */
static void tell(void *arg)
{
	struct client *client = arg;
	struct session_msg msg = {.type = SESSION_SAY};
	struct store_space space;
	char line[LINE_BYTES];

	store_space(client->programs->store, &space);
	put_line(&space, line);
	snprintf(msg.text, sizeof(msg.text), "rampfs: %s", line);
	agent_call(client, &msg, -1, clock_ms() + TELL_MS, NULL);
	client_put(client);
}

static void tell_all(void *arg)
{
	struct programs *p = arg;
	struct client **clients = NULL;
	size_t count = 0;

	if (clients_get_ready(p, &clients, &count) == 0)
		for (size_t i = 0; i < count; i++)
			workers_run_own(p->workers, clients[i]->uid, tell, client_get(clients[i]));
	clients_free(clients, count);
}

static void say_full(struct full_store *full, const struct store_space *space)
{
	struct programs *p = full->programs;
	uint64_t now_ms = clock_ms();
	char line[LINE_BYTES];

	if (now_ms < full->say_again_ms)
		return;
	full->say_again_ms = now_ms + SAY_AGAIN_MS;
	put_line(space, line);
	log_warn("%s", line);
	workers_run_own(p->workers, WORKERS_SELF, tell_all, p);
}

uint32_t full_store_look(struct full_store *full)
{
	struct store_space space;
	uint64_t near, ms;

	store_space(full->programs->store, &space);
	near = space.capacity_bytes / NEAR_PART;
	near = near < NEAR_MIN_BYTES   ? NEAR_MIN_BYTES
	       : near > NEAR_MAX_BYTES ? NEAR_MAX_BYTES
				       : near;
	if (space.free_bytes <= near) {
		if (!atomic_exchange(&full->full, true))
			say_full(full, &space);
		return LOOK_MAX_MS;
	}
	if (space.free_bytes > 2 * near)
		atomic_store(&full->full, false);
	ms = (space.free_bytes - near) / FILL_PER_MS;
	return ms < LOOK_MIN_MS ? LOOK_MIN_MS : ms > LOOK_MAX_MS ? LOOK_MAX_MS : (uint32_t)ms;
}

void full_store_tell_new(struct full_store *full, struct client *client)
{
	uint64_t now_ms = clock_ms(), last_ms = atomic_load(&full->new_ms);

	if (atomic_load(&full->full) && now_ms >= last_ms + NEW_MS &&
	    atomic_compare_exchange_strong(&full->new_ms, &last_ms, now_ms))
		tell(client_get(client));
}
