/*
 * The Raft core: a pure function from (state, event) to (state, actions).
 *
 * It has no clock (every event carries one), no threads, no I/O; it allocates only where an entry
 * or a message is made. All of a node's consensus is in struct raft, which can be cloned, compared
 * and hashed (raft_clone, raft_canonical); what is durable of it (term, vote, confirmed, snapshot,
 * log) is put back with raft_init and raft_restore after a restart.
 *
 * The driver (replica.c; in tests/ also the explorer) carries the actions out:
 *
 *	raft_step(r, event, a)		any number of events, one after the other; after each look
 *					at a->stage (a snapshot's piece to keep, below)
 *	send a->messages with .early	AppendEntries: the leader's disk and the followers' overlap
 *	one durable transaction		a->hard_state, a->install, a->log_from, a->apply_to,
 *					a->compact_to, in this order
 *	raft_actions_reset(a)		but first: send the other messages, answer a->reads, make
 *					the dumps that a->snapshot_to asks for
 *	raft_step(PERSISTED)		what stood in the state at the transaction is now durable:
 *					the leader counts its own entries and its own vote only from
 *					here. It fills the next turn's actions
 *	raft_step(SNAPSHOT_READY)	for each node in snapshot_to
 *
 * A driver that dies anywhere in this list and starts again from what is durable is correct. A
 * driver whose transaction failed must not go on.
 *
 *	              election due                 quorum of pre-votes
 *	FOLLOWER ------------------> PRECANDIDATE --------------------> CANDIDATE
 *	  ^  ^  ^                         |                                |
 *	  |  |  +---- leader or higher ---+                                | own vote durable and
 *	  |  |        term heard          |                                | a quorum of votes
 *	  |  +--------------------------- | -------------------------------+
 *	  |                               |                                v
 *	  +---------- higher term, or no quorum for an election time-out  LEADER
 *
 * Source: Ongaro, "Consensus: Bridging Theory and Practice" (2014), sections 3, 4, 5, 6.4, 9.6;
 * Ongaro, "bug in single-server membership changes", raft-dev 2015.
 */
#ifndef RAMP_META_RAFT_H
#define RAMP_META_RAFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ids.h"
#include "raft_conf.h"

#ifndef RAFT_APPEND_MAX
#define RAFT_APPEND_MAX 64 /* entries in one message */
#endif
#define RAFT_READS_MAX 64 /* reads that wait for their quorum */

/* ---- data ---------------------------------------------------------------------------------- */

enum raft_entry_type { RAFT_NOOP = 1, RAFT_COMMAND, RAFT_CONF };

struct raft_entry {
	uint64_t term;
	enum raft_entry_type type;
	struct raft_data *data; /* NULL for RAFT_NOOP */
};

/* ---- messages ------------------------------------------------------------------------------ */

enum raft_message_type {
	RAFT_PREVOTE = 1,    /* index, log_term: the candidate's last entry; term: the one it would
				campaign in (the only message whose term is not the sender's) */
	RAFT_PREVOTE_ANSWER, /* reject; index: the term asked for */
	RAFT_VOTE,	     /* index, log_term; transfer: the leader asked for it (3.10) */
	RAFT_VOTE_ANSWER,    /* reject */
	RAFT_APPEND,	     /* index, log_term: the entry before; commit; seq; entries; hint: what
				the receiver has acknowledged in this term, 0: nothing */
	RAFT_APPEND_ANSWER, /* index: match, or when reject: what was refused, with hint: a place to
			       try; seq: the message's; silent: doesn't count (not confirmed) */
	RAFT_SNAPSHOT,	    /* index, log_term, conf, conf_index; offset, bytes, len, done; seq;
			       hint: as above */
	RAFT_SNAPSHOT_ANSWER, /* index: of the snapshot; offset: wanted next; seq; silent */
	RAFT_TIMEOUT_NOW,     /* campaign at once (3.10) */
};

