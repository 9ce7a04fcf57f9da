/*
 * ATTACH of a segment for which this node has room and which is not here yet (SESSION_AHEAD).
 *
 * Happy path: MAP has the agent enter the range in its table, with the empty file and without access;
 * GONE puts the empty file there again, as one that has left. From then on the process is one that
 * had the segment mapped: when it comes, programs_back puts it in its place, before anything is
 * committed.
 *
 * How it fails: after MAP by UNMAP. Where the segment does not come the empty file stays, and a touch
 * of it is SIGBUS, until the program unmaps it.
 */
#include "ahead.h"

#include <errno.h>
#include <unistd.h>

#include "agent_call.h"
#include "attachments.h"
#include "base/clock.h"
#include "base/session.h"
#include "give_back.h"
#include "programs/client/clients.h"
#include "replace.h"

#define AHEAD_MS 1000u /* other threads wait for the lock meanwhile */

static int map_empty(struct programs *p, struct client *client, const struct attach_range *wish,
		     uint64_t until_ms)
{
	struct session_msg map = {
		.type = SESSION_MAP,
		.segment = wish->id,
		.addr = wish->addr,
		.len = wish->len,
		.offset = wish->offset,
		.prot = wish->prot,
		.flags = wish->writable ? 0 : SESSION_PRIVATE,
	};
	int rc, fd = replace_open_empty(p, wish->id, wish->writable);

	if (fd < 0)
		return fd;
	rc = agent_call(client, &map, fd, until_ms, NULL);
	close(fd);
	return rc;
}

/* change is held. */
static int map_gone(struct programs *p, struct mapped_segment *mseg, struct client *client,
		    const struct attach_range *wish)
{
	struct session_msg unmap = {.type = SESSION_UNMAP, .addr = wish->addr, .len = wish->len};
	struct mapping_ref ref = {
		.client = client,
		.start = wish->addr,
		.end = wish->addr + wish->len,
		.offset = wish->offset,
		.prot = wish->prot,
		.writable = wish->writable,
	};
	uint64_t until_ms = clock_ms() + AHEAD_MS;
	int rc = map_empty(p, client, wish, until_ms);

	if (rc)
		return rc;
	rc = replace_gone(p, mseg, &ref, false, until_ms);
	if (rc && rc != -ETIMEDOUT)
		agent_call(client, &unmap, -1, until_ms, NULL);
	return rc;
}

int ahead_map(struct programs *p, struct mapped_segment *mseg, struct client *client,
	      const struct attach_range *wish)
{
	int rc = -EAGAIN, looked;

	pthread_mutex_lock(&mseg->change);
	/* Under the lock: the look for mappings that stand in the way of giving addresses back comes
	   before, or after. */
	if (!give_back_allows(p, wish->id, wish->addr, wish->addr + wish->len)) {
		rc = -EADDRNOTAVAIL;
	} else if (mseg->state == MSEG_GONE) {
		rc = map_gone(p, mseg, client, wish);
		looked = mseg_look(p, mseg, client);
		rc = rc ? rc : looked;
	}
	pthread_mutex_unlock(&mseg->change);
	return rc;
}
