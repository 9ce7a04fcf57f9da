/*
 * The table of the other nodes: the ground on which the files of this folder stand.
 *
 *   reject.c      the log of rejected connections
 *   listen.c      the port
 *   channel.c     a control connection after its hello: frames, counters, HMACs
 *   handshake.c   connections whose two ends have not proved themselves yet
 *   dial.c        resolving addresses, dialing, back-off
 *   peers_data.c  for transports: data connections, addresses
 *   peer.c        up and down, the clock, the calls of other threads
 *
 * Each calls those above it in this list; a call in the other direction is a callback in struct
 * peer_events.
 *
 * Locks: peers->lock guards the table's links; peers->data_lock guards on_data; peer->lock guards
 * the fields that are marked so below. Order: peers->lock, then peer->lock; none is held while a
 * handler or callback runs (on_data alone is called with data_lock held). Everything else belongs
 * to the control loop.
 */
#ifndef RAMP_PEER_CORE_H
#define RAMP_PEER_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "listen.h"
#include "peer.h"
#include "peers_data.h"
#include "transport/endpoint.h"
#include "transport/hello.h"
#include "transport/stream.h"

#define PEER_ADDRESSES_MAX 8

struct channel;
struct handshake;
struct reject_log;
struct resolve;

enum dial_state { DIAL_IDLE, DIAL_RESOLVING, DIAL_HANDSHAKE, DIAL_WAITING }; /* drawn in dial.c */

struct peer {
	TAILQ_ENTRY(peer) link; /* protected by peers->lock */
	struct peers *peers;
	ramp_node_t node;
	char name[RAMP_NODE_NAME_MAX + 1];
	char address[RAMP_ADDRESS_MAX + 1];
	atomic_bool removed;

	enum dial_state dial;
	uv_timer_t wait;
	struct resolve *resolve;     /* under way; NULL: none */
	struct handshake *handshake; /* our dial that is in its hello */
	uint32_t wait_ms;
	unsigned int next_address;
	char last_failure[RAMP_ERR_TEXT_BYTES]; /* logged already */

	pthread_mutex_t lock;
	struct channel *channel;			       /* protected by lock; NULL: down */
	struct endpoint_address addresses[PEER_ADDRESSES_MAX]; /* protected by lock */
	unsigned int n_addresses, best;			       /* protected by lock */
	_Atomic ramp_incarnation_t incarnation;
	_Atomic uint64_t instance;
	_Atomic uint64_t messages_in, messages_out, bytes_in, bytes_out, ups, rejected;
};

/* Calls up, to peer.c. All on the control loop. */
struct peer_events {
	/* The hello of a control connection is over both ways: takes the stream. */
	void (*connected)(struct peer *peer, const struct stream *stream, const struct hello *hello,
			  bool dialed);
	/* The channel must end; its peer is down, and the channel closed, when this returns. */
	void (*disconnected)(struct peer *peer, const char *reason);
	/* A handshake of ours with the peer has failed; it is gone already. */
	void (*dial_failed)(struct peer *peer, const struct ramp_err *err);
};

struct peers {
	struct loop *loop;
	struct hello_self self;
	const struct peer_events *events;
	uint32_t reconnect_min_ms, reconnect_max_ms;
	void (*up)(void *arg, ramp_node_t node, ramp_incarnation_t incarnation, bool up);
	void (*join)(void *arg, int fd, const struct hello *hello);
	void *arg;
	bool closing;
	unsigned int handles; /* libuv's handles and requests that still point here */

	struct listeners listeners;
	uv_timer_t tick;
	uv_prepare_t before_sleep;
	struct loop_wake wake; /* a sender left work for the loop */
	TAILQ_HEAD(, handshake) handshakes;
	unsigned int n_accepted; /* of handshakes */
	struct {
		peer_handler *fn;
		void *arg;
	} handlers[256];
	struct reject_log *rejects;
	_Atomic uint64_t rejected;

	pthread_mutex_t lock;
	TAILQ_HEAD(, peer) list; /* protected by lock; peers stay until peers_close */
	pthread_mutex_t data_lock;
	peers_take_data *on_data; /* protected by data_lock */
	void *data_arg;		  /* protected by data_lock */
};

/* Makes the table with one handle, the caller's; NULL: no memory. */
struct peers *peers_new(const struct peer_events *events);
/* Counts one more, or one less, handle that points to the table; the last one frees it. */
void peers_hold(struct peers *peers);
void peers_release(struct peers *peers);
/* Adds a peer, of which there is none yet. Loop. */
struct peer *peer_new(struct peers *peers, ramp_node_t node);
/* Returns the peer, a removed one too, or NULL. Any thread. */
struct peer *peer_find(struct peers *peers, ramp_node_t node);
/* Counts a rejected connection or message, for all and for the peer, and logs it. peer: the other end
   where it has proved itself, else NULL. Loop. */
void peer_rejected(struct peers *peers, struct peer *peer, const char *endpoint,
		   const char *reason);

#endif
