/*
 * The table of the other nodes. See peer_core.h.
 */
#include "peer_core.h"

#include <stdlib.h>

#include "reject.h"

struct peers *peers_new(const struct peer_events *events)
{
	struct peers *peers = calloc(1, sizeof(*peers));

	if (peers)
		peers->rejects = reject_log_open();
	if (!peers || !peers->rejects) {
		free(peers);
		return NULL;
	}
	TAILQ_INIT(&peers->list);
	TAILQ_INIT(&peers->handshakes);
	pthread_mutex_init(&peers->lock, NULL);
	pthread_mutex_init(&peers->data_lock, NULL);
	peers->events = events;
	peers->handles = 1;
	return peers;
}

void peers_hold(struct peers *peers)
{
	peers->handles++;
}

static void free_peers(struct peers *peers)
{
	struct peer *peer;

	while ((peer = TAILQ_FIRST(&peers->list))) {
		TAILQ_REMOVE(&peers->list, peer, link);
		pthread_mutex_destroy(&peer->lock);
		free(peer);
	}
	reject_log_close(peers->rejects);
	pthread_mutex_destroy(&peers->lock);
	pthread_mutex_destroy(&peers->data_lock);
	hmac_wipe(&peers->self, sizeof(peers->self));
	free(peers);
}

void peers_release(struct peers *peers)
{
	if (--peers->handles == 0)
		free_peers(peers);
}

struct peer *peer_find(struct peers *peers, ramp_node_t node)
{
	struct peer *peer;

	pthread_mutex_lock(&peers->lock);
	TAILQ_FOREACH (peer, &peers->list, link)
		if (peer->node == node)
			break;
	pthread_mutex_unlock(&peers->lock);
	return peer;
}

struct peer *peer_new(struct peers *peers, ramp_node_t node)
{
	struct peer *peer = calloc(1, sizeof(*peer));

	if (!peer)
		abort(); /* without it this node's view of the membership would be wrong */
	peer->peers = peers;
	peer->node = node;
	pthread_mutex_init(&peer->lock, NULL);
	uv_timer_init(loop_uv(peers->loop), &peer->wait);
	peer->wait.data = peers;
	peers_hold(peers);
	pthread_mutex_lock(&peers->lock);
	TAILQ_INSERT_TAIL(&peers->list, peer, link);
	pthread_mutex_unlock(&peers->lock);
	return peer;
}

void peer_rejected(struct peers *peers, struct peer *peer, const char *endpoint, const char *reason)
{
	atomic_fetch_add(&peers->rejected, 1);
	if (peer)
		atomic_fetch_add(&peer->rejected, 1);
	reject_log_write(peers->rejects, uv_now(loop_uv(peers->loop)), endpoint, reason);
}
