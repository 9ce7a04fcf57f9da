/*
 * An ask: one request to move a segment, of rename(2) here, a tool or another node. What asks.c and
 * ask_remote.c share; others have it by pointer (move.h). The control loop's.
 */
#ifndef RAMP_ASK_H
#define RAMP_ASK_H

#include "move.h"

#define AGAIN_MS	100u
#define REMOTE_AGAIN_MS 1000u /* MIGRATE and CANCEL are repeated */

/* The drawing is in asks.c. */
enum ask_state { ASK_NEW, ASK_MOVING, ASK_WAITING, ASK_REMOTE, ASK_SEEING, ASK_AGAIN };

struct ask {
	LIST_ENTRY(ask) link; /* of transfers.asks */
	struct transfers *t;
	uint64_t handle;
	enum ask_state state;
	struct migrate_request request;
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
__attribute__((format(printf, 3, 4))) void ask_fail(struct ask *a, int code, const char *fmt, ...);
/* Fails, or tries again where this daemon is so young that it may only have yet to meet it. */
void ask_unreachable(struct ask *a, ramp_node_t node, const char *text);
/* The next look: at the bound, or earlier (0: at the bound). */
void ask_arm(struct ask *a, uint32_t soon_ms);
void ask_again(struct ask *a); /* from NEW, in a moment */

/* ---- ask_remote.c ---------------------------------------------------------------------------- */

/* The row is another node's: asks it, or answers why not. */
void ask_remote(struct ask *a, const struct segment_row *row);
/* Another node has asked this one. */
bool ask_is_remote(const struct ask *a);
/* What REMOTE repeats. */
void ask_remote_send(struct ask *a);
void ask_cancel_send(struct ask *a);
/* It is cancelled, and whoever could say more is down. */
void ask_cancelled_unseen(struct ask *a);
/* SEEING: answers where our tables have come as far. */
void ask_seeing_look(struct ask *a);

#endif
