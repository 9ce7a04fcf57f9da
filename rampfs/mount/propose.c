/*
 * A proposal on behalf of a FUSE request.
 *
 * The command's id is the connection's random id and the request's own `unique`, so that a request
 * that is sent again after the daemon died finds its first result. The meta thread hands the answer
 * to the park thread, which does the rest and replies. A daemon that dies before that leaves
 * changes that are done and not answered: no more of them than the tables keep results of, so
 * further ones wait in the park until some are finished (but for what is sent again, of which there
 * may be more when that daemon dies, too). Without a quorum the answer is EROFS after 5 s (nothing
 * was proposed) or ETIMEDOUT (it may still happen, as may what is sent again).
 */
#include "propose.h"

#include <errno.h>
#include <time.h>

#define CHANGES_MAX  192u /* with what the next life proposes meanwhile: META_RESULTS_KEPT */
#define CHANGES_WAKE 128u
#define TURN_MS	     5000u /* then EROFS, as where there is no quorum */

void change_init(struct change *c, enum meta_command_type type, void (*done)(struct change *c))
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	c->done = done;
	c->command.type = type;
	c->command.now = (struct meta_time){.sec = now.tv_sec, .nsec = (uint32_t)now.tv_nsec};
}

void *change_new(fuse_req_t fuse, size_t size, enum meta_command_type type,
		 void (*done)(struct change *c))
{
	struct change *c = request_new(fuse, size);

	if (!c)
		return NULL;
	change_init(c, type, done);
	c->command.cid.client = c->r.mount->config.connection;
	c->command.cid.unique = c->r.unique;
	return c;
}

/* The park looks at each that waits. */
static void finished(struct mount *m)
{
	if (atomic_fetch_sub(&m->changes, 1) == CHANGES_WAKE + 1)
		park_changed(m->park, 0);
}

static enum park_verdict on_answer(struct parked *parked)
{
	struct change *c = (struct change *)parked;
	struct mount *m = c->r.mount;

	c->done(c);
	finished(m);
	return PARK_DONE;
}

static void on_proposed(void *arg, const struct meta_reply *reply)
{
	struct change *c = arg;

	c->reply = *reply;
	c->r.parked.step = on_answer;
	park_run(c->r.mount->park, &c->r.parked);
}

/* What is sent again is all asked for before anything new is proposed (meta_hold). */
static bool propose(struct change *c)
{
	struct mount *m = c->r.mount;

	if (atomic_fetch_add(&m->changes, 1) >= CHANGES_MAX && !atomic_load(&m->sent_again)) {
		finished(m);
		return false;
	}
	c->command.again = c->r.resent;
	meta_propose(m->config.meta, &c->command, on_proposed, c);
	return true;
}

static enum park_verdict on_turn(struct parked *parked)
{
	struct change *c = (struct change *)parked;
	struct mount *m = c->r.mount;

	if (park_now_ms() - c->waits_since_ms >= TURN_MS) {
		atomic_fetch_sub(&m->waiting_changes, 1);
		c->reply = (struct meta_reply){.result = -EROFS};
		c->done(c);
		return PARK_DONE;
	}
	if (!propose(c))
		return PARK_WAIT;
	atomic_fetch_sub(&m->waiting_changes, 1);
	return PARK_DONE;
}

/* Nobody overtakes those that wait. */
void change_propose(struct change *c)
{
	struct mount *m = c->r.mount;
	bool now = atomic_load(&m->waiting_changes) == 0 || atomic_load(&m->sent_again);

	if (now && propose(c))
		return;
	atomic_fetch_add(&m->waiting_changes, 1);
	c->waits_since_ms = park_now_ms();
	c->r.parked.step = on_turn;
	park_wait(m->park, &c->r.parked, 0);
}
