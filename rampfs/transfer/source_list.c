/*
 * The list of what is populated in a segment: CONNECT carries it, and the target takes room by it.
 *
 * Happy path: the layout is noted, then scanned; once frozen, the segment is compared with the note.
 * Nothing changed: the target pulls what is listed.
 *
 * How it fails: what changed meanwhile makes the target ask for every page; what outgrew the slack is
 * -ENOSPC, and another attempt lists it.
 */
#include "source_list.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "memory/reserve.h"

#define LIST_TRIES 3

/* Room for the longest list is a mebibyte, and thousands of segments may be on their way at once. */
static void shrink_ranges(struct move *m)
{
	struct room_range *less = realloc(m->ranges, (m->n_ranges + 1) * sizeof(*less));

	if (less)
		m->ranges = less;
}

/* What it has grown by since its size was read is no part of CONNECT, which T would not understand. At
   the freeze its size is another, and T asks for every page. */
static void forget_growth(struct move *m)
{
	uint64_t end = (m->size + RAMP_PAGE_BYTES - 1) / RAMP_PAGE_BYTES * RAMP_PAGE_BYTES;
	struct room_range *last;

	while (m->n_ranges && m->ranges[m->n_ranges - 1].offset >= end)
		m->n_ranges--;
	last = m->n_ranges ? &m->ranges[m->n_ranges - 1] : NULL;
	if (last && last->len > end - last->offset)
		last->len = end - last->offset;
}

/* T takes a message with a larger size for a malformed one, and hangs up. */
static int check_size(struct move *m, uint64_t size)
{
	if (size > PROTO_SIZE_MAX)
		return ramp_err_set(&m->work_err, EFBIG,
				    "it is larger than what can be moved (4 EiB)");
	return 0;
}

/* Noted before the scan: what changes meanwhile counts as a change, unless it is listed again. */
static int list_data(struct move *m, uint64_t *populated)
{
	int rc, tries = LIST_TRIES;

	do {
		seg_note_layout(m->seg);
		m->size = seg_size(m->seg);
		rc = check_size(m, m->size);
		if (!rc)
			rc = room_populated(m->seg, m->ranges, PROTO_RANGES_MAX, &m->n_ranges,
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
		m->work_rc = ramp_err_sys(&m->work_err, ENOMEM, "list of what is populated");
		return;
	}
	m->work_rc = list_data(m, &populated);
	forget_growth(m);
	shrink_ranges(m);
	m->slack_bytes = room_slack_for(populated);
}

/*
 * Everybody is out and nobody has access: is what CONNECT said still true? -ENOSPC: it has grown
 * past the slack that T took. T keeps room for what was listed, whether or not it is still there:
 * where something was cut out, all that is new elsewhere needs some.
 */
int source_list_compare(struct move *m)
{
	uint64_t size = seg_size(m->seg), grown = 0;
	int rc = check_size(m, size);

	if (rc)
		return rc;
	m->unchanged = !seg_layout_changed(m->seg, &grown) && size == m->size;
	m->size = size;
	if (grown <= m->slack_bytes && seg_layout_was_cut(m->seg))
		rc = room_unlisted(m->seg, m->ranges, m->n_ranges, m->slack_bytes, &grown,
				   &m->work_err);
	if (rc)
		return rc;
	if (grown > m->slack_bytes)
		return ramp_err_set(&m->work_err, ENOSPC,
				    "it grew by %" PRIu64 " bytes while it was being moved", grown);
	return 0;
}
