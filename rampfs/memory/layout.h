/*
 * Whether a segment's holes are where they were. Any thread.
 */
#ifndef RAMP_MEMORY_LAYOUT_H
#define RAMP_MEMORY_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ids.h"

struct seg;
struct store;

/* Notes the layout as it is now, for the questions below. */
void seg_note_layout(struct seg *seg);
/* The layout at one time. */
struct seg_layout {
	uint64_t blocks, cuts;
};
/* Gets the layout as it is now; and makes one that was got earlier, since seg_note_layout, the noted
   one. */
struct seg_layout seg_layout_now(struct seg *seg);
void seg_layout_note(struct seg *seg, struct seg_layout layout);
/*
 * Whether a list of that many bytes (populated_list) is of the layout that was noted. False: either
 * a program stored in between; or the noted count included blocks that khugepaged had taken for
 * holes and then could not collapse, and later stores would make the layout look unchanged. Then
 * the layout must be noted and listed again.
 */
bool seg_layout_is_noted(struct seg *seg, uint64_t populated_bytes);
/* True: since seg_note_layout there was a truncate or punched hole, by any process, or st_blocks
   differs. *grown: by how many bytes st_blocks has grown since (0: it has not). */
bool seg_layout_changed(struct seg *seg, uint64_t *grown);
/* True: the file may have been cut since, so that more may have come than *grown says. */
bool seg_layout_was_cut(struct seg *seg);
/* Ends the watch: no further question is asked. */
void seg_forget_layout(struct seg *seg);
/* Counts a truncate or punched hole of the daemon's own. Called between seg_enter and seg_leave,
   after it is done: a layout noted in the middle of it must not be relied on. */
void seg_layout_cut(struct seg *seg);

/* ---- for store.c alone --------------------------------------------------------------------- */

/* cut: called, by any thread that asks the questions above, with the segment of a file that another
   process cut; it counts that by seg_layout_cut if the store still has the segment. */
void layout_open(struct store *store, void (*cut)(struct store *store, ramp_segment_t id));
void layout_close(struct store *store);

#endif
