/*
 * Explicit little-endian encoding of all data that leaves the process: messages, the journal's log
 * entries, records. No struct is ever written as it lies in memory.
 *
 * Both ends keep a sticky `bad` flag, so that a whole message is built or taken apart without a
 * check per field and checked once at the end: wire_w is bad when the buffer was too small,
 * wire_r when the input was too short, a string too long or not terminated as declared. A bad
 * reader gives zeros.
 */
#ifndef RAMP_WIRE_H
#define RAMP_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wire_w {
	uint8_t *buf; /* the caller's */
	size_t cap, len;
	bool bad;
};

struct wire_r {
	const uint8_t *buf; /* the caller's; must outlive the views of wire_get_view */
	size_t len, pos;
	bool bad;
};

void wire_w_init(struct wire_w *w, void *buf, size_t cap);
void wire_put_u8(struct wire_w *w, uint8_t v);
void wire_put_u16(struct wire_w *w, uint16_t v);
void wire_put_u32(struct wire_w *w, uint32_t v);
void wire_put_u64(struct wire_w *w, uint64_t v);
void wire_put_bytes(struct wire_w *w, const void *bytes, size_t len); /* as they are, no length */
void wire_put_blob(struct wire_w *w, const void *bytes, size_t len);  /* u32 length, bytes */
void wire_put_str(struct wire_w *w, const char *s);		      /* as a blob, without NUL */

void wire_r_init(struct wire_r *r, const void *buf, size_t len);
/* The same for what ends with the CRC of all before it (u32), which the reader then does not see. Returns
   false where that is wrong. */
bool wire_r_init_checked(struct wire_r *r, const uint8_t *buf, size_t len);
uint8_t wire_get_u8(struct wire_r *r);
uint16_t wire_get_u16(struct wire_r *r);
uint32_t wire_get_u32(struct wire_r *r);
uint64_t wire_get_u64(struct wire_r *r);
void wire_get_bytes(struct wire_r *r, void *bytes, size_t len);
/* Returns a blob as a view into the reader's buffer; NULL and *len = 0 if it is bad. */
const uint8_t *wire_get_view(struct wire_r *r, size_t *len);
/* Copies a string into `s` of `cap` bytes, NUL-terminated; bad if it is longer or holds a NUL. */
void wire_get_str(struct wire_r *r, char *s, size_t cap);
/* True if nothing was bad and every byte was taken. */
bool wire_r_done(const struct wire_r *r);

uint32_t wire_crc32c(const void *bytes, size_t len);

#endif
