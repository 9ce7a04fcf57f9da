/*
 * An ask: one request to move a segment, of rename(2) here, a tool or another node. What asks.c and
 * move_request_remote.c share; others have it by pointer (move.h). The control loop's.
 */
#ifndef RAMP_MOVE_REQUEST_H
#define RAMP_MOVE_REQUEST_H

#include "move.h"

#define AGAIN_MS	100u
#define REMOTE_AGAIN_MS 1000u /* MIGRATE and CANCEL are repeated */

/* The drawing is in asks.c. */
enum move_request_state {
	REQUEST_NEW,
	REQUEST_MOVING,
	REQUEST_WAITING,
	REQUEST_REMOTE,
	REQUEST_SEEING,
	REQUEST_AGAIN
};

struct move_request {
	LIST_ENTRY(move_request) link; /* of transfers.requests */
	struct transfers *t;
	uint64_t handle;
	enum move_request_state state;
	struct migrate_request spec;
	migrate_done *done;
	void *arg;
	uv_timer_t timer;
	uint64_t deadline_ms;	     /* 0: none */
	uint64_t no_quorum_since_ms; /* 0: a quorum answered at the last look */
	bool cancelled, gave_up;
	bool unheard;	   /* MOVING: the node that asks has hung up */
	ramp_node_t owner; /* REMOTE, SEEING */
	uint64_t epoch;	   /* SEEING: what our tables must show */
};

/* ---- asks.c ---------------------------------------------------------------------------------- */

/* Answers, and frees it. */
__attribute__((format(printf, 3, 4))) void move_request_fail(struct move_request *req, int code,
							     const char *fmt, ...);
/* Fails, or tries again where this daemon is so young that it may only have yet to meet it. */
void move_request_unreachable(struct move_request *req, ramp_node_t node, const char *text);
/* The next look: at the bound, or earlier (0: at the bound). */
void move_request_arm(struct move_request *req, uint32_t soon_ms);
void move_request_again(struct move_request *req); /* from NEW, in a moment */

/* ---- move_request_remote.c ---------------------------------------------------------------------------- */

/* The row is another node's: asks it, or answers why not. */
void move_request_ask_owner(struct move_request *req, const struct segment_row *row);
/* Another node has asked this one. */
bool move_request_is_remote(const struct move_request *req);
/* What REMOTE repeats. */
void move_request_send(struct move_request *req);
void move_request_send_cancel(struct move_request *req);
/* It is cancelled, and whoever could say more is down. */
void move_request_cancelled_unseen(struct move_request *req);
/* SEEING: answers where our tables have come as far. */
void move_request_seeing_look(struct move_request *req);

#endif
