/*
 * The cluster's metadata: what the nodes have agreed on. Of meta/, the rest of rampfs sees this
 * header alone.
 *
 * One thread (the meta thread, inside) runs Raft and is the only writer of the node's SQLite file
 * (STATE_DIR/journal.db). A turn takes all that is queued, steps the core, and makes one
 * transaction. Reads use the node's own tables through read-only connections and never wait for the
 * writer: they may be behind. The reads of rules R7 and R8 are made after meta_sync.
 *
 * Errors: every result is 0 or a negative errno. -EROFS: no leader was known for 5 s, and nothing
 * was proposed. -ETIMEDOUT: proposed and unanswered for 5 s; it may still happen. Any other result
 * was decided by the state machine and is the same on every node.
 *
 * Thread-safety: all functions may be called from any thread, unless noted otherwise. Callbacks run
 * on the meta thread; they must not block and must not call meta_close.
 *
 * Source: Ongaro, "Consensus: Bridging Theory and Practice"; contrib/doc/design.md, which defines
 * the rules R1 to R13.
 */
#ifndef RAMP_META_H
#define RAMP_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/ids.h"

struct meta;

/* ---- rows ---------------------------------------------------------------------------------- */

enum segment_phase {
	SEGMENT_STABLE,	 /* node owns it */
	SEGMENT_MOVING,	 /* from node to dst by attempt k: in doubt while either does not answer */
	SEGMENT_PULLING, /* node owns it, pages may still be at src */
	SEGMENT_ORPHAN,	 /* unlinked; the extent is not free yet */
};

struct meta_time {
	int64_t sec;
	uint32_t nsec;
};

struct segment_row {
	ramp_segment_t id;
	uint64_t epoch; /* +1 at every step of this row: prepare, taken, settled, abort, ... */
	enum segment_phase phase;
	bool unlinked;		     /* R9: in PULLING a mark beside the phase */
	ramp_node_t node;	     /* owner (MOVING: still the source) */
	ramp_incarnation_t node_inc; /* the incarnation of node that holds the bytes; any other one
					of that node has lost them */
	ramp_node_t dst;	     /* MOVING */
	ramp_incarnation_t dst_inc;  /* MOVING */
	ramp_node_t src;	     /* PULLING */
	ramp_incarnation_t src_inc;  /* PULLING */
	struct ramp_attempt k;	     /* MOVING, PULLING */
	uint64_t k_epoch;	     /* the prepare's epoch, carried by every message of k */
	char name[RAMP_NAME_MAX + 1];
	char dst_name[RAMP_NAME_MAX + 1]; /* MOVING: reserved in dst's directory */
	uint64_t size;			  /* a hint, written lazily; the owner knows it (R13) */
	uint32_t mode, uid, gid;	  /* mode: permission bits */
	struct meta_time atime, mtime, ctime;
	uint64_t extent_addr, extent_len; /* 0, 0: never mapped */
	uint64_t extent_asked;		  /* user.ramp.extent; 0: by rule */
	uint8_t pages;			  /* user.ramp.pages: enum segment_pages */
	uint8_t mmap;			  /* user.ramp.mmap: enum segment_mmap */
	uint8_t move;			  /* user.ramp.mode: 1 + enum transfer_mode; 0: unset */
	/* user.ramp.prefill: a node that is kept near (0: none), and its limit, in MiB a second (0: the
	   usual one) */
	ramp_node_t prefill;
	uint16_t prefill_mib_s;
};
enum segment_pages { SEGMENT_PAGES_AUTO, SEGMENT_PAGES_SMALL, SEGMENT_PAGES_HUGE };
enum segment_mmap { SEGMENT_MMAP_NONE, SEGMENT_MMAP_PASSTHROUGH };

/* Entries, the journal and notes have mmap and move in one byte: mmap alone filled it before there
   was `move`. */
