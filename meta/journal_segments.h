/*
 * The journal's rows of segments, names of directories and extents. No rule of their meaning is
 * here.
 *
 * Each function works within a turn of the writer, which sees its own changes. Each returns 0 (or
 * as noted), or -EIO: the journal is dead.
 */
#ifndef RAMP_META_JOURNAL_SEGMENTS_H
#define RAMP_META_JOURNAL_SEGMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "meta.h"

struct journal;

int journal_get_segment(struct journal *j, ramp_segment_t id,
			struct segment_row *row);			   /* -ENOENT */
int journal_put_segment(struct journal *j, const struct segment_row *row); /* new or changed */
int journal_delete_segment(struct journal *j, ramp_segment_t id);	   /* with its extent */
int journal_next_segment_id(struct journal *j, ramp_segment_t *id);	   /* never given before */
/* Returns 1 where that id was given once, whether its row is still there or not; else 0. */
int journal_segment_was(struct journal *j, ramp_segment_t id);
/* Ends the ids of this generation: the next ones are far above (journal_rows.h, SEGMENT_WAS). */
int journal_end_generation(struct journal *j);
/* Notes that an id which these tables have not given was, after all. */
int journal_note_recovered(struct journal *j, ramp_segment_t id);
/* Finds the first ORPHAN of that incarnation of a node. -ENOENT: it has none. */
int journal_find_orphan(struct journal *j, ramp_node_t node, ramp_incarnation_t inc,
			ramp_segment_t *id);
/* Returns 1 where `node` is owner, target or source in some segment's row; else 0. */
int journal_node_used(struct journal *j, ramp_node_t node);
/* Reads the bytes of all extents of the user's segments. */
int journal_arena_use(struct journal *j, uint32_t uid, uint64_t *bytes);

/* Names of directories: listed, or reserved by a prepare. */
int journal_get_name(struct journal *j, ramp_node_t node, const char *name, ramp_segment_t *id,
		     bool *reserved); /* -ENOENT */
int journal_put_name(struct journal *j, ramp_node_t node, const char *name, ramp_segment_t id,
		     bool reserved);
int journal_delete_name(struct journal *j, ramp_node_t node, const char *name);

/* Finds the first place of `len` (a power of two) in the arena that fits, aligned to len. -ENOSPC:
   there is none. */
int journal_find_extent(struct journal *j, uint64_t len, uint64_t *addr);
/* Gives that place to id. */
int journal_put_extent(struct journal *j, ramp_segment_t id, uint64_t addr, uint64_t len);
/* Gives the extent at that address back. */
int journal_free_extent(struct journal *j, uint64_t addr);

#endif
