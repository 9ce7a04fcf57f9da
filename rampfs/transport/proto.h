/*
 * The messages between daemons over a control connection.
 *
 * A body is a version byte and the fields in the order of the struct, little-endian. proto_put_x
 * encodes (the writer is bad where it does not fit); proto_get_x decodes a whole body and checks
 * every bound that can be checked by the body alone. It returns 0, or -EBADMSG (too short, too
 * long, another version, a number out of its range), or -ENOMEM.
 *
 * `k` and `epoch` are the attempt and the prepare's epoch, in every message from TRANSFER on.
 * `source_id` is the source's half of k; before ACCEPT there is no other half (R2).
 *
 * S is the source, T the target; the requester is the node (any one) that asked S for a migration.
 */
#ifndef RAMP_PROTO_H
#define RAMP_PROTO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ids.h"
#include "base/wire.h"

#define PROTO_VERSION	 3 /* when it changes, PEER_VERSION changes, too */
#define PROTO_RANGES_MAX 65536u
#define PROTO_TEXT_BYTES 256
#define PROTO_SIZE_MAX	 (UINT64_C(1) << 62)

enum proto_type {
	PROTO_RAFT = 1, /* an opaque blob for meta_receive */

	PROTO_CONNECT = 0x10,  /* S -> T: asks T to take it. Repeated until answered */
	PROTO_ACCEPT = 0x11,   /* T -> S: RESERVED */
	PROTO_REFUSE = 0x12,   /* T -> S: no room, name taken, ... */
	PROTO_TRANSFER = 0x13, /* S -> T: it is T's. Repeated until the tables show it (R5) */
	PROTO_TAKEN = 0x14,    /* T -> S: TAKEN is recorded */
	PROTO_REFUSED = 0x15,  /* T -> S: never taken, and never will be (R2) */
	PROTO_CLOSE = 0x16,    /* both ways, a hint: settled, look at your tables; or aborted */
	PROTO_PULLED = 0x17,   /* T -> S: how far the pull is, for the requester */
	PROTO_KEYS = 0x18,     /* S -> T, mode copy: frozen, read all of it. Repeated until GIVEN */
	PROTO_COPIED = 0x19,   /* T -> S: every page is here */
	PROTO_LISTED = 0x1a,   /* T -> S, a hint: T's own tables show the segment at T */
	PROTO_STORED =
		0x1b, /* S -> T, pre-copy: pages that were stored into; before ROUND or TRANSFER */
	PROTO_ROUND = 0x1c, /* S -> T: read them; round 0: all. Repeated until ROUND_READ */
	PROTO_LIMIT = 0x1f, /* both ways, at each connection: how much the sender sends ahead */
	PROTO_ROUND_READ = 0x1d, /* T -> S: T has all pages as they were in that round, or later */
	PROTO_FIGURES = 0x1e, /* both ways, and S -> requester: what is measured of a hand-over */
	PROTO_PREFILL =
		0x24, /* S -> T, pre-copy: whether a request waits for it by now, and its limit */

	PROTO_MIGRATE = 0x20,  /* requester -> S: move it */
	PROTO_ANSWER = 0x21,   /* S -> requester, once */
	PROTO_PROGRESS = 0x22, /* S -> requester */
	PROTO_CANCEL = 0x23,   /* requester -> S */

	PROTO_CLOCK = 0x30,   /* S -> T: asks for T's clock, and perhaps for the steps of a trace */
	PROTO_CLOCKED = 0x31, /* T -> S, after the steps that were asked for */
	PROTO_VERBS_WANTED = 0x40,   /* T -> S: verbs/message.h has this and the following */
	PROTO_VERBS_AT = 0x41,	     /* S -> T: where its adapter listens */
	PROTO_REGIONS_WANTED = 0x42, /* T -> S: asks for the regions of one key. Repeated */
	PROTO_REGIONS = 0x43,	     /* S -> T: memory that T may read */
	PROTO_REGIONS_DONE = 0x44,   /* T -> S, a hint: T has all before a byte of it */

	PROTO_GIVE_BACK = 0x50,	     /* owner -> each: does anything lie at these addresses? */
	PROTO_GIVE_BACK_SAID = 0x51, /* back to the owner, once for each */

	PROTO_STEP = 0x32, /* T -> S, and S -> requester, before the ANSWER: one step of a trace */
};

struct msg_range {
	uint64_t offset, len; /* bytes, page-aligned, len > 0 */
};

