/*
 * Migrations: the moment when ownership passes, and all that can go wrong around it.
 *
 * transfer.c draws and guards the states, source.c and target.c are the two ends, one handler a
 * message (transport/proto.h). All state machines run on the control loop; what blocks is done by
 * workers. The rules are R1 to R13 of the design, named beside the code that obeys them.
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
#include "base/trace.h"
#include "memory/store.h"
#include "meta/meta.h"
#include "programs/programs.h"
#include "pull/pull.h"
#include "transport/peers/peer.h"
#include "transport/transport.h"

struct transfers;

enum transfer_mode {
	TRANSFER_LAZY,
	TRANSFER_DEMAND,
	TRANSFER_COPY, /* every page is there before ownership passes; of tools only */
};

struct transfers_config {
	struct loop *loop;
	struct store *store;
	struct meta *meta;
	struct peers *peers;
	struct tp *tp;
	struct programs *programs;
	bool rollback_auto; /* mount option rollback=auto */
};

/*
 * In two steps, since pull needs a callback of ours and we need it: transfers_open, pull_open with
 * transfers_pull_finished, then transfers_start, which goes through every record in the store and
 * takes up what a former daemon left (R4 to R8), and sends NODE_UP (R1).
 */
int transfers_open(const struct transfers_config *config, struct transfers **out,
		   struct ramp_err *err);
void transfers_pull_finished(void *transfers, ramp_segment_t id, uint64_t lost);
int transfers_start(struct transfers *transfers, struct pull *pull, struct ramp_err *err);
/* What is on its way, to here and from here, is finished, on demand or not, and no other segment
   taken: the node is unmounted. Control loop. */
void transfers_take_no_more(struct transfers *transfers);
/* How many moves away from here have a row that only this node can end, as long as it is there:
   prepared, or about to be, and not given. `cancel`: they are given up. Control loop. */
unsigned transfers_undecided(struct transfers *transfers, bool cancel);
/* Gives up what may be given up (R4), leaves the rest to the next daemon. On the control thread
   after loop_run has returned, while meta, peers, pull and programs still stand. What others call
   after it does nothing. */
void transfers_close(struct transfers *transfers);
/* After pull_close and meta_close: nobody calls in any more. Before loop_close. */
void transfers_free(struct transfers *transfers);

/* Wiring, called by main's callbacks: a row changed (meta; more of it than its attributes), a peer
   came or went. */
void transfers_row_changed(struct transfers *transfers, ramp_segment_t id);
void transfers_peer_changed(struct transfers *transfers, ramp_node_t node,
			    ramp_incarnation_t incarnation, bool up);

/* One step of a trace: what was done, where and when. */
struct transfer_step {
	ramp_node_t node; /* 0: a remark on the trace */
	const char *node_name;
	uint64_t page;	/* of a page fault; TRACE_NO_PAGE: of the transfer */
	uint64_t at_ns; /* since the first step, by the source's clock */
	const char *name;
};

struct migrate_request {
	ramp_segment_t id;
	ramp_node_t from; /* 0: wherever it is; else -ENOENT where another move was faster */
	/* "": whatever it is called; else -ENOENT where a rename was faster, which would be undone */
	char from_name[RAMP_NAME_MAX + 1];
	ramp_node_t dst;
	char dst_name[RAMP_NAME_MAX + 1];
	enum transfer_mode mode;
	bool reclaim;	     /* no move: rampfs-migrate --reclaim, on the owner; only `id` counts */
	bool wait_stable;    /* answer when it is STABLE, else when this node's tables show it, and
				(within 1 s) the target's */
	uint32_t timeout_ms; /* rename(2): 5000; 0: as long as it takes */
	/* NULL, or: some progress, on the control loop */
	void (*progress)(void *arg, uint64_t pages_done, uint64_t pages_all, const char *state);
	/* NULL, or: it is traced, and these are the steps, in order, before `done` */
	void (*step)(void *arg, const struct transfer_step *step);
};
/* Control loop; exactly once. `text` says why it failed ("" on success). */
typedef void migrate_done(void *arg, int result, const char *text);

/*
 * Moves a segment to another node's directory; any node may ask (a node that is not the source
 * sends MIGRATE and hands back the answer). Returns a handle for transfers_cancel.
 * Results: 0, EEXIST, EHOSTUNREACH, ENOSPC, EBUSY, EROFS, EINPROGRESS, EINTR (cancelled), ENOENT.
 */
uint64_t transfers_migrate(struct transfers *transfers, const struct migrate_request *request,
			   migrate_done *done, void *arg);
/* Before GIVEN it ends with EINTR; after, with what happens (done is called in both cases). */
void transfers_cancel(struct transfers *transfers, uint64_t handle);

/* The segment is ours again, by proof that a target is over which may have served it: its bytes are
   those of the freeze, and opening it is EIO until it is reclaimed. Any thread. */
bool transfers_rolled_back(struct transfers *transfers, ramp_segment_t id);

struct transfer_row {
	ramp_segment_t id;
	char name[RAMP_NAME_MAX + 1];
	ramp_node_t from, to;
	const char *state; /* of the drawing in transfer.c */
	bool source;	   /* this node is the source */
	uint64_t age_ms;
};
#define TRANSFER_HISTOGRAM 24 /* bucket i: less than 2^i microseconds */
struct transfers_status {
	uint64_t started, done, failed, window_last_us, window_max_us;
	uint64_t windows, windows_us; /* how many were measured here; of all of them */
	uint64_t window_us[TRANSFER_HISTOGRAM];
};
void transfers_status(struct transfers *transfers, struct transfers_status *status);
/* Control loop only: calls fn for each migration under way on this node. */
void transfers_each(struct transfers *transfers,
		    void (*fn)(void *arg, const struct transfer_row *row), void *arg);

#endif
