/*
 * A proposal on behalf of a FUSE request.
 *
 * The command's id is the connection's random id and the request's own `unique`, so that a request
 * that is sent again after the daemon died finds its first result. The meta thread hands the answer
 * to the park thread, which does the rest and replies.
 *
 * A daemon that dies before that leaves changes that are done and not answered. Their number must
 * not exceed the results that the tables keep, so further requests wait in the park until some are
 * finished. Requests that were sent again do not wait, since there may be more of them when that
 * daemon dies, too.
 *
 * Without a quorum the answer is EROFS after 5 s (nothing was proposed) or ETIMEDOUT (it may still
 * happen, as may a request that is sent again).
 */
#include "propose.h"

#include <errno.h>
#include <time.h>

#define PROPOSALS_MAX  192u /* with the next daemon's proposals meanwhile: META_RESULTS_KEPT */
#define PROPOSALS_WAKE 128u
#define TURN_MS	       5000u /* then EROFS, as where there is no quorum */
#define HOME_MS	       200u  /* for another node's tables to show the change */

void propose_init(struct metadata_change *c, enum meta_command_type type,
		  void (*done)(struct metadata_change *c))
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	c->done = done;
	c->command.type = type;
	c->command.now = (struct meta_time){.sec = now.tv_sec, .nsec = (uint32_t)now.tv_nsec};
}

void *propose_new(fuse_req_t fuse, size_t size, enum meta_command_type type,
		  void (*done)(struct metadata_change *c))
{
	struct metadata_change *c = request_new(fuse, size);

	if (!c)
		return NULL;
	propose_init(c, type, done);
	c->command.cid.client = c->r.mount->config.connection;
	c->command.cid.unique = c->r.unique;
	return c;
}

/* Counts a proposal out; the waiting ones look again. */
static void propose_finished(struct mount *m)
{
	if (atomic_fetch_sub(&m->proposals, 1) == PROPOSALS_WAKE + 1)
		park_changed(m->park, 0);
}

static enum park_verdict propose_answer(struct parked *parked)
{
	struct metadata_change *c = (struct metadata_change *)parked;
	struct mount *m = c->r.mount;

	c->done(c);
	propose_finished(m);
	return PARK_DONE;
}

/* It is committed, whether that node has said so or not. */
static void home_shows(void *arg, const struct meta_reply *reply)
{
	struct metadata_change *c = arg;

	(void)reply;
	park_run(c->r.mount->park, &c->r.parked);
}

static void propose_replied(void *arg, const struct meta_reply *reply)
{
	struct metadata_change *c = arg;
	struct mount *m = c->r.mount;

	c->reply = *reply;
	c->r.parked.step = propose_answer;
	if (!reply->result && c->home && c->home != m->self && peer_up(m->config.peers, c->home))
		meta_wait_shown(m->config.meta, c->home, HOME_MS, home_shows, c);
	else
		park_run(m->park, &c->r.parked);
}

/* Proposes, or returns false where the change has to wait. All requests that are sent again are
   proposed before any new one (meta_hold). */
static bool propose_now(struct metadata_change *c)
{
	struct mount *m = c->r.mount;

	if (atomic_fetch_add(&m->proposals, 1) >= PROPOSALS_MAX && !atomic_load(&m->sent_again)) {
		propose_finished(m);
		return false;
	}
	c->command.again = c->r.resent;
	meta_propose(m->config.meta, &c->command, propose_replied, c);
	return true;
}

static enum park_verdict propose_step(struct parked *parked)
{
	struct metadata_change *c = (struct metadata_change *)parked;
	struct mount *m = c->r.mount;

	if (park_now_ms() - c->waits_since_ms >= TURN_MS) {
		atomic_fetch_sub(&m->waiting_proposals, 1);
		c->reply = (struct meta_reply){.result = -EROFS};
		c->done(c);
		return PARK_DONE;
	}
	if (!propose_now(c))
		return PARK_WAIT;
	atomic_fetch_sub(&m->waiting_proposals, 1);
	return PARK_DONE;
}

/* A new proposal does not overtake those that wait. */
void propose_change(struct metadata_change *c)
{
	struct mount *m = c->r.mount;
	bool now = atomic_load(&m->waiting_proposals) == 0 || atomic_load(&m->sent_again);

	if (now && propose_now(c))
		return;
	atomic_fetch_add(&m->waiting_proposals, 1);
	c->waits_since_ms = park_now_ms();
	c->r.parked.step = propose_step;
	park_wait(m->park, &c->r.parked, 0);
}
