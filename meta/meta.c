/*
 * The meta thread: messages, turns of the replica, opening and closing. See meta.h.
 *
 * The happy path: another thread puts an item into the queue (meta_queue.c) and wakes the meta
 * thread. It takes all items, gives each to the core, to proposals.c, meta_sync.c, meta_show.c,
 * admission.c, amnesia.c or levels.c, and makes turns (replica.h) until nothing is left to write or
 * send. Results are called back from here, after the commit.
 *
 * How it fails: a journal that can't be written ends the process (config.fatal); where a caller's
 * own fatal returns, the thread continues only to answer -EIO. Messages that can't be decoded are
 * dropped. meta_close answers what is open with -ESHUTDOWN.
 */
#include "meta.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/wire.h"
#include "journal_copy.h"
#include "journal_create.h"
#include "meta_core.h"
#include "meta_impl.h"
#include "meta_queue.h"
#include "raft_log.h"
#include "raft_wire.h"
#include "row_cache.h"

/* ---- the replica's hooks --------------------------------------------------------------------- */

static void on_send(void *arg, const struct raft_message *m)
{
	struct meta *meta = arg;
	size_t want = raft_message_size(m) + 1;
	uint8_t *more;

	if (want > meta->out_cap) {
		more = realloc(meta->out, want);
		if (!more)
			return; /* as if it were lost */
		meta->out = more;
		meta->out_cap = want;
	}
	meta->out[0] = WIRE_RAFT;
	want = raft_message_encode(m, meta->out + 1, meta->out_cap - 1);
	if (want > 0)
		meta->config.send(meta->config.arg, m->to, meta->out, want + 1);
}

static void on_applied(void *arg, uint64_t index, const struct fsm_result *result)
{
	struct meta *meta = arg;
	size_t i;

	(void)index;
	for (i = 0; i < 2; i++)
		if (result->changed[i] != 0)
			meta->config.changed(meta->config.arg, result->changed[i],
					     result->type == META_SETATTR);
	if (result->members)
		meta->config.changed(meta->config.arg, 0, false);
	admission_applied(meta, result);
	levels_applied(meta, result);
	proposals_applied(meta, result);
}

static void on_restored(void *arg, uint64_t index)
{
	struct meta *meta = arg;

	log_info("meta: took a snapshot of entry %llu", (unsigned long long)index);
	meta->config.changed(meta->config.arg, 0, false);
	if (meta->config.restored)
		meta->config.restored(meta->config.arg);
	admission_applied(meta, NULL);
	levels_applied(meta, NULL);
	proposals_restored(meta);
}

static void on_amnesia(void *arg)
{
	amnesia_found(arg);
}

static void on_read_ready(void *arg, const struct raft_read *read)
{
	syncs_read_ready(arg, read);
}

static void on_changes(void *arg, ramp_segment_t id)
{
	struct meta *meta = arg;

	row_cache_changes(meta->readers.cache, id);
}

static void on_fatal(void *arg, const char *text)
{
	struct meta *meta = arg;

	if (meta->config.turn_failed)
		meta->config.turn_failed(meta->config.arg, text, meta->why);
	meta_fatal(arg, text);
}

/* ---- the thread ---------------------------------------------------------------------------- */

/* Another instance than the one bound to its number is brought up to date like any follower, but it
   neither leads nor votes, and its acknowledgements do not count, as if it were nonvoting. */
static void received_raft(struct meta *meta, struct raft_message *m, bool is_another)
{
	struct raft_event ev = {.type = RAFT_EV_MESSAGE, .message = m};
	bool follows = m->type == RAFT_APPEND_ANSWER || m->type == RAFT_SNAPSHOT_ANSWER;
	bool votes = m->type == RAFT_PREVOTE_ANSWER || m->type == RAFT_VOTE_ANSWER;

	m->nonvoting = m->nonvoting || is_another;
	if (!is_another || follows)
		meta_step(meta, &ev);
	else if (!votes)
		admission_answer_another(meta, m->from);
}

