/*
 * What all migrations of this node share: the ground of transfer.c. Read and written by the control
 * loop alone, except where a field says otherwise.
 */
#ifndef RAMP_TRANSFER_CORE_H
#define RAMP_TRANSFER_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

#include "transfer.h"
#include "transport/proto.h"

#define MOVE_BUCKETS 256u
#define ANSWERED     64
#define TRACES_KEPT  4
#define PAIRS_MAX    64 /* targets that are told apart */
#define PAIR_FEW     16 /* that weigh how they move, side by side */

struct move;
struct move_request;
struct collapse;
struct giving;
struct figures;
struct tracing;
struct line_group;
struct tool_pulling;
struct prefill;

/* Calls from the ground up; set by transfers_open, never NULL. */
struct transfer_hooks {
	/* Reads a segment's record and row, and does what they call for (dispatch.c). */
	void (*look)(struct transfers *t, ramp_segment_t id);
	/* A move's timer has run out (dispatch.c). */
	void (*tick)(struct move *m);
	/* No move of that segment is left (move_request.c). */
	void (*ended)(struct transfers *t, ramp_segment_t id);
	/* A request begins, or begins again (move_request.c). */
	void (*request_begin)(struct move_request *req);
	/* One of those in a pair is not under way any more: another may begin (move_request.c). */
	void (*admit)(struct transfers *t);
	/* A request's timer has run out (move_request.c). */
	void (*request_tick)(struct move_request *req);
	/* The segment's row may want a prefill, or want none any more (prefill.c). */
	void (*prefill_look)(struct transfers *t, ramp_segment_t id);
	/* The target has read a prefill's round (source_prefill.c). */
	void (*prefill_read)(struct move *m);
	/* A prefill has come further, or ends: source.fail_text says why (prefill.c). */
	void (*prefill_note)(struct move *m);
	void (*prefill_over)(struct move *m);
};

/* The last answers to other nodes: a request that is repeated gets its answer again. */
struct answered {
	ramp_node_t node;
	struct msg_answer answer;
};

/* A target's trace outlives its move: the source reads it when the move has ended. */
struct kept_trace {
	uint64_t source_id; /* 0: none */
	struct trace *trace;
};

/* Moves from here to one node, of requests of many at once. */
struct pair {
	ramp_node_t node;   /* 0: free */
	unsigned under_way; /* that it has not taken yet */
	bool many;	    /* more than PAIR_FEW have been under way since there was none */
	TAILQ_HEAD(, move_request) queue; /* QUEUED, in the order in which they came */
};

#define LINK_SPEEDS 64u
struct link_speed {
	ramp_node_t node;
	uint64_t bytes_s;
};

struct transfers {
	struct transfers_config config;
	struct loop *loop;
	struct store *store;
	struct meta *meta;
	struct peers *peers;
	struct programs *programs;
	struct pull *pull;
	struct serve *serve;
	ramp_node_t self;
	ramp_incarnation_t incarnation;
	const struct transfer_hooks *hooks;

	bool registered; /* R1: our incarnation is committed and not fenced */
	bool up_proposing, scanning, scan_again, closing, started;
	bool take_no_more; /* as a target: this node is being unmounted */
	uint64_t started_ms;
	uint64_t serials;
	uint32_t jobs; /* workers that have something of ours */
	uv_timer_t *up_timer;
	LIST_HEAD(, move) moves[MOVE_BUCKETS];
	STAILQ_HEAD(, move) line;	/* source_line.c */
	LIST_HEAD(, line_group) groups; /* the same */
	LIST_HEAD(, move_request) requests;
	LIST_HEAD(, move_request) requests_of[MOVE_BUCKETS]; /* the same, by segment */
	struct pair pairs[PAIRS_MAX];
	bool admitting;			    /* hooks->admit is posted */
	LIST_HEAD(, prefill) prefills;	    /* prefill.c; changed under `lock` */
	LIST_HEAD(, giving) givings;	    /* give_back.c */
	struct answered answered[ANSWERED]; /* by move_request_peer.c */
	size_t n_answered;
	struct figures *figures;	       /* by figures.c */
	struct kept_trace traces[TRACES_KEPT]; /* by traces.c */
	size_t n_traces;
	LIST_HEAD(, tracing) tracings;
	struct link_speed speeds[LINK_SPEEDS]; /* by link_speed.c */
	size_t n_speeds;
	LIST_HEAD(, tool_pulling) pullings; /* tool_pulls.c */
	STAILQ_HEAD(, collapse) collapses;  /* settled segments; a worker has the first */
	atomic_bool collapse_stop;	    /* we close */

	atomic_uint refs;		  /* of proposals and posted calls; the last one frees */
	atomic_uint_fast64_t last_handle; /* of a request */

	pthread_mutex_t lock; /* protects the fields below */
	ramp_segment_t *changed;
	size_t n_changed, cap_changed;
	bool changed_posted;
	ramp_segment_t *rolled_back;
	size_t n_rolled_back;
	struct transfers_status status;
};

/* The place of a node; nodes beyond PAIRS_MAX share the last one. */
struct pair *pair_of(struct transfers *t, ramp_node_t node);

/* Any thread. */
void transfers_get(struct transfers *t);
void transfers_put(struct transfers *t);

/* Adds one to a counter of transfers.status. Any thread. */
void transfers_count(struct transfers *t, uint64_t *counter);
/* Sets the result of transfers_rolled_back for a segment. */
void transfers_set_rolled_back(struct transfers *t, ramp_segment_t id, bool on);

/* ---- reads of this node's tables ------------------------------------------------------------- */

/* True where the row is MOVING(k) or PULLING(k). */
bool row_in_attempt(const struct segment_row *row, struct ramp_attempt k);
/* True where a committed fact says that this incarnation is over. Read the segment's row first: the
   tables must be at least as new as the prepare that named the incarnation (R1). */
bool move_node_over(struct transfers *t, ramp_node_t node, ramp_incarnation_t incarnation);
/* Writes the node's name, or its number where the tables have none. */
void move_node_name(struct transfers *t, ramp_node_t node, char name[RAMP_NODE_NAME_MAX + 1]);

#endif
