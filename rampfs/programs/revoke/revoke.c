/*
 * Revoke: takes access away from every program, and gives it back.
 *
 * Happy path (programs_revoke): the mapped segment becomes FROZEN, so that nothing is resolved and
 * nothing attaches any more; every attachment is registered; all agents get their MOVE at once, and
 * move the page tables away (an older agent gets a DROP, and drops their entries); the events of
 * these moves are read, without which they do not end; when the last DONE is there, /proc is asked
 * whether a page is present or a mapping is not registered. From there on every load and store waits
 * in a page fault that the pager leaves alone.
 *
 * A segment that is closed to stores (close_stores.c) has its protected mappings replaced by such
 * without entries, instead.
 *
 * The entries of a stopped process are dropped from outside (inject.c), unless its agent owes a
 * RETURN (move_away.c): that is -EBUSY.
 *
 * How it fails: an agent does not answer until the deadline, or its process is stopped by a
 * debugger or a frozen cgroup; or a mapping is not covered. Then everything is made as it was
 * (thaw): moved back, unregistered, woken. No program has noticed more than a pause.
 *
 * In the window there is no control loop, no allocation while agents are being asked, and no other
 * lock than those of the sessions: the caller's thread talks to the agents itself.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/kernel.h"
#include "close_stores.h"
#include "inject.h"
#include "may_move.h"
#include "prelook.h"
#include "programs/attach/agent_call.h"
#include "programs/attach/attachments.h"
#include "programs/attach/beside.h"
#include "programs/attach/move_away.h"
#include "programs/client/clients.h"
#include "programs/client/uffd.h"
#include "programs/proc/process.h"
#include "programs/programs.h"
#include "thaw.h"

#define RESOLVING_MS	100u /* how long a freeze waits for threads that map pages */
#define PATIENCE_MS	20   /* then a silent process is checked for being stopped */
#define REVOKE_TRIES	2
#define LOCK_PAUSE_US	20
#define VERIFY_TRIES	20
#define VERIFY_PAUSE_US 500
#define SPIN_US		200u /* how long answers are polled for without sleep */

/* ---- the window ----------------------------------------------------------------------------- */

struct drop {
	struct client *client; /* of the refs */
	size_t first, count;   /* its refs */
	uint32_t serial;       /* of the last MOVE or DROP */
	struct away_found away;
	bool locked, done;
};

struct revoke {
	struct programs *programs;
	struct mapped_segment *mseg;
	uint64_t until_ms, ino;
	struct mapping_ref *refs;
	size_t n_refs;
	struct drop *drops;
	struct pollfd *polls;	      /* the sessions, then the userfaultfds */
	struct address_range *ranges; /* the refs' ranges */
	size_t n_drops;
	bool spins; /* there is another processor for those that are waited for */
	struct ramp_err *err;
};

static void revoke_free(struct revoke *r)
{
	mapping_refs_free(r->refs, r->n_refs);
	free(r->drops);
	free(r->polls);
	free(r->ranges);
	r->ranges = NULL;
	r->refs = NULL;
	r->drops = NULL;
	r->polls = NULL;
	r->n_refs = 0;
}

/* Returns true for a session that has ended, and whose process has a new one or maps nothing any
   more. */
static bool is_settled(struct client *client)
{
	return client_dead(client) && (client_replaced(client) || !client_maps(client));
}

/* Collects the live refs, grouped by client. */
static int revoke_take_stock(struct revoke *r)
{
	size_t kept = 0;

	revoke_free(r);
	if (mseg_refs(r->mseg, &r->refs, &r->n_refs))
		return -ENOMEM;
	r->n_drops = 0;
	r->drops = calloc(r->n_refs + 1, sizeof(*r->drops));
	r->polls = calloc(r->n_refs + 1, 2 * sizeof(*r->polls));
	r->ranges = calloc(r->n_refs + 1, sizeof(*r->ranges));
	if (!r->drops || !r->polls || !r->ranges)
		return -ENOMEM;
	for (size_t i = 0; i < r->n_refs; i++) {
		if (r->refs[i].gone || is_settled(r->refs[i].client)) {
			client_put(r->refs[i].client);
			continue;
		}
		r->refs[kept] = r->refs[i];
		r->ranges[kept] = (struct address_range){r->refs[i].start, r->refs[i].end};
		if (!kept || r->refs[kept].client != r->refs[kept - 1].client)
			r->drops[r->n_drops++] =
				(struct drop){.client = r->refs[kept].client, .first = kept};
		r->drops[r->n_drops - 1].count++;
		kept++;
	}
	r->n_refs = kept;
	return 0;
}

