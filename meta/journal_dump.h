/*
 * Snapshots of the journal: all tables of the state machine as a stream of bytes, and back.
 */
#ifndef RAMP_META_JOURNAL_DUMP_H
#define RAMP_META_JOURNAL_DUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "raft_conf.h"

struct journal;

/*
 * A dump reads the tables as of the last commit, through a connection of its own, piece by piece,
 * while the writer continues. Dumps of the same applied index are equal on all nodes.
 */
struct journal_dump;
int journal_dump_open(struct journal *j, struct journal_dump **out, struct ramp_err *err);
uint64_t journal_dump_index(const struct journal_dump *d); /* applied, as of the dump */
uint64_t journal_dump_term(const struct journal_dump *d);
/* Returns the piece that begins at `offset`: the last one again, or a later one. *done: it was the
   dump's last. The bytes are the dump's until the next call. -ESTALE: no piece begins there;
   -EIO. */
int journal_dump_read(struct journal_dump *d, uint64_t offset, const uint8_t **bytes, size_t *len,
		      bool *done);
void journal_dump_close(struct journal_dump *d);

/* Returns true when the checksums and the format of the whole dump are right. */
bool journal_dump_valid(const void *bytes, size_t len);
/* Replaces, within a turn, the tables by the dump's, which must be valid. The log is empty then,
   applied = snap_index = index, and (index, term, conf, conf_index) are the beginning. */
int journal_restore(struct journal *j, const void *bytes, size_t len, uint64_t index, uint64_t term,
		    const struct raft_data *conf, uint64_t conf_index);
/* Computes a checksum over all tables in order: equal tables have equal sums. */
int journal_tables_sum(struct journal *j, uint64_t *sum);

#endif
