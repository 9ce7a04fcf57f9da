/*
 * Beginning and ending of pulls, and their figures. Other rooms call this file, and file_access.c for
 * reads and writes.
 */
#include "pull.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "memory/record.h"
#include "pager.h"
#include "prefetch.h"
#include "pull_core.h"
#include "pulled.h"
#include "puller.h"
#include "takeover.h"

void pull_expect(struct pull *pull, ramp_node_t node)
{
	pull->config.tp->ops->expect(pull->config.tp, node);
}

void pull_source_limit(struct pull *pull, ramp_node_t node, uint64_t bytes_s)
{
	rate_set(&pull_tally_of(pull, node)->limit, bytes_s);
	for (unsigned i = PULLER_PREFETCH; i < pull->n_pullers; i++)
		pull_wake(pull, (int)i);
}

int pull_begin(struct pull *pull, struct seg *seg, const struct pull_source *source,
	       struct ramp_err *err)
{
	struct pulled *pulled = pulled_new(pull, seg, source, err);
	int rc;

	if (!pulled)
		return err ? -err->code : -ENOMEM;
	pthread_mutex_lock(&pull->lock);
	rc = pulled_insert(pull, pulled, err);
	pthread_mutex_unlock(&pull->lock);
	if (rc) {
		pulled_put(pulled);
		return rc == -EALREADY ? 0 : rc;
	}
	/* Page faults find the entry from the first one on. */
	rc = pages_missing(seg) && !source->alone
		     ? programs_pulling(pull->config.programs, seg, err)
		     : 0;
	if (rc) {
		pull_end(pull, seg_id(seg));
		return rc;
	}
	pull_wake_all(pull);
	seg_tell(seg); /* reads may have come before it, as after a restart */
	return 0;
}

void pull_end(struct pull *pull, ramp_segment_t id)
{
	struct pulled *pulled = pulled_find(pull, id);

	if (!pulled)
		return;
	if (!pulled_set(pulled, PULLED_ENDED)) { /* another call waits for it */
		pulled_put(pulled);
		return;
	}
	pull_wake_all(pull);
	pthread_mutex_lock(&pull->lock);
	/* An entry that finishes meanwhile is removed from the list, and no thread meets it there
	   to release it: its references, given back, wake us. */
	while (!pulled_is_released(pulled) && pulled_find_locked(pull, id) == pulled &&
	       !atomic_load(&pull->stop))
		pthread_cond_wait(&pull->released, &pull->lock);
	pthread_mutex_unlock(&pull->lock);
	pulled_remove(pulled);
	/* Each thread may be in the middle of a walk over the entries. */
	pthread_mutex_lock(&pull->lock);
	while (atomic_load(&pulled->refs) > 1 && !atomic_load(&pull->stop))
		pthread_cond_wait(&pull->released, &pull->lock);
	pthread_mutex_unlock(&pull->lock);
	/* The analyzer takes each put of a counted reference for the last one.
	   NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
	pulled_put(pulled);
}

void pull_prefetch_all(struct pull *pull, ramp_segment_t id)
{
	pulled_prefetch_all(pull, id);
}

void pull_source_over(struct pull *pull, ramp_node_t node, ramp_incarnation_t incarnation)
{
	pulled_source_over(pull, node, incarnation);
}

bool pull_rdma(struct pull *pull, struct tp_peer *out)
{
	return pull->config.tp->ops->peer(pull->config.tp, out);
}

size_t pull_peers(struct pull *pull, struct pull_peer *out, size_t max)
{
	size_t n = 0;

	for (; n < max && n < PULL_PEERS && atomic_load(&pull->tallies[n].node); n++)
		out[n] = (struct pull_peer){
			.node = atomic_load(&pull->tallies[n].node),
			.demand_pages = atomic_load(&pull->tallies[n].demand_pages),
			.prefetch_pages = atomic_load(&pull->tallies[n].prefetch_pages),
			.bytes = atomic_load(&pull->tallies[n].bytes),
			.streams = atomic_load(&pull->tallies[n].streams),
		};
	return n;
}

int pull_progress(struct pull *pull, ramp_segment_t id, struct pull_progress *progress)
{
	struct pulled *pulled = pulled_find(pull, id);

	if (!pulled)
		return -ENOENT;
	*progress = (struct pull_progress){
		.pages_all = pulled->pages_all,
		.pages_missing = pages_missing(pulled->seg),
		.pages_lost = pages_lost(pulled->seg),
		.demand_pages = atomic_load(&pulled->demand_pages),
		.prefetch_pages = atomic_load(&pulled->prefetch_pages),
		.hole_pages = atomic_load(&pulled->hole_pages),
		.source = pulled->source.node,
		.streams = atomic_load(&pull_tally_of(pull, pulled->source.node)->streams),
		.limit_bytes_s = limits_least(&pulled->limits),
		.source_silent = pulled_silent_since(pulled) != 0,
		.heard_ms = atomic_load(&pulled->heard_ms),
	};
	pulled_put(pulled);
	return 0;
}

void pull_status(struct pull *pull, struct pull_status *status)
{
	struct tp_stats served;

	tp_get_stats(pull->config.tp, &served);
	*status = (struct pull_status){
		.faults = atomic_load(&pull->faults),
		.demand_pages = atomic_load(&pull->demand_pages),
		.prefetch_pages = atomic_load(&pull->prefetch_pages),
		.hole_pages = atomic_load(&pull->hole_pages),
		.bytes = atomic_load(&pull->bytes),
		.faults_us = atomic_load(&pull->faults_us),
		.limit_bytes_s = pull->config.limit_bytes_s,
		.reconnects = atomic_load(&pull->reconnects),
		.served_bytes = served.served_bytes,
		.served_reads = served.served_reads,
	};
	for (unsigned i = 0; i < PULL_HISTOGRAM; i++)
		status->fault_us[i] = atomic_load(&pull->fault_us[i]);
}

void pull_watch_lost(struct pull *pull, struct seg *seg)
{
	const struct pull_source none = {.key = {.segment = seg_id(seg)}};
	struct ramp_err err = {0};
	struct pulled *pulled;
	int rc;

	if (pages_missing(seg) == 0)
		return;
	pulled = pulled_find(pull, seg_id(seg));
	if (pulled) { /* since its own pull, by this daemon */
		pulled_put(pulled);
		return;
	}
	pages_lose_all(seg); /* a write that a kill cut short */
	pulled = pulled_new(pull, seg, &none, &err);
	rc = pulled ? 0 : -err.code;
	if (!rc) {
		pulled_set(pulled, PULLED_SOURCE_OVER);
		pulled_set(pulled, PULLED_FINISHED);
		pulled_set_released(pulled);
		pthread_mutex_lock(&pull->lock);
		TAILQ_INSERT_TAIL(&pull->entries, pulled, entry);
		pthread_mutex_unlock(&pull->lock);
		pull_wake_all(pull); /* one unmaps it, another waits for its end */
		rc = programs_pulling(pull->config.programs, seg, &err);
	}
	if (rc)
		log_error("segment %" PRIu64 ": its lost pages are not watched: %s", seg_id(seg),
			  err.text);
}

