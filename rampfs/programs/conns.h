/*
 * Connections to the session socket, for the two files that know them: session.c, and doors.c for
 * those that stand at the doorman's. All of it is the control thread's.
 */
#ifndef RAMP_PROGRAMS_CONNS_H
#define RAMP_PROGRAMS_CONNS_H

#include <uv.h>

#include "local.h"
#include "pace.h"

enum conn_kind { CONN_FIRST, CONN_SESSION, CONN_TOOL };

struct conn {
	TAILQ_ENTRY(conn) link;
	struct programs *programs;
	enum conn_kind kind;
	int fd; /* a SESSION's belongs to its space; -1: a request has it */
	uv_poll_t poll;
	pid_t pid;
	uid_t uid;
	gid_t gid;
	uint64_t since_ms;
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
	uv_poll_t poll;
	uv_timer_t tick, pause;
	struct loop_wake look;
	int handles; /* uv handles that are not closed yet, of conns too */
	TAILQ_HEAD(, conn) conns;
	uint32_t n_conns;
	LIST_HEAD(, door) doors;
	uint32_t n_doors;
	TAILQ_HEAD(, conn) line; /* that wait for a door, in their order */
	struct pace pace;	 /* of what newcomers cost */
};

/* ---- session.c ---- */

/* Watches for the hang-up, and for late answers where there may be some. */
void conn_watch(struct conn *conn);
/* Says why in a message of that type, and closes. */
void conn_refuse(struct conn *conn, uint16_t type, int result, const char *text);

/* ---- doors.c ---- */

/* Sends WELCOME where there is a door. False: there is none now, and when one is closed there may
   be: doors_line_up. */
bool doors_take(struct conn *conn);
void doors_line_up(struct conn *conn);
void doors_free(struct listener *listener);

#endif
