/*
 * Real-time priority for agents: an agent must get a processor at once when a revoke asks it. That
 * is a privilege, so only one thread of an address space has it at a time, and only while its
 * session stands.
 *
 *   (none) --session ready--> raised --session over--> (none)
 *                             raised --another thread of that memory named--> (none)
 *                             raised --computes all the time--> (none)
 *
 * Happy path: the thread that HELLO named is found among the threads of the process that has
 * connected, and is raised. After that it is looked at again: no handle keeps a thread's number
 * from being another thread's by now. Before it raises, a session searches for other sessions of
 * that memory. One that came during the search may have been raised unseen, and this one unseen by
 * it. So a session that has raised its agent searches again for those that came meanwhile, and of
 * two such sessions the first one to do so takes the priority from the other.
 *
 * How it fails: where a cgroup denies real-time priority, the agent gets nice -20, and the log one
 * line. A thread that is not found, or that is gone by now, gets nothing.
 *
 * An agent sleeps while the daemon asks nothing of it. One that computes instead takes a processor
 * from every thread that has no priority, the daemon's other threads among them. So each second the
 * daemon looks at how much agents have computed. Of n agents each may compute for 1/n of half the
 * time (n counts up to AGENTS_MAX). One of which nothing was asked loses its priority at the first
 * look that finds more; one of which something was asked may compute more than that for half a
 * minute longer than it has rested, since to drop what is mapped takes 34 ms a GiB of small pages.
 * The threads that its user names within the next minute get no priority either. (A false judgement
 * costs a slower revoke, where programs are busy, and nothing else.)
 *
 * All of it happens under programs->priority_lock, so that a session that ends takes nothing from
 * the one that has come in its place.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent_priority.h"
#include "base/clock.h"
#include "base/kernel.h"
#include "base/log.h"
#include "programs/client/clients.h"
#include "programs/client/time_slice.h"
#include "programs/proc/bounded.h"
#include "programs/proc/process.h"

#define AGENT_NICE     (-20)
#define LOOK_MIN_US    500000u /* a shorter time says little */
#define LOOKS_ASKED    30u
#define AGENTS_MAX     100u
#define KIN_MAX	       64u
#define GREEDY_MS      60000u
#define TIME_SLICES_US 50000u /* in each second, for the scans of all processes but the last */

_Static_assert(KERNEL_AGENT_PRIORITY < KERNEL_FAULT_PRIORITY, "a page fault waits for no agent");

static bool is_agent(struct client *client, pid_t tid)
{
	return process_tid(client->pid, client->agent_tid) == tid && process_lives(client->pidfd);
}

/* Gives the thread the priority that its process has, whatever it had before. */
static void set_normal(struct client *client, pid_t tid)
{
	struct sched_param none = {0};

	sched_setscheduler(tid, SCHED_OTHER, &none);
	setpriority(PRIO_PROCESS, (id_t)tid, getpriority(PRIO_PROCESS, (id_t)client->pid));
}

/*
 * The one door for the states above: from now on the thread `tid` has priority; 0: none has. Aborts
 * where it goes from one thread to another, or from none to none. programs->priority_lock is held.
 */
static void agent_go(struct client *client, pid_t tid)
{
	if (!client->raised == !tid) {
		log_error("process %d: its agent's thread can't change from %d to %d",
			  (int)client->pid, (int)client->raised, (int)tid);
		abort();
	}
	client->raised = tid;
	log_debug("process %d: its agent: %s -> %s", (int)client->pid, tid ? "none" : "raised",
		  tid ? "raised" : "none");
}

/* Takes priority away from the thread that has it. A thread that has called exec is its process's
   main thread now, under that number, and has kept the priority. */
static void lower(struct client *client)
{
	struct sched_param param = {0};

	if (is_agent(client, client->raised))
		set_normal(client, client->raised);
	else if (process_lives(client->pidfd) &&
		 sched_getscheduler(client->pid) == (SCHED_RR | SCHED_RESET_ON_FORK) &&
		 !sched_getparam(client->pid, &param) &&
		 param.sched_priority == KERNEL_AGENT_PRIORITY)
		set_normal(client, client->pid);
	agent_go(client, 0);
}

