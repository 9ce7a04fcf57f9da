/*
 * What one daemon leaves to the next on the same connection: the kernel's INIT and our answer to
 * it, the appends and the move that are under way, passthrough opens, and the request that daemons
 * die of. A small file in the store, mapped shared, so that kill -9 at any instruction leaves it
 * readable.
 *
 * Thread-safety: handover_open, _save_*, _forget_others, _deaths and _try_* before the threads
 * start; appends and the move from any thread.
 */
#ifndef RAMP_HANDOVER_H
#define RAMP_HANDOVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/ids.h"

#define HANDOVER_INIT_BYTES 256
#define HANDOVER_APPENDS    512 /* more than threads that can be in an append at once */

#define HANDOVER_PASSES 4096
#define HANDOVER_FORMER 16

struct handover;
struct handover_append;

/* An open of a segment that was answered with a backing id (pass.c). */
struct handover_pass {
	_Atomic uint64_t unique; /* of the OPEN; 0: free */
	ramp_segment_t id;
	uint32_t backing, pid;
};

struct handover_passes {
	_Atomic uint64_t opening; /* 1: a backing id is being made */
	_Atomic uint64_t closing; /* the backing id that is being closed; 0: none */
	_Atomic uint64_t dev;	  /* of the mount, once one was granted; 0: none was */
	/* Of mounts that died before with mappings: outlives connections. 0: none. */
	uint64_t former[HANDOVER_FORMER];
	struct handover_pass opens[HANDOVER_PASSES];
};

/* `fd` of the private file (taken over in any case). Another connection's content is wiped. */
int handover_open(int fd, uint64_t connection, struct handover **out, struct ramp_err *err);
void handover_close(struct handover *h);

/* The first INIT request as it was read; longer ones are -EMSGSIZE. */
int handover_save_init(struct handover *h, const void *in, size_t len);
/* Our answer's body (without fuse_out_header), saved before it is written. */
void handover_save_reply(struct handover *h, const void *out, size_t len);
/* What was saved; NULL where INIT has not been answered on this connection. */
const void *handover_init(struct handover *h, size_t *len);
const void *handover_reply(struct handover *h, size_t *len);

/*
 * INIT's answer as libfuse 3.14 makes it lacks what the kernel needs for a resend and for
 * passthrough: adds INIT_EXT, HAS_RESEND and PASSTHROUGH with its stack depth, where the kernel
 * offered them (`in`: the whole request with its header).
 */
void handover_patch_reply(const void *in, size_t in_len, void *out, size_t out_len);

/*
 * An append of `len` bytes to a segment that is `size` long now: *at is where it goes. One that a
 * former daemon began under the same `unique` goes where it went; a new one goes behind all that
 * have been promised. -EBUSY: no slot is free. The caller holds whatever keeps `size` true, and has
 * asked whether it was written already.
 */
enum { HANDOVER_NEW, HANDOVER_BEGUN };
int handover_append_begin(struct handover *h, uint64_t unique, ramp_segment_t id, uint64_t size,
			  uint64_t len, struct handover_append **slot, uint64_t *at);
/* `len` bytes of it are in the file, whose size is what counts from now on: who asked may be
   answered, and cut it again, before the slot is free. With what keeps `size` true. */
void handover_append_written(struct handover_append *slot, uint64_t len);
/* True: a former daemon has written it, `*len` bytes of it, wherever the segment is by now. */
bool handover_append_done(struct handover *h, uint64_t unique, uint64_t *len);
/* The request has been answered. */
void handover_append_end(struct handover_append *slot);
/* The same for a request that is answered without having been carried out (again). */
void handover_append_drop(struct handover *h, uint64_t unique);

/* The rename to another node's directory that is under way is about this segment. There is one at
   most: the kernel holds the rename lock of the whole mount. */
void handover_move_begin(struct handover *h, uint64_t unique, ramp_segment_t id);
/* The segment that a former daemon began to move by this request; 0: none. */
ramp_segment_t handover_move(struct handover *h, uint64_t unique);

/* The passthrough opens; pass.c alone changes them, under its lock. */
struct handover_passes *handover_passes(struct handover *h);
/* At a start: only these requests (sorted or not) can come again; frees the slots of others. */
void handover_forget_others(struct handover *h, const uint64_t *uniques, size_t n);

/* From _begin to _end a request that was sent again is carried out; a daemon that dies in between
   has died of it, as far as can be told. */
void handover_try_begin(struct handover *h, uint64_t unique);
void handover_try_end(struct handover *h);
/* So many daemons in a row have died of that request. */
uint64_t handover_deaths(struct handover *h, uint64_t unique);

#endif
