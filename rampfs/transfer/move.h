/*
 * What the files of this folder share. Everything here belongs to the control loop, except where a
 * field says otherwise.
 */
#ifndef RAMP_MOVE_H
#define RAMP_MOVE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

#include "memory/reserve.h"
#include "transfer.h"
#include "transport/proto.h"

#define CONNECT_MS	 5000u	/* a target that says nothing: EHOSTUNREACH */
#define CONNECT_AGAIN_MS 100u	/* CONNECT is repeated, first after this */
#define AWAY_MS		 1000u	/* ... and whose source hung up: our tables may be behind */
#define RESERVED_MS	 30000u /* a reservation that nobody comes for */
#define WINDOW_MS	 100u	/* control threads hurry so long once the target has accepted */
#define FREEZE_MS	 1000u	/* daemon's reads and writes under way */
#define REVOKE_MS	 2000u	/* programs */
#define BACKOFF_MIN_MS	 50u
#define BACKOFF_MAX_MS	 2000u
#define ATTEMPTS_MAX	 5u
#define MOVE_BUCKETS	 256u

/* The drawing is in transfer.c. */
enum move_state {
	MOVE_NEW,
	S_CHECKING,
	S_CONNECTING,
	S_PREPARING,
	S_FREEZING,
	S_COPYING,
	S_GIVEN,
	S_LEAVING,
	S_LEFT,
	S_FREEING,
	S_REVERTING,
	S_ROLLED_BACK,
	ABORTING,
	T_RESERVING,
	T_RESERVED,
	T_COPYING,
	T_TAKING,
	T_TAKEN,
	T_SETTLING,
	T_DROPPING,
	MOVE_END,
	MOVE_STATES
};

struct move_request;
struct collapse;
struct move;
typedef void move_fn(struct move *m);

/* What only the source's end has. */
struct move_source {
	int fail_code; /* why it is given up; 0: it is not */
	char fail_text[RAMP_ERR_TEXT_BYTES];
	unsigned attempts;     /* for the same request */
	uint32_t not_yet_ms;   /* S_CONNECTING: the last pause after a REFUSE that was EAGAIN */
	uint64_t copied_pages; /* S_COPYING: how many the target has */
	bool copy_mode;	       /* every page goes before it is given */
	bool frozen_for_copy;  /* frozen, and not given; the worker's */
	bool got_in_progress;  /* S_CONNECTING: the target's last word is that it takes room */
	bool sent_transfer;    /* TRANSFER went out, in this life */
	bool got_taken;	       /* TAKEN has come, or the tables show the target */
	bool got_refused;      /* REFUSED(k) has come, in this life */
	bool got_listed;       /* LISTED has come: the target's tables show it as the owner */
	bool row_shows_target; /* our tables show it as the owner */
	bool told_programs;    /* programs_gone was called, in this life */
	bool asked_prefetch;   /* given_prefetch_all was called for the request that joined */
	bool grant_failed;     /* found GIVEN, and its pages can't be read yet */
	bool reclaim_accepted; /* rolled back, and rampfs-migrate --reclaim accepts that */
	bool freeing;	       /* the bytes are to be freed */
	bool free_paused;      /* not before the timer */
	unsigned free_tries;
	uint64_t window_from_us; /* 0: the freeze was in another life */
	uint64_t shown_since_ms; /* our tables have shown the target since; 0: not yet */
};

/* What only the target's end has. */
struct move_target {
	bool source_hung_up;  /* T_RESERVED: the connection ended after ACCEPT */
	bool pull_begun;      /* pull_begin was called */
	bool prefetch_wanted; /* all pages are wanted, as soon as the pull has begun */
	bool prefetch_begun;  /* pull_hurry was called */
	bool told_pull_over;  /* pull_source_over was called */
	bool pull_said_done;  /* the pull says that it is over, which is not believed yet */
	bool has_every_page;  /* nothing is REMOTE any more */
	bool said_listed;     /* LISTED went out: our tables show us as the owner */
	uint64_t lost_pages;
};

/* ABORTING, of an attempt whose prepare was, or may have been, committed. */
struct move_aborting {
	enum meta_proof proof;
	bool then_again; /* another attempt follows; also set while it is only to be */
};

/* One end of one migration at this node; there is at most one a segment. */
struct move {
	LIST_ENTRY(move) link; /* of transfers.moves */
	struct transfers *t;
	ramp_segment_t id;
	uint64_t serial; /* tells it from another move of the same segment */
	enum move_state state;
	uint64_t since_ms; /* in this state */
	struct seg *seg;   /* a reference, or NULL */
	uid_t owner;	   /* the segment's, in whose share of the workers it is moved */
	uv_timer_t timer;
	uint32_t backoff_ms;
	struct move_request *request; /* that waits for it; NULL: none */

