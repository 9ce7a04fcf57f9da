/*
 * Values that stand in the journal under a name of their own: in the table meta (this node's, not
 * in a snapshot), and counters (the cluster's).
 */
#ifndef RAMP_META_JOURNAL_KEYS_H
#define RAMP_META_JOURNAL_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "journal_sql.h"
#include "raft_conf.h"

int journal_put_key_u64(struct journal *j, const char *key, uint64_t v);
int journal_put_key_blob(struct journal *j, const char *key, const void *bytes, size_t len);
sqlite3_stmt *journal_find_key(struct journal *j, const char *key);
bool journal_get_key_u64(struct journal *j, const char *key, uint64_t *v);
int journal_put_conf(struct journal *j, const struct raft_data *conf, uint64_t conf_index);

int journal_read_count(struct journal *j, const char *key, uint64_t first, uint64_t *value);
int journal_next_count(struct journal *j, const char *key, uint64_t first, uint64_t *value);

#endif