static int busy(struct revoke *r, struct client *client, const char *what)
{
	char name[64];

	process_name(client->pid, name);
	return ramp_err_set(r->err, EBUSY, "process %s %s", name, what);
}

/* Registers everything. 1: the table was old; take stock again. A process that is ending has closed
   its session a little before its mappings go: it is waited for, and no MOVE is needed there. */
static int arm(struct revoke *r)
{
	int again = 0;

	for (size_t i = 0; i < r->n_refs; i++) {
		struct client *client = r->refs[i].client;

		if (client_dead(client) && !is_settled(client)) {
			if (!client_has_ended(client, r->until_ms))
				return busy(r, client, "maps it and its session has ended");
			continue;
		}
		if (!uffd_arm(client, r->refs[i].start, r->refs[i].end))
			continue;
		mseg_look(r->programs, r->mseg, client); /* an munmap, as a rule */
		again = 1;
	}
	return again;
}

static int arm_all(struct revoke *r)
{
	int rc;

	for (int i = 0; i < REVOKE_TRIES; i++) {
		if (revoke_take_stock(r))
			return ramp_err_sys(r->err, ENOMEM, "a revoke");
		rc = arm(r);
		if (rc <= 0)
			return rc;
	}
	return busy(r, r->refs[0].client, "changes its mappings all the time");
}

/* Locks a session, nearly always at once: a thread in a conversation has the lock for
   microseconds. */
static int lock_session(struct revoke *r, struct drop *d)
{
	while (pthread_mutex_trylock(&d->client->io)) {
		if (clock_ms() >= r->until_ms)
			return busy(r, d->client, "maps it and its agent does not answer");
		usleep(LOCK_PAUSE_US);
	}
	d->locked = true;
	return 0;
}

static int send_drop(struct revoke *r, struct drop *d)
{
	for (size_t i = 0; i < d->count;) {
		struct session_msg msg = {.type = d->client->moves ? SESSION_MOVE : SESSION_DROP,
					  .segment = r->mseg->id};

		for (; i < d->count && msg.count < SESSION_RANGES_MAX; i++) {
			const struct mapping_ref *ref = &r->refs[d->first + i];

			msg.ranges[msg.count++] =
				(struct session_range){ref->start, ref->end - ref->start};
		}
		if (agent_send(d->client, &msg, -1)) {
			d->done = client_has_ended(d->client, r->until_ms);
			return d->done ? 0
				       : busy(r, d->client,
					      "maps it and its session has just ended");
		}
		d->serial = msg.serial;
	}
	return 0;
}

static void set_done(struct revoke *r, size_t i, size_t *left)
{
	r->drops[i].done = true;
	r->polls[i].fd = r->polls[r->n_drops + i].fd = -1;
	--*left;
}

/* Reads the events of the moves. The pager reads them as well, but may be busy, and a move ends the
   sooner the sooner its event is read. The kernel sends an event when the move is made: so the DONE,
   which comes when the agent has had a processor once more, need not be waited for. */
static void take_events(struct revoke *r, size_t *left)
{
	for (size_t i = 0; i < r->n_drops; i++) {
		struct drop *d = &r->drops[i];

		if (r->polls[r->n_drops + i].fd < 0)
			continue;
		if (r->polls[r->n_drops + i].revents & POLLIN)
			uffd_drain_but(d->client, r->mseg->lo, r->mseg->hi);
		/* The pager may have read it. */
		if (away_moved_all(d->client, r->mseg->id, r->ranges + d->first, d->count,
				   &d->away))
			set_done(r, i, left);
	}
}

