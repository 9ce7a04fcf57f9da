/*
 * A simulated node: its start, its turns, its death.
 *
 * A turn is two events, so that the world continues while the disk works: begin (steps and early
 * messages), then, after the disk's time, commit and finish. Parcels that arrive between them wait
 * in the inbox. A crash can come between any two calls of the replica.
 *
 * A node dies by a crash that was planned (crash_at), or because its journal is dead (a full or
 * broken disk). It is started again later, and dies again while its disk is bad.
 */
#include "meta/journal_create.h"
#include "sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "meta/raft_log.h"
#include "meta/raft_wire.h"

#include "message_name.h"

/* ---- fresh journals -------------------------------------------------------------------------- */

/* The bytes of a new journal, by kind of cluster; made once a process by the real
   journal_create. */
struct template
{
	uint32_t voters, learners;
	ramp_node_t self;
	uint8_t *bytes;
	size_t len;
};
#define TEMPLATES_MAX 64
static struct template templates[TEMPLATES_MAX];
static size_t n_templates;

static void template_load(struct template *t, const char *path)
{
	FILE *f = fopen(path, "rb");
	long len;

	if (!f || fseek(f, 0, SEEK_END) || (len = ftell(f)) <= 0 || fseek(f, 0, SEEK_SET))
		abort();
	t->len = (size_t)len;
	t->bytes = malloc(t->len);
	if (!t->bytes || fread(t->bytes, 1, t->len, f) != t->len)
		abort();
	fclose(f);
}

