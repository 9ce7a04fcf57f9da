/*
 * Pulling pages from the source of a segment.
 *
 * The pager thread turns page faults and parked requests into demand reads. The prefetch thread
 * pulls the rest in the background, yielding to demand; more threads help it, each with a connection
 * of its own (streams.h). The source's side is serve/serve.h.
 *
 * While pages are missing every attachment is registered. When the last page is LOCAL, they are
 * unregistered and `finished` is called. Where some pages are LOST, `finished` is called, too, and the
 * attachments stay registered: a program that touches a lost page gets SIGBUS, until all lost pages
 * have been written over.
 *
 * How it fails: a lost connection gives the pages in flight back to REMOTE and connects again
 * (50 ms to 2 s), for as long as the source is silent; a page fault waits that long. Only a source
 * proved gone (another incarnation in its hello, or pull_source_over) makes pages LOST.
 *
 * Thread-safety: any thread, except where stated.
 */
#ifndef RAMP_PULL_H
#define RAMP_PULL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/ids.h"
#include "base/trace.h"
#include "memory/store.h"
#include "programs/programs.h"
#include "transport/transport.h"

struct pull;

#define PULL_STREAMS_MAX TRANSPORT_STREAMS_MAX

/* The pages (of 4096 bytes) that a pull has brought in this daemon's life. */
struct pull_figures {
	uint64_t all;		   /* of the segment */
	uint64_t missing;	   /* when it began */
	uint64_t demand, prefetch; /* with bytes that travelled: for a page fault or a read; else */
	uint64_t holes;		   /* that the source had none of, known when they were asked for */
	uint64_t lost;
	uint64_t us; /* from pull_begin to the last one */
	bool rdma;   /* its source offers RDMA, and this node has a device */
};

struct pull_config {
	struct store *store;
	struct programs *programs;
	struct tp *tp;
	/* Connections for prefetch to one node, PULL_STREAMS_MAX at most; 0: as many as help. */
	unsigned streams;
	uint64_t limit_bytes_s; /* of what is read ahead of need; 0: none */
	/* The last page of a segment became LOCAL (or LOST: `lost` > 0). Any thread; once per
	   pull_begin, and not after its pull_end; must not block. */
	void (*finished)(void *arg, ramp_segment_t id, const struct pull_figures *figures);
	void *arg;
};

int pull_open(const struct pull_config *config, struct pull **out, struct ramp_err *err);
/* Stops all threads; pages in flight are REMOTE again; programs wait for the next daemon. A thread
   that a program blocks by its mmap lock lasts until the program lets go, and so does the memory of
   `pull`. */
void pull_close(struct pull *pull);

/* Which pages go first where several segments wait for the same source. Demand goes before all. */
enum pull_rank {
	PULL_DIRTY, /* read ahead, and stored into since; or programs wait for all of them */
	PULL_PREFETCH,
	PULL_AHEAD, /* before the hand-over, while programs at the source continue */
	PULL_RANKS
};

struct pull_source {
	ramp_node_t node;
	ramp_incarnation_t incarnation;
	struct tp_key key;
	bool prefetch; /* false: mode `demand` */
	bool all;      /* all of it will be read, now or later: the source may prepare for it */
	enum pull_rank rank;
	uint64_t limit_bytes_s; /* of its prefetch, and that of others of the same batch; 0: none */
	uint64_t batch;		/* a random number */
	bool alone;		/* a copy (RESERVED): no program here has it, none is registered */
	struct trace *trace;	/* of its first page faults; the entry takes a reference */
};

/* Pages of a segment of that node will soon be pulled: the transport may prepare for it. Never blocks. */
void pull_expect(struct pull *pull, ramp_node_t node);
/* That node sends bytes_s a second ahead of need at most, as it says; 0: it has no limit. */
void pull_source_limit(struct pull *pull, ramp_node_t node, uint64_t bytes_s);
/* Begins (TAKEN, or found TAKEN at a start): registers attachments, then serves their faults.
   Calls finished at once where nothing is missing. Blocks shortly. */
int pull_begin(struct pull *pull, struct seg *seg, const struct pull_source *source,
	       struct ramp_err *err);
/* Ends it before its time (reverted by proof, unlinked): when this returns nothing is pulled any
   more, and the segment is not in use here. Blocks shortly; not from `finished`. */
void pull_end(struct pull *pull, ramp_segment_t id);
/* For a segment that is OWNED and not pulled any more: makes a program that touches a lost page get
   SIGBUS, until the page has been written over. pull_open does it for all segments that it finds
   OWNED. Blocks shortly. */
void pull_watch_lost(struct pull *pull, struct seg *seg);
/*
 * Gives up all pages that have not come, as after the end of the source: when it returns 0 each of them is LOST
 * or, with `zeros`, LOCAL and a hole, and no read of them is under way; a page that is LOST stays so. `finished`
 * is called as ever. *count: how many pages. -EAGAIN: the pull has not begun; -ENOENT: it has been ended;
 * -ESHUTDOWN: pull closes; else -errno of punching: some may come still, once it is called again or the
 * daemon begins again. Blocks, as pull_end does, and for the program's share of the workers.
 */
