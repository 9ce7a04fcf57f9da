/*
 * Records, read and written whole: in two slots that are used in turn.
 *
 * Happy path: a change is checked against the drawing in record.h, encoded with the next sequence
 * number and a CRC, and copied over the older of the two slots; the newer one stays as it is.
 *
 * How it fails: a daemon killed within the copy leaves that slot with a CRC that is wrong, and the
 * other one counts. Where neither is whole the segment is damaged, which no kill can cause.
 */
#include "record.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/wire.h"
#include "gate.h"
#include "open_cache.h"
#include "seg_core.h"

#define RECORD_UNCHANGED   1u
#define RECORD_DEMAND_ONLY 2u

const char *record_kind_name(enum record_kind kind)
{
	static const char *const names[] = {
		[RECORD_NONE] = "none",
		[RECORD_OWNED] = "owned",
		[RECORD_GIVEN] = "given",
		[RECORD_TAKEN] = "taken",
	};

	return kind <= RECORD_TAKEN ? names[kind] : "unknown";
}

bool record_serves(const struct record *record)
{
	return record->kind == RECORD_OWNED || record->kind == RECORD_TAKEN;
}

static void encode(uint8_t slot[STATE_SLOT_BYTES], uint64_t sequence, const struct record *record)
{
	struct wire_w w;

	memset(slot, 0, STATE_SLOT_BYTES);
	wire_w_init(&w, slot, STATE_SLOT_BYTES);
	wire_put_u64(&w, sequence);
	wire_put_u8(&w, (uint8_t)record->kind);
	wire_put_u8(&w, (uint8_t)((record->unchanged ? RECORD_UNCHANGED : 0) |
				  (record->demand_only ? RECORD_DEMAND_ONLY : 0)));
	wire_put_u64(&w, record->epoch);
	wire_put_u64(&w, record->k.source_id);
	wire_put_u64(&w, record->k.ticket);
	wire_put_u32(&w, record->peer);
	wire_put_u64(&w, record->peer_inc);
	wire_put_u64(&w, record->size);
	w.len = STATE_SLOT_BYTES - sizeof(uint32_t);
	wire_put_u32(&w, wire_crc32c(slot, w.len));
}

/* Returns the sequence number of a whole slot; 0: it is not whole. */
static uint64_t decode(const uint8_t slot[STATE_SLOT_BYTES], struct record *record)
{
	struct wire_r r;
	uint64_t sequence;
	uint8_t kind, flags;

	wire_r_init(&r, slot, STATE_SLOT_BYTES);
	sequence = wire_get_u64(&r);
	kind = wire_get_u8(&r);
	flags = wire_get_u8(&r);
	record->epoch = wire_get_u64(&r);
	record->k.source_id = wire_get_u64(&r);
	record->k.ticket = wire_get_u64(&r);
	record->peer = wire_get_u32(&r);
	record->peer_inc = wire_get_u64(&r);
	record->size = wire_get_u64(&r);
	r.pos = STATE_SLOT_BYTES - sizeof(uint32_t);
	if (wire_get_u32(&r) != wire_crc32c(slot, STATE_SLOT_BYTES - sizeof(uint32_t)) ||
	    kind > RECORD_TAKEN)
		return 0;
	record->kind = kind;
	record->unchanged = flags & RECORD_UNCHANGED;
	record->demand_only = flags & RECORD_DEMAND_ONLY;
	return sequence;
}

/* Writes the slot of the next sequence number's parity. seg->lock is held, or no other thread has the
   segment yet. */
static void record_put(struct seg *seg, const struct record *record)
{
	uint8_t slot[STATE_SLOT_BYTES];

	seg->sequence++;
	encode(slot, seg->sequence, record);
	memcpy(seg->state->slots[seg->sequence % 2], slot, sizeof(slot));
	/* A daemon started after a kill must not see the caller's next step without the record. */
	atomic_thread_fence(memory_order_seq_cst);
	seg->record = *record;
}

void record_write_first(struct seg *seg, const struct record *record)
{
	record_put(seg, record);
	if (record_serves(record))
		gate_clear(seg, GATE_REMOTE);
}

int record_load(struct seg *seg)
{
	struct record record[2];
	uint64_t sequence[2];
	int newer;

	for (int i = 0; i < 2; i++)
		sequence[i] = decode(seg->state->slots[i], &record[i]);
	newer = sequence[1] > sequence[0];
	if (sequence[newer] == 0)
		return -EIO;
	seg->sequence = sequence[newer];
	seg->record = record[newer];
	if (record_serves(&seg->record))
		gate_clear(seg, GATE_REMOTE);
	return 0;
}

void record_get(struct seg *seg, struct record *record)
{
	pthread_mutex_lock(&seg->lock);
	*record = seg->record;
	pthread_mutex_unlock(&seg->lock);
}

/* The drawing in record.h; the steps to (none) are store_remove. */
static bool allowed(enum record_kind from, enum record_kind to)
{
	switch (from) {
	case RECORD_NONE:
		return to == RECORD_TAKEN;
	case RECORD_OWNED:
		return to == RECORD_GIVEN;
	case RECORD_GIVEN:
	case RECORD_TAKEN:
		return to == RECORD_OWNED;
	}
	return false;
}

int record_change(struct seg *seg, const struct record *record, struct ramp_err *err)
{
	enum record_kind from;
	bool ok;
	int rc = 0;

	/* An OWNED segment may be at rest. Wakes file and header, since a thread that serves a GIVEN
	   segment does not pass the gate. */
	if (!seg_damaged(seg))
		rc = seg_wake_file(seg);
	if (!rc && !seg_damaged(seg))
		rc = seg_wake_header(seg);
	if (rc)
		return ramp_err_sys(err, -rc, "segment %" PRIu64, seg->id);
	pthread_mutex_lock(&seg->lock);
	from = seg->record.kind;
	ok = allowed(from, record->kind) && !(atomic_load(&seg->gate) & (GATE_DAMAGED | GATE_GONE));
	if (ok) {
		/* Close before, open after: no thread may be let in by a record that is not there. */
		if (!record_serves(record))
			gate_set(seg, GATE_REMOTE);
		record_put(seg, record);
		if (record_serves(record))
			gate_clear(seg, GATE_REMOTE);
	}
	pthread_mutex_unlock(&seg->lock);
	if (!ok)
		return ramp_err_set(err, EINVAL, "segment %" PRIu64 ": no step from %s to %s",
				    seg->id, record_kind_name(from),
				    record_kind_name(record->kind));
	log_debug("segment %" PRIu64 ": %s -> %s at epoch %" PRIu64, seg->id,
		  record_kind_name(from), record_kind_name(record->kind), record->epoch);
	seg_tell(seg);
	return 0;
}
