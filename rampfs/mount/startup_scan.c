/*
 * The first look at all segments of the store and all rows: what an earlier daemon left undone.
 */
#include "startup_scan.h"

#include <errno.h>
#include <stdlib.h>

#include "hints.h"
#include "inode.h"
#include "orphans.h"
#include "row_note.h"
#include "row_sync.h"
#include "transfer/recovered.h"

#define FIRST_AT_ONCE 500 /* segments of one step, so that the loop serves others meanwhile */

struct first_list {
	ramp_segment_t *ids;
	size_t n, max;
};

static void count_first(void *arg, struct seg *seg)
{
	(void)seg;
	((struct first_list *)arg)->max++;
}

/* Notes a segment's id. A segment made since they were counted is no earlier daemon's. */
static void note_first(void *arg, struct seg *seg)
{
	struct first_list *list = arg;

	if (list->n < list->max)
		list->ids[list->n++] = seg_id(seg);
}

static void begin_first(struct startup_scan *scan)
{
	struct first_list list = {0};

	scan->begun = true;
	store_each(scan->mount->config.store, count_first, &list);
	list.ids = calloc(list.max, sizeof(*list.ids));
	if (!list.ids)
		return; /* the store is empty; or the next start finds unlinked segments */
	store_each(scan->mount->config.store, note_first, &list);
	scan->first = list.ids;
	scan->n_first = list.n;
}

static void find_unlinked(struct startup_scan *scan, struct seg *seg)
{
	ramp_segment_t id = seg_id(seg);
	struct segment_row row;
	int rc;

	seg_touch(seg);
	if (!inode_is_local(seg) || hint_find(scan->mount->hints, id))
		return;
	rc = meta_segment(scan->mount->config.meta, id, &row);
	if (rc == 0 && row.node == scan->mount->self && !seg_has_about(seg))
		row_note(scan->mount->config.meta, seg, &row); /* an older version's, or torn */
	if (rc == -ENOENT || (rc == 0 && row.phase == SEGMENT_ORPHAN) ||
	    (rc == 0 && recovered_owned_is_due(scan->mount->config.meta, seg, &row)))
		orphan_add(scan->mount, id);
	else if (rc == 0 && row.node == scan->mount->self)
		hint_adopt(scan->mount->hints, seg, &row);
	else if (rc == 0)
		inode_note_owner(seg, &row);
}

static void end_first(struct startup_scan *scan)
{
	scan->over = true;
	atomic_fetch_sub_explicit(&scan->mount->rows_posted, scan->restored, memory_order_release);
	scan->restored = 0;
}

/* Looks at some of the store's segments. Returns false when none is left. */
static bool look_at_first(struct startup_scan *scan)
{
	struct seg *seg;

	for (int i = 0; scan->at_first < scan->n_first && i < FIRST_AT_ONCE; i++) {
		seg = store_find(scan->mount->config.store, scan->first[scan->at_first++]);
		if (!seg)
			continue;
		find_unlinked(scan, seg);
		if (scan->restored)
			row_sync(scan->mount, seg_id(seg));
		seg_put(seg);
	}
	if (scan->at_first < scan->n_first)
		return true;
	free(scan->first);
	scan->first = NULL;
	scan->n_first = scan->at_first = 0;
	return false;
}

struct row_search {
	ramp_node_t node;
	ramp_segment_t last;
	unsigned seen;
	bool found;
};

/* Finds one id at a time: the tables must not be read inside this callback. */
static int find_row(void *arg, const struct segment_row *row)
{
	struct row_search *search = arg;

	search->last = row->id;
	search->seen++;
	search->found = row->phase == SEGMENT_ORPHAN && row->node == search->node;
	return search->found || search->seen >= FIRST_AT_ONCE;
}

/* Looks for rows that a dead daemon did not tell that their bytes are gone. Returns false when no
   row is left. */
static bool look_at_rows(struct startup_scan *scan)
{
	struct row_search search = {.node = scan->mount->self, .last = scan->first_row};
	bool more = true;

	while (more && search.seen < FIRST_AT_ONCE) {
		search.found = false;
		more = meta_each_segment(scan->mount->config.meta, 0, search.last, find_row,
					 &search) == 1;
		if (search.found)
			orphan_add(scan->mount, search.last);
	}
	scan->first_row = search.last;
	return more;
}

bool startup_scan_step(struct startup_scan *scan)
{
	if (!scan->begun)
		begin_first(scan);
	if (!scan->over && !look_at_first(scan) && !look_at_rows(scan))
		end_first(scan);
	return scan->over;
}

void startup_scan_again(struct startup_scan *scan)
{
	free(scan->first);
	scan->first = NULL;
	scan->n_first = scan->at_first = 0;
	scan->first_row = 0;
	scan->begun = scan->over = false;
	scan->restored++;
}

void startup_scan_free(struct startup_scan *scan)
{
	free(scan->first);
}
