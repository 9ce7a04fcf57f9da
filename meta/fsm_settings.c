/*
 * The cluster's settings. See fsm_settings.h.
 *
 * Each is a row of the table counter; 0, or no row: its default.
 */
#include "fsm_settings.h"

#include "journal_keys.h"

static const char *const keys[META_SETTINGS] = {
	[META_ARENA_USER_MAX] = ARENA_USER_MAX_KEY,
};

int fsm_set(struct apply *a)
{
	return journal_put_count(a->j, keys[a->c->setting], a->c->value);
}

int fsm_arena_user_max(struct journal *j, uint64_t *bytes)
{
	struct journal_state state;
	int rc = journal_read_count(j, ARENA_USER_MAX_KEY, META_DEFAULT, bytes);

	journal_state(j, &state);
	if (rc == 0 && *bytes == META_DEFAULT)
		*bytes = meta_arena_user_default(state.arena_len);
	return rc;
}
