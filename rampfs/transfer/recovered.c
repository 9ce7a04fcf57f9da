/*
 * Records that tell of commits which the tables do not have. See recovered.h.
 */
#include "recovered.h"

#include <string.h>

#include "transfer_core.h"

#define MODE_UNKNOWN 0600 /* of a segment whose owner was never noted beside its bytes */

static struct meta_time of_timespec(struct timespec t)
{
	return (struct meta_time){.sec = t.tv_sec, .nsec = (uint32_t)t.tv_nsec};
}

void recovered_command(struct meta *meta, struct seg *seg, ramp_incarnation_t incarnation,
		       struct meta_command *command)
{
	struct seg_owner owner = seg_owner(seg);
	struct record record;
	struct stat st = {0};

	record_get(seg, &record);
	memset(command, 0, sizeof(*command));
	command->type = META_RECOVERED;
	command->id = seg_id(seg);
	command->node = meta_self(meta);
	command->node_inc = incarnation;
	command->epoch = record.epoch;
	if (record.kind == RECORD_TAKEN) {
		command->k = record.k;
		command->src = record.peer;
		command->src_inc = record.peer_inc;
	}
	command->attr.mode = owner.mode ? owner.mode : MODE_UNKNOWN;
	command->attr.uid = owner.uid;
	command->attr.gid = owner.gid;
	if (seg_stat(seg, &st))
		return;
	command->attr.size = (uint64_t)st.st_size;
	command->attr.atime = of_timespec(st.st_atim);
	command->attr.mtime = of_timespec(st.st_mtim);
	command->attr.ctime = of_timespec(st.st_ctim);
}

bool recovered_owned_is_due(struct meta *meta, struct seg *seg, const struct segment_row *row)
{
	struct record record;

	if (seg_damaged(seg))
		return false;
	record_get(seg, &record);
	if (record.kind != RECORD_OWNED)
		return false;
	return row ? row->node != meta_self(meta) && row->epoch < record.epoch
		   : !meta_knows(meta, seg_id(seg));
}

bool recovered_is_due(const struct move *m, const struct segment_row *row)
{
	if (!row)
		return !meta_knows(m->t->meta, m->id);
	if (row->phase == SEGMENT_ORPHAN || row->node == m->t->self)
		return false;
	if (row->epoch < m->epoch)
		return true;
	/* Renamed at its source since the recovery, say. Where the target is over this is R5's
	   abort. */
	return row->phase == SEGMENT_STABLE && row->node == m->peer &&
	       row->node_inc == m->peer_inc && !move_node_over(m->t, m->t->self, m->t->incarnation);
}
