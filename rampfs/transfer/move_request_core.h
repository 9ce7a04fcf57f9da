/*
 * A request to move a segment, of rename(2) here, a tool or another node: the object, its states
 * and its answer. Control loop, except where stated.
 */
#ifndef RAMP_MOVE_REQUEST_CORE_H
#define RAMP_MOVE_REQUEST_CORE_H

#include "move.h"

#define AGAIN_MS 100u

/* The drawing is in move_request.c. */
enum move_request_state {
	REQUEST_NEW,
	REQUEST_MOVING,
	REQUEST_WAITING,
	REQUEST_REMOTE,
	REQUEST_SEEING,
	REQUEST_AGAIN,
	REQUEST_QUEUED
};
#define REQUEST_STATES (REQUEST_QUEUED + 1)

struct move_request {
	LIST_ENTRY(move_request) link;	     /* of transfers.requests */
	LIST_ENTRY(move_request) of_segment; /* of transfers.requests_of */
	TAILQ_ENTRY(move_request) in_queue;  /* QUEUED: of its pair's queue */
	struct transfers *t;
	uint64_t handle;
	enum move_request_state state;
	struct migrate_request spec;
	migrate_done *done;
	void *arg;
	uv_timer_t timer;
	uint64_t came_us;
	uint64_t deadline_ms;	       /* 0: none */
	char chosen[PROTO_TEXT_BYTES]; /* the mode, and why: answered with success */
	uint64_t no_quorum_since_ms;   /* 0: a quorum answered at the last look */
	bool of_node;		       /* another node has asked this one (move_request_peer.c) */
	bool cancelled, gave_up;
	bool unheard;			       /* MOVING: the node that asks has hung up */
	ramp_node_t owner;		       /* REMOTE, SEEING */
	uint64_t epoch;			       /* SEEING: the row's, which our tables must show */
	uint8_t step;			       /* spec.in_steps: how far it may go by now */
	uint64_t held_since_ms, held_until_ms; /* 0: it was not connected yet */
};

/* ---- beginning ------------------------------------------------------------------------------- */

/* Any thread. */
struct move_request *move_request_new(struct transfers *t, const struct migrate_request *spec,
				      migrate_done *done, void *arg);
/* Begins it; `done` is called once. */
void move_request_enter(struct move_request *req);
/* The two, at once. */
void move_request_start(struct transfers *t, const struct migrate_request *spec, migrate_done *done,
			void *arg);
/* The two, the second posted to the control loop. Any thread. Returns the handle. */
uint64_t move_request_post(struct transfers *t, const struct migrate_request *spec,
			   migrate_done *done, void *arg);
struct move_request *move_request_find(struct transfers *t, uint64_t handle);

/* ---- states ---------------------------------------------------------------------------------- */

/* The one door: logs the step; a step that the drawing does not have ends the daemon. */
void move_request_go(struct move_request *req, enum move_request_state from,
		     enum move_request_state to);
/* Goes to AGAIN: begins again after AGAIN_MS. */
void move_request_again(struct move_request *req);
/* Its move could not begin, and has ended: begins again at once. */
void move_request_retry(struct move_request *req);
/* Sets the timer: to the deadline, or earlier (0: to the deadline). */
void move_request_arm(struct move_request *req, uint32_t soon_ms);

/* ---- answering ------------------------------------------------------------------------------- */

/* Answers, and frees it. */
void move_request_done(struct move_request *req, int result, const char *text);
__attribute__((format(printf, 3, 4))) void move_request_fail(struct move_request *req, int code,
							     const char *fmt, ...);
/* Fails, or begins again where this daemon is so young that it may not have met the node yet. */
void move_request_unreachable(struct move_request *req, ramp_node_t node, const char *text);
/* Answers the request that waits for the move, if there is one. */
void move_answer(struct move *m, int result, const char *text);
void move_request_progress(struct move_request *req, uint64_t done_pages, uint64_t all_pages,
			   const char *state);
void move_request_step(struct move_request *req, const struct transfer_step *step);
/* 0; -ENOENT (-ESTALE to another node): the row has another name than the request names. */
int move_request_check_name(const struct move_request *req, const struct segment_row *row);
/* The daemon ends: answers all. */
void move_requests_close(struct transfers *t);

#endif
