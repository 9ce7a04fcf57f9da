/*
 * Readers of the journal: connections of their own. Each belongs to one thread at a time, and sees
 * what was committed when a call begins.
 *
 * Each call returns 0 (or as noted), -ENOENT: there is no such row; -EIO: SQLite failed, and
 * nothing is half read.
 */
#ifndef RAMP_META_JOURNAL_READER_H
#define RAMP_META_JOURNAL_READER_H

#include <stddef.h>

#include "base/err.h"
#include "meta.h"

struct journal_reader;
int journal_reader_open(const char *path, const char *vfs, struct journal_reader **out,
			struct ramp_err *err);
void journal_reader_close(struct journal_reader *r);
/* Returns the reason of the last call's -EIO, in SQLite's words. */
const char *journal_reader_why(struct journal_reader *r);
int journal_read_segment(struct journal_reader *r, ramp_segment_t id, struct segment_row *row);
/* Returns 1 where the tables have ever had that segment; else 0. */
int journal_read_segment_was(struct journal_reader *r, ramp_segment_t id);
int journal_read_name(struct journal_reader *r, ramp_node_t node, const char *name,
		      struct segment_row *row);
/* Reads at most `max` rows with id > after, as meta_each_segment gives them. Returns how many. */
int journal_read_segments(struct journal_reader *r, ramp_node_t node, ramp_segment_t after,
			  struct segment_row *rows, size_t max);
int journal_read_node(struct journal_reader *r, ramp_node_t node, struct node_row *row);
/* Returns 1 where the node is in the configuration as applied; else 0. */
int journal_read_member(struct journal_reader *r, ramp_node_t node);
/* Reads what a node's address is instead: "OLD NEW". -ENOENT. */
int journal_read_address(struct journal_reader *r, ramp_node_t node, char *text, size_t cap);
int journal_read_node_by_name(struct journal_reader *r, const char *name, struct node_row *row);
/* Reads at most `max` rows of nodes > after. Returns how many. */
int journal_read_nodes(struct journal_reader *r, ramp_node_t after, struct node_row *rows,
		       size_t max);
/* Reads a number that is kept under a name (journal_keys.h); `first` where there is none. */
int journal_read_counter(struct journal_reader *r, const char *key, uint64_t first,
			 uint64_t *value);
/* Reads as meta_arena_uses does. */
int journal_read_uses(struct journal_reader *r, struct arena_use *uses, size_t max,
		      uint64_t *all_bytes);

#endif
