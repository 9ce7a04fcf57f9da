/*
 * The meta thread's state, for meta.c, meta_core.c and meta_queue.c. The parts of it that other
 * files own are reached through meta_core.h.
 */
#ifndef RAMP_META_META_IMPL_H
#define RAMP_META_META_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "admission.h"
#include "amnesia.h"
#include "levels.h"
#include "meta_read.h"
#include "meta_show.h"
#include "meta_sync.h"
#include "proposals.h"
#include "replica.h"

struct meta {
	struct meta_config config;
	struct replica *replica;
	struct journal_state opened; /* as it was when the journal was opened: ids, arena */
	char *path;		     /* of the journal, or of the copy */
	char *why;		     /* it is a copy: why; NULL: it is not */
	pthread_t thread;
	uint64_t now_ms; /* meta thread: of this turn */
	uint64_t own_client;
	_Atomic uint64_t own_unique;

	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct item *queue, **queue_end; /* protected by lock */
	bool stop;			 /* protected by lock */
	struct meta_status status;	 /* protected by lock; as of the last turn */
	uint64_t quorum_ms; /* protected by lock: when the core last knew of one, or the opening */
	bool had_quorum;    /* protected by lock */
	bool nonvoting;	    /* protected by lock */
	uint64_t nonvoting_ms; /* protected by lock: since when */

	struct proposals proposals;
	struct syncs syncs;
	struct shows shows;
	struct admission admission;
	struct amnesia amnesia;
	struct levels levels;
	struct meta_readers readers;
	ramp_node_t leader; /* meta thread: as of the last turn */
	uint64_t term;
	bool stepped; /* meta thread: the core has actions that no turn has carried out */
	bool dead;    /* meta thread: config.fatal was called, and returned */

	uint8_t *out; /* meta thread: the message that is being encoded */
	size_t out_cap;
};

#endif
