/*
 * What one daemon leaves to the next on the same connection: the kernel's INIT and our answer to
 * it, and the appends that are under way. A small file in the store, mapped shared, so that kill -9
 * at any instruction leaves it readable.
 *
 * Thread-safety: handover_open, _save_* and _forget_others before the threads start; appends from
 * any thread.
 */
#ifndef RAMP_HANDOVER_H
#define RAMP_HANDOVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "ids.h"

#define HANDOVER_INIT_BYTES 256
#define HANDOVER_APPENDS    512 /* more than threads that can be in an append at once */

struct handover;
struct handover_append;

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
 * INIT's answer as libfuse 3.14 makes it lacks what the kernel needs for a resend: adds INIT_EXT
 * and HAS_RESEND where the kernel offered them (`in`: the whole request with its header).
 */
void handover_patch_reply(const void *in, size_t in_len, void *out, size_t out_len);

/*
 * An append of `len` bytes to a segment that is `size` long now: where it goes. One that a former
 * daemon began under the same `unique` goes where it went; a new one goes behind all that have
 * been promised. 0: new, 1: begun before, -EBUSY: no slot is free. The caller holds whatever keeps
 * `size` true.
 */
int handover_append_begin(struct handover *h, uint64_t unique, ramp_segment_t id, uint64_t size,
			  uint64_t len, struct handover_append **slot, uint64_t *offset);
/* The request has been answered. */
void handover_append_end(struct handover_append *slot);
/* The same for a request that is answered without having been carried out (again). */
void handover_append_drop(struct handover *h, uint64_t unique);
/* At a start: only these requests (sorted or not) can come again; frees the slots of others. */
void handover_forget_others(struct handover *h, const uint64_t *uniques, size_t n);

#endif
