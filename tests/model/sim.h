/*
 * The deterministic simulator of meta/: real raft.c, fsm.c, journal.c and replica.c on every node,
 * under simulated time, network, disks, clocks, clients and faults. The seed decides everything.
 *
 *	sim_world.c	parameters by the seed; the queue of events; the network
 *	sim_node.c	a node's life: start, turns, crash; the replica's hooks
 *	sim_faults.c	faults, for 20 simulated seconds; then healing
 *	sim_client.c	clients that create, rename, unlink and read; the admin
 *	sim_wild.c	the client that migrates its segments at random
 *	sim_check.c	invariants, after each step and at the end
 *	sim_main.c	seeds, processes, reports
 *
 * A check that fails ends the process (sim_fail) with one line; sim_main.c runs seeds in processes
 * of their own and repeats a failed one with its trace.
 */
#ifndef RAMP_SIM_H
#define RAMP_SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "meta/replica.h"
#include "sim_rng.h"
#include "sim_vfs.h"

#define SIM_NODES	12 /* ids 1 .. SIM_NODES - 1 */
#define SIM_CLIENTS	5
#define SIM_ROWS	2048 /* segments that one client makes at most */
#define SIM_LOG		512  /* entries that a log holds at most */
#define SIM_INDEXES	16384
#define SIM_TERMS	4096
#define SIM_MS		UINT64_C(1000)
#define SIM_S		UINT64_C(1000000)
#define SIM_FAULTS	(20 * SIM_S) /* faults end here ... */
#define SIM_QUIET	(22 * SIM_S) /* ... no client begins anything new from here ... */
#define SIM_DEADLINE	(45 * SIM_S) /* ... and by here all must be settled */
#define SIM_FAIL_EXIT	3
#define SIM_INSTANCE	1000 /* + id: the instance of a node's journal */
#define SIM_INCARNATION 7000 /* + id: the incarnation by which a node is announced */
#define SIM_WILD	4 /* the client that migrates its segments at random, where there is one */
#define SIM_NO_ROW	UINT32_MAX

/* ---- parcels and events ---------------------------------------------------------------------- */

enum sim_parcel_type {
	SIM_MESSAGE,   /* a Raft message, as meta/ encodes it */
	SIM_PROPOSE,   /* a command, as an entry's bytes; forwarded to the leader */
	SIM_READ,      /* ctx: the reading client */
	SIM_LOCAL,     /* event: TRANSFER, CONFIRM or PEER; node */
	SIM_READ_DONE, /* ctx: the client; index: must be applied */
};

/* Counted references: one for each place in a queue. */
struct sim_parcel {
	enum sim_parcel_type type;
	uint32_t refs;
	ramp_node_t from, to;
	enum raft_event_type event;
	ramp_node_t node;
	uint64_t ctx, index;
	size_t len;
	uint8_t bytes[];
};

enum sim_kind { SIM_TICK, SIM_DELIVER, SIM_TURN, SIM_START, SIM_CLIENT, SIM_ADMIN, SIM_FAULT };

struct sim_item {
	uint64_t at, order; /* order: equal times in the order of their making */
	enum sim_kind kind;
	uint32_t who;
	uint64_t life; /* of the node: an item for an earlier life is dropped */
	struct sim_parcel *parcel;
};

/* ---- nodes ----------------------------------------------------------------------------------- */

/*
 *	DOWN --start--> IDLE --begin--> STEPPED --commit--> IDLE
 *	  ^              |                 |
 *	  +---- crash ---+-----------------+	(also inside begin and commit: crash_at)
 */
enum sim_phase { SIM_DOWN, SIM_IDLE, SIM_STEPPED };
enum sim_crash_at { SIM_NEVER, SIM_BEFORE_EARLY, SIM_BEFORE_COMMIT, SIM_AFTER_COMMIT };

struct sim_world;

