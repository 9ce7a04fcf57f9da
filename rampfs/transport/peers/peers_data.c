/*
 * Peers, for transports. See peers_data.h.
 */
#include "peers_data.h"

#include <errno.h>
#include <string.h>

#include "peer_core.h"

void peers_on_data(struct peers *peers, peers_take_data *take, void *arg)
{
	pthread_mutex_lock(&peers->data_lock);
	peers->on_data = take;
	peers->data_arg = arg;
	pthread_mutex_unlock(&peers->data_lock);
}

const struct hello_self *peers_self(struct peers *peers)
{
	return &peers->self;
}

int peers_address(struct peers *peers, ramp_node_t node, struct endpoint_address *out)
{
	struct peer *peer = peer_find(peers, node);
	int rc = -EHOSTUNREACH;

	if (!peer)
		return rc;
	pthread_mutex_lock(&peer->lock);
	if (peer->n_addresses) {
		*out = peer->addresses[peer->best];
		rc = 0;
	}
	pthread_mutex_unlock(&peer->lock);
	return rc;
}

void peers_address_failed(struct peers *peers, ramp_node_t node, const struct endpoint_address *at)
{
	struct peer *peer = peer_find(peers, node);
	const struct endpoint_address *best;

	if (!peer)
		return;
	pthread_mutex_lock(&peer->lock);
	best = &peer->addresses[peer->best];
	if (peer->n_addresses && best->len == at->len && !memcmp(&best->sa, &at->sa, at->len))
		peer->best = (peer->best + 1) % peer->n_addresses;
	pthread_mutex_unlock(&peer->lock);
}