static void received(struct meta *meta, ramp_node_t from, uint64_t instance, const uint8_t *bytes,
		     size_t len)
{
	bool is_another = admission_is_another(meta, from, instance);
	struct raft_message m;
	struct wire_r r;
	uint64_t a, b;

	if (len < 1)
		return;
	levels_heard(meta, from);
	if (bytes[0] == WIRE_RAFT) {
		if (raft_message_decode(bytes + 1, len - 1, &m) < 0)
			return;
		m.from = from;
		m.to = meta->opened.self;
		received_raft(meta, &m, is_another);
		raft_message_release(&m);
		return;
	}
	if (bytes[0] == WIRE_FORWARD) {
		proposals_forwarded(meta, from, is_another, bytes + 1, len - 1);
		return;
	}
	wire_r_init(&r, bytes + 1, len - 1);
	if (bytes[0] == WIRE_LIFE) {
		amnesia_life(meta, &r);
		return;
	}
	if (bytes[0] == WIRE_MEMBERS) {
		if (!is_another) /* its members may be those of a cluster that exists no more */
			admission_members(meta, &r);
		return;
	}
	a = wire_get_u64(&r);
	b = wire_get_u64(&r);
	if (!wire_r_done(&r))
		return;
	if (bytes[0] == WIRE_READ)
		syncs_read_wanted(meta, from, a);
	else if (bytes[0] == WIRE_READ_ANSWER && !is_another)
		syncs_read_answer(meta, a, b);
	else if (bytes[0] == WIRE_SHOW)
		shows_wanted(meta, from, a, b);
	else if (bytes[0] == WIRE_SHOWN)
		shows_answer(meta, from, a);
	else if (bytes[0] == WIRE_LEVEL && !is_another)
		levels_said(meta, from, a);
	else if (bytes[0] == WIRE_ACKED)
		amnesia_acked(meta, a, b);
	else if (bytes[0] == WIRE_ADMISSION && a <= UINT8_MAX)
		admission_received(meta, from, (uint8_t)a, b);
}

static void carry_out(struct meta *meta, struct item *item)
{
	struct raft_event ev = {.node = item->node};

	switch (item->type) {
	case ITEM_MESSAGE:
		received(meta, item->node, item->instance, item->bytes, item->len);
		break;
	case ITEM_PROPOSAL:
		proposals_add(meta, item->proposal);
		break;
	case ITEM_SYNC:
		syncs_add(meta, item->sync);
		break;
	case ITEM_SHOW:
		shows_add(meta, item->show);
		break;
	case ITEM_PEER:
		ev.type = RAFT_EV_PEER;
		if (!item->up)
			break;
		meta->admission.again_ms = 0; /* it may know which instance is bound */
		amnesia_tell_life(meta, item->node);
		admission_tell_members(meta, item->node);
		meta_step(meta, &ev);
		break;
	case ITEM_TRANSFER:
		ev.type = RAFT_EV_TRANSFER;
		meta_step(meta, &ev);
		break;
	case ITEM_RELEASE:
		atomic_store(&meta->proposals.held, false);
		break;
	}
}

/* Logs a change of leader or term since the last turn, and returns true where there is one. */
static bool look_at_leader(struct meta *meta)
{
	const struct raft *r = replica_raft(meta->replica);

	if (r->leader == meta->leader && r->term == meta->term)
		return false;
	if (r->leader != 0)
		log_info("meta: node %u leads in term %llu", r->leader,
			 (unsigned long long)r->term);
	else if (meta->leader != 0)
		log_info("meta: no leader is known in term %llu", (unsigned long long)r->term);
	meta->leader = r->leader;
	meta->term = r->term;
	return true;
}

static void tend_requests(struct meta *meta)
{
	bool leader_changed = look_at_leader(meta);

	proposals_tend(meta, leader_changed);
	syncs_tend(meta, leader_changed);
	shows_tend(meta);
	levels_tend(meta, leader_changed);
}

/* Makes turns until there is nothing to write or send. */
static void make_turns(struct meta *meta)
{
	bool more;

	tend_requests(meta);
	do {
		replica_send_early(meta->replica);
		if (replica_commit(meta->replica) < 0)
			meta->dead = true;
		row_cache_committed(meta->readers.cache);
		meta->now_ms = meta_clock_ms();
		more = replica_finish(meta->replica, meta->now_ms);
		if (meta->dead)
			return;
		/* The turn's results may end some proposals, and so make room for others. */
		meta->stepped = false;
		tend_requests(meta);
	} while (more || meta->stepped);
}

/* Of a copy Raft's core never steps, and no message is sent: only requests are taken, and end for want
   of a leader. */
static void carry_out_of_copy(struct meta *meta, struct item *item)
{
	if (item->type == ITEM_PROPOSAL || item->type == ITEM_SYNC || item->type == ITEM_RELEASE)
		carry_out(meta, item);
	else
		item_refuse(item, -EROFS);
}

static void carry_out_all(struct meta *meta, struct item *work, bool go_on)
{
	struct item *item;

	while ((item = work)) {
		work = item->next;
		if (!go_on || meta->dead)
			item_refuse(item, go_on ? -EIO : -ESHUTDOWN);
		else if (meta->why)
			carry_out_of_copy(meta, item);
		else
			carry_out(meta, item);
		free(item);
	}
}

static void fail_all(struct meta *meta, int result)
{
	proposals_fail_all(meta, result);
	syncs_fail_all(meta, result);
	shows_fail_all(meta, result);
}

static void *meta_main(void *arg)
{
	struct meta *meta = arg;
	struct raft_event tick = {.type = RAFT_EV_TICK};
	struct item *work = NULL;
	uint64_t known_ms;
	bool go_on = true;

	pthread_setname_np(pthread_self(), "meta");
	while (go_on) {
		known_ms = meta->now_ms;
		if (meta->why) {
			tend_requests(meta);
		} else if (!meta->dead) {
			admission_tend(meta);
			meta_step(meta, &tick);
			make_turns(meta);
			amnesia_note_acked(meta);
		}
		if (meta->dead)
			fail_all(meta, -EIO);
		meta_publish(meta, known_ms);
		go_on = queue_take(meta, &work);
		carry_out_all(meta, work, go_on);
	}
	fail_all(meta, -ESHUTDOWN);
	return NULL;
}

