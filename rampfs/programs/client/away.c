/*
 * A note for each mapping whose page tables a revoke moves to another place in its process
 * (MREMAP_DONTUNMAP). The daemon chooses the places, and believes the kernel alone that they were
 * moved: a remap event says from where to where. So no agent can pass a mapping of its own off as
 * such a place. Events that are not noted here are the program's own.
 *
 * All notes are protected by client->list.
 */
#include <errno.h>
#include <stdlib.h>

#include "away.h"
#include "client.h"

int away_note(struct client *client, ramp_segment_t id, uint64_t home, uint64_t at, uint64_t len)
{
	struct away_note *away = malloc(sizeof(*away));

	if (!away)
		return -ENOMEM;
	*away = (struct away_note){.id = id, .home = home, .at = at, .len = len};
	pthread_mutex_lock(&client->list);
	STAILQ_INSERT_TAIL(&client->away, away, link);
	pthread_mutex_unlock(&client->list);
	return 0;
}

bool away_has(struct client *client, ramp_segment_t id)
{
	struct away_note *away;

	pthread_mutex_lock(&client->list);
	STAILQ_FOREACH (away, &client->away, link)
		if (away->id == id)
			break;
	pthread_mutex_unlock(&client->list);
	return away != NULL;
}

bool away_take_event(struct client *client, uint64_t from, uint64_t to, uint64_t len)
{
	struct away_note *away;

	pthread_mutex_lock(&client->list);
	STAILQ_FOREACH (away, &client->away, link)
		if (away->home == from && away->at == to && away->len == len)
			break;
	if (away)
		away->moved = true;
	pthread_mutex_unlock(&client->list);
	return away != NULL;
}

size_t away_places(struct client *client, ramp_segment_t id,
		   struct address_range places[static AWAY_MAX])
{
	struct away_note *away;
	size_t n = 0;

	pthread_mutex_lock(&client->list);
	STAILQ_FOREACH (away, &client->away, link)
		if (away->id == id && away->moved && n < AWAY_MAX)
			places[n++] = (struct address_range){away->at, away->at + away->len};
	pthread_mutex_unlock(&client->list);
	return n;
}

/* Returns the end of what was moved from that address on; 0: nothing was. list is held. */
static uint64_t moved_from(const struct client *client, ramp_segment_t id, uint64_t at)
{
	const struct away_note *away;

	STAILQ_FOREACH (away, &client->away, link)
		if (away->id == id && away->moved && away->home <= at &&
		    at - away->home < away->len)
			return away->home + away->len;
	return 0;
}

bool away_moved_all(struct client *client, ramp_segment_t id, const struct address_range *ranges,
		    size_t count)
{
	bool all = count <= AWAY_MAX;

	pthread_mutex_lock(&client->list);
	for (size_t i = 0; i < count && all; i++) {
		uint64_t at = ranges[i].start;

		while (at && at < ranges[i].end)
			at = moved_from(client, id, at);
		all = at != 0;
	}
	pthread_mutex_unlock(&client->list);
	return all;
}

/* `all`: of every segment. */
static void drop_notes(struct client *client, ramp_segment_t id, bool all)
{
	struct away_list kept = STAILQ_HEAD_INITIALIZER(kept);
	struct away_note *away;

	pthread_mutex_lock(&client->list);
	while ((away = STAILQ_FIRST(&client->away))) {
		STAILQ_REMOVE_HEAD(&client->away, link);
		if (all || away->id == id)
			free(away);
		else
			STAILQ_INSERT_TAIL(&kept, away, link);
	}
	STAILQ_CONCAT(&client->away, &kept);
	pthread_mutex_unlock(&client->list);
}

void away_drop_notes(struct client *client, ramp_segment_t id)
{
	drop_notes(client, id, false);
}

void away_drop_all_notes(struct client *client)
{
	drop_notes(client, 0, true);
}