static void adopt_lost(void *arg, struct seg *seg)
{
	struct record record;

	record_get(seg, &record);
	if (record.kind == RECORD_OWNED)
		pull_watch_lost(arg, seg);
}

int pull_open(const struct pull_config *config, struct pull **out, struct ramp_err *err)
{
	struct pull *pull = pull_new(config);
	int rc;

	if (!pull)
		return ramp_err_set(err, ENOMEM, "no memory for pulling");
	wishes_init(&pull->wishes);
	pull->zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	rc = pull->zeros < 0 ? ramp_err_sys(err, errno, "/dev/zero") : pager_open(pull, err);
	if (!rc)
		rc = prefetch_open(pull, err);
	if (!rc)
		rc = takeover_open(pull, err);
	if (rc) {
		pull_close(pull);
		return rc;
	}
	store_each(config->store, adopt_lost, pull);
	pull_wake_all(pull);
	*out = pull;
	return 0;
}

void pull_close(struct pull *pull)
{
	struct pulled *pulled;
	bool all;

	atomic_store(&pull->stop, true);
	pthread_mutex_lock(&pull->lock);
	pthread_cond_broadcast(&pull->released);
	pthread_mutex_unlock(&pull->lock);
	pager_join(pull);
	prefetch_join(pull);
	takeover_join(pull);
	all = true;
	for (unsigned i = 0; i < pull->n_pullers; i++)
		all = puller_end(pull->pullers[i]) && all;
	pager_close(pull);
	prefetch_close(pull);
	while ((pulled = TAILQ_FIRST(&pull->entries))) {
		TAILQ_REMOVE(&pull->entries, pulled, entry);
		pulled_put(pulled);
	}
	takeover_close(pull);
	if (!all) {
		log_warn("a program holds its mmap lock and blocks a thread of this daemon, which "
			 "ends when the program lets go");
		return;
	}
	pager_free(pull);
	prefetch_free(pull);
	wishes_destroy(&pull->wishes);
	pull_free(pull);
}
