/*
 * A small cluster for the tests of rampfs/transfer: each node is a process with a real store, real
 * peers over loopback and the real transfer floor; metadata, programs and pulls are doubles with
 * the contracts of meta.h, programs.h and pull.h, whose truth lies in memory that all share.
 *
 * Faults come in at the boundaries: a message is dropped, doubled or late (peer_send), a process
 * is killed before or after a record, a proposal or a message, the agreement is gone, tables are
 * behind. transfer_faults.c catches the calls at link time (--wrap), so that production code knows
 * nothing of it.
 */
#ifndef TRANSFER_WORLD_H
#define TRANSFER_WORLD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "meta/meta.h"
#include "programs/programs.h"
#include "pull/pull.h"
#include "transfer/transfer.h"

#define NODES	 3 /* numbered 1.. */
#define ROWS	 64
#define EXPORTS	 64
#define ASKS	 64
#define PATH_LEN 320
#define REST_MS	 20000
#define CAPACITY (UINT64_C(256) << 20)

/* Where a fault may be injected. */
enum where {
	AT_SEND = 1,   /* + enum proto_type */
	AT_RECORD,     /* + enum record_kind: before it is written */
	AFTER_RECORD,  /* + enum record_kind */
	AT_PROPOSE,    /* + enum meta_command_type: before it is proposed */
	AFTER_PROPOSE, /* applied, not yet answered */
	AT_REVOKE,     /* DO_DOUBLE: it takes as long as if a program did not answer */
	AT_REMOVE,     /* store_remove */
	AFTER_REMOVE,
	AT_SCAN,    /* populated_list */
	AT_RESERVE, /* reserve_memory */
	AT_PULL,    /* after half of the pages */
	AT_GRANT,   /* serve_grant */
	AT_BEGIN,   /* pull_begin */
	AT_WATCH,   /* programs_watch */
	AT_LOOK,    /* programs_stored */
	AT_LAST,    /* programs_stored_last */
	AT_END,	    /* before it is said that every page is here */
	AT_AHEAD,   /* programs_close_ahead */
	AT_CLOSE,   /* programs_close_stores */
};
enum what { DO_KILL = 1, DO_DROP, DO_DOUBLE, DO_DELAY };
#define POINT(where, kind) ((uint32_t)(where) << 16 | (uint32_t)(kind))

struct fault {
	_Atomic uint32_t point; /* 0: none armed */
	uint32_t what, times, skip;
	atomic_uint hits;
};

/* How programs store into huge pages: a little of each, all of each, or all of others each time. */
enum huge { NOT_HUGE, HUGE_THIN, HUGE_FLAT, HUGE_ROVING };

struct answer {
	atomic_bool done;
	_Atomic uint8_t held; /* in steps: where it waits (enum session_step) */
	int result;
	char text[RAMP_ERR_TEXT_BYTES];
};

/* The access of a node's programs to a segment, as the double of programs.h keeps it. */
struct local_program {
	bool mapped;	/* some program has it mapped; outlives a daemon */
	bool access;	/* ... and may touch it now */
	bool frozen;	/* programs_revoke was the last */
	bool closed;	/* programs_close_stores was: they load alone */
	bool unmovable; /* programs_may_move says EBUSY */
};

struct world {
	pthread_mutex_t lock; /* robust; protects what follows down to `fault` */
	uint64_t version;     /* of rows and nodes */
	struct segment_row rows[ROWS];
	bool row_used[ROWS];
	uint64_t row_version[ROWS];
	struct node_row nodes[NODES + 1];
	uint64_t nodes_version;
	struct {
		bool used;
		ramp_node_t node;
		ramp_incarnation_t incarnation;
		struct tp_key key;
		ramp_node_t reader;
	} exports[EXPORTS];
	struct local_program programs[NODES + 1][ROWS];
	atomic_uint looks[ROWS]; /* programs_stored since programs_watch */
	atomic_uint watches;	 /* programs_watch without programs_unwatch */
	uint64_t double_access;	 /* how often two nodes' programs had access at once */
	uint64_t keys_at_return; /* programs_restore while the key could still be read under */
	uint64_t taken_blind;	 /* ... taken was committed, and a program there had no access */

