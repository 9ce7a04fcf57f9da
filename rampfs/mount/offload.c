/*
 * Errands: a request's step on a worker, at most one at a time of a segment.
 *
 * Happy path: nobody is at it for that segment, so the request gets an errand at once, and its step
 * runs on a worker; with the errand's end those in the park that wait for one look again, and the
 * first of them gets his. What finds on the worker that it waits for something else is parked for
 * that: it asks for an errand again when the segment has changed.
 *
 * How it fails: without memory for an errand it is tried again with the park's tick. An errand
 * whose worker comes when the mount has stopped drops the request, as the park does. One that a
 * program holds up keeps its worker, and those behind it wait, until that program ends.
 */
#include "offload.h"

#include <errno.h>
#include <stdlib.h>

#include "base/loop.h"

#define BUCKETS 64u

struct errand {
	LIST_ENTRY(errand) link;
	ramp_segment_t id;
	struct mount *mount; /* a reference */
	struct request *request;
};
LIST_HEAD(errands, errand);

struct spares {
	pthread_mutex_t lock; /* protects the lists */
	struct errands errands[BUCKETS];
};

int spare_begin(struct request *r, struct seg *seg, bool long_one)
{
	r->spare = false;
	/* Who is handed a descriptor waits for what is direct, so no long one is. */
	if (!long_one && seg_direct_begin(seg))
		return SPARE_DIRECT;
	if (r->on_worker) {
		if (!long_one)
			seg_direct_over(seg); /* an append, say, which counts on nobody else */
		return SPARE_WORKER;
	}
	r->spare = true;
	r->owner = seg_owner(seg).uid;
	return -EAGAIN;
}

void spare_end(struct seg *seg, int how)
{
	if (how == SPARE_DIRECT)
		seg_direct_end(seg);
}

static struct errand *claim(struct request *r)
{
	struct spares *s = r->mount->spares;
	ramp_segment_t id = r->parked.id;
	struct errand *e = malloc(sizeof(*e)), *other;

	if (!e)
		return NULL;
	*e = (struct errand){.id = id, .mount = r->mount, .request = r};
	pthread_mutex_lock(&s->lock);
	LIST_FOREACH (other, &s->errands[id % BUCKETS], link)
		if (other->id == id)
			break;
	if (!other)
		LIST_INSERT_HEAD(&s->errands[id % BUCKETS], e, link);
	pthread_mutex_unlock(&s->lock);
	if (!other)
		return e;
	free(e);
	return NULL;
}

static void give_up(struct errand *e)
{
	struct spares *s = e->mount->spares;

	pthread_mutex_lock(&s->lock);
	LIST_REMOVE(e, link);
	pthread_mutex_unlock(&s->lock);
}

static void run_step(struct request *r)
{
	struct park *park = r->mount->park;
	uint64_t changes = park_changes(park, r->parked.id);

	r->on_worker = true;
	r->spare = r->parked.turn = false;
	if (r->parked.step(&r->parked) == PARK_DONE)
		return;
	r->on_worker = false;
	park_again(park, &r->parked, changes);
}

static void errand_work(void *arg)
{
	struct errand *e = arg;
	struct mount *m = e->mount;

	if (mount_work_enter(m)) {
		run_step(e->request);
		give_up(e);
		park_turn(m->park, e->id);
		mount_work_leave(m);
	} else {
		e->request->parked.drop(&e->request->parked);
		give_up(e);
	}
	free(e);
	mount_put(m);
}

/* Whether a worker has it now. */
static bool try_errand(struct request *r)
{
	struct errand *e = claim(r);

	if (!e)
		return false;
	mount_get(e->mount);
	loop_work_of(e->mount->config.loop, r->owner, errand_work, NULL, e);
	return true;
}

void spare_wait(struct request *r, ramp_segment_t id)
{
	r->parked.id = id;
	r->parked.since_ms = park_now_ms();
	if (!r->spare || !try_errand(r))
		park_run(r->mount->park, &r->parked);
}

enum park_verdict spare_later(struct request *r)
{
	r->parked.turn = r->spare;
	return r->spare && try_errand(r) ? PARK_DONE : PARK_WAIT;
}

int spare_open(struct mount *m)
{
	struct spares *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	pthread_mutex_init(&s->lock, NULL);
	for (size_t i = 0; i < BUCKETS; i++)
		LIST_INIT(&s->errands[i]);
	m->spares = s;
	return 0;
}

void spare_close(struct mount *m)
{
	if (!m->spares)
		return;
	pthread_mutex_destroy(&m->spares->lock);
	free(m->spares);
}
