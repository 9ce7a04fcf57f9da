/*
 * The target's end from TRANSFER on. (Before it: target_reserve.c.)
 *
 * Happy path: TRANSFER(k) of a ticket that is reserved makes the record TAKEN. It is answered at
 * once, and the segment is served at once, with or without Raft (R11). taken is proposed; pages are
 * pulled; when all are here settled is proposed. When the tables show the row STABLE the record
 * becomes OWNED.
 *
 * How it fails: a record TAKEN remains, through restarts, until the tables show the row settled, or
 * reverted by proof that this incarnation is over. Proposals are repeated for as long as it takes.
 */
#include "target.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/page.h"
#include "memory/pages.h"
#include "memory/reserve.h"

#include "collapse.h"
#include "copy.h"
#include "figures.h"
#include "link_speed.h"
#include "move_message.h"
#include "move_meta.h"
#include "news.h"
#include "recovered.h"
#include "target_pull.h"
#include "target_reserve.h"
#include "target_rounds.h"

#define PULLED_EVERY_MS	  200u
#define TOLD_AGAIN_MS	  50u	/* between two looks whether the pull is over, as it said */
#define PREFETCH_AFTER_MS 10u	/* at the latest, whether or not taken is committed */
#define PARTS_AT_ONCE	  16u	/* STOREDs whose pages are made REMOTE on the control loop */
#define COME_BACK_MS	  1000u /* after a daemon's start, for clients to attach again */

/* ---- TRANSFER -------------------------------------------------------------------------------- */

static void widen_work(struct move *m)
{
	m->work_rc = target_widen(m);
	if (!m->work_rc)
		m->work_rc = move_record(m, RECORD_TAKEN);
}

static void target_begun(struct move *m);
static void begin_work(struct move *m);

/*
 * R11: TAKEN is recorded; the segment is served from here on, whatever Raft does. taken is proposed
 * when the programs that had the segment mapped have it back (taken_look): once it is listed here
 * mv returns, and a program may then touch it through an old mapping.
 */
static void taken(struct move *m, enum move_state from)
{
	move_go(m, from, T_TAKEN);
	trace_step(m->trace, "TAKEN is recorded and goes out");
	move_send_verdict(m->t, m->peer, PROTO_TAKEN, m->id, m->k, m->epoch);
	figures_taken(m);
	if (m->target.has_every_page) /* a copy; or nothing was stored into since the last round */
		figures_whole(m, from == T_COPYING);
	move_work(m, begin_work, target_begun);
}

static void widened(struct move *m)
{
	struct transfers *t = m->t;

	if (m->work_rc == 0) {
		taken(m, T_TAKING);
		return;
	}
	log_warn("segment %" PRIu64 " can't be taken: %s", m->id, m->work_err.text);
	move_send_verdict(t, m->peer, PROTO_REFUSED, m->id, m->k, m->epoch);
	target_drop(m);
}

/* R2: what was read ahead is kept, but for what TRANSFER names. */
static void take_rounds_work(struct move *m)
{
	m->work_rc = target_rounds_mark(m);
	if (!m->work_rc)
		m->work_rc = move_record(m, RECORD_TAKEN);
	m->target.has_every_page = !m->work_rc && pages_missing(m->seg) == 0;
}

static void target_take_rounds(struct move *m, const struct msg_transfer *tr)
{
	if (!target_rounds_may_take(m, tr)) {
		move_send_verdict(m->t, m->peer, PROTO_REFUSED, m->id, m->k, m->epoch);
		target_drop(m);
		return;
	}
	move_go(m, T_ROUNDS, T_TAKING);
	m->target.was_read_ahead = true;
	if (tr->parts > PARTS_AT_ONCE) {
		move_work(m, take_rounds_work, widened);
		return;
	}
	take_rounds_work(m);
	widened(m);
}