#define SEGMENT_MOVE_SHIFT 4
static inline uint8_t segment_ways(const struct segment_row *row)
{
	return (uint8_t)(row->mmap | row->move << SEGMENT_MOVE_SHIFT);
}
static inline void segment_set_ways(struct segment_row *row, uint8_t ways)
{
	row->mmap = ways & ((1u << SEGMENT_MOVE_SHIFT) - 1);
	row->move = (uint8_t)(ways >> SEGMENT_MOVE_SHIFT);
}

/* The same for extent_asked and prefill: an extent is a power of two, so its lowest 26 and highest 15 bits were
   free. */
#define SEGMENT_PREFILL_NODES 0x3ffffffu
#define SEGMENT_PREFILL_MIB_S 0x7fffu
#define SEGMENT_PREFILL_SHIFT 48
static inline uint64_t segment_asked(const struct segment_row *row)
{
	return row->extent_asked | row->prefill |
	       (uint64_t)row->prefill_mib_s << SEGMENT_PREFILL_SHIFT;
}
static inline void segment_set_asked(struct segment_row *row, uint64_t asked)
{
	row->prefill = (ramp_node_t)(asked & SEGMENT_PREFILL_NODES);
	row->prefill_mib_s = (uint16_t)(asked >> SEGMENT_PREFILL_SHIFT & SEGMENT_PREFILL_MIB_S);
	row->extent_asked = asked & ~(uint64_t)SEGMENT_PREFILL_NODES &
			    ~((uint64_t)SEGMENT_PREFILL_MIB_S << SEGMENT_PREFILL_SHIFT);
}

enum node_role {
	NODE_VOTER,
	NODE_STANDBY,
	NODE_REMOVED,
	NODE_RETURNING, /* META_MEMBER_AGAIN: a standby, once a configuration without it is applied */
};

struct node_row {
	ramp_node_t node;
	char name[RAMP_NODE_NAME_MAX + 1];
	char address[RAMP_ADDRESS_MAX + 1];
	ramp_incarnation_t incarnation; /* committed by NODE_UP (R1); 0: never up */
	ramp_incarnation_t fenced;	/* this incarnation is over by a fence; 0: none */
	uint64_t instance;		/* made by mkfs, bound at the first start */
	uint64_t capacity;		/* bytes */
	enum node_role role;
};

/* ---- commands ------------------------------------------------------------------------------ */

/*
 * Every command carries {client, unique}: a retry with the same pair gets the first result (the
 * last 256 of each client are kept). A FUSE request uses its connection's random id and its own
 * `unique`. The daemon's own commands use a random id of the daemon's life and a counter
 * (meta_own_command gives one).
 */
struct meta_command_id {
	uint64_t client, unique;
};

