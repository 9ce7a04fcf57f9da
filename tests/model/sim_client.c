/*
 * The simulator's clients: the acts of a user of the metadata, and what that user may rely on then.
 *
 * A client does one thing at a time: it makes a command, gives it to some node (which forwards it
 * to the leader that it knows), and has its answer when that node's own tables hold the result. A
 * command without an answer is given again, under the same id, to another node. From the answer on
 * the row is the client's: reads that begin later must find it, and so must the check at the end.
 *
 * The admin is a client that adds, promotes and removes members, one command at a time.
 */
#include "meta/journal_segments.h"
#include "sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CLIENT_ID  UINT64_C(100)
#define ADMIN_ID   UINT64_C(500)
#define RETRY_US   (900 * SIM_MS)
#define SIM_NO_ROW UINT32_MAX
#define WINDOW_MAX (META_WINDOW / 2)

void sim_client_name(uint32_t client, uint32_t name, char *out, size_t cap)
{
	snprintf(out, cap, "c%u-%u", client, name);
}

/* ---- origins: a node's numbers for its proposals --------------------------------------------- */

static uint64_t origin_lowest(const struct sim_node *n)
{
	uint64_t lowest = n->origin_number;

	for (uint32_t i = 0; i < n->n_open; i++)
		if (n->open[i] < lowest)
			lowest = n->open[i];
	return lowest;
}

static void origin_close(struct sim_node *n, uint64_t number)
{
	for (uint32_t i = 0; i < n->n_open; i++)
		if (n->open[i] == number)
			n->open[i--] = n->open[--n->n_open];
}

static struct meta_origin origin_open(struct sim_world *w, struct sim_node *n)
{
	struct meta_origin origin = {0};

	if (!w->params.origins)
		return origin;
	n->origin_number++;
	if (n->n_open == WINDOW_MAX)
		origin_close(n, origin_lowest(n));
	n->open[n->n_open++] = n->origin_number;
	origin.node = n->id;
	origin.life = n->origin_life;
	origin.number = n->origin_number;
	origin.lowest = origin_lowest(n);
	return origin;
}

/* ---- asking ---------------------------------------------------------------------------------- */

static const struct raft *some_leader(struct sim_world *w)
{
	for (ramp_node_t id = 1; id < SIM_NODES; id++)
		if (sim_node_up(w, id) && replica_raft(w->nodes[id].replica)->state == RAFT_LEADER)
			return replica_raft(w->nodes[id].replica);
	return NULL;
}

/*
 * Returns the node that a client asks: any node that is up, also one that was removed and has not
 * heard of it, which can't answer. After SIM_QUIET only members: a client that must have its answer
 * by the deadline would otherwise meet only such a node about once in a hundred thousand times.
 */
static ramp_node_t some_node(struct sim_world *w)
{
	const struct raft *leader = w->now >= SIM_QUIET ? some_leader(w) : NULL;
	ramp_node_t up[SIM_NODES];
	uint32_t n = 0;

	for (ramp_node_t id = 1; id < SIM_NODES; id++)
		if (sim_node_up(w, id) && !w->nodes[id].fresh && !w->nodes[id].gone &&
		    (!leader || raft_conf_find(&leader->conf, id)))
			up[n++] = id;
	return n ? up[sim_between(&w->rng, 0, n - 1)] : 0;
}

static ramp_node_t leader_for(struct sim_world *w, ramp_node_t at)
{
	ramp_node_t leader = replica_raft(w->nodes[at].replica)->leader;

	return leader < SIM_NODES ? leader : 0;
}

static void client_later(struct sim_world *w, const struct sim_client *c, uint64_t us)
{
	bool admin = c == &w->admin;

	sim_schedule(w, us, admin ? SIM_ADMIN : SIM_CLIENT, admin ? 0 : c->index, NULL);
}