struct sim_node {
	struct sim_world *world;
	ramp_node_t id;
	bool exists;
	bool gone;	/* removed from the cluster: never started again */
	bool announced; /* NODE_UP was proposed */
	bool fresh;	/* wiped and formatted again under its old id: may not vote */
	enum sim_phase phase;
	uint64_t life;
	struct replica *replica;
	bool fatal; /* the journal is dead */

	struct sim_parcel **inbox; /* ring */
	uint32_t inbox_cap, inbox_n, inbox_first;
	bool tick_due, turn_due;
	uint64_t paused_until;
	enum sim_crash_at crash_at;
	bool crash_power;
	uint64_t down_for_us;
	uint64_t restart_at;

	int64_t clock_offset_us;
	uint64_t clock_rate; /* per million */
	uint64_t disk_min_us, disk_max_us;

	/* Origin numbers, as meta.c counts them. */
	uint64_t origin_life, origin_number;
	uint64_t open[META_WINDOW];
	uint32_t n_open;

	uint64_t seen_commit, seen_term_led, seen_snap;

	/* Its durable state when it died between two turns: it must come back with that. */
	bool in_turn, left;
	uint64_t left_term, left_snap, left_last;
	ramp_node_t left_vote;
	uint64_t left_log[SIM_LOG]; /* entries left_snap + 1 .. left_last, hashed */
};

/* ---- clients --------------------------------------------------------------------------------- */

struct sim_row {
	ramp_segment_t id; /* 0: not there (any more) */
	ramp_node_t node;
	uint32_t name;	/* names are CLIENT-NAME */
	uint64_t index; /* of the entry that made it so, at the earliest */
	/* The wild client's: its last migration. */
	uint64_t epoch, k_epoch, extent_addr;
	struct ramp_attempt k;
};

enum sim_doing { SIM_RESTING, SIM_WRITING, SIM_READING };

struct sim_client {
	uint32_t index;
	enum sim_doing doing;
	struct meta_command command;
	ramp_node_t at; /* the node it asked */
	uint64_t at_life, number;
	uint64_t retry_at;
	uint32_t row; /* the one it writes or reads */
	uint64_t read_floor, read_ctx;
	struct sim_row rows[SIM_ROWS];
	uint32_t n_rows, next_name;
	uint64_t done;
};

/* ---- the world ------------------------------------------------------------------------------- */

struct sim_params {
	uint32_t voters, learners;
	uint32_t heartbeat_ms, election_ms;
	uint32_t log_capacity, compact_entries, compact_keep;
	uint64_t inflight_bytes;
	uint32_t think_ms; /* of clients */
	uint32_t fault_gap_ms;
	bool skew, members, wipe, origins, wild;
	uint32_t spread; /* directories that segments are made in: nodes 1 .. spread */
};

struct sim_net {
	uint32_t loss, dup, slow; /* per mille */
	uint64_t min_us, max_us, slow_us;
	bool cut[SIM_NODES][SIM_NODES]; /* from, to */
	uint64_t cut_until[SIM_NODES][SIM_NODES];
};

struct sim_entry_record { /* of an index; 0: not known yet */
	uint64_t term, entry, result, sum;
	uint64_t committed_in; /* the term in which that was known first */
};

struct sim_conf_record { /* a committed configuration */
	uint64_t index, data;
};
#define SIM_CONFS 256

struct sim_counts {
	uint64_t events, messages, lost, turns, crashes, power, elections, commands, reads, retries;
	uint64_t snapshots, disk_faults, transfers, members, wipes;
};

struct sim_world {
	uint64_t seed, now, order;
	struct sim_rng rng;
	struct sim_params params;
	struct sim_net net;
	struct sim_item *heap;
	size_t n_heap, cap_heap;
	struct sim_node nodes[SIM_NODES];
	struct sim_client clients[SIM_CLIENTS];
	struct sim_client admin;
	uint32_t admin_names;

	bool healed;
	uint64_t fault_count;

