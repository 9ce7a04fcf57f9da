/*
 * The target's end.
 *
 * Happy path: CONNECT makes a worker take room; the reservation is in memory and gets a random
 * ticket, ACCEPT. TRANSFER(k) of that ticket: record TAKEN, answered at once, served at once,
 * whether or not Raft is there (R11); taken is proposed; pages are pulled; when all are here
 * settled is proposed, and when the tables show the row STABLE the record becomes OWNED.
 *
 * How it fails: a reservation may be dropped at any time (R2: its source hung up, CLOSE, a
 * time-out, a restart), and then k is never taken: TRANSFER(k) is answered REFUSED for ever. What
 * is TAKEN stays, through restarts, until the tables show it settled, or reverted by proof that
 * this incarnation is over.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/log.h"
#include "memory/pages.h"
#include "move.h"

#define PULLED_EVERY_MS	  200u
#define TOLD_AGAIN_MS	  50u
#define PREFETCH_AFTER_MS 10u	/* at the latest, whether or not taken is committed */
#define COME_BACK_MS	  1000u /* after a daemon's start: for programs' sessions */

__attribute__((format(printf, 5, 6))) static void refuse_send(struct transfers *t, ramp_node_t to,
							      const struct msg_connect *c, int code,
							      const char *fmt, ...)
{
	struct msg_refuse r = {.id = c->id, .source_id = c->source_id, .code = (uint32_t)code};
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r.text, sizeof(r.text), fmt, ap);
	va_end(ap);
	MOVE_SEND(t, to, PROTO_REFUSE, proto_put_refuse, &r);
}

static void accept_send(struct move *m)
{
	struct msg_accept a = {
		.id = m->id,
		.source_id = m->k.source_id,
		.ticket = m->k.ticket,
		.dst_inc = m->t->incarnation,
	};

	MOVE_SEND(m->t, m->peer, PROTO_ACCEPT, proto_put_accept, &a);
	loop_rt_boost(m->t->loop, WINDOW_MS);
	m->target.source_hung_up = false;
	move_tick_in(m, RESERVED_MS);
}

/* ---- CONNECT --------------------------------------------------------------------------------- */

/* Room for what is populated and a slack; the page states of what will be pulled. */
static void reserve_work(struct move *m)
{
	struct ramp_err *err = &m->work_err;
	struct segment_row row;
	int rc = store_create(m->t->store, m->id, RECORD_NONE, 0, &m->seg, err);

	if (rc) {
		m->seg = NULL;
		m->work_rc = rc;
		return;
	}
	/* How its pages are wished goes with the segment; it decides what room it takes. */
	if (!meta_segment(m->t->meta, m->id, &row))
		seg_set_small(m->seg, row.pages == SEGMENT_PAGES_SMALL);
	rc = room_reserve(m->seg, m->size, m->ranges, m->n_ranges, m->slack_bytes, err);
	if (!rc)
		rc = pages_prepare(m->seg, m->size, err);
	for (uint32_t i = 0; i < m->n_ranges && !rc; i++)
		rc = pages_mark_remote(m->seg, m->ranges[i].offset / RAMP_PAGE_BYTES,
				       m->ranges[i].len / RAMP_PAGE_BYTES, err);
	trace_step(m->trace, "room is taken");
	m->work_rc = rc;
}

/* R2: a new random ticket for each attempt. */
static void reserved(struct move *m)
{
	struct msg_connect c = {.id = m->id, .source_id = m->k.source_id};

	if (m->work_rc) {
		refuse_send(m->t, m->peer, &c, -m->work_rc, "%s", m->work_err.text);
		if (m->seg)
			target_drop(m);
		else
			move_end(m);
		return;
	}
	if (atomic_load(&m->cancelled)) {
		target_drop(m);
		return;
	}
	move_forget_ranges(m); /* it may be pulled for hours */
	m->k.ticket = ramp_random64();
	move_go(m, T_RESERVING, T_RESERVED);
	trace_step(m->trace, "ACCEPT goes out");
	accept_send(m);
}

