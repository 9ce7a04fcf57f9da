/*
 * The Raft core: a pure function from (state, event) to (state, actions).
 *
 * The core has no clock (every event carries the time), no threads and no I/O. It allocates only
 * where an entry or a message is made. All of a node's consensus state is in struct raft, which can
 * be cloned, compared and hashed (raft_clone, raft_canonical). The durable part (term, vote,
 * confirmed, snapshot, log) is put back with raft_init and raft_restore after a restart.
 *
 * The driver (replica.c; in tests/ also the explorer) carries out the actions:
 *
 *	raft_step(r, event, a)		any number of events, one after the other; after each of
 *					them a->stage must be looked at (a piece of a snapshot to
 *					keep, see below)
 *	send a->messages with .early	AppendEntries: the leader's disk and the followers' overlap
 *	one durable transaction		a->hard_state, a->install, a->log_from, a->apply_to,
 *					a->compact_to, in this order
 *	raft_actions_reset(a)		but first: send the other messages, answer a->reads, make
 *					the dumps that a->snapshot_to asks for
 *	raft_step(PERSISTED)		the state as of the transaction is now durable: only from
 *					here on does the leader count its own entries, and a
 *					candidate its own vote. Fills the next turn's actions
 *	raft_step(SNAPSHOT_READY)	for each node in snapshot_to
 *
 * A driver that dies anywhere in this list and starts again from the durable part is correct. A
 * driver whose transaction failed must not continue.
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
 *	FOLLOWER -> FOLLOWER		[step_follow] another term or another leader
 *	FOLLOWER -> PRECANDIDATE	[step_campaign] election due
 *	FOLLOWER -> CANDIDATE		[step_timeout_now] its leader hands over (3.10)
 *	PRECANDIDATE -> CANDIDATE	[step_count_votes] a quorum of pre-votes
 *	CANDIDATE -> LEADER		[step_count_votes] a quorum of votes, its own is durable
 *	any -> FOLLOWER			[step_follow] a higher term, a leader of its term, no quorum
 *
 * Source: Ongaro, "Consensus: Bridging Theory and Practice" (2014), sections 3, 4, 5, 6.4, 9.6;
 * Ongaro, "bug in single-server membership changes", raft-dev 2015. Section numbers in comments are
 * those of the thesis, and so is Figure 3.1, whose rules are quoted beside the code.
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

/* ---- entries ------------------------------------------------------------------------------- */

enum raft_entry_type { RAFT_NOOP = 1, RAFT_COMMAND, RAFT_CONF };

struct raft_entry {
	uint64_t term;
	enum raft_entry_type type;
	struct raft_data *data; /* NULL for RAFT_NOOP */
};

/* ---- messages ------------------------------------------------------------------------------ */

/*
 * The fields that each message uses, besides from, to and term:
 *
 * PREVOTE		index, log_term: the candidate's last entry. term: the one in which it would
 *			campaign (the only message whose term is not the sender's)
 * PREVOTE_ANSWER	reject; index: the term that was asked for
 * VOTE			index, log_term: the candidate's last entry; transfer: the leader asked the
 *			candidate to campaign (3.10)
 * VOTE_ANSWER		reject
 * APPEND		index, log_term: the entry before (prevLogIndex, prevLogTerm);
 *			leader_commit; round; entries; hint: the highest entry that the receiver has
 *			acknowledged in this term, 0: none
 * APPEND_ANSWER	index: the highest entry that matches; where reject is set: the entry that
 *			was refused, with hint: a place to try. round: the message's. nonvoting: the
 *			answer does not count (the sender is not confirmed)
 * SNAPSHOT		index, log_term, conf, conf_index; offset, bytes, len, done; round; hint: as
 *			in APPEND
 * SNAPSHOT_ANSWER	index: of the snapshot; offset: the one wanted next; round; nonvoting
 * TIMEOUT_NOW		the receiver is to campaign at once (3.10)
 */
enum raft_message_type {
	RAFT_PREVOTE = 1,
	RAFT_PREVOTE_ANSWER,
	RAFT_VOTE,
	RAFT_VOTE_ANSWER,
	RAFT_APPEND,
	RAFT_APPEND_ANSWER,
	RAFT_SNAPSHOT,
	RAFT_SNAPSHOT_ANSWER,
	RAFT_TIMEOUT_NOW,
};