/* R2: RESERVED(k) -> record TAKEN, then serve. A copy has the size that KEYS named. */
static void target_take(struct move *m, const struct msg_transfer *tr)
{
	bool as_listed = m->state == T_COPYING || (tr->unchanged && tr->size == m->size);

	trace_step(m->trace, "TRANSFER has come");
	if (m->prefill) /* PREFILL has not come through: its limit is not this pull's */
		m->limit_bytes_s = 0;
	m->prefill = false;
	m->epoch = tr->epoch;
	m->size = tr->size;
	m->unchanged = tr->unchanged;
	seg_hold_mtime(m->seg, (struct timespec){.tv_sec = tr->mtime_s, .tv_nsec = tr->mtime_ns});
	if (m->state == T_ROUNDS) {
		target_take_rounds(m, tr);
	} else if (!as_listed) {
		move_go(m, T_RESERVED, T_TAKING);
		move_work(m, widen_work, widened);
	} else if (move_record(m, RECORD_TAKEN)) {
		log_error("segment %" PRIu64 ": %s", m->id, m->work_err.text);
		move_send_verdict(m->t, m->peer, PROTO_REFUSED, m->id, m->k, m->epoch);
		target_drop(m);
	} else {
		taken(m, m->state);
	}
}

static void target_on_transfer(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			       struct wire_r *body)
{
	struct transfers *t = arg;
	struct msg_transfer tr;
	struct move *m;

	(void)incarnation;
	if (!move_decoded(body, proto_get_transfer(body, &tr)))
		return;
	if (!t->registered || !t->started) /* R1: not even a refusal */
		return;
	m = move_for(t, from, tr.id, tr.k);
	if (m && (m->state == T_TAKING || (m->state == T_ROUNDS && target_rounds_awaits(m, &tr)) ||
		  (m->state == T_COPYING && (m->working || !m->target.has_every_page))))
		return; /* the answer comes when the worker returns, or every page is here */
	if (m && target_is_reserved(m)) {
		target_take(m, &tr);
		return;
	}
	target_answer(t, from, &tr);
}

/* ---- T_TAKEN --------------------------------------------------------------------------------- */

/* Begins the pull, of which a copy needs none, and tells the programs. */
static void begin_and_tell(struct move *m)
{
	m->work_rc = m->target.has_every_page ? 0 : target_begin_pull(m);
	if (m->work_rc)
		return;
	trace_step(m->trace, "page faults are answered");
	programs_back(m->t->programs, m->seg);
}

/*
 * Runs at real-time priority, as source_freeze_work does: programs wait for it. A daemon that died
 * between TAKEN and here is followed by one that begins without clients. They have COME_BACK_MS to
 * attach before taken is proposed: once mv returns, a program may touch the segment through an old
 * mapping.
 */
static void begin_work(struct move *m)
{
	bool lifted = !kernel_rt_boost(KERNEL_WINDOW_PRIORITY);

	begin_and_tell(m);
	if (lifted)
		kernel_rt_boost(0);
	if (m->work_rc)
		return;
	if (!m->unchanged)
		reserve_take_slack_again(m->seg); /* after a restart */
	programs_await(m->t->programs, m->seg, m->t->started_ms + COME_BACK_MS);
	trace_step(m->trace, "programs have it back");
}

static void target_begun(struct move *m)
{
	if (m->work_rc) {
		log_error("segment %" PRIu64 ": pulling can't begin: %s", m->id, m->work_err.text);
		move_retry(m);
		return;
	}
	m->target.pull_begun = true;
	if (!m->target.said_listed)
		news_tell(m, SESSION_HERE);
	if (m->target.prefetch_wanted)
		target_prefetch(m);
	if (!m->demand_only || m->wants_progress)
		move_tick_in(m, m->demand_only ? PULLED_EVERY_MS : PREFETCH_AFTER_MS);
	target_look(m);
}

static void row_proposed(struct move *m, const struct meta_reply *reply)
{
	m->target.taken_is_stale |= reply->result == -ESTALE;
	/* A success or ESTALE is in our own tables now. Any other answer has decided nothing: the
	   proposal is repeated for as long as it takes. */
	if (reply->result && reply->result != -ESTALE)
		move_retry(m);
	else
		move_look(m->t, m->id);
}

static void propose_step(struct move *m, enum meta_command_type type)
{
	struct meta_command command = {.type = type, .epoch = m->epoch};

	if (!m->proposing)
		move_propose(m, &command, row_proposed);
}

static void target_propose_taken(struct move *m)
{
	propose_step(m, META_TAKEN);
}

static void recovered_proposed(struct move *m, const struct meta_reply *reply)
{
	if (reply->result)
		move_retry(m);
	else
		move_look(m->t, m->id);
}

