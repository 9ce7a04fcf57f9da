/*
 * One FUSE request that may have to wait.
 *
 * An op decodes its request into a struct that begins with a struct parked_request and tries it at once on
 * the fuse thread; where that says -EAGAIN, a copy on the heap is parked. What goes through Raft is
 * on the heap from the start. Whoever gets the final result replies, exactly once, and frees.
 */
#ifndef RAMP_REQUEST_H
#define RAMP_REQUEST_H

#include "libfuse.h"
#include "mount_ref.h"

/* A gate that stays closed for longer than a revoke may take (2 x 5 s) is somebody's mistake, but
   for one behind which all pages are being copied: that ends with the copy. */
#define REQUEST_GATE_MS 10000
/* Waiting for pages of a source that is silent. */
#define REQUEST_SILENT_MS 5000

struct parked_request {
	struct parked parked; /* first: the park knows nothing else */
	struct mount *mount;  /* a reference, where the request is on the heap */
	fuse_req_t fuse;
	uint64_t unique; /* without the mark of a resend */
	bool resent;
	bool interruptible;
	bool needs_worker, on_worker; /* spare.c: it waits for a worker; it is on one */
	uid_t owner;		      /* with spare: of the segment */
	pid_t caller;		 /* a thread, as FUSE says it; 0: none that this namespace knows */
	uint64_t gate_since_ms;	 /* 0: the gate was open at the last look */
	uint64_t pages_since_ms; /* 0: it did not wait for pages at the last look */
	/* Frees what the struct around it owns (not the struct); may be NULL. */
	void (*release)(struct parked_request *r);
};

static inline struct mount *mount_of(fuse_req_t fuse)
{
	return fuse_req_userdata(fuse);
}

/* Fuse thread, in the op. */
void request_init(struct parked_request *r, fuse_req_t fuse);
/* One that no FUSE request stands behind, on the heap: the caller's own answer, in `release`. */
void request_init_own(struct parked_request *r, struct mount *m);
/* A zeroed struct of `size` bytes that begins with a request; NULL after it has replied ENOMEM. */
void *request_new(fuse_req_t fuse, size_t size);
/* From the stack to the heap; the same on failure. */
void *request_keep(const struct parked_request *r, size_t size);

/* FUSE INTERRUPT wakes it from now on. */
void request_interruptible(struct parked_request *r);
/* A signal came that ends the caller. Others interrupt no read of a file: programs do not expect
   EINTR there, whatever SA_RESTART says. */
bool request_interrupted(const struct parked_request *r);

/* The result decides: -EAGAIN waits (returns PARK_WAIT), unless it was interrupted (EINTR), the
   gate has been closed for too long, and for no copy (EBUSY), or the source silent (EHOSTDOWN):
   PARK_DONE with that in *rc. `gate`: it was the gate that said -EAGAIN. What waits for a worker
   (spare.h) has no end but an interrupt. */
enum park_verdict request_judge(struct parked_request *r, int *rc, bool gate);

/* Before any reply to a request on the heap: no interrupt comes from here on. */
void request_finish(struct parked_request *r);
void request_end(struct parked_request *r);
/* request_finish, fuse_reply_err, request_end. `rc`: 0 or a negative errno. */
void request_reply_err(struct parked_request *r, int rc);

#endif
