/*
 * The hello: how the two ends of a new connection prove the cluster key to each other.
 *
 *   dialer                                                     acceptor
 *   OPEN {version, nonce}                              ----->
 *                  <-----  OFFER {version, nonce, proof that it knows the key}
 *   PROVE {cluster, node, wanted node, incarnation,
 *          instance, class, proof}                     ----->
 *                  <-----  WELCOME {cluster, node, incarnation, instance, proof}
 *   either, at any time: REJECT {reason}, and the end
 *
 * No end names itself before the other one has proved the key: the acceptor's first proof covers
 * nothing but the nonces, and each later proof covers every byte that went before in both
 * directions. The label in each proof's MAC is that of one step, so a proof that is sent back, or
 * to another place, proves nothing; both nonces are fresh, so a recorded proof proves nothing.
 *
 * How it fails: a wrong proof, another version or cluster, a node that is not the one that was
 * dialed, a frame that is not exactly as long as its step's, end of file. A REJECT's reason is not
 * covered by a proof: it is good for the log, and for nothing else.
 *
 * The struct does no I/O: bytes in (hello_feed), bytes out (hello_next). It takes no byte behind
 * the hello. hello_io.h runs it over a stream. Thread-safety: the caller's.
 */
#ifndef RAMP_HELLO_H
#define RAMP_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hmac.h"
#include "base/ids.h"

/* The version of everything on a node's port (hello, control messages, data requests) and of the
   meaning of entries in the replicated log: a node that ignored a part of an entry would have other
   tables than the others. */
#define PEER_VERSION 5

#define HELLO_CLUSTER_BYTES    32
#define HELLO_NONCE_BYTES      32
#define HELLO_TIMEOUT_MS       5000
#define HELLO_FRAME_MAX_BYTES  128
#define HELLO_TRANSCRIPT_BYTES 512

/* JOIN: the dialer is no member yet. It proves the key, gives zeros because it has no cluster and
   no number, and learns the cluster's id (peers/join.h). */
enum hello_class { HELLO_CONTROL = 0, HELLO_DEMAND = 1, HELLO_PREFETCH = 2, HELLO_JOIN = 3 };

/* The identity of this node. The caller fills it but for `key`; read from any thread. */
struct hello_self {
	uint8_t cluster_id[HELLO_CLUSTER_BYTES];
	uint8_t key[HMAC_BYTES]; /* derived from the cluster key, for hellos only */
	ramp_node_t node;
	ramp_incarnation_t incarnation;
	uint64_t instance;
};

/* Derives self->key. */
int hello_self_init(struct hello_self *self, const uint8_t cluster_key[HMAC_BYTES],
		    struct ramp_err *err);

/* The proved identity of the other end; zeros before. */
struct hello_peer {
	ramp_node_t node;
	ramp_incarnation_t incarnation;
	uint64_t instance;
	enum hello_class class;
	uint8_t cluster_id[HELLO_CLUSTER_BYTES]; /* JOIN's dialer: the acceptor's */
};

/* hello.c has the drawing. */
enum hello_step {
	HELLO_OPEN,	    /* dialer: OPEN is to be made */
	HELLO_WAIT_OPEN,    /* acceptor */
	HELLO_WAIT_OFFER,   /* dialer */
	HELLO_WAIT_PROVE,   /* acceptor */
	HELLO_WAIT_WELCOME, /* dialer */
	HELLO_STEP_PROVED,  /* both ways, when `out` is sent */
	HELLO_STEP_FAILED,
};

enum hello_state {
	HELLO_SENDING,	 /* hello_next has bytes; nothing is taken before they are sent */
	HELLO_RECEIVING, /* hello_feed needs hello_needs bytes */
	HELLO_PROVED,	 /* both ways, and all is sent */
	HELLO_FAILED,	 /* hello_next may have a REJECT for the other end */
};

struct hello {
	const struct hello_self *self;
	enum hello_step step;
	/* Dialer: the wanted node. */
	ramp_node_t want_node;
	ramp_incarnation_t want_incarnation; /* 0: any */
	enum hello_class want_class;
	/* Acceptor: tells whether a node that has proved itself may connect; 0 or negative errno.
	   NULL: every node may. */
	int (*admit)(void *arg, const struct hello_peer *peer, struct ramp_err *err);
	void *arg;

	struct hello_peer peer;
	uint8_t in[HELLO_FRAME_MAX_BYTES], out[HELLO_FRAME_MAX_BYTES];
	size_t in_len, in_need; /* of the frame, or of its header where that is not whole */
	size_t out_len, out_pos;
	uint8_t transcript[HELLO_TRANSCRIPT_BYTES]; /* every frame so far */
	size_t transcript_len;
};

void hello_dial(struct hello *hello, const struct hello_self *self, ramp_node_t want_node,
		ramp_incarnation_t want_incarnation, enum hello_class class);
void hello_accept(struct hello *hello, const struct hello_self *self,
		  int (*admit)(void *arg, const struct hello_peer *peer, struct ramp_err *err),
		  void *arg);

enum hello_state hello_state(const struct hello *hello);
/* Returns how many bytes hello_feed takes at most before it is asked again; 0: none, since bytes
   are to be sent first or the hello is over. */
size_t hello_needs(const struct hello *hello);
/*
 * Takes bytes that came from the other end: *taken of them, less than `len` where bytes are to be
 * sent first or the hello is over. 0: see hello_state; else the hello has failed:
 * -EKEYREJECTED wrong key, -EPROTONOSUPPORT version, -EPROTO malformed, -EPERM another cluster,
 * -ENODEV another node, -ESTALE another incarnation than the wanted one (peer.incarnation is
 * proved), -EACCES the other end rejects us, or the errno of `admit`. `err` may be NULL.
 */
int hello_feed(struct hello *hello, const void *data, size_t len, size_t *taken,
	       struct ramp_err *err);
/* Gives the bytes that are to be sent (*len 0: none), valid until hello_sent or hello_feed. 0, or
   a negative errno where the opening cannot be made: the hello has failed. */
int hello_next(struct hello *hello, const uint8_t **out, size_t *len, struct ramp_err *err);
/* Counts `len` of these bytes as sent. */
void hello_sent(struct hello *hello, size_t len);

/*
 * After HELLO_PROVED: makes a key for one direction of this one connection. `from_dialer`: of the
 * bytes that the dialer sends.
 */
int hello_session_key(const struct hello *hello, bool from_dialer, uint8_t key[HMAC_BYTES]);
/* The same at both ends: makes the secret of this connection from which peer_key derives keys. */
int hello_secret(const struct hello *hello, uint8_t secret[HMAC_BYTES]);

#endif
