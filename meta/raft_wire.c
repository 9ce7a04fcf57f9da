/*
 * The bytes of the Raft core's messages. See raft_wire.h.
 *
 * Little-endian, versioned, every length checked. A message that raft_message_decode lets through
 * has the fields that its type needs, terms that don't go down, and a configuration that can be
 * read.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/wire.h"
#include "raft_log.h"
#include "raft_wire.h"

#define RAFT_WIRE_VERSION 1
#define HEAD_BYTES	  (2 + 9 * 8 + 1 + 4)

enum flag { FLAG_REJECT = 1, FLAG_TRANSFER = 2, FLAG_NONVOTING = 4, FLAG_DONE = 8, FLAG_ALL = 15 };

size_t raft_message_size(const struct raft_message *m)
{
	size_t n = HEAD_BYTES + 4 + 4 + m->len + (m->conf ? m->conf->len : 0);
	uint32_t i;

	for (i = 0; i < m->n_entries; i++)
		n += 8 + 1 + 4 + (m->entries[i].data ? m->entries[i].data->len : 0);
	return n;
}

size_t raft_message_encode(const struct raft_message *m, void *buf, size_t cap)
{
	struct wire_w w;
	uint32_t i;

	wire_w_init(&w, buf, cap);
	wire_put_u8(&w, RAFT_WIRE_VERSION);
	wire_put_u8(&w, (uint8_t)m->type);
	wire_put_u64(&w, m->term);
	wire_put_u64(&w, m->index);
	wire_put_u64(&w, m->log_term);
	wire_put_u64(&w, m->hint);
	wire_put_u64(&w, m->leader_commit);
	wire_put_u64(&w, m->round);
	wire_put_u64(&w, m->offset);
	wire_put_u64(&w, m->conf_index);
	wire_put_u8(&w,
		    (uint8_t)((m->reject ? FLAG_REJECT : 0) | (m->transfer ? FLAG_TRANSFER : 0) |
			      (m->nonvoting ? FLAG_NONVOTING : 0) | (m->done ? FLAG_DONE : 0)));
	wire_put_u32(&w, m->n_entries);
	for (i = 0; i < m->n_entries; i++) {
		const struct raft_entry *e = &m->entries[i];

		wire_put_u64(&w, e->term);
		wire_put_u8(&w, (uint8_t)e->type);
		wire_put_blob(&w, e->data ? e->data->bytes : NULL, e->data ? e->data->len : 0);
	}
	if (m->type == RAFT_SNAPSHOT) {
		wire_put_blob(&w, m->conf ? m->conf->bytes : NULL, m->conf ? m->conf->len : 0);
		wire_put_blob(&w, m->bytes, m->len);
	}
	return w.bad ? 0 : w.len;
}

/* Reads one entry into e, with a reference. Returns 0, -EPROTO or -ENOMEM; then e->data is NULL. */
static int get_entry(struct wire_r *r, struct raft_entry *e, uint64_t not_below)
{
	struct raft_conf conf;
	const uint8_t *bytes;
	size_t len;
	uint8_t type;

	e->term = wire_get_u64(r);
	type = wire_get_u8(r);
	bytes = wire_get_view(r, &len);
	e->type = (enum raft_entry_type)type;
	e->data = NULL;
	if (r->bad || e->term < not_below || e->term == 0)
		return -EPROTO;
	if (type == RAFT_NOOP)
		return len == 0 ? 0 : -EPROTO;
	if (type != RAFT_COMMAND && type != RAFT_CONF)
		return -EPROTO;
	if (type == RAFT_CONF && raft_conf_decode(bytes, len, &conf) < 0)
		return -EPROTO;
	e->data = raft_data_make(bytes, len);
	return e->data ? 0 : -ENOMEM;
}

static int get_entries(struct wire_r *r, struct raft_message *m)
{
	uint32_t i, n = wire_get_u32(r);
	uint64_t term = m->log_term;
	int rc;

	if (r->bad || n > RAFT_APPEND_MAX || (n > 0 && m->type != RAFT_APPEND))
		return -EPROTO;
	for (i = 0; i < n; i++) {
		rc = get_entry(r, &m->entries[i], term);
		if (rc < 0)
			return rc;
		term = m->entries[i].term;
		m->n_entries++;
	}
	return term <= m->term || m->type != RAFT_APPEND ? 0 : -EPROTO;
}

static int get_snapshot(struct wire_r *r, struct raft_message *m)
{
	struct raft_conf conf;
	const uint8_t *bytes;
	size_t len;

	bytes = wire_get_view(r, &len);
	if (r->bad || raft_conf_decode(bytes, len, &conf) < 0)
		return -EPROTO;
	m->bytes = wire_get_view(r, &m->len);
	if (r->bad || m->index == 0 || m->log_term == 0 || m->log_term > m->term ||
	    m->conf_index > m->index)
		return -EPROTO;
	m->conf = raft_data_make(bytes, len);
	return m->conf ? 0 : -ENOMEM;
}

int raft_message_decode(const void *buf, size_t len, struct raft_message *m)
{
	struct wire_r r;
	uint8_t version, type, flags;
	int rc;

	memset(m, 0, sizeof(*m));
	wire_r_init(&r, buf, len);
	version = wire_get_u8(&r);
	type = wire_get_u8(&r);
	m->type = (enum raft_message_type)type;
	m->term = wire_get_u64(&r);
	m->index = wire_get_u64(&r);
	m->log_term = wire_get_u64(&r);
	m->hint = wire_get_u64(&r);
	m->leader_commit = wire_get_u64(&r);
	m->round = wire_get_u64(&r);
	m->offset = wire_get_u64(&r);
	m->conf_index = wire_get_u64(&r);
	flags = wire_get_u8(&r);
	m->reject = flags & FLAG_REJECT;
	m->transfer = flags & FLAG_TRANSFER;
	m->nonvoting = flags & FLAG_NONVOTING;
	m->done = flags & FLAG_DONE;
	if (r.bad || version != RAFT_WIRE_VERSION || type < RAFT_PREVOTE ||
	    type > RAFT_TIMEOUT_NOW || flags > FLAG_ALL)
		return -EPROTO;
	rc = get_entries(&r, m);
	if (rc == 0 && type == RAFT_SNAPSHOT)
		rc = get_snapshot(&r, m);
	if (rc == 0 && !wire_r_done(&r))
		rc = -EPROTO;
	if (rc < 0)
		raft_message_release(m);
	return rc;
}
