/*
 * A segment's row, noted beside its bytes (memory/about.h), for a start at which there is no journal.
 *
 * It is what the row last was while this node owned the segment. Control loop, or a start.
 */
#ifndef RAMP_ROW_NOTE_H
#define RAMP_ROW_NOTE_H

#include "memory/store.h"
#include "meta/meta.h"

/* Notes the row of a segment of this node. */
void row_note(struct meta *meta, struct seg *seg, const struct segment_row *row);
/* Notes the row for which a segment is just made. Any thread. */
void row_note_made(struct seg *seg, const struct segment_row *row);
/* Notes that the segment has no row any more. */
void row_note_none(struct meta *meta, struct seg *seg);
/* Reads the noted name; "": there is none. */
void row_note_name(struct seg *seg, char name[RAMP_NAME_MAX + 1]);
/*
 * Makes the row of which a start without metadata knows by the record (R8): its attempt where the
 * record has one, its name where that was noted, else recovered-ID. False: there is no record, or the
 * segment is unlinked.
 */
bool row_of_record(struct seg *seg, ramp_node_t self, ramp_incarnation_t incarnation,
		   struct segment_row *row);

#endif
