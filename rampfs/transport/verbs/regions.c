/*
 * Memory that readers may read by RDMA.
 *
 *   IDLE    -> WANTED   [regions_wanted]    a reader has asked
 *   WANTED  -> BUSY     [regions_work]      the worker registers chunk after chunk
 *   BUSY    -> WHOLE    [regions_work]      every run has been tried
 *   WHOLE   -> IDLE     [regions_work]      there was none: it is live, perhaps, and is looked at again
 *   WANTED, BUSY, WHOLE -> IDLE  [regions_drop]  the device is gone
 *   any     -> removed  [regions_remove]    not while the worker is in one step of it
 *
 * Happy path: the worker asks the export for one populated run after the other, cuts it into chunks
 * (the first small, so that the reader can begin; then each twice as large, up to 64 MiB), maps and
 * registers each, and sends it to whichever of the reader's two connections have asked. Nothing here
 * is called on the way of a page: the device reads by itself.
 *
 * How it fails: a chunk that can't be registered (no memory, a limit of the device, cut meanwhile) is
 * left to TCP, counted by its reason, with one log line for each segment. So are short runs. After
 * several failures one after the other the rest of the segment is left to TCP.
 */
#include "regions.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "addresses.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/page.h"
#include "transport/peers/peer.h"
#include "transport/proto.h"

#define CHUNK_BYTES   (UINT64_C(64) << 20)
#define FIRST_BYTES   (UINT64_C(2) << 20) /* of the first chunk */
#define RUN_MIN_BYTES (256u << 10)	  /* shorter runs are left to TCP */
#define CHUNKS_MAX    4096u		  /* of one segment, beside those that are full */
#define FAILURES_MAX  8u		  /* one after the other */
#define SEND_AT	      32u		  /* regions that are not sent yet */
#define SEND_FIRST    8u		  /* of a segment: each is sent at once */

enum regions_state { REGIONS_IDLE, REGIONS_WANTED, REGIONS_BUSY, REGIONS_WHOLE };

struct region {
	struct message_region told;
	void *at;
	struct ibv_mr *mr; /* NULL: the reader has it, and the registration is gone */
};

/* All of it is protected by regions->lock; the worker alone writes `regions`. */
struct exported {
	TAILQ_ENTRY(exported) entry;
	struct tp_key key;
	ramp_node_t reader;
	int fd;
	const struct tp_export_ops *ops;
	void *arg;
	enum regions_state state;
	bool in_step; /* the worker, or regions_drop, is in it without the lock */
	bool ending;
	uint64_t from;	 /* where the next run is looked for */
	uint64_t chunk;	 /* bytes of the next chunk, at most */
	uint64_t done;	 /* the reader has all bytes before */
	uint32_t n_done; /* regions, from the first on, that are gone for that */
	uint32_t n, cap, short_chunks, failures;
	bool logged;
	struct region *regions;
	struct {
		uint64_t connection; /* 0: has not asked */
		uint32_t sent;
		bool whole;
	} readers[2];
};

/* Figures of a node. */
struct regions_tally {
	ramp_node_t node; /* 0: free */
	uint64_t chunks, left[TP_LEFT_REASONS];
};

struct regions {
	struct peers *peers;
	uint64_t life;
	pthread_t worker;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool stop;
	struct device *device;
	struct addresses addresses; /* the worker's; base NULL: not reserved yet */
	TAILQ_HEAD(, exported) list;
	struct regions_tally tallies[64];
};

/* The one door to a state. */
static void regions_go(struct exported *exported, enum regions_state from, enum regions_state to)
{
	static const struct {
		const char *name;
		unsigned next;
	} states[] = {
		[REGIONS_IDLE] = {"IDLE", 1u << REGIONS_WANTED},
		[REGIONS_WANTED] = {"WANTED", 1u << REGIONS_BUSY | 1u << REGIONS_IDLE},
		[REGIONS_BUSY] = {"BUSY", 1u << REGIONS_WHOLE | 1u << REGIONS_IDLE},
		[REGIONS_WHOLE] = {"WHOLE", 1u << REGIONS_IDLE},
	};

	if (exported->state != from || !(states[from].next >> to & 1)) {
		log_error("regions of segment %" PRIu64 ": no step from %s (expected %s) to %s",
			  exported->key.segment, states[exported->state].name, states[from].name,
			  states[to].name);
		abort();
	}
	log_debug("regions of segment %" PRIu64 ": %s -> %s", exported->key.segment,
		  states[from].name, states[to].name);
	exported->state = to;
}

