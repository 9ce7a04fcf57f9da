/*
 * The other nodes: up and down, the clock, the membership, and the calls of other threads.
 *
 * Happy path: peers_set makes a peer and dials it (dial.c) where this node has the smaller number;
 * the handshake (handshake.c) ends in peer_connected, which gives the peer its channel (channel.c);
 * from then on peer_send writes to it from any thread.
 *
 * How it fails: every end of a channel comes to peer_disconnected. It takes the channel from the
 * peer under its lock (so that no sender has it any more), tells the upper floors, and lets dial.c
 * begin again. A connection that proves itself while an older one of the same peer still seems to
 * live replaces it: the peer has restarted, or has noticed the end before us.
 */
#include "peer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "channel.h"
#include "dial.h"
#include "handshake.h"
#include "peer_core.h"

#define PEER_TICK_MS 200

/* ---- up and down -------------------------------------------------------------------------- */

static void peer_disconnected(struct peer *peer, const char *reason)
{
	struct peers *peers = peer->peers;
	struct channel *channel;

	pthread_mutex_lock(&peer->lock);
	channel = peer->channel;
	peer->channel = NULL;
	pthread_mutex_unlock(&peer->lock);
	if (!channel)
		return;
	log_info("node %u (%s) at %s is down: %s", peer->node, peer->name,
		 channel_endpoint(channel), reason);
	channel_close(channel);
	if (peers->up)
		peers->up(peers->arg, peer->node, atomic_load(&peer->incarnation), false);
	if (!peer->removed && !peers->closing)
		dial_start(peer);
}

static void peer_connected(struct peer *peer, const struct stream *stream,
			   const struct hello *hello, bool dialed)
{
	struct peers *peers = peer->peers;
	struct channel *channel;
	struct ramp_err err;

	peer_disconnected(peer, "it connects again");
	atomic_store(&peer->incarnation, hello->peer.incarnation);
	atomic_store(&peer->instance, hello->peer.instance);
	if (channel_open(peer, stream, hello, dialed, &err)) {
		struct stream unused = *stream;

		log_error("node %u (%s): %s", peer->node, peer->name, err.text);
		stream_close(&unused);
		if (dialed)
			dial_failed(peer, &err);
		return;
	}
	if (dialed)
		dial_done(peer);
	else
		dial_start(peer); /* our data connections to it need an address that is not stale */
	dial_prefer(peer, stream->fd);
	atomic_fetch_add(&peer->ups, 1);
	channel = peer->channel; /* only this thread changes it */
	log_info("node %u (%s) at %s is up, incarnation %016" PRIx64, peer->node, peer->name,
		 channel_endpoint(channel), hello->peer.incarnation);
	channel_start(channel);
	if (peers->up)
		peers->up(peers->arg, peer->node, hello->peer.incarnation, true);
}

/* ---- the clock, and work that senders left ------------------------------------------------ */

static void on_peers_tick(uv_timer_t *timer)
{
	struct peers *peers = timer->data;
	struct peer *peer;

	listen_tick(&peers->listeners);
	handshakes_tick(peers);
	/* Peers are only ever added, at the end, and by this thread. */
	TAILQ_FOREACH (peer, &peers->list, link)
		if (peer->channel)
			channel_tick(peer->channel);
}

static void on_wake(void *arg)
{
	struct peers *peers = arg;
	struct peer *peer;

	TAILQ_FOREACH (peer, &peers->list, link)
		if (peer->channel)
			channel_attend(peer->channel);
}

static void on_before_sleep(uv_prepare_t *prepare)
{
	struct peers *peers = prepare->data;
	struct peer *peer;
	bool again;

	do { /* a channel that has just ended may have made others send */
		again = false;
		TAILQ_FOREACH (peer, &peers->list, link)
			again |= peer->channel && channel_flush(peer->channel);
	} while (again);
}

/* ---- opening and closing ------------------------------------------------------------------ */

static void on_handle_closed(uv_handle_t *handle)
{
	peers_release(handle->data);
}

static void on_wake_closed(void *arg)
{
	peers_release(arg);
}

static const struct peer_events peer_events = {
	.connected = peer_connected,
	.disconnected = peer_disconnected,
	.dial_failed = dial_failed,
};

