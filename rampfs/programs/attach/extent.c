/*
 * The extent of a segment that is to be attached: found in its row, or given at the first mapping.
 *
 * How it fails: without a quorum there is no extent for a first mapping, and none where the addresses may
 * have been given back (give_back.c). A row that is older than the record beside the bytes is waited for.
 */
#include "extent.h"

#include <errno.h>
#include <sys/stat.h>

#include "attach.h"
#include "base/clock.h"
#include "base/session.h"
#include "memory/record.h"
#include "programs/attach/mapped_segment.h"
#include "programs/client/clients.h"
#include "programs/programs.h"

#define MOVING_LOOK_MS 10u /* between looks at its row while it is being moved */

/*
 * Makes a row for a segment that was unlinked. The extent is given in the segment's row. A segment
 * that was never mapped before has lost its row with its name; as long as it is open, its owner
 * gets one again, which goes when no process has the file open or mapped any more
 * (mount/orphans.c). The row's contents are beside the bytes.
 */
static int row_of_unlinked(struct programs *p, struct seg *seg, struct segment_row *row,
			   struct ramp_err *err)
{
	struct seg_owner owner = seg_owner(seg);
	struct record record;
	struct stat st;
	int rc = seg_stat(seg, &st);

	if (rc)
		return ramp_err_sys(err, -rc, "its size and times");
	record_get(seg, &record);
	if (record.kind != RECORD_OWNED)
		return ramp_err_set(err, EAGAIN, "it was unlinked, and its record is still %s",
				    record_kind_name(record.kind));
	*row = (struct segment_row){
		.id = seg_id(seg),
		.epoch = record.epoch,
		.phase = SEGMENT_ORPHAN,
		.node = meta_self(p->meta),
		.node_inc = store_incarnation(p->store),
		.size = (uint64_t)st.st_size,
		.mode = owner.mode,
		.uid = owner.uid,
		.gid = owner.gid,
		.atime = {.sec = st.st_atim.tv_sec, .nsec = (uint32_t)st.st_atim.tv_nsec},
		.mtime = {.sec = st.st_mtim.tv_sec, .nsec = (uint32_t)st.st_mtim.tv_nsec},
		.ctime = {.sec = st.st_ctim.tv_sec, .nsec = (uint32_t)st.st_ctim.tv_nsec},
		.pages = seg_small(seg) ? SEGMENT_PAGES_SMALL : SEGMENT_PAGES_AUTO,
	};
	return 0;
}

int extent_not_here(struct programs *p, ramp_segment_t id, struct ramp_err *err)
{
	struct segment_row row;
	struct node_row node;

	if (meta_segment(p->meta, id, &row))
		return ramp_err_set(err, ENOENT, "there is no such segment any more");
	if (row.node == meta_self(p->meta))
		return ramp_err_set(err, EIO, "its bytes are lost");
	if (meta_node(p->meta, row.node, &node))
		return ramp_err_set(err, EREMOTE, "it is on another node");
	return ramp_err_set(err, EREMOTE, "it is on node %s", node.name);
}

int extent_is_moved_long(struct ramp_err *err)
{
	return ramp_err_set(err, ETIMEDOUT, "it is being moved, and that takes long");
}

/* Waits until a move is decided. False: that takes too long. */
static bool wait_moved(struct programs *p, ramp_segment_t id, uint64_t until_ms)
{
	struct segment_row row;

	do {
		pthread_mutex_lock(&p->lock);
		programs_wait(p, clock_ms() + MOVING_LOOK_MS);
		pthread_mutex_unlock(&p->lock);
		if (clock_ms() >= until_ms || atomic_load(&p->closing))
			return false;
	} while (!meta_segment(p->meta, id, &row) && row.phase == SEGMENT_MOVING);
	return true;
}

static bool segment_has_left(struct programs *p, struct seg *seg)
{
	struct segment_row row;
	struct record record;

	record_get(seg, &record);
	return !record_serves(&record) && !meta_segment(p->meta, seg_id(seg), &row) &&
	       row.node != meta_self(p->meta);
}

/* Words that the user has as many addresses as it may have. */
static int has_no_more(struct programs *p, const struct segment_row *row, struct ramp_err *err)
{
	struct meta_settings settings;

	if (meta_get_settings(p->meta, &settings))
		return ramp_err_sys(err, EDQUOT, "its extent");
	return ramp_err_set(err, EDQUOT,
			    "the segments of user %u would have more than %llu MiB of addresses; "
			    "unlink some that were mapped, ask for a smaller extent "
			    "(user.ramp.extent), or root raises it: rampfs-node set arena-user-max",
			    row->uid, (unsigned long long)settings.arena_user_max >> 20);
}

static int propose_extent(struct programs *p, struct seg *seg, uint64_t end,
			  struct segment_row *row, struct ramp_err *err)
{
	struct meta_command command = {.cid = meta_own_command(p->meta),
				       .type = META_EXTENT,
				       .id = row->id,
				       .length = row->extent_asked};
	struct meta_reply reply;
	uint64_t size = seg_size(seg), until = clock_ms() + FREEZE_WAIT_MS;
	struct timespec now;
	int rc;

