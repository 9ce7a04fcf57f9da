/*
 * Requests handed to a worker: a request's step runs there, at most one at a time of a segment.
 *
 * Happy path: no worker is busy for that segment, so the request becomes a job at once, and its
 * step runs on a worker. When the job ends, the parked requests that wait for a worker look again,
 * and the first of them becomes the next job. A step that finds on the worker that it waits for
 * something else is parked for that: it asks for a worker again when the segment has changed.
 *
 * How it fails: without memory for a job the request tries again at the park's tick. A job whose
 * worker starts after the mount has stopped drops the request, as the park does. A job that a
 * program holds up keeps its worker, and the requests behind it wait, until that program ends.
 */
#include "offload.h"

#include <errno.h>
#include <stdlib.h>

#include "base/loop.h"

#define BUCKETS 64u

struct offload_job {
	LIST_ENTRY(offload_job) link;
	ramp_segment_t id;
	struct mount *mount; /* a reference */
	struct parked_request *request;
};
LIST_HEAD(offload_list, offload_job);

struct offload {
	pthread_mutex_t lock; /* protects the lists */
	struct offload_list jobs[BUCKETS];
};

int offload_begin(struct parked_request *r, struct seg *seg, bool long_one)
{
	r->needs_worker = false;
	/* A client waits for direct sections before it is handed a descriptor, so no long operation
	   is direct. */
	if (!long_one && seg_direct_begin(seg))
		return OFFLOAD_DIRECT;
	if (r->on_worker) {
		if (!long_one)
			seg_direct_over(seg); /* an append, say, relies on running alone */
		return OFFLOAD_WORKER;
	}
	r->needs_worker = true;
	r->owner = seg_owner(seg).uid;
	return -EAGAIN;
}

void offload_end(struct seg *seg, int how)
{
	if (how == OFFLOAD_DIRECT)
		seg_direct_end(seg);
}

static struct offload_job *offload_claim(struct parked_request *r)
{
	struct offload *s = r->mount->offload;
	ramp_segment_t id = r->parked.id;
	struct offload_job *e = malloc(sizeof(*e)), *other;

	if (!e)
		return NULL;
	*e = (struct offload_job){.id = id, .mount = r->mount, .request = r};
	pthread_mutex_lock(&s->lock);
	LIST_FOREACH (other, &s->jobs[id % BUCKETS], link)
		if (other->id == id)
			break;
	if (!other)
		LIST_INSERT_HEAD(&s->jobs[id % BUCKETS], e, link);
	pthread_mutex_unlock(&s->lock);
	if (!other)
		return e;
	free(e);
	return NULL;
}

static void offload_release(struct offload_job *e)
{
	struct offload *s = e->mount->offload;

	pthread_mutex_lock(&s->lock);
	LIST_REMOVE(e, link);
	pthread_mutex_unlock(&s->lock);
}

static void offload_run_step(struct parked_request *r)
{
	struct park *park = r->mount->park;
	uint64_t changes = park_changes(park, r->parked.id);

	r->on_worker = true;
	r->needs_worker = r->parked.awaits_worker = false;
	if (r->parked.step(&r->parked) == PARK_DONE)
		return;
	r->on_worker = false;
	park_again(park, &r->parked, changes);
}

static void offload_work(void *arg)
{
	struct offload_job *e = arg;
	struct mount *m = e->mount;

	if (mount_work_enter(m)) {
		offload_run_step(e->request);
		offload_release(e);
		park_worker_free(m->park, e->id);
		mount_work_leave(m);
	} else {
		e->request->parked.drop(&e->request->parked);
		offload_release(e);
	}
	free(e);
	mount_put(m);
}

/* Returns true if a worker has the request now. */
static bool offload_try(struct parked_request *r)
{
	struct offload_job *e = offload_claim(r);

	if (!e)
		return false;
	mount_get(e->mount);
	loop_work_of(e->mount->config.loop, r->owner, offload_work, NULL, e);
	return true;
}

void offload_wait(struct parked_request *r, ramp_segment_t id)
{
	r->parked.id = id;
	r->parked.since_ms = park_now_ms();
	if (!r->needs_worker || !offload_try(r))
		park_run(r->mount->park, &r->parked);
}

enum park_verdict offload_later(struct parked_request *r)
{
	r->parked.awaits_worker = r->needs_worker;
	return r->needs_worker && offload_try(r) ? PARK_DONE : PARK_WAIT;
}

int offload_open(struct mount *m)
{
	struct offload *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	pthread_mutex_init(&s->lock, NULL);
	for (size_t i = 0; i < BUCKETS; i++)
		LIST_INIT(&s->jobs[i]);
	m->offload = s;
	return 0;
}

void offload_close(struct mount *m)
{
	if (!m->offload)
		return;
	pthread_mutex_destroy(&m->offload->lock);
	free(m->offload);
}
