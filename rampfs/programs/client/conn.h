/*
 * Connections to the session socket (conn.c). All of this belongs to the control thread.
 */
#ifndef RAMP_PROGRAMS_CONN_H
#define RAMP_PROGRAMS_CONN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <uv.h>

#include "base/session.h"
#include "quota.h"

struct programs;
struct session_conn;
struct client;
struct subscriber;
struct tool_batch;
struct tool_request;

enum conn_kind { CONN_FIRST, CONN_SESSION, CONN_TOOL, CONN_STEPS, CONN_SUBSCRIBER };

/* The handlers of a kind of connection; listener.c and session_start.c give them. */
struct conn_kind_ops {
	enum conn_kind kind;
	/* Receives what has come, or handles the hang-up, which may close it. */
	void (*event)(struct session_conn *conn, bool hung_up);
	/* It is closed except for its socket: closes that, or leaves it to the end of its
	   client. */
	void (*gone)(struct session_conn *conn);
};

struct session_conn {
	TAILQ_ENTRY(session_conn) link; /* in conns->pending, or conns->settled */
	struct programs *programs;
	const struct conn_kind_ops *ops;
	bool settled; /* it is a SESSION with its userfaultfd, a TOOL or a SUBSCRIBER */
	int fd;	      /* a SESSION's belongs to its client */
	uv_poll_t poll;
	pid_t pid;
	uid_t uid;
	gid_t gid;
	uint64_t since_ms;
	uint64_t cost_us;    /* processor time spent on it as a pending connection */
	uint32_t counts;     /* of that, one part in `counts` is charged */
	bool ready, hung_up; /* an event came during a rest; it is (also) a hang-up */
	TAILQ_ENTRY(session_conn) in_ready;
	struct client *client;		   /* SESSION: a reference */
	TAILQ_ENTRY(session_conn) in_line; /* a SESSION that waits for a slot at the broker */
	bool waits;			   /* it is in that line */
	struct broker_slot *slot;	   /* the slot that it has, or NULL */
	struct session_msg hello;	   /* its HELLO */
	struct tool_request *tool;	   /* TOOL, until it hangs up; or: */
	struct tool_batch *batch;
	struct subscriber *subscriber; /* SUBSCRIBER, until it hangs up */
};

/* A slot at the broker: one thread of it, which waits for one userfaultfd. */
struct broker_slot {
	LIST_ENTRY(broker_slot) link;
	uint64_t client;
	uid_t uid;
	struct session_conn *conn; /* NULL: it has hung up meanwhile */
};

/* All connections. */
struct conns {
	int handles; /* uv handles that are not closed yet, the listener's too */
	/* `pending` is in the order of since_ms. */
	TAILQ_HEAD(conn_list, session_conn) settled, pending;
	struct conn_list ready, gone; /* pending ones with an event, in line until a rest is over */
	uint32_t count;		      /* settled and pending */
	LIST_HEAD(, broker_slot) slots;
	uint32_t n_slots;
	/* Sessions that wait for a slot, in the order in which they came. */
	TAILQ_HEAD(, session_conn) line;
	const struct conn_kind_ops *first; /* the kind of a connection that has sent nothing yet */
	/* Handles an event of a connection that is not settled: calls its kind's `event`, now or
	   after a rest. */
	void (*pending_event)(struct session_conn *conn, bool hung_up);
};

/* Watches for the hang-up, for a first message, and for late answers where there may be some. */
void conn_watch(struct session_conn *conn);
/* The first message has said its kind: charges it to that quota. False: its user has too many. */
bool conn_become(struct session_conn *conn, const struct conn_kind_ops *ops, enum quota_kind what,
		 uint32_t max);
/* Sends to a tool; closes after an ANSWER. */
void conn_send(struct session_conn *conn, const struct session_msg *msg);
/* Sends `result` and `text` in a message of that type, and closes. */
void conn_refuse(struct session_conn *conn, uint16_t type, int result, const char *text);
/* The same if its process can't be had (pidfd: -errno from conn_pidfd), or if there is no memory
   (pidfd >= 0). */
void conn_refuse_lack(struct session_conn *conn, uint16_t type, int pidfd);
/* Returns a pidfd of the process that connected, also if its number is another process's by now;
   -errno. */
int conn_pidfd(struct session_conn *conn);
void conn_close(struct session_conn *conn);
/* As conn_close, but its socket and what its kind keeps for it stay, as the caller's. */
void conn_leave(struct session_conn *conn);

/* The line in which its event waits during a rest, or would wait. */
struct conn_list *conn_ready_line(struct session_conn *conn);
/* Takes it out of the line for a slot. */
void conn_leave_line(struct session_conn *conn);
/* Starts its time for a first message again. */
void conn_renew(struct session_conn *conn);
/* Makes a pending connection a settled one. */
void conn_settle(struct session_conn *conn);

#endif