static struct exported *regions_find(struct regions *regions, const struct tp_key *key)
{
	struct exported *exported;

	TAILQ_FOREACH (exported, &regions->list, entry)
		if (tp_key_equal(&exported->key, key))
			return exported;
	return NULL;
}

static struct regions_tally *regions_tally_of(struct regions *regions, ramp_node_t node)
{
	struct regions_tally *tally = regions->tallies;

	while (tally < regions->tallies + 63 && tally->node && tally->node != node)
		tally++;
	tally->node = node;
	return tally;
}

/* ---- telling ------------------------------------------------------------------------------- */

static int regions_send(struct regions *regions, ramp_node_t to, const struct message_regions *m)
{
	size_t len = message_regions_bytes(m);
	uint8_t *body = malloc(len);
	struct wire_w w;
	int rc = -ENOMEM;

	if (!body)
		return rc;
	wire_w_init(&w, body, len);
	message_put_regions(&w, m);
	rc = w.bad ? -EMSGSIZE : peer_send(regions->peers, to, PROTO_REGIONS, body, w.len);
	free(body);
	return rc;
}

/* Sends one reader what it has not been sent. One that misses a message asks again. */
static void regions_tell(struct regions *regions, struct exported *exported, unsigned by)
{
	const bool whole = exported->state == REGIONS_WHOLE;
	struct message_region *told;

	if (!exported->readers[by].connection || exported->readers[by].whole)
		return;
	told = malloc(MESSAGE_REGIONS_MAX * sizeof(*told));
	while (told && (exported->readers[by].sent < exported->n ||
			(whole && !exported->readers[by].whole))) {
		uint32_t first = exported->readers[by].sent, n = exported->n - first;
		struct message_regions m = {.key = exported->key,
					    .connection = exported->readers[by].connection,
					    .life = regions->life,
					    .first = first,
					    .regions = told};

		m.n = n < MESSAGE_REGIONS_MAX ? n : MESSAGE_REGIONS_MAX;
		m.whole = whole && m.n == n;
		for (uint32_t i = 0; i < m.n; i++)
			told[i] = exported->regions[first + i].told;
		if (regions_send(regions, exported->reader, &m))
			break;
		exported->readers[by].sent += m.n;
		exported->readers[by].whole = m.whole;
	}
	free(told);
}

static void regions_tell_all(struct regions *regions, struct exported *exported, uint32_t at)
{
	for (unsigned by = 0; by < 2; by++)
		if (exported->n - exported->readers[by].sent >= at ||
		    exported->state == REGIONS_WHOLE)
			regions_tell(regions, exported, by);
}

void regions_wanted(struct regions *regions, ramp_node_t from, const struct message_wanted *wanted)
{
	struct message_regions none = {
		.key = wanted->key, .connection = wanted->connection, .whole = true};
	struct exported *exported;

	pthread_mutex_lock(&regions->lock);
	none.life = regions->life;
	exported = regions_find(regions, &wanted->key);
	if (exported && exported->reader == from && !exported->ending && regions->device) {
		unsigned by = wanted->class - 1u;

		exported->readers[by].connection = wanted->connection;
		exported->readers[by].sent = 0;
		exported->readers[by].whole = false;
		if (exported->state == REGIONS_IDLE) {
			regions_go(exported, REGIONS_IDLE, REGIONS_WANTED);
			pthread_cond_broadcast(&regions->changed);
		}
		regions_tell(regions, exported, by);
	} else {
		(void)regions_send(regions, from, &none);
	}
	pthread_mutex_unlock(&regions->lock);
}