enum meta_command_type {
	META_CREATE = 1, /* node, node_inc (0: the current one), name, attr: mode uid gid -> id. The
			    times are `now`. EEXIST, ENOENT node, EHOSTDOWN: the node was never up,
			    is fenced, or another incarnation. META_WITH_EXTENT: also size,
			    extent_asked and pages -> extent, as META_EXTENT gives one; all or
			    nothing; EOPNOTSUPP below level META_LEVEL_CREATE_EXTENT */
	META_UNLINK,	 /* id, name: the row must still have that name, else ENOENT. EBUSY in
			    MOVING. A row that has an extent, or for which one was asked
			    (META_SET_EXTENT), stays as ORPHAN until FREED; any other row is
			    deleted. PULLING: marked (R9). META_IN_NODE, META_OF_OWNER */
	META_RENAME,	 /* id, name -> new_name in the same directory. Replaces another segment
			    (as if unlinked; its id in reply.other) unless flags has
			    RENAME_NOREPLACE (EEXIST). ENOENT, EBUSY. META_IN_NODE, META_OF_OWNER */
	META_SETATTR,	 /* id, mask of META_SET_* and META_CLEAR_* in flags, and those fields of
			    `attr`; also of ORPHANs. The epoch is unchanged. ENOENT, EBUSY in
			    MOVING; ESTALE: META_AT_EPOCH, and the row has changed. META_OF_OWNER */
	META_EXTENT,	 /* id, length (0: by rule from size and map_len) -> extent. Idempotent:
			    a segment that has one answers with it. Of a segment whose row went
			    with its name only the owner gets one, which still has the file open:
			    node, node_inc, epoch (its record's) and attr make the row again, as
			    ORPHAN; so it must be asked only where the record says OWNED. ENOSPC:
			    the arena is full; EDQUOT: the row's uid has no more (from level
			    META_LEVEL_ARENA_USER on; root has no bound); ENOENT; EBUSY in MOVING where it has none;
			    EHOSTDOWN: that incarnation is not current */
	META_PREPARE,	 /* id, epoch, k, node=dst, node_inc=dst's, src, src_inc, new_name.
			    STABLE(src) at `epoch` -> MOVING. ESTALE: another epoch or phase;
			    EEXIST: name taken or reserved; EHOSTDOWN: an incarnation is not
			    current (R1); EBUSY: MOVING by another */
	META_TAKEN,	 /* id, epoch = the prepare's, k: MOVING -> PULLING. ESTALE */
	META_SETTLED,	 /* id, epoch = the prepare's, k: PULLING -> STABLE(node). ESTALE */
	META_ABORT,	 /* id, epoch = the prepare's, k, proof: MOVING -> STABLE(source); with
			    PROOF_OVER(dst) also PULLING -> STABLE(source), as NAME~ID where its
			    name is taken there by now. In MOVING, PROOF_OVER may name the source
			    (R6). ESTALE; EPERM: no such proof */
	META_FREED,	 /* id: deletes an ORPHAN row and frees its extent. ESTALE */
	META_NODE_UP, /* node, node_inc, instance, address ("": unchanged), capacity. EPERM: another
			 instance is bound, that incarnation is fenced or was followed by a newer
			 one, or the node is removed. ENOENT */
	META_NODE_FENCE, /* node, node_inc: that incarnation is over. ESTALE: it is not current */
	/* A MEMBER command is done when Raft's configuration is the new one on this node.
	   -ETIMEDOUT: it may still become so (a standby has to catch up first). EBUSY: a change of
	   the reply's node is under way. */
	META_MEMBER_ADD, /* new_name, address, capacity -> node. Becomes a standby. EEXIST, ENOSPC;
			    EADDRINUSE: the reply's node has that address */
	META_MEMBER_PROMOTE, /* node: standby -> voter. ENOENT */
	META_MEMBER_REMOVE,  /* node. EBUSY also: it owns a segment, or is source or target of one,
				or is the last voter. A leader hands over first */
	META_LEVEL_UP,	     /* value: the level of the rules from here on, where it is higher than
				that of the tables. The leader's own (levels.c) */
	META_SET,	     /* setting, value. EOPNOTSUPP below level META_LEVEL_ARENA_USER */
	META_RECOVERED,	   /* id, node, node_inc (the proposer), epoch and k of its record, src and
			   src_inc (of a record TAKEN; 0: OWNED), attr: mode uid gid size times,
			   new_name or "". The commits of which the record tells were lost with the
			   old cluster (recovery.h): the row becomes as the record says. Where there
			   was none it is named new_name if that is free, else "recovered-ID". 0
			   also: it is so already. ENOENT: the segment was unlinked; ESTALE: the row
			   is newer; EHOSTDOWN: that incarnation is not current */
	META_MEMBER_AGAIN, /* node, node_inc, instance: the node has lost its journal, not its
			      store. -> other: the life after which its new journal's begin. Becomes
			      a standby under its number, bound to that instance. ESTALE: that
			      incarnation is not current; ENOENT: removed; EBUSY: the last voter. As
			      for the other MEMBER commands */
	META_UNEXTENT,	   /* id, epoch, value: the extent's address. Gives the extent of a STABLE
			   segment back: its next EXTENT is another one. Proposed by its owner, which
			   knows that nothing lies there on any node (transfer/give_back.c). ESTALE: the
			   row has changed; ENODATA: it has no extent; EBUSY in MOVING; EOPNOTSUPP below
			   level META_LEVEL_UNEXTENT */
};

