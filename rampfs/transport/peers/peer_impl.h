/*
 * What the files of peer.h share, and the door through which tcp.c gets its data connections.
 *
 *   peer.c     the table of peers, what other threads may call, the clock
 *   dial.c     resolving addresses, dialing, back-off
 *   greet.c    connections whose two ends have not proved themselves yet; the listening port
 *   channel.c  a control connection after its hello: frames, counters, HMACs
 *   reject.c   the log of what was rejected
 *
 * Locks: peers->lock guards the table's links and the data door; peer->lock guards what is marked
 * so below. Order: peers->lock, then peer->lock; none is held while a handler or callback runs
 * (the data door's alone is called with door_lock held). Everything else belongs to the control
 * loop.
 */
#ifndef RAMP_PEER_IMPL_H
#define RAMP_PEER_IMPL_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "peer.h"
#include "transport/endpoint.h"
#include "transport/hello.h"
#include "transport/stream.h"

#define PEER_ADDRESSES_MAX   8
#define PEER_LISTENERS_MAX   4
#define PEER_GREETS_MAX	     64 /* accepted connections that have not proved themselves */
#define PEER_TICK_MS	     200
#define PEER_SILENT_TICKS    10 /* without a message: the peer is down */
#define PEER_QUEUE_MAX_BYTES (16u << 20)
#define PEER_TYPE_ALIVE	     0 /* the one message type that is ours; it has no body */

struct channel;
struct greet;

/*
 * The dialing of one peer. Only the node with the smaller number dials; the other one resolves
 * the address too, since its data connections go there.
 *
 *   IDLE --dial_start--> RESOLVING --on_resolved--> GREETING --dial_done--> IDLE
 *                            |                         |       (its channel is up)
 *                            +------dial_failed--------+--> WAITING --on_wait_over--> RESOLVING
 *   RESOLVING --on_resolved--> IDLE   where the other node dials
 *   any --dial_stop--> IDLE           removed, or its address changed
 */
enum dial_state { DIAL_IDLE, DIAL_RESOLVING, DIAL_GREETING, DIAL_WAITING };

struct peer {
	TAILQ_ENTRY(peer) link; /* protected by peers->lock */
	struct peers *peers;
	ramp_node_t node;
	char name[RAMP_NODE_NAME_MAX + 1];
	char address[RAMP_ADDRESS_MAX + 1];
	atomic_bool removed;

	enum dial_state dial;
	uv_timer_t wait;
	struct resolve *resolve; /* under way; NULL: none */
	struct greet *greet;	 /* our dial that is in its hello */
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

/* Takes a data connection that has proved itself; owns fd from then on. */
typedef void peers_take_data(void *arg, int fd, const struct hello_peer *who);

struct reject_log;

struct peers {
	struct loop *loop;
	struct hello_self self;
	uint32_t reconnect_min_ms, reconnect_max_ms;
	void (*up)(void *arg, ramp_node_t node, ramp_incarnation_t incarnation, bool up);
	void (*join)(void *arg, int fd, const struct hello *hello);
	void *arg;
	bool closing;
	unsigned int handles; /* libuv's handles and requests that still point here */

	struct {
		int fd;
		uv_poll_t poll;
	} listeners[PEER_LISTENERS_MAX];
	unsigned int n_listeners;
	uint16_t port;
	uv_timer_t tick;
	struct loop_wake wake; /* a sender left something that the loop must do */
	TAILQ_HEAD(, greet) greets;
	unsigned int n_accepted; /* of greets */
	struct {
		peer_handler *fn;
		void *arg;
	} handlers[256];
	struct reject_log *rejects;
	_Atomic uint64_t rejected;

	pthread_mutex_t lock;
	TAILQ_HEAD(, peer) list; /* protected by lock; peers stay until peers_close */
	pthread_mutex_t door_lock;
	peers_take_data *take_data; /* protected by door_lock */
	void *take_arg;		    /* protected by door_lock */
};

/* peer.c */
struct peer *peer_find(struct peers *peers, ramp_node_t node); /* NULL; also removed ones */
void peers_hold(struct peers *peers);			       /* one more handle */
void peers_release(struct peers *peers); /* one less; the last one after peers_close frees */
/* Hello both ways is over: takes the stream. */
void peer_connected(struct peer *peer, const struct stream *stream, const struct hello *hello,
		    bool dialed);
/* The channel is over. Loop; its peer is down when this returns. */
void peer_disconnected(struct peer *peer, const char *reason);

/* dial.c */
void dial_start(struct peer *peer);
void dial_stop(struct peer *peer);
void dial_done(struct peer *peer);				 /* its greet became a channel */
void dial_failed(struct peer *peer, const struct ramp_err *err); /* its greet ended */
void dial_prefer(struct peer *peer, int fd); /* the address that fd is connected with */

/* greet.c */
int greet_listen(struct peers *peers, const char *address, struct ramp_err *err);
void greet_close_all(struct peers *peers);
int greet_dial(struct peer *peer, const struct endpoint_address *to, struct ramp_err *err);
void greet_drop(struct greet *greet); /* without a word */
void greet_tick(struct peers *peers); /* ends those whose time is over */
void greet_forget_peer(struct peers *peers, ramp_node_t node);

/* channel.c */
int channel_open(struct peer *peer, const struct stream *stream, const struct hello *hello,
		 bool dialed, struct ramp_err *err); /* takes the stream on success */
void channel_start(struct channel *channel);
/* peer->lock held; *wake: signal peers->wake after. */
int channel_send(struct channel *channel, uint8_t type, const void *body, size_t len, bool *wake);
void channel_attend(struct channel *channel); /* loop: what a sender left */
void channel_tick(struct channel *channel);   /* loop; ends it where it was silent for too long */
void channel_close(struct channel *channel);  /* loop; no longer in peer->channel */
const char *channel_endpoint(const struct channel *channel);
int channel_fd(const struct channel *channel);

/* reject.c: one line and a count for what was turned away; peer may be NULL. Loop. */
struct reject_log *reject_log_open(void);
void reject_log_close(struct reject_log *log);
void reject_count(struct peers *peers, struct peer *peer, const char *endpoint, const char *reason);

/* For tcp.c. Any thread. */
void peers_door(struct peers *peers, peers_take_data *take, void *arg); /* NULL: shut */
const struct hello_self *peers_self(struct peers *peers);
/* Where to dial `node`. -EHOSTUNREACH: not known. */
int peers_address(struct peers *peers, ramp_node_t node, struct endpoint_address *out);
/* It could not be reached there: the next one is told another of its addresses. */
void peers_address_failed(struct peers *peers, ramp_node_t node, const struct endpoint_address *at);

#endif
