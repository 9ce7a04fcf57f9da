/*
 * An agent must get a processor at once when a revoke asks it: it runs at real-time priority. That
 * is a privilege, so one thread of an address space has it at a time, and only while its session
 * stands.
 *
 *   (none) --session ready--> lifted --session over--> (none)
 *                             lifted --another thread of that memory named--> (none)
 *                             lifted --computes all the time--> (none)
 *
 * Happy path: the thread that HELLO named is found among the threads of the process that has
 * connected, and lifted; after that it is looked at again, since a thread's number has no handle
 * that would keep it from being somebody else's by now. A session of that memory that came while we
 * looked for such may have been lifted unseen, as we by it: so who has lifted looks at those again,
 * and of two of them the first to do so takes it from the other.
 *
 * How it fails: where a cgroup denies real-time priority, nice -20 and one line in the log. A
 * thread that is not found, or not any more, gets nothing. An agent waits, as long as the daemon
 * asks nothing of it; one that computes instead takes a processor from all who have no priority,
 * the daemon's other threads among them. So each second is looked at what agents have computed:
 * more than its part of half the time is too much for one of which nothing was asked. One of which
 * something was may do that half a minute longer than it has rested: to drop what is mapped takes
 * 34 ms a GiB of small pages. What that user names within the next minute gets nothing either. (A
 * false judgement costs a slower revoke, where programs are busy, and nothing else.)
 *
 * All of it under programs->lift, so that a session that ends takes nothing from the one that has
 * come in its place.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "programs/local.h"

#define AGENT_NICE  (-20)
#define LOOK_MIN_US 500000u /* what has happened in less says little */
#define LOOKS_ASKED 30u
#define AGENTS_MAX  100u
#define KIN_MAX	    64u
#define GREEDY_MS   60000u
#define SLICES_US   50000u /* a second, for all processes' scans but the last */

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

/* Takes it away from a thread that has it. One that has called exec is its process's main thread
   now, under that number, and has kept it. */
