/*
 * One end of one migration: the object, the door of its states, its timer and its worker. Control
 * loop, except where a field says otherwise. The drawing of the states is in move.c.
 */
#ifndef RAMP_MOVE_H
#define RAMP_MOVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

#include "memory/page_set.h"

#include "transfer_core.h"

#define WINDOW_MS      100u /* RT boost of the control threads, from ACCEPT on */
#define BACKOFF_MIN_MS 50u
#define BACKOFF_MAX_MS 2000u

/* S_: at the source, T_: at the target. */
enum move_state {
	MOVE_NEW,
	S_CHECKING,
	S_CONNECTING,
	S_CONNECTED,
	S_WEIGHING,
	S_ROUNDS,
	S_RESTING,
	S_READ_AHEAD,
	S_QUIESCING,
	S_CLOSING,
	S_CLOSED,
	S_PREPARING,
	S_PREPARED,
	S_ASKING,
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
	T_ROUNDS,
	T_COPYING,
	T_TAKING,
	T_TAKEN,
	T_SETTLING,
	T_DROPPING,
	MOVE_END,
	MOVE_STATES
};

struct data_range;
struct source_rounds;

typedef void move_fn(struct move *m);

/* How long each part of an attempt took; what a client holds it for counts in none. */
struct move_times {
	uint64_t from_us; /* since when the present part lasts */
	uint64_t connect_us, rounds_us, prepare_us, asked_us;
};

/* Fields of the source's end. */
struct move_source {
	int fail_code; /* why it is given up; 0: it is not */
	char fail_text[RAMP_ERR_TEXT_BYTES];
	unsigned attempts;     /* for the same request */
	uint64_t came_us;      /* the request, where it is one of many; else 0 */
	uint32_t not_yet_ms;   /* S_CONNECTING: the last pause after a REFUSE that was EAGAIN */
	uint64_t copied_pages; /* S_COPYING: how many the target has */
	enum transfer_mode mode;
	char why[192];	    /* it has that mode */
	size_t why_bytes;   /* of it, without how it turned out (source_mode_add) */
	bool by_auto;	    /* mode auto has chosen the mode, or will */
	bool mapped;	    /* mode auto: by a program, at the last check */
	uint8_t max_rounds; /* of a pre-copy, the first one included */
	bool copy_mode;	    /* every page goes before it is given */
	bool precopy_mode;  /* pages go in rounds before prepare (rounds.c) */
	bool joined;	    /* its request came when it was a prefill (source_prefill.c) */
	bool was_closed; /* to stores: no other attempt follows, since its client counts on that */
	struct source_rounds
		*rounds;    /* owned; NULL: none. Where a worker has the move, the worker's */
	int prepare_result; /* S_PREPARING: of a prepare that failed */
	move_fn *then;	    /* S_ASKING: what follows it */
	uint64_t asked_ms;  /* S_QUIESCING: programs were asked then */
	struct move_times times;
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
	bool told_settled;     /* SETTLED was told */
	bool freeing;	       /* the bytes are to be freed */
	bool free_paused;      /* not before the timer */
	unsigned free_tries;
	char kept[RAMP_ERR_TEXT_BYTES]; /* why it can't be freed; empty: nothing keeps it */
	uint64_t window_from_us;	/* 0: the freeze was in another life */
	uint64_t shown_since_ms;	/* our tables have shown the target since; 0: not yet */
};

/* Fields of the target's end. */
struct move_target {
	bool source_hung_up;	    /* T_RESERVED, T_ROUNDS: the connection ended after ACCEPT */
	uint64_t hung_up_ms;	    /* T_ROUNDS: then */
	bool pull_begun;	    /* pull_begin was called */
	bool prefetch_wanted;	    /* all pages are wanted, as soon as the pull has begun */
	bool prefetch_begun;	    /* pull_prefetch_all was called */
	uint64_t prefetch_us;	    /* then */
	uint64_t prefetch_pages;    /* that were missing then */
	bool told_pull_over;	    /* pull_source_over was called */
	bool pull_said_done;	    /* the pull says that it is over, which is not believed yet */
	bool has_every_page;	    /* nothing is REMOTE any more */
	bool said_listed;	    /* LISTED went out: our tables show us as the owner */
	bool taken_is_stale;	    /* taken was answered ESTALE: the row is not in k */
	bool was_read_ahead;	    /* in rounds: what is missing was stored into since */
	struct pull_figures pulled; /* the pull's last word */
	/* T_ROUNDS (target_rounds.c). */
	uint32_t round;		     /* that is read, or was read last */
	uint32_t parts_round, parts; /* how many STOREDs of that round have come, in order */
	struct page_set stored;	     /* what they name */
	bool had_rounds;
	uint64_t round_pages,
		round_holes;  /* that all rounds have brought; one that came twice counts twice */
	uint64_t known_pages; /* that were here before the first one */
};