/* Nothing of it is recorded: it may be dropped at any time (R2). */
static bool is_reserved(const struct move *m)
{
	return m->state == T_RESERVED || m->state == T_COPYING;
}

/* Now, or when its worker is back. */
static void reserved_drop(struct move *m)
{
	if (m->working)
		atomic_store(&m->cancelled, true);
	else
		target_drop(m);
}

/* CONNECT for a segment that something is under way for here. */
static void connect_again(struct move *m, ramp_node_t from, const struct msg_connect *c)
{
	bool same = m->peer == from && m->k.source_id == c->source_id;

	if (m->state == T_RESERVED && same) {
		accept_send(m);
		return;
	}
	if (m->state == T_RESERVING && same) {
		/* The answer comes when its worker is back: much room takes long. */
		refuse_send(m->t, from, c, EINPROGRESS, "it is taking room for it");
		return;
	}
	if (m->state == T_COPYING && same)
		return; /* the answer is known */
	/* A newer attempt takes the place of an older one. */
	if ((is_reserved(m) || m->state == T_RESERVING) && c->epoch >= m->row_epoch)
		reserved_drop(m);
	refuse_send(m->t, from, c, EAGAIN, "an earlier copy of it is still here (%s)",
		    move_state_name(m->state));
}

static void connect_new(struct transfers *t, ramp_node_t from, struct msg_connect *c)
{
	struct move *m = move_new(t, c->id, NULL);

	if (!m)
		return;
	m->peer = from;
	m->peer_inc = c->src_inc;
	move_node_name(t, from, m->peer_name);
	m->k.source_id = c->source_id;
	m->row_epoch = c->epoch;
	m->size = c->size;
	m->slack_bytes = c->slack_bytes;
	m->demand_only = c->demand_only;
	m->wants_progress = c->progress;
	if (c->trace)
		trace_target(m);
	memcpy(m->name, c->name, sizeof(m->name));
	m->ranges = calloc(c->n_ranges + 1, sizeof(*m->ranges));
	if (!m->ranges) {
		move_go(m, MOVE_NEW, T_RESERVING);
		move_end(m);
		return;
	}
	for (uint32_t i = 0; i < c->n_ranges; i++)
		m->ranges[i] = (struct room_range){c->ranges[i].offset, c->ranges[i].len};
	m->n_ranges = c->n_ranges;
	move_go(m, MOVE_NEW, T_RESERVING);
	move_work(m, reserve_work, reserved);
}

static uint64_t bytes_of(const struct msg_connect *c)
{
	uint64_t bytes = c->slack_bytes;

	for (uint32_t i = 0; i < c->n_ranges; i++)
		bytes += c->ranges[i].len;
	return bytes;
}

/* R1: we take part, and S is who it says. R2: not while there is any record of the segment. */
static void do_connect(struct transfers *t, ramp_node_t from, struct msg_connect *c)
{
	struct move *m = move_find(t, c->id);
	struct segment_row row;
	struct seg *seg;

	if (m) {
		connect_again(m, from, c);
		return;
	}
	seg = store_find(t->store, c->id);
	if (seg) {
		seg_put(seg);
		refuse_send(t, from, c, EAGAIN, "a copy of it is here already");
		return;
	}
	if (t->take_no_more) {
		refuse_send(t, from, c, EHOSTUNREACH, "it is being unmounted");
		return;
	}
	if (meta_lookup(t->meta, t->self, c->name, &row) == 0 && row.id != c->id) {
		refuse_send(t, from, c, EEXIST, "something is named %s there", c->name);
		return;
	}
	if (store_makes_room_for(t->store, bytes_of(c))) {
		refuse_send(t, from, c, EINPROGRESS, "what was unlinked there is not free yet");
		return;
	}
	connect_new(t, from, c);
}

static void target_on_connect(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			      struct wire_r *body)
{
	struct transfers *t = arg;
	struct msg_connect c;

	if (!move_heard(body, proto_get_connect(body, &c)))
		return;
	/* What it begins nobody would wait for, once we close. */
	if (t->registered && t->started && !t->closing && c.src_inc == incarnation)
		do_connect(t, from, &c);
	free(c.ranges);
}