static void lower(struct space *space)
{
	struct sched_param param = {0};

	if (is_agent(space, space->lifted))
		set_normal(space, space->lifted);
	else if (process_lives(space->pidfd) &&
		 sched_getscheduler(space->pid) == (SCHED_RR | SCHED_RESET_ON_FORK) &&
		 !sched_getparam(space->pid, &param) &&
		 param.sched_priority == KERNEL_AGENT_PRIORITY)
		set_normal(space, space->pid);
	space->lifted = 0;
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

/* ---- one thread of a memory ---- */

/* The processes that share that one's memory, which is rare: vfork(2), CLONE_VM. */
struct kin {
	pid_t pid;
	size_t count;
	pid_t pids[KIN_MAX];
};

static int look_kin(struct apart *apart, void *arg, struct space *space)
{
	struct kin *kin = arg;
	int same = apart_same_memory(apart, kin->pid, space->pid);

	if (same != 1)
		return same;
	if (kin->count == KIN_MAX)
		return -E2BIG;
	kin->pids[kin->count++] = space->pid;
	return 0;
}

static bool may_be_kin(const struct space *space, const struct space *other, uint64_t after)
{
	return other->uid == space->uid && other->pid != space->pid && other->id > after;
}

/* Among the sessions behind that one, *last being the last that there is. -errno: that can't be
   told. Not under programs->lift, as a process may keep whoever looks into it waiting. */
static int find_kin(struct space *space, struct kin *kin, uint64_t after, uint64_t *last)
{
	struct programs *p = space->programs;
	struct space *other, **others;
	size_t cap = 0, count = 0;
	pid_t at;

	*kin = (struct kin){.pid = space->pid};
	pthread_mutex_lock(&p->lock);
	*last = p->next_space;
	TAILQ_FOREACH (other, &p->spaces, link)
		cap += may_be_kin(space, other, after);
	others = calloc(cap + 1, sizeof(struct space *));
	if (others)
		TAILQ_FOREACH (other, &p->spaces, link)
			if (may_be_kin(space, other, after))
				others[count++] = space_get(other);
	pthread_mutex_unlock(&p->lock);
	return others ? spaces_look(others, count, look_kin, kin, sizeof(*kin), &at) : -ENOMEM;
}

static bool shares(const struct kin *kin, const struct space *other)
{
	bool does = other->pid == kin->pid;

	for (size_t i = 0; i < kin->count; i++)
		does |= other->pid == kin->pids[i];
	return does;
}

/* Those other spaces of that memory that have a thread lifted, with references. */
static struct space **lifted_kin(struct space *space, const struct kin *kin, size_t *count)
{
	struct programs *p = space->programs;
	struct space *other, **list;
	size_t cap = 1;

	*count = 0;
	pthread_mutex_lock(&p->lock);
	TAILQ_FOREACH (other, &p->spaces, link)
		cap += other->lifted != 0;
	list = calloc(cap, sizeof(struct space *));
	if (list)
		TAILQ_FOREACH (other, &p->spaces, link)
			if (other != space && other->lifted && shares(kin, other))
				list[(*count)++] = space_get(other);
	pthread_mutex_unlock(&p->lock);
	return list;
}

/* No other thread of that memory keeps it. False: no memory. */
static bool take_from_kin(struct space *space, const struct kin *kin, pid_t tid)
{
	size_t count;
	struct space **others = lifted_kin(space, kin, &count);

	if (!others)
		return false;
	for (size_t i = 0; i < count; i++) {
		struct space *other = others[i];

		if (other->lifted != tid && is_agent(other, other->lifted))
			set_normal(other, other->lifted);
		other->lifted = 0;
	}
	spaces_free(others, count);
	return true;
}

/* ---- who computes all the time ---- */

static int read_ran(struct space *space, uint64_t *us)
{
	char text[64] = "";

	if (pread(space->look.schedstat, text, sizeof(text) - 1, 0) < 0)
		return -errno;
	*us = strtoull(text, NULL, 10) / 1000;
	return 0;
}

/* A kernel that does not say what threads compute leaves it at that. */
static void begin_looks(struct space *space, pid_t tid)
{
	struct agent_look *look = &space->look;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", (int)space->pid, (int)tid);
	look->schedstat = open(path, O_RDONLY | O_CLOEXEC);
	look->at_us = now_us();
	read_ran(space, &look->ran_us);
}

/* It has something to do, or has got something to do since the last look. */
static bool is_asked(struct space *space)
{
	bool asked;

	if (pthread_mutex_trylock(&space->io))
		return true;
	asked = space->serial != space->look.serial || agent_has_late(space);
	space->look.serial = space->serial;
	pthread_mutex_unlock(&space->io);
	return asked;
}

/* One of so many agents, by what it has computed so far. */
static bool is_greedy(struct space *space, uint64_t ran_us, size_t agents)
{
	struct agent_look *look = &space->look;
	uint64_t now = now_us(), wall_us = now - look->at_us, ran = ran_us - look->ran_us;
	bool asked;

	if (wall_us < LOOK_MIN_US)
		return false;
	asked = is_asked(space);
	look->at_us = now;
	look->ran_us = ran_us;
	if (ran * 2 * (agents < AGENTS_MAX ? agents : AGENTS_MAX) <= wall_us) {
		look->busy -= look->busy > 0;
		return false;
	}
	return ++look->busy > LOOKS_ASKED || !asked;
}

static uint64_t *greedy_until_ms(struct space *space)
{
	return &space->programs->greedy_until_ms[space->uid % GREEDY_SLOTS];
}

/* programs->lift is held. */
static void watch_agent(struct space *space, size_t agents)
{
	uint64_t ran_us = 0;
	char name[64];
	int rc;

	if (!space->lifted)
		return;
	rc = read_ran(space, &ran_us);
	if (rc == -ESRCH) /* there is no such thread any more */
		lower(space);
	if (rc || !is_greedy(space, ran_us, agents))
		return;
	process_name(space->pid, name);
	log_warn("process %s of user %u: its agent computes all the time, and runs at normal "
		 "priority from now on",
		 name, (unsigned int)space->uid);
	*greedy_until_ms(space) = now_ms() + GREEDY_MS;
	lower(space);
}

void agents_watch(void *arg)
{
	struct programs *p = arg;
	struct space **spaces;
	uint64_t spent_us = 0;
	size_t count;

	spaces_ready(p, &spaces, &count); /* without memory: in a second */
	for (size_t i = 0; i < count; i++) {
		pthread_mutex_lock(&p->lift);
		watch_agent(spaces[i], count);
		pthread_mutex_unlock(&p->lift);
		if (spent_us < SLICES_US) /* else in a second */
			spent_us += slices_restore(spaces[i]);
	}
	spaces_free(spaces, count);
}

/* ---- a session's beginning and end ---- */

/* programs->lift is held. */
static void lift(struct space *space, const struct kin *kin)
{
	pid_t tid = mappers_tid(space->pid, space->agent_tid);

	if (!tid || !process_lives(space->pidfd) || now_ms() < *greedy_until_ms(space) ||
	    !take_from_kin(space, kin, tid))
		return;
	begin_looks(space, tid);
	set_high(tid);
	space->lifted = tid;
	if (!is_agent(space, tid)) {
		set_normal(space, tid);
		space->lifted = 0;
	}
}

void agent_lift(struct space *space)
{
	struct programs *p = space->programs;
	struct kin kin;
	uint64_t last;
	int rc;

	if (find_kin(space, &kin, 0, &last))
		return;
	pthread_mutex_lock(&p->lift);
	lift(space, &kin);
	pthread_mutex_unlock(&p->lift);
	/* Who comes from now on finds this one lifted. */
	rc = find_kin(space, &kin, last, &last);
	if (!rc && !kin.count)
		return;
	pthread_mutex_lock(&p->lift);
	if (space->lifted && (rc || !take_from_kin(space, &kin, space->lifted)))
		lower(space);
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
	if (space->lifted && !is_taken_over(space))
		lower(space);
	space->lifted = 0;
	pthread_mutex_unlock(&p->lift);
}
