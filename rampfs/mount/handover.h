/*
 * State that one daemon leaves to the next on the same connection: the kernel's INIT and our answer
 * to it, the appends and the move that are under way, passthrough opens, and the request that
 * daemons die of. A small file in the store, mapped shared, so that kill -9 at any instruction
 * leaves it readable.
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
#define HANDOVER_APPENDS    512 /* more than the threads that can be in an append at once */

#define HANDOVER_PASSTHROUGHS 4096
#define HANDOVER_FORMER	      16

struct handover;
struct handover_append;

/* An open of a segment that was answered with a backing id (passthrough.c). */
struct handover_passthrough {
	_Atomic uint64_t unique; /* of the OPEN; 0: free */
	ramp_segment_t id;
	uint32_t backing, pid;
};

struct handover_passthroughs {
	_Atomic uint64_t opening; /* 1: a backing id is being made */
	_Atomic uint64_t closing; /* the backing id that is being closed; 0: none */
	_Atomic uint64_t dev;	  /* the mount's device, once an open was granted; 0: none was */
	/* Devices of earlier mounts that died with mappings: they outlive connections. 0: none. */
	uint64_t former[HANDOVER_FORMER];
	struct handover_passthrough opens[HANDOVER_PASSTHROUGHS];
};

/* Returns true where a daemon has answered the connection's INIT: programs may wait for requests
   and hold open files. `fd` is the private file. */
bool handover_living(int fd, uint64_t connection);
/* Maps the private file `fd` (closed in any case). Another connection's content is wiped. */
int handover_open(int fd, uint64_t connection, struct handover **out, struct ramp_err *err);
void handover_close(struct handover *h);

/* Saves the first INIT request as it was read; longer ones are -EMSGSIZE. */
int handover_save_init(struct handover *h, const void *in, size_t len);
/* Saves our answer's body (without fuse_out_header). Called before it is written. */
void handover_save_reply(struct handover *h, const void *out, size_t len);
/* Return the saved bytes; NULL where INIT has not been answered on this connection. */
const void *handover_init(struct handover *h, size_t *len);
const void *handover_reply(struct handover *h, size_t *len);

/*
 * Adds INIT_EXT, HAS_RESEND and PASSTHROUGH with its stack depth to our answer to INIT, where the
 * kernel offered them (`in`: the whole request with its header). libfuse 3.14 does not, and the
 * kernel needs them for a resend and for passthrough. Adds PARALLEL_DIROPS, which libfuse 3.14 does
 * not pass on: else a look-up that waits for the leader would hold up all others in its directory.
 */
void handover_patch_reply(const void *in, size_t in_len, void *out, size_t out_len);

/*
 * Begins an append of `len` bytes to a segment that is `size` long now: *at is its offset. An
 * append that an earlier daemon began under the same `unique` keeps its offset; a new one goes
 * behind all offsets that have been promised. -EBUSY: no slot is free. The caller holds the lock
 * that keeps `size` true, and has checked that the append was not written already.
 */
enum { HANDOVER_NEW, HANDOVER_BEGUN };
int handover_append_begin(struct handover *h, uint64_t unique, ramp_segment_t id, uint64_t size,
			  uint64_t len, struct handover_append **slot, uint64_t *at);
/* Notes that `len` bytes of it are in the file, whose size counts from now on: its caller may be
   answered, and cut the file again, before the slot is free. Call it with the lock that keeps
   `size` true. */
void handover_append_written(struct handover_append *slot, uint64_t len);
/* Returns true if an earlier daemon has written it, `*len` bytes of it, whichever node has the
   segment by now. */
bool handover_append_done(struct handover *h, uint64_t unique, uint64_t *len);
/* Frees the slot: the request has been answered. */
void handover_append_end(struct handover_append *slot);
/* Frees the slot of a request that is answered without having been carried out (again). */
void handover_append_drop(struct handover *h, uint64_t unique);

/* Notes that the rename to another node's directory under way is about this segment. There is at
   most one: the kernel holds the rename lock of the whole mount. */
void handover_move_begin(struct handover *h, uint64_t unique, ramp_segment_t id);
/* Returns the segment that an earlier daemon began to move by this request; 0: none. */
ramp_segment_t handover_move(struct handover *h, uint64_t unique);

/* Returns the passthrough opens; passthrough.c alone changes them, under its lock. */
struct handover_passthroughs *handover_passthroughs(struct handover *h);
/* Frees the slots of all requests but these (sorted or not), at a start: no others can come
   again. */
void handover_forget_others(struct handover *h, const uint64_t *uniques, size_t n);

/* Between _begin and _end a request that was sent again is carried out. A daemon that dies in
   between has died of it, as far as can be told. */
void handover_try_begin(struct handover *h, uint64_t unique);
void handover_try_end(struct handover *h);
/* Returns the number of daemons in a row that died of that request. */
uint64_t handover_deaths(struct handover *h, uint64_t unique);

#endif
