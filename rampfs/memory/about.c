/*
 * In the header: a u32 length, the bytes, and a CRC of both at the end. A length of 0 is no note, which
 * is how a file of an older version begins.
 */
#include "about.h"

#include <string.h>

#include "base/wire.h"
#include "open_cache.h"
#include "seg_core.h"

#define CRC_AT (STATE_ABOUT_BYTES - sizeof(uint32_t))
_Static_assert(SEG_ABOUT_MAX == CRC_AT - sizeof(uint32_t), "a note fits between length and CRC");

/* Returns the length of a whole note; 0: there is none. */
static uint32_t about_len(const uint8_t *note)
{
	uint32_t len, crc;

	memcpy(&len, note, sizeof(len));
	memcpy(&crc, note + CRC_AT, sizeof(crc));
	return len > SEG_ABOUT_MAX || crc != wire_crc32c(note, CRC_AT) ? 0 : len;
}

void about_load(struct seg *seg)
{
	atomic_store(&seg->about, about_len(atomic_load(&seg->state)->about) != 0);
}

bool seg_has_about(struct seg *seg)
{
	return atomic_load(&seg->about);
}

/* `first`: unless there is one. */
static void put_note(struct seg *seg, const uint8_t note[STATE_ABOUT_BYTES], bool some, bool first)
{
	pthread_mutex_lock(&seg->lock);
	if (!first || !seg_has_about(seg)) {
		memcpy(atomic_load(&seg->state)->about, note, STATE_ABOUT_BYTES);
		atomic_store(&seg->about, some);
	}
	pthread_mutex_unlock(&seg->lock);
}

static void note_bytes(struct seg *seg, const void *bytes, size_t len, bool first)
{
	uint8_t note[STATE_ABOUT_BYTES] = {0};
	uint32_t n = len > SEG_ABOUT_MAX ? 0 : (uint32_t)len, crc;

	if ((!n && !seg_has_about(seg)) || seg_wake_header(seg))
		return;
	if (n) {
		memcpy(note, &n, sizeof(n));
		memcpy(note + sizeof(n), bytes, n);
		crc = wire_crc32c(note, CRC_AT);
		memcpy(note + CRC_AT, &crc, sizeof(crc));
	}
	put_note(seg, note, n, first);
}

void seg_note_about(struct seg *seg, const void *bytes, size_t len)
{
	note_bytes(seg, bytes, len, false);
}

void seg_note_about_first(struct seg *seg, const void *bytes, size_t len)
{
	note_bytes(seg, bytes, len, true);
}

size_t seg_about(struct seg *seg, uint8_t bytes[SEG_ABOUT_MAX])
{
	const uint8_t *note;
	uint32_t len;

	if (seg_wake_header(seg))
		return 0;
	note = atomic_load(&seg->state)->about;
	len = about_len(note);
	memcpy(bytes, note + sizeof(len), len);
	return len;
}