void regions_done(struct regions *regions, ramp_node_t from, const struct message_done *done)
{
	struct exported *exported;

	pthread_mutex_lock(&regions->lock);
	exported = regions_find(regions, &done->key);
	if (exported && exported->reader == from && done->upto > exported->done) {
		exported->done = done->upto;
		pthread_cond_broadcast(&regions->changed);
	}
	pthread_mutex_unlock(&regions->lock);
}

/* ---- registering --------------------------------------------------------------------------- */

/* Counts bytes that are left to TCP. */
static void regions_leave(struct regions *regions, struct exported *exported, int code,
			  uint64_t offset, uint64_t len)
{
	enum tp_left why = code == 0	    ? TP_LEFT_SHORT
			   : code == EFAULT ? TP_LEFT_CUT
			   : code == ENOMEM ? TP_LEFT_MEMORY
					    : TP_LEFT_OTHER;

	regions_tally_of(regions, exported->reader)->left[why]++;
	if (code)
		exported->failures++;
	if (!code || exported->logged)
		return;
	exported->logged = true;
	log_warn("segment %" PRIu64 ": %" PRIu64 " bytes at %" PRIu64
		 " can't be registered for RDMA (%s%s), and go over TCP",
		 exported->key.segment, len, offset, strerror(code),
		 code == ENOMEM ? "; without CAP_IPC_LOCK, ulimit -l bounds it" : "");
}

static bool regions_room(struct exported *exported)
{
	uint32_t cap = exported->cap ? exported->cap * 2 : 16;
	struct region *more;

	if (exported->n < exported->cap)
		return true;
	more = cap <= MESSAGE_CHUNKS_MAX ? realloc(exported->regions, cap * sizeof(*more)) : NULL;
	if (!more)
		return false;
	exported->regions = more;
	exported->cap = cap;
	return true;
}

/* Maps and registers one chunk, without the lock. 0, or an errno. */
static int regions_register(struct regions *regions, struct ibv_pd *pd, int fd,
			    struct region *region)
{
	struct ramp_err err;
	int rc = 0;

	if (!pd)
		return ENOMEM;
	if (!regions->addresses.base)
		rc = addresses_open(&regions->addresses, &err);
	if (!rc)
		rc = addresses_map(&regions->addresses, fd, region->told.offset, region->told.len,
				   &region->at);
	if (rc)
		return -rc;
	region->mr = ibv_reg_mr(pd, region->at, region->told.len, IBV_ACCESS_REMOTE_READ);
	if (!region->mr) {
		rc = errno ? errno : EIO;
		addresses_unmap(region->at, region->told.len);
		return rc;
	}
	region->told.address = (uintptr_t)region->at;
	region->told.rkey = region->mr->rkey;
	return 0;
}

static void region_end(struct region *region)
{
	/* Where the device is gone the kernel has taken the registration back already. */
	(void)ibv_dereg_mr(region->mr);
	addresses_unmap(region->at, region->told.len);
}

/* True: the reader has all of the next region. */
static bool regions_has_done(const struct exported *exported)
{
	const struct message_region *told =
		exported->n_done < exported->n ? &exported->regions[exported->n_done].told : NULL;

	return told && told->offset + told->len <= exported->done;
}

/* The worker begins a step: it lets the lock go. */
static void regions_step_begin(struct regions *regions, struct exported *exported)
{
	exported->in_step = true;
	pthread_mutex_unlock(&regions->lock);
}

static void regions_step_end(struct regions *regions, struct exported *exported)
{
	pthread_mutex_lock(&regions->lock);
	exported->in_step = false;
	pthread_cond_broadcast(&regions->changed);
}

/* Registers the first chunk of a run. The lock is held. */
static void regions_chunk(struct regions *regions, struct exported *exported, uint64_t offset,
			  uint64_t len)
{
	struct region region = {.told = {.offset = offset, .len = len}};
	struct ibv_pd *pd;
	int code = ENOMEM;

	if (len < RUN_MIN_BYTES || (len < CHUNK_BYTES && exported->short_chunks == CHUNKS_MAX)) {
		regions_leave(regions, exported, 0, offset, len);
		return;
	}
	if (regions_room(exported)) {
		pd = device_domain(regions->device, exported->reader);
		regions_step_begin(regions, exported);
		code = regions_register(regions, pd, exported->fd, &region);
		regions_step_end(regions, exported);
	}
	if (code) {
		regions_leave(regions, exported, code, offset, len);
		return;
	}
	exported->failures = 0;
	exported->short_chunks += len < CHUNK_BYTES;
	exported->regions[exported->n++] = region;
	regions_tally_of(regions, exported->reader)->chunks++;
	regions_tell_all(regions, exported,
			 len == CHUNK_BYTES || exported->n <= SEND_FIRST ? 1 : SEND_AT);
}

