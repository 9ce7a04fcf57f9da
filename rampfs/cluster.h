/*
 * This node as a member of its cluster: the metadata (Raft), the peers, the data transport and the
 * changes of members, wired to each other. Events that concern other floors are passed up by
 * callbacks.
 */
#ifndef RAMP_CLUSTER_H
#define RAMP_CLUSTER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/err.h"
#include "base/ids.h"
#include "base/loop.h"
#include "base/statedir.h"
#include "disk_probe.h"
#include "transport/transport.h"
#include "without_meta.h"

struct members;
struct peers;
struct programs;

/* The callbacks come between cluster_start and cluster_silence only. */
struct cluster_config {
	struct loop *loop;
	const struct statedir *dir; /* outlives the cluster */
	struct store *store;	    /* the same */
	bool living; /* programs wait for what is here: nothing that only others need may end it */
	ramp_incarnation_t incarnation;
	enum transport_choice transport;
	unsigned streams;	/* as struct transport_config has it */
	uint64_t limit_bytes_s; /* the same */
	/* A segment's row has changed, or only its attributes (meta's thread); id 0: the membership
	   has, or anything (control loop). */
	void (*row_changed)(void *arg, ramp_segment_t id, bool attributes);
	/* Any segment's row may be another one or gone. Meta's thread. */
	void (*rows_restored)(void *arg);
	/* Control loop: that incarnation of the node, and all before it, are over. May come
	   again. */
	void (*node_fenced)(void *arg, ramp_node_t node, ramp_incarnation_t fenced);
	/* Control loop. */
	void (*peer_changed)(void *arg, ramp_node_t node, ramp_incarnation_t incarnation, bool up);
	/* Control loop: this daemon has no metadata, and the next one may. */
	void (*meta_again)(void *arg);
	void *arg;
};

/* NULL: not open. All zero before cluster_open. */
struct cluster {
	struct cluster_config config;
	struct meta *meta;
	struct peers *peers;
	struct tp *tp;
	struct members *members;
	atomic_bool running;	     /* callbacks are passed up */
	atomic_bool nodes_asked;     /* refresh_nodes is posted */
	uv_timer_t alone;	     /* control loop: warns once where no member was heard */
	struct without_meta without; /* these two where there is no metadata */
	struct disk_probe probe;
	bool heard; /* control loop: another member, ever */
};

/* Opens meta, peers and the transport. On failure, too, the caller closes. */
int cluster_open(const struct cluster_config *config, struct cluster *cluster,
		 struct ramp_err *err);
/* Opens the changes of members, which come from programs' sessions and from peers. */
int cluster_open_members(struct cluster *cluster, struct programs *programs, struct ramp_err *err);
/* Control loop, when every floor is open. */
void cluster_start(struct cluster *cluster);

/* The end, in this order. */
void cluster_silence(struct cluster *cluster);
void cluster_close_members(struct cluster *cluster);
/* Stops the transport and closes meta. */
void cluster_stop(struct cluster *cluster);
/* Closes the peers. */
void cluster_close(struct cluster *cluster);

#endif