static void set_high(pid_t tid)
{
	struct sched_param rr = {.sched_priority = KERNEL_AGENT_PRIORITY};
	static atomic_bool said;

	if (!sched_setscheduler(tid, SCHED_RR | SCHED_RESET_ON_FORK, &rr))
		return;
	if (errno != ESRCH && !atomic_exchange(&said, true))
		log_warn("agents run at nice %d, not at real-time priority (%s): a busy program "
			 "delays its revoke by milliseconds",
			 AGENT_NICE, strerror(errno));
	setpriority(PRIO_PROCESS, (id_t)tid, AGENT_NICE);
}

/* ---- one thread of a memory ----------------------------------------------------------------- */

/* The processes that share one process's memory, which is rare: vfork(2), CLONE_VM. */
struct kin {
	pid_t pid;
	size_t count;
	pid_t pids[KIN_MAX];
};

static int look_kin(struct bounded *bounded, void *arg, struct client *client)
{
	struct kin *kin = arg;
	int same = bounded_same_memory(bounded, kin->pid, client->pid);

	if (same != 1)
		return same;
	if (kin->count == KIN_MAX)
		return -E2BIG;
	kin->pids[kin->count++] = client->pid;
	return 0;
}

static bool may_be_kin(const struct client *client, const struct client *other, uint64_t after)
{
	return other->uid == client->uid && other->pid != client->pid && other->id > after;
}

/* Finds the processes that share the client's memory among the sessions with ids above `after`;
   *last becomes the id of the last session that there is. -errno: that can't be told. Not called
   under programs->priority_lock, since a process may keep a thread that looks into it waiting. */
static int find_kin(struct client *client, struct kin *kin, uint64_t after, uint64_t *last)
{
	struct programs *p = client->programs;
	struct client *other, **others;
	size_t cap = 0, count = 0;
	pid_t at;

	*kin = (struct kin){.pid = client->pid};
	pthread_mutex_lock(&p->lock);
	*last = p->next_client;
	TAILQ_FOREACH (other, &p->clients, link)
		cap += may_be_kin(client, other, after);
	others = calloc(cap + 1, sizeof(struct client *));
	if (others)
		TAILQ_FOREACH (other, &p->clients, link)
			if (may_be_kin(client, other, after))
				others[count++] = client_get(other);
	pthread_mutex_unlock(&p->lock);
	return others ? clients_look(others, count, look_kin, kin, sizeof(*kin), &at) : -ENOMEM;
}

static bool shares(const struct kin *kin, const struct client *other)
{
	bool does = other->pid == kin->pid;

	for (size_t i = 0; i < kin->count; i++)
		does |= other->pid == kin->pids[i];
	return does;
}

/* Returns the other clients of that memory that have a thread raised, with references; NULL: no
   memory. */
static struct client **raised_kin(struct client *client, const struct kin *kin, size_t *count)
{
	struct programs *p = client->programs;
	struct client *other, **list;
	size_t cap = 1;

	*count = 0;
	pthread_mutex_lock(&p->lock);
	TAILQ_FOREACH (other, &p->clients, link)
		cap += other->raised != 0;
	list = calloc(cap, sizeof(struct client *));
	if (list)
		TAILQ_FOREACH (other, &p->clients, link)
			if (other != client && other->raised && shares(kin, other))
				list[(*count)++] = client_get(other);
	pthread_mutex_unlock(&p->lock);
	return list;
}

/* Takes priority from every other thread of that memory than `tid`. False: no memory. */
static bool take_from_kin(struct client *client, const struct kin *kin, pid_t tid)
{
	size_t count;
	struct client **others = raised_kin(client, kin, &count);

	if (!others)
		return false;
	for (size_t i = 0; i < count; i++) {
		struct client *other = others[i];

		if (other->raised != tid && is_agent(other, other->raised))
			set_normal(other, other->raised);
		agent_go(other, 0);
	}
	clients_free(others, count);
	return true;
}

/* ---- agents that compute all the time ------------------------------------------------------- */

static int read_ran(struct client *client, uint64_t *us)
{
	char text[64] = "";

	if (pread(client->look.schedstat, text, sizeof(text) - 1, 0) < 0)
		return -errno;
	*us = strtoull(text, NULL, 10) / 1000;
	return 0;
}

/* Begins to look at how much the thread computes. Where the kernel does not say that, nothing is
   looked at. */
static void begin_looks(struct client *client, pid_t tid)
{
	struct agent_load *look = &client->look;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", (int)client->pid, (int)tid);
	look->schedstat = open(path, O_RDONLY | O_CLOEXEC);
	look->at_us = clock_us();
	read_ran(client, &look->ran_us);
}

/* Returns true where the agent has something to do, or has got something to do since the last
   look. */
