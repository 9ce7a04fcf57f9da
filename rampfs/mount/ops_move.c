/*
 * A rename to another node's directory: the migration.
 *
 * A move is no command of the metadata, so a resend finds no result of it. The segment of the move
 * is noted in the handover file instead, and a resend looks whether that segment is at its target.
 * A segment that has already moved on from there, within the daemon's restart, is ENOENT.
 */
#include "ops_move.h"

#include <errno.h>
#include <linux/capability.h>
#include <string.h>

#include "ask_leader.h"
#include "base/log.h"
#include "caller.h"
#include "inode.h"
#include "request.h"

#define MOVE_MS 5000 /* mv holds the kernel's rename lock of the whole mount */

struct rename_move {
	struct parked_request r; /* first */
	struct migrate_request what;
	ramp_node_t from;
	char name[RAMP_NAME_MAX + 1];
	bool limited; /* only if `owner` owns it */
	uint32_t owner;
	_Atomic uint64_t handle; /* 0: not begun */
	atomic_uint refs;	 /* begin_move's, and that of the callback with the result */
};

static void put_move(struct rename_move *mv)
{
	if (atomic_fetch_sub_explicit(&mv->refs, 1, memory_order_acq_rel) == 1)
		request_end(&mv->r);
}

static void on_move_interrupt(fuse_req_t fuse, void *data)
{
	struct rename_move *mv = data;
	uint64_t handle;

	(void)fuse;
	atomic_store(&mv->r.parked.interrupted, true);
	handle = atomic_load(&mv->handle);
	if (handle)
		transfers_cancel(mv->r.mount->config.transfers, handle);
}

static void moved(void *arg, int result, const char *text)
{
	struct rename_move *mv = arg;

	if (result)
		log_info("%s to node %u: %s", mv->name, mv->what.dst,
			 text && *text ? text : strerror(result < 0 ? -result : result));
	request_finish(&mv->r);
	if (mv->r.mount->stopped)
		fuse_reply_none(mv->r.fuse); /* the next daemon has it sent again, and looks */
	else
		fuse_reply_err(mv->r.fuse, result < 0 ? -result : result);
	put_move(mv);
}

static void begin_move(struct rename_move *mv)
{
	struct transfers *transfers = mv->r.mount->config.transfers;
	uint64_t handle;

	handover_move_begin(mv->r.mount->handover, mv->r.unique, mv->what.id);
	mv->r.interruptible = true;
	fuse_req_interrupt_func(mv->r.fuse, on_move_interrupt, mv);
	handle = transfers_migrate(transfers, &mv->what, moved, mv);
	atomic_store(&mv->handle, handle);
	if (atomic_load(&mv->r.parked.interrupted))
		transfers_cancel(transfers, handle);
	put_move(mv);
}

/* Looks for a segment whose move was sent again and that is not in its old place. Returns 1 if it
   is at its target, by the move that an earlier daemon began; in any other place it is by another
   move, or by a later one. */
static int look_where_it_went(const struct rename_move *mv, ramp_segment_t id)
{
	struct segment_row row;
	int rc = meta_segment(mv->r.mount->config.meta, id, &row);

	if (rc)
		return rc;
	return row.node == mv->what.dst && strcmp(row.name, mv->what.dst_name) == 0 ? 1 : -ENOENT;
}

/* Returns 0 if the segment has to be moved; 1 if a request that is sent again finds it at its
   target; -EAGAIN if such a request finds it on its way. */
static int look_before_move(struct rename_move *mv)
{
	struct meta *meta = mv->r.mount->config.meta;
	ramp_segment_t begun = handover_move(mv->r.mount->handover, mv->r.unique);
	struct segment_row row, there;
	int rc = meta_lookup(meta, mv->from, mv->name, &row);

	if (begun && (rc == -ENOENT || (!rc && row.id != begun)))
		return look_where_it_went(mv, begun);
	if (rc)
		return rc;
	if (mv->limited && row.uid != mv->owner)
		return -EPERM; /* the name is another user's segment since the kernel looked */
	/* Between the two look-ups it may have gone there. */
	if (meta_lookup(meta, mv->what.dst, mv->what.dst_name, &there) == 0)
		return there.id == row.id ? look_before_move(mv) : -EEXIST;
	mv->what.id = row.id;
	return row.phase == SEGMENT_MOVING && mv->r.resent ? -EAGAIN : 0;
}

/* Waits for an attempt whose daemon has died: the attempt is given up, or goes through. */
static enum park_verdict move_step(struct parked *parked)
{
	struct rename_move *mv = (struct rename_move *)parked;
	int rc = look_before_move(mv);

	if (rc == -EAGAIN && park_now_ms() - parked->since_ms < MOVE_MS)
		return PARK_WAIT;
	if (rc == 0) {
		begin_move(mv);
		return PARK_DONE;
	}
	request_finish(&mv->r);
	fuse_reply_err(mv->r.fuse, rc == -EAGAIN ? EINPROGRESS : rc < 0 ? -rc : 0);
	request_end(&mv->r);
	return PARK_DONE;
}

/* Looks where the segment is, and begins the move, waits, or answers. */
static void look_and_move(struct parked_request *r)
{
	struct rename_move *mv = (struct rename_move *)r;
	struct segment_row row;
	int rc = meta_lookup(r->mount->config.meta, mv->from, mv->name, &row);

	/* The check applies also to a segment that gets that name only later. */
	mv->limited = caller_is_limited(r->fuse, CAP_FOWNER, rc ? NULL : &row, &mv->owner);
	rc = look_before_move(mv);
	if (rc == -ENOENT && ask_leader(r, inode_of_node(mv->from), look_and_move))
		return;
	if (rc == -EAGAIN) {
		r->parked.step = move_step;
		park_wait(r->mount->park, &r->parked, mv->what.id);
	} else if (rc) {
		fuse_reply_err(r->fuse, rc < 0 ? -rc : 0);
		request_end(r);
	} else {
		begin_move(mv);
	}
}

void rename_to_node(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
		    const char *newname)
{
	struct rename_move *mv = request_new(req, sizeof(*mv));

	if (!mv)
		return;
	mv->refs = 2;
	mv->from = inode_node(parent);
	strcpy(mv->name, name);
	mv->what.from = mv->from;
	strcpy(mv->what.from_name, name);
	mv->what.dst = inode_node(newparent);
	strcpy(mv->what.dst_name, newname);
	mv->what.mode = TRANSFER_UNSAID;
	mv->what.timeout_ms = MOVE_MS;
	look_and_move(&mv->r);
}