struct raft_message {
	enum raft_message_type type;
	ramp_node_t from, to;
	uint64_t term;
	uint64_t index, log_term, hint;
	uint64_t leader_commit;
	uint64_t round; /* the leader's round: an answer to it proves leadership at its sending */
	uint64_t offset;
	uint64_t conf_index;
	bool reject, transfer, nonvoting, done;
	bool early; /* outgoing: may be sent before the transaction; not on the wire */
	bool bad;   /* incoming RAFT_SNAPSHOT: the driver found the whole dump damaged; not on the
		       wire */
	uint32_t n_entries;
	struct raft_entry
		entries[RAFT_APPEND_MAX]; /* references held by whoever holds the message */
	struct raft_data *conf;		  /* RAFT_SNAPSHOT; the same */
	const uint8_t *bytes; /* RAFT_SNAPSHOT: the piece, borrowed; outgoing: NULL, the driver
				 fills bytes, len and done from its dump, at `offset` */
	size_t len;
};

/* ---- state --------------------------------------------------------------------------------- */

struct raft_options {
	ramp_node_t self;
	uint32_t heartbeat_ms, election_ms;
	uint32_t log_capacity;	  /* entries in memory; a full log refuses, it never grows */
	uint32_t compact_entries; /* compact when more than this many applied entries stand ... */
	uint32_t compact_keep;	  /* ... and keep this many of them for followers that lag */
	uint64_t inflight_bytes;  /* to one follower, unacknowledged */
	uint64_t seed;		  /* of the election time-outs */
};

enum raft_state { RAFT_FOLLOWER, RAFT_PRECANDIDATE, RAFT_CANDIDATE, RAFT_LEADER };
enum raft_flow {
	RAFT_PROBE,	   /* one message at a time until the logs' common point is found */
	RAFT_REPLICATE,	   /* pipelined, within inflight_bytes */
	RAFT_SNAPSHOTTING, /* a snapshot, piece by piece */
};

/* What a candidate or leader knows of another member. */
struct raft_peer {
	ramp_node_t node;
	enum raft_flow flow;
	bool voted, granted; /* candidates */
	bool recent_recv;    /* answered since the last check of the quorum */
	bool nonvoting;	     /* answers, but has no voice yet */
	bool paused;	     /* PROBE, SENDING: a message is out; the next heartbeat tries again */
	bool snapshot_requested; /* SENDING: the driver was asked for a dump and hasn't got it yet */
	uint64_t match_index, next_index;
	uint64_t commit_sent; /* the commit index that was last sent */
	uint64_t acked_round; /* highest round answered */
	uint64_t inflight_bytes;
	uint64_t snap_index, snap_term, snap_offset, snap_conf_index;
	struct raft_data *snap_conf;
};

struct raft_read {
	uint64_t ctx; /* the driver's */
	uint64_t index, round;
	int result; /* in actions: 0: may be read once `index` is applied; -EAGAIN: lead lost */
};

struct raft {
	struct raft_options opt;

	/* durable; a->hard_state says that the first three changed */
	uint64_t term;
	ramp_node_t voted_for;
	bool confirmed; /* false: formatted and not yet known to be the first of its name. Neither
			   votes nor campaigns, and its acknowledgements don't count */
	uint64_t snap_index, snap_term; /* what the log was compacted to */
	struct raft_data *snap_conf;	/* the configuration at snap_index; NULL: none (joiner) */
	uint64_t snap_conf_index;
	uint64_t last_index;
	struct raft_entry *log; /* ring of opt.log_capacity; use raft_entry_at */

	/* derived from log and snapshot */
	struct raft_conf conf; /* in force: of the last RAFT_CONF entry, committed or not */
	uint64_t conf_index;

	/* volatile */
	enum raft_state state;
	uint64_t commit_index, last_applied; /* last_applied: handed to the driver in apply_to */
	uint64_t stable_index;		     /* entries up to here are durable */
	uint64_t stable_term;		     /* term and vote as of here are durable */
	ramp_node_t leader;		     /* 0: none known */
	bool lease;			     /* follower: a leader was heard within election_ms */
	uint64_t round;			     /* leader: last round begun */
	uint64_t term_start;		     /* leader: index of the first entry of its term */
	ramp_node_t transfer_to;
	bool transfer_sent;
	uint32_t n_peers;
	struct raft_peer *peers; /* RAFT_NODES_MAX */
	uint32_t n_reads;
	struct raft_read reads[RAFT_READS_MAX];
	uint64_t incoming_index, incoming_term, incoming_offset; /* a snapshot that is coming in */

	/* clock: not in raft_canonical. 0 for ever where `now_ms` is 0 and nobody ticks */
	uint64_t election_due, heartbeat_due, lease_until, transfer_until;
	uint64_t rng;
};

