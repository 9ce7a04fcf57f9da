/*
 * Nodes of metadata in one process, joined by a network of callbacks.
 *
 * A node here is a journal in a scratch directory and a struct meta. net_cut cuts a node off from
 * all others; a message to a closed node is lost, as on a wire.
 */
#ifndef RAMP_TESTS_META_NET_H
#define RAMP_TESTS_META_NET_H

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "meta/meta.h"

#define NODES_MAX 6

struct net_node {
	ramp_node_t id;
	char path[200];
	uint64_t instance;		  /* of the journal at path */
	struct meta *meta;		  /* protected by net.lock */
	bool cut;			  /* protected by net.lock */
	atomic_ulong changes, attributes; /* calls of `changed`; those for attributes alone */
};

extern struct meta_net {
	pthread_rwlock_t lock;
	struct net_node node[NODES_MAX + 1];
	char dir[160];
	/* For nodes that start from now on. */
	uint32_t election_ms;
	void (*fatal)(void *arg, const char *text); /* NULL: ends the test */
	void (*heard_of)(void *arg, const struct node_row *row);
	/* NULL, or returns whether a message is delivered. Called under the read lock, by any
	   thread. */
	bool (*_Atomic passes)(ramp_node_t from, ramp_node_t to, const uint8_t *bytes, size_t len);
} net;

#define WAIT_FOR(condition)                                                                        \
	do {                                                                                       \
		double until_ = seconds() + 20;                                                    \
		while (!(condition)) {                                                             \
			ck_assert_msg(seconds() < until_, "waited in vain for %s", #condition);    \
			usleep(2000);                                                              \
		}                                                                                  \
	} while (0)

struct wait {
	atomic_int left;
	atomic_int failed;
};

void net_send(void *arg, ramp_node_t to, const void *bytes, size_t len);
void net_cut(ramp_node_t id, bool on);
void net_start(ramp_node_t id);
void net_stop(ramp_node_t id);
struct meta *meta_of(ramp_node_t id);
double seconds(void);
ramp_node_t leader_among(ramp_node_t first, ramp_node_t last);
ramp_node_t wait_leader(ramp_node_t first, ramp_node_t last);
ramp_node_t another(ramp_node_t than);
void net_format(ramp_node_t id, size_t n_nodes, ramp_node_t voters, uint64_t instance);
void net_setup(void);
void net_teardown(void);
void net_found(size_t nodes);
struct meta_command command(ramp_node_t at, enum meta_command_type type);
int node_up(ramp_node_t at, ramp_node_t node, ramp_incarnation_t inc, uint64_t instance);
struct meta_command create_command(ramp_node_t at, ramp_node_t node, const char *name);
int create(ramp_node_t at, ramp_node_t node, const char *name, ramp_segment_t *id);
void all_up(size_t nodes);
void one_done(void *arg, const struct meta_reply *reply);
void churn(ramp_node_t at, ramp_segment_t id, int n);
int sync_done_with(ramp_node_t at);
uint64_t applied(ramp_node_t id);

#endif
