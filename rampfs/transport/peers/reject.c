/*
 * The log of rejected connections: one clear line, and never a flood of them.
 *
 * The same reason from the same host is written at most every 30 s, with how many there were in
 * between; all together at most ten lines in ten seconds. The caller counts every one.
 */
#include "reject.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/wire.h"

#define REJECT_SAME_MS	  30000
#define REJECT_WINDOW_MS  10000
#define REJECT_WINDOW_MAX 10
#define REJECT_SLOTS	  16

struct reject_slot {
	uint32_t hash;
	uint64_t at_ms;
	uint64_t silent; /* since at_ms, not written */
};

struct reject_log {
	struct reject_slot slots[REJECT_SLOTS];
	uint64_t window_ms;
	unsigned int written; /* in this window */
};

struct reject_log *reject_log_open(void)
{
	return calloc(1, sizeof(struct reject_log));
}

void reject_log_close(struct reject_log *log)
{
	free(log);
}

/* Returns the slot of this host and reason, or else the least recently used one, emptied. */
static struct reject_slot *find_slot(struct reject_log *log, uint32_t hash)
{
	struct reject_slot *oldest = &log->slots[0];

	for (size_t i = 0; i < REJECT_SLOTS; i++) {
		struct reject_slot *slot = &log->slots[i];

		if (slot->at_ms && slot->hash == hash)
			return slot;
		if (slot->at_ms < oldest->at_ms)
			oldest = slot;
	}
	*oldest = (struct reject_slot){.hash = hash};
	return oldest;
}

static bool may_write(struct reject_log *log, struct reject_slot *slot, uint64_t now_ms)
{
	if (slot->at_ms && now_ms - slot->at_ms < REJECT_SAME_MS)
		return false;
	if (now_ms - log->window_ms >= REJECT_WINDOW_MS) {
		log->window_ms = now_ms;
		log->written = 0;
	}
	return log->written++ < REJECT_WINDOW_MAX;
}

void reject_log_write(struct reject_log *log, uint64_t now_ms, const char *endpoint,
		      const char *reason)
{
	const char *port = strrchr(endpoint, ':');
	char key[512];
	struct reject_slot *slot;
	int len;

	now_ms++; /* an at_ms of 0 is an unused slot */
	len = snprintf(key, sizeof(key), "%.*s %s",
		       (int)(port ? (size_t)(port - endpoint) : strlen(endpoint)), endpoint,
		       reason);
	if (len >= (int)sizeof(key))
		len = (int)sizeof(key) - 1;
	slot = find_slot(log, wire_crc32c(key, (size_t)len));
	if (!may_write(log, slot, now_ms)) {
		slot->silent++;
		return;
	}
	if (slot->silent)
		log_warn("connection with %s rejected: %s (%llu more like this)", endpoint, reason,
			 (unsigned long long)slot->silent);
	else
		log_warn("connection with %s rejected: %s", endpoint, reason);
	slot->at_ms = now_ms;
	slot->silent = 0;
}