/* The commits that brought the segment here were lost with the old cluster: the record tells of
   them. */
static void target_propose_recovered(struct move *m)
{
	struct meta_command command;

	if (m->proposing)
		return;
	log_warn("segment %" PRIu64 " is here, and the cluster does not know it: its commits were "
		 "lost with the old cluster",
		 m->id);
	recovered_command(m->t->meta, m->seg, m->t->incarnation, &command);
	if (m->t->config.noted_name)
		m->t->config.noted_name(m->seg, command.new_name);
	move_propose(m, &command, recovered_proposed);
}

static void settle_work(struct move *m)
{
	struct record owned = {.kind = RECORD_OWNED, .epoch = m->row_epoch, .k = m->k};

	seg_release_mtime(m->seg);
	reserve_release_slack(m->seg);
	m->work_rc = record_change(m->seg, &owned, &m->work_err);
	if (!m->work_rc && pages_missing(m->seg) == 0)
		pages_settle(m->seg);
}

static void settled(struct move *m)
{
	struct transfers *t = m->t;

	if (m->work_rc) {
		log_error("segment %" PRIu64 ": %s", m->id, m->work_err.text);
		abort(); /* the next daemon takes it up from its record */
	}
	log_info("segment %" PRIu64 " is settled here%s", m->id,
		 m->target.pulled.lost ? "; pages of it are lost, or given up" : "");
	news_tell(m, SESSION_WHOLE);
	move_send_verdict(t, m->peer, PROTO_CLOSE, m->id, m->k, m->epoch);
	collapse_begin(t, m->id);
	move_end(m);
}

/* The tables list it here, once an attempt: programs can open it. */
static void target_listed(struct move *m)
{
	if (m->target.said_listed)
		return;
	m->target.said_listed = true;
	news_tell(m, SESSION_ARRIVED);
}

static void settle(struct move *m, uint64_t row_epoch)
{
	trace_step(m->trace, "settled is committed");
	target_listed(m);
	m->row_epoch = row_epoch;
	move_go(m, T_TAKEN, T_SETTLING);
	move_work(m, settle_work, settled);
}

static void over_work(struct move *m)
{
	pull_source_over(m->t->pull, m->peer, m->peer_inc);
}

/* The row is in k: MOVING until taken is committed, then PULLING until settled is. */
static void in_attempt(struct move *m, const struct segment_row *row)
{
	if (row->phase == SEGMENT_MOVING)
		target_propose_taken(m);
	else if (m->target.has_every_page)
		propose_step(m, META_SETTLED);
	if (row->phase == SEGMENT_PULLING && !m->target.said_listed) {
		trace_step(m->trace, "taken is committed");
		move_send_verdict(m->t, m->peer, PROTO_LISTED, m->id, m->k, m->epoch);
		target_listed(m);
	}
	/* R9: it can be let go of only with all of its pages: prefetch. */
	if (row->unlinked || (row->phase == SEGMENT_PULLING && !m->demand_only))
		target_prefetch(m);
	if (!m->target.has_every_page && !m->target.told_pull_over &&
	    move_node_over(m->t, m->peer, m->peer_inc)) {
		m->target.told_pull_over = true;
		log_warn("segment %" PRIu64
			 ": node %s is over; pages that were not pulled are lost",
			 m->id, m->peer_name);
		move_work(m, over_work, target_look);
	}
}

/* Pulls, and decides nothing: the steps after TAKEN are metadata. */
static void taken_without_meta(struct move *m)
{
	if (!m->target.pull_begun)
		move_work(m, begin_work, target_begun);
	else if (!m->demand_only)
		target_prefetch(m);
}