/* Takes the answers that have come; *left: how many agents have not answered yet. */
static int take_answers(struct revoke *r, size_t *left)
{
	for (size_t i = 0; i < r->n_drops; i++) {
		struct drop *d = &r->drops[i];
		int rc;

		if (d->done || !r->polls[i].revents)
			continue;
		rc = agent_look(d->client, d->serial, NULL);
		if (rc == -EAGAIN && !(r->polls[i].revents & POLLHUP))
			continue;
		if (rc &&
		    !((rc == -ESRCH || rc == -EAGAIN) && client_has_ended(d->client, r->until_ms)))
			return busy(r, d->client, "maps it and its agent could not drop it");
		set_done(r, i, left);
	}
	return 0;
}

static int busy_why(struct revoke *r, struct client *client, const char *why)
{
	char what[INJECT_WHY + 16];

	snprintf(what, sizeof(what), "maps it and %s", why);
	return busy(r, client, what);
}

static int drop_stopped(struct revoke *r, struct drop *d)
{
	char why[INJECT_WHY];

	if (move_away_owes(d->client))
		return busy_why(r, d->client,
				"is stopped, and has not taken back what an earlier move left");
	if (inject_drop(d->client, r->ranges + d->first, d->count, r->until_ms, why))
		return busy_why(r, d->client, why);
	return 0;
}

/* Looks at the clients that have not answered: drops a stopped one's entries from outside. `late`:
   any other one is -EBUSY. */
static int find_stopped(struct revoke *r, size_t *left, bool late)
{
	int rc = 0;

	for (size_t i = 0; i < r->n_drops && !rc; i++) {
		struct drop *d = &r->drops[i];
		char why[INJECT_WHY];

		if (d->done)
			continue;
		if (client_stopped(d->client)) {
			rc = drop_stopped(r, d);
			set_done(r, i, left);
		} else if (late) {
			if (!inject_ready(d->client, why))
				snprintf(why, sizeof(why), "its agent does not answer");
			rc = busy_why(r, d->client, why);
		}
	}
	return rc;
}

static int collect_answers(struct revoke *r)
{
	uint64_t look_ms = clock_ms() + PATIENCE_MS, spin_until_us = clock_us() + SPIN_US;
	size_t left = 0;
	int rc = 0;

	for (size_t i = 0; i < r->n_drops; i++) {
		bool done = r->drops[i].done;

		struct client *client = r->drops[i].client;

		r->polls[i] = (struct pollfd){.fd = done ? -1 : client->sock, .events = POLLIN};
		r->polls[r->n_drops + i] = (struct pollfd){
			.fd = done || !client->moves ? -1 : client->uffd, .events = POLLIN};
		left += !done;
	}
	while (!rc && left) {
		int patience_ms = r->spins && clock_us() < spin_until_us ? 0 : PATIENCE_MS;
		int n = poll(r->polls, 2 * (nfds_t)r->n_drops, patience_ms);
		bool late = clock_ms() >= r->until_ms;

		take_events(r, &left);
		if (n > 0)
			rc = take_answers(r, &left);
		/* Also where something comes all the time, but never the answer. */
		if (rc || !left || (!late && clock_ms() < look_ms))
			continue;
		rc = find_stopped(r, &left, late);
		look_ms = clock_ms() + PATIENCE_MS;
	}
	return rc;
}

/* Sends all MOVEs, then waits for all answers. Sessions are locked in the order of the refs, by
   address. */
static int drop_all(struct revoke *r)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < r->n_drops; i++)
		rc = lock_session(r, &r->drops[i]);
	for (size_t i = 0; !rc && i < r->n_drops; i++)
		if (!atomic_load(&r->drops[i].client->stopped))
			rc = send_drop(r, &r->drops[i]);
	for (size_t i = 0; !rc && i < r->n_drops; i++)
		if (atomic_load(&r->drops[i].client->stopped)) {
			rc = drop_stopped(r, &r->drops[i]);
			r->drops[i].done = true;
		}
	if (!rc)
		rc = collect_answers(r);
	for (size_t i = 0; i < r->n_drops; i++)
		if (r->drops[i].locked)
			pthread_mutex_unlock(&r->drops[i].client->io);
	return rc;
}

static bool was_asked(const struct revoke *r, const struct client *client)
{
	for (size_t i = 0; i < r->n_drops; i++)
		if (r->drops[i].client == client)
			return true;
	return false;
}

