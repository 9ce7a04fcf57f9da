/*
 * Connections to the session socket (conn.c). All of it is the control thread's.
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
struct space;
struct tool_request;

enum conn_kind { CONN_FIRST, CONN_SESSION, CONN_TOOL };

/* What the roof does for a kind of connection. */
struct conn_kind_ops {
	enum conn_kind kind;
	/* It has said something, which is to be taken, or has hung up, which may close it. */
	void (*event)(struct session_conn *conn, bool hung_up);
	/* It is closed but for its socket, which is to be closed or given to its client's end. */
	void (*gone)(struct session_conn *conn);
};

struct session_conn {
	TAILQ_ENTRY(session_conn) link; /* in conns->pending, or conns->settled */
	struct programs *programs;
	const struct conn_kind_ops *ops;
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
	TAILQ_ENTRY(session_conn) in_line; /* SESSION that waits for a slot at the broker */
	bool waits;
	struct broker_slot *slot;  /* which it has; or NULL */
	struct session_msg hello;  /* its */
	struct tool_request *tool; /* TOOL, until it hangs up */
};

/* A slot at the broker, where a userfaultfd is awaited: one thread of it. */
struct broker_slot {
	LIST_ENTRY(broker_slot) link;
	uint64_t client;
	uid_t uid;
	struct session_conn *conn; /* NULL: it has hung up meanwhile */
};

/* All that there are. */
struct conns {
	int handles; /* uv handles that are not closed yet, the listener's too */
	/* The latter in the order of since_ms. */
	TAILQ_HEAD(conn_list, session_conn) settled, pending;
	struct conn_list ready, gone; /* of pending ones: what stands in line during rests */
	uint32_t count;		      /* settled and pending */
	LIST_HEAD(, broker_slot) slots;
	uint32_t n_slots;
	TAILQ_HEAD(, session_conn) line;   /* that wait for a slot, in their order */
	const struct conn_kind_ops *first; /* of a connection that has said nothing yet */
	/* Something has come from one that is not settled: its kind's event, now or later. */
	void (*pending_event)(struct session_conn *conn, bool hung_up);
};

/* Watches for the hang-up, for a first message, and for late answers where there may be some. */
void conn_watch(struct session_conn *conn);
/* It has said what it is; false: its user has too many such. */
bool conn_become(struct session_conn *conn, const struct conn_kind_ops *ops, enum quota_kind what,
		 uint32_t max);
/* Sends to a tool; closes after an ANSWER. */
void conn_send(struct session_conn *conn, const struct session_msg *msg);
/* Says why in a message of that type, and closes. */
void conn_refuse(struct session_conn *conn, uint16_t type, int result, const char *text);
/* The same where its process can't be had (pidfd: -errno, as conn_pidfd says it), or no memory. */
void conn_refuse_lack(struct session_conn *conn, uint16_t type, int pidfd);
/* Of the process that has connected, whatever its number stands for now; -errno. */
int conn_pidfd(struct session_conn *conn);
void conn_close(struct session_conn *conn);
/* As conn_close, but its socket and what its kind has are the caller's. */
void conn_leave(struct session_conn *conn);

/* The line in which it stands during rests, or would. */
struct conn_list *conn_ready_line(struct session_conn *conn);
/* It waits for no slot any more. */
void conn_leave_line(struct session_conn *conn);
/* It has as long as a new one again. */
void conn_renew(struct session_conn *conn);
/* It is pending no more. */
void conn_settle(struct session_conn *conn);

#endif