enum meta_setting {
	META_ARENA_USER_MAX, /* bytes of addresses for each user's segments; META_DEFAULT */
	META_SETTINGS,
};
#define META_DEFAULT	     0 /* the value by rule */
#define META_ARENA_USER_PART 8
/* The rule: that part of the arena, and one extent at least. */
static inline uint64_t meta_arena_user_default(uint64_t arena_len)
{
	uint64_t part = arena_len / META_ARENA_USER_PART;

	return part > RAMP_EXTENT_MIN ? part : RAMP_EXTENT_MIN;
}

/*
 * The level of the state machine's rules. It is in the tables, so an entry is applied by the same
 * rules on every node, whichever program applies it and when; a new cluster, and the tables of
 * 0.1.0, are of level 0. It is raised when every member has said that it knows the next one. Each
 * change of what an entry does to the tables is a new level.
 */
#define META_LEVEL_KNOWN 3 /* the highest level that this program knows */
/* 1: META_SET; an extent that was asked for is as large as that; each user's are bounded. */
#define META_LEVEL_ARENA_USER 1
/* 2: META_UNEXTENT; META_CREATE with META_WITH_EXTENT. */
#define META_LEVEL_UNEXTENT	 2
#define META_LEVEL_CREATE_EXTENT 2
/* 3: META_SET_MOVE; META_SET_PREFILL. */
#define META_LEVEL_MOVE	   3
#define META_LEVEL_PREFILL 3

enum meta_proof { PROOF_NONE, PROOF_REFUSED, PROOF_OVER };

#define META_SET_MODE	(1u << 0)
#define META_SET_UID	(1u << 1)
#define META_SET_GID	(1u << 2)
#define META_SET_SIZE	(1u << 3)
#define META_SET_ATIME	(1u << 4)
#define META_SET_MTIME	(1u << 5)
#define META_SET_CTIME	(1u << 6)
#define META_SET_EXTENT (1u << 7) /* extent_asked; EBUSY once there is an extent */
#define META_SET_PAGES	(1u << 8)
#define META_SET_MMAP	(1u << 9)
/* Bits of the mode to clear, whatever its other bits have become meanwhile. */
#define META_CLEAR_SUID (1u << 10)
#define META_CLEAR_SGID (1u << 11)
/* Only while the row is at `epoch`: an owner's hint is void once another node owns the segment.
   And, where attr.ctime is not 0, only while the row has that ctime: the hint is also void once a
   user has set attributes that the owner had not seen. */
#define META_AT_EPOCH (1u << 12)
/* The row's ctime becomes file_ctime where that is later. */
#define META_RAISE_CTIME (1u << 13)
/*
 * Conditions that a kernel checked before it permitted the caller's request, and that a command of
 * another node may have invalidated since. For a caller that may change any user's segment no owner
 * is given.
 */
/* The segment is listed under `node`, else ENOENT. */
#define META_IN_NODE (1u << 14)
/* The row's uid is `owner`, and that of the segment that RENAME replaces is other_owner, else
   EPERM. */
#define META_OF_OWNER (1u << 15)
/* CREATE gives the segment its size and its extent at once. */
#define META_WITH_EXTENT (1u << 16)
/* move. EOPNOTSUPP below level META_LEVEL_MOVE */
#define META_SET_MOVE (1u << 17)
/* prefill and prefill_mib_s. EOPNOTSUPP below level META_LEVEL_PREFILL */
#define META_SET_PREFILL (1u << 18)

