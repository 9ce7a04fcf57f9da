/*
 * The messages of the verbs transport. See message.h.
 */
#include "message.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/ids.h"

#define MESSAGE_VERSION	     1
#define MESSAGE_REGION_BYTES 28
#define MESSAGE_HEAD_BYTES   64
#define MESSAGE_LAST_BYTE    (UINT64_C(1) << 62)

static bool message_begins(struct wire_r *r)
{
	return wire_get_u8(r) == MESSAGE_VERSION && !r->bad;
}

static int message_ends(const struct wire_r *r, bool right)
{
	return right && wire_r_done(r) ? 0 : -EBADMSG;
}

static void message_put_key(struct wire_w *w, const struct tp_key *key)
{
	wire_put_u64(w, key->segment);
	wire_put_bytes(w, key->grant, sizeof(key->grant));
}

static void message_get_key(struct wire_r *r, struct tp_key *key)
{
	key->segment = wire_get_u64(r);
	wire_get_bytes(r, key->grant, sizeof(key->grant));
}

void message_put_wanted_at(struct wire_w *w)
{
	wire_put_u8(w, MESSAGE_VERSION);
}

int message_get_wanted_at(struct wire_r *r)
{
	return message_ends(r, message_begins(r));
}

/* ---- VERBS_AT ------------------------------------------------------------------------------ */

void message_put_at(struct wire_w *w, const struct message_at *m)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)&m->address;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&m->address;
	uint8_t address[16] = {0};
	bool six = m->address.ss_family == AF_INET6;

	if (six)
		memcpy(address, &v6->sin6_addr, 16);
	else
		memcpy(address, &v4->sin_addr, 4);
	wire_put_u8(w, MESSAGE_VERSION);
	wire_put_u64(w, m->life);
	wire_put_u8(w, six ? 6 : 4);
	wire_put_bytes(w, address, sizeof(address));
	wire_put_u16(w, m->port);
	wire_put_bytes(w, m->challenge, sizeof(m->challenge));
	wire_put_u8(w, m->reads);
}

int message_get_at(struct wire_r *r, struct message_at *m)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)&m->address;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&m->address;
	static const uint8_t zeros[12];
	bool right = message_begins(r);
	uint8_t address[16], family;

	memset(m, 0, sizeof(*m));
	m->life = wire_get_u64(r);
	family = wire_get_u8(r);
	wire_get_bytes(r, address, sizeof(address));
	m->port = wire_get_u16(r);
	wire_get_bytes(r, m->challenge, sizeof(m->challenge));
	m->reads = wire_get_u8(r);
	if (family == 6) {
		v6->sin6_family = AF_INET6;
		memcpy(&v6->sin6_addr, address, 16);
		v6->sin6_port = htons(m->port);
	} else {
		v4->sin_family = AF_INET;
		memcpy(&v4->sin_addr, address, 4);
		v4->sin_port = htons(m->port);
	}
	/* Of an IPv4 address the rest is zeros. */
	right = right && (family == 6 || (family == 4 && !memcmp(address + 4, zeros, 12)));
	return message_ends(r, right && m->life);
}

/* ---- regions ------------------------------------------------------------------------------- */

void message_put_wanted(struct wire_w *w, const struct message_wanted *m)
{
	wire_put_u8(w, MESSAGE_VERSION);
	message_put_key(w, &m->key);
	wire_put_u64(w, m->connection);
	wire_put_u8(w, m->class);
}

int message_get_wanted(struct wire_r *r, struct message_wanted *m)
{
	bool right = message_begins(r);

	message_get_key(r, &m->key);
	m->connection = wire_get_u64(r);
	m->class = wire_get_u8(r);
	return message_ends(r, right && m->connection &&
				       (m->class == TP_DEMAND || m->class == TP_PREFETCH));
}

void message_put_done(struct wire_w *w, const struct message_done *m)
{
	wire_put_u8(w, MESSAGE_VERSION);
	message_put_key(w, &m->key);
	wire_put_u64(w, m->upto);
}

int message_get_done(struct wire_r *r, struct message_done *m)
{
	bool right = message_begins(r);

	message_get_key(r, &m->key);
	m->upto = wire_get_u64(r);
	return message_ends(r, right);
}

size_t message_regions_bytes(const struct message_regions *m)
{
	return MESSAGE_HEAD_BYTES + (size_t)m->n * MESSAGE_REGION_BYTES;
}

void message_put_regions(struct wire_w *w, const struct message_regions *m)
{
	wire_put_u8(w, MESSAGE_VERSION);
	message_put_key(w, &m->key);
	wire_put_u64(w, m->connection);
	wire_put_u64(w, m->life);
	wire_put_u8(w, m->whole);
	wire_put_u32(w, m->first);
	wire_put_u32(w, m->n);
	for (uint32_t i = 0; i < m->n; i++) {
		wire_put_u64(w, m->regions[i].offset);
		wire_put_u64(w, m->regions[i].len);
		wire_put_u64(w, m->regions[i].address);
		wire_put_u32(w, m->regions[i].rkey);
	}
}

/* True: whole pages, behind the region before, and no sum wraps round. */
static bool message_region_fits(const struct message_region *region, uint64_t behind)
{
	return region->offset >= behind && region->offset % RAMP_PAGE_BYTES == 0 && region->len &&
	       region->len % RAMP_PAGE_BYTES == 0 && region->len <= MESSAGE_LAST_BYTE &&
	       region->offset <= MESSAGE_LAST_BYTE && region->address <= UINT64_MAX - region->len;
}

int message_get_regions(struct wire_r *r, struct message_regions *m)
{
	bool right = message_begins(r);
	uint64_t behind = 0;
	uint8_t whole;

	memset(m, 0, sizeof(*m));
	message_get_key(r, &m->key);
	m->connection = wire_get_u64(r);
	m->life = wire_get_u64(r);
	whole = wire_get_u8(r);
	m->whole = whole;
	m->first = wire_get_u32(r);
	m->n = wire_get_u32(r);
	if (r->bad || !right || whole > 1 || m->n > MESSAGE_REGIONS_MAX ||
	    m->first > MESSAGE_CHUNKS_MAX - m->n || r->len - r->pos != m->n * MESSAGE_REGION_BYTES)
		return -EBADMSG;
	m->regions = calloc(m->n ? m->n : 1, sizeof(*m->regions));
	if (!m->regions)
		return -ENOMEM;
	for (uint32_t i = 0; i < m->n && right; i++) {
		struct message_region *region = &m->regions[i];

		region->offset = wire_get_u64(r);
		region->len = wire_get_u64(r);
		region->address = wire_get_u64(r);
		region->rkey = wire_get_u32(r);
		right = message_region_fits(region, behind);
		behind = region->offset + region->len;
	}
	if (message_ends(r, right)) {
		free(m->regions);
		m->regions = NULL;
		return -EBADMSG;
	}
	return 0;
}