static bool is_asked(struct client *client)
{
	bool asked;

	if (pthread_mutex_trylock(&client->io))
		return true;
	asked = client->serial != client->look.serial || client_has_late(client);
	client->look.serial = client->serial;
	pthread_mutex_unlock(&client->io);
	return asked;
}

/* Returns true where the agent has computed too much, as one of `agents`. ran_us: how much in its
   life. */
static bool is_greedy(struct client *client, uint64_t ran_us, size_t agents)
{
	struct agent_load *look = &client->look;
	uint64_t now = clock_us(), wall_us = now - look->at_us, ran = ran_us - look->ran_us;
	bool asked;

	if (wall_us < LOOK_MIN_US)
		return false;
	asked = is_asked(client);
	look->at_us = now;
	look->ran_us = ran_us;
	if (ran * 2 * (agents < AGENTS_MAX ? agents : AGENTS_MAX) <= wall_us) {
		look->busy -= look->busy > 0;
		return false;
	}
	return ++look->busy > LOOKS_ASKED || !asked;
}

static uint64_t *greedy_until_ms(struct client *client)
{
	return &client->programs->greedy_until_ms[client->uid % UID_SLOTS];
}

/* programs->priority_lock is held. */
static void watch_agent(struct client *client, size_t agents)
{
	uint64_t ran_us = 0;
	char name[64];
	int rc;

	if (!client->raised)
		return;
	rc = read_ran(client, &ran_us);
	if (rc == -ESRCH) /* the thread is gone */
		lower(client);
	if (rc || !is_greedy(client, ran_us, agents))
		return;
	process_name(client->pid, name);
	log_warn("process %s of user %u: its agent computes all the time, and runs at normal "
		 "priority from now on",
		 name, (unsigned int)client->uid);
	*greedy_until_ms(client) = clock_ms() + GREEDY_MS;
	lower(client);
}

void agents_watch(void *arg)
{
	struct programs *p = arg;
	struct client **clients;
	uint64_t spent_us = 0;
	size_t count;

	clients_get_ready(p, &clients, &count); /* no memory: again in a second */
	for (size_t i = 0; i < count; i++) {
		pthread_mutex_lock(&p->priority_lock);
		watch_agent(clients[i], count);
		pthread_mutex_unlock(&p->priority_lock);
		if (spent_us < TIME_SLICES_US) /* the rest in a second */
			spent_us += time_slices_restore(clients[i]);
	}
	clients_free(clients, count);
}

/* ---- a session's beginning and end ---------------------------------------------------------- */

/* programs->priority_lock is held. */
static void lift(struct client *client, const struct kin *kin)
{
	pid_t tid = process_tid(client->pid, client->agent_tid);

	if (!tid || !process_lives(client->pidfd) || clock_ms() < *greedy_until_ms(client) ||
	    !take_from_kin(client, kin, tid))
		return;
	begin_looks(client, tid);
	set_high(tid);
	agent_go(client, tid);
	if (!is_agent(client, tid)) {
		set_normal(client, tid);
		agent_go(client, 0);
	}
}

void agent_raise(struct client *client)
{
	struct programs *p = client->programs;
	struct kin kin;
	uint64_t last;
	int rc;

	if (find_kin(client, &kin, 0, &last))
		return;
	pthread_mutex_lock(&p->priority_lock);
	lift(client, &kin);
	pthread_mutex_unlock(&p->priority_lock);
	/* A session that comes from now on finds this one raised. */
	rc = find_kin(client, &kin, last, &last);
	if (!rc && !kin.count)
		return;
	pthread_mutex_lock(&p->priority_lock);
	if (client->raised && (rc || !take_from_kin(client, &kin, client->raised)))
		lower(client);
	pthread_mutex_unlock(&p->priority_lock);
}

/* Returns true where the session that has come in this one's place has raised the same thread. */
static bool is_taken_over(struct client *client)
{
	struct programs *p = client->programs;
	struct client *other;
	bool taken = false;

	pthread_mutex_lock(&p->lock);
	TAILQ_FOREACH (other, &p->clients, link)
		taken |= other != client && other->raised == client->raised;
	pthread_mutex_unlock(&p->lock);
	return taken;
}

void agent_lower(struct client *client)
{
	struct programs *p = client->programs;

	pthread_mutex_lock(&p->priority_lock);
	if (client->raised && !is_taken_over(client))
		lower(client);
	else if (client->raised)
		agent_go(client, 0);
	pthread_mutex_unlock(&p->priority_lock);
}
