/*
 * Values in the journal under a name of their own: in the table meta (this node's, not in a
 * snapshot), and in the table counter (the cluster's).
 */
#ifndef RAMP_META_JOURNAL_KEYS_H
#define RAMP_META_JOURNAL_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "journal_sql.h"
#include "raft_conf.h"

/* Names of numbers in the table counter that other files read, too. */
#define LEVEL_KEY	   "level"
#define ARENA_USER_MAX_KEY "arena_user_max"

int journal_put_key_u64(struct journal *j, const char *key, uint64_t v);
int journal_put_key_blob(struct journal *j, const char *key, const void *bytes, size_t len);
int journal_delete_key(struct journal *j, const char *key);
/* Returns the statement at the key's row, which the caller resets; NULL: no such key. */
sqlite3_stmt *journal_find_key(struct journal *j, const char *key);
/* Returns false where there is no such key. */
bool journal_get_key_u64(struct journal *j, const char *key, uint64_t *v);
/* Writes the configuration at snap_index (conf NULL: as it is) and its index. */
int journal_put_conf(struct journal *j, const struct raft_data *conf, uint64_t conf_index);

/* Returns in *value the next number that the counter gives, or the number that is kept there;
   `first` where there is none. */
int journal_read_count(struct journal *j, const char *key, uint64_t first, uint64_t *value);
int journal_put_count(struct journal *j, const char *key, uint64_t value);
/* Reads it, and the counter gives that number: it is never given again. */
int journal_next_count(struct journal *j, const char *key, uint64_t first, uint64_t *value);

#endif
