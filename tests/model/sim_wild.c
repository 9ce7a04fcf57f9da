/*
 * The wild client prepares, takes, settles and aborts migrations of its own segments, gives them
 * extents (of some as it makes them), unlinks and frees them, raises the level of the rules and bounds a user's addresses, in no sensible order and with old epochs and attempts. It
 * expects nothing of the answers; the checks do: the same answer and the same tables on all nodes,
 * also after a snapshot of rows in every phase.
 */
#include <string.h>

#include "sim.h"

static void wild_create(struct sim_world *w, struct sim_client *c)
{
	struct sim_row row = {.node = (ramp_node_t)sim_between(&w->rng, 1, w->params.voters),
			      .name = c->next_name++};

	if (c->n_rows == SIM_ROWS)
		sim_fail(w, "client %u made too many segments", c->index);
	c->row = c->n_rows;
	c->rows[c->n_rows++] = row;
	sim_client_command(w, c, META_CREATE, &row);
	c->command.attr.mode = 0600;
	c->command.attr.uid = c->row % 2; /* root, or a user whose part of the arena is bounded */
	if (c->row % 5 < 2) {		  /* refused below its level, or where none is left */
		c->command.flags = META_WITH_EXTENT;
		c->command.attr.size = (uint64_t)c->row << 24;
	}
}

static void wild_prepare(struct sim_world *w, struct sim_client *c, const struct sim_row *row)
{
	struct meta_command *m = &c->command;

	sim_client_command(w, c, META_PREPARE, row);
	m->src = row->node;
	m->src_inc = SIM_INCARNATION + row->node;
	m->node = (ramp_node_t)sim_between(&w->rng, 1, w->params.voters);
	m->node_inc = SIM_INCARNATION + m->node;
	m->epoch = row->epoch;
	m->k.source_id = sim_random(&w->rng) | 1;
	m->k.ticket = sim_random(&w->rng) | 1;
	sim_client_name(c->index, c->next_name++, m->new_name, sizeof(m->new_name));
}

static void wild_attempt(struct sim_world *w, struct sim_client *c, enum meta_command_type type,
			 const struct sim_row *row)
{
	sim_client_command(w, c, type, row);
	c->command.k = row->k;
	c->command.epoch = row->k_epoch;
	if (type == META_ABORT) {
		c->command.proof = (enum meta_proof)sim_between(&w->rng, PROOF_NONE, PROOF_OVER);
		c->command.proof_node = row->node;
		c->command.proof_inc = SIM_INCARNATION + row->node;
	}
}

void sim_wild_begin(struct sim_world *w, struct sim_client *c)
{
	uint64_t what = sim_between(&w->rng, 0, 99);
	const struct sim_row *row;

	if (c->row == SIM_NO_ROW || what < 15) {
		wild_create(w, c);
		sim_client_ask(w, c);
		return;
	}
	row = &c->rows[c->row];
	if (what < 40) {
		wild_prepare(w, c, row);
	} else if (what < 55) {
		wild_attempt(w, c, META_TAKEN, row);
	} else if (what < 67) {
		wild_attempt(w, c, META_SETTLED, row);
	} else if (what < 77) {
		wild_attempt(w, c, META_ABORT, row);
	} else if (what == 77) {
		sim_client_command(w, c, META_LEVEL_UP, NULL);
		c->command.value = META_LEVEL_KNOWN;
	} else if (what == 78) {
		/* Refused below that level; then a few extents, or many. */
		sim_client_command(w, c, META_SET, NULL);
		c->command.setting = META_ARENA_USER_MAX;
		c->command.value = sim_random(&w->rng) % (UINT64_C(1) << 36);
	} else if (what < 87) {
		/* Also of an unlinked segment: that makes its row again. */
		sim_client_command(w, c, META_EXTENT, row);
		c->command.map_len = sim_random(&w->rng) % (UINT64_C(1) << 32);
		c->command.epoch = row->epoch;
		c->command.node_inc = SIM_INCARNATION + row->node;
	} else if (what < 90) {
		sim_client_command(w, c, META_UNEXTENT, row);
		c->command.epoch = row->epoch;
		c->command.value = row->extent_addr;
	} else if (what < 94) {
		sim_client_command(w, c, META_UNLINK, row);
	} else {
		sim_client_command(w, c, META_FREED, row);
	}
	sim_client_ask(w, c);
}

void sim_wild_answer(struct sim_client *c, const struct meta_reply *reply)
{
	struct sim_row *row = &c->rows[c->row];

	if (reply->result)
		return;
	if (c->command.type == META_CREATE)
		row->id = reply->id;
	if (reply->epoch)
		row->epoch = reply->epoch;
	if (reply->extent_len)
		row->extent_addr = reply->extent_addr;
	if (c->command.type == META_PREPARE) {
		row->k = c->command.k;
		row->k_epoch = reply->epoch;
	}
	if (c->command.type == META_FREED)
		row->id = 0;
}
