/*
 * One node's states for the explorer. See explore.h.
 *
 * A state is a puppet between turns. Its key is the core's canonical bytes, and those facts of its
 * disk that are not in them. All states are kept until the process ends.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explore.h"
#include "meta/raft_log.h"
#include "meta/raft_state.h"
#include "meta/raft_wire.h"
#include "puppet.h"
#include "sim_rng.h"

#define KEY_MAX	     8192
#define CALLS_MAX    64 /* of early, commit and finish in one event's turns */
#define COMMAND_BASE 100

/* ---- tables: a key of bytes to a number ------------------------------------------------------ */

struct table {
	struct key {
		uint64_t hash;
		uint32_t len, number;
		uint8_t *bytes;
	} * slots;
	uint64_t cap, n;
};

static uint64_t hash_of(const uint8_t *bytes, size_t len)
{
	uint64_t h = len, word;

	for (; len >= 8; bytes += 8, len -= 8) {
		memcpy(&word, bytes, 8);
		h = sim_mix(h ^ word) + UINT64_C(0x9e3779b97f4a7c15);
	}
	word = 0;
	if (len)
		memcpy(&word, bytes, len);
	return sim_mix(h ^ word);
}

static void *must(void *p)
{
	if (!p)
		explore_failed("no memory");
	return p;
}

static struct key *table_find(struct table *t, uint64_t hash, const uint8_t *bytes, uint32_t len)
{
	uint64_t i = hash & (t->cap - 1);

	while (t->slots[i].bytes && (t->slots[i].hash != hash || t->slots[i].len != len ||
				     memcmp(t->slots[i].bytes, bytes, len)))
		i = (i + 1) & (t->cap - 1);
	return &t->slots[i];
}

static void table_grow(struct table *t)
{
	struct table old = *t;

	t->cap = old.cap ? old.cap * 2 : 1024;
	t->slots = must(calloc(t->cap, sizeof(*t->slots)));
	for (uint64_t i = 0; i < old.cap; i++)
		if (old.slots[i].bytes)
			*table_find(t, old.slots[i].hash, old.slots[i].bytes, old.slots[i].len) =
				old.slots[i];
	free(old.slots);
}

/* Returns the number of this key. A new key gets the next one (1, 2, ...), and *made is set. */
static uint32_t table_number(struct table *t, const uint8_t *bytes, uint32_t len, bool *made)
{
	uint64_t hash = hash_of(bytes, len);
	struct key *k;

	if (t->n * 2 >= t->cap)
		table_grow(t);
	k = table_find(t, hash, bytes, len);
	*made = !k->bytes;
	if (*made) {
		k->hash = hash;
		k->len = len;
		k->number = (uint32_t)++t->n;
		k->bytes = must(malloc(len));
		memcpy(k->bytes, bytes, len);
	}
	return k->number;
}

/* ---- states and messages --------------------------------------------------------------------- */

struct node {
	struct puppet puppet;
	struct explore_summary summary;
};

static struct explore_options options;
static struct table node_keys, message_keys, entry_keys, step_keys;
static struct node **nodes;
static struct raft_message **messages;
static struct explore_outcome **outcomes;
static uint64_t cap_nodes, cap_messages, cap_outcomes;
static uint32_t read_floor_broken;

static void keep(void *array, uint64_t *cap, uint32_t number, void *what)
{
	void ***list = array;

	if (number >= *cap) {
		*cap = *cap ? *cap * 2 : 1024;
		*list = must(realloc(*list, *cap * sizeof(**list)));
	}
	(*list)[number] = what;
}

void puppet_wrong(const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	explore_failed(text);
}

static uint32_t number_entry(const struct raft_entry *e)
{
	uint8_t key[512];
	uint32_t len = e->data ? e->data->len : 0;
	bool made;

	if (len > sizeof(key) - 9)
		explore_failed("an entry is too long");
	memcpy(key, &e->term, 8);
	key[8] = (uint8_t)e->type;
	if (len)
		memcpy(key + 9, e->data->bytes, len);
	return table_number(&entry_keys, key, 9 + len, &made);
}