	/* The memory of the checks. */
	struct sim_entry_record *records;	 /* SIM_INDEXES */
	struct sim_conf_record confs[SIM_CONFS]; /* in the order of their indexes */
	uint32_t n_confs;
	ramp_node_t *leaders; /* of each term; SIM_TERMS */
	uint64_t committed;   /* highest index known to be committed */
	uint64_t applied;     /* highest index of which a client has got the result */

	uint64_t digest; /* of all events: equal for equal seeds */
	struct sim_counts counts;
	FILE *trace; /* NULL: none */
};

/* sim_world.c */
void sim_run(struct sim_world *w, uint64_t seed, FILE *trace);
void sim_free(struct sim_world *w);
void sim_schedule(struct sim_world *w, uint64_t in_us, enum sim_kind kind, uint32_t who,
		  struct sim_parcel *parcel);
struct sim_parcel *sim_parcel_make(enum sim_parcel_type type, ramp_node_t from, ramp_node_t to,
				   const void *bytes, size_t len);
void sim_parcel_unref(struct sim_parcel *p);
/* Gives the parcel to the network and takes one reference over. */
void sim_send(struct sim_world *w, struct sim_parcel *p);
void sim_trace(struct sim_world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void sim_fail(struct sim_world *w, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* sim_node.c */
void sim_node_make(struct sim_world *w, ramp_node_t id, bool founder);
void sim_node_start(struct sim_world *w, ramp_node_t id);
void sim_node_crash(struct sim_world *w, ramp_node_t id, bool power);
void sim_node_wipe(struct sim_world *w, ramp_node_t id);
void sim_node_deliver(struct sim_world *w, struct sim_parcel *p); /* takes the reference */
void sim_node_tick(struct sim_world *w, ramp_node_t id);
void sim_node_turn(struct sim_world *w, ramp_node_t id);
bool sim_node_up(const struct sim_world *w, ramp_node_t id);
uint64_t sim_node_clock_ms(const struct sim_node *n);
void sim_templates_free(void);

/* sim_faults.c */
void sim_faults_begin(struct sim_world *w);
void sim_faults_next(struct sim_world *w);
void sim_faults_heal(struct sim_world *w);

/* sim_client.c */
void sim_clients_begin(struct sim_world *w);
void sim_client_wake(struct sim_world *w, uint32_t client);
void sim_admin_wake(struct sim_world *w);
void sim_client_result(struct sim_world *w, struct sim_node *n, uint64_t index,
		       const struct fsm_result *r);
void sim_client_read(struct sim_world *w, struct sim_node *n, const struct sim_parcel *p);
void sim_client_name(uint32_t client, uint32_t name, char *out, size_t cap);
bool sim_clients_resting(const struct sim_world *w);
/* Makes the next command of this client (for a row, or NULL), and gives it to some node. */
void sim_client_command(struct sim_world *w, struct sim_client *c, enum meta_command_type type,
			const struct sim_row *row);
void sim_client_ask(struct sim_world *w, struct sim_client *c);
uint32_t sim_some_row(struct sim_world *w, const struct sim_client *c); /* or SIM_NO_ROW */

/* sim_wild.c */
void sim_wild_begin(struct sim_world *w, struct sim_client *c);
void sim_wild_answer(struct sim_client *c, const struct meta_reply *reply);

/* sim_check.c */
void sim_check_step(struct sim_world *w, struct sim_node *n);
void sim_check_result(struct sim_world *w, struct sim_node *n, uint64_t index,
		      const struct fsm_result *r);
/* Called at a death between two turns, and at the next start: no durable state may have changed. */
void sim_check_leave(struct sim_node *n);
void sim_check_return(struct sim_world *w, struct sim_node *n);
void sim_check_sum(struct sim_world *w, struct sim_node *n);
bool sim_check_settled(struct sim_world *w);
void sim_check_end(struct sim_world *w);
const char *sim_check_unsettled(struct sim_world *w); /* the reason, for a person */

#endif