static void client_rest(struct sim_world *w, struct sim_client *c, uint64_t us)
{
	c->doing = SIM_RESTING;
	c->at = 0;
	c->done++;
	c->retry_at = w->now + us;
	client_later(w, c, us);
}

/* Gives the command to a node; at most one of its numbers is open for it. */
void sim_client_ask(struct sim_world *w, struct sim_client *c)
{
	uint8_t bytes[META_COMMAND_BYTES];
	struct meta_origin origin;
	struct sim_parcel *p;
	struct sim_node *n;
	ramp_node_t leader;
	size_t len;

	c->retry_at = w->now + RETRY_US + sim_between(&w->rng, 0, RETRY_US);
	client_later(w, c, c->retry_at - w->now);
	if (c->at && sim_node_up(w, c->at) && w->nodes[c->at].life == c->at_life)
		origin_close(&w->nodes[c->at], c->number);
	c->at = some_node(w);
	if (!c->at)
		return;
	n = &w->nodes[c->at];
	c->at_life = n->life;
	origin = origin_open(w, n);
	c->number = origin.number;
	leader = leader_for(w, c->at);
	sim_trace(w, "client %u: %s %llu by node %u to leader %u, origin %u/%llu/%llu/%llu",
		  c->index, command_name(c->command.type),
		  (unsigned long long)c->command.cid.unique, c->at, leader, origin.node,
		  (unsigned long long)origin.life, (unsigned long long)origin.number,
		  (unsigned long long)origin.lowest);
	if (!leader)
		return;
	len = command_encode(&origin, &c->command, bytes, sizeof(bytes));
	if (!len)
		sim_fail(w, "a command can't be encoded");
	p = sim_parcel_make(SIM_PROPOSE, c->at, leader, bytes, len);
	if (leader == c->at)
		sim_node_deliver(w, p);
	else
		sim_send(w, p);
}

void sim_client_command(struct sim_world *w, struct sim_client *c, enum meta_command_type type,
			const struct sim_row *row)
{
	struct meta_command *m = &c->command;
	uint64_t unique = m->cid.unique;

	memset(m, 0, sizeof(*m));
	m->cid.client = c == &w->admin ? ADMIN_ID : CLIENT_ID + c->index;
	m->cid.unique = unique + 1;
	m->type = type;
	m->now.sec = (int64_t)(w->now / SIM_S);
	if (row) {
		m->id = row->id;
		m->node = row->node;
		sim_client_name(c->index, row->name, m->name, sizeof(m->name));
	}
	c->doing = SIM_WRITING;
	w->counts.commands++;
}

/* ---- a client's acts ------------------------------------------------------------------------- */

uint32_t sim_some_row(struct sim_world *w, const struct sim_client *c)
{
	for (int tries = 0; c->n_rows && tries < 4; tries++) {
		uint32_t i = (uint32_t)sim_between(&w->rng, 0, c->n_rows - 1);

		if (c->rows[i].id)
			return i;
	}
	return SIM_NO_ROW;
}

static void client_create(struct sim_world *w, struct sim_client *c)
{
	struct sim_row row = {.node = (ramp_node_t)sim_between(&w->rng, 1, w->params.spread),
			      .name = c->next_name++};

	if (c->n_rows == SIM_ROWS)
		sim_fail(w, "client %u made too many segments", c->index);
	c->row = c->n_rows;
	c->rows[c->n_rows++] = row;
	sim_client_command(w, c, META_CREATE, &row);
	c->command.attr.mode = 0644;
	sim_client_ask(w, c);
}

