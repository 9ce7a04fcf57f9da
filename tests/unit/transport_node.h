/*
 * Shared by the tests of the transport: a node with a control loop and thread of its own, and a man
 * in the middle that sees, and may change, every byte between two ports.
 */
#ifndef TRANSPORT_NODE_H
#define TRANSPORT_NODE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/loop.h"
#include "transport/peers/peer.h"
#include "transport/transport.h"

#define WAIT_MS 15000

/* Checks every millisecond until `what` holds; fails the test where it does not within WAIT_MS. */
#define wait_until(what)                                                                           \
	do {                                                                                       \
		int waited_ms = 0;                                                                 \
		while (!(what) && waited_ms++ < WAIT_MS)                                           \
			usleep(1000);                                                              \
		ck_assert_msg(waited_ms <= WAIT_MS, "never: %s", #what);                           \
	} while (0)

struct node {
	ramp_node_t id;
	struct loop *loop;
	pthread_t thread;
	struct peers *peers;
	struct tp *tp;
	uint16_t port;
	_Atomic unsigned int ups, downs;
	_Atomic ramp_incarnation_t seen; /* of the last peer that came up */
	/* Set before node_start. */
	void (*on_up)(struct node *node, ramp_node_t peer, bool up);
	peer_handler *handler; /* of type 1 */
	void *handler_arg;
};

struct node_identity {
	uint8_t key, cluster; /* each byte of them */
	ramp_incarnation_t incarnation;
	uint64_t instance;
	const char *host; /* NULL: 127.0.0.1 */
	uint16_t port;	  /* 0: any */
};

void node_start(struct node *node, ramp_node_t id, struct node_identity who);
void node_stop(struct node *node); /* stops the transport too, if there is one */
/* struct transport_config's `streams`, for nodes that open a transport from then on; 1 at first. */
extern unsigned node_streams;
/* Its `limit_bytes_s`; 0 at first. */
extern uint64_t node_limit_bytes_s;
/* Opens the node's transport; node_stop stops it. */
void node_open_transport(struct node *node);
/* On the node's loop, waited for. */
void node_run(struct node *node, loop_fn *fn, void *arg);
void node_know(struct node *node, ramp_node_t other, uint16_t port);
void node_know_at(struct node *node, ramp_node_t other, const char *address);
void node_forget(struct node *node, ramp_node_t other);
/* Both know each other, and are up. */
void nodes_join(struct node *a, struct node *b);
uint64_t node_peer_rejected(struct node *node, ramp_node_t other);

enum way { TO_SERVER = 0, TO_CLIENT = 1 };

struct middle;

/*
 * Handles the bytes at `offset` of a connection's stream for the man in the middle: may change them
 * and *len (up to cap). False: cut the connection after them.
 */
typedef bool middle_fn(void *arg, unsigned int connection, enum way way, uint64_t offset,
		       uint8_t *bytes, size_t *len, size_t cap);

struct middle *middle_start(uint16_t to_port, middle_fn *fn, void *arg);
uint16_t middle_port(struct middle *middle);
void middle_stop(struct middle *middle);

/* A socket that is connected with 127.0.0.1:port; blocking, with a time-out of 10 s. */
int raw_connect(uint16_t port);
int raw_listen(uint16_t *port);

#endif
