/*
 * The other nodes: who is up, and messages between daemons.
 *
 * Each pair of nodes keeps one control connection (the node with the smaller number dials).
 * A connection begins with a hello in both directions: protocol version, cluster id, node number,
 * incarnation, instance, class, a fresh nonce; then each proves the cluster key by HMAC-SHA-256
 * over both hellos. Nothing is served before both sides have proved it and agree on cluster,
 * version and (where the caller named one) incarnation. From then on every control message
 * carries a counter and an HMAC under a session key made of the key and both nonces: a message
 * that is replayed, altered, cut or out of turn ends the connection.
 *
 * One TCP port per node takes control and data connections; the hello's class says which. Data
 * connections are handed to transport.h's side.
 *
 * Thread-safety: peer_send, peer_up and peer_incarnation from any thread; the rest on the control
 * loop. Handlers and callbacks run on the control loop.
 */
#ifndef RAMP_PEER_H
#define RAMP_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "ids.h"
#include "loop.h"
#include "wire.h"

#define PEER_VERSION	       1
#define PEER_MESSAGE_MAX_BYTES (4u << 20)

struct peers;

struct peers_config {
	struct loop *loop;
	ramp_node_t self;
	uint8_t cluster_id[32];
	uint8_t key[32]; /* the cluster key, already hashed to 32 bytes */
	ramp_incarnation_t incarnation;
	uint64_t instance;
	const char *listen_address;		     /* HOST:PORT */
	uint32_t reconnect_min_ms, reconnect_max_ms; /* 0: 50, 2000 */
	/* The control connection of `node` is up (both proofs done) or down. */
	void (*up)(void *arg, ramp_node_t node, ramp_incarnation_t incarnation, bool up);
	void *arg;
};

int peers_open(const struct peers_config *config, struct peers **out, struct ramp_err *err);
/* Closes connections and the port; call while the loop still runs or after it ended. */
void peers_close(struct peers *peers);

/* The membership as the metadata has it: (re)dials at a new address, drops a removed node. */
void peers_set(struct peers *peers, ramp_node_t node, const char *name, const char *address);
void peers_remove(struct peers *peers, ramp_node_t node);

/*
 * Sends one message: `type` is the first byte of proto.h's range, `body` is copied. 0, or
 * -EHOSTUNREACH where the node is not up, or -ENOBUFS where it has fallen too far behind (the
 * message is dropped: every protocol above repeats what matters). Arrival is not promised.
 */
int peer_send(struct peers *peers, ramp_node_t node, uint8_t type, const void *body, size_t len);

/* One handler per message type; set before peers_set is first called. `body` ends with the call. */
typedef void peer_handler(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			  struct wire_r *body);
void peers_on(struct peers *peers, uint8_t type, peer_handler *handler, void *arg);

bool peer_up(struct peers *peers, ramp_node_t node);
/* The incarnation that the peer proved in its last hello; 0: none yet. */
ramp_incarnation_t peer_incarnation(struct peers *peers, ramp_node_t node);

struct peer_status {
	ramp_node_t node;
	bool up;
	ramp_incarnation_t incarnation;
	uint64_t messages_in, messages_out, bytes_in, bytes_out, reconnects, rejected;
};
/* Fills at most `max`, returns how many there are. Any thread. */
size_t peers_status(struct peers *peers, struct peer_status *out, size_t max);

#endif