/* ---- giving up a reservation ----------------------------------------------------------------- */

static void drop_work(struct move *m)
{
	struct record record;
	bool took;

	record_get(m->seg, &record);
	took = record.kind != RECORD_NONE;
	if (m->target.pull_begun)
		pull_end(m->t->pull, m->id);
	if (took) { /* reverted by proof: nobody may go on with it here */
		seg_freeze(m->seg, FREEZE_MS,
			   NULL); /* for good; -EBUSY: it is, since the last try */
		programs_gone(m->t->programs, m->seg, m->peer_name);
	} else {
		room_release_slack(m->seg);
	}
	m->work_rc = store_remove(m->seg, took, &m->work_err);
	if (m->work_rc == -ENOENT)
		m->work_rc = 0;
}

static void dropped(struct move *m)
{
	struct transfers *t = m->t;
	ramp_segment_t id = m->id;

	if (m->work_rc) {
		move_retry(m);
		return;
	}
	move_end(m);
	move_look(t, id); /* R6 may want an abort now */
}

/* From here on k is never taken (R2). */
void target_drop(struct move *m)
{
	move_go(m, m->state, T_DROPPING);
	move_work(m, drop_work, dropped);
}

void target_release(struct move *m)
{
	struct record record;

	if (m->state < T_RESERVING || !m->seg || seg_removed(m->seg))
		return;
	record_get(m->seg, &record);
	if (record.kind == RECORD_NONE)
		drop_work(m);
}

/*
 * Nobody comes for a reservation whose source has gone, and it holds room: it is dropped, which R2
 * allows at any time; as soon as our tables have had time to show what was agreed. Only where the
 * row is MOVING(k) the source may have recorded GIVEN, and repeats TRANSFER when its daemon is back
 * (R5): that one is kept for it, until the timer.
 */
void target_source_away(struct move *m, bool over)
{
	if (m->state == T_RESERVING || over) {
		reserved_drop(m);
	} else if (m->state == T_RESERVED) {
		m->target.source_hung_up = true;
		move_tick_in(m, AWAY_MS);
	}
}

static void reserved_tick(struct move *m)
{
	struct segment_row row;

	if (m->target.source_hung_up && meta_segment(m->t->meta, m->id, &row) == 0 &&
	    row_in_attempt(&row, m->k)) {
		m->target.source_hung_up = false;
		move_tick_in(m, RESERVED_MS);
	} else {
		target_drop(m);
	}
}

/* CLOSE: a source that has given up, or a target that has settled. A hint, in both cases. */
static void on_close(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
		     struct wire_r *body)
{
	struct transfers *t = arg;
	struct msg_verdict v;
	struct move *m;

	(void)incarnation;
	if (!move_heard(body, proto_get_verdict(body, &v)))
		return;
	m = move_with(t, v.id, from);
	if (!m || m->k.source_id != v.k.source_id)
		return;
	if (is_reserved(m) || m->state == T_RESERVING)
		reserved_drop(m);
	else
		move_look(t, v.id);
}

/* ---- TRANSFER -------------------------------------------------------------------------------- */

static int record_taken(struct move *m)
{
	struct record taken = {
		.kind = RECORD_TAKEN,
		.epoch = m->epoch,
		.k = m->k,
		.peer = m->peer,
		.peer_inc = m->peer_inc,
		.unchanged = m->unchanged,
		.demand_only = m->demand_only,
		.size = m->size,
	};

	return record_change(m->seg, &taken, &m->work_err);
}

/* Pages beyond the end have no source any more: they are whole as they are. */
static void forget_tail(struct seg *seg, uint64_t pages)
{
	uint64_t page = pages;

	while ((page = pages_next_remote(seg, page)) != UINT64_MAX) {
		uint64_t won = pages_claim(seg, page, UINT64_MAX - page);

		pages_arrive(seg, page, won);
		page += won;
	}
}

