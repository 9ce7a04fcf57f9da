/*
 * The other nodes: which of them are up, and messages between daemons.
 *
 * Each pair of nodes keeps one control connection (the node with the smaller number dials).
 * A connection begins with a hello (hello.h): version and fresh nonces, then each end proves the
 * cluster key by HMAC-SHA-256 over every byte that went before, and names its cluster, node number,
 * incarnation and instance; the acceptor does so only after the dialer has proved the key. Nothing
 * is served before both ends have proved it and agree on cluster, version and (where the caller
 * named one) incarnation. From then on every control message carries a counter and an HMAC under a
 * session key of its direction, made of the key and both nonces: a message that is replayed,
 * altered, cut or out of turn ends the connection.
 *
 * A peer that is silent for 2 s is down (each side speaks at least every 200 ms); it is dialed
 * again after 50 ms, then twice as long, to 2 s. Rejected connections and messages are counted,
 * with one log line that names the address and the reason (not more than a few in ten seconds).
 *
 * One TCP port per node takes control and data connections; the hello's class says which. Data
 * connections go to the transport (peers_data.h).
 *
 * Thread-safety: peer_send, peer_key, peer_up, peer_incarnation, peer_instance, peers_status and
 * peers_rejected from any thread; the rest on the control loop's thread (before the loop runs, or
 * on it). Handlers and callbacks run on the control loop, with no lock held: they may call
 * anything here but peers_close.
 */
#ifndef RAMP_PEER_H
#define RAMP_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hmac.h"
#include "base/ids.h"
#include "base/loop.h"
#include "base/wire.h"

#define PEER_MESSAGE_MAX_BYTES (4u << 20)

struct hello;
struct peers;

struct peers_config {
	struct loop *loop;
	ramp_node_t self;
	uint8_t cluster_id[32];
	uint8_t key[32]; /* the cluster key, already hashed to 32 bytes */
	ramp_incarnation_t incarnation;
	uint64_t instance;
	const char *listen_address; /* HOST:PORT, [V6]:PORT; peers_open blocks to resolve it */
	bool listen_later; /* peers_open neither blocks nor fails for it: it is tried until it
			      works */
	uint32_t reconnect_min_ms, reconnect_max_ms; /* 0: 50, 2000 */
	/* The control connection of `node` is up (both proofs done) or down; the two alternate for
	   each node. Not called by peers_close. */
	void (*up)(void *arg, ramp_node_t node, ramp_incarnation_t incarnation, bool up);
	/* A node that is no member has proved the key and wants to join (join.h): takes fd, and
	   may copy `hello`; its `self` lives as long as `peers`. NULL: no node joins here. */
	void (*join)(void *arg, int fd, const struct hello *hello);
	void *arg;
};

/* Makes the table and listens. */
int peers_open(const struct peers_config *config, struct peers **out, struct ramp_err *err);
/*
 * Closes connections and the port. On the control loop or after loop_run returned, before
 * loop_close (which lets the memory go); no other thread may use `peers` any more.
 */
void peers_close(struct peers *peers);

/*
 * Follow the membership in the metadata: peers_set dials, again at a new address; peers_remove
 * drops a removed node. Only members may connect. `node` == self: nothing.
 */
void peers_set(struct peers *peers, ramp_node_t node, const char *name, const char *address);
void peers_remove(struct peers *peers, ramp_node_t node);

/*
 * Sends one message, in order with the others of the same thread to that node. `type` is one of
 * proto.h's, 1..255 (0 is the keep-alive of the connection itself). `body` is copied or sent before
 * this returns. Never blocks: where nothing is queued, the body goes to the socket straight from
 * the caller's thread. 0, or -EHOSTUNREACH where the node is not up (this node itself never is),
 * -ENOBUFS where it has fallen too far behind (16 MiB; the message is dropped: every protocol
 * above repeats what matters), -EMSGSIZE above PEER_MESSAGE_MAX_BYTES. Arrival is not promised.
 */
int peer_send(struct peers *peers, ramp_node_t node, uint8_t type, const void *body, size_t len);

/*
 * Sets the one handler of a message type, before peers_set is first called. `body` is valid during
 * the call; where the handler leaves it bad, that is counted and logged as a malformed message.
 */
typedef void peer_handler(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			  struct wire_r *body);
void peers_on(struct peers *peers, uint8_t type, peer_handler *handler, void *arg);

/*
 * Derives a key that only this node and `node` know, and which ends with their control connection:
 * the same at both ends for the same label. 0, or -EHOSTUNREACH where the node is not up.
 */
int peer_key(struct peers *peers, ramp_node_t node, const char *label, uint8_t key[HMAC_BYTES]);

bool peer_up(struct peers *peers, ramp_node_t node);
/* Returns the incarnation that the peer proved in its last hello; 0: none yet. */
ramp_incarnation_t peer_incarnation(struct peers *peers, ramp_node_t node);
/* Returns the instance (made by mkfs) that it proved with it; 0: none yet. */
uint64_t peer_instance(struct peers *peers, ramp_node_t node);

struct peer_status {
	ramp_node_t node;
	bool up;
	ramp_incarnation_t incarnation;
	uint64_t messages_in, messages_out, bytes_in, bytes_out, reconnects, rejected;
};
/* Fills at most `max` entries; returns how many peers there are. Any thread. */
size_t peers_status(struct peers *peers, struct peer_status *out, size_t max);
/* Returns how many connections and messages were rejected, those of unknown nodes included. */
uint64_t peers_rejected(struct peers *peers);
/* Returns the port that is listened at (listen_address may say port 0). */
uint16_t peers_port(struct peers *peers);

#endif
