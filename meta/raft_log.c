/*
 * The Raft core's log in memory. See raft_log.h.
 *
 * The configuration in force is the last configuration entry, or the one kept with the snapshot. So
 * a truncated or compacted entry can't leave a configuration in force that a restart does not find
 * again.
 *
 * How it fails: only where the ring is full.
 */
#include "raft_log.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* ---- the log --------------------------------------------------------------------------------- */

struct raft_entry *raft_log_slot(const struct raft *r, uint64_t index)
{
	return &r->log[index % r->opt.log_capacity];
}

const struct raft_entry *raft_entry_at(const struct raft *r, uint64_t index)
{
	if (index <= r->snap_index || index > r->last_index)
		return NULL;
	return raft_log_slot(r, index);
}

uint64_t raft_term_at(const struct raft *r, uint64_t index)
{
	const struct raft_entry *e = raft_entry_at(r, index);

	if (e)
		return e->term;
	return index == r->snap_index ? r->snap_term : 0;
}

uint64_t raft_log_room(const struct raft *r)
{
	return r->opt.log_capacity - (r->last_index - r->snap_index);
}

int raft_log_append(struct raft *r, const struct raft_entry *e)
{
	if (raft_log_room(r) == 0)
		return -ENOSPC;
	r->last_index++;
	*raft_log_slot(r, r->last_index) = *e;
	raft_data_ref(e->data);
	return 0;
}

void raft_log_truncate(struct raft *r, uint64_t from)
{
	assert(from > r->snap_index);
	for (; r->last_index >= from; r->last_index--)
		raft_data_unref(raft_log_slot(r, r->last_index)->data);
	if (r->stable_index > r->last_index)
		r->stable_index = r->last_index;
}

void raft_log_compact(struct raft *r, uint64_t to)
{
	uint64_t conf_index, term = raft_term_at(r, to);
	struct raft_data *conf = raft_data_ref(raft_conf_at(r, to, &conf_index));

	assert(to > r->snap_index && to <= r->last_applied);
	while (r->snap_index < to)
		raft_data_unref(raft_log_slot(r, ++r->snap_index)->data);
	raft_data_unref(r->snap_conf);
	r->snap_conf = conf;
	r->snap_conf_index = conf_index;
	r->snap_term = term;
}

void raft_log_reset(struct raft *r, uint64_t index, uint64_t term, struct raft_data *conf,
		    uint64_t conf_index)
{
	raft_data_ref(conf);
	raft_log_truncate(r, r->snap_index + 1);
	raft_data_unref(r->snap_conf);
	r->snap_conf = conf;
	r->snap_conf_index = conf_index;
	r->snap_index = r->last_index = r->stable_index = index;
	r->snap_term = term;
	raft_log_find_conf(r);
}

/* ---- the configuration in force -------------------------------------------------------------- */

struct raft_data *raft_conf_at(const struct raft *r, uint64_t index, uint64_t *conf_index)
{
	const struct raft_entry *e;
	uint64_t i;

	for (i = index; i > r->snap_index; i--) {
		e = raft_entry_at(r, i);
		if (e && e->type == RAFT_CONF) {
			*conf_index = i;
			return e->data;
		}
	}
	*conf_index = r->snap_conf_index;
	return r->snap_conf;
}

void raft_log_find_conf(struct raft *r)
{
	const struct raft_data *d = raft_conf_at(r, r->last_index, &r->conf_index);

	/* A configuration that can't be decoded was refused when it came: raft.c, raft_restore. */
	if (!d || raft_conf_decode(d->bytes, d->len, &r->conf) < 0)
		memset(&r->conf, 0, sizeof(r->conf));
}

/* ---- references of messages ------------------------------------------------------------------ */

void raft_message_copy(struct raft_message *to, const struct raft_message *from)
{
	uint32_t i;

	*to = *from;
	raft_data_ref(to->conf);
	for (i = 0; i < to->n_entries; i++)
		raft_data_ref(to->entries[i].data);
}

void raft_message_release(struct raft_message *m)
{
	uint32_t i;

	raft_data_unref(m->conf);
	for (i = 0; i < m->n_entries; i++)
		raft_data_unref(m->entries[i].data);
	m->conf = NULL;
	m->n_entries = 0;
}
