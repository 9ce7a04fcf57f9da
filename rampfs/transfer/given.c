/*
 * The source's end from GIVEN on: the segment has left, or comes back when the tables say so.
 *
 * Happy path: TRANSFER is repeated until the target says TAKEN or the tables show it as the owner
 * (R5). Programs are told. The request is answered when this node's tables and the target's show
 * the target as the owner. When the tables show that the target has settled, keys and bytes are
 * freed (R7).
 *
 * How it fails: abort(k) is proposed with the target's REFUSED(k), or with proof that its
 * incarnation is over. When the tables show this node as the owner again, keys are destroyed and
 * access is given back (R5). A file that is still mapped can't be freed, and a grant may fail after
 * a restart: both are tried again, with a growing pause.
 */
#include "given.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#include "figures.h"
#include "move_message.h"
#include "move_meta.h"
#include "move_request_core.h"
#include "news.h"
#include "rounds.h"

#define FREE_AGAIN_MS 4u
#define NAME_AFTER    4u    /* failed tries to free it, before all processes are searched */
#define LISTED_MS     1000u /* for the target's tables to show it as the owner */

int given_grant(struct move *m)
{
	struct tp_key key = tp_key_of_attempt(m->id, m->k);
	int rc = serve_grant(m->t->serve, m->seg, &key, m->peer, &m->work_err);

	if (!rc && m->trace)
		serve_trace(m->t->serve, &key, m->trace);
	return rc;
}

void given_ungrant(struct move *m)
{
	struct tp_key key = tp_key_of_attempt(m->id, m->k);

	serve_revoke(m->t->serve, &key);
}

void given_send(struct move *m, uint8_t type)
{
	struct msg_transfer tr = {
		.id = m->id,
		.k = m->k,
		.epoch = m->epoch,
		.size = m->size,
		.src_inc = m->t->incarnation,
		.dst_inc = m->peer_inc,
		.unchanged = m->unchanged,
	};
	struct stat st;

	if (!seg_stat(m->seg, &st)) {
		tr.mtime_s = st.st_mtim.tv_sec;
		tr.mtime_ns = (uint32_t)st.st_mtim.tv_nsec;
	}
	if (type == PROTO_TRANSFER)
		rounds_send_last(m, &tr);
	MOVE_SEND(m->t, m->peer, type, proto_put_transfer, &tr);
}

static void leave_work(struct move *m)
{
	rounds_end(m);
	programs_gone(m->t->programs, m->seg, m->peer_name);
}

static void prefetch_all_answered(void *arg, int result, const char *text)
{
	(void)arg;
	if (result)
		log_debug("prefetch of a segment that was moved on demand: %s", text);
}

/* Makes a request to move the segment to where it is, which waits for all of its pages: so the
   target prefetches them, also where its receiver would do without. */
void given_prefetch_all(struct move *m)
{
	struct migrate_request request = {
		.id = m->id,
		.from = m->peer, /* it may have moved on, and must not be moved back */
		.dst = m->peer,
		.wait_stable = true,
	};
	struct segment_row row;

	if (meta_segment(m->t->meta, m->id, &row) || row.node != m->peer)
		return;
	memcpy(request.dst_name, row.name, sizeof(request.dst_name));
	move_request_post(m->t, &request, prefetch_all_answered, NULL);
}

static void left(struct move *m)
{
	trace_step(m->trace, "programs are told");
	move_go(m, S_LEAVING, S_LEFT);
	news_tell(m, SESSION_LEFT);
	move_look(m->t, m->id);
}

void given_leave(struct move *m)
{
	move_go(m, S_GIVEN, S_LEAVING);
	m->source.told_programs = true;
	move_work(m, leave_work, left);
}

