/*
 * A segment's row has changed.
 */
#include "row_sync.h"

#include <errno.h>

#include "hints.h"
#include "inode.h"
#include "orphans.h"
#include "row_note.h"

void row_sync(struct mount *m, ramp_segment_t id)
{
	struct segment_row row;
	struct seg *seg;
	int rc;

	if (!m->hints || m->hints->closed)
		return;
	seg = store_find(m->config.store, id);
	rc = meta_segment(m->config.meta, id, &row);
	if (!seg) {
		/* The row of an extent that was requested while the file was open, and came too
		   late. */
		if (rc == 0 && row.phase == SEGMENT_ORPHAN && row.node == m->self)
			orphan_add(m, id);
		return;
	}
	if (rc == 0 && row.node == m->self)
		row_note(m->config.meta, seg, &row);
	if (rc == 0)
		seg_set_small(seg, row.pages == SEGMENT_PAGES_SMALL);
	if (rc == 0 && row.node != m->self) {
		hint_elsewhere(m->hints, seg, &row);
	} else if (rc == 0 && row.phase == SEGMENT_ORPHAN) {
		/* The record may still say GIVEN, from a migration that came back. The removal is
		   tried again until that has ended, since no change of the row would report it. */
		orphan_add(m, id);
	} else if (inode_is_local(seg)) {
		if (rc == -ENOENT) {
			row_note_none(m->config.meta, seg);
			orphan_goes(m, id); /* its row has gone just now */
			orphan_add(m, id);
		} else if (rc == 0) {
			hint_adopt(m->hints, seg, &row);
		}
		seg_touch(seg); /* a change of its file may have waited for this row */
	}
	seg_put(seg);
}