static int look_clear(struct bounded *bounded, void *arg, struct client *client)
{
	const struct revoked_ranges none = {0};

	(void)bounded;
	return mappings_clear(&client->mappings, 0, UINT64_MAX, *(const uint64_t *)arg, &none);
}

/* Looks at the ready sessions without refs: a mapping that no look has found so far lies in one of
   them. */
static int verify_others(struct revoke *r)
{
	struct client **others;
	size_t n, kept = 0;
	char name[64];
	pid_t pid;
	int rc;

	if (clients_get_ready(r->programs, &others, &n))
		return ramp_err_sys(r->err, ENOMEM, "a revoke");
	for (size_t i = 0; i < n; i++)
		if (was_asked(r, others[i]))
			client_put(others[i]);
		else
			others[kept++] = others[i];
	rc = clients_look(others, kept, look_clear, &r->ino, sizeof(r->ino), &pid);
	if (!rc)
		return 0;
	if (!pid)
		return ramp_err_sys(r->err, -rc, "looking into sessions");
	process_name(pid, name);
	return ramp_err_set(r->err, EBUSY,
			    "process %s has mapped it during the revoke, or can't be "
			    "looked into",
			    name);
}

/* Waits until the moves are over, which they are when their agents have run once more. Until then no
   thread can tell whether the program makes one of its own, and all mappings would be looked at. */
static void await_ends(struct revoke *r)
{
	uint64_t until_us = clock_us() + SPIN_US;

	for (size_t i = 0; i < r->n_drops; i++)
		while (r->spins && r->drops[i].client->moves &&
		       uffd_remapping(r->drops[i].client) && clock_us() < until_us)
			;
}

/* Whether nothing of one process is left in [lo, hi). -EBUSY, -errno. */
static int verify_one(struct revoke *r, size_t i, uint64_t lo, uint64_t hi)
{
	const struct drop *d = &r->drops[i];
	struct address_range places[AWAY_MAX + BESIDE_MAX];
	struct revoked_ranges known = {
		.covered = r->ranges + d->first, .n_covered = d->count, .away = places};

	known.n_away = away_places(d->client, r->mseg->id, places);
	known.n_away += beside_places(r->mseg, d->client, places + known.n_away, BESIDE_MAX);
	return mappings_clear(&d->client->mappings, lo, hi, r->ino, &known);
}

/* The same everywhere. An event of a move away may have been read by a thread (of the pager, or of
   another revoke) that has not noted it yet, and waits for a processor: the place is not known then. */
static int verify_all(struct revoke *r, size_t i)
{
	struct client *client = r->drops[i].client;
	uint64_t remaps;
	int rc;

	for (int n = 0;; n++) {
		(void)uffd_remaps(client, &remaps);
		rc = verify_one(r, i, 0, UINT64_MAX);
		if (rc != -EBUSY || !client->moves || n == VERIFY_TRIES)
			return rc;
		usleep(VERIFY_PAUSE_US);
	}
}

/* Checks that nothing is left: in the extent, where the look that was made right before still holds;
   else everywhere. */
static int verify(struct revoke *r)
{
	bool same = prelook_holds(r->programs, r->mseg, r->refs, r->n_refs);
	int rc = 0;

	for (size_t i = 0; !rc && i < r->n_drops; i++) {
		rc = same ? verify_one(r, i, r->mseg->lo, r->mseg->hi) : verify_all(r, i);
		if (rc)
			rc = busy(r, r->drops[i].client,
				  "maps it and has changed that during the revoke");
	}
	return rc || same ? rc : verify_others(r);
}

/* ---- freezing ------------------------------------------------------------------------------- */

/* Waits for the threads that map pages of it to end. False: a program keeps one of them. */
static bool none_resolves(struct programs *p, struct mapped_segment *mseg, uint64_t until_ms)
{
	uint64_t kept_ms = clock_ms() + RESOLVING_MS;
	bool idle = true;

	pthread_mutex_lock(&p->lock);
	while (idle && atomic_load(&mseg->resolving))
		idle = programs_wait(p, kept_ms < until_ms ? kept_ms : until_ms);
	pthread_mutex_unlock(&p->lock);
	return idle;
}