/* The list in CONNECT is true no more: pages that it did not name are REMOTE too. */
int target_widen(struct move *m)
{
	struct ramp_err *err = &m->work_err;
	int rc = 0;

	if (seg_size(m->seg) != m->size && ftruncate(seg_fd(m->seg), (off_t)m->size))
		rc = ramp_err_sys(err, errno, "size of the segment");
	if (!rc)
		rc = pages_prepare(m->seg, m->size, err);
	if (!rc)
		rc = pages_mark_all_remote(m->seg, err);
	if (!rc)
		forget_tail(m->seg, (m->size + RAMP_PAGE_BYTES - 1) / RAMP_PAGE_BYTES);
	return rc;
}

static void widen_work(struct move *m)
{
	m->work_rc = target_widen(m);
	if (!m->work_rc)
		m->work_rc = record_taken(m);
}

static void target_begun(struct move *m);
static void begin_work(struct move *m);

/*
 * R11: TAKEN is recorded; it is served from here on, whatever Raft does. taken is proposed when the
 * programs that had the segment mapped have it back (taken_look): who sees it listed here, because
 * mv has returned, may touch it through an old mapping.
 */
static void taken(struct move *m, enum move_state from)
{
	move_go(m, from, T_TAKEN);
	trace_step(m->trace, "TAKEN is recorded and goes out");
	move_say(m->t, m->peer, PROTO_TAKEN, m->id, m->k, m->epoch);
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
	move_say(t, m->peer, PROTO_REFUSED, m->id, m->k, m->epoch);
	target_drop(m);
}

/* R2: RESERVED(k) -> record TAKEN, then serve. What was copied is of the size that KEYS named. */
static void take(struct move *m, const struct msg_transfer *tr)
{
	bool as_listed = m->state == T_COPYING || (tr->unchanged && tr->size == m->size);

	trace_step(m->trace, "TRANSFER has come");
	m->epoch = tr->epoch;
	m->size = tr->size;
	m->unchanged = tr->unchanged;
	seg_hold_mtime(m->seg, (struct timespec){.tv_sec = tr->mtime_s, .tv_nsec = tr->mtime_ns});
	if (!as_listed) {
		move_go(m, T_RESERVED, T_TAKING);
		move_work(m, widen_work, widened);
	} else if (record_taken(m)) {
		log_error("segment %" PRIu64 ": %s", m->id, m->work_err.text);
		move_say(m->t, m->peer, PROTO_REFUSED, m->id, m->k, m->epoch);
		target_drop(m);
	} else {
		taken(m, m->state);
	}
}

/* R2: k is TAKEN or OWNED already -> TAKEN; else -> REFUSED(k), for ever. */
void target_answer(struct transfers *t, ramp_node_t from, const struct msg_transfer *tr)
{
	struct seg *seg = store_find(t->store, tr->id);
	struct record record = {.kind = RECORD_NONE};
	bool have, damaged = false;

	if (seg) {
		record_get(seg, &record);
		damaged = seg_damaged(seg);
		seg_put(seg);
	}
	if (damaged)
		return; /* it may say TAKEN: a refusal would make two owners */
	have = record_serves(&record) && ramp_attempt_equal(record.k, tr->k);
	move_say(t, from, have ? PROTO_TAKEN : PROTO_REFUSED, tr->id, tr->k, tr->epoch);
}

static void target_on_transfer(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			       struct wire_r *body)
{
	struct transfers *t = arg;
	struct msg_transfer tr;
	struct move *m;

	(void)incarnation;
	if (!move_heard(body, proto_get_transfer(body, &tr)))
		return;
	if (!t->registered || !t->started) /* R1: not even a refusal */
		return;
	m = move_with(t, tr.id, from);
	if (m && ramp_attempt_equal(m->k, tr.k)) {
		if (m->state == T_TAKING ||
		    (m->state == T_COPYING && (m->working || !m->target.has_every_page)))
			return; /* the answer comes when its worker is back, or every page here */
		if (m->state == T_RESERVED || m->state == T_COPYING) {
			take(m, &tr);
			return;
		}
	}
	target_answer(t, from, &tr);
}

/* ---- T_TAKEN --------------------------------------------------------------------------------- */

/*
 * Page faults are answered first; then those who had it mapped before get it back in place. What
 * nobody asks for waits until taken is committed, or for a moment: a pull at full speed takes the
 * processors from the commit, and whoever called mv waits for that.
 */
