/*
 * The state machine's rules about migration. See fsm_moves.h. R3: epoch and k are compared, and
 * each step raises the epoch. R1 to R13 are defined in contrib/doc/design.md.
 *
 * How it fails: a rule that forbids a command gives an errno as its result, and nothing but that
 * result is written then. Every function checks first and writes last.
 */
#include "fsm_moves.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "journal_segments.h"

/* A segment may return to a directory where its name is taken by now. */
int fsm_name_on_return(struct journal *j, ramp_node_t node, struct segment_row *row)
{
	char name[RAMP_NAME_MAX + 1];
	int i, rc = fsm_name_free(j, node, row->name);

	for (i = 1; rc == -EEXIST; i++) {
		char tail[48];

		if (i == 1)
			snprintf(tail, sizeof(tail), "~%llu", (unsigned long long)row->id);
		else
			snprintf(tail, sizeof(tail), "~%llu~%d", (unsigned long long)row->id, i);
		snprintf(name, sizeof(name), "%.*s%s", (int)(RAMP_NAME_MAX - strlen(tail)),
			 row->name, tail);
		rc = fsm_name_free(j, node, name);
		if (rc == 0)
			memcpy(row->name, name, sizeof(name));
	}
	return rc;
}

/* Returns 0 where the prepare is allowed: both ends are current (R1), and the row is as the source
   knows it (R3). */
static int check_prepare(struct apply *a, const struct segment_row *row, const char *name)
{
	const struct meta_command *c = a->c;
	int rc;

	if (c->node == c->src)
		return -EINVAL;
	if (row->phase == SEGMENT_MOVING)
		return -EBUSY;
	if (row->phase != SEGMENT_STABLE || row->epoch != c->epoch || row->node != c->src ||
	    row->node_inc != c->src_inc)
		return -ESTALE;
	rc = fsm_is_current(a->j, c->src, c->src_inc);
	if (rc == 1)
		rc = fsm_is_current(a->j, c->node, c->node_inc);
	if (rc != 1)
		return rc < 0 ? rc : -EHOSTDOWN;
	return fsm_name_free(a->j, c->node, name);
}

int fsm_prepare(struct apply *a)
{
	const struct meta_command *c = a->c;
	struct segment_row row;
	const char *name;
	int rc = journal_get_segment(a->j, c->id, &row);

	if (rc < 0)
		return rc == -ENOENT ? -ESTALE : rc;
	if (row.phase == SEGMENT_MOVING && ramp_attempt_equal(row.k, c->k) &&
	    row.k_epoch == c->epoch + 1) {
		fsm_reply(a, &row);
		return 0; /* a repetition of the one in progress */
	}
	name = c->new_name[0] ? c->new_name : row.name;
	rc = check_prepare(a, &row, name);
	if (rc < 0)
		return rc;
	rc = journal_put_name(a->j, c->node, name, row.id, true);
	if (rc < 0)
		return rc;
	memmove(row.dst_name, name, strlen(name) + 1);
	fsm_go(&row, SEGMENT_MOVING);
	row.dst = c->node;
	row.dst_inc = c->node_inc;
	row.k = c->k;
	row.k_epoch = ++row.epoch;
	return fsm_put(a, &row);
}

/* Reads the row of a command of attempt k. Returns 0, or -ESTALE: it is not in `phase` by that
   attempt. */
static int of_attempt(struct apply *a, enum segment_phase phase, struct segment_row *row)
{
	int rc = journal_get_segment(a->j, a->c->id, row);

	if (rc < 0)
		return rc == -ENOENT ? -ESTALE : rc;
	if (row->phase != phase || row->k_epoch != a->c->epoch ||
	    !ramp_attempt_equal(row->k, a->c->k))
		return -ESTALE;
	return 0;
}

void fsm_end_attempt(struct segment_row *row)
{
	row->dst = row->src = 0;
	row->dst_inc = row->src_inc = 0;
	row->dst_name[0] = '\0';
	row->k = (struct ramp_attempt){0};
	row->k_epoch = 0;
}