static void template_make(struct template *t)
{
	struct node_row rows[SIM_NODES];
	struct meta_founding founding = {
		.cluster_id = {1, 2, 3},
		.instance = SIM_INSTANCE + t->self,
		.self = t->self,
		.arena_addr = UINT64_C(0x200000000000),
		.arena_len = UINT64_C(1) << 45,
		.nodes = rows,
		.n_nodes = t->voters + t->learners,
	};
	char dir[64], path[96];
	struct ramp_err err;

	memset(rows, 0, sizeof(rows));
	for (uint32_t i = 0; i < t->voters + t->learners; i++) {
		rows[i].node = i + 1;
		snprintf(rows[i].name, sizeof(rows[i].name), "n%u", i + 1);
		snprintf(rows[i].address, sizeof(rows[i].address), "10.0.0.%u:7000", i + 1);
		rows[i].capacity = UINT64_C(1) << 30;
		rows[i].role = i < t->voters ? NODE_VOTER : NODE_STANDBY;
	}
	snprintf(dir, sizeof(dir), "%s/ramp-sim-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	if (!mkdtemp(dir))
		abort();
	snprintf(path, sizeof(path), "%s/journal.db", dir);
	if (journal_create(path, NULL, &founding, &err)) {
		fprintf(stderr, "journal_create: %s\n", err.text);
		abort();
	}
	template_load(t, path);
	unlink(path);
	if (rmdir(dir)) {
		fprintf(stderr, "journal_create left files in %s\n", dir);
		abort();
	}
}

static const struct template *template_get(uint32_t voters, uint32_t learners, ramp_node_t self)
{
	struct template *t;

	for (size_t i = 0; i < n_templates; i++) {
		t = &templates[i];
		if (t->voters == voters && t->learners == learners && t->self == self)
			return t;
	}
	if (n_templates == TEMPLATES_MAX)
		abort();
	t = &templates[n_templates++];
	*t = (struct template){.voters = voters, .learners = learners, .self = self};
	template_make(t);
	return t;
}

void sim_templates_free(void)
{
	for (size_t i = 0; i < n_templates; i++)
		free(templates[i].bytes);
	n_templates = 0;
}

static void node_path(ramp_node_t id, char path[SIM_PATH_MAX])
{
	snprintf(path, SIM_PATH_MAX, "/sim/%u/journal.db", id);
}

static void node_format(struct sim_world *w, ramp_node_t id, bool founder)
{
	const struct sim_params *p = &w->params;
	const struct template *t =
		founder ? template_get(p->voters, p->learners, id) : template_get(0, 0, id);
	char path[SIM_PATH_MAX];

	node_path(id, path);
	if (sim_vfs_put(path, t->bytes, t->len))
		abort();
}

void sim_node_make(struct sim_world *w, ramp_node_t id, bool founder)
{
	struct sim_node *n = &w->nodes[id];

	if (id >= SIM_NODES)
		sim_fail(w, "the state machine gave node %u", id);
	*n = (struct sim_node){.world = w, .id = id, .exists = true};
	n->clock_rate = w->params.skew ? sim_between(&w->rng, 700000, 1300000) : 1000000;
	n->disk_min_us = 20;
	n->disk_max_us = sim_chance(&w->rng, 300) ? 5000 : 400;
	node_format(w, id, founder);
}

/* ---- the inbox ------------------------------------------------------------------------------- */

static void inbox_push(struct sim_node *n, struct sim_parcel *p)
{
	if (n->inbox_n == n->inbox_cap) {
		uint32_t cap = n->inbox_cap ? n->inbox_cap * 2 : 64;
		struct sim_parcel **ring = calloc(cap, sizeof(*ring));

		if (!ring)
			abort();
		for (uint32_t i = 0; i < n->inbox_n; i++)
			ring[i] = n->inbox[(n->inbox_first + i) % n->inbox_cap];
		free(n->inbox);
		n->inbox = ring;
		n->inbox_cap = cap;
		n->inbox_first = 0;
	}
	n->inbox[(n->inbox_first + n->inbox_n++) % n->inbox_cap] = p;
}

static struct sim_parcel *inbox_pop(struct sim_node *n)
{
	struct sim_parcel *p = n->inbox[n->inbox_first];

	n->inbox_first = (n->inbox_first + 1) % n->inbox_cap;
	n->inbox_n--;
	return p;
}

/* ---- the replica's hooks --------------------------------------------------------------------- */

static void hook_fatal(void *arg, const char *text)
{
	struct sim_node *n = arg;

	n->fatal = true;
	sim_trace(n->world, "node %u: its journal is dead: %s", n->id, text);
}

static void trace_message(struct sim_world *w, const char *what, const struct raft_message *m)
{
	sim_trace(w,
		  "%s %u -> %u %s term %llu index %llu/%llu hint %llu commit %llu seq %llu n %u "
		  "offset %llu+%zu%s%s%s%s%s",
		  what, m->from, m->to, message_name(m->type), (unsigned long long)m->term,
		  (unsigned long long)m->index, (unsigned long long)m->log_term,
		  (unsigned long long)m->hint, (unsigned long long)m->leader_commit,
		  (unsigned long long)m->round, m->n_entries, (unsigned long long)m->offset, m->len,
		  m->reject ? " reject" : "", m->transfer ? " transfer" : "",
		  m->nonvoting ? " nonvoting" : "", m->done ? " done" : "",
		  m->early ? " early" : "");
}

static void hook_send(void *arg, const struct raft_message *m)
{
	struct sim_node *n = arg;
	struct sim_world *w = n->world;
	size_t cap = raft_message_size(m), len;
	struct sim_parcel *p = sim_parcel_make(SIM_MESSAGE, n->id, m->to, NULL, 0);

	p = realloc(p, sizeof(*p) + cap);
	if (!p)
		abort();
	len = raft_message_encode(m, p->bytes, cap);
	if (!len || len > cap)
		sim_fail(w, "a message of type %d takes more than raft_message_size says", m->type);
	p->len = len;
	if (m->from != n->id)
		sim_fail(w, "node %u sends in the name of %u", n->id, m->from);
	if (w->trace)
		trace_message(w, "send", m);
	if (m->type == RAFT_SNAPSHOT)
		w->counts.snapshots++;
	if (m->type == RAFT_SNAPSHOT && !w->healed && sim_chance(&w->rng, 150)) {
		/* Late, and twice: an old snapshot that comes in after much else was agreed. */
		p->refs++;
		sim_schedule(w, sim_between(&w->rng, 10 * SIM_MS, 4 * SIM_S), SIM_DELIVER, p->to,
			     p);
	}
	sim_send(w, p);
}

static void hook_applied(void *arg, uint64_t index, const struct fsm_result *r)
{
	struct sim_node *n = arg;

	sim_check_result(n->world, n, index, r);
	sim_client_result(n->world, n, index, r);
}

static void hook_restored(void *arg, uint64_t index)
{
	struct sim_node *n = arg;

	sim_trace(n->world, "node %u: tables replaced by a snapshot of %llu", n->id,
		  (unsigned long long)index);
}

static void hook_read_ready(void *arg, const struct raft_read *read)
{
	struct sim_node *n = arg;
	struct sim_parcel *p;
	ramp_node_t to = (ramp_node_t)(read->ctx >> 48);

	if (read->result)
		return;
	p = sim_parcel_make(SIM_READ_DONE, n->id, to, NULL, 0);
	p->ctx = read->ctx;
	p->index = read->index;
	sim_send(n->world, p);
}

/* ---- starting and dying ---------------------------------------------------------------------- */

uint64_t sim_node_clock_ms(const struct sim_node *n)
{
	return (uint64_t)(n->clock_offset_us + (int64_t)(n->world->now * n->clock_rate / 1000000)) /
	       1000;
}

bool sim_node_up(const struct sim_world *w, ramp_node_t id)
{
	return id && id < SIM_NODES && w->nodes[id].phase != SIM_DOWN;
}

static void node_start_later(struct sim_world *w, struct sim_node *n, uint64_t us)
{
	if (n->gone)
		return;
	n->restart_at = w->now + us;
	sim_schedule(w, us, SIM_START, n->id, NULL);
}

static int node_open(struct sim_world *w, struct sim_node *n)
{
	const struct sim_params *p = &w->params;
	char path[SIM_PATH_MAX];
	struct replica_config config = {
		.journal = {.path = path, .vfs = SIM_VFS, .fatal = hook_fatal, .arg = n},
		.raft = {.heartbeat_ms = p->heartbeat_ms,
			 .election_ms = p->election_ms,
			 .log_capacity = p->log_capacity,
			 .compact_entries = p->compact_entries,
			 .compact_keep = p->compact_keep,
			 .inflight_bytes = p->inflight_bytes,
			 .seed = sim_random(&w->rng)},
		.hooks = {.send = hook_send,
			  .applied = hook_applied,
			  .restored = hook_restored,
			  .read_ready = hook_read_ready,
			  .arg = n},
	};
	struct ramp_err err = {0};
	int rc;

	node_path(n->id, path);
	rc = replica_open(&config, sim_node_clock_ms(n), &n->replica, &err);
	if (rc)
		sim_trace(w, "node %u: can't be opened: %s", n->id, err.text);
	return rc;
}

void sim_node_start(struct sim_world *w, ramp_node_t id)
{
	struct sim_node *n = &w->nodes[id];
	struct journal_state state;
	struct sim_parcel *p;

	if (n->phase != SIM_DOWN || n->gone || n->restart_at > w->now)
		return;
	n->life++;
	n->clock_offset_us = (int64_t)sim_between(&w->rng, 1, 100000) * 1000;
	n->fatal = false;
	sim_trace(w, "node %u: starts", id);
	if (node_open(w, n)) {
		if (w->healed)
			sim_fail(w, "node %u can't be opened", id);
		n->replica = NULL;
		sim_vfs_freeze(id);
		if (sim_vfs_thaw(id, false, &w->rng))
			sim_fail(w, "node %u: a failed open left a connection", id);
		node_start_later(w, n, sim_between(&w->rng, 50 * SIM_MS, 500 * SIM_MS));
		return;
	}
	journal_state(replica_journal(n->replica), &state);
	n->phase = SIM_IDLE;
	n->origin_life = state.life;
	n->origin_number = 0;
	n->n_open = 0;
	n->seen_commit = n->seen_snap = 0;
	n->tick_due = n->turn_due = n->in_turn = false;
	sim_check_return(w, n);
	sim_trace(w, "node %u: up, term %llu vote %u snap %llu/%llu applied %llu last %llu", id,
		  (unsigned long long)state.term, state.vote, (unsigned long long)state.snap_index,
		  (unsigned long long)state.snap_term, (unsigned long long)state.applied,
		  (unsigned long long)state.last_index);
	sim_check_step(w, n);
	sim_check_sum(w, n);
	if (!n->fresh && !replica_raft(n->replica)->confirmed) {
		p = sim_parcel_make(SIM_LOCAL, id, id, NULL, 0);
		p->event = RAFT_EV_CONFIRM;
		inbox_push(n, p);
	}
	sim_schedule(w, sim_between(&w->rng, 0, 12 * SIM_MS), SIM_TICK, id, NULL);
}

void sim_node_crash(struct sim_world *w, ramp_node_t id, bool power)
{
	struct sim_node *n = &w->nodes[id];

	n->life++;
	n->crash_at = SIM_NEVER;
	while (n->inbox_n)
		sim_parcel_unref(inbox_pop(n));
	if (n->phase != SIM_DOWN) {
		sim_trace(w, "node %u: dies%s", id, power ? " with its power" : "");
		w->counts.crashes++;
		w->counts.power += power;
		n->phase = SIM_DOWN;
		sim_check_leave(n);
		sim_vfs_freeze(id);
		replica_close(n->replica);
		n->replica = NULL;
		if (sim_vfs_thaw(id, power, &w->rng))
			sim_fail(w, "node %u: replica_close left a connection open", id);
	}
	node_start_later(w, n, n->down_for_us);
}

void sim_node_wipe(struct sim_world *w, ramp_node_t id)
{
	struct sim_node *n = &w->nodes[id];

	sim_node_crash(w, id, true);
	sim_trace(w, "node %u: is formatted again", id);
	sim_vfs_wipe(id);
	node_format(w, id, true);
	n->fresh = true;
	n->left = false;
	n->seen_term_led = 0;
	w->counts.wipes++;
}

/* ---- turns ----------------------------------------------------------------------------------- */

static void node_plan_turn(struct sim_world *w, struct sim_node *n)
{
	uint64_t in = 1;

	if (n->turn_due || n->phase != SIM_IDLE)
		return;
	if (n->paused_until > w->now)
		in = n->paused_until - w->now;
	n->turn_due = true;
	sim_schedule(w, in, SIM_TURN, n->id, NULL);
}

void sim_node_deliver(struct sim_world *w, struct sim_parcel *p)
{
	struct sim_node *n = &w->nodes[p->to];

	if (n->phase == SIM_DOWN) {
		sim_parcel_unref(p);
		return;
	}
	if (p->type == SIM_READ_DONE) {
		sim_client_read(w, n, p);
		sim_parcel_unref(p);
		return;
	}
	inbox_push(n, p);
	node_plan_turn(w, n);
}

void sim_node_tick(struct sim_world *w, ramp_node_t id)
{
	struct sim_node *n = &w->nodes[id];

	n->tick_due = true;
	sim_schedule(w, sim_between(&w->rng, 10 * SIM_MS, 20 * SIM_MS), SIM_TICK, id, NULL);
	node_plan_turn(w, n);
}

static void step_message(struct sim_world *w, struct sim_node *n, struct sim_parcel *p,
			 struct raft_event *ev)
{
	static struct raft_message m;

	if (raft_message_decode(p->bytes, p->len, &m))
		sim_fail(w, "a message of %u to %u can't be decoded", p->from, p->to);
	m.from = p->from;
	m.to = p->to;
	if (w->trace)
		trace_message(w, "recv", &m);
	ev->type = RAFT_EV_MESSAGE;
	ev->message = &m;
	replica_step(n->replica, ev);
	raft_message_release(&m);
}

/* Proposes a forwarded command, as meta does on the leader; drops it where this isn't the
   leader. */
static void step_propose(struct sim_world *w, struct sim_node *n, struct sim_parcel *p,
			 struct raft_event *ev)
{
	struct raft_data *data = raft_data_make(p->bytes, p->len);
	int rc;

	if (!data)
		abort();
	ev->type = RAFT_EV_PROPOSE;
	ev->entry.type = RAFT_COMMAND;
	ev->entry.data = data;
	rc = replica_step(n->replica, ev);
	sim_trace(w, "node %u: proposal of %u: %d", n->id, p->from, rc);
	raft_data_unref(data);
}

static void step_parcel(struct sim_world *w, struct sim_node *n, struct sim_parcel *p)
{
	struct raft_event ev = {.now_ms = sim_node_clock_ms(n)};

	switch (p->type) {
	case SIM_MESSAGE:
		step_message(w, n, p, &ev);
		break;
	case SIM_PROPOSE:
		step_propose(w, n, p, &ev);
		break;
	case SIM_READ:
		ev.type = RAFT_EV_READ;
		ev.ctx = p->ctx;
		replica_step(n->replica, &ev);
		break;
	case SIM_LOCAL:
		ev.type = p->event;
		ev.node = p->node;
		replica_step(n->replica, &ev);
		break;
	case SIM_READ_DONE:
		break;
	}
	sim_check_step(w, n);
}

static bool crash_here(struct sim_world *w, struct sim_node *n, enum sim_crash_at at)
{
	if (n->crash_at != at)
		return false;
	sim_node_crash(w, n->id, n->crash_power);
	return true;
}

static void turn_begin(struct sim_world *w, struct sim_node *n)
{
	struct raft_event tick = {.type = RAFT_EV_TICK, .now_ms = sim_node_clock_ms(n)};
	/* All that is queued, or less: a batch may end anywhere. */
	uint32_t batch =
		sim_chance(&w->rng, 700) ? n->inbox_n : (uint32_t)sim_between(&w->rng, 0, 2);

	w->counts.turns++;
	n->in_turn = true;
	if (n->tick_due)
		replica_step(n->replica, &tick);
	n->tick_due = false;
	sim_check_step(w, n);
	for (; batch && n->inbox_n; batch--) {
		struct sim_parcel *p = inbox_pop(n);

		step_parcel(w, n, p);
		sim_parcel_unref(p);
	}
	if (n->fatal) {
		sim_node_crash(w, n->id, false);
		return;
	}
	if (crash_here(w, n, SIM_BEFORE_EARLY))
		return;
	replica_send_early(n->replica);
	n->phase = SIM_STEPPED;
	sim_schedule(w, sim_between(&w->rng, n->disk_min_us, n->disk_max_us), SIM_TURN, n->id,
		     NULL);
}

static void turn_end(struct sim_world *w, struct sim_node *n)
{
	int rc;
	bool again;

	if (crash_here(w, n, SIM_BEFORE_COMMIT))
		return;
	rc = replica_commit(n->replica);
	if (rc || n->fatal) {
		if (!n->fatal)
			sim_fail(w, "node %u: replica_commit gave %d and fatal wasn't called",
				 n->id, rc);
		if (!rc)
			sim_fail(w, "node %u: its journal died and replica_commit gave 0", n->id);
		sim_node_crash(w, n->id, sim_chance(&w->rng, 500));
		return;
	}
	n->in_turn = false;
	if (crash_here(w, n, SIM_AFTER_COMMIT))
		return;
	n->phase = SIM_IDLE;
	again = replica_finish(n->replica, sim_node_clock_ms(n));
	if (n->fatal) {
		sim_node_crash(w, n->id, false);
		return;
	}
	sim_check_step(w, n);
	if (sim_chance(&w->rng, 10))
		sim_check_sum(w, n);
	if (again || n->inbox_n)
		node_plan_turn(w, n);
}

void sim_node_turn(struct sim_world *w, ramp_node_t id)
{
	struct sim_node *n = &w->nodes[id];

	if (n->phase == SIM_STEPPED) {
		if (n->paused_until > w->now) { /* stopped in the middle of a turn */
			sim_schedule(w, n->paused_until - w->now, SIM_TURN, id, NULL);
			return;
		}
		turn_end(w, n);
		return;
	}
	n->turn_due = false;
	if (n->paused_until > w->now)
		node_plan_turn(w, n);
	else
		turn_begin(w, n);
}
