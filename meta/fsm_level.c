/*
 * The level of the rules. See fsm_level.h.
 *
 * The level is a row of the table counter, so it is part of each snapshot.
 */
#include "fsm_level.h"

#include <errno.h>
#include <stdio.h>

#include "journal_keys.h"

int fsm_level(struct journal *j, uint64_t *level)
{
	return journal_read_count(j, LEVEL_KEY, 0, level);
}

int fsm_check_level(struct journal *j, const struct meta_command *c)
{
	uint64_t level, needed = command_level(c);
	int rc = needed == 0 ? 0 : fsm_level(j, &level);

	if (needed == 0 || rc < 0)
		return rc;
	return level >= needed ? 0 : -EOPNOTSUPP;
}

int fsm_level_up(struct apply *a)
{
	uint64_t level;
	int rc = fsm_level(a->j, &level);

	if (rc < 0 || a->c->value <= level)
		return rc;
	return journal_put_count(a->j, LEVEL_KEY, a->c->value);
}

bool fsm_decode(const struct raft_entry *entry, struct meta_origin *origin, struct meta_command *c)
{
	return command_decode(entry->data->bytes, entry->data->len, origin, c) == 0 &&
	       (c->type != META_LEVEL_UP || c->value <= META_LEVEL_KNOWN);
}

bool fsm_knows(const struct raft_entry *entry)
{
	struct meta_origin origin;
	struct meta_command c;
	struct raft_conf conf;

	if (entry->type == RAFT_NOOP)
		return true;
	if (!entry->data)
		return false;
	if (entry->type == RAFT_CONF)
		return raft_conf_decode(entry->data->bytes, entry->data->len, &conf) == 0;
	return entry->type == RAFT_COMMAND && fsm_decode(entry, &origin, &c);
}

void fsm_word_unknown(uint64_t index, char *text, size_t cap)
{
	snprintf(text, cap,
		 "meta: entry %llu of the log was made by a newer rampfs, and rampfs %s (level %d) "
		 "can't apply it: upgrade this node",
		 (unsigned long long)index, RAMPFS_VERSION, META_LEVEL_KNOWN);
}

void fsm_word_level(uint64_t level, char *text, size_t cap)
{
	snprintf(text, cap,
		 "meta: the cluster's metadata is of level %llu, and rampfs %s knows levels up to "
		 "%d: upgrade this node",
		 (unsigned long long)level, RAMPFS_VERSION, META_LEVEL_KNOWN);
}
