/*
 * A note for each mapping whose page tables a revoke moves to another place in its process
 * (MREMAP_DONTUNMAP). The daemon chooses the places, and believes the kernel alone that they were
 * moved: a remap event says from where to where. So no agent can pass a mapping of its own off as
 * such a place. Events that are not noted here are the program's own. Another kind of note is of a
 * mapping that comes back (SWAP): it only spares a look at all mappings of the process.
 *
 * All notes are protected by client->list.
 */
#include <errno.h>
#include <stdlib.h>

#include "away.h"
#include "client.h"

static int compare_notes(const struct away_note *a, const struct away_note *b)
{
	if (a->home != b->home)
		return a->home < b->home ? -1 : 1;
	return (a->at > b->at) - (a->at < b->at);
}

RB_GENERATE_STATIC(away_notes, away_note, link, compare_notes)

/* A second note of the same place, for another segment, can only be an agent's mistake. */
static int note_new(struct client *client, struct away_note note)
{
	struct away_note *away = malloc(sizeof(*away)), *other;

	if (!away)
		return -ENOMEM;
	*away = note;
	pthread_mutex_lock(&client->list);
	other = RB_INSERT(away_notes, &client->away, away);
	pthread_mutex_unlock(&client->list);
	if (other)
		free(away);
	return other ? -EEXIST : 0;
}

int away_note(struct client *client, ramp_segment_t id, uint64_t home, uint64_t at, uint64_t len)
{
	return note_new(client, (struct away_note){.id = id, .home = home, .at = at, .len = len});
}

/* If that fails, all mappings are looked at once more. */
void away_note_swap(struct client *client, ramp_segment_t id, uint64_t from, uint64_t to,
		    uint64_t len)
{
	(void)note_new(client, (struct away_note){
				       .id = id, .home = from, .at = to, .len = len, .swap = true});
}

bool away_has(struct client *client, ramp_segment_t id)
{
	struct away_note *away;

	pthread_mutex_lock(&client->list);
	RB_FOREACH (away, away_notes, &client->away)
		if (away->id == id && !away->swap)
			break;
	pthread_mutex_unlock(&client->list);
	return away != NULL;
}

/* list is held. NULL: none. */
static struct away_note *find_note(struct client *client, uint64_t from, uint64_t to, uint64_t len,
				   bool swap)
{
	struct away_note key = {.home = from, .at = to};
	struct away_note *away = RB_FIND(away_notes, &client->away, &key);

	return away && away->len == len && away->swap == swap ? away : NULL;
}

bool away_take_swap(struct client *client, uint64_t from, uint64_t to, uint64_t len)
{
	struct away_note *away;

	pthread_mutex_lock(&client->list);
	away = find_note(client, from, to, len, true);
	if (away)
		RB_REMOVE(away_notes, &client->away, away);
	pthread_mutex_unlock(&client->list);
	free(away);
	return away != NULL;
}

bool away_take_event(struct client *client, uint64_t from, uint64_t to, uint64_t len)
{
	struct away_note *away;

	pthread_mutex_lock(&client->list);
	away = find_note(client, from, to, len, false);
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
	RB_FOREACH (away, away_notes, &client->away)
		if (away->id == id && away->moved && n < AWAY_MAX)
			places[n++] = (struct address_range){away->at, away->at + away->len};
	pthread_mutex_unlock(&client->list);
	return n;
}

/* Returns the end of what was moved from exactly that address on; 0: nothing was. list is held. */
static uint64_t moved_from(struct client *client, ramp_segment_t id, uint64_t at)
{
	struct away_note key = {.home = at}, *away = RB_NFIND(away_notes, &client->away, &key);

	/* RB_NEXT has another number of arguments in each version of libuv. */
	for (; away && away->home == at; away = away_notes_RB_NEXT(away))
		if (away->id == id && away->moved)
			return away->home + away->len;
	return 0;
}

uint64_t away_where(struct client *client, ramp_segment_t id, uint64_t at, uint64_t *len)
{
	struct away_note *away;
	uint64_t where = 0;

	pthread_mutex_lock(&client->list);
	RB_FOREACH (away, away_notes, &client->away)
		if (away->id == id && away->moved && away->home <= at &&
		    at - away->home < away->len) {
			where = away->at + (at - away->home);
			*len = away->len - (at - away->home);
			break;
		}
	pthread_mutex_unlock(&client->list);
	return where;
}

bool away_moved_all(struct client *client, ramp_segment_t id, const struct address_range *ranges,
		    size_t count, struct away_found *found)
{
	pthread_mutex_lock(&client->list);
	while (found->ranges < count) {
		const struct address_range *range = &ranges[found->ranges];
		uint64_t end = moved_from(client, id, found->at ? found->at : range->start);

		if (!end)
			break;
		found->at = end < range->end ? end : 0;
		found->ranges += !found->at;
	}
	pthread_mutex_unlock(&client->list);
	return found->ranges == count;
}

/* `all`: of every segment. */
static void drop_notes(struct client *client, ramp_segment_t id, bool all)
{
	struct away_note *away, *next;

	pthread_mutex_lock(&client->list);
	RB_FOREACH_SAFE(away, away_notes, &client->away, next)
	if (all || away->id == id) {
		RB_REMOVE(away_notes, &client->away, away);
		free(away);
	}
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