int target_begin_pull(struct move *m)
{
	struct pull_source source = {
		.node = m->peer,
		.incarnation = m->peer_inc,
		.key = {.segment = m->id, .k_epoch = m->epoch, .k = m->k},
		.trace = m->trace,
		.alone = m->state == T_COPYING,
	};

	if (m->unchanged)
		room_release_slack(m->seg); /* all that comes is in the list */
	return pull_begin(m->t->pull, m->seg, &source, &m->work_err);
}

/* Of a copy nothing is left to pull. */
static void begin_and_tell(struct move *m)
{
	m->work_rc = m->target.has_every_page ? 0 : target_begin_pull(m);
	if (m->work_rc)
		return;
	trace_step(m->trace, "page faults are answered");
	programs_back(m->t->programs, m->seg);
}

/*
 * Programs wait for it, as they did for the source's worker. A daemon whose predecessor died
 * between TAKEN and here begins without sessions: before it proposes taken they have a moment to
 * come, since who sees mv return may touch the segment through an old mapping.
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
		room_take_slack_again(m->seg); /* after a restart */
	programs_await(m->t->programs, m->seg, m->t->started_ms + COME_BACK_MS);
	trace_step(m->trace, "programs have it back");
}

void target_prefetch(struct move *m)
{
	m->target.prefetch_wanted = true;
	if (m->target.prefetch_begun ||
	    !m->target.pull_begun) /* the latter: target_begun does it */
		return;
	m->target.prefetch_begun = true;
	pull_hurry(m->t->pull, m->id);
	trace_step(m->trace, "the prefetch begins");
}

static void target_begun(struct move *m)
{
	if (m->work_rc) {
		log_error("segment %" PRIu64 ": pulling can't begin: %s", m->id, m->work_err.text);
		move_retry(m);
		return;
	}
	m->target.pull_begun = true;
	if (m->target.prefetch_wanted)
		target_prefetch(m);
	if (!m->demand_only || m->wants_progress)
		move_tick_in(m, m->demand_only ? PULLED_EVERY_MS : PREFETCH_AFTER_MS);
	target_look(m);
}

static void row_proposed(struct move *m, const struct meta_reply *reply)
{
	/* Anything but a success or ESTALE was decided by nobody: again, for as long as it takes.
	   Both of those are in our own tables now. */
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

void target_propose_taken(struct move *m)
{
	propose_step(m, META_TAKEN);
}

static void settle_work(struct move *m)
{
	struct record owned = {.kind = RECORD_OWNED, .epoch = m->row_epoch, .k = m->k};

	seg_release_mtime(m->seg);
	room_release_slack(m->seg);
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
		 m->target.lost_pages ? "; pages of it are lost" : "");
	move_say(t, m->peer, PROTO_CLOSE, m->id, m->k, m->epoch);
	collapse_begin(t, m->id);
	move_end(m);
}

static void settle(struct move *m, uint64_t row_epoch)
{
	trace_step(m->trace, "settled is committed");
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
		move_say(m->t, m->peer, PROTO_LISTED, m->id, m->k, m->epoch);
		m->target.said_listed = true;
	}
	/* R9: only whole it can be let go of; then hurry. */
	if (row->unlinked || (row->phase == SEGMENT_PULLING && !m->demand_only))
		target_prefetch(m);
	if (!m->target.has_every_page && !m->target.told_pull_over &&
	    move_node_over(m->t, m->peer, m->peer_inc)) {
		m->target.told_pull_over = true;
		log_warn("segment %" PRIu64 ": node %s is over; what was not pulled is lost", m->id,
			 m->peer_name);
		move_work(m, over_work, target_look);
	}
}