/* Takes back the registration of a region that the reader has. The numbers of the others stay. */
static void regions_end_one(struct regions *regions, struct exported *exported)
{
	struct region *region = &exported->regions[exported->n_done++], ended = *region;

	region->mr = NULL;
	region->told.address = 0;
	regions_step_begin(regions, exported);
	region_end(&ended);
	regions_step_end(regions, exported);
}

/* Registers one chunk more, or finds that there is none. The lock is held. */
static void regions_work(struct regions *regions, struct exported *exported)
{
	uint64_t offset = 0, len = 0, end;
	int found;

	if (regions_has_done(exported)) {
		regions_end_one(regions, exported);
		return;
	}
	if (exported->state == REGIONS_WANTED) {
		regions_go(exported, REGIONS_WANTED, REGIONS_BUSY);
		exported->from = 0;
		exported->chunk = FIRST_BYTES;
	}
	regions_step_begin(regions, exported);
	found = exported->ops->next_run(exported->arg, exported->from, &offset, &len);
	regions_step_end(regions, exported);
	if (!regions->device || exported->ending)
		return;
	if (found > 0 && exported->failures < FAILURES_MAX) {
		end = (offset / exported->chunk + 1) * exported->chunk;
		if (len > end - offset)
			len = end - offset;
		if (exported->chunk < CHUNK_BYTES)
			exported->chunk *= 2;
		regions_chunk(regions, exported, offset, len);
		exported->from = offset + len;
		return;
	}
	if (found < 0)
		regions_leave(regions, exported, -found, exported->from, 0);
	regions_go(exported, REGIONS_BUSY, REGIONS_WHOLE);
	log_debug("segment %" PRIu64 ": %u regions for node %u", exported->key.segment, exported->n,
		  exported->reader);
	regions_tell_all(regions, exported, 0);
	if (found == 0 && exported->from == 0)
		regions_go(exported, REGIONS_WHOLE, REGIONS_IDLE);
}

static struct exported *regions_next(struct regions *regions)
{
	struct exported *exported;

	if (regions->device)
		TAILQ_FOREACH (exported, &regions->list, entry)
			if (!exported->ending &&
			    (exported->state == REGIONS_WANTED || exported->state == REGIONS_BUSY ||
			     regions_has_done(exported)))
				return exported;
	return NULL;
}

static void *regions_worker(void *arg)
{
	struct regions *regions = arg;
	struct exported *exported;

	pthread_mutex_lock(&regions->lock);
	while (!regions->stop) {
		exported = regions_next(regions);
		if (exported) {
			regions_work(regions, exported);
			/* One chunk of each export at a time: none waits for a large one. */
			TAILQ_REMOVE(&regions->list, exported, entry);
			TAILQ_INSERT_TAIL(&regions->list, exported, entry);
		} else {
			pthread_cond_wait(&regions->changed, &regions->lock);
		}
	}
	pthread_mutex_unlock(&regions->lock);
	return NULL;
}

/* ---- the end of exports -------------------------------------------------------------------- */

/* Takes all registrations of one back. The lock is held, and let go meanwhile. */
static void regions_drop(struct regions *regions, struct exported *exported)
{
	struct region *list;
	uint32_t n;

	while (exported->in_step)
		pthread_cond_wait(&regions->changed, &regions->lock);
	list = exported->regions;
	n = exported->n;
	exported->regions = NULL;
	exported->n = exported->cap = exported->short_chunks = exported->failures = 0;
	exported->n_done = 0;
	memset(exported->readers, 0, sizeof(exported->readers));
	if (exported->state != REGIONS_IDLE)
		regions_go(exported, exported->state, REGIONS_IDLE);
	exported->in_step = true;
	pthread_mutex_unlock(&regions->lock);
	for (uint32_t i = 0; i < n; i++)
		if (list[i].mr)
			region_end(&list[i]);
	free(list);
	pthread_mutex_lock(&regions->lock);
	exported->in_step = false;
	pthread_cond_broadcast(&regions->changed);
}

