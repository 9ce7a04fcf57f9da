/*
 * A proposal on behalf of a FUSE request.
 *
 * The command's id is the connection's random id and the request's own `unique`, so that a request
 * that is sent again after the daemon died finds its first result. The meta thread hands the answer
 * to the park thread, which does the rest and replies. Without a quorum the answer is EROFS after
 * 5 s (nothing was proposed) or ETIMEDOUT (it may still happen).
 */
#include <time.h>

#include "ops.h"

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

static enum park_verdict on_answer(struct parked *parked)
{
	struct change *c = (struct change *)parked;

	c->done(c);
	return PARK_DONE;
}

static void on_proposed(void *arg, const struct meta_reply *reply)
{
	struct change *c = arg;

	c->reply = *reply;
	c->r.parked.step = on_answer;
	park_run(c->r.mount->park, &c->r.parked);
}

void change_propose(struct change *c)
{
	meta_propose(c->r.mount->config.meta, &c->command, on_proposed, c);
}