struct meta_command {
	struct meta_command_id cid;
	bool again; /* an earlier life of this node may have proposed it: without a quorum the
		       result is -ETIMEDOUT, not -EROFS. Not encoded */
	enum meta_command_type type;
	ramp_segment_t id;
	uint64_t epoch;
	struct ramp_attempt k;
	ramp_node_t node, src;
	ramp_incarnation_t node_inc, src_inc;
	enum meta_proof proof;
	ramp_node_t proof_node;	      /* PROOF_OVER: this node's incarnation ... */
	ramp_incarnation_t proof_inc; /* ... is over, checked against the node's row */
	uint32_t flags;		      /* RENAME_NOREPLACE; META_* */
	uint32_t owner, other_owner;  /* META_OF_OWNER */
	struct meta_time file_ctime;  /* META_RAISE_CTIME */
	char name[RAMP_NAME_MAX + 1], new_name[RAMP_NAME_MAX + 1];
	char address[RAMP_ADDRESS_MAX + 1];
	struct segment_row attr; /* CREATE: as there; SETATTR: by mask */
	uint64_t length, map_len, instance, capacity, value;
	enum meta_setting setting;
	struct meta_time now; /* the proposer's clock; the state machine has none */
};

struct meta_reply {
	int result; /* 0 or a negative errno */
	ramp_segment_t id;
	ramp_segment_t other; /* RENAME: the segment that was replaced; 0: none */
	ramp_node_t node;     /* MEMBER_*, NODE_*: the row's node; or the node that is in the way */
	uint64_t epoch;	      /* of the row after the command */
	uint64_t extent_addr, extent_len;
};

/* -EINVAL also means: a name is empty, "." or "..", too long, or has a slash. */

/* ---- opening ------------------------------------------------------------------------------- */

struct meta_config {
	const char *journal_path;
	uint32_t heartbeat_ms; /* 0: 100 */
	uint32_t election_ms;  /* 0: 500; the time-out is random in [this, 2 * this) */

	/* Sends one message to a node's meta. Meta thread; must copy and must not block; may drop
	   it. */
	void (*send)(void *arg, ramp_node_t to, const void *bytes, size_t len);
	/* Called after the transaction that changed a segment's row (id), or a node's row or the
	   membership (id == 0; after a snapshot was taken: any row). attributes: only attributes
	   that META_SETATTR sets have changed. Meta thread. */
	void (*changed)(void *arg, ramp_segment_t id, bool attributes);
	/* NULL, or called after a snapshot was taken, besides `changed`: any segment's row may have
	   changed or be gone, and none is named. Meta thread. */
	void (*restored)(void *arg);
	/* NULL, or called when another member names a member (node, name, address) that the tables
	   here do not have yet. It must be connected to, for it may be the node from which newer
	   tables come. Meta thread. */
	void (*heard_of)(void *arg, const struct node_row *row);
	/* The journal can't be written or read, or contradicts the cluster's: the process must end.
	   NULL: logs the text and ends it (exit status 1). Where it returns, this node does nothing
	   more and answers -EIO. Meta thread, or a thread that reads the tables. */
	void (*fatal)(void *arg, const char *text);
	/* NULL, or called before that where a turn has failed, or the tables can't be read: Raft's core
	   must not step again in this life. of_copy: the tables are meta_open_copy's or meta_open_rows'.
	   Meta thread, or a thread that reads the tables. */
	void (*turn_failed)(void *arg, const char *text, bool of_copy);
	const char *why; /* meta_open_copy, _rows: why the journal can't be used, for people */
	void *arg;
};

/*
 * mkfs: makes the journal at `path` (which must not exist) with the founding members. `nodes` are
 * numbered from 1 in this order; `self` is the node that the journal is for. cluster_id and
 * instance are defined in contrib/doc/design.md.
 *
 * A joiner's journal (`joins`) has no log. `nodes` are the members as the cluster named them, the
 * joiner itself among them under the number that the cluster gave it, so that it can connect to
 * them and they to it. The snapshot that it is sent first replaces them.
 */
struct meta_founding {
	uint8_t cluster_id[32];
	uint64_t instance;
	ramp_node_t self;
	uint64_t arena_addr, arena_len;
	uint64_t arena_user_max;      /* META_ARENA_USER_MAX */
	uint64_t life;		      /* of META_MEMBER_AGAIN; else 0 */
	const struct node_row *nodes; /* node, name, address, capacity, role */
	size_t n_nodes;
	bool joins; /* n_nodes == 0 implies it */
};
int meta_format(const char *path, const struct meta_founding *founding, struct ramp_err *err);