static void on_listener_opened(void *arg)
{
	peers_hold(arg);
}

static void on_listener_closed(void *arg)
{
	peers_release(arg);
}

static struct peers *make_peers(const struct peers_config *config)
{
	struct peers *peers = peers_new(&peer_events);

	if (!peers)
		return NULL;
	peers->loop = config->loop;
	peers->self.node = config->self;
	peers->self.incarnation = config->incarnation;
	peers->self.instance = config->instance;
	memcpy(peers->self.cluster_id, config->cluster_id, sizeof(peers->self.cluster_id));
	peers->reconnect_min_ms = config->reconnect_min_ms ? config->reconnect_min_ms : 50;
	peers->reconnect_max_ms = config->reconnect_max_ms ? config->reconnect_max_ms : 2000;
	peers->up = config->up;
	peers->join = config->join;
	peers->arg = config->arg;
	peers->listeners = (struct listeners){.loop = config->loop,
					      .accepted = handshake_accepted,
					      .opened = on_listener_opened,
					      .closed = on_listener_closed,
					      .arg = peers};
	return peers;
}

int peers_open(const struct peers_config *config, struct peers **out, struct ramp_err *err)
{
	struct peers *peers = make_peers(config);
	uv_loop_t *uv = loop_uv(config->loop);
	int rc;

	if (!peers)
		return ramp_err_sys(err, ENOMEM, "peers");
	rc = hello_self_init(&peers->self, config->key, err);
	if (rc)
		goto err_free;
	uv_timer_init(uv, &peers->tick);
	peers->tick.data = peers;
	uv_prepare_init(uv, &peers->before_sleep);
	peers->before_sleep.data = peers;
	rc = loop_wake_open(config->loop, &peers->wake, on_wake, peers, err);
	if (rc)
		goto err_tick;
	peers->handles += 3;
	if (config->listen_later)
		listen_later(&peers->listeners, config->listen_address);
	else
		rc = listen_open(&peers->listeners, config->listen_address, err);
	if (rc) {
		peers_close(peers);
		return rc;
	}
	uv_timer_start(&peers->tick, on_peers_tick, PEER_TICK_MS, PEER_TICK_MS);
	uv_prepare_start(&peers->before_sleep, on_before_sleep);
	*out = peers;
	return 0;

err_tick:
	/* Their memory must outlive the close: one of them takes the caller's handle. */
	peers_hold(peers);
	uv_close((uv_handle_t *)&peers->tick, on_handle_closed);
	uv_close((uv_handle_t *)&peers->before_sleep, on_handle_closed);
	return rc;
err_free:
	peers_release(peers);
	return rc;
}

static void close_peer(struct peer *peer)
{
	struct channel *channel;

	dial_stop(peer);
	pthread_mutex_lock(&peer->lock);
	channel = peer->channel;
	peer->channel = NULL;
	pthread_mutex_unlock(&peer->lock);
	if (channel)
		channel_close(channel);
	uv_close((uv_handle_t *)&peer->wait, on_handle_closed);
}

void peers_close(struct peers *peers)
{
	struct peer *peer;

	peers->closing = true;
	TAILQ_FOREACH (peer, &peers->list, link)
		close_peer(peer);
	handshakes_close(peers);
	listen_close(&peers->listeners);
	uv_close((uv_handle_t *)&peers->tick, on_handle_closed);
	uv_close((uv_handle_t *)&peers->before_sleep, on_handle_closed);
	loop_wake_close(&peers->wake, on_wake_closed);
	peers_release(peers);
}

/* ---- the membership ----------------------------------------------------------------------- */

void peers_set(struct peers *peers, ramp_node_t node, const char *name, const char *address)
{
	struct peer *peer;

	if (node == peers->self.node || node == 0)
		return;
	peer = peer_find(peers, node);
	if (!peer)
		peer = peer_new(peers, node);
	snprintf(peer->name, sizeof(peer->name), "%s", name);
	if (!peer->removed && strcmp(peer->address, address) == 0)
		return;
	peer->removed = false;
	snprintf(peer->address, sizeof(peer->address), "%s", address);
	dial_stop(peer);
	pthread_mutex_lock(&peer->lock);
	peer->n_addresses = 0;
	pthread_mutex_unlock(&peer->lock);
	/* Where the other node dials, a new address is no reason to end its connection. */
	if (peers->self.node < node)
		peer_disconnected(peer, "it has another address now");
	dial_start(peer);
}

