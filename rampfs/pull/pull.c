/*
 * Pulling: the doors of this room.
 */
#include "pull.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "memory/record.h"
#include "pull_impl.h"

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
	pull_wake_both(pull);
	seg_tell(seg); /* reads may have come before it, as after a restart */
	return 0;
}

void pull_end(struct pull *pull, ramp_segment_t id)
{
	struct pulled *pulled = pulled_find(pull, id);

	if (!pulled)
		return;
	if (atomic_exchange(&pulled->ended, true)) { /* somebody else's call waits for it */
		pulled_put(pulled);
		return;
	}
	pull_wake_both(pull);
	pthread_mutex_lock(&pull->lock);
	/* One that finishes at this moment goes out of the list, and neither thread meets it there
	   to release it: its references, given back, wake us. */
	while (atomic_load(&pulled->released) != PULLER_BOTH && pulled_at(pull, id) == pulled &&
	       !atomic_load(&pull->stop))
		pthread_cond_wait(&pull->released, &pull->lock);
	pthread_mutex_unlock(&pull->lock);
	pulled_take_out(pulled);
	/* Either thread may be in the middle of a walk over the entries. */
	pthread_mutex_lock(&pull->lock);
	while (atomic_load(&pulled->refs) > 1 && !atomic_load(&pull->stop))
		pthread_cond_wait(&pull->released, &pull->lock);
	pthread_mutex_unlock(&pull->lock);
	/* The analyzer takes each put of a counted reference for the last one.
	   NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
	pulled_put(pulled);
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
		.reconnects = atomic_load(&pull->reconnects),
		.served_bytes = served.served_bytes,
		.served_reads = served.served_reads,
	};
	for (unsigned i = 0; i < PULL_HISTOGRAM; i++)
		status->fault_us[i] = atomic_load(&pull->fault_us[i]);
}

void pull_watch_lost(struct pull *pull, struct seg *seg)
{
	const struct pull_source nobody = {.key = {.segment = seg_id(seg)}};
	struct ramp_err err = {0};
	struct pulled *pulled;
	int rc;

	if (pages_missing(seg) == 0)
		return;
	pulled = pulled_find(pull, seg_id(seg));
	if (pulled) { /* since its own pull, in this life */
		pulled_put(pulled);
		return;
	}
	pages_lose_all(seg); /* a write that a kill cut short */
	pulled = pulled_new(pull, seg, &nobody, &err);
	rc = pulled ? 0 : -err.code;
	if (!rc) {
		atomic_store(&pulled->over, true);
		atomic_store(&pulled->told, true);
		atomic_store(&pulled->released, PULLER_BOTH);
		pthread_mutex_lock(&pull->lock);
		TAILQ_INSERT_TAIL(&pull->entries, pulled, link);
		pthread_mutex_unlock(&pull->lock);
		pull_wake_both(pull); /* one unmaps it, the other waits for its end */
		rc = programs_pulling(pull->config.programs, seg, &err);
	}
	if (rc)
		log_error("segment %llu: its lost pages are not watched: %s",
			  (unsigned long long)seg_id(seg), err.text);
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
	struct pull *pull = calloc(1, sizeof(*pull));
	int rc;

	if (!pull)
		return ramp_err_set(err, ENOMEM, "no memory for pulling");
	pull->config = *config;
	/* pull_close asks those that were not begun, too. */
	pull->pager.pull = pull->prefetch.pull = pull;
	pull->pager.epoll = pull->pager.wake = -1;
	pull->prefetch.epoll = pull->prefetch.wake = -1;
	pull->guard_wake = pull->guard_end = -1;
	TAILQ_INIT(&pull->pager.left);
	TAILQ_INIT(&pull->prefetch.left);
	pthread_mutex_init(&pull->lock, NULL);
	pthread_cond_init(&pull->released, NULL);
	TAILQ_INIT(&pull->entries);
	TAILQ_INIT(&pull->watches);
	TAILQ_INIT(&pull->gone);
	rc = pager_open(pull, err);
	if (!rc)
		rc = prefetch_open(pull, err);
	if (!rc)
		rc = turn_guard_open(pull, err);
	if (rc) {
		pull_close(pull);
		return rc;
	}
	store_each(config->store, adopt_lost, pull);
	pull_wake_both(pull);
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
	turn_join(&pull->prefetch);
	turn_guard_join(pull);
	all = turns_end(&pull->pager);
	all = turns_end(&pull->prefetch) && all;
	pager_close(pull);
	prefetch_close(pull);
	while ((pulled = TAILQ_FIRST(&pull->entries))) {
		TAILQ_REMOVE(&pull->entries, pulled, link);
		pulled_put(pulled);
	}
	turn_guard_close(pull);
	if (!all) {
		log_warn("a program keeps the lock of its memory: this daemon's last thread ends "
			 "when it lets go");
		return;
	}
	pthread_cond_destroy(&pull->released);
	pthread_mutex_destroy(&pull->lock);
	free(pull);
}
