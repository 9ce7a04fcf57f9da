/*
 * The places at the doorman's: who may send his userfaultfd now, and who stands in line.
 *
 * Happy path: a session that said HELLO takes a door, is told where it is (WELCOME), and the door
 * is free when the doorman says that its thread has ended, not when that has answered, since what a
 * stranger sent may hang it in close(2) for ever. Only so many of one user and of all are at the
 * door at a time; the next in line gets a place that is free.
 *
 * How it fails: session.c and doorman.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conns.h"

#define DOORS_MAX    1024 /* of all users: threads of the doorman */
#define DOOR_COST_US 150  /* what the doorman computes for one */

/*
 * Sends WELCOME with the doorman's socket, and gives the doorman the other end, which is not ours
 * any more when a stranger gets his: who closes it last closes what lies in it unread.
 */
static int welcome(struct conn *conn, bool *asked)
{
	struct programs *p = conn->programs;
	struct session_msg msg = {.type = SESSION_WELCOME, .serial = conn->hello.serial};
	bool again = conn->hello.flags & SESSION_RECONNECT;
	int pair[2], fds[2], rc;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	fds[0] = pair[0];
	fds[1] = p->uffd_dev;
	rc = doorman_ask(p->doorman, conn->space->id, pair[1]);
	close(pair[1]);
	*asked = !rc;
	if (!rc)
		rc = session_send(conn->fd, &msg, fds, again ? 1 : 2, MSG_DONTWAIT);
	close(pair[0]);
	return rc;
}

static void free_door(struct listener *l, struct door *door)
{
	user_give(l->programs, door->uid, USER_DOORS, 1);
	if (door->conn)
		door->conn->door = NULL;
	LIST_REMOVE(door, link);
	l->n_doors--;
	free(door);
}

void doors_free(struct listener *l)
{
	struct door *door, *next;

	for (door = LIST_FIRST(&l->doors); door; door = next) {
		next = LIST_NEXT(door, link);
		free_door(l, door);
	}
}

bool doors_take(struct conn *conn)
{
	struct listener *l = conn->programs->listener;
	struct door *door;
	bool asked = false;

	if (l->n_doors >= DOORS_MAX)
		return false;
	door = malloc(sizeof(*door));
	if (!door) {
		conn_refuse(conn, SESSION_WELCOME, ENOMEM, "the daemon is out of memory");
		return true;
	}
	if (!user_take(l->programs, conn->uid, USER_DOORS, 1, USER_SHARE)) {
		free(door);
		return false;
	}
	*door = (struct door){.space = conn->space->id, .uid = conn->uid, .conn = conn};
	conn->door = door;
	LIST_INSERT_HEAD(&l->doors, door, link);
	l->n_doors++;
	newcomer_renew(conn);
	newcomer_cost(conn, DOOR_COST_US);
	if (welcome(conn, &asked))
		conn_close(conn);
	else
		conn_watch(conn);
	if (!asked) /* else the doorman's thread says when it has ended */
		free_door(l, door);
	return true;
}

/* The first in the line whose user may have another door, again and again. (A user who
   floods it alone is asked for once.) */
static void serve_line(struct listener *l)
{
	struct conn *conn, *next;
	bool any_full = false;
	uid_t full = 0;

	for (conn = TAILQ_FIRST(&l->line); conn && l->n_doors < DOORS_MAX; conn = next) {
		next = TAILQ_NEXT(conn, in_line);
		if (any_full && conn->uid == full)
			continue;
		TAILQ_REMOVE(&l->line, conn, in_line);
		conn->waits = false;
		if (doors_take(conn))
			continue;
		any_full = true;
		full = conn->uid;
		conn->waits = true;
		if (next)
			TAILQ_INSERT_BEFORE(next, conn, in_line);
		else
			TAILQ_INSERT_TAIL(&l->line, conn, in_line);
	}
}

uid_t door_uid(const struct listener *l, uint64_t space)
{
	const struct door *door;

	LIST_FOREACH (door, &l->doors, link)
		if (door->space == space)
			return door->uid;
	return (uid_t)-1;
}

void session_door_closed(struct programs *p, uint64_t space)
{
	struct listener *l = p->listener;
	struct conn *conn;
	struct door *door;

	LIST_FOREACH (door, &l->doors, link)
		if (door->space == space)
			break;
	if (door) {
		conn = door->conn;
		free_door(l, door);
		/* Its answer may not have come through: nothing would come any more. Its agent
		   comes again. */
		if (conn && conn->space->uffd < 0)
			conn_close(conn);
	}
	serve_line(l);
}

void doors_line_up(struct conn *conn)
{
	conn->waits = true;
	TAILQ_INSERT_TAIL(&conn->programs->listener->line, conn, in_line);
	conn_watch(conn);
}

void session_doors_lost(struct programs *p)
{
	struct listener *l = p->listener;
	struct conn *conn, *next;

	doors_free(l);
	for (conn = TAILQ_FIRST(&l->newcomers); conn; conn = next) {
		next = TAILQ_NEXT(conn, link);
		if (conn->kind == CONN_SESSION)
			conn_close(conn);
	}
}