struct raft_message {
	enum raft_message_type type;
	ramp_node_t from, to;
	uint64_t term;
	uint64_t index, log_term, hint;
	uint64_t leader_commit;
	uint64_t round; /* the leader's; an answer proves leadership at the time of sending */
	uint64_t offset;
	uint64_t conf_index;
	bool reject, transfer, nonvoting, done;
	bool early; /* outgoing: may be sent before the transaction. Not on the wire */
	bool bad; /* incoming SNAPSHOT: the driver found the whole dump damaged. Not on the wire */
	uint32_t n_entries;
	struct raft_entry entries[RAFT_APPEND_MAX]; /* each holds a reference of its data */
	struct raft_data *conf;			    /* SNAPSHOT; one reference */
	/* SNAPSHOT: the piece, borrowed. Outgoing: NULL; the driver fills bytes, len and done from
	   its dump, at `offset`. */
	const uint8_t *bytes;
	size_t len;
};

/* ---- state --------------------------------------------------------------------------------- */

struct raft_options {
	ramp_node_t self;
	uint32_t heartbeat_ms, election_ms;
	uint32_t log_capacity;	  /* entries in memory; a full log refuses more, it never grows */
	uint32_t compact_entries; /* compact when there are more applied entries than this ... */
	uint32_t compact_keep;	  /* ... and keep this many of them for followers that lag */
	uint64_t inflight_bytes;  /* to one follower, unacknowledged */
	uint64_t seed;		  /* of the election time-outs */
};

enum raft_state { RAFT_FOLLOWER, RAFT_PRECANDIDATE, RAFT_CANDIDATE, RAFT_LEADER };

/* How a leader replicates to one follower; drawn in raft_replicate.c. */
enum raft_flow {
	RAFT_PROBE,	   /* one message at a time, until the logs' common point is found */
	RAFT_REPLICATE,	   /* pipelined, within inflight_bytes */
	RAFT_SNAPSHOTTING, /* a snapshot, piece by piece */
};

/* A candidate's or leader's knowledge of another member. */
struct raft_peer {
	ramp_node_t node;
	enum raft_flow flow;
	bool voted, granted; /* candidates */
	bool recent_recv;    /* answered since the last check of the quorum */
	bool nonvoting;	     /* answers, but is not admitted to vote yet */
	bool paused;	     /* PROBE, SNAPSHOTTING: a message is out; a heartbeat tries again */
	bool snapshot_requested; /* SNAPSHOTTING: a dump was asked of the driver, not ready yet */
	uint64_t match_index;	 /* highest entry known to be replicated there */
	uint64_t next_index;	 /* the next entry to send */
	uint64_t commit_sent;	 /* the commit index that was sent last */
	uint64_t acked_round;	 /* highest round answered */
	uint64_t inflight_bytes;
	uint64_t snap_index, snap_term, snap_offset, snap_conf_index;
	struct raft_data *snap_conf;
};

struct raft_read {
	uint64_t ctx; /* the driver's */
	uint64_t index, round;
	/* In actions: 0: may be read once `index` is applied; -EAGAIN: leadership was lost. */
	int result;
};

struct raft {
	struct raft_options opt;

	/* Durable; a->hard_state says that one of the first three changed. */
	uint64_t term;
	ramp_node_t voted_for; /* in this term; 0: no vote yet */
	bool confirmed;	       /* false: formatted, and not yet known to be the first instance under
				  its number. Such a node neither votes nor campaigns, and its
				  acknowledgements don't count */
	uint64_t snap_index, snap_term; /* the last entry that was compacted away */
	struct raft_data *snap_conf;	/* the configuration at snap_index; NULL: none (joiner) */
	uint64_t snap_conf_index;
	uint64_t last_index;
	struct raft_entry *log; /* ring of opt.log_capacity; use raft_entry_at */

	/* Derived from log and snapshot. */
	struct raft_conf conf; /* in force: of the last RAFT_CONF entry, committed or not */
	uint64_t conf_index;

	/* Volatile. */
	enum raft_state state;
	uint64_t commit_index, last_applied; /* last_applied: handed to the driver in apply_to */
	uint64_t stable_index;		     /* entries up to here are durable */
	uint64_t stable_term;		     /* term and vote as of here are durable */
	ramp_node_t leader;		     /* 0: none known */
	bool lease;	     /* follower: a leader's message came within election_ms */
	uint64_t round;	     /* leader: last round begun */
	uint64_t term_start; /* leader: index of the first entry of its term */
	ramp_node_t transfer_to;
	bool transfer_sent;
	uint32_t n_peers;
	struct raft_peer *peers; /* RAFT_NODES_MAX */
	uint32_t n_reads;
	struct raft_read reads[RAFT_READS_MAX];
	uint64_t incoming_index, incoming_term, incoming_offset; /* a snapshot that is coming in */