static void taken_look(struct move *m)
{
	struct segment_row row;
	int rc = meta_segment(m->t->meta, m->id, &row);

	if (m->working || m->syncing)
		return;
	if (rc == 0 && !row_in_attempt(&row, m->k) && row.epoch > m->epoch &&
	    row.node != m->t->self) {
		log_error("segment %" PRIu64 " was taken back: this incarnation was declared over",
			  m->id);
		move_node_name(m->t, row.node, m->peer_name);
		target_drop(m);
	} else if (!m->target.pull_begun) {
		move_work(m, begin_work, target_begun);
	} else if (rc == -ENOENT && !m->synced) {
		move_sync(m); /* absent proves nothing by itself */
	} else if (rc == -ENOENT && !m->target.has_every_page) {
		/* Unlinked, and taken back from us: nobody can want the rest. Where there is none,
		   it has gone with the settled of a daemon before this one, and target_pulled is
		   about to say so. */
		if (pages_missing(m->seg) > pages_lost(m->seg))
			target_drop(m);
	} else if (rc == -ENOENT) {
		settle(m, m->epoch + 1); /* unlinked, settled and gone: ours to drop */
	} else if (rc) {
		move_retry(m);
	} else if (row_in_attempt(&row, m->k)) {
		in_attempt(m, &row);
	} else if (row.epoch <= m->epoch) {
		target_propose_taken(m); /* our tables are behind: the leader knows */
	} else {
		settle(m, row.epoch);
	}
}

/* R6: the source is over, the row MOVING(k), and we have not taken k. And where the row has gone on
   without k, nobody will come for it. */
static void reserved_look(struct move *m)
{
	struct segment_row row;

	if (meta_segment(m->t->meta, m->id, &row))
		return;
	if (row_in_attempt(&row, m->k) ? move_node_over(m->t, m->peer, m->peer_inc)
				       : row.epoch > m->row_epoch)
		target_drop(m);
}

void target_look(struct move *m)
{
	if (m->state == T_TAKEN)
		taken_look(m);
	else if (is_reserved(m))
		reserved_look(m);
}

void target_pulled_send(struct move *m)
{
	struct pull_progress progress;
	struct msg_pulled p = {.id = m->id, .k = m->k};

	if (pull_progress(m->t->pull, m->id, &progress))
		return;
	p.all_pages = progress.pages_all;
	p.done_pages =
		progress.pages_missing > p.all_pages ? 0 : p.all_pages - progress.pages_missing;
	MOVE_SEND(m->t, m->peer, PROTO_PULLED, proto_put_pulled, &p);
}

/*
 * The pull's word names the segment alone: one that is late may be about a former copy of it, which
 * had lost pages that were written over. So the pages themselves have to agree. (A store into a
 * lost page takes it off those that are lost a moment before it is there.)
 */
static void heed_pulled(struct move *m)
{
	if (!m->target.pull_said_done || m->target.has_every_page ||
	    (m->state != T_TAKEN && m->state != T_COPYING))
		return;
	if (pages_missing(m->seg) > pages_lost(m->seg)) {
		move_tick_in(m, TOLD_AGAIN_MS);
		return;
	}
	m->target.pull_said_done = false;
	if (m->state == T_COPYING)
		copy_pulled(m, m->target.lost_pages);
	if (m->state != T_TAKEN)
		return;
	m->target.has_every_page = true;
	trace_step(m->trace, "every page is here");
	move_look(m->t, m->id);
}

void target_pulled(struct move *m, uint64_t lost)
{
	m->target.pull_said_done = true;
	m->target.lost_pages = lost;
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
		reserved_tick(m);
	} else if (m->state == T_COPYING) {
		copy_target_tick(m);
	} else if (m->state == T_DROPPING) {
		move_work(m, drop_work, dropped);
	} else if (m->state == T_TAKEN) {
		if (m->target.pull_begun && !m->demand_only)
			target_prefetch(m);
		if (m->wants_progress && !m->target.has_every_page) {
			target_pulled_send(m);
			move_tick_in(m, PULLED_EVERY_MS);
		}
		taken_look(m);
	}
}

/* R8: TAKEN serves at once after a restart, and goes on pulling. */
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
	peers_on(t->peers, PROTO_CONNECT, target_on_connect, t);
	peers_on(t->peers, PROTO_TRANSFER, target_on_transfer, t);
	peers_on(t->peers, PROTO_CLOSE, on_close, t);
}
