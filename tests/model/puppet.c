/*
 * A node driven by hand. See puppet.h.
 */
#include "puppet.h"

#include <stdlib.h>
#include <string.h>

#include "meta/raft_log.h"
#include "meta/raft_state.h"

static void disk_cut(struct puppet_disk *d, uint64_t from)
{
	for (uint64_t i = from; i <= d->last; i++) {
		raft_data_unref(d->log[i % PUPPET_LOG].data);
		d->log[i % PUPPET_LOG].data = NULL;
	}
	if (d->last >= from)
		d->last = from - 1;
}

static void disk_free(struct puppet_disk *d)
{
	disk_cut(d, d->snap_index + 1);
	raft_data_unref(d->snap_conf);
	memset(d, 0, sizeof(*d));
}

static void disk_begin_after(struct puppet_disk *d, const struct raft *r)
{
	struct raft_data *conf = raft_data_ref(r->snap_conf);

	raft_data_unref(d->snap_conf);
	d->snap_conf = conf;
	d->snap_index = r->snap_index;
	d->snap_term = r->snap_term;
	d->snap_conf_index = r->snap_conf_index;
}

void puppet_format(struct puppet *p, const struct raft_options *opt, const struct raft_conf *conf,
		   bool confirmed)
{
	memset(p, 0, sizeof(*p));
	p->opt = *opt;
	p->disk.confirmed = confirmed;
	if (conf) {
		p->disk.snap_conf = raft_conf_encode(conf);
		if (!p->disk.snap_conf)
			puppet_wrong("no memory");
		p->disk.term = p->disk.snap_index = p->disk.snap_term = p->disk.snap_conf_index = 1;
		p->disk.applied = p->disk.last = 1;
	}
	puppet_boot(p);
}

void puppet_boot(struct puppet *p)
{
	struct puppet_disk *d = &p->disk;
	const char *wrong;

	if (raft_init(&p->raft, &p->opt))
		puppet_wrong("no memory");
	raft_actions_init(&p->actions);
	raft_set_durable(&p->raft, d->term, d->vote, d->confirmed);
	raft_set_snapshot(&p->raft, d->snap_index, d->snap_term, d->snap_conf, d->snap_conf_index);
	for (uint64_t i = d->snap_index + 1; i <= d->last; i++)
		if (raft_restore(&p->raft, i, &d->log[i % PUPPET_LOG]))
			puppet_wrong("node %u: its own log can't be restored", p->opt.self);
	if (raft_start(&p->raft, d->applied, 0))
		puppet_wrong("node %u: can't start at applied %llu", p->opt.self,
			     (unsigned long long)d->applied);
	wrong = raft_check(&p->raft);
	if (wrong)
		puppet_wrong("node %u after its start: %s", p->opt.self, wrong);
}

static void core_free(struct puppet *p)
{
	raft_fini(&p->raft);
	raft_actions_fini(&p->actions);
}

void puppet_free(struct puppet *p)
{
	core_free(p);
	disk_free(&p->disk);
}

void puppet_clone(struct puppet *to, const struct puppet *from)
{
	*to = *from;
	raft_data_ref(to->disk.snap_conf);
	for (uint64_t i = to->disk.snap_index + 1; i <= to->disk.last; i++)
		raft_data_ref(to->disk.log[i % PUPPET_LOG].data);
	raft_actions_init(&to->actions);
	if (raft_clone(&to->raft, &from->raft))
		puppet_wrong("no memory");
}

int puppet_step(struct puppet *p, const struct raft_event *ev)
{
	int rc = raft_step(&p->raft, ev, &p->actions);
	const char *wrong = raft_check(&p->raft);

	if (wrong)
		puppet_wrong("node %u: raft_check: %s", p->opt.self, wrong);
	if (p->actions.amnesia)
		puppet_wrong("node %u: its leader names entries that it has not acknowledged",
			     p->opt.self);
	if (p->actions.failed)
		puppet_wrong("node %u: the core gave up (actions.failed)", p->opt.self);
	return rc;
}

static void send_all(struct puppet *p, const struct puppet_hooks *h, bool early)
{
	for (uint32_t i = 0; i < p->actions.n_messages; i++) {
		struct raft_message m = p->actions.messages[i];

		if (m.early != early)
			continue;
		if (m.type == RAFT_SNAPSHOT)
			m.done = true; /* a dump of no bytes, whole */
		h->send(h->arg, &m);
	}
}