static void client_read(struct sim_world *w, struct sim_client *c)
{
	struct sim_parcel *p;
	ramp_node_t at = some_node(w), leader = 0;

	if (at)
		leader = leader_for(w, at);
	/* Also nodes that only believe that they lead. */
	for (ramp_node_t id = 1; id < SIM_NODES; id++)
		if (sim_node_up(w, id) &&
		    replica_raft(w->nodes[id].replica)->state == RAFT_LEADER &&
		    sim_chance(&w->rng, 400))
			leader = id;
	if (!leader) {
		client_rest(w, c, 50 * SIM_MS);
		return;
	}
	c->doing = SIM_READING;
	c->at = at;
	c->at_life = w->nodes[at].life;
	c->row = w->params.wild && c->index == SIM_WILD ? SIM_NO_ROW : sim_some_row(w, c);
	c->read_floor = w->applied;
	c->read_ctx = ((uint64_t)at << 48) | ((uint64_t)c->index << 40) | (c->done & 0xffffffff);
	c->retry_at = w->now + RETRY_US;
	client_later(w, c, RETRY_US);
	p = sim_parcel_make(SIM_READ, at, leader, NULL, 0);
	p->ctx = c->read_ctx;
	w->counts.reads++;
	sim_trace(w, "client %u: reads at node %u by leader %u, floor %llu", c->index, at, leader,
		  (unsigned long long)c->read_floor);
	sim_send(w, p);
}

static void client_begin(struct sim_world *w, struct sim_client *c)
{
	uint64_t what = sim_between(&w->rng, 0, 99);
	uint32_t row = sim_some_row(w, c);

	if (what >= 75) {
		client_read(w, c);
		return;
	}
	c->row = row;
	if (w->params.wild && c->index == SIM_WILD) {
		sim_wild_begin(w, c);
		return;
	}
	if (row == SIM_NO_ROW || what < 45) {
		client_create(w, c);
		return;
	}
	if (what < 57) {
		sim_client_command(w, c, META_UNLINK, &c->rows[row]);
	} else if (what < 68) {
		sim_client_command(w, c, META_RENAME, &c->rows[row]);
		sim_client_name(c->index, c->next_name++, c->command.new_name,
				sizeof(c->command.new_name));
	} else {
		sim_client_command(w, c, META_SETATTR, &c->rows[row]);
		c->command.flags = META_SET_SIZE;
		c->command.attr.size = sim_random(&w->rng) % 1000000;
	}
	sim_client_ask(w, c);
}

static uint64_t client_think(struct sim_world *w)
{
	return sim_between(&w->rng, 1, w->params.think_ms) * SIM_MS;
}

