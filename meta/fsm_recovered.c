/*
 * A node's record tells of commits that were lost with the old cluster. See fsm_recovered.h.
 *
 * The record counts (R8): OWNED and TAKEN say that the proposer has the segment, and a record TAKEN
 * proves that prepare(k) was committed, and that the source gave the segment away (R3). In a
 * cluster that was never recovered nothing is written here: whatever a record tells of was
 * committed before it was made, so that no row is older than a record. There a row can show the
 * source of a record TAKEN as the owner only where the attempt was aborted because the target is
 * over (R5), and then the proposer is not current.
 */
#include "fsm_recovered.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fsm_moves.h"
#include "journal_nodes.h"
#include "journal_segments.h"

#define NODE_NUMBER_MAX 65536 /* above it: no number that a cluster has given */

static bool is_taken(const struct meta_command *c)
{
	return c->src != 0;
}

/* Gives the source a row where it joined by a commit that was lost: as a node that is removed and
   over, so that the pull from it ends, and no other node gets its number. */
static int know_source(struct apply *a)
{
	struct node_row row = {.node = a->c->src,
			       .incarnation = a->c->src_inc,
			       .fenced = a->c->src_inc,
			       .role = NODE_REMOVED};
	struct node_row known;
	int rc = is_taken(a->c) ? journal_get_node(a->j, row.node, &known) : 0;

	if (rc != -ENOENT)
		return rc;
	if (row.node > NODE_NUMBER_MAX)
		return -EINVAL;
	rc = journal_skip_nodes(a->j, row.node);
	if (rc < 0)
		return rc;
	snprintf(row.name, sizeof(row.name), "lost-%u", row.node);
	a->res->members = true;
	return journal_put_node(a->j, &row);
}

/* Makes the proposer the owner in the row, which has no name in any directory by now. */
static int take_over(struct apply *a, struct segment_row *row)
{
	const struct meta_command *c = a->c;
	int rc;

	fsm_end_attempt(row);
	row->node = c->node;
	row->node_inc = c->node_inc;
	row->epoch = (row->epoch > c->epoch ? row->epoch : c->epoch) + 1;
	if (is_taken(c)) {
		fsm_go(row, SEGMENT_PULLING);
		row->src = c->src;
		row->src_inc = c->src_inc;
		row->k = c->k;
		row->k_epoch = c->epoch;
	}
	rc = row->unlinked ? 0 : fsm_name_on_return(a->j, row->node, row);
	if (rc == 0 && !row->unlinked)
		rc = journal_put_name(a->j, row->node, row->name, row->id, false);
	return rc ? rc : fsm_put(a, row);
}

/* Names a row that is made: as it was noted beside the bytes, where that name is free. */
static int name_row(struct apply *a, struct segment_row *row)
{
	const char *noted = a->c->new_name;
	int rc = noted[0] ? fsm_name_free(a->j, a->c->node, noted) : -EEXIST;

	if (rc == 0)
		memcpy(row->name, noted, sizeof(row->name));
	else if (rc == -EEXIST)
		snprintf(row->name, sizeof(row->name), "recovered-%" PRIu64, row->id);
	return rc == -EEXIST ? 0 : rc;
}

/* Makes the row of a segment of which the tables know nothing. */
static int make_row(struct apply *a)
{
	const struct meta_command *c = a->c;
	struct segment_row row = c->attr;
	int rc = journal_segment_was(a->j, c->id);

	if (rc != 0)
		return rc < 0 ? rc : -ENOENT;
	rc = know_source(a);
	rc = rc ? rc : journal_note_recovered(a->j, c->id);
	if (rc < 0)
		return rc;
	row.id = c->id;
	row.phase = SEGMENT_STABLE;
	rc = name_row(a, &row);
	return rc ? rc : take_over(a, &row);
}

/* Returns 0 where the row lacks commits that the record tells of, 1 where it is as the record says,
   else an errno. */
static int compare(const struct meta_command *c, const struct segment_row *row)
{
	bool in_k = (row->phase == SEGMENT_MOVING || row->phase == SEGMENT_PULLING) &&
		    ramp_attempt_equal(row->k, c->k);
	bool with_source =
		row->phase == SEGMENT_STABLE && row->node == c->src && row->node_inc == c->src_inc;

	if (is_taken(c) ? in_k : row->node == c->node && row->node_inc == c->node_inc)
		return 1;
	if (row->phase == SEGMENT_ORPHAN || row->node == c->node)
		return -ESTALE;
	return row->epoch < c->epoch || (is_taken(c) && with_source) ? 0 : -ESTALE;
}

int fsm_recovered(struct apply *a)
{
	const struct meta_command *c = a->c;
	struct segment_row row;
	int rc = fsm_is_current(a->j, c->node, c->node_inc);

	if (rc != 1)
		return rc < 0 ? rc : -EHOSTDOWN;
	if (c->id < RAMP_SEGMENT_ID_MIN || c->src == c->node)
		return -EINVAL;
	rc = journal_get_segment(a->j, c->id, &row);
	if (rc == -ENOENT)
		return make_row(a);
	if (rc == 0)
		rc = compare(c, &row);
	if (rc != 0)
		return rc == 1 ? 0 : rc;
	rc = know_source(a);
	if (rc == 0 && row.phase == SEGMENT_MOVING)
		rc = journal_delete_name(a->j, row.dst, row.dst_name);
	if (rc == 0 && !row.unlinked)
		rc = journal_delete_name(a->j, row.node, row.name);
	if (rc < 0)
		return rc;
	if (row.phase != SEGMENT_STABLE)
		fsm_go(&row, SEGMENT_STABLE);
	return take_over(a, &row);
}
