/*
 * The double of meta.h: one truth in shared memory, every node with a copy of its own that may be
 * behind. The commands of a migration change it as drawn in meta/fsm.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "transfer_world.h"

struct proposal {
	struct proposal *next;
	struct meta_command command;
	bool sync;
	meta_done *done;
	void *arg;
};

struct meta {
	struct meta_config config;
	ramp_node_t self;
	bool copy; /* meta_open_copy: it proposes nothing, and hears of nothing */
	pthread_t thread;
	atomic_bool stop;
	pthread_mutex_t lock; /* protects what follows */
	struct proposal *first, **last;
	struct segment_row rows[ROWS];
	bool row_used[ROWS];
	uint64_t row_version[ROWS];
	struct node_row nodes[NODES + 1];
	uint64_t nodes_version, version;
	uint64_t unique;
};

/* ---- the state machine: world->lock is held -------------------------------------------------- */

static int find(ramp_segment_t id)
{
	for (int i = 0; i < ROWS; i++)
		if (world->row_used[i] && world->rows[i].id == id)
			return i;
	return -1;
}

static void changed(int i)
{
	world->row_version[i] = ++world->version;
}

static bool current(ramp_node_t node, ramp_incarnation_t incarnation)
{
	return world->nodes[node].incarnation == incarnation &&
	       world->nodes[node].fenced != incarnation;
}

static bool name_taken(ramp_node_t node, const char *name, ramp_segment_t but)
{
	for (int i = 0; i < ROWS; i++) {
		const struct segment_row *row = &world->rows[i];

		if (!world->row_used[i] || row->id == but || row->unlinked)
			continue;
		if (row->node == node && strcmp(row->name, name) == 0)
			return true;
		if (row->phase == SEGMENT_MOVING && row->dst == node &&
		    strcmp(row->dst_name, name) == 0)
			return true;
	}
	return false;
}

static int prepare(struct segment_row *row, const struct meta_command *c)
{
	if (row->phase == SEGMENT_MOVING)
		return -EBUSY;
	if (row->phase != SEGMENT_STABLE || row->epoch != c->epoch || row->node != c->src ||
	    row->node_inc != c->src_inc)
		return -ESTALE;
	if (!current(c->node, c->node_inc) || !current(c->src, c->src_inc))
		return -EHOSTDOWN;
	if (name_taken(c->node, c->new_name, row->id))
		return -EEXIST;
	row->phase = SEGMENT_MOVING;
	row->epoch++;
	row->dst = c->node;
	row->dst_inc = c->node_inc;
	row->k = c->k;
	row->k_epoch = row->epoch;
	memcpy(row->dst_name, c->new_name, sizeof(row->dst_name));
	return 0;
}

static bool in_k(const struct segment_row *row, const struct meta_command *c)
{
	return ramp_attempt_equal(row->k, c->k) && row->k_epoch == c->epoch;
}

static int taken(struct segment_row *row, const struct meta_command *c)
{
	const struct local_program *program;

	if (row->phase != SEGMENT_MOVING || !in_k(row, c))
		return -ESTALE;
	program = &world->programs[row->dst][row - world->rows];
	world->taken_blind += program->mapped && !program->access;
	row->phase = SEGMENT_PULLING;
	row->epoch++;
	row->src = row->node;
	row->src_inc = row->node_inc;
	row->node = row->dst;
	row->node_inc = row->dst_inc;
	memcpy(row->name, row->dst_name, sizeof(row->name));
	return 0;
}

static int settled(struct segment_row *row, const struct meta_command *c)
{
	if (row->phase != SEGMENT_PULLING || !in_k(row, c))
		return -ESTALE;
	row->phase = SEGMENT_STABLE;
	row->epoch++;
	return 0;
}

static int aborted(struct segment_row *row, const struct meta_command *c)
{
	bool pulling = row->phase == SEGMENT_PULLING;
	ramp_node_t dst = pulling ? row->node : row->dst;
	ramp_incarnation_t dst_inc = pulling ? row->node_inc : row->dst_inc;
	bool proof = c->proof == PROOF_OVER && c->proof_node == dst && c->proof_inc == dst_inc &&
		     !current(dst, dst_inc);

	if ((row->phase != SEGMENT_MOVING && !pulling) || !in_k(row, c))
		return -ESTALE;
	if ((pulling || c->proof == PROOF_OVER) && !proof)
		return -EPERM;
	if (pulling) {
		row->node = row->src;
		row->node_inc = row->src_inc;
	}
	row->phase = SEGMENT_STABLE;
	row->epoch++;
	return 0;
}

static int node_up(const struct meta_command *c)
{
	struct node_row *node = &world->nodes[c->node];

	if (node->fenced == c->node_inc)
		return -EPERM;
	node->incarnation = c->node_inc;
	node->capacity = c->capacity; /* else its node would propose NODE_UP again and again */
	world->nodes_version = ++world->version;
	return 0;
}