static uint32_t number_message(const struct raft_message *from)
{
	static uint8_t key[KEY_MAX];
	struct raft_message m = *from, *copy;
	uint32_t number;
	size_t len;
	bool made;

	m.early = false;
	if (!options.rounds)
		m.round = 0;
	key[0] = (uint8_t)m.from;
	key[1] = (uint8_t)m.to;
	len = raft_message_encode(&m, key + 2, sizeof(key) - 2);
	if (!len)
		explore_failed("a message is too long");
	number = table_number(&message_keys, key, (uint32_t)len + 2, &made);
	if (made) {
		copy = must(malloc(sizeof(*copy)));
		raft_message_copy(copy, &m);
		keep(&messages, &cap_messages, number, copy);
	}
	return number;
}

static void summarize(struct node *n)
{
	const struct raft *r = &n->puppet.raft;
	struct explore_summary *s = &n->summary;

	s->state = r->state;
	s->term = r->term;
	s->commit = r->commit_index;
	s->snap_index = r->snap_index;
	s->last = r->last_index;
	s->lease = r->lease;
	s->reading = r->n_reads > 0;
	if (r->last_index >= ENTRIES_MAX)
		explore_failed("the log grew beyond the explorer's bounds");
	for (uint64_t i = r->snap_index + 1; i <= r->last_index; i++)
		s->entry[i] = number_entry(raft_entry_at(r, i));
}

