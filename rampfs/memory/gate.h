/*
 * The gate of a segment: the freeze barrier. Each thread of the daemon that reads or writes a
 * segment's bytes does so between seg_enter and seg_leave. A freeze closes the gate and waits until
 * no thread is inside; later threads get -EAGAIN and park their requests (mount/park.c) until
 * store_changed says that the gate is open or the segment gone.
 */
#ifndef RAMP_MEMORY_GATE_H
#define RAMP_MEMORY_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct seg;

/* 0: the caller is inside, and calls seg_leave afterwards. -EAGAIN: frozen; park the request.
   -EREMOTE: not this node's, or not any more. -ENOENT: removed. -EIO: damaged. -EMFILE, -ENFILE:
   its file can't be opened. Never blocks. */
int seg_enter(struct seg *seg);
/* The same for what changes bytes: -EAGAIN also while the segment is closed to stores. */
int seg_enter_to_store(struct seg *seg);
void seg_leave(struct seg *seg);
/* Closes the gate (-EBUSY: it is closed already) and waits until no thread is inside, for at most
   timeout_ms (-ETIMEDOUT: it is open again). Blocks: never call it on the control loop. */
int seg_freeze(struct seg *seg, uint32_t timeout_ms, struct ramp_err *err);
/* Opens it again, after an abort. After a record GIVEN the gate says -EREMOTE by itself. */
void seg_thaw(struct seg *seg);
/* Closes the gate of a frozen segment to stores, until it is opened: from its thaw on it may be read. */
void seg_close_to_stores(struct seg *seg);
/* Any thread; again: does nothing. */
void seg_open_to_stores(struct seg *seg);
/* Whether it is closed to stores; *left_bytes: what seg_set_left said last. Any thread. */
bool seg_closed_to_stores(struct seg *seg, uint64_t *left_bytes);
/* Notes how much of a segment that is closed to stores its target has to read yet. */
void seg_set_left(struct seg *seg, uint64_t bytes);

/* ---- for this folder alone ----------------------------------------------------------------- */

#define GATE_FROZEN  (UINT64_C(1) << 63)
#define GATE_REMOTE  (UINT64_C(1) << 62) /* the record does not serve */
#define GATE_GONE    (UINT64_C(1) << 61) /* removed */
#define GATE_DAMAGED (UINT64_C(1) << 60)
#define GATE_STORES  (UINT64_C(1) << 59) /* closed to stores alone */
#define GATE_FLAGS   (GATE_FROZEN | GATE_REMOTE | GATE_GONE | GATE_DAMAGED | GATE_STORES)
void gate_set(struct seg *seg, uint64_t flag);
void gate_clear(struct seg *seg, uint64_t flag);
bool gate_empty(struct seg *seg);

#endif