void peers_remove(struct peers *peers, ramp_node_t node)
{
	struct peer *peer = peer_find(peers, node);

	if (!peer || peer->removed)
		return;
	peer->removed = true;
	dial_stop(peer);
	handshakes_forget(peers, node);
	pthread_mutex_lock(&peer->lock);
	peer->n_addresses = 0;
	pthread_mutex_unlock(&peer->lock);
	peer_disconnected(peer, "it is no member any more");
	atomic_store(&peer->incarnation, 0);
}

void peers_on(struct peers *peers, uint8_t type, peer_handler *handler, void *arg)
{
	peers->handlers[type].fn = handler;
	peers->handlers[type].arg = arg;
}

/* ---- any thread --------------------------------------------------------------------------- */

int peer_send(struct peers *peers, ramp_node_t node, uint8_t type, const void *body, size_t len)
{
	struct peer *peer = peer_find(peers, node);
	int rc = -EHOSTUNREACH;
	bool wake = false;

	if (len > PEER_MESSAGE_MAX_BYTES)
		return -EMSGSIZE;
	if (!peer)
		return -EHOSTUNREACH;
	pthread_mutex_lock(&peer->lock);
	if (peer->channel)
		rc = channel_send(peer->channel, type, body, len, &wake);
	pthread_mutex_unlock(&peer->lock);
	if (wake)
		loop_wake_send(&peers->wake);
	return rc;
}

int peer_key(struct peers *peers, ramp_node_t node, const char *label, uint8_t key[HMAC_BYTES])
{
	struct peer *peer = peer_find(peers, node);
	int rc = -EHOSTUNREACH;

	if (!peer)
		return rc;
	pthread_mutex_lock(&peer->lock);
	if (peer->channel)
		rc = channel_key(peer->channel, label, key);
	pthread_mutex_unlock(&peer->lock);
	return rc;
}

bool peer_up(struct peers *peers, ramp_node_t node)
{
	struct peer *peer = peer_find(peers, node);
	bool up;

	if (!peer)
		return false;
	pthread_mutex_lock(&peer->lock);
	up = peer->channel != NULL;
	pthread_mutex_unlock(&peer->lock);
	return up;
}

ramp_incarnation_t peer_incarnation(struct peers *peers, ramp_node_t node)
{
	struct peer *peer = peer_find(peers, node);

	return peer ? atomic_load(&peer->incarnation) : 0;
}

uint64_t peer_instance(struct peers *peers, ramp_node_t node)
{
	struct peer *peer = peer_find(peers, node);

	return peer ? atomic_load(&peer->instance) : 0;
}

static void fill_status(struct peer *peer, struct peer_status *status)
{
	uint64_t ups = atomic_load(&peer->ups);

	*status = (struct peer_status){
		.node = peer->node,
		.incarnation = atomic_load(&peer->incarnation),
		.messages_in = atomic_load(&peer->messages_in),
		.messages_out = atomic_load(&peer->messages_out),
		.bytes_in = atomic_load(&peer->bytes_in),
		.bytes_out = atomic_load(&peer->bytes_out),
		.reconnects = ups ? ups - 1 : 0,
		.rejected = atomic_load(&peer->rejected),
	};
	pthread_mutex_lock(&peer->lock);
	status->up = peer->channel != NULL;
	pthread_mutex_unlock(&peer->lock);
}

size_t peers_status(struct peers *peers, struct peer_status *out, size_t max)
{
	struct peer *peer;
	size_t n = 0;

	pthread_mutex_lock(&peers->lock);
	TAILQ_FOREACH (peer, &peers->list, link) {
		if (peer->removed)
			continue;
		if (n < max)
			fill_status(peer, &out[n]);
		n++;
	}
	pthread_mutex_unlock(&peers->lock);
	return n;
}

uint64_t peers_rejected(struct peers *peers)
{
	return atomic_load(&peers->rejected);
}

uint16_t peers_port(struct peers *peers)
{
	return peers->listeners.port;
}
