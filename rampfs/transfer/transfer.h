/*
 * Migrations: how ownership of a segment passes from node to node, and how that can fail.
 *
 * move.c draws and guards the states. source*.c and given.c are the source's end, target*.c the
 * target's, with one handler for each message (transport/proto.h). All state machines run on the
 * control loop; workers do what blocks. Rules R1 to R13 are in contrib/doc/design.md, and named
 * beside the code that obeys them.
 *
 * Thread-safety: any thread, except where stated.
 */
#ifndef RAMP_TRANSFER_H
#define RAMP_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/ids.h"
#include "base/loop.h"
#include "base/session.h"
#include "base/trace.h"
#include "base/transfer_mode.h"
#include "memory/store.h"
#include "meta/meta.h"
#include "programs/programs.h"
#include "pull/pull.h"
#include "serve/serve.h"
#include "transport/peers/peer.h"
#include "transport/proto.h"
#include "transport/transport.h"

struct transfers;

struct transfers_config {
	struct loop *loop;
	struct store *store;
	struct meta *meta;
	struct peers *peers;
	struct tp *tp;
	struct programs *programs;
	struct serve *serve;
	bool rollback_auto; /* mount option rollback=auto */
	/* Of moves of this node's segments, where neither request nor segment says it: mount option mode=. */
	enum transfer_mode mode;
	uint32_t quiesce_ms;	  /* for programs that are asked to let go; 0: 1000 */
	uint64_t limit_bytes_s;	  /* of what is sent ahead of need (mount option limit); 0: none */
	uint32_t prefill_rest_ms; /* of a prefill between two looks, at least; 0: 1000 */
	/* Reads the name that is noted beside a segment's bytes, "" where there is none; or NULL. */
	void (*noted_name)(struct seg *seg, char name[RAMP_NAME_MAX + 1]);
};

/*
 * Opens in two steps, since pull needs a callback of transfer, and transfer needs pull:
 * transfers_open, pull_open with transfers_pull_finished, then transfers_start, which goes through
 * every record in the store, takes up what an earlier daemon left (R4 to R8), and proposes NODE_UP
 * (R1).
 */
int transfers_open(const struct transfers_config *config, struct transfers **out,
		   struct ramp_err *err);
void transfers_pull_finished(void *transfers, ramp_segment_t id,
			     const struct pull_figures *figures);
int transfers_start(struct transfers *transfers, struct pull *pull, struct ramp_err *err);
/* Finishes the moves under way, to here and from here, on demand or not, and takes no other
   segment: the node is being unmounted. Control loop. */
void transfers_refuse_new(struct transfers *transfers);
/* Returns how many moves away from here have a row that only this node can end while it lives:
   prepared, or about to be, and not given. `cancel`: gives them up. Control loop. */
unsigned transfers_undecided(struct transfers *transfers, bool cancel);
/* Gives up the moves that may be given up (R4), leaves the rest to the next daemon. Call on the
   control thread after loop_run has returned, while meta, peers, pull and programs are still open.
   Later calls from other threads do nothing. */
void transfers_close(struct transfers *transfers);
/* Call after pull_close and meta_close, when no thread calls in any more, and before loop_close. */
void transfers_free(struct transfers *transfers);

/* Wiring, called by the daemon's callbacks: a row changed (meta; not its attributes alone), a peer
   connected or hung up. */
void transfers_row_changed(struct transfers *transfers, ramp_segment_t id);
/* ... only its attributes. */
void transfers_attributes_changed(struct transfers *transfers, ramp_segment_t id);
void transfers_peer_changed(struct transfers *transfers, ramp_node_t node,
			    ramp_incarnation_t incarnation, bool up);

/* One step of a trace. */
struct transfer_step {
	ramp_node_t node; /* 0: a remark on the trace */
	const char *node_name;
	uint64_t page;	/* of a page fault; TRACE_NO_PAGE: of the transfer */
	uint64_t at_ns; /* since the first step, by the source's clock */
	const char *name;
};

struct migrate_request {
	ramp_segment_t id;
	ramp_node_t from; /* 0: any; else -ENOENT where another move was faster */
	/* "": any; else -ENOENT where a rename was faster, which the move would undo */
	char from_name[RAMP_NAME_MAX + 1];
	ramp_node_t dst;
	char dst_name[RAMP_NAME_MAX + 1];
	bool by_id; /* from_name, and a dst_name that is empty, are the row's when it begins */
	enum transfer_mode mode; /* UNSAID: as the segment's row says, or the mount of its node */
	uint8_t max_rounds;	 /* of a pre-copy, the first one included; 0: the default */
	uint64_t limit_bytes_s;	 /* of what is read ahead of need; 0: none */
	uint64_t batch;		 /* a random number: requests with the same share the limit */
	bool queues;	  /* it is one of many, and waits for its turn where many are under way */
	bool force;	  /* no program is asked */
	bool reclaim;	  /* no move: rampfs-migrate --reclaim, on the owner; only `id` counts */
	bool wait_stable; /* answer when it is STABLE; else when this node's tables and (waited
				for 1 s at most) the target's show it */
	uint32_t timeout_ms; /* rename(2): 5000; 0: as long as it takes */
	/* It waits after `first_step` for transfers' client (tool_moves.c), hold_ms at most (0: the usual
	   time), and says so by `held`; and without wait_stable it is answered as soon as the target
	   has taken it. Of a segment of this node alone. */
	bool in_steps;
	uint8_t first_step; /* enum session_step */
	uint32_t hold_ms;
	void (*held)(void *arg, enum session_step step, uint32_t ms);
	/* Reports progress on the control loop; or NULL. */
	void (*progress)(void *arg, uint64_t pages_done, uint64_t pages_all, const char *state);
	/* The migration is traced; called for its steps, in order, before `done`. Or NULL. */
	void (*step)(void *arg, const struct transfer_step *step);
};
/* Control loop; exactly once. `text` says why it failed; on success the mode and why it was chosen ("" where
   another daemon's life, or another request, did it). */