void given_window(struct move *m)
{
	struct transfers *t = m->t;
	unsigned bucket;
	uint64_t us;

	if (!m->source.window_from_us || m->source.got_taken)
		return;
	us = clock_us() - m->source.window_from_us;
	bucket = us ? 64 - (unsigned)__builtin_clzll(us) : 0;
	pthread_mutex_lock(&t->lock);
	t->status.done++;
	t->status.window_last_us = us;
	t->status.windows++;
	t->status.windows_us += us;
	t->status.window_us[bucket < TRANSFER_HISTOGRAM ? bucket : TRANSFER_HISTOGRAM - 1]++;
	if (us > t->status.window_max_us)
		t->status.window_max_us = us;
	pthread_mutex_unlock(&t->lock);
	figures_window(m, us);
	log_info("segment %" PRIu64 " '%s' is on node %s: window %" PRIu64 " us, list %s", m->id,
		 m->name, m->peer_name, us, m->unchanged ? "unchanged" : "changed");
}

/* ---- GIVEN: the row in the tables ------------------------------------------------------------ */

static void revert_work(struct move *m)
{
	struct transfers *t = m->t;
	struct record owned = {.kind = RECORD_OWNED, .epoch = m->row_epoch};

	given_ungrant(m); /* before access is given back */
	rounds_end(m);
	m->work_rc = record_change(m->seg, &owned, &m->work_err);
	if (m->work_rc)
		return;
	pull_watch_lost(t->pull, m->seg); /* a daemon that found it GIVEN does not yet */
	programs_restore(t->programs, m->seg);
	if (m->source.told_programs || !m->source.sent_transfer) /* perhaps in an earlier life */
		programs_back(t->programs, m->seg);
	seg_thaw(m->seg);
}

static void reverted(struct move *m)
{
	if (m->work_rc) {
		log_error("segment %" PRIu64 ": %s", m->id, m->work_err.text);
		abort(); /* the next daemon takes it up from its record */
	}
	transfers_set_rolled_back(m->t, m->id, false);
	news_tell(m, SESSION_FAILED);
	if (m->source.reclaim_accepted)
		move_answer(m, 0, "");
	else
		move_answer(m, -EHOSTUNREACH, "the target gave up: the segment stays");
	move_end(m);
}

/* R5: the row is ours again, at an epoch above e. Where the target may have served before it was
   over, the bytes are those of the freeze, and the owner or root has to accept that. */
static void revert(struct move *m, const struct segment_row *row)
{
	bool may_have_served = !m->source.got_refused && move_node_over(m->t, m->peer, m->peer_inc);

	if (m->state == S_ROLLED_BACK && !m->source.reclaim_accepted &&
	    row->phase != SEGMENT_ORPHAN)
		return;
	m->row_epoch = row->epoch;
	if (may_have_served && m->state != S_ROLLED_BACK && row->phase != SEGMENT_ORPHAN &&
	    !m->t->config.rollback_auto) {
		log_error("segment %" PRIu64 " '%s' is rolled back to its state when it left for "
			  "node %s, which is over; rampfs-migrate --reclaim accepts that",
			  m->id, row->name, m->peer_name);
		move_go(m, m->state, S_ROLLED_BACK);
		transfers_set_rolled_back(m->t, m->id, true);
		move_answer(m, -EHOSTUNREACH, "the target is over: the segment is rolled back");
		if (!m->source.told_programs)
			move_work(m, leave_work, given_look);
		m->source.told_programs = true;
		return;
	}
	log_info("segment %" PRIu64 " is ours again at epoch %" PRIu64, m->id, row->epoch);
	transfers_count(m->t, &m->t->status.failed);
	move_go(m, m->state, S_REVERTING);
	move_work(m, revert_work, reverted);
}

/* Names the process that keeps it: until then the segment can't come back here. */
static void name_keeper(struct move *m)
{
	char who[PROGRAMS_KEEPER];

	programs_keeper(m->seg, who);
	if (who[0])
		ramp_err_set(&m->work_err, EBUSY, "%s still has it mapped", who);
}

