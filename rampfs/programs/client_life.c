/*
 * A space: one process's session, from its userfaultfd to its end.
 *
 *   DOOR --userfaultfd--> READYING --learned--> READY
 *   DOOR | READYING | READY --hang-up--> DEAD (--> orphan, while the process still maps something)
 *
 * Happy path: a thread of the pool makes the handshake, learns from /proc what the process maps
 * (a former daemon's agents map a lot already), tells the pager, wakes what a former daemon has
 * left waiting, and says READY.
 *
 * How it fails: a userfaultfd that is no good: READY says why, and the session is hung up. A
 * session that hangs up (exec, exit, a broken agent) is buried: its attachments leave the table,
 * once its memory maps nothing any more or has a new session. Until then it is an orphan, and a
 * revoke that finds one says EBUSY. Its page faults are served: where the process has ended, or has
 * another memory since its exec, a child that shares the old one goes on there. The userfaultfd's
 * last copy is ours then, and were it closed there would be zeros: the next daemon finds another
 * (shelf.c), and what is still missing is pulled at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "local.h"

#define ENDING_MS 500u
#define LOOK_MAX  64 /* psegs that one look goes through */

/* ---- references ----------------------------------------------------------------------------- */

struct space *space_get(struct space *space)
{
	atomic_fetch_add(&space->refs, 1);
	return space;
}

struct space *space_make(struct programs *p, pid_t pid, uid_t uid)
{
	struct space *space = calloc(1, sizeof(*space));

	if (!space)
		return NULL;
	space->programs = p;
	space->refs = 1;
	space->pid = pid;
	space->uid = uid;
	space->since_ms = now_ms();
	space->looked_ms = now_ms();
	space->sock = space->uffd = space->pidfd = space->pagemap = space->map_files = -1;
	space->look.schedstat = -1;
	pthread_mutex_init(&space->life, NULL);
	pthread_mutex_init(&space->io, NULL);
	pthread_mutex_init(&space->proc, NULL);
	pthread_mutex_init(&space->list, NULL);
	slices_init(space);
	STAILQ_INIT(&space->late);
	RB_INIT(&space->holdings);
	return space;
}

void space_put(struct space *space)
{
	if (atomic_fetch_sub(&space->refs, 1) != 1)
		return;
	agent_forget_late(space);
	mappers_close(space);
	if (space->uffd >= 0)
		uffd_let_go(space->programs, space->uid, space->uffd);
	if (space->pidfd >= 0)
		close(space->pidfd);
	if (space->look.schedstat >= 0)
		close(space->look.schedstat);
	if (space->sock >= 0)
		close(space->sock);
	pthread_mutex_destroy(&space->life);
	pthread_mutex_destroy(&space->io);
	pthread_mutex_destroy(&space->proc);
	pthread_mutex_destroy(&space->list);
	pthread_mutex_destroy(&space->slices.lock);
	free(space);
}

bool space_is(struct space *space, enum space_state state)
{
	bool is;

	pthread_mutex_lock(&space->programs->lock);
	is = space->state == state;
	pthread_mutex_unlock(&space->programs->lock);
	return is;
}

int space_open(struct space *space, struct seg *seg, bool writable)
{
	if (space->uid && writable)
		return seg_hand_out(seg, O_RDWR);
	return seg_open(seg, writable ? O_RDWR : O_RDONLY); /* root is trusted with its lock */
}

bool space_dead(struct space *space)
{
	return space_is(space, SPACE_DEAD);
}

bool process_lives(int pidfd)
{
	return pidfd >= 0 && (!syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) || errno == EPERM);
}

/*
 * p->lock is held. A session outlives its process where another holds the socket, and the number
 * comes to a stranger: what is meant for him must not go there.
 */
static struct space *find_ready(struct programs *p, pid_t pid)
{
	struct space *space;

	TAILQ_FOREACH (space, &p->spaces, link) {
		if (space->pid != pid || space->state != SPACE_READY)
			continue;
		if (process_lives(space->pidfd))
			return space_get(space);
		shutdown(space->sock, SHUT_RDWR);
	}
	return NULL;
}

struct space *space_find(struct programs *p, pid_t pid, uint64_t until_ms)
{
	struct space *space;

