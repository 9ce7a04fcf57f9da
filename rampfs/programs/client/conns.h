/*
 * Connections to the session socket, for the files that know them: listener.c, pending.c for those
 * that are not settled yet, and broker_queue.c for those that stand at the broker's. All of it is the
 * control thread's.
 */
#ifndef RAMP_PROGRAMS_CONNS_H
#define RAMP_PROGRAMS_CONNS_H

#include <uv.h>

#include "base/throttle.h"
#include "programs/local.h"

enum conn_kind { CONN_FIRST, CONN_SESSION, CONN_TOOL };

struct session_conn {
	TAILQ_ENTRY(session_conn) link; /* in the listener's pending connections, or its conns */
	struct programs *programs;
	enum conn_kind kind;
	bool settled; /* a SESSION with its userfaultfd, or a TOOL */
	int fd;	      /* a SESSION's belongs to its client */
	uv_poll_t poll;
	pid_t pid;
	uid_t uid;
	gid_t gid;
	uint64_t since_ms;
	uint64_t cost_us;    /* what has been done for it as a pending connection */
	uint32_t counts;     /* a part of that: one in so many */
	bool ready, hung_up; /* something has come from it during a rest; its hang-up */
	TAILQ_ENTRY(session_conn) in_ready;
	struct space *client;		   /* SESSION: a reference */
	TAILQ_ENTRY(session_conn) in_line; /* SESSION that waits for a door */
	bool waits;
	struct broker_slot *door;  /* which it has; or NULL */
	struct session_msg hello;  /* its */
	struct tool_request *tool; /* TOOL, until it hangs up */
};

/* Where a userfaultfd is awaited: one thread of the broker. */
struct broker_slot {
	LIST_ENTRY(broker_slot) link;
	uint64_t client;
	uid_t uid;
	struct session_conn *conn; /* NULL: it has hung up meanwhile */
};

struct listener {
	struct programs *programs;
	int fd;
	int timer;
	uv_poll_t poll, rest; /* of fd, and of timer: when pending connections are accepted again */
	bool rests;	      /* they are not attended either, until then */
	uint64_t said_ms;     /* when it was last said that there is no descriptor */
	uv_timer_t tick;
	struct loop_wake look;
	int handles; /* uv handles that are not closed yet, of conns too */
	TAILQ_HEAD(conn_list, session_conn)
	conns, pending;		      /* the latter in the order of since_ms */
	struct conn_list ready, gone; /* of pending connections: what stands in line during rests */
	uint32_t n_conns;	      /* in both */
	LIST_HEAD(, broker_slot) doors;
	uint32_t n_slots;
	TAILQ_HEAD(, session_conn) line; /* that wait for a door, in their order */
	struct throttle throttle;	 /* of what pending connections cost */
};

/* ---- listener.c ---- */

/* Watches for the hang-up, for a first message, and for late answers where there may be some. */
void conn_watch(struct session_conn *conn);
/* What it has said is taken, or its hang-up, which may close it. */
void conn_attend(struct session_conn *conn, bool hung_up);
/* Says why in a message of that type, and closes. */
void conn_refuse(struct session_conn *conn, uint16_t type, int result, const char *text);

/* ---- pending.c ---- */

/* The timer, which the owner's handle watches, and closes. */
int pending_open(struct listener *listener, struct ramp_err *err);
/* From now on they are accepted. */
void pending_start(struct listener *listener);
/* Something has come from one, or its hang-up: attends it, now or when the rest is over. */
void pending_event(struct session_conn *conn, bool hung_up);
/* It has as long as a new one again. */
void conn_renew(struct session_conn *conn);
/* It is one no more: settled from here on; about to be closed. */
void conn_settle(struct session_conn *conn);
void conn_leave_pending(struct session_conn *conn);
/* So much was done for it, here or elsewhere. */
void pending_cost(struct session_conn *conn, uint64_t us);
/* It is no mere noise: of what it has cost and will, one part in so many counts. */
void pending_counts(struct session_conn *conn, uint32_t parts);
/* Those that have had their time are closed, one after the other. */
void pending_expire(struct listener *listener);

/* ---- broker_queue.c ---- */

/* Sends WELCOME where there is a door. False: there is none now, and when one is closed there may
   be: broker_queue_wait. */
bool broker_queue_take(struct session_conn *conn);
void broker_queue_wait(struct session_conn *conn);
/* Who is at that client's door, or was; -1: not known any more. */
uid_t broker_queue_uid(const struct listener *listener, uint64_t client);
void broker_queue_free(struct listener *listener);

#endif