int pull_give_up(struct pull *pull, struct seg *seg, bool zeros, uint64_t *count);
/* Prefetches all of it at full speed, also in mode `demand` (a segment that is asked to move again,
   --wait). */
void pull_prefetch_all(struct pull *pull, ramp_segment_t id);
/* That incarnation of that node is over, by a committed fact: the pages that it had are LOST. Never
   blocks. */
void pull_source_over(struct pull *pull, ramp_node_t node, ramp_incarnation_t incarnation);

/*
 * Fetches pages [first, first + count) before the rest of the segment, after all demand, also in mode
 * `demand`. Of hints, of which a segment has a few at most, the newest goes first. Never blocks.
 */
void pull_hint(struct pull *pull, struct seg *seg, uint64_t first, uint64_t count);
/*
 * The same before all hints, in the order of the calls, for a caller that waits. `done` is called once, by a
 * thread of pull's that must not block: 0: they are all here; -EIO: but for `lost` pages that are LOST;
 * -ENOSPC: the store has no room; -EREMOTE, -ENOENT: this node does not serve the segment any more. While the
 * source is silent it waits. NULL: no memory, and `done` is not called.
 */
struct pull_order;
struct pull_order *pull_order_begin(struct pull *pull, struct seg *seg, uint64_t first,
				    uint64_t count,
				    void (*done)(void *arg, int result, uint64_t lost), void *arg);
/* Frees it, before pull_close. True: `done` was not called, and is not any more. */
bool pull_order_end(struct pull_order *order);

/*
 * For parked requests: 0 if all of [first, first + count) are LOCAL. Else asks for the missing ones on
 * demand. -EAGAIN: store_on_change tells when to look again. -EIO: some are LOST. -ENOSPC: the store
 * had no room for a page within the last second. -EHOSTDOWN: the source has been silent for 5 s since
 * it was first asked (the prefetch asks, too). Never blocks.
 */
int pull_want(struct pull *pull, struct seg *seg, uint64_t first, uint64_t count);
/*
 * Around a truncate, a punched hole or a write of bytes [offset, offset + len), within one seg_enter.
 *
 * pull_cut_begin makes the partial pages at the edges LOCAL by pulling, and claims the whole pages
 * inside for the caller (IN_FLIGHT: no thread pulls or maps them). 0: continue now; -EAGAIN: some are
 * on their way, look again as after pull_want; -EIO, -EHOSTDOWN: of an edge, as pull_want. Never
 * blocks.
 *
 * pull_cut_end is called after each begin that was 0. The bytes [offset, offset + done) have their
 * new contents: their whole pages are LOCAL, and page faults that wait for them are resolved; the
 * others are REMOTE again. So no program sees a page between its claim and its bytes, and a kill in
 * between loses nothing.
 */
int pull_cut_begin(struct pull *pull, struct seg *seg, uint64_t offset, uint64_t len);
void pull_cut_end(struct pull *pull, struct seg *seg, uint64_t offset, uint64_t len, uint64_t done);

struct pull_progress {
	uint64_t pages_all, pages_missing, pages_lost;
	uint64_t demand_pages, prefetch_pages, hole_pages;
	ramp_node_t source;
	uint32_t streams;	/* connections for prefetch to it that are up now */
	uint64_t limit_bytes_s; /* of its prefetch; 0: none */
	bool source_silent;	/* it is asked for something, and does not answer */
	uint64_t heard_ms;	/* CLOCK_MONOTONIC, of the last page that came; 0: none yet */
};
/* -ENOENT: not being pulled. */
int pull_progress(struct pull *pull, ramp_segment_t id, struct pull_progress *progress);

#define PULL_HISTOGRAM 24 /* bucket i: less than 2^i microseconds */
struct pull_status {
	uint64_t faults, demand_pages, prefetch_pages, hole_pages, bytes, reconnects;
	uint64_t served_bytes, served_reads;
	uint64_t fault_us[PULL_HISTOGRAM]; /* from message to CONTINUE */
	uint64_t faults_us;		   /* of all of them */
	uint64_t limit_bytes_s;		   /* as struct pull_config has it */
};
void pull_status(struct pull *pull, struct pull_status *status);

/* Fills the figures of RDMA with out->node. False: this node has no device. */
bool pull_rdma(struct pull *pull, struct tp_peer *out);

/* Pages that have come from each node in this daemon's life. */
#define PULL_PEERS 64
struct pull_peer {
	ramp_node_t node;
	uint64_t demand_pages, prefetch_pages, bytes;
	uint32_t streams; /* connections for prefetch that are up now */
};
/* Fills at most `max`, returns how many there are. */
size_t pull_peers(struct pull *pull, struct pull_peer *out, size_t max);

#endif