/* Opens the journal and starts the meta thread. On failure nothing is left open. -EOPNOTSUPP: it is
   of a newer program. */
int meta_open(const struct meta_config *config, struct meta **out, struct ramp_err *err);
/*
 * Opens a copy of the journal at `copy` (made again, of what can be read of journal_path) instead,
 * where the journal can't be written: the tables are read from it, and this node hears, acknowledges,
 * votes and proposes nothing. So no leader is known, as without a quorum, and a request gets -EROFS.
 * Nothing is written beside the journal. -EUCLEAN: it was read, and makes no sense; -EOPNOTSUPP: it
 * is of a newer program.
 */
int meta_open_copy(const struct meta_config *config, const char *copy, struct meta **out,
		   struct ramp_err *err);
/*
 * The same where there is no journal to copy: of the members that are `known` (joins is true) and of the
 * rows that the caller knows. A row whose name another has is named recovered-ID.
 */
int meta_open_rows(const struct meta_config *config, const char *copy,
		   const struct meta_founding *known, const struct segment_row *rows, size_t n,
		   struct meta **out, struct ramp_err *err);
/* Removes a copy that an earlier process has left. */
void meta_remove_copy(const char *copy);
/* Returns the `why` of meta_open_copy or meta_open_rows; NULL: the journal itself is open. */
const char *meta_why_copy(struct meta *meta);
/* Ends the thread. Unanswered proposals get -ESHUTDOWN (they may still happen), and so do, at once,
   the proposals that their callbacks make. */
void meta_close(struct meta *meta);

/* Each returns a constant of the journal. */
void meta_cluster_id(struct meta *meta, uint8_t id[32]);
ramp_node_t meta_self(struct meta *meta);
uint64_t meta_instance(struct meta *meta);
void meta_arena(struct meta *meta, uint64_t *addr, uint64_t *len);

/* ---- running ------------------------------------------------------------------------------- */

/* Takes a message that another node's `send` gave; copies it. `instance`: the one that the sender
   has proved to be (0: not known). Where the tables have another instance bound to its number, its
   votes and acknowledgements do not count here. */
void meta_receive(struct meta *meta, ramp_node_t from, uint64_t instance, const void *bytes,
		  size_t len);
/* Notes that a peer's control connection came up or went down (a hint for flow control and
   forwarding). */
void meta_peer(struct meta *meta, ramp_node_t node, bool up);

typedef void meta_done(void *arg, const struct meta_reply *reply);

/* Proposes; done runs exactly once, when this node's own tables hold the result or it failed. */
void meta_propose(struct meta *meta, const struct meta_command *command, meta_done *done,
		  void *arg);
/* Proposes and waits. Never to be called from the control, fuse, pager or meta thread. */
int meta_propose_wait(struct meta *meta, const struct meta_command *command,
		      struct meta_reply *reply);
/*
 * From meta_hold to meta_release proposals are accepted, and answered where they were carried out
 * already, but not sent. So of many commands that are proposed again, the first ones can't displace
 * the kept results of the last ones.
 */
void meta_hold(struct meta *meta);
void meta_release(struct meta *meta);
/* Calls done when this node's tables hold all that was committed anywhere at the time of the call
   (ReadIndex): the linearizable read of R7 and R8. */
void meta_sync(struct meta *meta, meta_done *done, void *arg);
/* done runs when the tables of `node`, too, hold all that this node's tables hold now. -ETIMEDOUT:
   it has not said so within timeout_ms. */
void meta_wait_shown(struct meta *meta, ramp_node_t node, uint32_t timeout_ms, meta_done *done,
		     void *arg);
/* Returns a command id that no other command has. */
struct meta_command_id meta_own_command(struct meta *meta);

/* Returns true while a leader is known and a quorum answers, and for 5 s after that; where the meta
   thread is blocked, for 5 s after its last turn began. */
