/*
 * The faults of a simulated world: one after another for 20 seconds, then the healing.
 */
#include "sim.h"

static ramp_node_t some_existing(struct sim_world *w)
{
	ramp_node_t choice = 0;
	uint32_t n = 0;

	for (ramp_node_t id = 1; id < SIM_NODES; id++)
		if (w->nodes[id].exists && !w->nodes[id].gone && sim_between(&w->rng, 0, n++) == 0)
			choice = id;
	return choice;
}

static ramp_node_t some_leader(struct sim_world *w)
{
	for (ramp_node_t id = 1; id < SIM_NODES; id++)
		if (sim_node_up(w, id) && replica_raft(w->nodes[id].replica)->state == RAFT_LEADER)
			return id;
	return 0;
}

/* Chooses a node; the leader more often than others, since its faults cost more. */
static ramp_node_t victim(struct sim_world *w)
{
	ramp_node_t leader = some_leader(w);

	return leader && sim_chance(&w->rng, 400) ? leader : some_existing(w);
}

static void cut(struct sim_world *w, ramp_node_t from, ramp_node_t to, uint64_t us)
{
	w->net.cut[from][to] = true;
	w->net.cut_until[from][to] = w->now + us;
}

/* ---- the faults ------------------------------------------------------------------------------ */

static void fault_crash(struct sim_world *w, ramp_node_t id)
{
	struct sim_node *n = &w->nodes[id];
	bool power = sim_chance(&w->rng, 600);

	n->down_for_us =
		sim_between(&w->rng, 5 * SIM_MS, sim_chance(&w->rng, 700) ? SIM_S : 4 * SIM_S);
	if (n->phase == SIM_DOWN || sim_chance(&w->rng, 400)) {
		if (n->phase != SIM_DOWN)
			sim_node_crash(w, id, power);
		return;
	}
	n->crash_at = (enum sim_crash_at)sim_between(&w->rng, SIM_BEFORE_EARLY, SIM_AFTER_COMMIT);
	n->crash_power = power;
	sim_trace(w, "fault: node %u is to die at point %d", id, n->crash_at);
}

static void fault_crash_all(struct sim_world *w)
{
	sim_trace(w, "fault: all nodes die");
	for (ramp_node_t id = 1; id < SIM_NODES; id++) {
		if (!w->nodes[id].exists || w->nodes[id].phase == SIM_DOWN)
			continue;
		w->nodes[id].down_for_us = sim_between(&w->rng, 5 * SIM_MS, SIM_S);
		sim_node_crash(w, id, true);
	}
}

static void fault_partition(struct sim_world *w)
{
	uint64_t us = sim_between(&w->rng, 200 * SIM_MS, 4 * SIM_S);
	uint64_t side = sim_random(&w->rng);
	uint32_t way = (uint32_t)sim_between(&w->rng, 0, 3); /* 0, 1: both; 2, 3: one only */

	sim_trace(w, "fault: partition %llx way %u for %llu us", (unsigned long long)side & 0xfff,
		  way, (unsigned long long)us);
	for (ramp_node_t a = 1; a < SIM_NODES; a++)
		for (ramp_node_t b = 1; b < SIM_NODES; b++) {
			bool left = side >> a & 1, right = side >> b & 1;

			if (left == right || (way == 2 && left) || (way == 3 && right))
				continue;
			cut(w, a, b, us);
		}
}

static void fault_isolate(struct sim_world *w, ramp_node_t id)
{
	uint64_t us = sim_between(&w->rng, 200 * SIM_MS, 4 * SIM_S);
	uint32_t way = (uint32_t)sim_between(&w->rng, 0, 3);

	sim_trace(w, "fault: node %u alone, way %u, for %llu us", id, way, (unsigned long long)us);
	for (ramp_node_t other = 1; other < SIM_NODES; other++) {
		if (other == id)
			continue;
		if (way != 2)
			cut(w, id, other, us);
		if (way != 3)
			cut(w, other, id, us);
	}
}

static void fault_network(struct sim_world *w)
{
	struct sim_net *net = &w->net;

	net->loss = sim_chance(&w->rng, 500) ? 0 : (uint32_t)sim_between(&w->rng, 1, 200);
	net->dup = sim_chance(&w->rng, 500) ? 0 : (uint32_t)sim_between(&w->rng, 1, 200);
	net->slow = sim_chance(&w->rng, 500) ? 5 : (uint32_t)sim_between(&w->rng, 1, 200);
	net->slow_us = sim_between(&w->rng, 10 * SIM_MS, 2 * SIM_S);
	net->min_us = 50;
	net->max_us = sim_chance(&w->rng, 700) ? 500 : 40 * SIM_MS;
	sim_trace(w, "fault: network loses %u, repeats %u, delays %u per mille", net->loss,
		  net->dup, net->slow);
}