	/* The attempt. */
	ramp_node_t peer; /* the other end */
	char peer_name[RAMP_NODE_NAME_MAX + 1];
	ramp_incarnation_t peer_inc;
	struct ramp_attempt k;
	uint64_t row_epoch;	      /* the row's when the attempt began */
	uint64_t epoch;		      /* the prepare's */
	char name[RAMP_NAME_MAX + 1]; /* in the target's directory */
	uint64_t size, slack_bytes;
	struct room_range *ranges; /* owned */
	uint32_t n_ranges;
	bool demand_only, wants_progress, unchanged;
	uint64_t heard_ms;   /* S_CONNECTING, *_COPYING: since when the other end is silent */
	struct trace *trace; /* a reference; NULL: not traced */

	/* What is under way; nothing is begun twice. */
	bool proposing;	       /* a proposal */
	bool syncing, synced;  /* the linearizable read that an absent row needs */
	bool working;	       /* a worker has the move: the fields below are the worker's */
	bool look_again;       /* something changed while a worker had it */
	atomic_bool cancelled; /* read by the freeze's worker */
	move_fn *work, *work_done;
	int work_rc;
	struct ramp_err work_err;

	struct move_source source;
	struct move_target target;
	struct move_aborting aborting;
};

#define ANSWERED    64
#define TRACES_KEPT 4

/* The last answers to other nodes, for whoever asks again because it did not get one. */
struct answered {
	ramp_node_t node;
	struct msg_answer answer;
};

/* A target's trace outlives its move: it is asked for when all is over. */
struct kept_trace {
	uint64_t source_id; /* 0: none */
	struct trace *trace;
};

struct tracing;

struct transfers {
	struct transfers_config config;
	struct loop *loop;
	struct store *store;
	struct meta *meta;
	struct peers *peers;
	struct programs *programs;
	struct pull *pull;
	ramp_node_t self;
	ramp_incarnation_t incarnation;

	bool registered; /* R1: our incarnation is committed and not fenced */
	bool up_proposing, scanning, scan_again, closing, started;
	bool take_no_more; /* as a target; we are about to end */
	uint64_t started_ms;
	uint64_t serials;
	uint32_t jobs; /* workers that have something of ours */
	uv_timer_t *up_timer;
	LIST_HEAD(, move) moves[MOVE_BUCKETS];
	LIST_HEAD(, move_request) requests;
	struct answered answered[ANSWERED]; /* by move_request_remote.c */
	size_t n_answered;
	struct kept_trace traces[TRACES_KEPT]; /* by traces.c */
	size_t n_traces;
	LIST_HEAD(, tracing) tracings;
	STAILQ_HEAD(, collapse) collapses; /* settled segments; the first is under way */
	atomic_bool collapse_stop;	   /* we close */

	atomic_uint refs;		  /* of proposals and posted calls; the last one frees */
	atomic_uint_fast64_t last_handle; /* the last handle */

	pthread_mutex_t lock; /* protects what follows */
	ramp_segment_t *changed;
	size_t n_changed, cap_changed;
	bool changed_posted;
	ramp_segment_t *rolled_back;
	size_t n_rolled_back;
	struct transfers_status status;
};

/* ---- transfer.c ------------------------------------------------------------------------------ */

struct move *move_find(struct transfers *t, ramp_segment_t id);
/* A new one in MOVE_NEW; takes the reference `seg` (may be NULL). NULL: no memory. */
struct move *move_new(struct transfers *t, ramp_segment_t id, struct seg *seg);
/* The door. */
void move_go(struct move *m, enum move_state from, enum move_state to);
void move_tick(struct move *m); /* as the timer does */
/* Frees it, whatever its state: the daemon ends. */
void move_drop(struct move *m);
/* The list of what is populated: it is needed until T has its room, at S until the record is GIVEN. */
void move_forget_ranges(struct move *m);
/* From any state that may end; frees it. */
void move_end(struct move *m);
const char *move_state_name(enum move_state state);

/* What a former daemon left beside its bytes: the attempt as `record` has it, in MOVE_NEW. Takes
   the reference `seg` in any case. NULL: no memory. */
