/*
 * Regions that a connection may read. See keys.h.
 */
#include "keys.h"

#include <stdlib.h>
#include <string.h>

#define KEYS_ASK_MIN_MS 100u
#define KEYS_ASK_MAX_MS 5000u

struct keys_entry *keys_find(struct keys *keys, const struct tp_key *key)
{
	struct keys_entry *entry = keys->last;

	if (entry && entry->used && tp_key_equal(&entry->key, key))
		return entry;
	for (size_t i = 0; i < KEYS_MAX; i++) {
		entry = &keys->entries[i];
		if (entry->used && tp_key_equal(&entry->key, key)) {
			entry->used = ++keys->uses;
			keys->last = entry;
			return entry;
		}
	}
	return NULL;
}

static void keys_entry_clear(struct keys_entry *entry)
{
	free(entry->regions);
	*entry = (struct keys_entry){0};
}

struct keys_entry *keys_add(struct keys *keys, const struct tp_key *key)
{
	struct keys_entry *oldest = &keys->entries[0];

	for (size_t i = 1; i < KEYS_MAX; i++)
		if (keys->entries[i].used < oldest->used)
			oldest = &keys->entries[i];
	keys_entry_clear(oldest);
	oldest->key = *key;
	oldest->used = ++keys->uses;
	keys->last = oldest;
	return oldest;
}

void keys_asked(struct keys_entry *entry, uint64_t now_ms)
{
	entry->after_ms = entry->after_ms ? entry->after_ms * 2 : KEYS_ASK_MIN_MS;
	if (entry->after_ms > KEYS_ASK_MAX_MS)
		entry->after_ms = KEYS_ASK_MAX_MS;
	entry->ask_ms = now_ms + entry->after_ms;
}

static bool keys_room(struct keys_entry *entry, uint32_t n)
{
	uint32_t cap = entry->cap ? entry->cap : 16;
	struct message_region *more;

	while (cap < n)
		cap *= 2;
	if (cap == entry->cap)
		return true;
	more = realloc(entry->regions, cap * sizeof(*more));
	if (!more)
		return false;
	entry->regions = more;
	entry->cap = cap;
	return true;
}

bool keys_told(struct keys_entry *entry, const struct message_regions *told)
{
	uint32_t skip;

	if (told->first > entry->n)
		return false;
	skip = entry->n - told->first;
	if (told->n > skip) {
		const struct message_region *more = told->regions + skip;

		/* They are in order within a message; here they are in order between two. */
		if (entry->n && more->offset < entry->regions[entry->n - 1].offset +
						       entry->regions[entry->n - 1].len)
			return false;
		if (!keys_room(entry, entry->n + told->n - skip))
			return false;
		memcpy(entry->regions + entry->n, more, (told->n - skip) * sizeof(*more));
		entry->n += told->n - skip;
	}
	if (told->whole && entry->n && entry->n == told->first + told->n)
		entry->ask_ms = UINT64_MAX;
	return true;
}

const struct message_region *keys_cover(const struct keys_entry *entry, uint64_t offset, size_t len,
					size_t *gap)
{
	uint32_t low = 0, high = entry->n;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (entry->regions[middle].offset + entry->regions[middle].len > offset)
			high = middle;
		else
			low = middle + 1;
	}
	*gap = len;
	if (low == entry->n)
		return NULL;
	if (entry->regions[low].offset <= offset) {
		if (entry->regions[low].address)
			return &entry->regions[low];
		if (entry->regions[low].offset + entry->regions[low].len - offset < len)
			*gap = (size_t)(entry->regions[low].offset + entry->regions[low].len -
					offset);
		return NULL;
	}
	if (entry->regions[low].offset - offset < len)
		*gap = (size_t)(entry->regions[low].offset - offset);
	return NULL;
}

void keys_forget(struct keys *keys)
{
	for (size_t i = 0; i < KEYS_MAX; i++) {
		keys->entries[i].n = 0;
		keys->entries[i].ask_ms = 0;
		keys->entries[i].after_ms = 0;
	}
}

void keys_free(struct keys *keys)
{
	for (size_t i = 0; i < KEYS_MAX; i++)
		keys_entry_clear(&keys->entries[i]);
}