static void fault_disk(struct sim_world *w, ramp_node_t id)
{
	static const enum sim_disk_state faults[] = {SIM_DISK_FULL, SIM_DISK_BROKEN,
						     SIM_DISK_SLIPS};
	enum sim_disk_state state = faults[sim_between(&w->rng, 0, 2)];
	uint64_t after = sim_between(&w->rng, 0, sim_chance(&w->rng, 500) ? 4 : 40);

	if (sim_chance(&w->rng, 500))
		state = SIM_DISK_OK; /* a disk with a fault is well again */
	sim_trace(w, "fault: disk of node %u: %d after %llu", id, state, (unsigned long long)after);
	sim_vfs_fault(id, state, after);
	w->nodes[id].down_for_us = sim_between(&w->rng, 5 * SIM_MS, SIM_S);
	w->counts.disk_faults += state != SIM_DISK_OK;
}

static void fault_local(struct sim_world *w, ramp_node_t id, enum raft_event_type event,
			ramp_node_t node)
{
	struct sim_parcel *p;

	if (!sim_node_up(w, id))
		return;
	p = sim_parcel_make(SIM_LOCAL, id, id, NULL, 0);
	p->event = event;
	p->node = node;
	sim_node_deliver(w, p);
}

static void fault_transfer(struct sim_world *w)
{
	ramp_node_t id = some_leader(w);

	if (!id)
		return;
	sim_trace(w, "fault: node %u hands over", id);
	w->counts.transfers++;
	fault_local(w, id, RAFT_EV_TRANSFER, sim_chance(&w->rng, 500) ? 0 : some_existing(w));
}

static void fault_wipe(struct sim_world *w, ramp_node_t id)
{
	struct sim_node *n = &w->nodes[id];

	/* One at most, so that the others are still a quorum; never one where segments are made; a
	   founder, since a node that joins again gets a new number. */
	if (!w->params.wipe || w->counts.wipes || id <= w->params.spread ||
	    id > w->params.voters + w->params.learners)
		return;
	n->down_for_us = sim_between(&w->rng, 5 * SIM_MS, SIM_S);
	sim_node_wipe(w, id);
}

static void fault_one(struct sim_world *w)
{
	ramp_node_t id = victim(w);
	uint64_t what = sim_between(&w->rng, 0, 99);

	if (what < 24)
		fault_crash(w, id);
	else if (what < 27)
		fault_crash_all(w);
	else if (what < 39)
		fault_partition(w);
	else if (what < 52)
		fault_isolate(w, id);
	else if (what < 62)
		fault_network(w);
	else if (what < 72)
		fault_disk(w, id);
	else if (what < 80)
		w->nodes[id].paused_until = w->now + sim_between(&w->rng, 50 * SIM_MS, 3 * SIM_S);
	else if (what < 88)
		fault_transfer(w);
	else if (what < 92)
		fault_local(w, id, RAFT_EV_PEER, some_existing(w));
	else if (what < 95)
		fault_wipe(w, id);
	else
		w->nodes[id].disk_max_us = sim_between(&w->rng, 200, 100 * SIM_MS);
}

/* ---- the schedule ---------------------------------------------------------------------------- */

static uint64_t fault_gap(struct sim_world *w)
{
	return sim_between(&w->rng, 5, 2 * w->params.fault_gap_ms) * SIM_MS;
}

void sim_faults_begin(struct sim_world *w)
{
	fault_network(w);
	sim_schedule(w, SIM_S + fault_gap(w), SIM_FAULT, 0, NULL);
}

void sim_faults_next(struct sim_world *w)
{
	if (w->healed)
		return;
	w->fault_count++;
	fault_one(w);
	sim_schedule(w, fault_gap(w), SIM_FAULT, 0, NULL);
}

/* Ends all faults and starts the nodes that are down. */
void sim_faults_heal(struct sim_world *w)
{
	w->healed = true;
	sim_trace(w, "healed");
	for (ramp_node_t id = 1; id < SIM_NODES; id++) {
		struct sim_node *n = &w->nodes[id];

		for (ramp_node_t to = 1; to < SIM_NODES; to++)
			w->net.cut[id][to] = false;
		if (!n->exists)
			continue;
		sim_vfs_fault(id, SIM_DISK_OK, 0);
		n->paused_until = 0;
		n->crash_at = SIM_NEVER;
		n->disk_max_us = 400;
		n->restart_at = w->now;
		if (n->phase == SIM_DOWN && !n->gone)
			sim_schedule(w, sim_between(&w->rng, 0, 100 * SIM_MS), SIM_START, id, NULL);
	}
	w->net.loss = w->net.dup = w->net.slow = 0;
	w->net.min_us = 50;
	w->net.max_us = 500;
}
