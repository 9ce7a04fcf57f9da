/*
 * Counted bytes and configurations. See raft_conf.h.
 */
#include "raft_conf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/wire.h"

/* ---- data ---------------------------------------------------------------------------------- */

struct raft_data *raft_data_make(const void *bytes, size_t len)
{
	struct raft_data *d = len > UINT32_MAX ? NULL : malloc(sizeof(*d) + len);

	if (!d)
		return NULL;
	d->refs = 1;
	d->len = (uint32_t)len;
	if (len > 0)
		memcpy(d->bytes, bytes, len);
	return d;
}

struct raft_data *raft_data_ref(struct raft_data *d)
{
	if (d)
		d->refs++;
	return d;
}

void raft_data_unref(struct raft_data *d)
{
	if (d && --d->refs == 0)
		free(d);
}

/* ---- configurations ------------------------------------------------------------------------ */

struct raft_data *raft_conf_encode(const struct raft_conf *conf)
{
	uint8_t buf[8 + 5 * RAFT_NODES_MAX];
	struct wire_w w;
	uint32_t i;

	wire_w_init(&w, buf, sizeof(buf));
	wire_put_u32(&w, conf->n);
	for (i = 0; i < conf->n; i++) {
		wire_put_u32(&w, conf->member[i].node);
		wire_put_u8(&w, conf->member[i].role == RAFT_VOTER ? 1 : 2);
	}
	return w.bad ? NULL : raft_data_make(buf, w.len);
}

int raft_conf_decode(const void *bytes, size_t len, struct raft_conf *conf)
{
	struct wire_r r;
	uint32_t i;

	memset(conf, 0, sizeof(*conf));
	wire_r_init(&r, bytes, len);
	conf->n = wire_get_u32(&r);
	if (r.bad || conf->n > RAFT_NODES_MAX)
		goto bad;
	for (i = 0; i < conf->n; i++) {
		uint8_t role;

		conf->member[i].node = wire_get_u32(&r);
		role = wire_get_u8(&r);
		if (role != 1 && role != 2)
			goto bad;
		conf->member[i].role = role == 1 ? RAFT_VOTER : RAFT_LEARNER;
		if (conf->member[i].node <= (i > 0 ? conf->member[i - 1].node : 0))
			goto bad;
	}
	if (wire_r_done(&r))
		return 0;
bad:
	conf->n = 0;
	return -EPROTO;
}

const struct raft_member *raft_conf_find(const struct raft_conf *conf, ramp_node_t node)
{
	uint32_t i;

	for (i = 0; i < conf->n; i++)
		if (conf->member[i].node == node)
			return &conf->member[i];
	return NULL;
}

uint32_t raft_conf_voters(const struct raft_conf *conf)
{
	uint32_t i, n = 0;

	for (i = 0; i < conf->n; i++)
		n += conf->member[i].role == RAFT_VOTER;
	return n;
}

/* Returns how many members of `a` are not in `b` or, with `roles`, have another role there. */
static uint32_t conf_lacks(const struct raft_conf *a, const struct raft_conf *b, bool roles)
{
	uint32_t i, n = 0;

	for (i = 0; i < a->n; i++) {
		const struct raft_member *m = raft_conf_find(b, a->member[i].node);

		n += !m || (roles && m->role != a->member[i].role);
	}
	return n;
}

bool raft_conf_single(const struct raft_conf *a, const struct raft_conf *b)
{
	return conf_lacks(a, b, true) + conf_lacks(b, a, false) == 1;
}
