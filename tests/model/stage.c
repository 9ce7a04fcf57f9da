/*
 * The stage of scripted cases. See stage.h.
 */
#include "stage.h"

#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/raft_log.h"

static struct puppet nodes[STAGE_NODES];
static bool made[STAGE_NODES];
static struct raft_message *pool[STAGE_POOL];
static uint32_t n_pool;
static struct raft_read reads[STAGE_READS];
static uint32_t n_reads;

void puppet_wrong(const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	ck_abort_msg("%s", text);
	abort();
}

static void on_send(void *arg, const struct raft_message *m)
{
	(void)arg;
	ck_assert_uint_lt(n_pool, STAGE_POOL);
	ck_assert(m->to > 0 && m->to < STAGE_NODES && m->to != m->from);
	pool[n_pool] = calloc(1, sizeof(*m));
	ck_assert_ptr_nonnull(pool[n_pool]);
	raft_message_copy(pool[n_pool], m);
	n_pool++;
}

static void on_read(void *arg, const struct raft_read *read)
{
	(void)arg;
	ck_assert_uint_lt(n_reads, STAGE_READS);
	reads[n_reads++] = *read;
}

static const struct puppet_hooks hooks = {.send = on_send, .read = on_read};

/* ---- nodes ----------------------------------------------------------------------------------- */

void stage_open(uint32_t voters, uint32_t learners, uint32_t compact)
{
	struct raft_conf conf = {.n = voters + learners};

	n_pool = n_reads = 0;
	for (uint32_t i = 0; i < conf.n; i++) {
		conf.member[i].node = i + 1;
		conf.member[i].role = i < voters ? RAFT_VOTER : RAFT_LEARNER;
	}
	for (ramp_node_t id = 1; id <= conf.n; id++) {
		struct raft_options opt = {
			.self = id,
			.heartbeat_ms = 100,
			.election_ms = 500,
			.log_capacity = PUPPET_LOG - 1,
			.compact_entries = compact ? compact : 1000,
			.compact_keep = 0,
			.inflight_bytes = 1 << 20,
			.seed = id,
		};

		puppet_format(&nodes[id], &opt, &conf, true);
		made[id] = true;
	}
}

void stage_close(void)
{
	stage_drop(ANY, ANY, 0);
	for (ramp_node_t id = 1; id < STAGE_NODES; id++)
		if (made[id])
			puppet_free(&nodes[id]);
	memset(made, 0, sizeof(made));
}

struct puppet *stage_node(ramp_node_t id)
{
	ck_assert(id < STAGE_NODES && made[id]);
	return &nodes[id];
}

const struct raft *stage_raft(ramp_node_t id)
{
	return &stage_node(id)->raft;
}

uint64_t stage_commit_of(ramp_node_t id)
{
	return stage_raft(id)->commit_index;
}

int stage_step(ramp_node_t id, enum raft_event_type type)
{
	struct raft_event ev = {.type = type};

	return puppet_step(stage_node(id), &ev);
}

int stage_step_message(ramp_node_t id, const struct raft_message *m)
{
	struct raft_event ev = {.type = RAFT_EV_MESSAGE, .message = m};

	return puppet_step(stage_node(id), &ev);
}

void stage_early(ramp_node_t id)
{
	puppet_early(stage_node(id), &hooks);
}

void stage_commit(ramp_node_t id)
{
	puppet_commit(stage_node(id));
}

void stage_finish(ramp_node_t id)
{
	puppet_finish(stage_node(id), &hooks);
}

void stage_turns(ramp_node_t id)
{
	puppet_turns(stage_node(id), &hooks);
}

void stage_crash(ramp_node_t id)
{
	puppet_crash(stage_node(id));
}

void stage_lease_over(ramp_node_t id)
{
	stage_node(id)->raft.lease = false;
}

int stage_event(ramp_node_t id, enum raft_event_type type)
{
	int rc = stage_step(id, type);

	stage_turns(id);
	return rc;
}

static int propose(ramp_node_t id, enum raft_entry_type type, struct raft_data *data)
{
	struct raft_event ev = {.type = RAFT_EV_PROPOSE, .entry = {.type = type, .data = data}};
	int rc;

	ck_assert_ptr_nonnull(data);
	rc = puppet_step(stage_node(id), &ev);
	raft_data_unref(data);
	stage_turns(id);
	return rc;
}

int stage_propose(ramp_node_t id, uint32_t command)
{
	return propose(id, RAFT_COMMAND, raft_data_make(&command, sizeof(command)));
}

int stage_propose_conf(ramp_node_t id, const struct raft_conf *conf)
{
	return propose(id, RAFT_CONF, raft_conf_encode(conf));
}

int stage_read(ramp_node_t id, uint64_t ctx)
{
	struct raft_event ev = {.type = RAFT_EV_READ, .ctx = ctx};
	int rc = puppet_step(stage_node(id), &ev);

	stage_turns(id);
	return rc;
}