struct move *move_take_up(struct transfers *t, struct seg *seg, const struct record *record);
/* Answers whoever waits for it, if anybody does. */
void move_answer(struct move *m, int result, const char *text);

/* Looks at record and row, and does what they call for. Calls nothing twice that is under way. */
void move_look(struct transfers *t, ramp_segment_t id);
void move_retry(struct move *m);		/* looks again after a growing pause */
void move_tick_in(struct move *m, uint32_t ms); /* the one timer */
void move_work(struct move *m, move_fn *work, move_fn *done);

/* `done` runs on the loop if the move still stands. */
typedef void move_proposed(struct move *m, const struct meta_reply *reply);
void move_propose(struct move *m, struct meta_command *command, move_proposed *done);
void move_propose_abort(struct move *m, enum meta_proof proof);
/* Reads linearizably, once, then looks again with m->synced set. */
void move_sync(struct move *m);

bool row_in_attempt(const struct segment_row *row, struct ramp_attempt k);
/* That incarnation is over, by a committed fact. Read the row first: the tables must be at least
   as new as the prepare that named the incarnation (R1). */
bool move_node_over(struct transfers *t, ramp_node_t node, ramp_incarnation_t incarnation);
void move_node_name(struct transfers *t, ramp_node_t node, char name[RAMP_NODE_NAME_MAX + 1]);

/* One small message of proto.h by its encoder `put`. */
#define MOVE_SEND(t, to, type, put, msg)                                                           \
	do {                                                                                       \
		uint8_t buf_[PROTO_SMALL_BYTES];                                                   \
		struct wire_w w_;                                                                  \
                                                                                                   \
		wire_w_init(&w_, buf_, sizeof(buf_));                                              \
		put(&w_, msg);                                                                     \
		peer_send((t)->peers, to, type, buf_, w_.len);                                     \
	} while (0)
/* TAKEN, REFUSED, CLOSE, LISTED: a word on the attempt k. */
void move_say(struct transfers *t, ramp_node_t to, uint8_t type, ramp_segment_t id,
	      struct ramp_attempt k, uint64_t epoch);
/* False, and the message counts as malformed, where its decoder says so by `rc`. */
bool move_heard(struct wire_r *body, int rc);
/* The move of that segment whose other end is `from`. */
struct move *move_with(struct transfers *t, ramp_segment_t id, ramp_node_t from);

uint64_t move_now_ms(void);
uint64_t move_now_us(void);
uint32_t move_backoff(uint32_t *backoff_ms);
void transfers_get(struct transfers *t);
void transfers_put(struct transfers *t);
void rolled_back_set(struct transfers *t, ramp_segment_t id, bool on);

/* ---- source.c -------------------------------------------------------------------------------- */

/* Begins; the ask is answered whatever happens. */
void source_start(struct transfers *t, struct move_request *req, const struct segment_row *row,
		  struct seg *seg);
void source_take_up(struct transfers *t, struct seg *seg, const struct record *record);
void source_look(struct move *m);
void source_connecting_look(struct move *m);
void source_tick(struct move *m);
/* Gives up before GIVEN; false: it is too late. */
bool source_cancel(struct move *m, int code, const char *text);
/* True once the record is GIVEN (or may be: the worker is at it). */
bool source_past_return(const struct move *m);
/* Everybody is out: as it was, keys first. A worker's call. */
void source_undo(struct move *m);
/* GIVEN and TRANSFER, or all is undone (work_rc). A worker's call; then source_given. */
void source_give(struct move *m);
void source_given(struct move *m);
__attribute__((format(printf, 3, 4))) void source_fail(struct move *m, int code, const char *fmt,
						       ...);
/* R4: fail_code and fail_text say why. */
void source_give_up(struct move *m);
/* Another attempt at the same request, from `from`. */
void source_again(struct move *m, enum move_state from);
void source_reclaim(struct move *m); /* S_ROLLED_BACK: it is accepted */
void source_listen(struct transfers *t);

/* ---- given.c --------------------------------------------------------------------------------- */

/* T may read the segment under the attempt's key; not any more. Workers' calls. */
int given_grant(struct move *m);
void given_ungrant(struct move *m);
void source_count(struct transfers *t, uint64_t *counter); /* one more, of transfers.status */
/* S_GIVEN, S_LEFT, S_ROLLED_BACK: does what the row calls for. */
void given_look(struct move *m);
void given_tick(struct move *m);
/* TRANSFER or KEYS; any thread that has the move. */
void given_send(struct move *m, uint8_t type);
void given_resend(struct move *m);	 /* ... unless the tables show more already */
void given_window(struct move *m);	 /* T has it: how long could nobody touch it? */
void given_leave(struct move *m);	 /* S_GIVEN: tells the programs */
void given_prefetch_all(struct move *m); /* S_LEFT, on demand: asks T to pull all of it */
/* Its record is GIVEN, and by the row it is ours again: as a daemon finds it that has just begun.
 */