/* Freezes: nothing attaches and nothing is resolved from here on. Returns with change held, on
   success; *closed: it was closed to stores. */
static int freeze(struct programs *p, struct mapped_segment *mseg, uint64_t until_ms, bool *closed,
		  struct ramp_err *err)
{
	bool idle = true, kept;

	pthread_mutex_lock(&mseg->change);
	*closed = mseg->state == MSEG_CLOSED;
	if (mseg->state != MSEG_OPEN && !*closed) {
		pthread_mutex_unlock(&mseg->change);
		return ramp_err_set(err, EBUSY, "it is being moved already");
	}
	mseg_go(p, mseg, mseg->state, MSEG_FROZEN);
	pthread_mutex_unlock(&mseg->change);
	/* An attach that has begun needs `change` to end. */
	pthread_mutex_lock(&p->lock);
	while (mseg->attaching && idle)
		idle = programs_wait(p, until_ms);
	pthread_mutex_unlock(&p->lock);
	kept = idle && !none_resolves(p, mseg, until_ms);
	pthread_mutex_lock(&mseg->change);
	if (idle && !kept)
		return 0;
	mseg->prelook.on = false;
	thaw(p, mseg);
	pthread_mutex_unlock(&mseg->change);
	if (kept)
		return ramp_err_set(err, EBUSY,
				    "a program that has it mapped keeps the lock of its memory");
	return ramp_err_set(err, ETIMEDOUT, "a program is just attaching it, and does not answer");
}

static void note_revoke(struct programs *p, uint64_t us)
{
	pthread_mutex_lock(&p->lock);
	p->status.revokes++;
	p->status.revoke_last_us = us;
	if (us > p->status.revoke_max_us)
		p->status.revoke_max_us = us;
	pthread_mutex_unlock(&p->lock);
}

static int freeze_and_drop(struct revoke *r)
{
	struct programs *p = r->programs;
	bool closed;
	int rc = freeze(p, r->mseg, r->until_ms, &closed, r->err);

	if (rc)
		return rc;
	if (closed) {
		rc = close_stores_replace(p, r->mseg, r->until_ms, r->err);
		if (!rc && revoke_take_stock(r))
			rc = ramp_err_sys(r->err, ENOMEM, "a revoke");
	} else {
		rc = arm_all(r);
		if (!rc)
			rc = drop_all(r);
	}
	if (!rc) {
		await_ends(r);
		rc = verify(r);
	}
	r->mseg->prelook.on = false;
	if (rc)
		thaw(p, r->mseg);
	pthread_mutex_unlock(&r->mseg->change);
	return rc;
}

int programs_revoke(struct programs *p, struct seg *seg, uint32_t timeout_ms, struct ramp_err *err)
{
	uint64_t began_us = clock_us();
	struct mapped_segment *mseg = mseg_get(p, seg_id(seg));
	struct revoke r = {
		.programs = p,
		.mseg = mseg,
		.until_ms = clock_ms() + timeout_ms,
		.spins = kernel_processors() > 1,
		.err = err,
	};
	struct stat st;
	int rc;

	if (!mseg)
		return ramp_err_sys(err, ENOMEM, "attachments");
	if (fstat(seg_fd(seg), &st)) {
		rc = ramp_err_sys(err, errno, "the segment's file");
	} else {
		r.ino = st.st_ino;
		rc = may_move_ask_passthrough(p, seg, err);
		if (!rc)
			rc = freeze_and_drop(&r);
	}
	if (!rc)
		note_revoke(p, clock_us() - began_us);
	revoke_free(&r);
	mseg_put(p, mseg);
	return rc;
}

void programs_restore(struct programs *p, struct seg *seg)
{
	struct mapped_segment *mseg = mseg_find(p, seg_id(seg));

	if (!mseg)
		return;
	pthread_mutex_lock(&mseg->change);
	if (mseg->state == MSEG_FROZEN || mseg->state == MSEG_CLOSED) {
		mseg_set_seg(mseg, seg);
		thaw(p, mseg);
	} else if (mseg->prelook.armed) {
		prelook_end(p, mseg);
	}
	pthread_mutex_unlock(&mseg->change);
	mseg_put(p, mseg);
}