void sim_client_wake(struct sim_world *w, uint32_t index)
{
	struct sim_client *c = &w->clients[index];

	if (w->now < c->retry_at)
		return; /* the timer of a finished act */
	if (c->doing == SIM_RESTING) {
		if (w->now < SIM_QUIET)
			client_begin(w, c);
		return;
	}
	if (c->doing == SIM_READING) {
		client_rest(w, c, client_think(w)); /* no node answered */
		return;
	}
	w->counts.retries++;
	sim_client_ask(w, c);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void answer_create(struct sim_world *w, struct sim_client *c, const struct meta_reply *reply,
			  uint64_t index)
{
	struct sim_row *row = &c->rows[c->row];

	if (reply->result == 0) {
		if (reply->id < RAMP_SEGMENT_ID_MIN)
			sim_fail(w, "a new segment has id %llu", (unsigned long long)reply->id);
		row->id = reply->id;
		row->index = index;
	} else if (reply->result != -ENOENT && reply->result != -EHOSTDOWN) {
		sim_fail(w, "client %u: CREATE of a new name gave %d", c->index, reply->result);
	}
}

static void client_answer(struct sim_world *w, struct sim_client *c, const struct meta_reply *reply,
			  uint64_t index)
{
	struct sim_row *row = c->row == SIM_NO_ROW ? NULL : &c->rows[c->row];

	sim_trace(w, "client %u: answer %d to %llu at index %llu", c->index, reply->result,
		  (unsigned long long)c->command.cid.unique, (unsigned long long)index);
	if (w->params.wild && c->index == SIM_WILD) {
		sim_wild_answer(c, reply);
	} else if (c->command.type == META_CREATE) {
		answer_create(w, c, reply, index);
	} else if (reply->result) {
		sim_fail(w, "client %u: %s of its own segment %llu gave %d", c->index,
			 command_name(c->command.type), (unsigned long long)row->id, reply->result);
	} else if (c->command.type == META_UNLINK) {
		row->id = 0;
	} else if (c->command.type == META_RENAME) {
		row->name = c->next_name - 1;
		row->index = index;
	}
	client_rest(w, c, client_think(w));
}

/* A read may be made at this node once `index` is applied: then its row must be there. */
void sim_client_read(struct sim_world *w, struct sim_node *n, const struct sim_parcel *p)
{
	struct sim_client *c = &w->clients[(p->ctx >> 40) & 0xff];
	struct journal *j = replica_journal(n->replica);
	struct journal_state state;
	char name[RAMP_NAME_MAX + 1];
	const struct sim_row *row;
	ramp_segment_t id;
	bool reserved;
	int rc;

	if (c->doing != SIM_READING || c->read_ctx != p->ctx || n->life != c->at_life)
		return;
	if (p->index < c->read_floor)
		sim_fail(w, "stale read: node %u said index %llu, %llu was acknowledged before",
			 p->from, (unsigned long long)p->index, (unsigned long long)c->read_floor);
	journal_state(j, &state);
	if (n->phase != SIM_IDLE || state.applied < p->index) {
		struct sim_parcel *again = sim_parcel_make(p->type, p->from, p->to, NULL, 0);

		again->ctx = p->ctx;
		again->index = p->index;
		sim_schedule(w, SIM_MS, SIM_DELIVER, p->to, again);
		return;
	}
	if (c->row != SIM_NO_ROW) {
		row = &c->rows[c->row];
		sim_client_name(c->index, row->name, name, sizeof(name));
		rc = journal_get_name(j, row->node, name, &id, &reserved);
		if (rc || id != row->id || reserved)
			sim_fail(w, "node %u reads %s as %d (%llu), acknowledged as %llu", n->id,
				 name, rc, (unsigned long long)id, (unsigned long long)row->id);
	}
	client_rest(w, c, client_think(w));
}

/* ---- members --------------------------------------------------------------------------------- */

static ramp_node_t member_to(struct sim_world *w, const struct raft *r, bool remove)
{
	ramp_node_t choice = 0;
	uint32_t n = 0;

	for (uint32_t i = 0; i < r->conf.n; i++) {
		ramp_node_t id = r->conf.member[i].node;
		bool voter = r->conf.member[i].role == RAFT_VOTER;

		if (id >= SIM_NODES)
			sim_fail(w, "node %u is a member", id);
		if (remove && w->nodes[id].fresh)
			return id;
		if (remove ? id <= w->params.spread || id == r->opt.self
			   : voter || w->nodes[id].fresh)
			continue;
		if (remove && voter && raft_conf_voters(&r->conf) <= 3)
			continue;
		if (sim_between(&w->rng, 0, n++) == 0)
			choice = id;
	}
	return choice;
}

static bool admin_begin(struct sim_world *w, const struct raft *r)
{
	struct sim_client *c = &w->admin;
	uint64_t what = sim_between(&w->rng, 0, 99);
	ramp_node_t target;

	if (what < 35 && r->conf.n < 7 && w->admin_names < 4) {
		sim_client_command(w, c, META_MEMBER_ADD, NULL);
		snprintf(c->command.new_name, sizeof(c->command.new_name), "new%u",
			 w->admin_names++);
		snprintf(c->command.address, sizeof(c->command.address), "10.0.1.%u:7000",
			 w->admin_names);
		c->command.capacity = 1 << 30;
		return true;
	}
	target = member_to(w, r, what >= 70);
	if (!target)
		return false;
	sim_client_command(w, c, what >= 70 ? META_MEMBER_REMOVE : META_MEMBER_PROMOTE, NULL);
	c->command.node = target;
	return true;
}

/* Returns a node that is not announced yet; the admin announces each once. */
static bool admin_announce(struct sim_world *w)
{
	struct sim_client *c = &w->admin;

	for (ramp_node_t id = 1; id < SIM_NODES; id++) {
		struct sim_node *n = &w->nodes[id];

		if (!n->exists || n->announced || n->fresh)
			continue;
		n->announced = true;
		sim_client_command(w, c, META_NODE_UP, NULL);
		c->command.node = id;
		c->command.node_inc = SIM_INCARNATION + id;
		c->command.instance = SIM_INSTANCE + id;
		c->command.capacity = 1 << 30;
		snprintf(c->command.address, sizeof(c->command.address), "10.0.0.%u:7000", id);
		return true;
	}
	return false;
}

void sim_admin_wake(struct sim_world *w)
{
	struct sim_client *c = &w->admin;
	const struct raft *r = some_leader(w);

	if (w->now < c->retry_at)
		return; /* the timer of a finished act */
	if (c->doing == SIM_WRITING) {
		w->counts.retries++;
		sim_client_ask(w, c);
		return;
	}
	if (w->now >= SIM_FAULTS)
		return;
	if (admin_announce(w)) {
		sim_client_ask(w, c);
		return;
	}
	if (!w->params.members && !w->params.wipe)
		return;
	if (r && admin_begin(w, r))
		sim_client_ask(w, c);
	else
		client_rest(w, c, sim_between(&w->rng, 100 * SIM_MS, SIM_S));
}

static void admin_answer(struct sim_world *w, const struct meta_reply *reply)
{
	struct sim_client *c = &w->admin;

	sim_trace(w, "admin: %s %u gave %d node %u", command_name(c->command.type), c->command.node,
		  reply->result, reply->node);
	if (reply->result == 0) {
		w->counts.members++;
		if (c->command.type == META_MEMBER_ADD) {
			sim_node_make(w, reply->node, false);
			sim_schedule(w, sim_between(&w->rng, SIM_MS, SIM_S), SIM_START, reply->node,
				     NULL);
		}
	} else if (c->command.type == META_MEMBER_ADD && reply->result != -EBUSY) {
		sim_fail(w, "MEMBER_ADD gave %d", reply->result);
	}
	if (c->command.type == META_NODE_UP)
		client_rest(w, c, SIM_MS);
	else
		client_rest(w, c, sim_between(&w->rng, 100 * SIM_MS, 2 * SIM_S));
}

/* ---- results --------------------------------------------------------------------------------- */

/* Node n's tables hold a result: the answer to the client that asked n. */
void sim_client_result(struct sim_world *w, struct sim_node *n, uint64_t index,
		       const struct fsm_result *r)
{
	struct sim_client *c;

	if (!r->command)
		return;
	if (r->origin.node == n->id && r->origin.life == n->origin_life)
		origin_close(n, r->origin.number);
	c = r->cid.client == ADMIN_ID ? &w->admin : &w->clients[r->cid.client - CLIENT_ID];
	if (c->doing != SIM_WRITING || c->command.cid.unique != r->cid.unique || c->at != n->id ||
	    c->at_life != n->life)
		return;
	if (c == &w->admin)
		admin_answer(w, &r->reply);
	else
		client_answer(w, c, &r->reply, index);
}

void sim_clients_begin(struct sim_world *w)
{
	for (uint32_t i = 0; i < SIM_CLIENTS; i++) {
		w->clients[i].index = i;
		client_later(w, &w->clients[i], sim_between(&w->rng, 0, SIM_S));
	}
	w->admin.index = SIM_CLIENTS;
	client_later(w, &w->admin, sim_between(&w->rng, 0, SIM_S));
}

bool sim_clients_resting(const struct sim_world *w)
{
	for (uint32_t i = 0; i < SIM_CLIENTS; i++)
		if (w->clients[i].doing != SIM_RESTING)
			return false;
	return w->admin.doing == SIM_RESTING;
}