	struct fault fault[NODES + 1];
	atomic_bool quorum;
	atomic_bool no_leader[NODES + 1]; /* a node knows none, though there is one */
	atomic_uint behind_ms[NODES + 1]; /* a node's tables are that old */
	atomic_bool by_copy[NODES + 1];	  /* a node that starts has no metadata */
	atomic_uint sources_over;	  /* calls of pull_source_over */
	atomic_uint lose_answers;	  /* the next n proposals happen, but answer -ETIMEDOUT */
	atomic_uint chaos_per_mille;	  /* messages that are dropped, doubled or late */
	atomic_bool hold;		  /* DO_DELAY AT_SCAN, _RESERVE to _END: while set */
	atomic_bool hold_revoke;	  /* DO_DELAY AT_REVOKE: the same */
	atomic_bool hold_collapse;	  /* collapse_segment does not begin while set */
	atomic_bool hold_scan;		  /* no daemon goes through all rows while set */
	atomic_bool pull_stopped;	  /* nothing is pulled */
	atomic_bool lingers[NODES + 1];	  /* it closes, and its loop still runs: what ends later */
	atomic_bool linger;		  /* ... it does so while this is set */
	atomic_uint lost_watched;	  /* pull_watch_lost of a segment with lost pages */
	atomic_bool sessions_away;	  /* a daemon's programs have not come to it yet */
	atomic_uint hasty_waits;	  /* for them, before all of normal priority */
	atomic_uint quiesce_ms;		  /* of daemons that start; 0: the usual time */
	atomic_bool unanswered;		  /* programs were asked, and do not answer while set */
	atomic_bool forced;		  /* no program is asked for a move */
	atomic_int mode;		  /* enum transfer_mode of every move */
	atomic_uint max_rounds;		  /* of every move */
	atomic_int huge;		  /* enum huge: mode auto finds huge pages */
	atomic_uint split_all;		  /* calls of programs_split for whatever was stored into */
	atomic_bool queues;		  /* every move is one of many */
	atomic_uint shared_looks;	  /* calls of programs_prelook_many */
	atomic_bool all_count; /* the last look finds all pages, for a change of mappings */
	_Atomic uint64_t limit_bytes_s; /* of every move; 0: none */
	_Atomic uint64_t link_bytes_s;	/* of each link; 0: as it was measured */
	_Atomic ramp_node_t from;	/* of what is asked next */
	char from_name[16];		/* the same */
	char to_name[16];		/* the same; empty: the name that it has */
	atomic_bool running[NODES + 1]; /* the daemon's control loop runs */
	_Atomic uint64_t window_us[NODES + 1];
	struct answer answers[ASKS];
	char base[256];
	pid_t pid; /* of the story */
};
extern struct world *world;

/* ---- for the stories ------------------------------------------------------------------------- */

