/*
 * The meta thread: a queue, the clock, and turns of the replica. See meta.h.
 *
 * The happy path: whoever calls puts an item into the queue and wakes the thread; it takes all
 * that is there, gives each item to the core or to meta_ask.c, and makes turns (replica.h) until
 * nothing is left to write or send. Results are called back from here, after the commit.
 *
 * How it fails: a journal that can't be written ends the process (config.fatal); where a caller's
 * own fatal returns, the thread goes on only to answer -EIO. Messages that can't be decoded are
 * dropped. meta_close answers what is open with -ESHUTDOWN.
 */
#include "meta.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/wire.h"
#include "journal_create.h"
#include "meta_impl.h"
#include "raft_log.h"
#include "raft_wire.h"

enum item_type { ITEM_MESSAGE, ITEM_ASK, ITEM_SYNC, ITEM_PEER, ITEM_TRANSFER, ITEM_RELEASE };

/* Something for the meta thread. */
struct item {
	struct item *next;
	enum item_type type;
	ramp_node_t node;
	uint64_t instance; /* ITEM_MESSAGE: the sender's */
	bool up;
	struct ask *ask;
	struct sync *sync;
	size_t len;
	uint8_t bytes[];
};

uint64_t meta_clock_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* ---- the core's outside -------------------------------------------------------------------- */

int meta_step(struct meta *meta, struct raft_event *event)
{
	event->now_ms = meta->now_ms;
	meta->stepped = true;
	return replica_step(meta->replica, event);
}

bool meta_forsaken(struct meta *meta)
{
	bool forsaken;

	pthread_mutex_lock(&meta->lock);
	forsaken = !raft_has_quorum(replica_raft(meta->replica)) &&
		   meta->now_ms >= meta->quorum_ms + META_PATIENCE_MS;
	pthread_mutex_unlock(&meta->lock);
	return forsaken;
}

void meta_send_small(struct meta *meta, ramp_node_t to, enum meta_wire kind, uint64_t a, uint64_t b)
{
	uint8_t buf[17];
	struct wire_w w;

	wire_w_init(&w, buf, sizeof(buf));
	wire_put_u8(&w, (uint8_t)kind);
	wire_put_u64(&w, a);
	wire_put_u64(&w, b);
	meta->config.send(meta->config.arg, to, buf, w.len);
}

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
	asks_applied(meta, result);
}

static void on_restored(void *arg, uint64_t index)
{
	struct meta *meta = arg;

	log_info("meta: took a snapshot of entry %llu", (unsigned long long)index);
	meta->config.changed(meta->config.arg, 0, false);
	if (meta->config.restored)
		meta->config.restored(meta->config.arg);
	asks_restored(meta);
}

static void on_forgot(void *arg)
{
	greet_forgot(arg);
}

static void on_read_ready(void *arg, const struct raft_read *read)
{
	asks_read_ready(arg, read);
}

void meta_fatal(struct meta *meta, const char *text)
{
	meta->dead = true;
	if (meta->config.fatal) {
		meta->config.fatal(meta->config.arg, text);
		return;
	}
	log_error("%s", text);
	_exit(1);
}

static void on_fatal(void *arg, const char *text)
{
	meta_fatal(arg, text);
}

/* ---- the thread ---------------------------------------------------------------------------- */

/* Another instance than the one bound to its number catches up like any follower, and has no say:
   it neither leads nor votes, and what it acknowledges counts as little as where it says so. */
static void received_raft(struct meta *meta, struct raft_message *m, bool is_another)
{
	struct raft_event ev = {.type = RAFT_EV_MESSAGE, .message = m};
	bool follows = m->type == RAFT_APPEND_ANSWER || m->type == RAFT_SNAPSHOT_ANSWER;
	bool votes = m->type == RAFT_PREVOTE_ANSWER || m->type == RAFT_VOTE_ANSWER;

	m->silent = m->silent || is_another;
	if (!is_another || follows)
		meta_step(meta, &ev);
	else if (!votes)
		greet_another(meta, m->from);
}

