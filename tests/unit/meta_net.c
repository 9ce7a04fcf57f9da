#include "meta_net.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct meta_net net = {.lock = PTHREAD_RWLOCK_INITIALIZER};

/* ---- the network --------------------------------------------------------------------------- */

void net_send(void *arg, ramp_node_t to, const void *bytes, size_t len)
{
	bool (*passes)(ramp_node_t from, ramp_node_t to, const uint8_t *bytes, size_t len);
	struct net_node *from = arg;

	ck_assert_uint_ne(to, from->id);
	/* A writer holds the lock only while it closes a node; that node's thread may be in
	   here. */
	if (pthread_rwlock_tryrdlock(&net.lock) != 0)
		return;
	passes = atomic_load(&net.passes);
	if (to <= NODES_MAX && net.node[to].meta && !from->cut && !net.node[to].cut &&
	    (!passes || passes(from->id, to, bytes, len)))
		meta_receive(net.node[to].meta, from->id, from->instance, bytes, len);
	pthread_rwlock_unlock(&net.lock);
}

static void net_changed(void *arg, ramp_segment_t id, bool attributes)
{
	struct net_node *n = arg;

	(void)id;
	atomic_fetch_add(&n->changes, 1);
	atomic_fetch_add(&n->attributes, attributes);
}

static void net_fatal(void *arg, const char *text)
{
	(void)arg;
	ck_abort_msg("%s", text);
}

static void set_meta(struct net_node *n, struct meta *meta)
{
	pthread_rwlock_wrlock(&net.lock);
	n->meta = meta;
	pthread_rwlock_unlock(&net.lock);
}

void net_cut(ramp_node_t id, bool on)
{
	pthread_rwlock_wrlock(&net.lock);
	net.node[id].cut = on;
	pthread_rwlock_unlock(&net.lock);
}

void net_start(ramp_node_t id)
{
	struct net_node *n = &net.node[id];
	struct meta_config config = {.journal_path = n->path,
				     .heartbeat_ms = 20,
				     .election_ms = net.election_ms,
				     .send = net_send,
				     .changed = net_changed,
				     .heard_of = net.heard_of,
				     .fatal = net.fatal ? net.fatal : net_fatal,
				     .arg = n};
	struct ramp_err err = {0};
	struct meta *meta;

	ck_assert_msg(meta_open(&config, &meta, &err) == 0, "%s", err.text);
	set_meta(n, meta);
}

void net_stop(ramp_node_t id)
{
	struct meta *meta = net.node[id].meta;

	set_meta(&net.node[id], NULL);
	meta_close(meta);
}

struct meta *meta_of(ramp_node_t id)
{
	return net.node[id].meta;
}

/* ---- waiting ------------------------------------------------------------------------------- */

double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

ramp_node_t leader_among(ramp_node_t first, ramp_node_t last)
{
	ramp_node_t id;

	for (id = first; id <= last; id++)
		if (meta_of(id) && !net.node[id].cut && meta_leader(meta_of(id)) == id)
			return id;
	return 0;
}

ramp_node_t wait_leader(ramp_node_t first, ramp_node_t last)
{
	WAIT_FOR(leader_among(first, last) != 0);
	return leader_among(first, last);
}

ramp_node_t another(ramp_node_t than)
{
	return than == 1 ? 2 : 1;
}

/* ---- a cluster ----------------------------------------------------------------------------- */

void net_format(ramp_node_t id, size_t n_nodes, ramp_node_t voters, uint64_t instance)
{
	struct node_row rows[NODES_MAX] = {0};
	struct meta_founding f = {.instance = instance,
				  .self = id,
				  .arena_addr = UINT64_C(0x200000000000),
				  .arena_len = UINT64_C(1) << 40,
				  .nodes = rows,
				  .n_nodes = n_nodes};
	struct ramp_err err = {0};
	size_t i;

	memset(f.cluster_id, 7, sizeof(f.cluster_id));
	for (i = 0; i < n_nodes; i++) {
		rows[i].node = (ramp_node_t)i + 1;
		snprintf(rows[i].name, sizeof(rows[i].name), "%c", 'a' + (int)i);
		snprintf(rows[i].address, sizeof(rows[i].address), "host%zu:1", i + 1);
		rows[i].role = i < voters ? NODE_VOTER : NODE_STANDBY;
	}
	net.node[id].instance = instance;
	unlink(net.node[id].path);
	ck_assert_msg(meta_format(net.node[id].path, &f, &err) == 0, "%s", err.text);
}