	pthread_mutex_lock(&p->lock);
	do
		space = find_ready(p, pid);
	while (!space && programs_wait(p, until_ms));
	pthread_mutex_unlock(&p->lock);
	return space;
}

void process_name(pid_t pid, char name[64])
{
	char path[64], comm[32] = "?";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	file = fopen(path, "re");
	if (file) {
		if (fgets(comm, sizeof(comm), file))
			comm[strcspn(comm, "\n")] = 0;
		fclose(file);
	}
	snprintf(name, 64, "%d (%s)", (int)pid, comm);
}

/* ---- becoming ready: on the pool ------------------------------------------------------------ */

static int learn(struct space *space, struct ramp_err *err)
{
	int rc = uffd_handshake(space->uffd, err);

	if (rc)
		return rc;
	rc = mappers_open(space);
	/* It was this process and no later one of that number when /proc was opened. */
	if (!rc && !process_lives(space->pidfd))
		rc = -ESRCH;
	if (!rc)
		rc = space_learn(space->programs, space);
	return rc ? ramp_err_sys(err, -rc, "looking into process %d", (int)space->pid) : 0;
}

static void set_ready(struct space *space)
{
	struct programs *p = space->programs;

	pthread_mutex_lock(&p->lock);
	if (space->state == SPACE_READYING) {
		space->state = SPACE_READY;
		p->status.sessions++;
	}
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

void space_say_ready(struct space *space, int result, const char *text)
{
	struct session_msg msg = {.type = SESSION_READY, .result = (uint32_t)result};

	snprintf(msg.text, sizeof(msg.text), "%s", text);
	if (session_send(space->sock, &msg, NULL, 0, MSG_DONTWAIT) || result)
		shutdown(space->sock, SHUT_RDWR);
}

/* programs_set_pager waits for those who are in here and in the next. */
static int add_to_pager(struct space *space, struct ramp_err *err)
{
	struct programs *p = space->programs;
	int rc = 0;

	pthread_rwlock_rdlock(&p->pager_lock);
	if (p->pager.space_added) {
		rc = p->pager.space_added(p->pager.arg, space_get(space), space->uffd);
		space->told = !rc;
		if (rc)
			atomic_fetch_sub(&space->refs, 1); /* the caller has another */
	}
	pthread_rwlock_unlock(&p->pager_lock);
	return rc ? ramp_err_sys(err, -rc, "serving its page faults") : 0;
}

static void take_from_pager(struct space *space)
{
	struct programs *p = space->programs;

	pthread_rwlock_rdlock(&p->pager_lock);
	if (p->pager.space_gone && space->told)
		p->pager.space_gone(p->pager.arg, space);
	pthread_rwlock_unlock(&p->pager_lock);
}

/* READY is said before anybody else, who needs io, says anything to the agent. */
void space_ready(void *arg)
{
	struct space *space = arg;
	struct programs *p = space->programs;
	struct ramp_err err = {0};

	pthread_mutex_lock(&space->life);
	if (space_dead(space)) {
		/* Hung up before: it may be buried already, with nothing of it in the table. */
	} else if (learn(space, &err) || (!space_dead(space) && add_to_pager(space, &err))) {
		space_say_ready(space, err.code, err.text);
	} else if (!space_dead(space)) {
		slices_inherited(space); /* before its agent has another policy */
		agent_lift(space);
		/* What the dead daemon had read is raised again, and found by the table now. */
		space_wake_all(space);
		pthread_mutex_lock(&space->io);
		set_ready(space);
		space_say_ready(space, 0, "");
		pthread_mutex_unlock(&space->io);
	}
	pthread_mutex_unlock(&space->life);
	space_sweep(p); /* its own former session may be among the orphans */
	space_catch_up(p, space, false);
	space_put(space);
}

/* ---- looking anew --------------------------------------------------------------------------- */

static void look_at_pseg(struct programs *p, struct space *space, struct pseg *pseg)
{
	pthread_mutex_lock(&pseg->change);
	pseg_look(p, pseg, space);
	pthread_mutex_unlock(&pseg->change);
	pseg_put(p, pseg);
}

/*
 * What was registered after a look that was too old: shared memory of its own, which the program
 * has put over a part of a segment since. Its page faults are nobody's, and come again and again.
 * While the agent is in no conversation no segment comes there; if it is, the next of those page
 * faults leads here.
 */
static void leave_alone(struct space *space, uint64_t addr)
{
	struct cover range;

	if (pthread_mutex_trylock(&space->io))
		return;
	/* Where it can't be registered it is another daemon's, or none of ours. */
	if (mappers_foreign(space, addr, &range) > 0 && !uffd_arm(space, range.start, range.end))
		uffd_disarm(space, range.start, range.end);
	pthread_mutex_unlock(&space->io);
}

/* What it had, and what it has. */
void space_look(void *arg)
{
	struct space *space = arg;
	struct programs *p = space->programs;
	struct pseg *had[LOOK_MAX];
	uint64_t strange = atomic_exchange(&space->strange, 0);
	struct holding *h;
	size_t n = 0;

	atomic_store(&space->looked_ms, now_ms());
	atomic_store(&space->behind, false);
	pthread_mutex_lock(&space->list);
	RB_FOREACH (h, space_holdings, &space->holdings)
		if (n < LOOK_MAX)
			had[n++] = pseg_hold(p, h->pseg);
	pthread_mutex_unlock(&space->list);
	for (size_t i = 0; i < n; i++)
		look_at_pseg(p, space, had[i]);
	space_learn(p, space);
	if (strange)
		leave_alone(space, strange);
	/* A mapping that was found too late to be told has come to light; not one whose agent has
	   the GONE already and is silent. */
	if (!agent_has_late(space))
		space_catch_up(p, space, true);
	space_put(space);
}

/* ---- the end -------------------------------------------------------------------------------- */

static int any_mapping(void *arg, const struct mapping *m)
{
	(void)arg;
	(void)m;
	return 1;
}

bool space_maps(struct space *space)
{
	struct programs *p = space->programs;

	int rc = space->maps_open ? mappers_each(space, p->arena_lo, p->arena_hi, any_mapping, NULL)
				  : 0;

	/* Where /proc does not say, it may. */
	return rc && rc != -ESRCH;
}

/* An agent keeps its userfaultfd, which is of one memory, from session to session; after an exec
   there is another. Where the kernel does not say, it is the same. p->lock is held. */
static bool has_new_session(struct programs *p, struct space *orphan)
{
	struct space *space;

	TAILQ_FOREACH (space, &p->spaces, link)
		if (space->pid == orphan->pid && space->state == SPACE_READY)
			return (orphan->pidfd < 0 ||
				process_lives(orphan->pidfd)) && /* else it is another process's */
			       kernel_same_file(space->uffd, orphan->uffd) != 0;
	return false;
}

bool space_replaced(struct space *space)
{
	struct programs *p = space->programs;
	bool replaced;

	pthread_mutex_lock(&p->lock);
	replaced = has_new_session(p, space);
	pthread_mutex_unlock(&p->lock);
	return replaced;
}

static bool process_ended(struct space *space)
{
	struct pollfd at = {.fd = space->pidfd, .events = POLLIN};

	return space->pidfd < 0 || poll(&at, 1, 0) > 0;
}

static bool has_agent(struct space *space)
{
	return !process_ended(space) && mappers_tid(space->pid, space->agent_tid);
}

/* With its process, or by an exec of it: it comes with no session any more. Agents end a moment
   before their process does, which would then not be looked at for long. */
static bool agent_ended(struct space *space)
{
	return process_ended(space) ||
	       (now_ms() >= space->since_ms + ENDING_MS && !has_agent(space));
}

/* What it maps of segments that are pulled is pulled at full speed. */
static void hurry(struct space *space)
{
	struct programs *p = space->programs;
	struct holding *h;
	ramp_segment_t *ids;
	size_t n = 0;

	pthread_mutex_lock(&space->list);
	RB_FOREACH (h, space_holdings, &space->holdings)
		n++;
	ids = calloc(n + 1, sizeof(*ids));
	n = 0;
	RB_FOREACH (h, space_holdings, &space->holdings)
		if (ids)
			ids[n++] = h->id;
	pthread_mutex_unlock(&space->list);
	/* What a former daemon has left may be here before its pulls. */
	space->hurried = ids != NULL && space->pidfd >= 0;
	pthread_rwlock_rdlock(&p->pager_lock);
	for (size_t i = 0; p->pager.hurry && i < n; i++)
		p->pager.hurry(p->pager.arg, ids[i]);
	pthread_rwlock_unlock(&p->pager_lock);
	free(ids);
}

/* Its userfaultfd's last copy is ours. */
static void hold_on(struct space *orphan)
{
	if (!orphan->shelved)
		shelf_put(orphan);
	if (!orphan->hurried)
		hurry(orphan);
}

/* Somebody goes on with its memory, of which nobody else tells us. */
static bool is_wanted(struct space *orphan)
{
	return !space_replaced(orphan) && space_maps(orphan);
}

/* Nobody's in the list: kept, or gone. */
static void sweep_one(void *arg)
{
	struct space *orphan = arg;
	struct programs *p = orphan->programs;

	if (atomic_load(&p->closing)) {
		/* The next daemon has it. Of whom an agent lives it hears without us. */
		if (!orphan->shelved && !has_agent(orphan) && is_wanted(orphan))
			shelf_put(orphan);
	} else if (is_wanted(orphan)) {
		if (!(orphan->shelved && orphan->hurried) && agent_ended(orphan))
			hold_on(orphan);
		pthread_mutex_lock(&p->lock);
		TAILQ_INSERT_TAIL(&p->orphans, orphan, link);
		pthread_mutex_unlock(&p->lock);
		return;
	} else {
		shelf_drop(orphan);
	}
	take_from_pager(orphan);
	atomic_store(&orphan->orphan, false);
	space_forget(p, orphan);
	user_give(p, orphan->uid, USER_SESSIONS, 1);
	space_put(orphan);
}

/* Each is looked into on a thread of its user's share: it may keep that for as long as it likes. */
void space_sweep(void *arg)
{
	struct space_list all;
	struct programs *p = arg;
	struct space *orphan;

	TAILQ_INIT(&all);
	if (!atomic_load(&p->closing) && !atomic_exchange(&p->adopted, true))
		shelf_adopt(p);
	pthread_mutex_lock(&p->lock);
	TAILQ_CONCAT(&all, &p->orphans, link);
	pthread_mutex_unlock(&p->lock);
	while ((orphan = TAILQ_FIRST(&all))) {
		TAILQ_REMOVE(&all, orphan, link);
		if (atomic_load(&p->closing))
			sweep_one(orphan);
		else
			pool_run_own(p->pool, orphan->uid, sweep_one, orphan);
	}
}

void space_bury(void *arg)
{
	struct space *space = arg;
	struct programs *p = space->programs;

	pthread_mutex_lock(&space->life); /* it may be becoming ready */
	pthread_mutex_unlock(&space->life);
	if (!atomic_load(&p->closing)) /* the next daemon finds it lifted */
		agent_lower(space);
	atomic_store(&space->orphan, true);
	if (space->uffd >= 0) /* of who came no further nobody looks through the threads */
		slices_over(space);
	sweep_one(space);
}

/* Its page faults wait where it can't be looked at, or there is no memory. */
void space_adopt(struct space *space)
{
	struct programs *p = space->programs;
	struct ramp_err err = {0};
	int rc;

	if (!user_take(p, space->uid, USER_SESSIONS, 1, UINT32_MAX)) {
		space_put(space);
		return;
	}
	pthread_mutex_lock(&p->lock);
	space->id = ++p->next_space;
	pthread_mutex_unlock(&p->lock);
	rc = space->maps_open ? space_learn(p, space) : -EBADF;
	if (rc)
		ramp_err_sys(&err, -rc, "looking into its memory");
	else
		rc = add_to_pager(space, &err);
	if (rc)
		log_warn("what process %d has left to others waits for its missing pages: %s",
			 (int)space->pid, err.text);
	else
		space_wake_all(space);
	pthread_mutex_lock(&p->lock);
	TAILQ_INSERT_TAIL(&p->orphans, space, link);
	pthread_mutex_unlock(&p->lock);
}