bool meta_has_quorum(struct meta *meta);
/*
 * Returns true while this node may neither vote nor campaign: it was formatted, and is not known
 * yet to be the first instance under its number. That ends when a quorum's worth of the other
 * founders report that they are new, too, or when one of them has this instance bound to the number
 * (its first NODE_UP; a joiner's only way). meta asks them by itself. For a sole voter also true
 * from the time that another node reports another instance under its number.
 */
bool meta_awaits_admission(struct meta *meta);
/* Returns true while `node` may not vote (admission.h; an old copy of a journal may not, either):
   it has reported so within 1 s, or is another instance than the one bound to its number. */
bool meta_is_nonvoting(struct meta *meta, ramp_node_t node);
/* Returns true where that has been true for META_NO_VOTE_MS: a founder's first start takes less until
   it is admitted, and a node that was formatted again never is. */
#define META_NO_VOTE_MS 5000
bool meta_gets_no_vote(struct meta *meta, ramp_node_t node);
ramp_node_t meta_leader(struct meta *meta); /* 0: none known */

/* Tries to hand leadership over to another voter, where this node leads and one has nearly caught
   up (before a clean shutdown). May be repeated. */
void meta_transfer_leadership(struct meta *meta);

struct meta_status {
	uint64_t term, commit, applied, log_entries, snapshots_sent, snapshots_taken;
	uint64_t journal_bytes, commits;
	ramp_node_t leader, self;
	bool quorum;
};
void meta_get_status(struct meta *meta, struct meta_status *status);

/* ---- reading this node's tables ------------------------------------------------------------ */

struct meta_settings {
	uint64_t level;		 /* of the rules: META_LEVEL_KNOWN */
	uint64_t arena_user_max; /* bytes: that of META_SET, or by rule */
	bool arena_user_set;	 /* false: by rule */
};
int meta_get_settings(struct meta *meta, struct meta_settings *settings);
/* The addresses that a user's segments have, also those that are unlinked and not freed yet. */
struct arena_use {
	uint32_t uid;
	uint64_t bytes;
};
/* Reads the use of at most `max` users, the largest first, and of all together. Returns how many it
   has read. */
int meta_arena_uses(struct meta *meta, struct arena_use *uses, size_t max, uint64_t *all_bytes);
int meta_segment(struct meta *meta, ramp_segment_t id, struct segment_row *row); /* -ENOENT */
/* Returns whether these tables have ever had that segment. After a recovery (recovery.h) a node may
   hold one of which they know nothing: that it has no row does not say that it was unlinked. */
bool meta_knows(struct meta *meta, ramp_segment_t id);
/*
 * Looks a segment up by its name in `node`'s directory. It is listed there from its creation until
 * a TAKEN moves it to dst's directory; names that a prepare reserves are not found.
 */
int meta_lookup(struct meta *meta, ramp_node_t node, const char *name, struct segment_row *row);
/* Calls fn for each segment listed under `node` (0: all, ORPHANs too) with id > after, in the
   order of ids, until fn returns nonzero; returns that or 0. */
int meta_each_segment(struct meta *meta, ramp_node_t node, ramp_segment_t after,
		      int (*fn)(void *arg, const struct segment_row *row), void *arg);
int meta_node(struct meta *meta, ramp_node_t node, struct node_row *row); /* -ENOENT */
int meta_node_by_name(struct meta *meta, const char *name, struct node_row *row);
/* Puts another address into a node's row that was read from the tables: the one that this node was
   told offline (recovery.h). It counts here until that node has committed one of its own. */
void meta_overrule_address(struct meta *meta, struct node_row *row);
/* Returns true where `node` is in Raft's configuration as committed here. A removed node is in it
   until its removal is committed, and may be needed for that. */
bool meta_in_configuration(struct meta *meta, ramp_node_t node);
/* Calls fn for each node, in the order of numbers, until fn returns nonzero; returns that or 0. */
int meta_each_node(struct meta *meta, int (*fn)(void *arg, const struct node_row *row), void *arg);

#endif