/* ABORTING, of an attempt whose prepare was, or may have been, committed. */
struct move_aborting {
	enum meta_proof proof;
	/* Another attempt follows. Set before ABORTING begins: source_give_up reads it. */
	bool then_again;
};

/* One end of one migration at this node. A segment has at most one. */
struct move {
	LIST_ENTRY(move) link; /* of transfers.moves */
	struct transfers *t;
	ramp_segment_t id;
	uint64_t serial; /* tells it from another move of the same segment */
	enum move_state state;
	uint64_t since_ms; /* in this state */
	bool queues;	   /* one of many: it is counted in its pair while it is under way */
	bool counted;
	struct seg *seg; /* a reference, or NULL */
	uid_t owner;	 /* the segment's, whose share of the workers its moves use */
	uv_timer_t timer;
	uint32_t backoff_ms;
	struct move_request *request; /* that waits for the move; NULL: none */

	/* The attempt. */
	ramp_node_t peer; /* the other end */
	char peer_name[RAMP_NODE_NAME_MAX + 1];
	ramp_incarnation_t peer_inc;
	struct ramp_attempt k;
	uint64_t row_epoch;	      /* the row's when the attempt began */
	uint64_t epoch;		      /* the prepare's */
	char name[RAMP_NAME_MAX + 1]; /* in the target's directory */
	uint64_t size, slack_bytes;
	struct data_range *ranges; /* owned */
	uint32_t n_ranges;
	bool demand_only, wants_progress, unchanged;
	bool prefill; /* no request waits for it, but the segment's row wants it (prefill.c) */
	uint64_t limit_bytes_s, batch; /* as struct migrate_request has them */
	uint64_t heard_ms;   /* S_CONNECTING, *_COPYING: since when the other end is silent */
	struct trace *trace; /* a reference; NULL: not traced */
	struct transfer_move shown; /* protected by transfers.lock; state NULL: nothing */

	/* Steps under way; none is begun twice. */
	bool proposing;	       /* a proposal */
	bool syncing, synced;  /* the linearizable read that an absent row needs */
	bool working;	       /* a worker has the move: the fields below are the worker's */
	bool look_again;       /* something changed while a worker had it */
	atomic_bool cancelled; /* read by the freeze's worker */
	move_fn *work, *work_done;
	STAILQ_ENTRY(move) in_line; /* S_FREEZING: of source_line.c */
	int work_rc;
	struct ramp_err work_err;

	struct move_source source;
	struct move_target target;
	struct move_aborting aborting;
};

/* The move of that segment; NULL: none. */
struct move *move_find(struct transfers *t, ramp_segment_t id);
/* Makes one in MOVE_NEW; takes the reference `seg` (may be NULL). NULL: no memory. */
struct move *move_new(struct transfers *t, ramp_segment_t id, struct seg *seg);
/* Makes one in MOVE_NEW by the record that an earlier daemon left. Takes the reference `seg` in any
   case. NULL: no memory. */
struct move *move_take_up(struct transfers *t, struct seg *seg, const struct record *record);
/* Records GIVEN or TAKEN, by which an attempt can be taken up. By a worker. Returns 0, or the errno of
   work_err. */
int move_record(struct move *m, enum record_kind kind);
/* Returns how many bytes that list has. */
uint64_t move_populated(const struct move *m);
/* Frees the list of populated pages: the target needs it until it has room, the source until the
   record is GIVEN. */
void move_forget_ranges(struct move *m);
/* Lets go of its segment. Where that is removed, its pages are freed here: so by a worker, if the move ends next. */
void move_let_go(struct move *m);
/* From any state that may end; frees it. */
void move_end(struct move *m);
/* Frees it, whatever its state: the daemon ends. */
void move_drop(struct move *m);

/* The one door: logs the step; one that the drawing does not have ends the daemon. */
void move_go(struct move *m, enum move_state from, enum move_state to);
const char *move_state_name(enum move_state state);
/* Shows how much of a round is left. The state is shown by move_go. Control loop. */
void move_show_round(struct move *m, uint32_t round, uint64_t left_pages);

/* Looks at the segment's record and row, and does what they call for; begins nothing that is under
   way. */
void move_look(struct transfers *t, ramp_segment_t id);
/* Sets the one timer. */
void move_tick_in(struct move *m, uint32_t ms);
/* The same, after a pause that grows. */
void move_retry(struct move *m);
/* Has a worker call `work`, then the control loop `done`. */
void move_work(struct move *m, move_fn *work, move_fn *done);
/* The same in two halves, for a worker that has several moves: from the first on a worker has this one, until it
   calls the second, which may free the move. */
void move_work_begin(struct move *m, move_fn *done);
void move_work_over(struct move *m);
/* Has another worker continue with it, after move_work_begin. */
void move_work_alone(struct move *m, move_fn *work);

/* The next pause; doubles it, up to BACKOFF_MAX_MS. */
uint32_t move_backoff(uint32_t *backoff_ms);

#endif