/* ---- opening, closing ---------------------------------------------------------------------- */

int meta_format(const char *path, const struct meta_founding *founding, struct ramp_err *err)
{
	return journal_create(path, NULL, founding, err);
}

static void free_meta(struct meta *meta)
{
	readers_close(&meta->readers);
	replica_close(meta->replica);
	pthread_mutex_destroy(&meta->lock);
	pthread_mutex_destroy(&meta->admission.lock);
	pthread_cond_destroy(&meta->wake);
	free(meta->path);
	free(meta->why);
	free(meta->out);
	free(meta);
}

static struct meta *new_meta(const struct meta_config *config, const char *path, const char *why)
{
	struct meta *meta = calloc(1, sizeof(*meta));
	pthread_condattr_t attr;

	if (!meta)
		return NULL;
	meta->config = *config;
	pthread_mutex_init(&meta->lock, NULL);
	pthread_mutex_init(&meta->admission.lock, NULL);
	readers_init(&meta->readers);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&meta->wake, &attr);
	pthread_condattr_destroy(&attr);
	meta->queue_end = &meta->queue;
	meta->own_client = ramp_random64();
	meta->now_ms = meta->quorum_ms = meta_clock_ms();
	proposals_init(&meta->proposals);
	syncs_init(&meta->syncs);
	shows_init(&meta->shows);
	meta->path = strdup(path);
	meta->why = why ? strdup(why) : NULL;
	return meta;
}

static int open_at(const struct meta_config *config, const char *path, const char *why,
		   struct meta **out, struct ramp_err *err)
{
	struct meta *meta = new_meta(config, path, why);
	struct replica_config rc_config = {.hooks = {.send = on_send,
						     .applied = on_applied,
						     .restored = on_restored,
						     .read_ready = on_read_ready,
						     .amnesia = on_amnesia}};
	int rc;

	if (!meta || !meta->path || (why && !meta->why) || !meta->readers.cache) {
		rc = ramp_err_set(err, ENOMEM, "meta: out of memory");
		goto err_free;
	}
	rc_config.only_read = why != NULL;
	rc_config.journal.path = meta->path;
	rc_config.journal.fatal = on_fatal;
	rc_config.journal.changes = on_changes;
	rc_config.journal.arg = rc_config.hooks.arg = meta;
	rc_config.raft.heartbeat_ms = config->heartbeat_ms;
	rc_config.raft.election_ms = config->election_ms;
	rc_config.raft.seed = ramp_random64();
	rc = replica_open(&rc_config, meta->now_ms, &meta->replica, err);
	if (rc < 0)
		goto err_free;
	journal_state(replica_journal(meta->replica), &meta->opened);
	if (meta->opened.restored)
		log_error("meta: node %u has an old copy of its journal and no vote: needs "
			  "--rejoin",
			  meta->opened.self);
	meta_publish(meta, meta->now_ms);
	rc = pthread_create(&meta->thread, NULL, meta_main, meta);
	if (rc != 0) {
		rc = ramp_err_sys(err, rc, "meta: the thread can't be started");
		goto err_free;
	}
	*out = meta;
	return 0;
err_free:
	if (meta)
		free_meta(meta);
	return rc;
}

int meta_open(const struct meta_config *config, struct meta **out, struct ramp_err *err)
{
	return open_at(config, config->journal_path, NULL, out, err);
}

int meta_open_copy(const struct meta_config *config, const char *copy, struct meta **out,
		   struct ramp_err *err)
{
	int rc = journal_copy(config->journal_path, copy, err);

	if (rc)
		return rc;
	rc = open_at(config, copy, config->why, out, err);
	if (rc)
		journal_copy_remove(copy);
	return rc && rc != -ENOMEM && rc != -EOPNOTSUPP ? -EUCLEAN : rc;
}

int meta_open_rows(const struct meta_config *config, const char *copy,
		   const struct meta_founding *known, const struct segment_row *rows, size_t n,
		   struct meta **out, struct ramp_err *err)
{
	int rc = journal_of_rows(copy, known, rows, n, err);

	rc = rc ? rc : open_at(config, copy, config->why, out, err);
	if (rc)
		journal_copy_remove(copy);
	return rc;
}

void meta_remove_copy(const char *copy)
{
	journal_copy_remove(copy);
}

void meta_close(struct meta *meta)
{
	if (!meta)
		return;
	pthread_mutex_lock(&meta->lock);
	meta->stop = true;
	pthread_cond_signal(&meta->wake);
	pthread_mutex_unlock(&meta->lock);
	pthread_join(meta->thread, NULL);
	free_meta(meta);
}
