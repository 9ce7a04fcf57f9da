/*
 * An agent must get a processor at once when a revoke asks it: it runs at real-time priority. That
 * is a privilege, so one thread of an address space has it at a time, and only while its session
 * stands.
 *
 *   (none) --session ready--> lifted --session over--> (none)
 *                             lifted --another thread of that memory named--> (none)
 *
 * Happy path: the thread that HELLO named is found among the threads of the process that has
 * connected, and lifted; after that it is looked at again, since a thread's number has no handle
 * that would keep it from being somebody else's by now.
 *
 * How it fails: where a cgroup denies real-time priority, nice -20 and one line in the log. A
 * thread that is not found, or not any more, gets nothing.
 *
 * All of it under programs->lift, so that a session that ends takes nothing from the one that has
 * come in its place.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "local.h"
#include "log.h"

#define AGENT_NICE (-20)

_Static_assert(KERNEL_AGENT_PRIORITY < KERNEL_FAULT_PRIORITY, "a page fault waits for no agent");

static bool is_agent(struct space *space, pid_t tid)
{
	return mappers_tid(space->pid, space->agent_tid) == tid && process_lives(space->pidfd);
}

/* As its process is, whatever it had. */
static void set_normal(struct space *space, pid_t tid)
{
	struct sched_param none = {0};

	sched_setscheduler(tid, SCHED_OTHER, &none);
	setpriority(PRIO_PROCESS, (id_t)tid, getpriority(PRIO_PROCESS, (id_t)space->pid));
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

/* The user's other spaces that have a thread lifted, with references; NULL: no memory. */
static struct space **lifted_others(struct space *space, size_t *count)
{
	struct programs *p = space->programs;
	struct space *other, **list;
	size_t cap = 1;

	*count = 0;
	pthread_mutex_lock(&p->lock);
	TAILQ_FOREACH (other, &p->spaces, link)
		cap++;
	list = calloc(cap, sizeof(struct space *));
	if (list)
		TAILQ_FOREACH (other, &p->spaces, link)
			if (other != space && other->lifted && other->uid == space->uid)
				list[(*count)++] = space_get(other);
	pthread_mutex_unlock(&p->lock);
	return list;
}

static bool same_memory(struct space *a, struct space *b)
{
	return a->pid == b->pid || mappers_same_mm(a->pid, b->pid);
}

/* No other thread of that memory keeps it. False: that can't be told. */
static bool take_from_others(struct space *space, pid_t tid)
{
	size_t count;
	struct space **others = lifted_others(space, &count);

	if (!others)
		return false;
	for (size_t i = 0; i < count; i++) {
		struct space *other = others[i];

		if (same_memory(space, other)) {
			if (other->lifted != tid && is_agent(other, other->lifted))
				set_normal(other, other->lifted);
			other->lifted = 0;
		}
		space_put(other);
	}
	free(others);
	return true;
}

void agent_lift(struct space *space)
{
	struct programs *p = space->programs;
	pid_t tid;

	pthread_mutex_lock(&p->lift);
	tid = mappers_tid(space->pid, space->agent_tid);
	if (tid && process_lives(space->pidfd) && take_from_others(space, tid)) {
		set_high(tid);
		space->lifted = tid;
		if (!is_agent(space, tid)) {
			set_normal(space, tid);
			space->lifted = 0;
		}
	}
	pthread_mutex_unlock(&p->lift);
}

/* Whether the session that has come in its place has lifted the same thread. */
static bool is_taken_over(struct space *space)
{
	struct programs *p = space->programs;
	struct space *other;
	bool taken = false;

	pthread_mutex_lock(&p->lock);
	TAILQ_FOREACH (other, &p->spaces, link)
		taken |= other != space && other->lifted == space->lifted;
	pthread_mutex_unlock(&p->lock);
	return taken;
}

void agent_lower(struct space *space)
{
	struct programs *p = space->programs;

	pthread_mutex_lock(&p->lift);
	if (space->lifted && !is_taken_over(space) && is_agent(space, space->lifted))
		set_normal(space, space->lifted);
	space->lifted = 0;
	pthread_mutex_unlock(&p->lift);
}
