/*
 * A client: the daemon's side of one process that has a session. It is reference-counted; its
 * course from userfaultfd to end is in client_life.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "broker_release.h"
#include "clients.h"
#include "programs/proc/process.h"
#include "programs/programs.h"

#define END_MS	     500 /* that a process has to end after its session */
#define END_PAUSE_US 200
#define ANSWERED_US  1000u

struct client *client_make(struct programs *p, pid_t pid, uid_t uid)
{
	struct client *client = calloc(1, sizeof(*client));

	if (!client)
		return NULL;
	client->programs = p;
	client->refs = 1;
	client->pid = pid;
	client->uid = uid;
	client->since_ms = clock_ms();
	client->looked_ms = clock_ms();
	client->sock = client->uffd = client->second = client->pidfd = -1;
	client->look.schedstat = -1;
	pthread_mutex_init(&client->life, NULL);
	pthread_mutex_init(&client->io, NULL);
	mappings_init(&client->mappings, p->store_dev);
	pthread_mutex_init(&client->list, NULL);
	time_slices_init(client);
	STAILQ_INIT(&client->late);
	RB_INIT(&client->away);
	RB_INIT(&client->attached);
	return client;
}

struct client *client_get(struct client *client)
{
	atomic_fetch_add(&client->refs, 1);
	return client;
}

void client_put(struct client *client)
{
	if (atomic_fetch_sub(&client->refs, 1) != 1)
		return;
	client->programs->client_released(client);
	away_drop_all_notes(client);
	mappings_close(&client->mappings);
	if (client->uffd >= 0)
		broker_release(client->programs, client->uid, client->uffd);
	if (client->second >= 0)
		broker_release(client->programs, client->uid, client->second);
	if (client->pidfd >= 0)
		close(client->pidfd);
	if (client->look.schedstat >= 0)
		close(client->look.schedstat);
	if (client->sock >= 0)
		close(client->sock);
	pthread_mutex_destroy(&client->life);
	pthread_mutex_destroy(&client->io);
	pthread_mutex_destroy(&client->list);
	pthread_mutex_destroy(&client->time_slices.lock);
	free(client);
}

void client_go(struct client *client, enum client_state from, enum client_state to)
{
	static const struct {
		const char *name;
		unsigned int next; /* bits of the states that may follow */
	} states[] = {
		[CLIENT_AT_BROKER] = {"AT_BROKER", 1u << CLIENT_READYING | 1u << CLIENT_DEAD},
		[CLIENT_READYING] = {"READYING", 1u << CLIENT_READY | 1u << CLIENT_DEAD},
		[CLIENT_READY] = {"READY", 1u << CLIENT_DEAD},
		[CLIENT_DEAD] = {"DEAD", 0},
	};

	if (client->state != from || !(states[from].next & 1u << to)) {
		log_error("process %d: no step from %s (expected %s) to %s", (int)client->pid,
			  states[client->state].name, states[from].name, states[to].name);
		abort();
	}
	client->state = to;
	log_debug("process %d: %s -> %s", (int)client->pid, states[from].name, states[to].name);
}

bool client_is(struct client *client, enum client_state state)
{
	bool is;

	pthread_mutex_lock(&client->programs->lock);
	is = client->state == state;
	pthread_mutex_unlock(&client->programs->lock);
	return is;
}

int client_open_seg(struct client *client, struct seg *seg, bool writable)
{
	if (client->uid && writable)
		return seg_hand_out(seg, O_RDWR);
	return seg_open(seg, writable ? O_RDWR : O_RDONLY); /* root is trusted with its lock */
}

bool client_dead(struct client *client)
{
	return client_is(client, CLIENT_DEAD);
}

static int any_mapping(void *arg, const struct proc_mapping *m)
{
	(void)arg;
	(void)m;
	return 1;
}

bool client_maps(struct client *client)
{
	struct programs *p = client->programs;

	int rc = client->mappings.maps_open ? mappings_each(&client->mappings, p->arena_lo,
							    p->arena_hi, any_mapping, NULL)
					    : 0;

	/* If /proc can't say it, the process may map something. */
	return rc && rc != -ESRCH;
}

/* Waits for the mappings of a process whose session has hung up, as a rule since it ends: they
   go shortly after. True: they have gone, and no thread can touch a segment through them. */
bool client_has_ended(struct client *client, uint64_t until_ms)
{
	uint64_t until = clock_ms() + END_MS;

	if (!client->mappings.maps_open)
		return false;
	while (client_maps(client)) {
		if (clock_ms() >= until || clock_ms() >= until_ms)
			return false;
		usleep(END_PAUSE_US);
	}
	return true;
}

/* A thread that a program kept blocked may come here at the daemon's end, and after it. */
void client_look_soon(struct client *client)
{
	struct programs *p = client->programs;

	atomic_store(&client->stale, true);
	pthread_mutex_lock(&p->lock);
	if (!atomic_load(&p->closing) && p->look)
		loop_wake_send(p->look);
	pthread_mutex_unlock(&p->lock);
}

bool client_has_late(struct client *client)
{
	return client->n_late > 0;
}

pid_t client_agent_thread(struct client *client)
{
	pid_t tid = process_tid(client->pid, client->agent_tid);

	return tid ? tid : client->pid;
}

/* To ask /proc costs more than most conversations. */
bool client_stopped(struct client *client)
{
	return clock_us() - atomic_load(&client->answered_us) > ANSWERED_US &&
	       process_state(client_agent_thread(client)) == 'T';
}
