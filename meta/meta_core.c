/*
 * The meta thread's ground. See meta_core.h.
 */
#include "meta_core.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/wire.h"
#include "meta_impl.h"

uint64_t meta_clock_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* ---- the thread's state ---------------------------------------------------------------------- */

uint64_t meta_now_ms(const struct meta *meta)
{
	return meta->now_ms;
}

const struct journal_state *meta_opened(const struct meta *meta)
{
	return &meta->opened;
}

const struct raft *meta_raft(const struct meta *meta)
{
	return replica_raft(meta->replica);
}

struct journal *meta_journal(const struct meta *meta)
{
	return replica_journal(meta->replica);
}

const char *meta_journal_path(const struct meta *meta)
{
	return meta->path;
}

struct proposals *meta_proposals(struct meta *meta)
{
	return &meta->proposals;
}

struct syncs *meta_syncs(struct meta *meta)
{
	return &meta->syncs;
}

struct shows *meta_shows(struct meta *meta)
{
	return &meta->shows;
}

struct admission *meta_admission(struct meta *meta)
{
	return &meta->admission;
}

struct amnesia *meta_amnesia(struct meta *meta)
{
	return &meta->amnesia;
}

struct levels *meta_levels(struct meta *meta)
{
	return &meta->levels;
}

struct meta_readers *meta_readers(struct meta *meta)
{
	return &meta->readers;
}

/* ---- steps and messages ---------------------------------------------------------------------- */

int meta_step(struct meta *meta, struct raft_event *event)
{
	event->now_ms = meta->now_ms;
	meta->stepped = true;
	return replica_step(meta->replica, event);
}

bool meta_forsaken(struct meta *meta)
{
	bool forsaken;

	if (meta->why) /* no leader will be known in this life */
		return true;
	pthread_mutex_lock(&meta->lock);
	forsaken = !raft_has_quorum(replica_raft(meta->replica)) &&
		   meta->now_ms >= meta->quorum_ms + META_PATIENCE_MS;
	pthread_mutex_unlock(&meta->lock);
	return forsaken;
}

void meta_send(struct meta *meta, ramp_node_t to, const void *bytes, size_t len)
{
	meta->config.send(meta->config.arg, to, bytes, len);
}

void meta_send_small(struct meta *meta, ramp_node_t to, enum meta_wire kind, uint64_t a, uint64_t b)
{
	uint8_t buf[17];
	struct wire_w w;

	wire_w_init(&w, buf, sizeof(buf));
	wire_put_u8(&w, (uint8_t)kind);
	wire_put_u64(&w, a);
	wire_put_u64(&w, b);
	meta_send(meta, to, buf, w.len);
}

void meta_heard_of(struct meta *meta, const struct node_row *row)
{
	if (meta->config.heard_of)
		meta->config.heard_of(meta->config.arg, row);
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

int meta_unreadable(struct meta *meta, const char *text)
{
	if (meta->config.turn_failed)
		meta->config.turn_failed(meta->config.arg, text, meta->why);
	if (meta->config.fatal) {
		meta->config.fatal(meta->config.arg, text);
		return -EIO;
	}
	log_error("%s", text);
	_exit(1);
}

/* ---- what other threads may know ----------------------------------------------------------- */

void meta_cluster_id(struct meta *meta, uint8_t id[32])
{
	memcpy(id, meta->opened.cluster_id, sizeof(meta->opened.cluster_id));
}

const char *meta_why_copy(struct meta *meta)
{
	return meta->why;
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

void meta_publish(struct meta *meta, uint64_t known_ms)
{
	const struct raft *r = replica_raft(meta->replica);
	struct replica_counts counts;
	struct meta_status s = {.term = r->term,
				.commit = r->commit_index,
				.applied = r->last_applied,
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
	if (!meta->nonvoting)
		meta->nonvoting_ms = known_ms;
	meta->nonvoting = !r->confirmed;
	meta->had_quorum |= s.quorum;
	if (s.quorum)
		meta->quorum_ms = known_ms;
	pthread_mutex_unlock(&meta->lock);
}

/* Under the lock. Uses the caller's clock: a blocked meta thread (in a write to its disk, say)
   can't withdraw the status that it published. */
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

bool meta_awaits_admission_for(struct meta *meta, uint64_t for_ms)
{
	uint64_t now_ms = meta_clock_ms();
	bool waits;

	pthread_mutex_lock(&meta->lock);
	waits = meta->nonvoting && (for_ms == 0 || now_ms >= meta->nonvoting_ms + for_ms);
	pthread_mutex_unlock(&meta->lock);
	return waits;
}

bool meta_awaits_admission(struct meta *meta)
{
	return meta_awaits_admission_for(meta, 0);
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