bool given_comes_back(struct transfers *t, const struct segment_row *row);

/* ---- target.c -------------------------------------------------------------------------------- */

void target_take_up(struct transfers *t, struct seg *seg, const struct record *record);
void target_look(struct move *m);
void target_tick(struct move *m);
void target_propose_taken(struct move *m);
void target_pulled(struct move *m, uint64_t lost);
/* The source hung up; `over`: it is here again as another incarnation. */
void target_source_away(struct move *m, bool over);
void target_listen(struct transfers *t);

/* R2: to TRANSFER(k), or KEYS(k), of what is not reserved. */
void target_answer(struct transfers *t, ramp_node_t from, const struct msg_transfer *tr);
void target_drop(struct move *m); /* R2: k is never taken from here on */
/* The daemon ends: what is only reserved would hold its room until the next one. */
void target_release(struct move *m);
void target_prefetch(struct move *m);
void target_pulled_send(struct move *m);
/* What KEYS or TRANSFER says of the size, where CONNECT's list is true no more. A worker's. */
int target_widen(struct move *m);
int target_begin_pull(struct move *m);

/* ---- collapse.c ------------------------------------------------------------------------------ */

void collapse_begin(struct transfers *t, ramp_segment_t id);
void collapses_close(struct transfers *t); /* after the last worker is back */

/* ---- copy.c ---------------------------------------------------------------------------------- */

void copy_begin(struct move *m); /* S_FREEZING, frozen: T may read */
void copy_source_tick(struct move *m);
void copy_heard(struct move *m, uint64_t done_pages);
/* Gives access back; fail_code says why. */
void copy_stop(struct move *m);
void copy_target_tick(struct move *m);
void copy_pulled(struct move *m, uint64_t lost);
void copy_close(struct move *m); /* the daemon ends */
void copy_listen(struct transfers *t);

/* ---- asks.c ---------------------------------------------------------------------------------- */

void move_request_done(struct move_request *req, int result, const char *text);
/* What it asked for could not begin, and may in a moment: it has no move any more. */
void move_request_retry(struct move_request *req);
/* 0, or -ENOENT (-ESTALE to another node): the row's name is not the one that was asked for. */
int move_request_check_name(const struct move_request *req, const struct segment_row *row);
/* Asks; `done` is answered once. */
void move_request_start(struct transfers *t, const struct migrate_request *request,
			migrate_done *done, void *arg);
/* The same in two steps; move_request_new on any thread. */
struct move_request *move_request_new(struct transfers *t, const struct migrate_request *request,
				      migrate_done *done, void *arg, uint64_t handle);
void move_request_enter(struct move_request *req);
struct move_request *move_request_of(struct transfers *t, migrate_done *done, const void *arg);
void move_request_cancel(struct move_request *req);
void move_request_progress(struct move_request *req, uint64_t done_pages, uint64_t all_pages,
			   const char *state);
void move_request_step(struct move_request *req, const struct transfer_step *step);
struct move_request *move_request_find(struct transfers *t, uint64_t handle);
struct transfers *move_request_transfers(const struct move_request *req);
const struct migrate_request *move_request_spec(const struct move_request *req);
void move_requests_look(struct transfers *t, ramp_segment_t id);
void move_requests_close(struct transfers *t);

/* ---- move_request_remote.c ---------------------------------------------------------------------------- */

void move_request_on_step(struct transfers *t, ramp_node_t from, const struct msg_step *step);
void move_requests_peer_up(struct transfers *t, ramp_node_t node);
void move_requests_peer_down(struct transfers *t, ramp_node_t node);
void move_requests_listen(struct transfers *t);

/* ---- traces.c -------------------------------------------------------------------------------- */

/* A new attempt at this end is traced from now on. */
void trace_source(struct move *m);
void trace_target(struct move *m);
/* The answer is known; true: the ask `handle` gets it when it has had the steps of both ends. */
bool trace_collect(struct move *m, uint64_t handle, int result, const char *text);
void traces_close(struct transfers *t);
void traces_listen(struct transfers *t);

/* ---- tools.c -------------------------------------------------------------------------------- */

void tools_listen(struct transfers *t);

#endif
