/*
 * Connections to the session socket, for the files that know them: session.c, newcomers.c for those
 * that are not settled yet, and doors.c for those that stand at the doorman's. All of it is the
 * control thread's.
 */
#ifndef RAMP_PROGRAMS_CONNS_H
#define RAMP_PROGRAMS_CONNS_H

#include <uv.h>

#include "base/throttle.h"
#include "programs/local.h"

enum conn_kind { CONN_FIRST, CONN_SESSION, CONN_TOOL };

struct conn {
	TAILQ_ENTRY(conn) link; /* in the listener's newcomers, or its conns */
	struct programs *programs;
	enum conn_kind kind;
	bool settled; /* a SESSION with its userfaultfd, or a TOOL */
	int fd;	      /* a SESSION's belongs to its space */
	uv_poll_t poll;
	pid_t pid;
	uid_t uid;
	gid_t gid;
	uint64_t since_ms;
	uint64_t cost_us;    /* what has been done for it as a newcomer */
	uint32_t counts;     /* a part of that: one in so many */
	bool ready, hung_up; /* something has come from it during a rest; its hang-up */
	TAILQ_ENTRY(conn) in_ready;
	struct space *space;	   /* SESSION: a reference */
	TAILQ_ENTRY(conn) in_line; /* SESSION that waits for a door */
	bool waits;
	struct door *door;	   /* which it has; or NULL */
	struct session_msg hello;  /* its */
	struct tool_request *tool; /* TOOL, until it hangs up */
};

/* Where a userfaultfd is awaited: one thread of the doorman. */
struct door {
	LIST_ENTRY(door) link;
	uint64_t space;
	uid_t uid;
	struct conn *conn; /* NULL: it has hung up meanwhile */
};

struct listener {
	struct programs *programs;
	int fd;
	int timer;
	uv_poll_t poll, rest; /* of fd, and of timer: when newcomers are accepted again */
	bool rests;	      /* they are not attended either, until then */
	uint64_t said_ms;     /* when it was last said that there is no descriptor */
	uv_timer_t tick;
	struct loop_wake look;
	int handles; /* uv handles that are not closed yet, of conns too */
	TAILQ_HEAD(conn_list, conn) conns, newcomers; /* the latter in the order of since_ms */
	struct conn_list ready, gone; /* of newcomers: what stands in line during rests */
	uint32_t n_conns;	      /* in both */
	LIST_HEAD(, door) doors;
	uint32_t n_doors;
	TAILQ_HEAD(, conn) line;  /* that wait for a door, in their order */
	struct throttle throttle; /* of what newcomers cost */
};

/* ---- session.c ---- */

/* Watches for the hang-up, for a first message, and for late answers where there may be some. */
void conn_watch(struct conn *conn);
/* What it has said is taken, or its hang-up, which may close it. */
void conn_attend(struct conn *conn, bool hung_up);
/* Says why in a message of that type, and closes. */
void conn_refuse(struct conn *conn, uint16_t type, int result, const char *text);

/* ---- newcomers.c ---- */

/* The timer, which the owner's handle watches, and closes. */
int newcomers_open(struct listener *listener, struct ramp_err *err);
/* From now on they are accepted. */
void newcomers_start(struct listener *listener);
/* Something has come from one, or its hang-up: attends it, now or when the rest is over. */
void newcomer_event(struct conn *conn, bool hung_up);
/* It has as long as a new one again. */
void newcomer_renew(struct conn *conn);
/* It is one no more: settled from here on; about to be closed. */
void newcomer_settle(struct conn *conn);
void newcomer_leave(struct conn *conn);
/* So much was done for it, here or elsewhere. */
void newcomer_cost(struct conn *conn, uint64_t us);
/* It is no mere noise: of what it has cost and will, one part in so many counts. */
void newcomer_counts(struct conn *conn, uint32_t parts);
/* Those that have had their time are closed, one after the other. */
void newcomers_expire(struct listener *listener);

/* ---- doors.c ---- */

/* Sends WELCOME where there is a door. False: there is none now, and when one is closed there may
   be: doors_line_up. */
bool doors_take(struct conn *conn);
void doors_line_up(struct conn *conn);
/* Who is at that space's door, or was; -1: not known any more. */
uid_t door_uid(const struct listener *listener, uint64_t space);
void doors_free(struct listener *listener);

#endif
