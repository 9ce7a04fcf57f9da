#include "wire.h"

#include <string.h>

void wire_w_init(struct wire_w *w, void *buf, size_t cap)
{
	*w = (struct wire_w){.buf = buf, .cap = cap};
}

void wire_put_bytes(struct wire_w *w, const void *bytes, size_t len)
{
	if (w->bad || len > w->cap - w->len) {
		w->bad = true;
		return;
	}
	if (len)
		memcpy(w->buf + w->len, bytes, len);
	w->len += len;
}

static void put_le(struct wire_w *w, uint64_t v, size_t bytes)
{
	uint8_t b[8];

	for (size_t i = 0; i < bytes; i++)
		b[i] = (uint8_t)(v >> (8 * i));
	wire_put_bytes(w, b, bytes);
}

void wire_put_u8(struct wire_w *w, uint8_t v)
{
	put_le(w, v, 1);
}

void wire_put_u16(struct wire_w *w, uint16_t v)
{
	put_le(w, v, 2);
}

void wire_put_u32(struct wire_w *w, uint32_t v)
{
	put_le(w, v, 4);
}

void wire_put_u64(struct wire_w *w, uint64_t v)
{
	put_le(w, v, 8);
}

void wire_put_blob(struct wire_w *w, const void *bytes, size_t len)
{
	if (len > UINT32_MAX) {
		w->bad = true;
		return;
	}
	wire_put_u32(w, (uint32_t)len);
	wire_put_bytes(w, bytes, len);
}

void wire_put_str(struct wire_w *w, const char *s)
{
	wire_put_blob(w, s, strlen(s));
}

void wire_r_init(struct wire_r *r, const void *buf, size_t len)
{
	*r = (struct wire_r){.buf = buf, .len = len};
}

bool wire_r_init_checked(struct wire_r *r, const uint8_t *buf, size_t len)
{
	uint32_t crc;

	if (len < sizeof(crc))
		return false;
	len -= sizeof(crc);
	wire_r_init(r, buf + len, sizeof(crc));
	crc = wire_get_u32(r);
	wire_r_init(r, buf, len);
	return crc == wire_crc32c(buf, len);
}

static const uint8_t *wire_take(struct wire_r *r, size_t len)
{
	const uint8_t *at;

	if (r->bad || len > r->len - r->pos) {
		r->bad = true;
		return NULL;
	}
	at = r->buf + r->pos;
	r->pos += len;
	return at;
}

void wire_get_bytes(struct wire_r *r, void *bytes, size_t len)
{
	const uint8_t *at = wire_take(r, len);

	if (at && len)
		memcpy(bytes, at, len);
	else if (!at)
		memset(bytes, 0, len);
}

static uint64_t get_le(struct wire_r *r, size_t bytes)
{
	const uint8_t *at = wire_take(r, bytes);
	uint64_t v = 0;

	for (size_t i = 0; at && i < bytes; i++)
		v |= (uint64_t)at[i] << (8 * i);
	return v;
}

uint8_t wire_get_u8(struct wire_r *r)
{
	return (uint8_t)get_le(r, 1);
}

uint16_t wire_get_u16(struct wire_r *r)
{
	return (uint16_t)get_le(r, 2);
}

uint32_t wire_get_u32(struct wire_r *r)
{
	return (uint32_t)get_le(r, 4);
}

uint64_t wire_get_u64(struct wire_r *r)
{
	return get_le(r, 8);
}

const uint8_t *wire_get_view(struct wire_r *r, size_t *len)
{
	const uint8_t *at;

	*len = wire_get_u32(r);
	at = wire_take(r, *len);
	if (!at)
		*len = 0;
	return at;
}

void wire_get_str(struct wire_r *r, char *s, size_t cap)
{
	size_t len;
	const uint8_t *at = wire_get_view(r, &len);

	s[0] = 0;
	if (!at || len >= cap || memchr(at, 0, len)) {
		r->bad = true;
		return;
	}
	memcpy(s, at, len);
	s[len] = 0;
}

bool wire_r_done(const struct wire_r *r)
{
	return !r->bad && r->pos == r->len;
}

static uint32_t crc32c_bits(uint32_t crc, const uint8_t *at, size_t len)
{
	while (len--) {
		crc ^= *at++;
		for (int bit = 0; bit < 8; bit++)
			crc = (crc >> 1) ^ (UINT32_C(0x82f63b78) & (0 - (crc & 1)));
	}
	return crc;
}

#ifdef __x86_64__
/* The processor's own instruction: 8 bytes in 3 cycles, where the loop above takes 150. */
__attribute__((target("sse4.2"))) static uint32_t crc32c_words(uint32_t crc, const uint8_t *at,
							       size_t words)
{
	uint64_t word, sum = crc;

	for (; words--; at += sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		sum = __builtin_ia32_crc32di(sum, word);
	}
	return (uint32_t)sum;
}
#endif

uint32_t wire_crc32c(const void *bytes, size_t len)
{
	const uint8_t *at = bytes;
	uint32_t crc = UINT32_MAX;

#ifdef __x86_64__
	if (__builtin_cpu_supports("sse4.2")) {
		crc = crc32c_words(crc, at, len / 8);
		at += len / 8 * 8;
		len %= 8;
	}
#endif
	return ~crc32c_bits(crc, at, len);
}