	/* Clock: not in raft_canonical. Always 0 where `now_ms` is 0 and no tick is given. */
	uint64_t election_due, heartbeat_due, lease_until, transfer_until;
	uint64_t rng;
};

/* Begins to run a restored state (raft_state.h). Returns 0, or -EINVAL: `applied` is outside of the
   log. */
int raft_start(struct raft *r, uint64_t applied, uint64_t now_ms);
/* Returns true where this node leads, or follows a leader and has its lease. */
bool raft_has_quorum(const struct raft *r);

/* ---- events -------------------------------------------------------------------------------- */

/*
 * The arguments of each event, its errors, and its effect:
 *
 * TICK			now_ms has advanced. Does HEARTBEAT and ELECTION when they are due
 * HEARTBEAT		Leader: begins a round to every peer. A tick does it each heartbeat_ms
 * ELECTION		Leader: steps down unless a quorum has answered since the last ELECTION.
 *			Others: the lease is over, and a confirmed voter campaigns. A tick does it
 *			when due; the explorer sends HEARTBEAT and ELECTION and never ticks
 * MESSAGE		message (borrowed)
 * PROPOSE		entry (type, data; a reference is taken). -EAGAIN: does not lead, hands
 *			over, or the log is full. RAFT_CONF: -EBUSY: another configuration is not
 *			committed, or no entry of this term is; -EINVAL: more than one change, or
 *			without this node; -EAGAIN also: the new voter lags, or no quorum of the
 *			voters of the new configuration has answered
 * READ			ctx. -EAGAIN: does not lead, or too many reads wait; else the answer comes
 *			in a->reads
 * FLUSH		The last event before a turn's transaction: AppendEntries for all that is
 *			new since the last FLUSH
 * PERSISTED		Right after the transaction, before any other event
 * SNAPSHOT_READY	node, index, term: a dump of the tables as of `index` is ready
 * SNAPSHOT_LOST	node: the dump can't give the offset that was asked for
 * TRANSFER		node (0: the furthest of the voters that answer). -EAGAIN: does not lead, no
 *			such voter, or it lags. While the leader hands over already, to that node or
 *			to any: 0, and nothing changes
 * CONFIRM		This instance is the first under its number, or bound to it in the tables
 * DENY			It is neither: as if not confirmed, until a restart
 * PEER			node's connection is new: all that was in flight is lost
 */
enum raft_event_type {
	RAFT_EV_TICK,
	RAFT_EV_HEARTBEAT,
	RAFT_EV_ELECTION,
	RAFT_EV_MESSAGE,
	RAFT_EV_PROPOSE,
	RAFT_EV_READ,
	RAFT_EV_FLUSH,
	RAFT_EV_PERSISTED,
	RAFT_EV_SNAPSHOT_READY,
	RAFT_EV_SNAPSHOT_LOST,
	RAFT_EV_TRANSFER,
	RAFT_EV_CONFIRM,
	RAFT_EV_DENY,
	RAFT_EV_PEER,
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

/* The work that is due after the steps of one turn. It adds up until raft_actions_reset. */
struct raft_actions {
	bool hard_state; /* write r->term, r->voted_for, r->confirmed */
	/* Replace the tables by the staged snapshot, which is of r->snap_index (applied := that).
	   The journal's log goes; r->snap_* and r->snap_conf are its beginning. */
	bool install;
	/* Not 0: entries >= log_from in the journal go, and those of the core (log_from ..
	   r->last_index) take their place. */
	uint64_t log_from;
	uint64_t apply_to; /* not 0: apply the entries after the journal's applied up to this one */
	/* Not 0: entries <= compact_to go; r->snap_* and r->snap_conf are the new beginning. */
	uint64_t compact_to;

	/* About the event just stepped: keep its message's bytes (FIRST: after dropping those of an
	   earlier snapshot). The last piece sets `install` too. */
	enum raft_stage stage;

	struct raft_message *messages;
	uint32_t n_messages, cap_messages;
	struct raft_read *reads; /* answered */
	uint32_t n_reads, cap_reads;
	ramp_node_t snapshot_to[RAFT_NODES_MAX]; /* make a dump, then SNAPSHOT_READY */
	uint32_t n_snapshot_to;
	bool failed; /* memory ran out, or a committed entry differs: the process must end */
	/* The log ends before an entry that this node acknowledged: it is an old copy of the node's
	   own log, and votes may have been forgotten with the entries. Nothing was answered; the
	   driver must not continue with it. */
	bool amnesia;
};

/* Returns 0, or an error of the event as listed above; then state and actions are unchanged. */
int raft_step(struct raft *r, const struct raft_event *event, struct raft_actions *a);

#endif
