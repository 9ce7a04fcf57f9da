/*
 * The places at the broker's: who may send his userfaultfd now, and who stands in line.
 *
 * Happy path: a session that said HELLO takes a door, is told where it is (WELCOME), and the door
 * is free when the broker says that its thread has ended, not when that has answered, since what a
 * stranger sent may hang it in close(2) for ever. Only so many of one user and of all are at the
 * door at a time; the next in line gets a place that is free.
 *
 * How it fails: listener.c and broker.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conns.h"

#define SLOTS_MAX    1024 /* of all users: threads of the broker */
#define SLOT_COST_US 150  /* what the broker computes for one */

/*
 * Sends WELCOME with the broker's socket, and gives the broker the other end, which is not ours
 * any more when a stranger gets his: who closes it last closes what lies in it unread.
 */
static int welcome(struct session_conn *conn, bool *asked)
{
	struct programs *p = conn->programs;
	struct session_msg msg = {.type = SESSION_WELCOME, .serial = conn->hello.serial};
	bool again = conn->hello.flags & SESSION_RECONNECT;
	int pair[2], fds[2], rc;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	fds[0] = pair[0];
	fds[1] = p->uffd_dev;
	rc = broker_ask(p->broker, conn->client->id, pair[1]);
	close(pair[1]);
	*asked = !rc;
	if (!rc)
		rc = session_send(conn->fd, &msg, fds, again ? 1 : 2, MSG_DONTWAIT);
	close(pair[0]);
	return rc;
}

static void free_slot(struct listener *l, struct broker_slot *door)
{
	quota_give(l->programs, door->uid, QUOTA_BROKER, 1);
	if (door->conn)
		door->conn->door = NULL;
	LIST_REMOVE(door, link);
	l->n_slots--;
	free(door);
}

void broker_queue_free(struct listener *l)
{
	struct broker_slot *door, *next;

	for (door = LIST_FIRST(&l->doors); door; door = next) {
		next = LIST_NEXT(door, link);
		free_slot(l, door);
	}
}

bool broker_queue_take(struct session_conn *conn)
{
	struct listener *l = conn->programs->listener;
	struct broker_slot *door;
	bool asked = false;

	if (l->n_slots >= SLOTS_MAX)
		return false;
	door = malloc(sizeof(*door));
	if (!door) {
		conn_refuse(conn, SESSION_WELCOME, ENOMEM, "the daemon is out of memory");
		return true;
	}
	if (!quota_take(l->programs, conn->uid, QUOTA_BROKER, 1, QUOTA_DEFAULT)) {
		free(door);
		return false;
	}
	*door = (struct broker_slot){.client = conn->client->id, .uid = conn->uid, .conn = conn};
	conn->door = door;
	LIST_INSERT_HEAD(&l->doors, door, link);
	l->n_slots++;
	conn_renew(conn);
	pending_cost(conn, SLOT_COST_US);
	if (welcome(conn, &asked))
		conn_close(conn);
	else
		conn_watch(conn);
	if (!asked) /* else the broker's thread says when it has ended */
		free_slot(l, door);
	return true;
}

/* The first in the line whose user may have another door, again and again. (A user who
   floods it alone is asked for once.) */
static void serve_line(struct listener *l)
{
	struct session_conn *conn, *next;
	bool any_full = false;
	uid_t full = 0;

	for (conn = TAILQ_FIRST(&l->line); conn && l->n_slots < SLOTS_MAX; conn = next) {
		next = TAILQ_NEXT(conn, in_line);
		if (any_full && conn->uid == full)
			continue;
		TAILQ_REMOVE(&l->line, conn, in_line);
		conn->waits = false;
		if (broker_queue_take(conn))
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

uid_t broker_queue_uid(const struct listener *l, uint64_t client)
{
	const struct broker_slot *door;

	LIST_FOREACH (door, &l->doors, link)
		if (door->client == client)
			return door->uid;
	return (uid_t)-1;
}

void broker_queue_closed(struct programs *p, uint64_t client)
{
	struct listener *l = p->listener;
	struct session_conn *conn;
	struct broker_slot *door;

	LIST_FOREACH (door, &l->doors, link)
		if (door->client == client)
			break;
	if (door) {
		conn = door->conn;
		free_slot(l, door);
		/* Its answer may not have come through: nothing would come any more. Its agent
		   comes again. */
		if (conn && conn->client->uffd < 0)
			conn_close(conn);
	}
	serve_line(l);
}

void broker_queue_wait(struct session_conn *conn)
{
	conn->waits = true;
	TAILQ_INSERT_TAIL(&conn->programs->listener->line, conn, in_line);
	conn_watch(conn);
}

void broker_queue_lost(struct programs *p)
{
	struct listener *l = p->listener;
	struct session_conn *conn, *next;

	broker_queue_free(l);
	for (conn = TAILQ_FIRST(&l->pending); conn; conn = next) {
		next = TAILQ_NEXT(conn, link);
		if (conn->kind == CONN_SESSION)
			conn_close(conn);
	}
}
