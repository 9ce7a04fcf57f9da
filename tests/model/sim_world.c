/*
 * Parameters by the seed, the queue of events, and the network. See sim.h.
 *
 * sim_run: parameters from the seed; founders; then one event after the other, in the order of
 * their times, until all is settled after the healing. A world that is not settled by
 * SIM_DEADLINE has failed: that is the check of progress.
 */
#include "sim.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- reports --------------------------------------------------------------------------------- */

void sim_trace(struct sim_world *w, const char *fmt, ...)
{
	va_list ap;

	if (!w->trace)
		return;
	fprintf(w->trace, "%10.6f ", (double)w->now / 1e6);
	va_start(ap, fmt);
	vfprintf(w->trace, fmt, ap);
	va_end(ap);
	fputc('\n', w->trace);
}

void sim_fail(struct sim_world *w, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	sim_trace(w, "FAILED: %s", text);
	if (w->trace)
		fflush(w->trace);
	printf("seed %llu failed at %.6f s: %s\n", (unsigned long long)w->seed,
	       (double)w->now / 1e6, text);
	fflush(stdout);
	_Exit(SIM_FAIL_EXIT);
}

/* ---- the queue ------------------------------------------------------------------------------- */

static bool item_before(const struct sim_item *a, const struct sim_item *b)
{
	return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void heap_push(struct sim_world *w, struct sim_item item)
{
	size_t i = w->n_heap++;

	if (w->n_heap > w->cap_heap) {
		w->cap_heap = w->cap_heap ? w->cap_heap * 2 : 256;
		w->heap = realloc(w->heap, w->cap_heap * sizeof(*w->heap));
		if (!w->heap)
			abort();
	}
	while (i && item_before(&item, &w->heap[(i - 1) / 2])) {
		w->heap[i] = w->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	w->heap[i] = item;
}

static struct sim_item heap_pop(struct sim_world *w)
{
	struct sim_item top = w->heap[0], last = w->heap[--w->n_heap];
	size_t i = 0;

	for (;;) {
		size_t child = 2 * i + 1;

		if (child + 1 < w->n_heap && item_before(&w->heap[child + 1], &w->heap[child]))
			child++;
		if (child >= w->n_heap || !item_before(&w->heap[child], &last))
			break;
		w->heap[i] = w->heap[child];
		i = child;
	}
	w->heap[i] = last;
	return top;
}

void sim_schedule(struct sim_world *w, uint64_t in_us, enum sim_kind kind, uint32_t who,
		  struct sim_parcel *parcel)
{
	bool of_node = kind == SIM_TICK || kind == SIM_TURN || kind == SIM_START;

	heap_push(w, (struct sim_item){
			     .at = w->now + in_us,
			     .order = w->order++,
			     .kind = kind,
			     .who = who,
			     .life = of_node ? w->nodes[who].life : 0,
			     .parcel = parcel,
		     });
}

/* ---- the network ----------------------------------------------------------------------------- */

struct sim_parcel *sim_parcel_make(enum sim_parcel_type type, ramp_node_t from, ramp_node_t to,
				   const void *bytes, size_t len)
{
	struct sim_parcel *p = calloc(1, sizeof(*p) + len);

	if (!p)
		abort();
	p->type = type;
	p->refs = 1;
	p->from = from;
	p->to = to;
	p->len = len;
	if (len)
		memcpy(p->bytes, bytes, len);
	return p;
}

void sim_parcel_unref(struct sim_parcel *p)
{
	if (!--p->refs)
		free(p);
}

static bool net_cut(struct sim_world *w, ramp_node_t from, ramp_node_t to)
{
	if (w->net.cut[from][to] && w->net.cut_until[from][to] <= w->now)
		w->net.cut[from][to] = false;
	return w->net.cut[from][to];
}

static uint64_t net_delay(struct sim_world *w)
{
	uint64_t us = sim_between(&w->rng, w->net.min_us, w->net.max_us);

	if (sim_chance(&w->rng, w->net.slow))
		us += sim_between(&w->rng, 0, w->net.slow_us);
	return us;
}

void sim_send(struct sim_world *w, struct sim_parcel *p)
{
	w->counts.messages++;
	if (p->to == 0 || p->to >= SIM_NODES)
		sim_fail(w, "node %u sends to node %u, which does not exist", p->from, p->to);
	if (net_cut(w, p->from, p->to) || sim_chance(&w->rng, w->net.loss)) {
		w->counts.lost++;
		sim_parcel_unref(p);
		return;
	}
	if (sim_chance(&w->rng, w->net.dup)) {
		p->refs++;
		sim_schedule(w, net_delay(w) + sim_between(&w->rng, 0, w->net.slow_us), SIM_DELIVER,
			     p->to, p);
	}
	sim_schedule(w, net_delay(w), SIM_DELIVER, p->to, p);
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void params_choose(struct sim_world *w)
{
	struct sim_params *p = &w->params;
	struct sim_rng *r = &w->rng;

	p->voters = sim_chance(r, 650) ? 3 : 5;
	if (sim_chance(r, 80))
		p->voters = (uint32_t)sim_between(r, 1, 2);
	p->learners = sim_chance(r, 400) ? (uint32_t)sim_between(r, 1, 2) : 0;
	p->heartbeat_ms = 100;
	p->election_ms = 500;
	p->log_capacity = sim_chance(r, 300) ? 48 : SIM_LOG;
	p->compact_entries = (uint32_t)sim_between(r, 4, sim_chance(r, 500) ? 12 : 30);
	p->compact_keep = (uint32_t)sim_between(r, 1, p->compact_entries / 2); /* 0: default */
	p->inflight_bytes = sim_chance(r, 300) ? 600 : 64 << 10;
	p->think_ms = sim_chance(r, 300) ? 30 : 200;
	p->fault_gap_ms = sim_chance(r, 300) ? 150 : 700;
	p->skew = sim_chance(r, 400);
	p->members = sim_chance(r, 500);
	p->wipe = p->voters >= 3 && sim_chance(r, 200); /* the others must be a quorum */
	p->origins = sim_chance(r, 700);
	p->wild = sim_chance(r, 500);
	p->spread = sim_chance(r, 500) ? 1 : p->voters;
}

static void world_begin(struct sim_world *w)
{
	uint32_t founders;

	sim_vfs_reset();
	w->records = calloc(SIM_INDEXES, sizeof(*w->records));
	w->leaders = calloc(SIM_TERMS, sizeof(*w->leaders));
	if (!w->records || !w->leaders)
		abort();
	params_choose(w);
	founders = w->params.voters + w->params.learners;
	for (ramp_node_t id = 1; id <= founders; id++) {
		sim_node_make(w, id, true);
		sim_schedule(w, sim_between(&w->rng, 0, 300 * SIM_MS), SIM_START, id, NULL);
	}
	sim_clients_begin(w);
	sim_faults_begin(w);
}

static void item_do(struct sim_world *w, const struct sim_item *item)
{
	bool alive = item->who < SIM_NODES && w->nodes[item->who].life == item->life;

	switch (item->kind) {
	case SIM_TICK:
		if (alive)
			sim_node_tick(w, item->who);
		break;
	case SIM_TURN:
		if (alive)
			sim_node_turn(w, item->who);
		break;
	case SIM_START:
		if (alive)
			sim_node_start(w, item->who);
		break;
	case SIM_DELIVER:
		sim_node_deliver(w, item->parcel);
		break;
	case SIM_CLIENT:
		sim_client_wake(w, item->who);
		break;
	case SIM_ADMIN:
		sim_admin_wake(w);
		break;
	case SIM_FAULT:
		sim_faults_next(w);
		break;
	}
}

void sim_run(struct sim_world *w, uint64_t seed, FILE *trace)
{
	uint64_t looked = 0;

	memset(w, 0, sizeof(*w));
	w->seed = seed;
	w->rng.state = sim_mix(seed + UINT64_C(0x5eed));
	w->trace = trace;
	world_begin(w);
	while (w->n_heap) {
		struct sim_item item = heap_pop(w);

		w->now = item.at;
		w->counts.events++;
		w->digest = sim_mix(w->digest ^ item.at ^ ((uint64_t)item.kind << 56) ^
				    ((uint64_t)item.who << 48));
		item_do(w, &item);
		if (!w->healed && w->now >= SIM_FAULTS)
			sim_faults_heal(w);
		if (w->now < SIM_QUIET + SIM_S || w->now < looked + 100 * SIM_MS)
			continue;
		looked = w->now;
		if (sim_check_settled(w))
			break;
		if (w->now > SIM_DEADLINE)
			sim_fail(w, "no progress after the healing: %s", sim_check_unsettled(w));
	}
	sim_check_end(w);
}

void sim_free(struct sim_world *w)
{
	for (ramp_node_t id = 1; id < SIM_NODES; id++) {
		if (w->nodes[id].exists)
			sim_node_crash(w, id, false);
		free(w->nodes[id].inbox);
	}
	while (w->n_heap) {
		struct sim_item item = heap_pop(w);

		if (item.parcel)
			sim_parcel_unref(item.parcel);
	}
	free(w->heap);
	free(w->records);
	free(w->leaders);
}