/* Keeps the state and takes the puppet over. */
static uint32_t number_node(struct puppet *p)
{
	static uint8_t key[KEY_MAX];
	uint64_t extra[3] = {p->opt.self, p->disk.applied, options.rounds ? p->raft.round : 0};
	struct raft_peer *peers;
	struct node *n;
	uint32_t number;
	size_t len;
	bool made;

	memcpy(key, extra, sizeof(extra));
	len = raft_canonical(&p->raft, key + sizeof(extra), sizeof(key) - sizeof(extra));
	if (!len)
		explore_failed("a node's state is too long");
	number = table_number(&node_keys, key, (uint32_t)(len + sizeof(extra)), &made);
	if (!made) {
		puppet_free(p);
		return number;
	}
	raft_actions_fini(&p->actions);
	/* Only copies of it are stepped, and a copy has room for all peers again. */
	peers = realloc(p->raft.peers, (p->raft.n_peers + 1) * sizeof(*peers));
	p->raft.peers = must(peers);
	n = must(calloc(1, sizeof(*n)));
	n->puppet = *p;
	summarize(n);
	keep(&nodes, &cap_nodes, number, n);
	return number;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void on_send(void *arg, const struct raft_message *m)
{
	struct explore_outcome *o = arg;

	if (o->n_emitted == EMITTED_MAX)
		explore_failed("an event made too many messages");
	o->emitted[o->n_emitted++] = number_message(m);
}

static void on_read(void *arg, const struct raft_read *read)
{
	(void)arg;
	if (read->result == 0 && read->index < read->ctx)
		read_floor_broken = 1;
}

static struct raft_data *number_data(uint32_t command)
{
	return must(raft_data_make(&command, sizeof(command)));
}

/* Returns configuration `which`: the founders' with node (which / 3) + 1 as voter, learner or
   removed. */
static struct raft_data *conf_data(const struct raft_conf *now, uint32_t which)
{
	struct raft_conf conf = {0};
	ramp_node_t target = which / 3 + 1;

	for (ramp_node_t id = 1; id <= NODES; id++) {
		const struct raft_member *m = raft_conf_find(now, id);
		struct raft_member next = {.node = id};

		if (id == target && which % 3 == 2)
			continue;
		if (id == target)
			next.role = which % 3 == 0 ? RAFT_VOTER : RAFT_LEARNER;
		else if (m)
			next = *m;
		else
			continue;
		conf.member[conf.n++] = next;
	}
	return must(raft_conf_encode(&conf));
}

static int event_step(struct puppet *p, struct explore_event e)
{
	struct raft_event ev = {.type = RAFT_EV_MESSAGE, .ctx = e.arg};
	int rc;

	switch (e.kind) {
	case EXPLORE_MESSAGE:
		ev.message = messages[e.arg];
		break;
	case EXPLORE_ELECTION:
		ev.type = RAFT_EV_ELECTION;
		break;
	case EXPLORE_HEARTBEAT:
		ev.type = RAFT_EV_HEARTBEAT;
		break;
	case EXPLORE_PROPOSE:
		ev.type = RAFT_EV_PROPOSE;
		ev.entry.type = RAFT_COMMAND;
		ev.entry.data = number_data(COMMAND_BASE + e.arg);
		break;
	case EXPLORE_CONF:
		ev.type = RAFT_EV_PROPOSE;
		ev.entry.type = RAFT_CONF;
		ev.entry.data = conf_data(&p->raft.conf, e.arg);
		break;
	case EXPLORE_READ:
		ev.type = RAFT_EV_READ;
		break;
	case EXPLORE_TRANSFER:
		ev.type = RAFT_EV_TRANSFER;
		break;
	case EXPLORE_LEASE:
	case EXPLORE_RESTART:
		return 0;
	}
	rc = puppet_step(p, &ev);
	raft_data_unref(ev.entry.data);
	return rc;
}

/* Runs the turns; after `crash` calls the node dies. Returns false where the turns ended before. */
static bool turns_run(struct puppet *p, struct explore_outcome *o, uint32_t crash)
{
	struct puppet_hooks hooks = {.send = on_send, .read = on_read, .arg = o};
	bool more = true;

	for (uint32_t call = 0; more; call++) {
		if (crash && call == crash) {
			puppet_crash(p);
			return true;
		}
		if (call == CALLS_MAX)
			explore_failed("turns without end");
		if (call % 3 == 0)
			puppet_early(p, &hooks);
		else if (call % 3 == 1)
			puppet_commit(p);
		else
			more = puppet_finish(p, &hooks);
	}
	return !crash;
}

static void step_run(uint32_t node, struct explore_event ev, struct explore_outcome *o)
{
	struct puppet p;
	bool good = true;

	memset(o, 0, sizeof(*o));
	puppet_clone(&p, &nodes[node]->puppet);
	if (ev.kind == EXPLORE_LEASE) {
		p.raft.lease = false;
	} else if (ev.kind == EXPLORE_RESTART) {
		if (ev.arg)
			p.disk.applied = p.disk.snap_index;
		puppet_crash(&p);
	} else {
		good = event_step(&p, ev) == 0 && turns_run(&p, o, ev.crash);
	}
	if (read_floor_broken)
		explore_failed("a read was allowed at an index below what was committed before");
	if (good)
		o->node = number_node(&p);
	else
		puppet_free(&p);
}

const struct explore_outcome *explore_step(uint32_t node, struct explore_event ev)
{
	uint32_t words[4] = {node, (uint32_t)ev.kind, ev.arg, ev.crash};
	struct explore_outcome *o;
	uint32_t number;
	bool made;

	number = table_number(&step_keys, (const uint8_t *)words, sizeof(words), &made);
	if (made) {
		o = must(malloc(sizeof(*o)));
		step_run(node, ev, o);
		o = must(realloc(o, offsetof(struct explore_outcome, emitted) +
					    (o->n_emitted + 1) * sizeof(o->emitted[0])));
		keep(&outcomes, &cap_outcomes, number, o);
	}
	return outcomes[number];
}

/* ---- for the search -------------------------------------------------------------------------- */

void explore_nodes_begin(const struct explore_options *opt)
{
	options = *opt;
}

uint32_t explore_node_first(ramp_node_t id)
{
	struct raft_options opt = {
		.self = id,
		.heartbeat_ms = 100,
		.election_ms = 500,
		.log_capacity = ENTRIES_MAX,
		.compact_entries = options.compact ? options.compact : 1000,
		.compact_keep = 0,
		.inflight_bytes = 1 << 20,
		.seed = 1,
	};
	struct raft_conf conf = {.n = NODES};
	struct puppet p;

	for (ramp_node_t i = 1; i <= NODES; i++) {
		conf.member[i - 1].node = i;
		conf.member[i - 1].role = i <= options.voters ? RAFT_VOTER : RAFT_LEARNER;
	}
	puppet_format(&p, &opt, &conf, true);
	return number_node(&p);
}

const struct explore_summary *explore_node(uint32_t node)
{
	return &nodes[node]->summary;
}

const struct raft_message *explore_message(uint32_t message)
{
	return messages[message];
}

void explore_counts(uint64_t *n_nodes, uint64_t *n_messages, uint64_t *n_steps)
{
	*n_nodes = node_keys.n;
	*n_messages = message_keys.n;
	*n_steps = step_keys.n;
}
