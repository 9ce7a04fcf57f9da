/*
 * Happy path: an umount takes the names away, not the memory. So the daemon first finishes the
 * pulls in both directions, hands over leadership, waits for moves that are prepared and not given,
 * and stops the loop.
 *
 * How it fails: a pull that makes no progress for LINGER_IDLE_MS is left to the next start, which
 * the records let continue it. SIGTERM, also after an umount, waits for no pull. A move that is
 * prepared and not given is ended first in either case, because its row could not be changed until
 * the next start. An upgrade stops at once: the next daemon takes all up.
 */
#include "ending.h"

#include "base/log.h"
#include "floors.h"
#include "memory/store.h"
#include "meta/meta.h"
#include "pull/pull.h"
#include "transfer/transfer.h"

#define LINGER_LOOK_MS 20
#define LINGER_IDLE_MS 5000
#define UNDECIDED_MS   2000 /* for an abort to be committed */
#define HANDOVER_MS    500  /* for the next leader to be heard of */

static void count_under_way(void *arg, struct seg *seg)
{
	unsigned *n = arg;
	struct record record;

	record_get(seg, &record);
	*n += record.kind == RECORD_GIVEN || record.kind == RECORD_TAKEN;
}

/* Waits only for moves that no other node could end, including those that began meanwhile. */
static void on_undecided(uv_timer_t *timer)
{
	struct ending *e = timer->data;

	if (transfers_undecided(e->floors->transfers, true) &&
	    uv_now(loop_uv(e->floors->loop)) - e->linger_since_ms < UNDECIDED_MS)
		return;
	uv_timer_stop(timer);
	loop_stop(e->floors->loop);
}

static int is_other_voter(void *arg, const struct node_row *row)
{
	struct ending *e = arg;

	return row->role == NODE_VOTER && row->node != meta_self(e->floors->cluster.meta);
}

static bool leads(struct ending *e)
{
	return meta_leader(e->floors->cluster.meta) == meta_self(e->floors->cluster.meta);
}

static void on_handing_over(uv_timer_t *timer)
{
	struct ending *e = timer->data;

	if (leads(e) && uv_now(loop_uv(e->floors->loop)) - e->linger_since_ms < HANDOVER_MS) {
		/* Again: the others may have lagged until now. */
		meta_transfer_leadership(e->floors->cluster.meta);
		return;
	}
	uv_timer_start(timer, on_undecided, 0, LINGER_LOOK_MS);
}

/* Hands leadership over first: during an election time-out no node could create or move
   anything. */
static void leave_cluster(struct ending *e)
{
	e->linger_since_ms = uv_now(loop_uv(e->floors->loop));
	if (!leads(e) || meta_each_node(e->floors->cluster.meta, is_other_voter, e) != 1) {
		uv_timer_start(&e->linger, on_undecided, 0, LINGER_LOOK_MS);
		return;
	}
	meta_transfer_leadership(e->floors->cluster.meta);
	uv_timer_start(&e->linger, on_handing_over, LINGER_LOOK_MS, LINGER_LOOK_MS);
}

static void on_linger(uv_timer_t *timer)
{
	struct ending *e = timer->data;
	uint64_t now = uv_now(loop_uv(e->floors->loop));
	struct pull_status pull;
	unsigned left = 0;

	store_each(e->floors->store, count_under_way, &left);
	left += transfers_undecided(e->floors->transfers, false);
	pull_status(e->floors->pull, &pull);
	if (pull.bytes + pull.served_bytes != e->linger_seen) {
		e->linger_seen = pull.bytes + pull.served_bytes;
		e->linger_since_ms = now;
	}
	if (left && now - e->linger_since_ms < LINGER_IDLE_MS)
		return;
	if (left)
		log_warn("%u segments are still under way and make no progress; the next start "
			 "continues with them",
			 left);
	leave_cluster(e);
}

void ending_begin(void *arg, enum mount_end why)
{
	struct ending *e = arg;

	if (why == MOUNT_UPGRADE && e->linger_since_ms)
		return; /* it ends already, and no other daemon is wanted */
	if (why == MOUNT_UPGRADE) {
		log_info("handing over to a new daemon");
		loop_stop(e->floors->loop);
		return;
	}
	e->linger_since_ms = uv_now(loop_uv(e->floors->loop));
	if (why == MOUNT_TERMINATE) {
		log_info("told to end; the next start continues what is under way");
		leave_cluster(e);
		return;
	}
	log_info("unmounted; finishing what is under way");
	transfers_refuse_new(e->floors->transfers);
	uv_timer_start(&e->linger, on_linger, 0, LINGER_LOOK_MS);
}

void ending_init(struct ending *e, struct floors *floors)
{
	*e = (struct ending){.floors = floors};
	uv_timer_init(loop_uv(floors->loop), &e->linger);
	e->linger.data = e;
}
