/*
 * Between the files of meta: meta.c (thread, queue, turns, opening), meta_ask.c (proposals and
 * linearizable reads on their way), meta_greet.c (may this node vote), meta_read.c (tables).
 * Nobody else includes it.
 */
#ifndef RAMP_META_INNER_H
#define RAMP_META_INNER_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/wire.h"
#include "meta.h"
#include "replica.h"

#define META_PATIENCE_MS 5000 /* then EROFS or ETIMEDOUT */

/* What travels between metas: the first byte of every message. */
enum meta_wire {
	WIRE_RAFT = 1,	  /* raft_message_encode */
	WIRE_FORWARD,	  /* command_encode: the leader may propose it */
	WIRE_READ,	  /* u64 ctx: a ReadIndex for the sender */
	WIRE_READ_ANSWER, /* u64 ctx, u64 index */
	WIRE_GREET,	  /* u8 flags, u64 instance: meta_greet.c */
	WIRE_LIFE,	  /* u64 instance, life, lowest: the receiver's, as the tables know it */
	WIRE_HELD,	  /* u64 instance of the receiver, u64 index: meta_greet.c */
	WIRE_MEMBERS,	  /* of each {u32 node, str name, str address}: meta_greet.c */
};

/* A proposal of this node. */
struct ask {
	struct ask *next;
	struct meta_command command;
	meta_done *done;
	void *arg;
	uint64_t number; /* of this life; 0: waits for the window */
	uint64_t deadline_ms, again_ms;
	uint32_t pause_ms; /* until the next copy */
	bool sent;	   /* a leader may have it */
	bool applied;	   /* reply is the result; waits for the configuration (MEMBER_*) */
	struct meta_reply reply;
};

/* A linearizable read of this node. */
struct sync {
	struct sync *next;
	meta_done *done;
	void *arg;
	uint64_t deadline_ms;
};

/* All of it belongs to the meta thread. */
struct asks {
	struct ask *open, **open_end;	    /* numbered, in order */
	struct ask *waiting, **waiting_end; /* outside of the window */
	uint64_t next_number;

	struct sync *syncs; /* for the next round */
	struct sync *round; /* asked the leader under round_ctx, or wait for round_index */
	uint64_t round_ctx, round_index, round_again_ms;
	bool round_asked, round_known;

	struct {
		uint64_t ctx; /* ours; 0: this place is free */
		uint64_t theirs;
		ramp_node_t from;
	} served[RAFT_READS_MAX]; /* reads that this node, as leader, does for others */
	uint64_t next_ctx;
};

struct greetings {
	uint64_t again_ms;
	bool fresh[RAFT_NODES_MAX + 1];	    /* founders, by number, that said so */
	uint64_t bound[RAFT_NODES_MAX + 1]; /* instances that the tables have shown, for good */
	bool told;			    /* the line about a second format was logged */
	bool denied; /* confirmed, and another instance is bound: no voice in this life */
	uint64_t another_log_ms; /* when the next line about another's second format may come */
	struct {
		ramp_node_t node; /* 0: this place is free */
		uint64_t index;	  /* committed, and acknowledged to this node while it led */
	} held[RAFT_NODES_MAX];
};

/* Another node that has no voice. */
struct voiceless {
	ramp_node_t node;
	uint64_t until_ms;
};

struct meta {
	struct meta_config config;
	struct replica *replica;
	struct journal_state opened; /* as it was when the journal was opened: ids, arena */
	char *path;
	pthread_t thread;
	uint64_t now_ms; /* meta thread: of this turn */
	uint64_t own_client;
	_Atomic uint64_t own_unique;

	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct item *queue, **queue_end; /* protected by lock */
	bool stop;			 /* protected by lock */
	struct meta_status status;	 /* protected by lock; as of the last turn */
	uint64_t quorum_ms; /* protected by lock: when the core last knew of one, or the opening */
	bool had_quorum;    /* protected by lock */
	bool voiceless;	    /* protected by lock */
	struct voiceless others_voiceless[RAFT_NODES_MAX]; /* protected by lock */

	atomic_bool held; /* meta_hold */
	struct asks asks;
	struct greetings greetings;
	ramp_node_t leader; /* meta thread: as of the last turn */
	uint64_t term;
	bool stepped; /* meta thread: the core was given an event that no turn has carried out */
	bool dead;    /* meta thread: the journal's fatal came back */

	uint8_t *out; /* meta thread: the message that is being encoded */
	size_t out_cap;

	pthread_mutex_t readers_lock;
	struct idle_reader *readers; /* protected by readers_lock */
};

uint64_t meta_clock_ms(void);
/* Steps the core now; the turn that is under way carries out what follows. */
int meta_step(struct meta *meta, struct raft_event *event);
/* This node can't go on: config.fatal. */
void meta_fatal(struct meta *meta, const char *text);
void meta_send_small(struct meta *meta, ramp_node_t to, enum meta_wire kind, uint64_t a,
		     uint64_t b);
/* True where nothing was heard of a leader for META_PATIENCE_MS. */
bool meta_forsaken(struct meta *meta);

/* meta_ask.c; all on the meta thread */
void asks_init(struct asks *asks);
void asks_add(struct meta *meta, struct ask *ask); /* takes it */
void asks_add_sync(struct meta *meta, struct sync *sync);
void asks_tend(struct meta *meta, bool leader_changed); /* sends, repeats, gives up */
void asks_forwarded(struct meta *meta, ramp_node_t from, bool is_another, const uint8_t *bytes,
		    size_t len);
void asks_applied(struct meta *meta, const struct fsm_result *result);
void asks_restored(struct meta *meta); /* the tables were replaced */
void asks_read_ready(struct meta *meta, const struct raft_read *read);
void asks_read_wanted(struct meta *meta, ramp_node_t from, uint64_t ctx);
void asks_read_answer(struct meta *meta, uint64_t ctx, uint64_t index);
void asks_fail_all(struct meta *meta, int result);

/* meta_greet.c; on the meta thread */
void greet_tend(struct meta *meta);
void greet_received(struct meta *meta, ramp_node_t from, uint8_t flags, uint64_t instance);
/* True: `instance` isn't the one that the tables have bound to `from`. */
bool greet_is_another(struct meta *meta, ramp_node_t from, uint64_t instance);
/* Leader: without `node`, who has a voice and was heard of late is a quorum of those who vote. */
bool greet_can_spare(struct meta *meta, ramp_node_t node);
void greet_another(struct meta *meta, ramp_node_t from); /* such a one leads, or would */
void greet_tell_life(struct meta *meta, ramp_node_t to);
void greet_life(struct meta *meta, struct wire_r *body);
void greet_tell_members(struct meta *meta, ramp_node_t to);
void greet_members(struct meta *meta, struct wire_r *body);
void greet_note_held(struct meta *meta); /* after turns */
void greet_held(struct meta *meta, uint64_t instance, uint64_t index);
void greet_forgot(struct meta *meta); /* the core has found an old copy */

/* meta_read.c */
void readers_close(struct meta *meta);

#endif