static void received(struct meta *meta, ramp_node_t from, uint64_t instance, const uint8_t *bytes,
		     size_t len)
{
	bool is_another = greet_is_another(meta, from, instance);
	struct raft_message m;
	struct wire_r r;
	uint64_t a, b;

	if (len < 1)
		return;
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
		asks_forwarded(meta, from, is_another, bytes + 1, len - 1);
		return;
	}
	wire_r_init(&r, bytes + 1, len - 1);
	if (bytes[0] == WIRE_LIFE) {
		greet_life(meta, &r);
		return;
	}
	if (bytes[0] == WIRE_MEMBERS) {
		if (!is_another) /* the members of a cluster that is no more, it may be */
			greet_members(meta, &r);
		return;
	}
	a = wire_get_u64(&r);
	b = wire_get_u64(&r);
	if (!wire_r_done(&r))
		return;
	if (bytes[0] == WIRE_READ)
		asks_read_wanted(meta, from, a);
	else if (bytes[0] == WIRE_READ_ANSWER && !is_another)
		asks_read_answer(meta, a, b);
	else if (bytes[0] == WIRE_HELD)
		greet_held(meta, a, b);
	else if (bytes[0] == WIRE_GREET && a <= UINT8_MAX)
		greet_received(meta, from, (uint8_t)a, b);
}

static void carry_out(struct meta *meta, struct item *item)
{
	struct raft_event ev = {.node = item->node};

	switch (item->type) {
	case ITEM_MESSAGE:
		received(meta, item->node, item->instance, item->bytes, item->len);
		break;
	case ITEM_ASK:
		asks_add(meta, item->ask);
		break;
	case ITEM_SYNC:
		asks_add_sync(meta, item->sync);
		break;
	case ITEM_PEER:
		ev.type = RAFT_EV_PEER;
		if (!item->up)
			break;
		meta->greetings.again_ms = 0; /* it may know who we are */
		greet_tell_life(meta, item->node);
		greet_tell_members(meta, item->node);
		meta_step(meta, &ev);
		break;
	case ITEM_TRANSFER:
		ev.type = RAFT_EV_TRANSFER;
		meta_step(meta, &ev);
		break;
	case ITEM_RELEASE:
		atomic_store(&meta->held, false);
		break;
	}
}

/* What is left when the journal is dead or the thread ends. */
static void refuse(struct item *item, int result)
{
	struct meta_reply reply = {.result = result};

	if (item->ask)
		item->ask->done(item->ask->arg, &reply);
	if (item->sync)
		item->sync->done(item->sync->arg, &reply);
	free(item->ask);
	free(item->sync);
}

/* True where the leader is another than in the last turn. */
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

/* `known_ms`: when the core last looked at its clock, before the turns, which may take long. */
static void publish(struct meta *meta, uint64_t known_ms)
{
	const struct raft *r = replica_raft(meta->replica);
	struct replica_counts counts;
	struct meta_status s = {.term = r->term,
				.commit = r->commit,
				.applied = r->applied,
				.log_entries = r->last_index - r->snap_index,
				.leader = r->leader,
				.self = meta->opened.self,
				.quorum = raft_has_quorum(r) && !meta->dead};

	replica_counts(meta->replica, &counts);
	s.commits = counts.commits;
	s.snapshots_sent = counts.snapshots_sent;
	s.snapshots_taken = counts.snapshots_taken;
	pthread_mutex_lock(&meta->lock);
	meta->status = s;
	meta->voiceless = !r->confirmed;
	meta->had_quorum |= s.quorum;
	if (s.quorum)
		meta->quorum_ms = known_ms;
	pthread_mutex_unlock(&meta->lock);
}

/* Turns until there is nothing to write or send. */
static void make_turns(struct meta *meta)
{
	bool more;

	asks_tend(meta, look_at_leader(meta));
	do {
		replica_send_early(meta->replica);
		if (replica_commit(meta->replica) < 0)
			meta->dead = true;
		meta->now_ms = meta_clock_ms();
		more = replica_finish(meta->replica, meta->now_ms);
		if (meta->dead)
			return;
		/* What the turn brought may end some asks, and so let others go. */
		meta->stepped = false;
		asks_tend(meta, look_at_leader(meta));
	} while (more || meta->stepped);
}

/* Waits for work, at most until the next tick; takes all of it. False: the thread is to end. */
static bool take_work(struct meta *meta, struct item **work)
{
	struct timespec until;
	uint64_t tick_ms = replica_raft(meta->replica)->opt.heartbeat_ms / 4 + 1;
	uint64_t due = meta->now_ms + tick_ms;
	bool stop;

	until.tv_sec = (time_t)(due / 1000);
	until.tv_nsec = (long)(due % 1000) * 1000000;
	pthread_mutex_lock(&meta->lock);
	while (!meta->queue && !meta->stop)
		if (pthread_cond_timedwait(&meta->wake, &meta->lock, &until) == ETIMEDOUT)
			break;
	*work = meta->queue;
	meta->queue = NULL;
	meta->queue_end = &meta->queue;
	stop = meta->stop;
	pthread_mutex_unlock(&meta->lock);
	meta->now_ms = meta_clock_ms();
	return !stop;
}