/* R11: it can't fail, since the name is reserved and no other command changes a row in MOVING. */
int fsm_taken(struct apply *a)
{
	struct segment_row row;
	int rc = of_attempt(a, SEGMENT_MOVING, &row);

	rc = rc ? rc : journal_delete_name(a->j, row.node, row.name);
	rc = rc ? rc : journal_put_name(a->j, row.dst, row.dst_name, row.id, false);
	if (rc < 0)
		return rc;
	fsm_go(&row, SEGMENT_PULLING);
	row.src = row.node;
	row.src_inc = row.node_inc;
	row.node = row.dst;
	row.node_inc = row.dst_inc;
	row.dst = 0;
	row.dst_inc = 0;
	memcpy(row.name, row.dst_name, sizeof(row.name));
	row.dst_name[0] = '\0';
	row.epoch++;
	return fsm_put(a, &row);
}

int fsm_settled(struct apply *a)
{
	struct segment_row row;
	int rc = of_attempt(a, SEGMENT_PULLING, &row);

	if (rc < 0)
		return rc;
	fsm_end_attempt(&row);
	fsm_go(&row, SEGMENT_STABLE);
	if (row.unlinked) {
		rc = fsm_drop(a, &row);
		fsm_reply(a, &row);
		return rc;
	}
	row.epoch++;
	return fsm_put(a, &row);
}

/* Gives the segment back to the source, before the target has taken it. */
static int abort_moving(struct apply *a, struct segment_row *row)
{
	int rc = journal_delete_name(a->j, row->dst, row->dst_name);

	if (rc < 0)
		return rc;
	fsm_end_attempt(row);
	fsm_go(row, SEGMENT_STABLE);
	row->epoch++;
	return fsm_put(a, row);
}

/* Gives the segment back to the source from a target that is over (R5). */
static int abort_pulling(struct apply *a, struct segment_row *row)
{
	int rc = row->unlinked ? 0 : journal_delete_name(a->j, row->node, row->name);

	if (rc < 0)
		return rc;
	row->node = row->src;
	row->node_inc = row->src_inc;
	fsm_end_attempt(row);
	fsm_go(row, SEGMENT_STABLE);
	if (row->unlinked) { /* R9: dropped at the source */
		rc = fsm_drop(a, row);
		fsm_reply(a, row);
		return rc;
	}
	rc = fsm_name_on_return(a->j, row->node, row);
	rc = rc ? rc : journal_put_name(a->j, row->node, row->name, row->id, false);
	row->epoch++;
	return rc ? rc : fsm_put(a, row);
}

/* Returns 0, or -EPERM: PROOF_OVER must name an end of the row that is over (R1, R5). */
static int check_proof(struct apply *a, ramp_node_t node, ramp_incarnation_t inc)
{
	int rc;

	if (a->c->proof != PROOF_OVER)
		return 0;
	if (a->c->proof_node != node || a->c->proof_inc != inc)
		return -EPERM;
	rc = fsm_is_over(a->j, node, inc);
	return rc < 0 ? rc : rc == 1 ? 0 : -EPERM;
}

/* PROOF_NONE and PROOF_REFUSED come from an end that may abort (R4, R5, R6), and are valid only
   until the target has taken the segment; after that only PROOF_OVER is. */
int fsm_abort(struct apply *a)
{
	struct segment_row row;
	int rc = of_attempt(a, SEGMENT_MOVING, &row);

	if (rc == 0) {
		/* R6: the source may be the end that is over, and the target gives up. */
		rc = a->c->proof_node == row.node ? check_proof(a, row.node, row.node_inc)
						  : check_proof(a, row.dst, row.dst_inc);
		return rc ? rc : abort_moving(a, &row);
	}
	if (rc != -ESTALE)
		return rc;
	rc = of_attempt(a, SEGMENT_PULLING, &row);
	if (rc < 0)
		return rc;
	if (a->c->proof != PROOF_OVER)
		return -ESTALE;
	rc = check_proof(a, row.node, row.node_inc);
	return rc ? rc : abort_pulling(a, &row);
}