/* Begins to run a restored state (raft_state.h). -EINVAL */
int raft_start(struct raft *r, uint64_t applied, uint64_t now_ms);
bool raft_has_quorum(const struct raft *r); /* leads, or follows a leader with a lease */

/* ---- events -------------------------------------------------------------------------------- */

enum raft_event_type {
	RAFT_EV_TICK,	   /* now_ms went on: does HEARTBEAT and ELECTION when due */
	RAFT_EV_HEARTBEAT, /* leader: a round to every peer. A tick does it each heartbeat_ms */
	RAFT_EV_ELECTION,  /* leader: steps down without a quorum heard since the last one; others:
			      the lease is over, a confirmed voter campaigns. A tick does it when
			      due; an explorer sends these two and never ticks */
	RAFT_EV_MESSAGE,   /* message (borrowed) */
	RAFT_EV_PROPOSE,   /* entry (type, data; a reference is taken). -EAGAIN: doesn't lead, hands
			      over, or the log is full. RAFT_CONF: -EBUSY: another is not committed
			      or no entry of this term is yet; -EINVAL: more than one change, or
			      without this node; -EAGAIN also: the new voter lags, or no quorum
			      of those who vote then is heard */
	RAFT_EV_READ,	   /* ctx. -EAGAIN: doesn't lead or too many; else answered in a->reads */
	RAFT_EV_FLUSH,	   /* the turn's last: AppendEntries for what is new since the last one */
	RAFT_EV_PERSISTED, /* right after the transaction, before any other event */
	RAFT_EV_SNAPSHOT_READY, /* node, index, term: a dump of the tables as of `index` is ready */
	RAFT_EV_SNAPSHOT_LOST,	/* node: the dump can't give the offset that was asked */
	RAFT_EV_TRANSFER,	/* node (0: whoever is heard and furthest). -EAGAIN: doesn't lead,
				   nobody, or it lags; while it hands over already, to that node or
				   to any: 0, and nothing changes */
	RAFT_EV_CONFIRM,	/* this instance is the node's first, or bound in the tables */
	RAFT_EV_DENY,		/* it is neither: as if not confirmed, until a restart */
	RAFT_EV_PEER,		/* node's connection is new: what was in flight is lost */
};

struct raft_event {
	enum raft_event_type type;
	uint64_t now_ms;
	const struct raft_message *message;
	struct raft_entry entry;
	uint64_t ctx, index, term;
	ramp_node_t node;
};

/* ---- actions ------------------------------------------------------------------------------- */

enum raft_stage { RAFT_STAGE_NONE, RAFT_STAGE_FIRST, RAFT_STAGE_NEXT };

/* What is to be done after the steps of one turn; they add up until raft_actions_reset. */
struct raft_actions {
	bool hard_state;     /* r->term, r->voted_for, r->confirmed */
	bool install;	     /* replace the tables by the staged snapshot, which is of r->snap_index
				(applied := that); the journal's log goes, and r->snap_* and
				r->snap_conf are its beginning */
	uint64_t log_from;   /* not 0: entries >= log_from in the journal go, and those of the core
				(log_from .. r->last_index) take their place */
	uint64_t apply_to;   /* not 0: apply the entries after the journal's applied up to this */
	uint64_t compact_to; /* not 0: entries <= compact_to go; r->snap_* and r->snap_conf are the
				new beginning */

	/* About the event just stepped: keep its message's bytes (FIRST: after dropping what was
	   kept of an earlier snapshot). The last piece sets `install` too. */
	enum raft_stage stage;

	struct raft_message *messages;
	uint32_t n_messages, cap_messages;
	struct raft_read *reads; /* answered */
	uint32_t n_reads, cap_reads;
	ramp_node_t snapshot_to[RAFT_NODES_MAX]; /* make a dump, then SNAPSHOT_READY */
	uint32_t n_snapshot_to;
	bool failed;  /* memory ran out: the driver must end the process */
	bool amnesia; /* the log ends before what this node acknowledged: it is an old copy of the
			node's own, whose votes may have been forgotten with the entries. Nothing
			was answered; the driver must not go on with it */
};

/* Returns 0, or what the event's line above says; then state and actions are unchanged. */
int raft_step(struct raft *r, const struct raft_event *event, struct raft_actions *a);

#endif