/* ---- messages -------------------------------------------------------------------------------- */

static bool matches(const struct raft_message *m, ramp_node_t from, ramp_node_t to,
		    enum raft_message_type type)
{
	return (from == ANY || m->from == from) && (to == ANY || m->to == to) &&
	       ((int)type == 0 || m->type == type);
}

uint32_t stage_count(ramp_node_t from, ramp_node_t to, enum raft_message_type type)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < n_pool; i++)
		n += matches(pool[i], from, to, type);
	return n;
}

static struct raft_message *pool_remove(uint32_t i)
{
	struct raft_message *m = pool[i];

	memmove(&pool[i], &pool[i + 1], (--n_pool - i) * sizeof(pool[0]));
	return m;
}

struct raft_message *stage_take(ramp_node_t from, ramp_node_t to, enum raft_message_type type)
{
	for (uint32_t i = 0; i < n_pool; i++)
		if (matches(pool[i], from, to, type))
			return pool_remove(i);
	ck_abort_msg("no message of type %d from %u to %u", (int)type, from, to);
	return NULL;
}

void stage_give(const struct raft_message *m)
{
	stage_step_message(m->to, m);
	stage_turns(m->to);
}

void stage_free(struct raft_message *m)
{
	raft_message_release(m);
	free(m);
}

void stage_deliver(ramp_node_t from, ramp_node_t to, enum raft_message_type type)
{
	struct raft_message *m = stage_take(from, to, type);

	stage_give(m);
	stage_free(m);
}

void stage_drop(ramp_node_t from, ramp_node_t to, enum raft_message_type type)
{
	for (uint32_t i = 0; i < n_pool;)
		if (matches(pool[i], from, to, type))
			stage_free(pool_remove(i));
		else
			i++;
}

void stage_settle(uint32_t mask)
{
	while (n_pool) {
		struct raft_message *m = pool_remove(0);

		if (mask & BIT(m->from) && mask & BIT(m->to))
			stage_give(m);
		stage_free(m);
	}
}

static void campaign(ramp_node_t id, uint32_t mask)
{
	static const enum raft_message_type rounds[2][2] = {
		{RAFT_PREVOTE, RAFT_PREVOTE_ANSWER},
		{RAFT_VOTE, RAFT_VOTE_ANSWER},
	};

	stage_drop(ANY, ANY, 0);
	for (ramp_node_t v = 1; v < STAGE_NODES; v++)
		if (made[v] && mask & BIT(v))
			stage_lease_over(v);
	stage_event(id, RAFT_EV_ELECTION);
	for (int round = 0; round < 2; round++)
		for (ramp_node_t v = 1; v < STAGE_NODES; v++) {
			if (v == id || !(mask & BIT(v)) || !stage_count(id, v, rounds[round][0]))
				continue;
			stage_deliver(id, v, rounds[round][0]);
			stage_deliver(v, id, rounds[round][1]);
		}
}

void stage_elect(ramp_node_t id, uint32_t mask)
{
	campaign(id, mask);
	if (stage_raft(id)->state != RAFT_LEADER)
		campaign(id, mask); /* the first one may only have brought a higher term */
	ck_assert_msg(stage_raft(id)->state == RAFT_LEADER, "node %u wasn't elected", id);
	stage_drop(ANY, ANY, RAFT_PREVOTE);
	stage_drop(ANY, ANY, RAFT_VOTE);
}

void stage_lead(ramp_node_t id, uint32_t mask)
{
	stage_elect(id, mask);
	stage_settle(mask | BIT(id));
	stage_event(id, RAFT_EV_HEARTBEAT);
	stage_settle(mask | BIT(id));
	ck_assert_uint_eq(stage_commit_of(id), stage_raft(id)->last_index);
}

uint32_t stage_reads_good(uint64_t ctx, uint64_t *index)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < n_reads; i++)
		if (reads[i].ctx == ctx && reads[i].result == 0) {
			*index = reads[i].index;
			n++;
		}
	return n;
}

void stage_reads_clear(void)
{
	n_reads = 0;
}

struct raft_message stage_append(ramp_node_t from, ramp_node_t to, uint64_t term, uint64_t index,
				 uint64_t log_term, uint64_t commit)
{
	struct raft_message m = {
		.type = RAFT_APPEND,
		.from = from,
		.to = to,
		.term = term,
		.index = index,
		.log_term = log_term,
		.leader_commit = commit,
	};

	return m;
}

void stage_add_entry(struct raft_message *m, uint64_t term, uint32_t command)
{
	struct raft_entry *e = &m->entries[m->n_entries++];

	e->term = term;
	e->type = RAFT_COMMAND;
	e->data = raft_data_make(&command, sizeof(command));
	ck_assert_ptr_nonnull(e->data);
}