struct msg_connect {
	ramp_segment_t id;
	uint64_t source_id; /* not 0 */
	uint64_t epoch;	    /* of the row that the source saw, STABLE */
	uint64_t size, slack_bytes;
	ramp_incarnation_t src_inc;
	bool demand_only, progress, trace;
	bool prefill;		       /* no request waits for it (user.ramp.prefill) */
	uint64_t limit_bytes_s, batch; /* as struct migrate_request has them */
	char name[RAMP_NAME_MAX + 1];  /* in the target's directory */
	uint32_t n_ranges;	       /* populated, in order, apart, none beyond size's page */
	struct msg_range *ranges;      /* decoded: the caller frees */
};

struct msg_accept {
	ramp_segment_t id;
	uint64_t source_id, ticket;
	ramp_incarnation_t dst_inc;
};

struct msg_refuse {
	ramp_segment_t id;
	uint64_t source_id;
	uint32_t code; /* an errno; EAGAIN: not yet, ask again; EINPROGRESS: T is working on it */
	char text[PROTO_TEXT_BYTES];
};

/* TRANSFER, KEYS. */
struct msg_transfer {
	ramp_segment_t id;
	struct ramp_attempt k;
	uint64_t epoch;
	uint64_t size; /* at the freeze */
	ramp_incarnation_t src_inc, dst_inc;
	bool unchanged;	 /* false: pages that CONNECT did not list are REMOTE too */
	int64_t mtime_s; /* of the last write at the source */
	uint32_t mtime_ns;
	/* Pre-copy: `parts` STOREDs of this round name all pages that T must read again. 0: of no round */
	uint32_t round, parts;
};

#define PROTO_STORED_PAGES 4096u

/* Pages [first_page, first_page + PROTO_STORED_PAGES) of one round, a bit for each. */
struct msg_stored {
	ramp_segment_t id;
	struct ramp_attempt k;
	uint32_t round, part; /* parts of a round are sent in order, from 0 on */
	uint64_t first_page;  /* a multiple of PROTO_STORED_PAGES */
	uint64_t bits[PROTO_STORED_PAGES / 64];
};

/* ROUND, ROUND_READ (parts and size: 0). */
struct msg_round {
	ramp_segment_t id;
	struct ramp_attempt k;
	uint32_t round, parts; /* how many STOREDs came before it */
	uint64_t size;
};

struct msg_prefill {
	ramp_segment_t id;
	struct ramp_attempt k;
	bool prefill, progress; /* as in CONNECT */
	uint64_t limit_bytes_s, batch;
	char name[RAMP_NAME_MAX + 1]; /* that it will have at T */
};

/* TAKEN, REFUSED, CLOSE, COPIED, LISTED. */
struct msg_verdict {
	ramp_segment_t id;
	struct ramp_attempt k; /* CLOSE of an attempt that was not accepted: ticket 0 */
	uint64_t epoch;
};

struct msg_limit {
	uint64_t bytes_s; /* 0: none */
};

struct msg_pulled {
	ramp_segment_t id;
	struct ramp_attempt k;
	uint64_t done_pages, all_pages;
};

/* A half that is not known is all zeros. */
struct msg_figures {
	ramp_segment_t id;
	uint64_t epoch; /* the prepare's: the newer hand-over counts */
	ramp_node_t from, to;
	uint64_t at_ms; /* CLOCK_REALTIME */
	bool of_source; /* the source's half is known */
	uint64_t connect_us, rounds_us, prepare_us, asked_us, window_us;
	bool of_target;
	bool verbs;
	uint64_t pull_us;
	/* They travelled: in a pre-copy's rounds, in the window of a copy, for a touch, else. */
	uint64_t round_pages, window_pages, demand_pages, prefetch_pages;
	uint64_t hole_pages, local_pages, lost_pages;
};

struct msg_migrate {
	uint64_t request; /* a number of the requester; random at each start of it */
	ramp_segment_t id;
	ramp_node_t dst;
	char name[RAMP_NAME_MAX + 1];	   /* at the target */
	char from_name[RAMP_NAME_MAX + 1]; /* at the source; "": any */
	uint8_t mode, max_rounds;	   /* as in struct migrate_request */
	bool wait_stable, progress, trace, queues;
	bool force; /* no program is asked */
	uint32_t timeout_ms;
	uint64_t limit_bytes_s, batch; /* as struct migrate_request has them */
};

struct msg_answer {
	uint64_t request;
	uint32_t code;	/* an errno; 0: done */
	uint64_t epoch; /* of the row in the tables of S */
	char text[PROTO_TEXT_BYTES];
};

struct msg_give_back {
	uint64_t request; /* a number of the owner; random at each start of it */
	ramp_segment_t id;
	uint64_t epoch; /* of its row, STABLE */
	uint64_t addr, len;
};

struct msg_give_back_said {
	uint64_t request;
	uint32_t code; /* an errno; 0: nothing lies there, and nothing will */
	char text[PROTO_TEXT_BYTES];
};