/* Removes the row when it is unlinked and settled or reverted: it has no extent. */
static int step(const struct meta_command *c, int i)
{
	struct segment_row *row = &world->rows[i];
	int rc = c->type == META_PREPARE   ? prepare(row, c)
		 : c->type == META_TAKEN   ? taken(row, c)
		 : c->type == META_SETTLED ? settled(row, c)
		 : c->type == META_ABORT   ? aborted(row, c)
					   : -EINVAL;

	if (rc)
		return rc;
	if (row->unlinked && row->phase == SEGMENT_STABLE)
		world->row_used[i] = false;
	changed(i);
	return 0;
}

static void apply(const struct meta_command *c, struct meta_reply *reply)
{
	int i = find(c->id);

	if (c->type == META_NODE_UP)
		reply->result = node_up(c);
	else if (i < 0)
		reply->result = -ESTALE;
	else
		reply->result = step(c, i);
	reply->id = c->id;
	reply->epoch = i < 0 ? 0 : world->rows[i].epoch;
}

/* ---- a node's copy --------------------------------------------------------------------------- */

/* Copies newer rows; writes the ids that changed to `ids`, 0 for nodes. meta->lock is not held. */
static int copy_tables(struct meta *meta, ramp_segment_t ids[ROWS + 1])
{
	int n = 0;

	world_lock();
	pthread_mutex_lock(&meta->lock);
	for (int i = 0; i < ROWS && meta->version != world->version; i++) {
		if (meta->row_version[i] == world->row_version[i])
			continue;
		meta->row_version[i] = world->row_version[i];
		meta->rows[i] = world->rows[i];
		meta->row_used[i] = world->row_used[i];
		ids[n++] = meta->rows[i].id;
	}
	if (meta->nodes_version != world->nodes_version) {
		meta->nodes_version = world->nodes_version;
		memcpy(meta->nodes, world->nodes, sizeof(meta->nodes));
		ids[n++] = 0;
	}
	meta->version = world->version;
	pthread_mutex_unlock(&meta->lock);
	world_unlock();
	return n;
}

static void refresh(struct meta *meta)
{
	ramp_segment_t ids[ROWS + 1];
	int n = copy_tables(meta, ids);

	for (int i = 0; i < n; i++)
		meta->config.changed(meta->config.arg, ids[i], false);
}

static void carry_out(struct meta *meta, struct proposal *p)
{
	struct meta_reply reply = {0};
	unsigned lose = atomic_load(&world->lose_answers);

	if (meta->copy) {
		reply.result = -EROFS;
		p->done(p->arg, &reply);
		free(p);
		return;
	}
	if (!p->sync && atomic_load(&world->quorum) &&
	    fault_hit(POINT(AT_PROPOSE, p->command.type)) == DO_DELAY)
		for (int ms = 0; ms < REST_MS && atomic_load(&world->quorum); ms++)
			usleep(1000); /* until the quorum is lost */
	if (!atomic_load(&world->quorum)) {
		reply.result = p->sync ? -ETIMEDOUT : -EROFS;
	} else if (!p->sync) {
		world_lock();
		apply(&p->command, &reply);
		world_unlock();
		if (fault_hit(POINT(AFTER_PROPOSE, p->command.type)) == DO_DELAY)
			usleep(300000); /* the other nodes know it first */
		if (lose && p->command.type != META_NODE_UP) {
			atomic_store(&world->lose_answers, lose - 1);
			reply.result = -ETIMEDOUT;
		}
	}
	if (reply.result != -EROFS && reply.result != -ETIMEDOUT)
		refresh(meta); /* done runs when our own tables hold the result */
	p->done(p->arg, &reply);
	free(p);
}

static struct proposal *next(struct meta *meta)
{
	struct proposal *p;

	pthread_mutex_lock(&meta->lock);
	p = meta->first;
	if (p) {
		meta->first = p->next;
		if (!meta->first)
			meta->last = &meta->first;
	}
	pthread_mutex_unlock(&meta->lock);
	return p;
}

static void *turn(void *arg)
{
	struct meta *meta = arg;
	unsigned waited = 0;

	while (!atomic_load(&meta->stop)) {
		struct proposal *p = next(meta);

		if (p) {
			carry_out(meta, p);
			continue;
		}
		usleep(200);
		waited += 200;
		if (waited < 1000 * atomic_load(&world->behind_ms[meta->self]))
			continue;
		waited = 0;
		if (!meta->copy)
			refresh(meta);
	}
	return NULL;
}

struct meta *double_meta_open(const struct meta_config *config)
{
	ramp_segment_t ids[ROWS + 1];
	struct meta *meta = calloc(1, sizeof(*meta));

	meta->config = *config;
	meta->self = world_self();
	meta->copy = atomic_load(&world->by_copy[meta->self]);
	meta->last = &meta->first;
	meta->unique = 1;
	pthread_mutex_init(&meta->lock, NULL);
	copy_tables(meta, ids);
	pthread_create(&meta->thread, NULL, turn, meta);
	return meta;
}

