/*
 * Pulling pages from the source of a segment.
 *
 * The pager thread turns page faults and parked requests into demand reads. The prefetch thread
 * pulls the rest in the background, yielding to demand. The source's side is serve/serve.h.
 *
 * While pages are missing every attachment is registered. When the last one is LOCAL, they are
 * unregistered and `finished` is called. Where some are LOST, `finished` is called, too, and the
 * rest goes on: who touches one of those gets SIGBUS, until all have been written over.
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

struct pull_config {
	struct store *store;
	struct programs *programs;
	struct tp *tp;
	/* The last page of a segment became LOCAL (or LOST: `lost` > 0). Any thread; once per
	   pull_begin, and not after its pull_end; must not block. */
	void (*finished)(void *arg, ramp_segment_t id, uint64_t lost);
	void *arg;
};

int pull_open(const struct pull_config *config, struct pull **out, struct ramp_err *err);
/* Stops both threads; pages in flight are REMOTE again; programs wait for the next daemon. A thread
   that a program keeps in its memory lasts until it lets go, and so does what `pull` points to. */
void pull_close(struct pull *pull);

struct pull_source {
	ramp_node_t node;
	ramp_incarnation_t incarnation;
	struct tp_key key;
	bool prefetch;	     /* false: mode `demand` */
	bool alone;	     /* a copy (RESERVED): no program here has it, none is registered */
	struct trace *trace; /* of its first page faults; the entry takes a reference */
};

/* Begins (TAKEN, or found TAKEN at a start): registers attachments, then serves their faults.
   Calls finished at once where nothing is missing. Blocks shortly. */
int pull_begin(struct pull *pull, struct seg *seg, const struct pull_source *source,
	       struct ramp_err *err);
/* Ends it before its time (reverted by proof, unlinked): when it returns nothing is pulled any
   more, and the segment is not in use here. Blocks shortly; not from `finished`. */
void pull_end(struct pull *pull, ramp_segment_t id);
/* Of a segment that is OWNED and not pulled any more: who touches a lost page gets SIGBUS, until it
   has been written over. pull_open does it for those that it finds OWNED. Blocks shortly. */
void pull_watch_lost(struct pull *pull, struct seg *seg);
/* From `demand` to full speed (a segment that is asked to move on, --wait). */
void pull_hurry(struct pull *pull, ramp_segment_t id);
/* That incarnation of that node is over, by a committed fact: what it had is LOST. Never blocks. */
void pull_source_over(struct pull *pull, ramp_node_t node, ramp_incarnation_t incarnation);

/*
 * For parked requests: all of [first, first + count) LOCAL: 0. Else asks for what is missing on
 * demand: -EAGAIN, and store_on_change tells when to look again. -EIO: some are LOST.
 * -EHOSTDOWN: the source has been silent for 5 s since somebody first asked it (the prefetch asks,
 * too). Never blocks.
 */
int pull_want(struct pull *pull, struct seg *seg, uint64_t first, uint64_t count);
/*
 * Around a truncate, a punched hole or a write of bytes [offset, offset + len), within one
 * seg_enter. begin: the partial pages at the edges become LOCAL by pulling, the whole ones inside
 * the caller's (IN_FLIGHT: nobody pulls or maps them). 0: go on now; -EAGAIN: some are on their
 * way, look again as after pull_want; -EIO, -EHOSTDOWN: of an edge, as pull_want. Never blocks.
 * end, always after a begin that was 0: the bytes [offset, offset + done) are right now: whole
 * pages of them are LOCAL, and who waits for them goes on; the others are REMOTE again. So nobody
 * sees a page between its claim and its bytes, and a kill in between loses nothing.
 */
int pull_cut_begin(struct pull *pull, struct seg *seg, uint64_t offset, uint64_t len);
void pull_cut_end(struct pull *pull, struct seg *seg, uint64_t offset, uint64_t len, uint64_t done);

struct pull_progress {
	uint64_t pages_all, pages_missing, pages_lost;
	uint64_t demand_pages, prefetch_pages, hole_pages;
	ramp_node_t source;
	bool source_silent; /* it is asked for something, and does not answer */
	uint64_t heard_ms;  /* CLOCK_MONOTONIC, of the last page that came; 0: none yet */
};
/* -ENOENT: not being pulled. */
int pull_progress(struct pull *pull, ramp_segment_t id, struct pull_progress *progress);

#define PULL_HISTOGRAM 24 /* bucket i: less than 2^i microseconds */
struct pull_status {
	uint64_t faults, demand_pages, prefetch_pages, hole_pages, bytes, reconnects;
	uint64_t served_bytes, served_reads;
	uint64_t fault_us[PULL_HISTOGRAM]; /* from message to CONTINUE */
	uint64_t faults_us;		   /* of all of them */
};
void pull_status(struct pull *pull, struct pull_status *status);

/* What has come from each node in this daemon's life. */
#define PULL_PEERS 64
struct pull_peer {
	ramp_node_t node;
	uint64_t demand_pages, prefetch_pages, bytes;
};
/* Fills at most `max`, returns how many there are. */
size_t pull_peers(struct pull *pull, struct pull_peer *out, size_t max);

#endif