int regions_add(struct regions *regions, const struct tp_export *export)
{
	struct exported *exported;

	if (export->map_fd < 0)
		return 0;
	exported = calloc(1, sizeof(*exported));
	if (!exported)
		return -ENOMEM;
	exported->fd = fcntl(export->map_fd, F_DUPFD_CLOEXEC, 0);
	if (exported->fd < 0) {
		free(exported);
		return -errno;
	}
	exported->key = export->key;
	exported->reader = export->reader;
	exported->ops = export->ops;
	exported->arg = export->arg;
	pthread_mutex_lock(&regions->lock);
	TAILQ_INSERT_TAIL(&regions->list, exported, entry);
	pthread_mutex_unlock(&regions->lock);
	return 0;
}

void regions_remove(struct regions *regions, const struct tp_key *key)
{
	struct exported *exported;

	pthread_mutex_lock(&regions->lock);
	exported = regions_find(regions, key);
	if (exported) {
		exported->ending = true;
		regions_drop(regions, exported);
		/* A removal of the device may be at it. */
		while (exported->in_step)
			pthread_cond_wait(&regions->changed, &regions->lock);
		TAILQ_REMOVE(&regions->list, exported, entry);
	}
	pthread_mutex_unlock(&regions->lock);
	if (!exported)
		return;
	close(exported->fd);
	free(exported);
}

void regions_set_device(struct regions *regions, struct device *device)
{
	struct exported *exported;

	pthread_mutex_lock(&regions->lock);
	regions->device = NULL;
again:
	TAILQ_FOREACH (exported, &regions->list, entry)
		if (exported->state != REGIONS_IDLE || exported->in_step) {
			regions_drop(regions, exported);
			goto again; /* the list may be another one */
		}
	regions->device = device;
	pthread_mutex_unlock(&regions->lock);
}

void regions_count(struct regions *regions, struct tp_peer *peer)
{
	const struct regions_tally *tally;
	struct exported *exported;

	pthread_mutex_lock(&regions->lock);
	tally = regions_tally_of(regions, peer->node);
	peer->chunks = tally->chunks;
	memcpy(peer->left, tally->left, sizeof(peer->left));
	TAILQ_FOREACH (exported, &regions->list, entry)
		for (uint32_t i = 0; exported->reader == peer->node && i < exported->n; i++)
			peer->registered_bytes +=
				exported->regions[i].mr ? exported->regions[i].told.len : 0;
	pthread_mutex_unlock(&regions->lock);
}

/* ---- opening and closing ------------------------------------------------------------------- */

int regions_open(struct peers *peers, uint64_t life, struct regions **out, struct ramp_err *err)
{
	struct regions *regions = calloc(1, sizeof(*regions));
	sigset_t all, old;
	int rc;

	if (!regions)
		return ramp_err_sys(err, ENOMEM, "regions");
	regions->peers = peers;
	regions->life = life;
	TAILQ_INIT(&regions->list);
	pthread_mutex_init(&regions->lock, NULL);
	pthread_cond_init(&regions->changed, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&regions->worker, NULL, regions_worker, regions);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc) {
		pthread_cond_destroy(&regions->changed);
		pthread_mutex_destroy(&regions->lock);
		free(regions);
		return ramp_err_sys(err, rc, "the thread that registers memory");
	}
	pthread_setname_np(regions->worker, "rdma-register");
	*out = regions;
	return 0;
}

void regions_close(struct regions *regions)
{
	pthread_mutex_lock(&regions->lock);
	regions->stop = true;
	pthread_cond_broadcast(&regions->changed);
	pthread_mutex_unlock(&regions->lock);
	pthread_join(regions->worker, NULL);
	addresses_close(&regions->addresses);
	pthread_cond_destroy(&regions->changed);
	pthread_mutex_destroy(&regions->lock);
	free(regions);
}