static void free_work(struct move *m)
{
	if (m->source.free_tries) /* it is still mapped: by clients that attached late */
		programs_gone(m->t->programs, m->seg, m->peer_name);
	given_ungrant(m);
	m->work_rc = store_remove(m->seg, true, &m->work_err);
	if (m->work_rc == -ENOENT)
		m->work_rc = 0;
	if (m->work_rc == -EBUSY && m->source.free_tries >= NAME_AFTER)
		name_keeper(m);
	/* A client that attached after given_leave has found GIVEN, and waits in the freeze until
	   now. */
	if (m->work_rc)
		return;
	programs_gone(m->t->programs, m->seg, m->peer_name);
	move_let_go(m);
}

static void freed(struct move *m)
{
	if (m->work_rc == 0) {
		transfers_set_rolled_back(m->t, m->id, false);
		move_end(m);
		return;
	}
	if (m->source.free_tries >= NAME_AFTER)
		memcpy(m->source.kept, m->work_err.text, sizeof(m->source.kept));
	if (m->source.free_tries++ == 9)
		log_warn("segment %" PRIu64 " has left but can't be freed yet: %s", m->id,
			 m->work_err.text);
	move_go(m, S_FREEING, S_LEFT);
	m->source.free_paused = true;
	move_tick_in(m, m->source.free_tries > 8 ? BACKOFF_MAX_MS
						 : FREE_AGAIN_MS << m->source.free_tries);
}

/* R7: the tables show an epoch above e in which this node is neither owner nor source. */
static void free_it(struct move *m)
{
	if (m->state == S_GIVEN) {
		given_leave(m);
		return;
	}
	if (m->source.free_paused)
		return;
	m->source.freeing = true;
	move_go(m, m->state, S_FREEING);
	move_work(m, free_work, freed);
}

/*
 * Returns whether a user of mv would find the segment at the target: the target's tables may show
 * it later than ours. They do once it says LISTED, or once the row has left PULLING. A silent
 * target is waited for LISTED_MS, one that is down not at all. The timer looks again.
 */
static bool listed_there(struct move *m, bool pulling)
{
	uint64_t now = clock_ms();

	if (!m->source.shown_since_ms)
		m->source.shown_since_ms = now;
	if (!pulling || m->source.got_listed || now >= m->source.shown_since_ms + LISTED_MS ||
	    !peer_up(m->t->peers, m->peer))
		return true;
	if (!uv_is_active((uv_handle_t *)&m->timer))
		move_tick_in(m, LISTED_MS);
	return false;
}

/* The row is the target's, or has moved on from there. */
static void owned_there(struct move *m, const struct segment_row *row)
{
	bool pulling = row_in_attempt(row, m->k);

	if (m->state == S_GIVEN) {
		given_window(m);
		m->source.got_taken = true;
		given_leave(m);
		return;
	}
	if (!m->source.row_shows_target) {
		m->source.row_shows_target = true;
		trace_step(m->trace, "the tables show the new owner");
		if (m->t->take_no_more)
			given_prefetch_all(m);
	}
	/* A request that joined waits for every page; the one before it may not have. */
	if (pulling && m->request && m->request->spec.wait_stable && !m->source.asked_prefetch) {
		m->source.asked_prefetch = true;
		given_prefetch_all(m);
	}
	if (m->request && m->state == S_LEFT && !(pulling && m->request->spec.wait_stable) &&
	    listed_there(m, pulling))
		move_request_done(m->request, 0, "");
	if (!pulling && !m->source.told_settled) {
		m->source.told_settled = true;
		news_tell(m, SESSION_SETTLED);
	}
	if (!pulling)
		free_it(m);
	else if (move_node_over(m->t, m->peer, m->peer_inc))
		move_propose_abort(m, PROOF_OVER); /* R5, from PULLING too */
}