	clock_gettime(CLOCK_REALTIME, &now);
	command.now = (struct meta_time){.sec = now.tv_sec, .nsec = (uint32_t)now.tv_nsec};
	command.map_len = end > size ? end : size;
	/* Only if its row has gone: a segment with a name may be on another node by the time of
	   the commit. */
	if (row->phase == SEGMENT_ORPHAN) {
		command.epoch = row->epoch;
		command.node = row->node;
		command.node_inc = row->node_inc;
		command.attr = *row;
	}
	while ((rc = meta_propose_wait(p->meta, &command, &reply)) == -EBUSY) {
		if (!wait_moved(p, row->id, until))
			return extent_is_moved_long(err);
		if (segment_has_left(p, seg))
			return extent_not_here(p, row->id, err);
		command.cid = meta_own_command(p->meta);
	}
	if (rc == -EROFS)
		return ramp_err_set(err, EROFS,
				    row->extent_len ? "its addresses may have been given back, and "
						      "there is no quorum that could tell"
						    : "its first mapping needs an extent, and "
						      "there is no quorum");
	if (rc == -ENOSPC) /* of addresses; mmap(2) says ENOMEM for that */
		return ramp_err_set(err, ENOMEM,
				    "the cluster's arena has no free range that is large enough "
				    "for it (four times its size, at least 64 MiB, or what "
				    "user.ramp.extent asks for); unlink segments that were mapped, "
				    "or found a cluster with a larger arena");
	if (rc == -EDQUOT)
		return has_no_more(p, row, err);
	if (rc)
		return ramp_err_sys(err, -rc, "its extent");
	row->extent_addr = reply.extent_addr;
	row->extent_len = reply.extent_len;
	return 0;
}

static int read_row(struct programs *p, struct seg *seg, struct segment_row *row,
		    struct ramp_err *err)
{
	int rc = meta_segment(p->meta, seg_id(seg), row);

	if (rc == -ENOENT)
		return row_of_unlinked(p, seg, row, err);
	return rc ? ramp_err_sys(err, -rc, "the segment's row") : 0;
}

/* Returns whether this node serves by a record that is newer than the row. */
bool extent_row_is_behind(struct seg *seg, const struct segment_row *row)
{
	struct record record;

	record_get(seg, &record);
	return record_serves(&record) && row->epoch < record.epoch;
}

/*
 * Reads its row, which must be as new as the record: a target serves before its tables show it (R11),
 * and they may show an extent that was given back since. Waits for them.
 */
static int read_new_row(struct programs *p, struct seg *seg, struct segment_row *row,
			struct ramp_err *err)
{
	uint64_t until = clock_ms() + (meta_why_copy(p->meta) ? 0 : FREEZE_WAIT_MS);
	bool wait = true;

	for (;;) {
		int rc = read_row(p, seg, row, err);

		if (rc || !extent_row_is_behind(seg, row))
			return rc;
		if (!wait)
			return ramp_err_set(
				err, EROFS,
				"this node's metadata do not show yet that it came here");
		pthread_mutex_lock(&p->lock);
		programs_wait(p, clock_ms() + MOVING_LOOK_MS);
		pthread_mutex_unlock(&p->lock);
		wait = clock_ms() < until && !atomic_load(&p->closing);
	}
}

/*
 * Finds out whether the segment has an extent, and has one given if not. Where its addresses may have
 * been given back by a proposal whose result is not known, an EXTENT says it: when that is applied the
 * earlier proposal is carried out, or stale (command.h, the floor).
 */
static int find_row(struct programs *p, struct mapped_segment *mseg, struct seg *seg, uint64_t end,
		    struct segment_row *row, struct ramp_err *err)
{
	uint64_t holds, giving;
	int rc;

	pthread_mutex_lock(&p->lock);
	holds = mseg->holds;
	pthread_mutex_unlock(&p->lock);
	giving = seg_giving(seg);
	rc = read_new_row(p, seg, row, err);
	if (rc || (row->extent_len && giving < row->epoch))
		return rc;
	rc = propose_extent(p, seg, end, row, err);
	pthread_mutex_lock(&p->lock);
	if (!rc && mseg->holds == holds && !mseg->held)
		seg_end_giving(seg, giving + 1);
	pthread_mutex_unlock(&p->lock);
	return rc;
}

/* Sets the address of the range, and checks that it fits. */
int extent_use(struct attach_range *wish, const struct segment_row *row, struct ramp_err *err)
{
	uint64_t end = wish->offset + wish->len;

	if (end > row->extent_len)
		return ramp_err_set(
			err, ENOMEM,
			"the mapping ends at %llu MiB, its extent at %llu MiB for life; copy it to "
			"a new segment and set user.ramp.extent there before it is mapped",
			(unsigned long long)((end + (1 << 20) - 1) >> 20),
			(unsigned long long)(row->extent_len >> 20));
	wish->addr = row->extent_addr + wish->offset;
	if (row->pages == SEGMENT_PAGES_SMALL)
		wish->flags |= SESSION_NOHUGE;
	return 0;
}

/* Finds the segment's extent, has one given if it has none, and checks that the mapping fits. */
int extent_find(struct programs *p, struct mapped_segment *mseg, struct seg *seg,
		struct attach_range *wish, struct segment_row *row, struct ramp_err *err)
{
	uint64_t end = wish->offset + wish->len;
	int rc = find_row(p, mseg, seg, end, row, err);

	if (rc == -ENOENT) /* it was unlinked after its row was read */
		rc = find_row(p, mseg, seg, end, row, err);
	return rc ? rc : extent_use(wish, row, err);
}

void extent_note(struct mapped_segment *mseg, const struct segment_row *row)
{
	pthread_rwlock_wrlock(&mseg->lock);
	mseg->lo = row->extent_addr;
	mseg->hi = row->extent_addr + row->extent_len;
	pthread_rwlock_unlock(&mseg->lock);
}
