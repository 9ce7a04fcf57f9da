/*
 * The note: a version, whether the segment has a name, and of its row what no record and no file says.
 */
#include "row_note.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/wire.h"

#define NOTE_NAMED    1
#define NOTE_UNLINKED 2

static size_t encode(uint8_t bytes[SEG_ABOUT_MAX], uint8_t kind, const struct segment_row *row)
{
	struct wire_w w;

	wire_w_init(&w, bytes, SEG_ABOUT_MAX);
	wire_put_u8(&w, kind);
	if (kind == NOTE_NAMED) {
		wire_put_str(&w, row->name);
		wire_put_u32(&w, row->mode);
		wire_put_u32(&w, row->uid);
		wire_put_u32(&w, row->gid);
		wire_put_u64(&w, (uint64_t)row->ctime.sec);
		wire_put_u32(&w, row->ctime.nsec);
		wire_put_u64(&w, row->extent_addr);
		wire_put_u64(&w, row->extent_len);
		wire_put_u64(&w, segment_asked(row));
		wire_put_u8(&w, row->pages);
		wire_put_u8(&w, segment_ways(row));
	}
	return w.bad ? 0 : w.len;
}

void row_note(struct meta *meta, struct seg *seg, const struct segment_row *row)
{
	bool gone = row->unlinked || row->phase == SEGMENT_ORPHAN;
	uint8_t bytes[SEG_ABOUT_MAX];

	if (meta_why_copy(meta))
		return; /* it was made of the note */
	seg_end_giving(seg, row->epoch);
	seg_note_about(seg, bytes, encode(bytes, gone ? NOTE_UNLINKED : NOTE_NAMED, row));
}

void row_note_made(struct seg *seg, const struct segment_row *row)
{
	uint8_t bytes[SEG_ABOUT_MAX];

	seg_note_about_first(seg, bytes, encode(bytes, NOTE_NAMED, row));
}

void row_note_none(struct meta *meta, struct seg *seg)
{
	uint8_t bytes[SEG_ABOUT_MAX];

	if (meta_why_copy(meta))
		return;
	seg_note_about(seg, bytes, encode(bytes, NOTE_UNLINKED, NULL));
}

/* Returns the note's kind; 0: there is none that this version knows. */
static uint8_t read_note(struct seg *seg, struct segment_row *row)
{
	uint8_t bytes[SEG_ABOUT_MAX], kind;
	struct wire_r r;

	wire_r_init(&r, bytes, seg_about(seg, bytes));
	kind = wire_get_u8(&r);
	if (kind == NOTE_NAMED) {
		wire_get_str(&r, row->name, sizeof(row->name));
		row->mode = wire_get_u32(&r);
		row->uid = wire_get_u32(&r);
		row->gid = wire_get_u32(&r);
		row->ctime.sec = (int64_t)wire_get_u64(&r);
		row->ctime.nsec = wire_get_u32(&r);
		row->extent_addr = wire_get_u64(&r);
		row->extent_len = wire_get_u64(&r);
		segment_set_asked(row, wire_get_u64(&r));
		row->pages = wire_get_u8(&r);
		segment_set_ways(row, wire_get_u8(&r));
	}
	return wire_r_done(&r) && (kind == NOTE_UNLINKED || (kind == NOTE_NAMED && row->name[0]))
		       ? kind
		       : 0;
}

void row_note_name(struct seg *seg, char name[RAMP_NAME_MAX + 1])
{
	struct segment_row row = {0};
	bool named = read_note(seg, &row) == NOTE_NAMED;

	snprintf(name, RAMP_NAME_MAX + 1, "%s", named ? row.name : "");
}

/* The bytes and the record alone: only root may read what is found so. */
static void name_by_id(struct seg *seg, struct segment_row *row)
{
	struct seg_owner owner = seg_owner(seg);

	*row = (struct segment_row){.mode = owner.mode, .uid = owner.uid, .gid = owner.gid};
	snprintf(row->name, sizeof(row->name), "recovered-%" PRIu64, seg_id(seg));
}

static void take_file(struct seg *seg, struct segment_row *row)
{
	struct stat st;

	if (seg_stat(seg, &st))
		return;
	row->size = (uint64_t)st.st_size;
	row->atime =
		(struct meta_time){.sec = st.st_atim.tv_sec, .nsec = (uint32_t)st.st_atim.tv_nsec};
	row->mtime =
		(struct meta_time){.sec = st.st_mtim.tv_sec, .nsec = (uint32_t)st.st_mtim.tv_nsec};
}

bool row_of_record(struct seg *seg, ramp_node_t self, ramp_incarnation_t incarnation,
		   struct segment_row *row)
{
	struct record record;
	uint8_t kind;

	record_get(seg, &record);
	*row = (struct segment_row){0};
	kind = read_note(seg, row);
	if (kind == NOTE_UNLINKED || (record.kind == RECORD_NONE && !seg_damaged(seg)))
		return false;
	if (!kind)
		name_by_id(seg, row);
	take_file(seg, row);
	row->id = seg_id(seg);
	row->epoch = record.epoch;
	row->phase = SEGMENT_STABLE;
	row->node = self;
	row->node_inc = incarnation;
	if (record.kind == RECORD_GIVEN) {
		row->phase = SEGMENT_MOVING; /* what is not known to be committed, is not */
		row->dst = record.peer;
		row->dst_inc = record.peer_inc;
	} else if (record.kind == RECORD_TAKEN) {
		row->phase = SEGMENT_PULLING;
		row->src = record.peer;
		row->src_inc = record.peer_inc;
	}
	if (row->phase != SEGMENT_STABLE) {
		row->k = record.k;
		row->k_epoch = record.epoch;
	}
	return true;
}