void net_setup(void)
{
	ramp_node_t id;

	snprintf(net.dir, sizeof(net.dir), "%s/test_meta.XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(net.dir));
	net.election_ms = 150;
	net.fatal = NULL;
	net.passes = NULL;
	for (id = 1; id <= NODES_MAX; id++) {
		net.node[id].id = id;
		net.node[id].cut = false;
		snprintf(net.node[id].path, sizeof(net.node[id].path), "%s/%u.db", net.dir, id);
	}
}

void net_teardown(void)
{
	char command[256];
	ramp_node_t id;

	for (id = 1; id <= NODES_MAX; id++)
		if (net.node[id].meta)
			net_stop(id);
	snprintf(command, sizeof(command), "rm -rf %s", net.dir);
	ck_assert_int_eq(system(command), 0);
}

void net_found(size_t nodes)
{
	ramp_node_t id;

	for (id = 1; id <= nodes; id++) {
		net_format(id, nodes, (ramp_node_t)nodes, 100 + id);
		net_start(id);
	}
	wait_leader(1, (ramp_node_t)nodes);
}

/* ---- commands ------------------------------------------------------------------------------ */

struct meta_command command(ramp_node_t at, enum meta_command_type type)
{
	struct meta_command c = {.type = type, .cid = meta_own_command(meta_of(at))};

	c.now.sec = 1000;
	return c;
}

int node_up(ramp_node_t at, ramp_node_t node, ramp_incarnation_t inc, uint64_t instance)
{
	struct meta_command c = command(at, META_NODE_UP);
	struct meta_reply reply;

	c.node = node;
	c.node_inc = inc;
	c.instance = instance;
	c.capacity = 1 << 30;
	return meta_propose_wait(meta_of(at), &c, &reply);
}

struct meta_command create_command(ramp_node_t at, ramp_node_t node, const char *name)
{
	struct meta_command c = command(at, META_CREATE);

	c.node = node;
	c.attr.mode = 0644;
	snprintf(c.name, sizeof(c.name), "%s", name);
	return c;
}

int create(ramp_node_t at, ramp_node_t node, const char *name, ramp_segment_t *id)
{
	struct meta_command c = create_command(at, node, name);
	struct meta_reply reply = {0};
	int rc = meta_propose_wait(meta_of(at), &c, &reply);

	if (id)
		*id = reply.id;
	return rc;
}

void all_up(size_t nodes)
{
	ramp_node_t id;

	for (id = 1; id <= nodes; id++)
		ck_assert_int_eq(node_up(id, id, 10 + id, 100 + id), 0);
}

void one_done(void *arg, const struct meta_reply *reply)
{
	struct wait *w = arg;

	if (reply->result < 0)
		atomic_fetch_add(&w->failed, 1);
	atomic_fetch_sub(&w->left, 1);
}

/* Changes a segment's mode n times from `at`, many at once. */
void churn(ramp_node_t at, ramp_segment_t id, int n)
{
	struct wait w = {.left = 0};
	int i;

	for (i = 0; i < n; i++) {
		struct meta_command c = command(at, META_SETATTR);

		WAIT_FOR(atomic_load(&w.left) < 500);
		c.id = id;
		c.flags = META_SET_MODE;
		c.attr.mode = 0600u + (unsigned int)(i & 7);
		atomic_fetch_add(&w.left, 1);
		meta_propose(meta_of(at), &c, one_done, &w);
	}
	WAIT_FOR(atomic_load(&w.left) == 0);
	ck_assert_int_eq(atomic_load(&w.failed), 0);
}

int sync_done_with(ramp_node_t at)
{
	struct wait w = {.left = 1};

	meta_sync(meta_of(at), one_done, &w);
	WAIT_FOR(atomic_load(&w.left) == 0);
	return atomic_load(&w.failed);
}

uint64_t applied(ramp_node_t id)
{
	struct meta_status s;

	meta_get_status(meta_of(id), &s);
	return s.applied;
}