void meta_close(struct meta *meta)
{
	struct meta_reply reply = {.result = -ESHUTDOWN};
	struct proposal *p;

	atomic_store(&meta->stop, true);
	pthread_join(meta->thread, NULL);
	while ((p = next(meta))) {
		p->done(p->arg, &reply);
		free(p);
	}
	free(meta);
}

/* ---- meta.h ---------------------------------------------------------------------------------- */

const char *meta_why_copy(struct meta *meta)
{
	return meta->copy ? "a test" : NULL;
}

static void enqueue(struct meta *meta, const struct meta_command *command, meta_done *done,
		    void *arg)
{
	struct proposal *p = calloc(1, sizeof(*p));

	p->sync = !command;
	if (command)
		p->command = *command;
	p->done = done;
	p->arg = arg;
	pthread_mutex_lock(&meta->lock);
	*meta->last = p;
	meta->last = &p->next;
	pthread_mutex_unlock(&meta->lock);
}

void meta_propose(struct meta *meta, const struct meta_command *command, meta_done *done, void *arg)
{
	enqueue(meta, command, done, arg);
}

void meta_sync(struct meta *meta, meta_done *done, void *arg)
{
	enqueue(meta, NULL, done, arg);
}

struct meta_command_id meta_own_command(struct meta *meta)
{
	struct meta_command_id cid = {.client = meta->self};

	pthread_mutex_lock(&meta->lock);
	cid.unique = meta->unique++;
	pthread_mutex_unlock(&meta->lock);
	return cid;
}

ramp_node_t meta_self(struct meta *meta)
{
	return meta->self;
}

uint64_t meta_instance(struct meta *meta)
{
	return 1000 + meta->self;
}

bool meta_has_quorum(struct meta *meta)
{
	return atomic_load(&world->quorum) && !atomic_load(&world->no_leader[meta->self]);
}

int meta_segment(struct meta *meta, ramp_segment_t id, struct segment_row *row)
{
	int rc = -ENOENT;

	pthread_mutex_lock(&meta->lock);
	for (int i = 0; i < ROWS; i++) {
		if (meta->row_used[i] && meta->rows[i].id == id) {
			*row = meta->rows[i];
			rc = 0;
		}
	}
	pthread_mutex_unlock(&meta->lock);
	return rc;
}

bool meta_knows(struct meta *meta, ramp_segment_t id)
{
	(void)meta;
	(void)id;
	return true;
}

void meta_overrule_address(struct meta *meta, struct node_row *row)
{
	(void)meta;
	(void)row;
}

int meta_lookup(struct meta *meta, ramp_node_t node, const char *name, struct segment_row *row)
{
	int rc = -ENOENT;

	pthread_mutex_lock(&meta->lock);
	for (int i = 0; i < ROWS; i++) {
		if (meta->row_used[i] && meta->rows[i].node == node &&
		    strcmp(meta->rows[i].name, name) == 0) {
			*row = meta->rows[i];
			rc = 0;
		}
	}
	pthread_mutex_unlock(&meta->lock);
	return rc;
}

int meta_each_segment(struct meta *meta, ramp_node_t node, ramp_segment_t after,
		      int (*fn)(void *arg, const struct segment_row *row), void *arg)
{
	struct segment_row rows[ROWS];
	int n = 0, rc = 0;

	(void)after;
	while (atomic_load(&world->hold_scan))
		usleep(1000);
	pthread_mutex_lock(&meta->lock);
	for (int i = 0; i < ROWS; i++)
		if (meta->row_used[i] && (!node || meta->rows[i].node == node))
			rows[n++] = meta->rows[i];
	pthread_mutex_unlock(&meta->lock);
	for (int i = 0; i < n && !rc; i++)
		rc = fn(arg, &rows[i]);
	return rc;
}

int meta_node(struct meta *meta, ramp_node_t node, struct node_row *row)
{
	if (node == 0 || node > NODES)
		return -ENOENT;
	pthread_mutex_lock(&meta->lock);
	*row = meta->nodes[node];
	pthread_mutex_unlock(&meta->lock);
	return 0;
}

int meta_each_node(struct meta *meta, int (*fn)(void *arg, const struct node_row *row), void *arg)
{
	struct node_row row;
	int rc = 0;

	for (ramp_node_t n = 1; n <= NODES && rc == 0; n++)
		rc = meta_node(meta, n, &row) ? 0 : fn(arg, &row);
	return rc;
}

int meta_get_settings(struct meta *meta, struct meta_settings *settings)
{
	(void)meta;
	*settings = (struct meta_settings){.level = META_LEVEL_KNOWN};
	return 0;
}

int meta_node_by_name(struct meta *meta, const char *name, struct node_row *row)
{
	for (ramp_node_t n = 1; n <= NODES; n++)
		if (meta_node(meta, n, row) == 0 && strcmp(row->name, name) == 0)
			return 0;
	return -ENOENT;
}