static void carry_out_all(struct meta *meta, struct item *work, bool go_on)
{
	struct item *item;

	while ((item = work)) {
		work = item->next;
		if (!go_on || meta->dead)
			refuse(item, go_on ? -EIO : -ESHUTDOWN);
		else
			carry_out(meta, item);
		free(item);
	}
}

static void *run(void *arg)
{
	struct meta *meta = arg;
	struct raft_event tick = {.type = RAFT_EV_TICK};
	struct item *work = NULL;
	uint64_t known_ms;
	bool go_on = true;

	pthread_setname_np(pthread_self(), "meta");
	while (go_on) {
		known_ms = meta->now_ms;
		if (!meta->dead) {
			greet_tend(meta);
			meta_step(meta, &tick);
			make_turns(meta);
			greet_note_held(meta);
		}
		if (meta->dead)
			asks_fail_all(meta, -EIO);
		publish(meta, known_ms);
		go_on = take_work(meta, &work);
		carry_out_all(meta, work, go_on);
	}
	asks_fail_all(meta, -ESHUTDOWN);
	return NULL;
}

/* ---- opening, closing ---------------------------------------------------------------------- */

int meta_format(const char *path, const struct meta_founding *founding, struct ramp_err *err)
{
	return journal_create(path, NULL, founding, err);
}

static void free_meta(struct meta *meta)
{
	readers_close(meta);
	replica_close(meta->replica);
	pthread_mutex_destroy(&meta->lock);
	pthread_mutex_destroy(&meta->readers_lock);
	pthread_cond_destroy(&meta->wake);
	free(meta->path);
	free(meta->out);
	free(meta);
}

static struct meta *new_meta(const struct meta_config *config)
{
	struct meta *meta = calloc(1, sizeof(*meta));
	pthread_condattr_t attr;

	if (!meta)
		return NULL;
	meta->config = *config;
	pthread_mutex_init(&meta->lock, NULL);
	pthread_mutex_init(&meta->readers_lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&meta->wake, &attr);
	pthread_condattr_destroy(&attr);
	meta->queue_end = &meta->queue;
	meta->own_client = ramp_random64();
	meta->now_ms = meta->quorum_ms = meta_clock_ms();
	asks_init(&meta->asks);
	meta->path = strdup(config->journal_path);
	return meta;
}