/* R5: the row is MOVING(k), or the tables are behind: TRANSFER is repeated until they show more. */
static void undecided(struct move *m, const struct segment_row *row)
{
	if (m->source.got_refused)
		move_propose_abort(m, PROOF_REFUSED);
	else if (row_in_attempt(row, m->k) && move_node_over(m->t, m->peer, m->peer_inc))
		move_propose_abort(m, PROOF_OVER);
	if (!uv_is_active((uv_handle_t *)&m->timer))
		move_retry(m);
}

void given_look(struct move *m)
{
	struct segment_row row;
	int rc = meta_segment(m->t->meta, m->id, &row);

	if (m->working || m->syncing)
		return;
	if (m->source.grant_failed && !uv_is_active((uv_handle_t *)&m->timer))
		move_retry(m); /* whatever the row calls for: the target waits for pages */
	/* Whatever a copy shows: GIVEN stays frozen, and is served. */
	if (meta_why_copy(m->t->meta)) {
		if (!uv_is_active((uv_handle_t *)&m->timer))
			move_retry(m);
		return;
	}
	if (rc == -ENOENT && !m->synced) {
		move_sync(m); /* R7: absent proves nothing by itself */
	} else if (rc == -ENOENT && !meta_knows(m->t->meta, m->id)) {
		move_retry(
			m); /* its commits were lost with the old cluster: the target tells them */
	} else if (rc == -ENOENT) {
		move_answer(m, -ENOENT, "the segment was unlinked");
		free_it(m);
	} else if (rc) {
		move_retry(m);
	} else if (row.epoch <= m->epoch ||
		   (row.phase == SEGMENT_MOVING && ramp_attempt_equal(row.k, m->k))) {
		undecided(m, &row);
	} else if (row.node == m->t->self) {
		revert(m, &row);
	} else {
		owned_there(m, &row);
	}
}

/* R5: repeats TRANSFER until the tables show a newer epoch. */
static void given_resend(struct move *m)
{
	struct segment_row row;
	int rc = meta_segment(m->t->meta, m->id, &row);

	if (m->state == S_GIVEN && !m->source.got_refused &&
	    (rc || row.epoch <= m->epoch || row_in_attempt(&row, m->k)))
		given_send(m, PROTO_TRANSFER);
}

static void grant_work(struct move *m)
{
	m->work_rc = given_grant(m);
}

static void granted(struct move *m)
{
	bool was = m->source.grant_failed;

	m->source.grant_failed = m->work_rc != 0;
	if (m->source.grant_failed && !was)
		log_error("segment %" PRIu64
			  ": its pages can't be served: %s; again, until they can",
			  m->id, m->work_err.text);
	else if (was && !m->source.grant_failed)
		log_info("segment %" PRIu64 ": its pages are served again", m->id);
	given_resend(m);
	given_look(m);
}

void given_tick(struct move *m)
{
	m->source.free_paused = false;
	if (m->source.grant_failed && !m->source.freeing &&
	    (m->state == S_GIVEN || m->state == S_LEFT)) {
		move_work(m, grant_work, granted);
		return;
	}
	given_resend(m);
	given_look(m);
}

void given_reclaim(struct move *m)
{
	m->source.reclaim_accepted = true;
	move_look(m->t, m->id);
}

/* ---- after a restart ------------------------------------------------------------------------- */

bool given_comes_back(struct transfers *t, const struct segment_row *row)
{
	struct seg *seg = store_find(t->store, row->id);
	struct record record = {.kind = RECORD_NONE};

	if (!seg)
		return false;
	if (!seg_damaged(seg))
		record_get(seg, &record);
	seg_put(seg);
	return record.kind == RECORD_GIVEN && row->phase == SEGMENT_STABLE && row->node == t->self;
}

/* R8: a record GIVEN serves pulls at once. R5: TRANSFER is repeated. */
void given_take_up(struct transfers *t, struct seg *seg, const struct record *record)
{
	struct move *m = move_take_up(t, seg, record);

	if (!m)
		return;
	move_go(m, MOVE_NEW, S_GIVEN);
	move_work(m, grant_work, granted);
}
