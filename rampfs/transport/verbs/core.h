/*
 * The object that all files of this room share: what this node knows of the others' adapters, its
 * connections, its counters.
 */
#ifndef RAMP_VERBS_CORE_H
#define RAMP_VERBS_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "message.h"
#include "transport/transport.h"

struct accept;
struct verbs_conn;
struct device;
struct queue;
struct regions;

/* Another node, as far as RDMA goes. One that was seen once stays until the end. */
struct verbs_node {
	LIST_ENTRY(verbs_node) entry; /* protected by verbs->lock */
	ramp_node_t node;
	/* Protected by verbs->lock. */
	struct message_at at; /* port 0: not told */
	uint64_t connects;    /* of the control connection, when it was told */
	/* By enum tp_class - 1: queue pairs that no connection has yet, and threads that connect. */
	struct queue *ready[2];
	unsigned connecting[2];
	uint64_t ready_ms; /* when the last of them was made */
	uint64_t ask_ms;
	uint32_t after_ms;

	_Atomic uint64_t read_bytes, reads, again, lost;
	atomic_uint reading; /* queue pairs */
};

struct verbs {
	struct tp tp;
	struct tp *tcp;
	struct peers *peers;
	uint64_t life;		   /* random, of this daemon */
	_Atomic uint64_t counter;  /* of requests to connect */
	atomic_bool has_device;	   /* queue pairs can be made */
	_Atomic uint64_t removals; /* of devices: queue pairs from before are lost */

	pthread_mutex_t lock;
	pthread_cond_t dialed;
	LIST_HEAD(, verbs_node) nodes; /* protected by lock */
	LIST_HEAD(, verbs_conn) conns; /* protected by lock */
	unsigned dials;		       /* threads that connect; protected by lock */
	struct message_at own;	       /* what this node tells; protected by lock */
	struct accept *accept;	       /* written under lock by the verbs thread */

	struct regions *regions;
	/* The verbs thread's. */
	struct device *device;
	uint64_t look_ms; /* when a device is looked for again */
	pthread_t thread;
	int wake; /* an eventfd */
	atomic_bool stop;
};

/* With verbs->lock held. NULL: no memory. */
struct verbs_node *verbs_node_of(struct verbs *verbs, ramp_node_t node);

#endif
