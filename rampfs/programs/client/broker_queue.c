/*
 * Slots at the broker: which clients may send their userfaultfd now, and which wait in line for
 * that.
 *
 * Happy path: a session that said HELLO takes a slot, and WELCOME tells it where the broker is. The
 * slot is free again when the broker says that its thread for this client has ended, not when the
 * thread has answered, since what a client sent may hang the thread in close(2) for ever. The
 * number of slots is limited for each user and for all users together; a slot that gets free goes
 * to the next session in line.
 *
 * How it fails: see listener.c and broker.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker.h"
#include "broker_queue.h"
#include "clients.h"
#include "pending.h"
#include "quota.h"

#define SLOTS_MAX    1024 /* of all users together: each is a thread of the broker */
#define SLOT_COST_US 150  /* processor time that the broker takes for one */

/*
 * Sends WELCOME with one end of a socket pair, and gives the other end to the broker. The daemon
 * has closed its copy of that before the agent gets its own end: the last holder to close it also
 * closes the descriptors that lie in it unread.
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

static void free_slot(struct programs *p, struct broker_slot *slot)
{
	quota_give(p->quota, slot->uid, QUOTA_BROKER, 1);
	if (slot->conn)
		slot->conn->slot = NULL;
	LIST_REMOVE(slot, link);
	p->conns->n_slots--;
	free(slot);
}

void broker_queue_free(struct programs *p)
{
	struct broker_slot *slot, *next;

	for (slot = LIST_FIRST(&p->conns->slots); slot; slot = next) {
		next = LIST_NEXT(slot, link);
		free_slot(p, slot);
	}
}

bool broker_queue_take(struct session_conn *conn)
{
	struct programs *p = conn->programs;
	struct conns *conns = p->conns;
	struct broker_slot *slot;
	bool asked = false;

	if (conns->n_slots >= SLOTS_MAX)
		return false;
	slot = malloc(sizeof(*slot));
	if (!slot) {
		conn_refuse_lack(conn, SESSION_WELCOME, 0);
		return true;
	}
	if (!quota_take(p->quota, conn->uid, QUOTA_BROKER, 1, QUOTA_DEFAULT)) {
		free(slot);
		return false;
	}
	*slot = (struct broker_slot){.client = conn->client->id, .uid = conn->uid, .conn = conn};
	conn->slot = slot;
	LIST_INSERT_HEAD(&conns->slots, slot, link);
	conns->n_slots++;
	conn_renew(conn);
	pending_cost(conn, SLOT_COST_US);
	if (welcome(conn, &asked))
		conn_close(conn);
	else
		conn_watch(conn);
	if (!asked) /* else the broker's thread frees it when it ends */
		free_slot(p, slot);
	return true;
}

/* Gives slots to the sessions in line whose users may have another, in their order, until there
   is none left. (While one user alone floods the line, its quota is asked only once.) */
static void serve_line(struct conns *conns)
{
	struct session_conn *conn, *next;
	bool any_full = false;
	uid_t full = 0;

	for (conn = TAILQ_FIRST(&conns->line); conn && conns->n_slots < SLOTS_MAX; conn = next) {
		next = TAILQ_NEXT(conn, in_line);
		if (any_full && conn->uid == full)
			continue;
		TAILQ_REMOVE(&conns->line, conn, in_line);
		conn->waits = false;
		if (broker_queue_take(conn))
			continue;
		any_full = true;
		full = conn->uid;
		conn->waits = true;
		if (next)
			TAILQ_INSERT_BEFORE(next, conn, in_line);
		else
			TAILQ_INSERT_TAIL(&conns->line, conn, in_line);
	}
}

uid_t broker_queue_uid(const struct programs *p, uint64_t client)
{
	const struct broker_slot *slot;

	LIST_FOREACH (slot, &p->conns->slots, link)
		if (slot->client == client)
			return slot->uid;
	return (uid_t)-1;
}

void broker_queue_closed(struct programs *p, uint64_t client)
{
	struct conns *conns = p->conns;
	struct session_conn *conn;
	struct broker_slot *slot;

	LIST_FOREACH (slot, &conns->slots, link)
		if (slot->client == client)
			break;
	if (slot) {
		conn = slot->conn;
		free_slot(p, slot);
		/* The thread's answer may have been lost, and then nothing would come any more.
		   The agent connects again. */
		if (conn && conn->client->uffd < 0)
			conn_close(conn);
	}
	serve_line(conns);
}

void broker_queue_wait(struct session_conn *conn)
{
	conn->waits = true;
	TAILQ_INSERT_TAIL(&conn->programs->conns->line, conn, in_line);
	conn_watch(conn);
}

void broker_queue_lost(struct programs *p)
{
	struct conns *conns = p->conns;
	struct session_conn *conn, *next;

	broker_queue_free(p);
	for (conn = TAILQ_FIRST(&conns->pending); conn; conn = next) {
		next = TAILQ_NEXT(conn, link);
		if (conn->ops->kind == CONN_SESSION)
			conn_close(conn);
	}
}
