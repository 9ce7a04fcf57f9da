/*
 * The list of the populated pages of a segment: CONNECT carries it, and the target takes room by
 * it.
 *
 * Happy path: the layout is noted, then scanned. Once the segment is frozen, its layout is compared
 * with the note. Where nothing has changed the target pulls the listed pages only.
 *
 * How it fails: after a change the target asks for every page. Growth past the slack is -ENOSPC,
 * and another attempt makes a new list.
 */
#include "source_list.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/page.h"
#include "memory/reserve.h"

#define LIST_TRIES 3

/* The longest list takes a mebibyte, and thousands of segments may be migrating at once. */
static void shrink_ranges(struct move *m)
{
	struct data_range *less = realloc(m->ranges, (m->n_ranges + 1) * sizeof(*less));

	if (less)
		m->ranges = less;
}

/* Cuts the list off at the size: CONNECT must not list pages beyond it, which the segment may have
   got since its size was read. At the freeze the size will differ, and the target asks for every
   page. */
static void forget_growth(struct move *m)
{
	uint64_t end = page_up(m->size);
	struct data_range *last;

	while (m->n_ranges && m->ranges[m->n_ranges - 1].offset >= end)
		m->n_ranges--;
	last = m->n_ranges ? &m->ranges[m->n_ranges - 1] : NULL;
	if (last && last->len > end - last->offset)
		last->len = end - last->offset;
}

/* The target would take a message with a larger size for a malformed one, and hang up. */
static int check_size(struct move *m, uint64_t size)
{
	if (size > PROTO_SIZE_MAX)
		return ramp_err_set(&m->work_err, EFBIG,
				    "it is too large to be moved (more than 4 EiB)");
	return 0;
}

/* Notes the layout before it scans: a change meanwhile counts as one, unless the list is made
   again. */
static int list_data(struct move *m, uint64_t *populated)
{
	int rc, tries = LIST_TRIES;

	do {
		seg_note_layout(m->seg);
		m->size = seg_size(m->seg);
		rc = check_size(m, m->size);
		if (!rc)
			rc = populated_list(m->seg, m->ranges, PROTO_RANGES_MAX, &m->n_ranges,
					    populated, &m->work_err);
	} while (!rc && !seg_layout_is_noted(m->seg, *populated) && --tries);
	if (!tries)
		seg_layout_cut(m->seg);
	return rc;
}

void source_list_make(struct move *m)
{
	uint64_t populated = 0;

	move_forget_ranges(m);
	m->ranges = calloc(PROTO_RANGES_MAX, sizeof(*m->ranges));
	if (!m->ranges) {
		m->work_rc = ramp_err_sys(&m->work_err, ENOMEM, "list of populated pages");
		return;
	}
	m->work_rc = list_data(m, &populated);
	forget_growth(m);
	shrink_ranges(m);
	m->slack_bytes = reserve_slack_for(populated);
}

/* The target keeps room for all listed pages, also for those that have been freed since: where
   something was freed, all that is new elsewhere needs room of its own. */
int source_list_compare(struct move *m)
{
	uint64_t size = seg_size(m->seg), grown = 0;
	int rc = check_size(m, size);

	if (rc)
		return rc;
	m->unchanged = !seg_layout_changed(m->seg, &grown) && size == m->size;
	m->size = size;
	if (grown <= m->slack_bytes && seg_layout_was_cut(m->seg))
		rc = populated_unlisted(m->seg, m->ranges, m->n_ranges, m->slack_bytes, &grown,
					&m->work_err);
	if (rc)
		return rc;
	if (grown > m->slack_bytes)
		return ramp_err_set(&m->work_err, ENOSPC,
				    "it grew by %" PRIu64 " bytes while it was being moved", grown);
	return 0;
}
