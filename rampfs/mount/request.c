/*
 * Requests on the heap.
 */
#include "request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/kernel.h"
#include "fuse_request.h"

static void request_drop(struct parked *parked)
{
	struct parked_request *r = (struct parked_request *)parked;

	request_finish(r);
	if (r->fuse)
		fuse_reply_none(r->fuse); /* the next daemon has it sent again */
	request_end(r);
}

void request_init_own(struct parked_request *r, struct mount *m)
{
	memset(r, 0, sizeof(*r));
	r->mount = mount_get(m);
	r->parked.drop = request_drop;
}

void request_init(struct parked_request *r, fuse_req_t fuse)
{
	memset(r, 0, sizeof(*r));
	r->mount = mount_of(fuse);
	r->fuse = fuse;
	r->unique = fuse_request_unique();
	r->resent = fuse_request_resent();
	r->caller = fuse_req_ctx(fuse)->pid;
	r->parked.drop = request_drop;
}

void *request_new(fuse_req_t fuse, size_t size)
{
	struct parked_request *r = calloc(1, size);

	if (!r) {
		fuse_reply_err(fuse, ENOMEM);
		return NULL;
	}
	request_init(r, fuse);
	mount_get(r->mount);
	return r;
}

void *request_keep(const struct parked_request *r, size_t size)
{
	struct parked_request *copy = malloc(size);

	if (!copy) {
		fuse_reply_err(r->fuse, ENOMEM);
		return NULL;
	}
	memcpy(copy, r, size);
	mount_get(copy->mount);
	return copy;
}

static void on_interrupt(fuse_req_t fuse, void *data)
{
	struct parked_request *r = data;

	(void)fuse;
	park_interrupt(r->mount->park, &r->parked);
}

void request_interruptible(struct parked_request *r)
{
	r->interruptible = true;
	fuse_req_interrupt_func(r->fuse, on_interrupt, r);
}

bool request_interrupted(const struct parked_request *r)
{
	/* The kernel sends one INTERRUPT a request: a later signal is found at the park's next
	   tick. */
	return atomic_load_explicit(&r->parked.interrupted, memory_order_relaxed) &&
	       kernel_ends(r->caller);
}

/* Returns true if the request has waited for pages for REQUEST_SILENT_MS and not one page has come.
   The pull measures the silence of one connection, which can be longer; a source that accepts
   connections and never answers is silent, too. */
static bool waits_in_vain(const struct parked_request *r)
{
	struct pull_progress progress;
	uint64_t since = r->pages_since_ms, now;

	if (pull_progress(r->mount->config.pull, r->parked.id, &progress) ||
	    !progress.source_silent)
		return false;
	if (progress.heard_ms > since)
		since = progress.heard_ms;
	now = park_now_ms(); /* read after the pull has read the clock */
	return now - since > REQUEST_SILENT_MS;
}

static bool is_copied(const struct parked_request *r)
{
	struct seg *seg = store_find(r->mount->config.store, r->parked.id);
	bool copying = seg && seg_copying(seg);

	if (seg)
		seg_put(seg);
	return copying;
}

enum park_verdict request_judge(struct parked_request *r, int *rc, bool gate)
{
	uint64_t now;

	if (*rc != -EAGAIN)
		return PARK_DONE;
	if (request_interrupted(r)) {
		*rc = -EINTR;
		return PARK_DONE;
	}
	if (r->needs_worker) {
		r->gate_since_ms = 0; /* only the step on the worker sees whether pages are here */
		return PARK_WAIT;
	}
	now = park_now_ms();
	if (!gate) {
		r->gate_since_ms = 0;
		if (!r->pages_since_ms)
			r->pages_since_ms = now;
		if (!waits_in_vain(r))
			return PARK_WAIT;
		*rc = -EHOSTDOWN;
		return PARK_DONE;
	}
	r->pages_since_ms = 0;
	if (!r->gate_since_ms)
		r->gate_since_ms = now;
	if (now - r->gate_since_ms <= REQUEST_GATE_MS)
		return PARK_WAIT;
	if (is_copied(r)) {
		r->gate_since_ms = now;
		return PARK_WAIT;
	}
	*rc = -EBUSY;
	return PARK_DONE;
}

void request_finish(struct parked_request *r)
{
	/* Waits for an interrupt handler that is running, so that none touches a freed request. */
	if (r->interruptible)
		fuse_req_interrupt_func(r->fuse, NULL, NULL);
	r->interruptible = false;
}

void request_end(struct parked_request *r)
{
	struct mount *m = r->mount;

	if (r->release)
		r->release(r);
	free(r);
	mount_put(m);
}

void request_reply_err(struct parked_request *r, int rc)
{
	request_finish(r);
	fuse_reply_err(r->fuse, -rc);
	request_end(r);
}
