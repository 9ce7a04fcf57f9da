/*
 * The journal's rows of segments, the names of directories, and extents: no rule of what they mean.
 *
 * All of it runs within a turn of the writer, and the writer sees its own rows.
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
int journal_next_segment_id(struct journal *j, ramp_segment_t *id);	   /* and counts on */
/* 1: that id was given once, whether its row is there or not; 0: it was not. */
int journal_segment_was(struct journal *j, ramp_segment_t id);
/* The first ORPHAN of that incarnation of a node. -ENOENT */
int journal_find_orphan(struct journal *j, ramp_node_t node, ramp_incarnation_t inc,
			ramp_segment_t *id);
/* 0: `node` appears in no segment's row (as owner, target or source); 1: it does. */
int journal_node_used(struct journal *j, ramp_node_t node);

/* Names of directories: listed, or reserved by a prepare. */
int journal_get_name(struct journal *j, ramp_node_t node, const char *name, ramp_segment_t *id,
		     bool *reserved); /* -ENOENT */
int journal_put_name(struct journal *j, ramp_node_t node, const char *name, ramp_segment_t id,
		     bool reserved);
int journal_delete_name(struct journal *j, ramp_node_t node, const char *name);

/* First fit of `len` (a power of two) in the arena, aligned to len; it is taken for id. -ENOSPC */
int journal_take_extent(struct journal *j, ramp_segment_t id, uint64_t len, uint64_t *addr);

#endif