typedef void migrate_done(void *arg, int result, const char *text);

/*
 * Moves a segment to another node's directory; any node may ask (a node that is not the source
 * sends MIGRATE and hands back the answer). Returns a handle for transfers_cancel.
 * Results: 0, EEXIST, EHOSTUNREACH, ENOSPC, EBUSY, EROFS, EINPROGRESS, EINTR (cancelled), ENOENT; in steps
 * also EREMOTE, EALREADY (it is there) and ETIMEDOUT.
 */
uint64_t transfers_migrate(struct transfers *transfers, const struct migrate_request *request,
			   migrate_done *done, void *arg);
/* Cancels: before GIVEN it ends with EINTR, after it as if not cancelled. `done` is called in both
   cases. */
void transfers_cancel(struct transfers *transfers, uint64_t handle);

/*
 * Gives the segment's addresses back, where this node owns it and no process of any node has anything
 * of it mapped. Results: 0; ENODATA: it has none; EREMOTE: another node owns it; EBUSY, with the node
 * and the process, or the node that can't be asked; EOPNOTSUPP: a member runs an older rampfs; EROFS;
 * ETIMEDOUT: it may still happen.
 */
void transfers_give_back(struct transfers *transfers, ramp_segment_t id, migrate_done *done,
			 void *arg);

/* Returns whether the segment is ours again by proof that a target is over which may have served
   it: its bytes are those of the freeze, and opening it is EIO until it is reclaimed. Any
   thread. */
bool transfers_rolled_back(struct transfers *transfers, ramp_segment_t id);

/* Fills the figures that this node knows of the segment's last hand-over. False: none. Any
   thread. */
bool transfers_figures(struct transfers *transfers, ramp_segment_t id, struct msg_figures *out);

/* The state of a segment's user.ramp.prefill, at the node that owns it. */
struct transfer_prefill {
	ramp_node_t node;
	/* "filling": not all of it has been there yet; "keeping"; "waiting": for `why`, until it is tried
	   again in again_ms; "here": the node owns it */
	const char *state;
	uint64_t have_bytes,
		behind_bytes;	     /* at the node; still to be read there, by the last look */
	uint64_t since_ms, again_ms; /* in that state; 0: by an event, or now */
	char why[192];
};
/* False: there is nothing to tell here. Any thread. */
bool transfers_prefill(struct transfers *transfers, ramp_segment_t id,
		       struct transfer_prefill *out);

/* A move under way, by what its end here knows of it. */
struct transfer_move {
	ramp_node_t from, to;
	const char *state;   /* of the drawing in move.c */
	uint64_t since_ms;   /* in that state */
	bool in_rounds;	     /* the source's end of a pre-copy: */
	uint32_t round;	     /* that is being read, or was read last; the first one is 0 */
	uint64_t left_bytes; /* of it, or stored into since */
};
/* False: there is none, or it is a prefill (transfers_prefill). Any thread. */
bool transfers_move(struct transfers *transfers, ramp_segment_t id, struct transfer_move *out);

struct transfer_row {
	ramp_segment_t id;
	char name[RAMP_NAME_MAX + 1];
	ramp_node_t from, to;
	const char *state; /* of the drawing in move.c */
	bool source;	   /* this node is the source */
	const char *mode;  /* at the source: of the move */
	char why[192];	   /* ... and why it has that one */
	uint64_t age_ms;
};
#define TRANSFER_HISTOGRAM 24 /* bucket i: less than 2^i microseconds */
struct transfers_status {
	uint64_t queued; /* requests that wait for their turn, now */
	uint64_t started, done, failed, window_last_us, window_max_us;
	uint64_t limit_bytes_s;	      /* as struct transfers_config has it */
	uint64_t windows, windows_us; /* how many were measured here; of all of them */
	uint64_t window_us[TRANSFER_HISTOGRAM];
};
void transfers_status(struct transfers *transfers, struct transfers_status *status);
/* Control loop only: calls fn for each migration under way on this node. */
void transfers_each(struct transfers *transfers,
		    void (*fn)(void *arg, const struct transfer_row *row), void *arg);

#endif
