/*
 * One FUSE request that may have to wait.
 *
 * An op decodes its request into a struct that begins with a struct parked_request and tries it at
 * once on the fuse thread; where that says -EAGAIN, a copy on the heap is parked. A request that
 * goes through Raft is on the heap from the start. The code that gets the final result replies,
 * exactly once, and frees.
 */
#ifndef RAMP_REQUEST_H
#define RAMP_REQUEST_H

#include "libfuse.h"
#include "mount_ref.h"

/* A gate that stays closed for longer than a revoke may take (2 x 5 s) is an error of a process or
   of ours. Exception: a gate behind which all pages are being copied opens with the end of the
   copy. */
#define REQUEST_GATE_MS 10000
/* The longest wait for pages of a source that is silent. */
#define REQUEST_SILENT_MS 5000

struct parked_request {
	struct parked parked; /* first: the park knows this alone */
	struct mount *mount;  /* a reference, where the request is on the heap */
	fuse_req_t fuse;
	uint64_t unique; /* without the mark of a resend */
	bool resent;
	bool interruptible;
	bool needs_worker, on_worker; /* offload.c: it waits for a worker; a worker runs it */
	uid_t owner;		      /* with needs_worker: the owner of the segment */
	pid_t caller;		      /* a thread's id, from FUSE; 0: not in our pid namespace */
	uint64_t gate_since_ms;	      /* 0: the gate was open at the last look */
	uint64_t pages_since_ms;      /* 0: it was not waiting for pages at the last look */
	/* ask_leader.c */
	uint64_t
		question; /* the number of the one whose answer it waits for; 0: it has not asked */
	void (*look_again)(struct parked_request *r);
	/* Frees the contents of the struct around it (not the struct); may be NULL. */
	void (*release)(struct parked_request *r);
};

static inline struct mount *mount_of(fuse_req_t fuse)
{
	return fuse_req_userdata(fuse);
}

/* Initialises it from the FUSE request. Fuse thread, in the op. */
void request_init(struct parked_request *r, fuse_req_t fuse);
/* Initialises one on the heap without a FUSE request. The caller answers in its own way, at the
   latest in `release`. */
void request_init_own(struct parked_request *r, struct mount *m);
/* Returns a zeroed struct of `size` bytes that begins with an initialised request; NULL after it
   has replied ENOMEM. */
void *request_new(fuse_req_t fuse, size_t size);
/* Copies one from the stack to the heap; NULL after it has replied ENOMEM. */
void *request_keep(const struct parked_request *r, size_t size);

/* Lets FUSE INTERRUPT wake it from now on. */
void request_interruptible(struct parked_request *r);
/* Returns true when a signal came that ends the caller. Other signals interrupt no read of a file:
   programs do not expect EINTR there, with or without SA_RESTART. */
bool request_interrupted(const struct parked_request *r);

/* Decides by the result. -EAGAIN: returns PARK_WAIT; but PARK_DONE with *rc EINTR if it was
   interrupted, EBUSY if the gate has been closed for too long and for no copy, EHOSTDOWN if the
   source is silent. Other results: PARK_DONE. `gate`: the -EAGAIN came from the gate. A request
   that waits for a worker (offload.h) has no time-out; only an interrupt ends it. */
enum park_verdict request_judge(struct parked_request *r, int *rc, bool gate);

/* Stops interrupts. Call it before any reply to a request on the heap. */
void request_finish(struct parked_request *r);
void request_end(struct parked_request *r);
/* Calls request_finish, fuse_reply_err and request_end. `rc`: 0 or a negative errno. */
void request_reply_err(struct parked_request *r, int rc);

#endif
