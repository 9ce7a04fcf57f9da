/*
 * A client: one process's session, from its userfaultfd to its end. client/client.h has its states.
 *
 * Happy path: a worker makes the handshake, learns from /proc what the process maps (agents of an
 * earlier daemon have a lot mapped already), tells the pager, wakes the page faults that an earlier
 * daemon has left waiting, and says READY.
 *
 * How it fails: where a userfaultfd is no good, READY says why, and the session is hung up. A
 * client whose session hangs up (exec, exit, a broken agent) is buried: its attachments leave the
 * table once its memory maps nothing any more or has a new session. Until then it is an orphan, and
 * a revoke that finds one says EBUSY. The page faults of an orphan are served: its process may have
 * ended, or have another memory since its exec, while a child that shares the old memory continues
 * there. The last copy of the userfaultfd is this daemon's then, and if it were closed that child
 * would read zeros. So the next daemon finds a copy (fdstore.c), and the pages that are still
 * missing are pulled at once.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "attach/attachments.h"
#include "attach/move_away.h"
#include "attach/replace.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/session.h"
#include "client/clients.h"
#include "client/conn.h"
#include "client/fdstore.h"
#include "client/quota.h"
#include "client/time_slice.h"
#include "client/uffd.h"
#include "client/workers.h"
#include "client_life.h"
#include "full_store.h"
#include "proc/process.h"
#include "programs.h"
#include "revoke/agent_priority.h"

#define ENDING_MS 500u
#define LOOK_MAX  64 /* mapped segments that one look goes through */

/* ---- becoming ready: on a worker ------------------------------------------------------------ */

static int learn(struct client *client, struct ramp_err *err)
{
	int rc = uffd_handshake(client->uffd, err);

	if (rc)
		return rc;
	uffd_handshake_second(client);
	rc = mappings_open(&client->mappings, client->pid, client->agent_tid);
	/* When /proc was opened it was this process, and no later one of that number. */
	if (!rc && !process_lives(client->pidfd))
		rc = -ESRCH;
	if (!rc)
		rc = client_learn(client->programs, client);
	return rc ? ramp_err_sys(err, -rc, "looking into process %d", (int)client->pid) : 0;
}