/* Looks every millisecond until `what` holds; fails the story after REST_MS looks. */
#define eventually(what)                                                                           \
	do {                                                                                       \
		int looks = 0;                                                                     \
		while (!(what) && looks++ < REST_MS)                                               \
			usleep(1000);                                                              \
		ck_assert_msg(looks <= REST_MS, "never: %s", #what);                               \
	} while (0)

/* First thing in main. 0, or an exit status. */
int world_namespace(void);
/* Fresh stores, a fresh world, all three nodes up. */
void world_open(void);
void world_open_precopy(void); /* ... and all moves in mode precopy */
void world_open_copy(void);    /* ... and all moves in mode copy */
void world_close_nodes(void);  /* in order */
/* The same, and nothing is left. */
void world_close(void);
/* A node begins to end and comes no further than to transfers_close, until it is let. */
void world_end(ramp_node_t node);
/* The same, and it comes no further than to its workers, which are held. */
void world_begin_end(ramp_node_t node);
void world_let_end(ramp_node_t node);
void world_take_no_more(ramp_node_t node);
/* One closes their connection; they connect again. */
void world_hang_up(ramp_node_t node, ramp_node_t peer);
void world_kill(ramp_node_t node);	/* kill -9 of the daemon */
void world_wait_dead(ramp_node_t node); /* ... by a fault that was armed */
/* The same, by a move that `node` is asked for. */
void world_ask_dead(ramp_node_t node, ramp_segment_t id, ramp_node_t dst, ramp_node_t victim);
/* Makes n segments at `node`, and asks it to move them as many at once: one of them is held within its window
   (hold_revoke), and the others wait for theirs. */
void world_ask_many(ramp_node_t node, ramp_node_t dst, int n, ramp_segment_t *ids, int *asks);
void world_start(ramp_node_t node);  /* the daemon starts (again) */
void world_reboot(ramp_node_t node); /* kill -9, and the store is gone: another incarnation */
void world_fence(ramp_node_t node);  /* its committed incarnation is over, says the operator */
void world_arm(ramp_node_t node, uint32_t point, enum what what, uint32_t skip, uint32_t times);

/* A STABLE segment at `node` with `pages` pages of a pattern of its own; every `every`th page only
   (0: none), so that the rest are holes. Returns its id. */
ramp_segment_t world_segment(ramp_node_t node, const char *name, uint64_t pages, uint64_t every);
/* Its owner fills the holes too, as a program would. */
void world_fill_holes(ramp_segment_t id);
/* ... or frees each page that is populated and stores into another, halfway to the next
   one, that is a hole. */
void world_move_data(ramp_segment_t id);
/* ... or makes a hole of all pages from there on, without a change of its size. */
void world_cut(ramp_segment_t id, uint64_t pages, bool punch);
/* ... or makes it another size. */
void world_resize(ramp_segment_t id, uint64_t pages);
void world_unmovable(ramp_node_t node, ramp_segment_t id);
/* The next reservation at `node` waits until world->hold is false; returns when it is made. */
void world_hold_reservation(ramp_node_t node);
void world_wait_reservation(ramp_node_t node);
/* Asks `node` to move; world_answer waits for it. */
int world_ask(ramp_node_t node, ramp_segment_t id, ramp_node_t dst, uint32_t timeout_ms, bool wait);
/* The same, in steps: it waits after `step`, hold_ms at most (0: the usual time). */
int world_connect(ramp_node_t node, ramp_segment_t id, ramp_node_t dst, enum session_step step,
		  uint32_t hold_ms);
void world_go(ramp_node_t node, int ask, enum session_step step, uint32_t hold_ms);
int world_answer(int ask);
const char *world_text(int ask);
void world_cancel(ramp_node_t node, int ask);
int world_move(ramp_node_t node, ramp_segment_t id, ramp_node_t dst); /* the two, waiting, 10 s */
int world_reclaim(ramp_node_t node, ramp_segment_t id);
/* A tool's request with that limit, and no node to move it to: the answer says whether that was looked for. */
int world_limited(ramp_node_t node, ramp_segment_t id, uint64_t limit_bytes_s);
/* The pull says that every page is here, which may be late and about an earlier copy. */
void world_say_finished(ramp_node_t node, ramp_segment_t id);
/* A program of the node that was asked has answered. */
void world_say_answered(ramp_node_t node, ramp_segment_t id);
struct segment_row world_row(ramp_segment_t id);
bool world_shows(ramp_node_t node, ramp_segment_t id); /* its tables show it as its own */
ramp_node_t world_owner(ramp_segment_t id);	       /* as the row says */
void world_unlink(ramp_segment_t id);
void world_rename(ramp_segment_t id, const char *name); /* by yet another node */
/* Its row wants it near that node, as setfattr says; 0: near none. */
void world_prefill(ramp_segment_t id, ramp_node_t node);
/* The state that the node says: "" where there is nothing to tell, and of why in `why`. */
const char *world_prefill_state(ramp_node_t node, ramp_segment_t id, struct transfer_prefill *out);
/* The same of its move. */
const char *world_move_state(ramp_node_t node, ramp_segment_t id, struct transfer_move *out);
struct msg_figures world_figures(ramp_node_t node, ramp_segment_t id);
void world_hold(ramp_node_t node, ramp_segment_t id); /* a program maps it */
struct local_program world_program(ramp_node_t node, ramp_segment_t id);
bool world_rolled_back(ramp_node_t node, ramp_segment_t id);
bool world_copying(ramp_node_t node, ramp_segment_t id); /* readers and writers wait */
uint64_t world_failed(ramp_node_t node);		 /* moves, by what its daemon counts */

/* Waits until nothing is under way, and checks: the row STABLE, its owner's record OWNED and its
   bytes right, no record anywhere else, never two with access. */
void world_rest(ramp_segment_t id);
/* The same without the bytes (some are lost, or there is nothing left). */
void world_rest_lost(ramp_segment_t id);
/* True where a file of the segment is in the node's store. */
bool world_has_file(ramp_node_t node, ramp_segment_t id);
bool world_reserved(ramp_node_t node);		      /* it has a reservation */
void world_wait_peers(ramp_node_t node, uint32_t up); /* it is connected to `up` others */
uint64_t world_blocks(ramp_node_t node, ramp_segment_t id);
uint64_t world_used(ramp_node_t node); /* bytes of its store, also of files without a name */
void world_path(ramp_node_t node, ramp_segment_t id, char path[PATH_LEN]);

/* ---- for the doubles ------------------------------------------------------------------------- */

void world_lock(void);
void world_unlock(void);
ramp_node_t world_self(void); /* in a node's process */
/* True where the armed fault is this one (and it is counted); kills by itself. */
enum what fault_hit(uint32_t point);
void fault_late_wait(void); /* until no message is late any more */
void world_address(ramp_node_t node, char address[64]);
struct meta *double_meta_open(const struct meta_config *config);
struct programs *double_programs_open(void);
void double_programs_answered(ramp_segment_t id);
struct tool_request {
	void (*answered)(int result); /* control loop */
};
const struct programs_tools *double_programs_tools(struct programs *programs);
int world_node_main(ramp_node_t node, int sock); /* transfer_node.c: a daemon */

/* Commands to a node's process. */
enum order {
	ORDER_MIGRATE = 1,
	ORDER_CANCEL,
	ORDER_GO,
	ORDER_CREATE,
	ORDER_RECORD,
	ORDER_TOOL,
	ORDER_FINISHED,
	ORDER_ANSWERED,
	ORDER_STATUS,
	ORDER_TAKE_NO_MORE,
	ORDER_HANG_UP,
	ORDER_QUIT
};
struct command {
	uint32_t order;
	int ask;
	ramp_segment_t id;
	ramp_node_t dst;
	uint32_t timeout_ms, hold_ms;
	uint8_t step; /* enum session_step; 0: not in steps */
	uint8_t mode; /* of a tool's request */
	uint64_t limit_bytes_s;
	bool wait;
	char name[RAMP_NAME_MAX + 1];
};
struct command_reply {
	int result;
	struct record record;
	uint32_t moves, peers_up; /* moves: but reservations, which may be dropped at any time */
	bool rolled_back, reserved, known; /* known: the node's tables have the row */
	bool shown;			   /* ... and it is the node's */
	bool copying;			   /* seg_copying */
	uint64_t failed;
	struct transfer_prefill prefill; /* state NULL: there is nothing to tell */
	char prefill_state[16];		 /* ... which is a pointer of another process */
	struct transfer_move move;	 /* the same */
	char move_state[32];
	struct msg_figures figures; /* of the last hand-over; id 0: none */
};

#endif