int meta_open(const struct meta_config *config, struct meta **out, struct ramp_err *err)
{
	struct meta *meta = new_meta(config);
	struct replica_config rc_config = {.hooks = {.send = on_send,
						     .applied = on_applied,
						     .restored = on_restored,
						     .read_ready = on_read_ready,
						     .forgot = on_forgot}};
	int rc;

	if (!meta || !meta->path) {
		rc = ramp_err_set(err, ENOMEM, "meta: out of memory");
		goto err_free;
	}
	rc_config.journal.path = meta->path;
	rc_config.journal.fatal = on_fatal;
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
	publish(meta, meta->now_ms);
	rc = pthread_create(&meta->thread, NULL, run, meta);
	if (rc != 0) {
		rc = ramp_err_sys(err, rc, "meta: its thread can't be started");
		goto err_free;
	}
	*out = meta;
	return 0;
err_free:
	if (meta)
		free_meta(meta);
	return rc;
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

void meta_cluster_id(struct meta *meta, uint8_t id[32])
{
	memcpy(id, meta->opened.cluster_id, sizeof(meta->opened.cluster_id));
}

ramp_node_t meta_self(struct meta *meta)
{
	return meta->opened.self;
}

uint64_t meta_instance(struct meta *meta)
{
	return meta->opened.instance;
}

void meta_arena(struct meta *meta, uint64_t *addr, uint64_t *len)
{
	*addr = meta->opened.arena_addr;
	*len = meta->opened.arena_len;
}

/* ---- the queue ----------------------------------------------------------------------------- */

/* Never fails where it matters: without memory for an item the process can't go on. */
static struct item *new_item(enum item_type type, size_t extra)
{
	struct item *item = calloc(1, sizeof(*item) + extra);

	if (!item) {
		log_error("meta: out of memory");
		abort();
	}
	item->type = type;
	return item;
}

static void enqueue(struct meta *meta, struct item *item)
{
	bool late;

	pthread_mutex_lock(&meta->lock);
	late = meta->stop;
	if (!late) {
		*meta->queue_end = item;
		meta->queue_end = &item->next;
		pthread_cond_signal(&meta->wake);
	}
	pthread_mutex_unlock(&meta->lock);
	if (!late)
		return;
	refuse(item, -ESHUTDOWN); /* by a callback of what meta_close ends */
	free(item);
}

void meta_receive(struct meta *meta, ramp_node_t from, uint64_t instance, const void *bytes,
		  size_t len)
{
	struct item *item = new_item(ITEM_MESSAGE, len);

	item->node = from;
	item->instance = instance;
	item->len = len;
	memcpy(item->bytes, bytes, len);
	enqueue(meta, item);
}

void meta_peer(struct meta *meta, ramp_node_t node, bool up)
{
	struct item *item = new_item(ITEM_PEER, 0);

	item->node = node;
	item->up = up;
	enqueue(meta, item);
}

static void *new_or_die(size_t size)
{
	void *p = calloc(1, size);

	if (!p) {
		log_error("meta: out of memory");
		abort();
	}
	return p;
}

void meta_propose(struct meta *meta, const struct meta_command *command, meta_done *done, void *arg)
{
	struct item *item = new_item(ITEM_ASK, 0);

	item->ask = new_or_die(sizeof(*item->ask));
	item->ask->command = *command;
	item->ask->done = done;
	item->ask->arg = arg;
	enqueue(meta, item);
}

void meta_sync(struct meta *meta, meta_done *done, void *arg)
{
	struct item *item = new_item(ITEM_SYNC, 0);

	item->sync = new_or_die(sizeof(*item->sync));
	item->sync->done = done;
	item->sync->arg = arg;
	enqueue(meta, item);
}

struct waiter {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
	struct meta_reply *reply;
};

static void wake_waiter(void *arg, const struct meta_reply *reply)
{
	struct waiter *w = arg;

	pthread_mutex_lock(&w->lock);
	*w->reply = *reply;
	w->done = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

int meta_propose_wait(struct meta *meta, const struct meta_command *command,
		      struct meta_reply *reply)
{
	struct meta_reply own = {0};
	struct waiter w = {.lock = PTHREAD_MUTEX_INITIALIZER,
			   .cond = PTHREAD_COND_INITIALIZER,
			   .reply = reply ? reply : &own};

	meta_propose(meta, command, wake_waiter, &w);
	pthread_mutex_lock(&w.lock);
	while (!w.done)
		pthread_cond_wait(&w.cond, &w.lock);
	pthread_mutex_unlock(&w.lock);
	pthread_cond_destroy(&w.cond);
	pthread_mutex_destroy(&w.lock);
	return w.reply->result;
}

struct meta_command_id meta_own_command(struct meta *meta)
{
	return (struct meta_command_id){.client = meta->own_client,
					.unique = atomic_fetch_add(&meta->own_unique, 1) + 1};
}

void meta_hold(struct meta *meta)
{
	atomic_store(&meta->held, true);
}

void meta_release(struct meta *meta)
{
	enqueue(meta, new_item(ITEM_RELEASE, 0));
}

void meta_transfer_leadership(struct meta *meta)
{
	enqueue(meta, new_item(ITEM_TRANSFER, 0));
}

/* ---- what is known ------------------------------------------------------------------------- */

/* Under the lock. By the reader's clock: a meta thread that stands still, in a write of its disk,
   say, can't take back what it said. */
static bool quorum_is_recent(const struct meta *meta, uint64_t now_ms)
{
	return meta->had_quorum && now_ms < meta->quorum_ms + META_PATIENCE_MS;
}

bool meta_has_quorum(struct meta *meta)
{
	uint64_t now_ms = meta_clock_ms();
	bool has;

	pthread_mutex_lock(&meta->lock);
	has = quorum_is_recent(meta, now_ms);
	pthread_mutex_unlock(&meta->lock);
	return has;
}

bool meta_waits_for_voice(struct meta *meta)
{
	bool waits;

	pthread_mutex_lock(&meta->lock);
	waits = meta->voiceless;
	pthread_mutex_unlock(&meta->lock);
	return waits;
}

ramp_node_t meta_leader(struct meta *meta)
{
	ramp_node_t leader;

	pthread_mutex_lock(&meta->lock);
	leader = meta->status.leader;
	pthread_mutex_unlock(&meta->lock);
	return leader;
}

static uint64_t file_bytes(const char *path, const char *tail)
{
	char name[4096];
	struct stat st;

	if (snprintf(name, sizeof(name), "%s%s", path, tail) >= (int)sizeof(name) ||
	    stat(name, &st) < 0)
		return 0;
	return (uint64_t)st.st_size;
}

void meta_get_status(struct meta *meta, struct meta_status *status)
{
	uint64_t now_ms = meta_clock_ms();

	pthread_mutex_lock(&meta->lock);
	*status = meta->status;
	status->quorum = status->quorum && quorum_is_recent(meta, now_ms);
	pthread_mutex_unlock(&meta->lock);
	status->journal_bytes = file_bytes(meta->path, "") + file_bytes(meta->path, "-wal");
}
