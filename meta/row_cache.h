/*
 * Rows that were read lately, in memory: a read of the tables costs some 5 us, and a move of a segment reads
 * rows a hundred times.
 *
 * A row is taken out before the transaction that changes it commits, and comes in again by a read that began
 * after the commit: so no reader sees a row that is older than what any other reader has seen.
 *
 * Any thread, but for the two calls of the journal's writer.
 */
#ifndef RAMP_META_ROW_CACHE_H
#define RAMP_META_ROW_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "meta.h"

struct row_cache;

struct row_cache *row_cache_open(void); /* NULL: no memory */
void row_cache_close(struct row_cache *cache);

/* Returns whether the row is there. If not, read it from the tables and put it in, with *turn. */
bool row_cache_segment(struct row_cache *cache, ramp_segment_t id, struct segment_row *row,
		       uint64_t *turn);
bool row_cache_node(struct row_cache *cache, ramp_node_t node, struct node_row *row,
		    uint64_t *turn);
/* Puts a row in, unless the tables may have changed since it was asked for. */
void row_cache_put_segment(struct row_cache *cache, const struct segment_row *row, uint64_t turn);
void row_cache_put_node(struct row_cache *cache, const struct node_row *row, uint64_t turn);

/* The transaction that is under way changes that segment's row; 0: nodes' rows, or all of them. */
void row_cache_changes(struct row_cache *cache, ramp_segment_t id);
/* That transaction is over. */
void row_cache_committed(struct row_cache *cache);

#endif
