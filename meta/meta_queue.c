/*
 * The meta thread's queue. See meta_queue.h.
 */
#include "meta_queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "meta_core.h"
#include "meta_impl.h"

void item_refuse(struct item *item, int result)
{
	struct meta_reply reply = {.result = result};

	if (item->proposal)
		item->proposal->done(item->proposal->arg, &reply);
	if (item->sync)
		item->sync->done(item->sync->arg, &reply);
	if (item->show)
		item->show->done(item->show->arg, &reply);
	free(item->proposal);
	free(item->sync);
	free(item->show);
}

/* Returns a new item. Aborts without memory: the process can't continue without the item. */
static struct item *item_new(enum item_type type, size_t extra)
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
	/* It comes from the callback of a request that meta_close ends. */
	item_refuse(item, -ESHUTDOWN);
	free(item);
}

bool queue_take(struct meta *meta, struct item **work)
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

/* ---- requests of other threads --------------------------------------------------------------- */

void meta_receive(struct meta *meta, ramp_node_t from, uint64_t instance, const void *bytes,
		  size_t len)
{
	struct item *item = item_new(ITEM_MESSAGE, len);

	item->node = from;
	item->instance = instance;
	item->len = len;
	memcpy(item->bytes, bytes, len);
	enqueue(meta, item);
}

void meta_peer(struct meta *meta, ramp_node_t node, bool up)
{
	struct item *item = item_new(ITEM_PEER, 0);

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
	struct item *item = item_new(ITEM_PROPOSAL, 0);

	item->proposal = new_or_die(sizeof(*item->proposal));
	item->proposal->command = *command;
	item->proposal->done = done;
	item->proposal->arg = arg;
	enqueue(meta, item);
}

void meta_sync(struct meta *meta, meta_done *done, void *arg)
{
	struct item *item = item_new(ITEM_SYNC, 0);

	item->sync = new_or_die(sizeof(*item->sync));
	item->sync->done = done;
	item->sync->arg = arg;
	enqueue(meta, item);
}

void meta_wait_shown(struct meta *meta, ramp_node_t node, uint32_t timeout_ms, meta_done *done,
		     void *arg)
{
	struct item *item = item_new(ITEM_SHOW, 0);

	item->show = new_or_die(sizeof(*item->show));
	item->show->node = node;
	item->show->timeout_ms = timeout_ms;
	item->show->done = done;
	item->show->arg = arg;
	enqueue(meta, item);
}

struct meta_waiter {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
	struct meta_reply *reply;
};

static void wake_waiter(void *arg, const struct meta_reply *reply)
{
	struct meta_waiter *w = arg;

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
	struct meta_waiter w = {.lock = PTHREAD_MUTEX_INITIALIZER,
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
	atomic_store(&meta->proposals.held, true);
}

void meta_release(struct meta *meta)
{
	enqueue(meta, item_new(ITEM_RELEASE, 0));
}

void meta_transfer_leadership(struct meta *meta)
{
	enqueue(meta, item_new(ITEM_TRANSFER, 0));
}