void puppet_early(struct puppet *p, const struct puppet_hooks *h)
{
	struct raft_event flush = {.type = RAFT_EV_FLUSH};

	puppet_step(p, &flush);
	send_all(p, h, true);
}

static void commit_log(struct puppet *p, uint64_t from)
{
	const struct raft *r = &p->raft;
	struct puppet_disk *d = &p->disk;

	if (from <= d->snap_index || from > d->last + 1)
		puppet_wrong("node %u: writes its log from %llu, it ends at %llu", p->opt.self,
			     (unsigned long long)from, (unsigned long long)d->last);
	disk_cut(d, from);
	for (uint64_t i = from; i <= r->last_index; i++) {
		const struct raft_entry *e = raft_entry_at(r, i);

		if (!e || i - d->snap_index >= PUPPET_LOG)
			puppet_wrong("node %u: entry %llu isn't there", p->opt.self,
				     (unsigned long long)i);
		d->log[i % PUPPET_LOG] = *e;
		raft_data_ref(e->data);
		d->last = i;
	}
}

static void commit_applied(struct puppet *p, uint64_t to)
{
	struct puppet_disk *d = &p->disk;

	if (to > d->last || to < d->applied)
		puppet_wrong("node %u: applies up to %llu, was at %llu, its log ends at %llu",
			     p->opt.self, (unsigned long long)to, (unsigned long long)d->applied,
			     (unsigned long long)d->last);
	d->applied = to;
}

static void commit_compacted(struct puppet *p, uint64_t to)
{
	struct puppet_disk *d = &p->disk;

	if (to > d->applied)
		puppet_wrong("node %u: drops up to %llu, has applied %llu", p->opt.self,
			     (unsigned long long)to, (unsigned long long)d->applied);
	for (uint64_t i = d->snap_index + 1; i <= to; i++) {
		raft_data_unref(d->log[i % PUPPET_LOG].data);
		d->log[i % PUPPET_LOG].data = NULL;
	}
	disk_begin_after(d, &p->raft);
}

/* In the order that raft.h gives. */
void puppet_commit(struct puppet *p)
{
	const struct raft_actions *a = &p->actions;
	struct puppet_disk *d = &p->disk;

	if (a->hard_state) {
		d->term = p->raft.term;
		d->vote = p->raft.voted_for;
		d->confirmed = p->raft.confirmed;
	}
	if (a->install) {
		disk_cut(d, d->snap_index + 1);
		disk_begin_after(d, &p->raft);
		d->last = d->applied = d->snap_index;
	}
	if (a->log_from)
		commit_log(p, a->log_from);
	if (a->apply_to)
		commit_applied(p, a->apply_to);
	if (a->compact_to)
		commit_compacted(p, a->compact_to);
}

bool puppet_finish(struct puppet *p, const struct puppet_hooks *h)
{
	struct raft_actions *a = &p->actions;
	struct raft_event ev = {.type = RAFT_EV_PERSISTED};
	ramp_node_t dumps[RAFT_NODES_MAX];
	uint32_t n_dumps = a->n_snapshot_to;
	bool durable;

	send_all(p, h, false);
	for (uint32_t i = 0; i < a->n_reads; i++)
		h->read(h->arg, &a->reads[i]);
	memcpy(dumps, a->snapshot_to, sizeof(dumps));
	raft_actions_reset(a);
	puppet_step(p, &ev);
	ev.type = RAFT_EV_SNAPSHOT_READY;
	ev.index = p->disk.applied;
	ev.term = ev.index == p->disk.snap_index ? p->disk.snap_term
						 : p->disk.log[ev.index % PUPPET_LOG].term;
	for (uint32_t i = 0; i < n_dumps; i++) {
		ev.node = dumps[i];
		puppet_step(p, &ev);
	}
	return raft_actions_write(a, &durable) || a->n_messages || a->n_reads || a->n_snapshot_to;
}

void puppet_crash(struct puppet *p)
{
	core_free(p);
	puppet_boot(p);
}

void puppet_turns(struct puppet *p, const struct puppet_hooks *h)
{
	do {
		puppet_early(p, h);
		puppet_commit(p);
	} while (puppet_finish(p, h));
}