struct msg_progress {
	uint64_t request;
	uint64_t done_pages, all_pages;
	char state[32];
};

struct msg_cancel {
	uint64_t request;
};

/* CLOCK, CLOCKED: the offset between CLOCK_MONOTONIC of two machines, by the four times of a round
   trip (RFC 5905, 8). */
struct msg_clock {
	ramp_segment_t id;
	uint64_t source_id; /* of the attempt that is traced */
	uint64_t sent_ns;   /* by S's clock */
	bool steps;
};

struct msg_clocked {
	uint64_t source_id;
	uint64_t sent_ns; /* of the CLOCK */
	uint64_t came_ns, answered_ns;
	uint32_t faults; /* page faults that the trace has whole by now */
	bool whole;	 /* no page is missing any more, or the segment is not known here */
};

struct msg_step {
	uint64_t about;	  /* T -> S: source_id; S -> requester: its request */
	ramp_node_t node; /* where it was done; 0: a remark on the trace */
	uint64_t page;	  /* of a page fault; UINT64_MAX: of the transfer */
	uint64_t at_ns;	  /* T -> S: T's clock; S -> requester: since the first step */
	char name[PROTO_TEXT_BYTES];
};

/* Checks a segment's name in a directory: not empty, not "." or "..", without a slash. */
bool proto_name_ok(const char *name);

void proto_put_connect(struct wire_w *w, const struct msg_connect *m);
int proto_get_connect(struct wire_r *r, struct msg_connect *m);
void proto_put_accept(struct wire_w *w, const struct msg_accept *m);
int proto_get_accept(struct wire_r *r, struct msg_accept *m);
void proto_put_refuse(struct wire_w *w, const struct msg_refuse *m);
int proto_get_refuse(struct wire_r *r, struct msg_refuse *m);
void proto_put_transfer(struct wire_w *w, const struct msg_transfer *m);
int proto_get_transfer(struct wire_r *r, struct msg_transfer *m);
void proto_put_stored(struct wire_w *w, const struct msg_stored *m);
int proto_get_stored(struct wire_r *r, struct msg_stored *m);
void proto_put_round(struct wire_w *w, const struct msg_round *m);
int proto_get_round(struct wire_r *r, struct msg_round *m);
void proto_put_prefill(struct wire_w *w, const struct msg_prefill *m);
int proto_get_prefill(struct wire_r *r, struct msg_prefill *m);
void proto_put_verdict(struct wire_w *w, const struct msg_verdict *m);
int proto_get_verdict(struct wire_r *r, struct msg_verdict *m);
void proto_put_limit(struct wire_w *w, const struct msg_limit *m);
int proto_get_limit(struct wire_r *r, struct msg_limit *m);
void proto_put_pulled(struct wire_w *w, const struct msg_pulled *m);
int proto_get_pulled(struct wire_r *r, struct msg_pulled *m);
void proto_put_figures(struct wire_w *w, const struct msg_figures *m);
int proto_get_figures(struct wire_r *r, struct msg_figures *m);
void proto_put_migrate(struct wire_w *w, const struct msg_migrate *m);
int proto_get_migrate(struct wire_r *r, struct msg_migrate *m);
void proto_put_answer(struct wire_w *w, const struct msg_answer *m);
int proto_get_answer(struct wire_r *r, struct msg_answer *m);
void proto_put_give_back(struct wire_w *w, const struct msg_give_back *m);
int proto_get_give_back(struct wire_r *r, struct msg_give_back *m);
void proto_put_give_back_said(struct wire_w *w, const struct msg_give_back_said *m);
int proto_get_give_back_said(struct wire_r *r, struct msg_give_back_said *m);
void proto_put_progress(struct wire_w *w, const struct msg_progress *m);
int proto_get_progress(struct wire_r *r, struct msg_progress *m);
void proto_put_cancel(struct wire_w *w, const struct msg_cancel *m);
int proto_get_cancel(struct wire_r *r, struct msg_cancel *m);
void proto_put_clock(struct wire_w *w, const struct msg_clock *m);
int proto_get_clock(struct wire_r *r, struct msg_clock *m);
void proto_put_clocked(struct wire_w *w, const struct msg_clocked *m);
int proto_get_clocked(struct wire_r *r, struct msg_clocked *m);
void proto_put_step(struct wire_w *w, const struct msg_step *m);
int proto_get_step(struct wire_r *r, struct msg_step *m);

/* Every message but CONNECT fits. */
#define PROTO_SMALL_BYTES 640
/* Returns how many bytes an encoded CONNECT takes at most. */
size_t proto_connect_bytes(const struct msg_connect *m);

#endif
