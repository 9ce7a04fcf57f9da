/*
 * The state machine's ground. See fsm_core.h.
 */
#include "fsm_core.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "journal_nodes.h"
#include "journal_segments.h"

int fsm_changed(struct apply *a, ramp_segment_t id, int rc)
{
	a->res->changed[a->res->changed[0] != 0] = id;
	return rc;
}

void fsm_reply(struct apply *a, const struct segment_row *row)
{
	a->res->reply.id = row->id;
	a->res->reply.epoch = row->epoch;
}

void fsm_reply_extent(struct apply *a, const struct segment_row *row)
{
	fsm_reply(a, row);
	a->res->reply.extent_addr = row->extent_addr;
	a->res->reply.extent_len = row->extent_len;
}

int fsm_put(struct apply *a, const struct segment_row *row)
{
	fsm_reply_extent(a, row);
	return fsm_changed(a, row->id, journal_put_segment(a->j, row));
}

/* ---- incarnations (R1) --------------------------------------------------------------------- */

int fsm_is_over(struct journal *j, ramp_node_t node, ramp_incarnation_t inc)
{
	struct node_row row;
	int rc = journal_get_node(j, node, &row);

	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	if (inc != 0 && row.fenced == inc)
		return 1;
	return journal_is_past(j, node, inc);
}

int fsm_is_current(struct journal *j, ramp_node_t node, ramp_incarnation_t inc)
{
	struct node_row row;
	int rc = journal_get_node(j, node, &row);

	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	return inc != 0 && row.role != NODE_REMOVED && row.incarnation == inc && row.fenced != inc;
}

/* ---- names --------------------------------------------------------------------------------- */

int fsm_name_free(struct journal *j, ramp_node_t node, const char *name)
{
	ramp_segment_t id;
	bool reserved;
	int rc = journal_get_name(j, node, name, &id, &reserved);

	if (rc == -ENOENT)
		return 0;
	return rc < 0 ? rc : -EEXIST;
}

/* ---- rows of segments ------------------------------------------------------------------------ */

/* The drawing of fsm.h: the phases that may follow each. */
static const struct {
	const char *name;
	uint8_t next;
} phases[] = {
	[SEGMENT_STABLE] = {"STABLE",
			    1 << SEGMENT_MOVING | 1 << SEGMENT_PULLING | 1 << SEGMENT_ORPHAN},
	[SEGMENT_MOVING] = {"MOVING", 1 << SEGMENT_PULLING | 1 << SEGMENT_STABLE},
	[SEGMENT_PULLING] = {"PULLING", 1 << SEGMENT_STABLE},
	[SEGMENT_ORPHAN] = {"ORPHAN", 0},
};

void fsm_go(struct segment_row *row, enum segment_phase to)
{
	/* A damaged table may hold any number: the rules treat it as STABLE. */
	enum segment_phase from = row->phase <= SEGMENT_ORPHAN ? row->phase : SEGMENT_STABLE;

	if (!(phases[from].next & 1 << to)) {
		log_error("segment %llu: no step from %s to %s", (unsigned long long)row->id,
			  phases[from].name, phases[to].name);
		abort();
	}
	row->phase = to;
	log_debug("segment %llu: row %s -> %s", (unsigned long long)row->id, phases[from].name,
		  phases[to].name);
}

int fsm_drop(struct apply *a, struct segment_row *row)
{
	int over, rc = row->unlinked ? 0 : journal_delete_name(a->j, row->node, row->name);

	if (rc < 0)
		return rc;
	row->epoch++;
	row->unlinked = true;
	if (row->phase == SEGMENT_PULLING)
		return fsm_changed(a, row->id, journal_put_segment(a->j, row));
	over = fsm_is_over(a->j, row->node, row->node_inc);
	if (over < 0)
		return over;
	if ((row->extent_len == 0 && row->extent_asked == 0) || over)
		return fsm_changed(a, row->id, journal_delete_segment(a->j, row->id));
	fsm_go(row, SEGMENT_ORPHAN);
	row->src = 0;
	row->src_inc = 0;
	return fsm_changed(a, row->id, journal_put_segment(a->j, row));
}