static void taken_look(struct move *m)
{
	struct segment_row row;
	int rc = meta_segment(m->t->meta, m->id, &row);

	if (m->working || m->syncing)
		return;
	if (meta_why_copy(m->t->meta)) {
		taken_without_meta(m);
		return;
	}
	if (rc == 0 && !row_in_attempt(&row, m->k) && row.epoch > m->epoch &&
	    row.node != m->t->self && !recovered_is_due(m, &row)) {
		log_error("segment %" PRIu64 " was taken back: this incarnation was declared over",
			  m->id);
		move_node_name(m->t, row.node, m->peer_name);
		target_drop(m);
	} else if (!m->target.pull_begun) {
		move_work(m, begin_work, target_begun);
	} else if (rc == -ENOENT && !m->synced) {
		move_sync(m); /* absent proves nothing by itself */
	} else if (rc == -ENOENT && recovered_is_due(m, NULL)) {
		target_propose_recovered(m);
	} else if (rc == -ENOENT && !m->target.has_every_page) {
		/* Unlinked, and taken back from this node: the missing pages are of no use. Where
		   none is missing, the row was removed by an earlier daemon's settled, and
		   target_pulled will be called. */
		if (pages_missing(m->seg) > pages_lost(m->seg))
			target_drop(m);
	} else if (rc == -ENOENT) {
		settle(m, m->epoch + 1); /* unlinked and settled: this node's to drop */
	} else if (rc) {
		move_retry(m);
	} else if (row_in_attempt(&row, m->k)) {
		in_attempt(m, &row);
	} else if (row.epoch <= m->epoch && !m->target.taken_is_stale) {
		target_propose_taken(m); /* our tables are behind: the leader knows more */
	} else if (recovered_is_due(m, &row)) {
		target_propose_recovered(m);
	} else if (row.epoch <= m->epoch) {
		move_retry(m);
	} else {
		settle(m, row.epoch);
	}
}

void target_look(struct move *m)
{
	if (m->state == T_TAKEN)
		taken_look(m);
	else if (target_is_reserved(m))
		target_reserved_look(m);
}

/*
 * Believes the pull's word only where the page states agree. That word names the segment alone: a
 * late one may be about an earlier copy, whose lost pages were overwritten. (A store into a lost
 * page takes it off the lost pages shortly before it is LOCAL.)
 */
static void heed_pulled(struct move *m)
{
	if (!m->target.pull_said_done || m->target.has_every_page ||
	    (m->state != T_TAKEN && m->state != T_ROUNDS && m->state != T_COPYING))
		return;
	if (pages_missing(m->seg) > pages_lost(m->seg)) {
		move_tick_in(m, TOLD_AGAIN_MS);
		return;
	}
	m->target.pull_said_done = false;
	if (m->state == T_ROUNDS)
		target_rounds_pulled(m);
	if (m->state == T_COPYING)
		copy_pulled(m, m->target.pulled.lost);
	if (m->state != T_TAKEN)
		return;
	m->target.has_every_page = true;
	trace_step(m->trace, "every page is here");
	figures_whole(m, false);
	move_look(m->t, m->id);
}

void target_pulled(struct move *m, const struct pull_figures *pulled)
{
	if (m->target.prefetch_begun && !pulled->lost && !m->limit_bytes_s)
		link_note(m->t, m->peer, m->target.prefetch_pages * RAMP_PAGE_BYTES,
			  clock_us() - m->target.prefetch_us);
	m->target.pull_said_done = true;
	m->target.pulled = *pulled;
	heed_pulled(m);
}

void target_tick(struct move *m)
{
	if (m->working)
		return;
	heed_pulled(m);
	if (m->working)
		return;
	if (m->state == T_RESERVED) {
		target_reserved_tick(m);
	} else if (m->state == T_ROUNDS) {
		target_rounds_tick(m);
	} else if (m->state == T_COPYING) {
		copy_target_tick(m);
	} else if (m->state == T_DROPPING) {
		target_drop_again(m);
	} else if (m->state == T_TAKEN) {
		if (m->target.pull_begun && !m->demand_only)
			target_prefetch(m);
		if (m->wants_progress && !m->target.has_every_page) {
			target_send_pulled(m);
			move_tick_in(m, PULLED_EVERY_MS);
		}
		taken_look(m);
	}
}

/* R8: a record TAKEN serves at once after a restart, and its pull continues. */
void target_take_up(struct transfers *t, struct seg *seg, const struct record *record)
{
	struct move *m = move_take_up(t, seg, record);

	if (!m)
		return;
	m->target.prefetch_wanted = t->take_no_more;
	move_go(m, MOVE_NEW, T_TAKEN);
	taken_look(m);
}

void target_listen(struct transfers *t)
{
	peers_on(t->peers, PROTO_TRANSFER, target_on_transfer, t);
}
