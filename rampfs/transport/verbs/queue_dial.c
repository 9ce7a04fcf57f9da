/*
 * Connecting a queue pair, in a thread of its own. See queue_dial.h.
 */
#include "queue_dial.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "transport/peers/peer.h"
#include "transport/peers/peers_data.h"

#define DIALS_END_S 6

struct queue_dial {
	struct verbs *verbs;
	struct verbs_node *node;
	bool ahead; /* for a connection that is not there yet */
	struct queue_config config;
	atomic_bool abandoned, over;
	atomic_uint refs; /* the thread's and the caller's */
	int fd;
	struct queue *queue;
	int rc;
	struct ramp_err err;
};

static void queue_dial_put(struct queue_dial *dial)
{
	if (atomic_fetch_sub(&dial->refs, 1) > 1)
		return;
	if (dial->queue)
		queue_close(dial->queue);
	hmac_wipe(&dial->config.key, sizeof(dial->config.key));
	close(dial->fd);
	free(dial);
}

/* Keeps a queue pair that was made ahead for the connection that comes. */
static void queue_dial_keep(struct queue_dial *dial)
{
	const unsigned by = dial->config.class - 1u;
	struct verbs *verbs = dial->verbs;

	pthread_mutex_lock(&verbs->lock);
	dial->node->connecting[by]--;
	if (dial->ahead && !dial->rc && atomic_load(&verbs->has_device)) {
		dial->node->ready[by] = dial->queue;
		dial->node->ready_ms = clock_ms();
		dial->queue = NULL;
	}
	pthread_mutex_unlock(&verbs->lock);
}

static void *queue_dial_run(void *arg)
{
	struct queue_dial *dial = arg;
	struct verbs *verbs = dial->verbs;

	dial->rc = queue_connect(&dial->config, &dial->queue, &dial->err);
	atomic_store(&dial->over, true);
	queue_dial_keep(dial);
	(void)!write(dial->fd, &(uint64_t){1}, sizeof(uint64_t));
	queue_dial_put(dial);
	pthread_mutex_lock(&verbs->lock);
	verbs->dials--;
	pthread_cond_broadcast(&verbs->dialed);
	pthread_mutex_unlock(&verbs->lock);
	return NULL;
}

static int queue_dial_begin(struct queue_dial *dial)
{
	struct verbs *verbs = dial->verbs;
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, old;
	int rc;

	pthread_mutex_lock(&verbs->lock);
	verbs->dials++;
	dial->node->connecting[dial->config.class - 1]++;
	pthread_mutex_unlock(&verbs->lock);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&thread, &attr, queue_dial_run, dial);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (!rc)
		return 0;
	pthread_mutex_lock(&verbs->lock);
	verbs->dials--;
	dial->node->connecting[dial->config.class - 1]--;
	pthread_mutex_unlock(&verbs->lock);
	return -rc;
}

static struct queue_dial *queue_dial_make(struct verbs *verbs, struct verbs_node *node,
					  enum tp_class class, bool ahead)
{
	struct queue_dial *dial = calloc(1, sizeof(*dial));
	int rc;

	if (!dial)
		return NULL;
	dial->verbs = verbs;
	dial->config.class = class;
	dial->config.self = peers_self(verbs->peers)->node;
	dial->config.life = verbs->life;
	/* Of one that is made ahead only the daemon's end makes the result useless. */
	dial->config.abandoned = ahead ? &verbs->stop : &dial->abandoned;
	dial->node = node;
	dial->ahead = ahead;
	atomic_init(&dial->refs, ahead ? 1 : 2);
	pthread_mutex_lock(&verbs->lock);
	dial->config.to = node->at;
	dial->config.from = verbs->own.address;
	dial->config.counter = atomic_fetch_add(&verbs->counter, 1) + 1;
	pthread_mutex_unlock(&verbs->lock);
	dial->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rc = dial->config.to.port && dial->fd >= 0 ? 0 : -EAGAIN;
	if (!rc)
		rc = peer_key(verbs->peers, node->node, PROOF_LABEL, dial->config.key);
	if (!rc)
		rc = queue_dial_begin(dial);
	if (!rc)
		return dial;
	if (dial->fd >= 0)
		close(dial->fd);
	free(dial);
	return NULL;
}

struct queue_dial *queue_dial_start(struct verbs *verbs, struct verbs_node *node,
				    enum tp_class class)
{
	return queue_dial_make(verbs, node, class, false);
}

/* The source keeps one of each class: a new one would end one that is in use. */
void queue_dial_ahead(struct verbs *verbs, struct verbs_node *node)
{
	for (unsigned by = 0; by < 2; by++) {
		bool wanted;

		pthread_mutex_lock(&verbs->lock);
		wanted = !node->ready[by] && !node->connecting[by] && node->at.port &&
			 !atomic_load(&node->reading);
		pthread_mutex_unlock(&verbs->lock);
		if (wanted)
			(void)queue_dial_make(verbs, node, (enum tp_class)(by + 1), true);
	}
}

struct queue *queue_dial_ready(struct verbs *verbs, struct verbs_node *node, enum tp_class class,
			       bool *soon)
{
	struct queue *queue;

	pthread_mutex_lock(&verbs->lock);
	queue = node->ready[class - 1];
	node->ready[class - 1] = NULL;
	*soon = node->connecting[class - 1];
	pthread_mutex_unlock(&verbs->lock);
	return queue;
}

void queue_dial_expire(struct verbs *verbs, uint64_t before_ms)
{
	struct verbs_node *node;
	struct queue *old;

	do {
		old = NULL;
		pthread_mutex_lock(&verbs->lock);
		LIST_FOREACH (node, &verbs->nodes, entry)
			for (unsigned by = 0; by < 2 && !old; by++)
				if (node->ready[by] && node->ready_ms < before_ms) {
					old = node->ready[by];
					node->ready[by] = NULL;
				}
		pthread_mutex_unlock(&verbs->lock);
		if (old)
			queue_close(old);
	} while (old);
}

int queue_dial_fd(const struct queue_dial *dial)
{
	return dial->fd;
}

bool queue_dial_is_over(const struct queue_dial *dial)
{
	return atomic_load(&dial->over);
}

int queue_dial_take(struct queue_dial *dial, struct queue **out, struct ramp_err *err)
{
	int rc = dial->rc;

	*err = dial->err;
	*out = dial->queue;
	dial->queue = NULL;
	queue_dial_put(dial);
	return rc;
}

void queue_dial_abandon(struct queue_dial *dial)
{
	atomic_store(&dial->abandoned, true);
	queue_dial_put(dial);
}

bool queue_dials_end(struct verbs *verbs)
{
	struct timespec until;
	bool over;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += DIALS_END_S;
	pthread_mutex_lock(&verbs->lock);
	while (verbs->dials && !pthread_cond_timedwait(&verbs->dialed, &verbs->lock, &until))
		;
	over = verbs->dials == 0;
	pthread_mutex_unlock(&verbs->lock);
	return over;
}