static void set_ready(struct client *client)
{
	struct programs *p = client->programs;

	pthread_mutex_lock(&p->lock);
	if (client->state == CLIENT_READYING) {
		client_go(client, CLIENT_READYING, CLIENT_READY);
		p->status.sessions++;
	}
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

void client_say_ready(struct client *client, int result, const char *text)
{
	struct session_msg msg = {.type = SESSION_READY,
				  .serial = SESSION_KNOWS_MOVE |
					    (client->asks_growth ? SESSION_KNOWS_GROW : 0),
				  .result = (uint32_t)result};

	snprintf(msg.text, sizeof(msg.text), "%s", text);
	if (session_send(client->sock, &msg, NULL, 0, MSG_DONTWAIT) || result)
		shutdown(client->sock, SHUT_RDWR);
}

/* programs_set_pager waits for threads in this function and the next one (pager_lock). */
static int add_to_pager(struct client *client, struct ramp_err *err)
{
	struct programs *p = client->programs;
	int rc = 0;

	pthread_rwlock_rdlock(&p->pager_lock);
	if (p->pager.client_added) {
		rc = p->pager.client_added(p->pager.arg, client_get(client), client->uffd);
		client->pager_has = !rc;
		if (rc)
			atomic_fetch_sub(&client->refs, 1); /* the caller has another */
	}
	pthread_rwlock_unlock(&p->pager_lock);
	return rc ? ramp_err_sys(err, -rc, "serving its page faults") : 0;
}

static void take_from_pager(struct client *client)
{
	struct programs *p = client->programs;

	pthread_rwlock_rdlock(&p->pager_lock);
	if (p->pager.client_gone && client->pager_has)
		p->pager.client_gone(p->pager.arg, client);
	pthread_rwlock_unlock(&p->pager_lock);
}

/* Makes the client ready. Says READY before any other thread, which needs io, says anything to the
   agent. */
void client_ready(void *arg)
{
	struct client *client = arg;
	struct programs *p = client->programs;
	struct ramp_err err = {0};

	pthread_mutex_lock(&client->life);
	if (client_dead(client)) {
		/* It hung up before: it may be buried already, and nothing of it is in the
		   table. */
	} else if (learn(client, &err) || (!client_dead(client) && add_to_pager(client, &err))) {
		client_say_ready(client, err.code, err.text);
	} else if (!client_dead(client)) {
		time_slices_inherited(client); /* before its agent has another policy */
		agent_raise(client);
		/* Page faults that a dead daemon had read are raised again, and the table knows
		   their place now. */
		client_wake_all(client);
		pthread_mutex_lock(&client->io);
		set_ready(client);
		client_say_ready(client, 0, "");
		pthread_mutex_unlock(&client->io);
	}
	pthread_mutex_unlock(&client->life);
	move_away_return_client(p, client);
	clients_sweep(p); /* its own earlier session may be among the orphans */
	client_catch_up(p, client, false);
	if (!client_dead(client))
		full_store_tell_new(p->full, client);
	client_put(client);
}

/* ---- looking again -------------------------------------------------------------------------- */

static void look_at_mseg(struct programs *p, struct client *client, struct mapped_segment *mseg)
{
	pthread_mutex_lock(&mseg->change);
	mseg_look(p, mseg, client);
	pthread_mutex_unlock(&mseg->change);
	mseg_put(p, mseg);
}

/*
 * Unregisters shared memory of the program's own, which it has put over a part of a segment. It was
 * registered because a look was too old; its page faults belong to no segment, and come again and
 * again. While the agent is in no conversation no segment comes to that place; if it is in one, the
 * next of those page faults leads here.
 */
static void unregister_foreign(struct client *client, uint64_t addr)
{
	struct address_range range;

	if (pthread_mutex_trylock(&client->io))
		return;
	/* Where it can't be registered it is another daemon's, or nothing that this daemon
	   registered. */
	if (mappings_foreign(&client->mappings, addr, &range) > 0 &&
	    !uffd_arm(client, range.start, range.end))
		uffd_disarm(client, range.start, range.end);
	pthread_mutex_unlock(&client->io);
}

/* Looks at what the client had mapped, and at what it has mapped now. */
void client_look(void *arg)
{
	struct client *client = arg;
	struct programs *p = client->programs;
	struct mapped_segment *had[LOOK_MAX];
	uint64_t stray = atomic_exchange(&client->stray_fault, 0);
	struct client_mappings *cm;
	size_t n = 0;

	atomic_store(&client->looked_ms, clock_ms());
	atomic_store(&client->behind, false);
	pthread_mutex_lock(&client->list);
	RB_FOREACH (cm, attached_by_end, &client->attached)
		if (n < LOOK_MAX)
			had[n++] = mseg_hold(p, cm->mseg);
	pthread_mutex_unlock(&client->list);
	for (size_t i = 0; i < n; i++)
		look_at_mseg(p, client, had[i]);
	client_learn(p, client);
	if (stray)
		unregister_foreign(client, stray);
	/* Tells the agent of mappings that were found too late to be told before; but not where the
	   agent has the GONE already and is silent. */
	if (!client_has_late(client))
		client_catch_up(p, client, true);
	client_put(client);
}

/* ---- the end -------------------------------------------------------------------------------- */

static bool process_ended(struct client *client)
{
	struct pollfd at = {.fd = client->pidfd, .events = POLLIN};

	return client->pidfd < 0 || poll(&at, 1, 0) > 0;
}

static bool has_agent(struct client *client)
{
	return !process_ended(client) && process_tid(client->pid, client->agent_tid);
}

/* Returns true where the agent has ended, with its process or by an exec: no session of it comes
   any more. An agent ends a little before its process does, and such a process is gone soon: so the
   agent's end alone counts after ENDING_MS only. */
static bool agent_ended(struct client *client)
{
	return process_ended(client) ||
	       (clock_ms() >= client->since_ms + ENDING_MS && !has_agent(client));
}

/* Asks for full speed for every segment that is pulled and that the client maps. */
static void prefetch_all(struct client *client)
{
	struct programs *p = client->programs;
	struct client_mappings *cm;
	ramp_segment_t *ids;
	size_t n = 0;

	pthread_mutex_lock(&client->list);
	RB_FOREACH (cm, attached_by_end, &client->attached)
		n++;
	ids = calloc(n + 1, sizeof(*ids));
	n = 0;
	RB_FOREACH (cm, attached_by_end, &client->attached)
		if (ids)
			ids[n++] = cm->id;
	pthread_mutex_unlock(&client->list);
	/* An orphan of an earlier daemon (pidfd -1) may be here before the pulls of its segments
	   are. */
	client->prefetched = ids != NULL && client->pidfd >= 0;
	pthread_rwlock_rdlock(&p->pager_lock);
	for (size_t i = 0; p->pager.prefetch_all && i < n; i++)
		p->pager.prefetch_all(p->pager.arg, ids[i]);
	pthread_rwlock_unlock(&p->pager_lock);
	free(ids);
}

/* Stores the orphan and asks for its pages: the last copy of its userfaultfd is this daemon's. */
static void keep_orphan(struct client *orphan)
{
	if (!orphan->stored)
		fdstore_put(orphan);
	if (!orphan->prefetched)
		prefetch_all(orphan);
}

/* Returns true where a process continues with the orphan's memory, and no other session tells of
   it. */
static bool is_wanted(struct client *orphan)
{
	return !client_replaced(orphan) && client_maps(orphan);
}

/* Keeps an orphan, which is in no list now, or lets it go. */
static void sweep_one(void *arg)
{
	struct client *orphan = arg;
	struct programs *p = orphan->programs;

	if (atomic_load(&p->closing)) {
		/* Leaves it to the next daemon, which hears of it from the agent where that
		   lives. */
		if (!orphan->stored && !has_agent(orphan) && is_wanted(orphan))
			fdstore_put(orphan);
	} else if (is_wanted(orphan)) {
		if (!(orphan->stored && orphan->prefetched) && agent_ended(orphan))
			keep_orphan(orphan);
		pthread_mutex_lock(&p->lock);
		TAILQ_INSERT_TAIL(&p->orphans, orphan, link);
		pthread_mutex_unlock(&p->lock);
		return;
	} else {
		fdstore_drop(orphan);
	}
	take_from_pager(orphan);
	atomic_store(&orphan->orphan, false);
	client_forget(p, orphan);
	quota_give(p->quota, orphan->uid, QUOTA_SESSIONS, 1);
	client_put(orphan);
}

/* Looks into each orphan on a thread of its user's share: its process may keep that thread for as
   long as it likes. */
void clients_sweep(void *arg)
{
	struct client_list all;
	struct programs *p = arg;
	struct client *orphan;

	TAILQ_INIT(&all);
	if (!atomic_load(&p->closing) && !atomic_exchange(&p->adopted, true))
		fdstore_adopt(p, client_adopt);
	pthread_mutex_lock(&p->lock);
	TAILQ_CONCAT(&all, &p->orphans, link);
	pthread_mutex_unlock(&p->lock);
	while ((orphan = TAILQ_FIRST(&all))) {
		TAILQ_REMOVE(&all, orphan, link);
		if (atomic_load(&p->closing))
			sweep_one(orphan);
		else
			workers_run_own(p->workers, orphan->uid, sweep_one, orphan);
	}
}

static void client_bury(void *arg)
{
	struct client *client = arg;
	struct programs *p = client->programs;

	pthread_mutex_lock(&client->life); /* client_ready may run */
	pthread_mutex_unlock(&client->life);
	if (!atomic_load(&p->closing)) /* the next daemon finds it raised */
		agent_lower(client);
	atomic_store(&client->orphan, true);
	if (client->uffd >= 0) /* threads of a client that came no further are not scanned */
		time_slices_over(client);
	sweep_one(client);
}

/* Ends the client of a session that has hung up: it goes as soon as nothing needs it. */
void client_end(struct session_conn *conn)
{
	struct programs *p = conn->programs;
	struct client *client = conn->client;

	pthread_mutex_lock(&p->lock);
	if (client->state == CLIENT_READY)
		p->status.sessions--;
	client_go(client, client->state, CLIENT_DEAD);
	client->since_ms = clock_ms();
	/* Set at once: its mappings count until /proc says that they are gone. */
	atomic_store(&client->orphan, true);
	TAILQ_REMOVE(&p->clients, client, link);
	pthread_mutex_unlock(&p->lock);
	client->conn = NULL;
	shutdown(client->sock, SHUT_RDWR); /* a thread in a conversation with it sees that */
	workers_run_own(p->workers, client->uid, client_bury, client);
}

/* Adopts an orphan. Its page faults wait where it can't be looked at, or there is no memory. */
void client_adopt(struct client *client)
{
	struct programs *p = client->programs;
	struct ramp_err err = {0};
	int rc;

	if (!quota_take(p->quota, client->uid, QUOTA_SESSIONS, 1, UINT32_MAX)) {
		client_put(client);
		return;
	}
	pthread_mutex_lock(&p->lock);
	client->id = ++p->next_client;
	pthread_mutex_unlock(&p->lock);
	rc = client->mappings.maps_open ? client_learn(p, client) : -EBADF;
	if (rc)
		ramp_err_sys(&err, -rc, "looking into its memory");
	else
		rc = add_to_pager(client, &err);
	if (rc)
		log_warn("the memory that process %d has left to others waits for its missing "
			 "pages: %s",
			 (int)client->pid, err.text);
	else
		client_wake_all(client);
	pthread_mutex_lock(&p->lock);
	TAILQ_INSERT_TAIL(&p->orphans, client, link);
	pthread_mutex_unlock(&p->lock);
}
