/*
 * Nodes of metadata in one process, joined by a network of callbacks: one voter, three voters,
 * members that come and go.
 *
 * A node here is a journal in a scratch directory and a struct meta. `cut` says which nodes hear
 * nobody; a message to one that is closed is lost, as on a wire.
 */
#include <check.h>
#include <errno.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "meta.h"

#define NODES_MAX 6
#define MIB	  (UINT64_C(1) << 20)

struct node {
	ramp_node_t id;
	char path[200];
	struct meta *meta; /* protected by net.lock */
	bool cut;	   /* protected by net.lock */
	atomic_ulong changes;
};

static struct {
	pthread_rwlock_t lock;
	struct node node[NODES_MAX + 1];
	char dir[160];
} net = {.lock = PTHREAD_RWLOCK_INITIALIZER};

/* ---- the network ------------------------------------------------------------------------------
 */

static void net_send(void *arg, ramp_node_t to, const void *bytes, size_t len)
{
	struct node *from = arg;

	ck_assert_uint_ne(to, from->id);
	/* A writer holds the lock only while it closes a node whose thread may be in here. */
	if (pthread_rwlock_tryrdlock(&net.lock) != 0)
		return;
	if (to <= NODES_MAX && net.node[to].meta && !from->cut && !net.node[to].cut)
		meta_receive(net.node[to].meta, from->id, bytes, len);
	pthread_rwlock_unlock(&net.lock);
}

static void net_changed(void *arg, ramp_segment_t id)
{
	struct node *n = arg;

	(void)id;
	atomic_fetch_add(&n->changes, 1);
}

static void net_fatal(void *arg, const char *text)
{
	(void)arg;
	ck_abort_msg("%s", text);
}

static void set_meta(struct node *n, struct meta *meta)
{
	pthread_rwlock_wrlock(&net.lock);
	n->meta = meta;
	pthread_rwlock_unlock(&net.lock);
}

static void cut(ramp_node_t id, bool on)
{
	pthread_rwlock_wrlock(&net.lock);
	net.node[id].cut = on;
	pthread_rwlock_unlock(&net.lock);
}

static void start(ramp_node_t id)
{
	struct node *n = &net.node[id];
	struct meta_config config = {.journal_path = n->path,
				     .heartbeat_ms = 20,
				     .election_ms = 150,
				     .send = net_send,
				     .changed = net_changed,
				     .fatal = net_fatal,
				     .arg = n};
	struct ramp_err err = {0};
	struct meta *meta;

	ck_assert_msg(meta_open(&config, &meta, &err) == 0, "%s", err.text);
	set_meta(n, meta);
}

static void stop(ramp_node_t id)
{
	struct meta *meta = net.node[id].meta;

	set_meta(&net.node[id], NULL);
	meta_close(meta);
}

static struct meta *meta_of(ramp_node_t id)
{
	return net.node[id].meta;
}

/* ---- waiting ----------------------------------------------------------------------------------
 */

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void nap(void)
{
	usleep(2000);
}

#define WAIT_FOR(condition)                                                                        \
	do {                                                                                       \
		double until_ = seconds() + 20;                                                    \
		while (!(condition)) {                                                             \
			ck_assert_msg(seconds() < until_, "waited in vain for %s", #condition);    \
			nap();                                                                     \
		}                                                                                  \
	} while (0)

static ramp_node_t leader_among(ramp_node_t first, ramp_node_t last)
{
	ramp_node_t id;

	for (id = first; id <= last; id++)
		if (meta_of(id) && !net.node[id].cut && meta_leader(meta_of(id)) == id)
			return id;
	return 0;
}

static ramp_node_t wait_leader(ramp_node_t first, ramp_node_t last)
{
	WAIT_FOR(leader_among(first, last) != 0);
	return leader_among(first, last);
}

static ramp_node_t another(ramp_node_t than)
{
	return than == 1 ? 2 : 1;
}

/* ---- a cluster --------------------------------------------------------------------------------
 */

static void format(ramp_node_t id, size_t n_nodes, ramp_node_t voters, uint64_t instance)
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
	unlink(net.node[id].path);
	ck_assert_msg(meta_format(net.node[id].path, &f, &err) == 0, "%s", err.text);
}

static void setup(void)
{
	ramp_node_t id;

	snprintf(net.dir, sizeof(net.dir), "%s/test_meta.XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(net.dir));
	for (id = 1; id <= NODES_MAX; id++) {
		net.node[id].id = id;
		net.node[id].cut = false;
		snprintf(net.node[id].path, sizeof(net.node[id].path), "%s/%u.db", net.dir, id);
	}
}

static void teardown(void)
{
	char command[256];
	ramp_node_t id;

	for (id = 1; id <= NODES_MAX; id++)
		if (net.node[id].meta)
			stop(id);
	snprintf(command, sizeof(command), "rm -rf %s", net.dir);
	ck_assert_int_eq(system(command), 0);
}

static void found(size_t nodes)
{
	ramp_node_t id;

	for (id = 1; id <= nodes; id++) {
		format(id, nodes, (ramp_node_t)nodes, 100 + id);
		start(id);
	}
	wait_leader(1, (ramp_node_t)nodes);
}

/* ---- commands ---------------------------------------------------------------------------------
 */

static struct meta_command command(ramp_node_t at, enum meta_command_type type)
{
	struct meta_command c = {.type = type, .cid = meta_own_command(meta_of(at))};

	c.now.sec = 1000;
	return c;
}

static int node_up(ramp_node_t at, ramp_node_t node, ramp_incarnation_t inc, uint64_t instance)
{
	struct meta_command c = command(at, META_NODE_UP);
	struct meta_reply reply;

	c.node = node;
	c.node_inc = inc;
	c.instance = instance;
	c.capacity = 1 << 30;
	return meta_propose_wait(meta_of(at), &c, &reply);
}

static struct meta_command create_command(ramp_node_t at, ramp_node_t node, const char *name)
{
	struct meta_command c = command(at, META_CREATE);

	c.node = node;
	c.attr.mode = 0644;
	snprintf(c.name, sizeof(c.name), "%s", name);
	return c;
}

static int create(ramp_node_t at, ramp_node_t node, const char *name, ramp_segment_t *id)
{
	struct meta_command c = create_command(at, node, name);
	struct meta_reply reply = {0};
	int rc = meta_propose_wait(meta_of(at), &c, &reply);

	if (id)
		*id = reply.id;
	return rc;
}

static void all_up(size_t nodes)
{
	ramp_node_t id;

	for (id = 1; id <= nodes; id++)
		ck_assert_int_eq(node_up(id, id, 10 + id, 100 + id), 0);
}

struct wait {
	atomic_int left;
	atomic_int failed;
};

static void one_done(void *arg, const struct meta_reply *reply)
{
	struct wait *w = arg;

	if (reply->result < 0)
		atomic_fetch_add(&w->failed, 1);
	atomic_fetch_sub(&w->left, 1);
}

/* Changes a segment's mode n times from `at`, many at once. */
static void churn(ramp_node_t at, ramp_segment_t id, int n)
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

static int sync_done_with(ramp_node_t at)
{
	struct wait w = {.left = 1};

	meta_sync(meta_of(at), one_done, &w);
	WAIT_FOR(atomic_load(&w.left) == 0);
	return atomic_load(&w.failed);
}

static uint64_t applied(ramp_node_t id)
{
	struct meta_status s;

	meta_get_status(meta_of(id), &s);
	return s.applied;
}

/* ---- one voter --------------------------------------------------------------------------------
 */

START_TEST(one_voter_creates_and_finds)
{
	struct segment_row row;
	ramp_segment_t id;

	found(1);
	all_up(1);
	ck_assert_int_eq(create(1, 1, "x", &id), 0);
	ck_assert_uint_ge(id, RAMP_SEGMENT_ID_MIN);

	ck_assert_int_eq(meta_lookup(meta_of(1), 1, "x", &row), 0);
	ck_assert_uint_eq(row.id, id);
	ck_assert_uint_eq(row.mode, 0644);
	ck_assert_uint_eq(row.node_inc, 11);
	ck_assert_int_eq(meta_segment(meta_of(1), id, &row), 0);
	ck_assert_str_eq(row.name, "x");
	ck_assert_int_eq(meta_lookup(meta_of(1), 1, "y", &row), -ENOENT);
	ck_assert_int_eq(create(1, 1, "x", NULL), -EEXIST);
	ck_assert_uint_gt(atomic_load(&net.node[1].changes), 0);
}
END_TEST

START_TEST(a_retry_gets_the_first_result)
{
	struct meta_command c;
	struct meta_reply first, again;

	found(1);
	all_up(1);
	c = create_command(1, 1, "x");
	ck_assert_int_eq(meta_propose_wait(meta_of(1), &c, &first), 0);
	ck_assert_int_eq(meta_propose_wait(meta_of(1), &c, &again), 0);
	ck_assert_uint_eq(first.id, again.id);

	stop(1);
	start(1);
	ck_assert_int_eq(meta_propose_wait(meta_of(1), &c, &again), 0);
	ck_assert_uint_eq(first.id, again.id);
}
END_TEST

START_TEST(a_bad_name_is_refused_at_once)
{
	found(1);
	all_up(1);
	ck_assert_int_eq(create(1, 1, "a/b", NULL), -EINVAL);
	ck_assert_int_eq(create(1, 1, "..", NULL), -EINVAL);
	ck_assert_int_eq(create(1, 1, "", NULL), -EINVAL);
}
END_TEST

START_TEST(everything_is_there_after_a_restart)
{
	struct segment_row row;
	struct node_row node;
	char name[16];
	int i;

	found(1);
	all_up(1);
	for (i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		ck_assert_int_eq(create(1, 1, name, NULL), 0);
	}
	stop(1);
	start(1);
	for (i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		ck_assert_int_eq(meta_lookup(meta_of(1), 1, name, &row), 0);
	}
	ck_assert_int_eq(meta_node_by_name(meta_of(1), "a", &node), 0);
	ck_assert_uint_eq(node.incarnation, 11);
	ck_assert_uint_eq(node.instance, 101);
}
END_TEST

static int count_segment(void *arg, const struct segment_row *row)
{
	uint64_t *last = arg;

	ck_assert_uint_gt(row->id, last[1]);
	last[1] = row->id;
	last[0]++;
	return 0;
}

START_TEST(listing_goes_in_the_order_of_ids)
{
	uint64_t seen[2] = {0};
	char name[16];
	int i;

	found(1);
	all_up(1);
	for (i = 0; i < 150; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		ck_assert_int_eq(create(1, 1, name, NULL), 0);
	}
	ck_assert_int_eq(meta_each_segment(meta_of(1), 1, 0, count_segment, seen), 0);
	ck_assert_uint_eq(seen[0], 150);
}
END_TEST

START_TEST(opened_twice_is_refused)
{
	struct meta_config config = {.journal_path = net.node[1].path, .send = net_send};
	struct ramp_err err = {0};
	struct meta *second;

	found(1);
	ck_assert_int_eq(meta_open(&config, &second, &err), -EBUSY);
	ck_assert_str_ne(err.text, "");
}
END_TEST

START_TEST(what_is_no_journal_is_refused)
{
	struct meta_config config = {.journal_path = net.node[1].path, .send = net_send};
	struct ramp_err err = {0};
	struct meta *meta;
	FILE *f = fopen(net.node[1].path, "w");

	ck_assert_ptr_nonnull(f);
	fputs("this is a letter to my grandmother, and no database at all", f);
	fclose(f);
	ck_assert_int_lt(meta_open(&config, &meta, &err), 0);
	ck_assert_str_ne(err.text, "");
}
END_TEST

START_TEST(format_refuses_a_file_that_is_there)
{
	struct meta_founding f = {.self = 1};
	struct ramp_err err = {0};

	format(1, 1, 1, 101);
	ck_assert_int_eq(meta_format(net.node[1].path, &f, &err), -EEXIST);
}
END_TEST

/* ---- three voters -----------------------------------------------------------------------------
 */

START_TEST(every_node_may_propose_and_sees_its_own)
{
	struct segment_row row;
	ramp_node_t id;
	char name[16];

	found(3);
	all_up(3);
	for (id = 1; id <= 3; id++) {
		snprintf(name, sizeof(name), "from%u", id);
		ck_assert_int_eq(create(id, 2, name, NULL), 0);
		/* A create is followed by a stat that finds it: on the node that asked. */
		ck_assert_int_eq(meta_lookup(meta_of(id), 2, name, &row), 0);
	}
	for (id = 1; id <= 3; id++)
		WAIT_FOR(meta_lookup(meta_of(id), 2, "from3", &row) == 0);
}
END_TEST

START_TEST(a_read_after_sync_sees_all_that_was_committed)
{
	struct segment_row row;
	ramp_node_t reader;
	char name[16];
	int i;

	found(3);
	all_up(3);
	for (i = 0; i < 30; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		ck_assert_int_eq(create((ramp_node_t)(i % 3) + 1, 1, name, NULL), 0);
		reader = (ramp_node_t)((i + 1) % 3) + 1;
		ck_assert_int_eq(sync_done_with(reader), 0);
		ck_assert_int_eq(meta_lookup(meta_of(reader), 1, name, &row), 0);
	}
}
END_TEST

START_TEST(the_cluster_lives_through_the_loss_of_its_leader)
{
	struct segment_row row;
	ramp_node_t old, now, other;
	int round;
	char name[16];

	found(3);
	all_up(3);
	for (round = 0; round < 4; round++) {
		old = wait_leader(1, 3);
		stop(old);
		other = another(old);
		snprintf(name, sizeof(name), "r%d", round);
		ck_assert_int_eq(create(other, other, name, NULL), 0);
		now = wait_leader(1, 3);
		ck_assert_uint_ne(now, old);
		start(old);
		WAIT_FOR(meta_lookup(meta_of(old), other, name, &row) == 0);
	}
}
END_TEST

START_TEST(what_was_acknowledged_survives_the_death_of_all)
{
	struct segment_row row;
	ramp_node_t id;
	char name[16];
	int i;

	found(3);
	all_up(3);
	for (i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		ck_assert_int_eq(create(2, 1, name, NULL), 0);
	}
	for (id = 1; id <= 3; id++)
		stop(id);
	for (id = 1; id <= 3; id++)
		start(id);
	ck_assert_int_eq(sync_done_with(3), 0);
	for (i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		ck_assert_int_eq(meta_lookup(meta_of(3), 1, name, &row), 0);
	}
}
END_TEST

START_TEST(without_a_quorum_it_is_erofs)
{
	struct segment_row row;
	double began;
	int rc;

	found(3);
	all_up(3);
	ck_assert_int_eq(create(1, 1, "before", NULL), 0);
	stop(2);
	stop(3);
	WAIT_FOR(meta_leader(meta_of(1)) == 0);

	began = seconds();
	rc = create(1, 1, "without", NULL);
	ck_assert_int_eq(rc, -EROFS);
	ck_assert(seconds() - began < 7);
	ck_assert_int_eq(sync_done_with(1), 1);
	ck_assert(!meta_has_quorum(meta_of(1)));
	began = seconds();
	ck_assert_int_eq(create(1, 1, "at once", NULL), -EROFS);
	ck_assert(seconds() - began < 1);
	/* What is known can still be read. */
	ck_assert_int_eq(meta_lookup(meta_of(1), 1, "before", &row), 0);

	start(2);
	WAIT_FOR(meta_has_quorum(meta_of(1)));
	ck_assert_int_eq(create(1, 1, "again", NULL), 0);
	ck_assert_int_eq(meta_lookup(meta_of(1), 1, "without", &row), -ENOENT);
}
END_TEST

START_TEST(a_leader_that_is_cut_off_times_out_and_steps_down)
{
	ramp_node_t old, now;
	int rc;

	found(3);
	all_up(3);
	old = wait_leader(1, 3);
	cut(old, true);
	rc = create(old, old, "lonely", NULL);
	ck_assert_msg(rc == -ETIMEDOUT || rc == -EROFS, "%d", rc);
	WAIT_FOR(meta_leader(meta_of(old)) == 0);
	now = wait_leader(1, 3);
	ck_assert_uint_ne(now, old);
	ck_assert_int_eq(create(now, now, "goes on", NULL), 0);
	cut(old, false);
	ck_assert_int_eq(create(old, now, "back", NULL), 0);
}
END_TEST

START_TEST(a_node_far_behind_takes_a_snapshot)
{
	struct meta_status s;
	struct segment_row row;
	ramp_node_t leader, behind;
	ramp_segment_t id;

	found(3);
	all_up(3);
	ck_assert_int_eq(create(1, 1, "x", &id), 0);
	leader = wait_leader(1, 3);
	behind = another(leader);
	stop(behind);
	churn(leader, id, 12000);
	start(behind);
	WAIT_FOR(applied(behind) >= applied(leader));
	meta_get_status(meta_of(behind), &s);
	ck_assert_uint_ge(s.snapshots_taken, 1);
	ck_assert_uint_lt(s.log_entries, 12000);
	ck_assert_int_eq(meta_segment(meta_of(behind), id, &row), 0);
	ck_assert_uint_eq(row.mode, 0600 + (11999 & 7));
	ck_assert_int_eq(create(behind, 1, "y", NULL), 0);
}
END_TEST

START_TEST(leadership_is_handed_over)
{
	ramp_node_t old, now;
	double began;

	found(3);
	all_up(3);
	old = wait_leader(1, 3);
	began = seconds();
	meta_transfer_leadership(meta_of(old));
	WAIT_FOR(leader_among(1, 3) != 0 && leader_among(1, 3) != old);
	now = leader_among(1, 3);
	ck_assert_uint_ne(now, old);
	/* No election time-out was waited for. */
	ck_assert(seconds() - began < 5);
	ck_assert_int_eq(create(old, 1, "x", NULL), 0);
}
END_TEST

START_TEST(close_answers_what_is_open)
{
	struct wait w = {.left = 50};
	struct meta_command c;
	int i;

	found(3);
	all_up(3);
	cut(1, true);
	for (i = 0; i < 50; i++) {
		c = create_command(1, 1, "never");
		meta_propose(meta_of(1), &c, one_done, &w);
	}
	stop(1);
	ck_assert_int_eq(atomic_load(&w.left), 0);
	ck_assert_int_eq(atomic_load(&w.failed), 50);
}
END_TEST

START_TEST(garbage_from_a_peer_changes_nothing)
{
	uint8_t junk[300];
	unsigned int seed = 1;
	size_t i, n;

	found(3);
	all_up(3);
	for (n = 0; n < 20000; n++) {
		size_t len = (size_t)rand_r(&seed) % sizeof(junk);

		for (i = 0; i < len; i++)
			junk[i] = (uint8_t)rand_r(&seed);
		if (len > 2) {
			junk[0] = (uint8_t)(1 + n % 5);
			junk[1] = 1;
		}
		/* Not as an answer of a node that may speak for the leader's term. */
		meta_receive(meta_of(1 + (ramp_node_t)(n % 3)), 77, junk, len);
	}
	ck_assert_int_eq(create(1, 1, "x", NULL), 0);
}
END_TEST

/* ---- members ----------------------------------------------------------------------------------
 */

static int member(ramp_node_t at, enum meta_command_type type, ramp_node_t node, const char *name,
		  ramp_node_t *added)
{
	struct meta_command c = command(at, type);
	struct meta_reply reply = {0};
	int rc;

	c.node = node;
	if (name)
		snprintf(c.new_name, sizeof(c.new_name), "%s", name);
	snprintf(c.address, sizeof(c.address), "host:9");
	rc = meta_propose_wait(meta_of(at), &c, &reply);
	if (added)
		*added = reply.node;
	return rc;
}

START_TEST(a_node_joins_votes_and_leaves)
{
	struct segment_row row;
	struct node_row node;
	ramp_node_t id;

	found(3);
	all_up(3);
	ck_assert_int_eq(create(1, 1, "x", NULL), 0);
	ck_assert_int_eq(member(2, META_MEMBER_ADD, 0, "d", &id), 0);
	ck_assert_uint_eq(id, 4);
	ck_assert_int_eq(member(2, META_MEMBER_ADD, 0, "d", NULL), -EEXIST);

	format(4, 0, 0, 104);
	start(4);
	WAIT_FOR(meta_lookup(meta_of(4), 1, "x", &row) == 0);
	ck_assert_int_eq(node_up(4, 4, 14, 104), 0);
	ck_assert_int_eq(create(4, 4, "mine", NULL), 0);
	ck_assert_int_eq(member(4, META_MEMBER_PROMOTE, 4, NULL, NULL), 0);
	ck_assert_int_eq(meta_node(meta_of(4), 4, &node), 0);
	ck_assert_int_eq(node.role, NODE_VOTER);

	/* Four voters: three are a quorum, with the new one. */
	stop(1);
	ck_assert_int_eq(create(4, 4, "more", NULL), 0);
	start(1);

	ck_assert_int_eq(member(2, META_MEMBER_REMOVE, 4, NULL, NULL), -EBUSY);
	ck_assert_int_eq(member(2, META_MEMBER_REMOVE, 3, NULL, NULL), 0);
	ck_assert_int_eq(meta_node(meta_of(2), 3, &node), 0);
	ck_assert_int_eq(node.role, NODE_REMOVED);
	stop(3);
	stop(1);
	ck_assert_int_eq(create(2, 2, "two of three", NULL), 0);
}
END_TEST

START_TEST(a_leader_that_is_removed_hands_over_first)
{
	struct node_row node;
	ramp_node_t leader, other;

	found(3);
	all_up(3);
	leader = wait_leader(1, 3);
	other = another(leader);
	ck_assert_int_eq(member(other, META_MEMBER_REMOVE, leader, NULL, NULL), 0);
	ck_assert_int_eq(meta_node(meta_of(other), leader, &node), 0);
	ck_assert_int_eq(node.role, NODE_REMOVED);
	stop(leader);
	ck_assert_int_eq(create(other, other, "x", NULL), 0);
}
END_TEST

START_TEST(a_standby_proposes_and_reads_but_is_no_quorum)
{
	struct segment_row row;
	ramp_node_t id;

	for (id = 1; id <= 4; id++)
		format(id, 4, 3, 100 + id);
	for (id = 1; id <= 4; id++)
		start(id);
	wait_leader(1, 3);
	all_up(4);
	ck_assert_int_eq(create(4, 4, "x", NULL), 0);
	ck_assert_int_eq(sync_done_with(4), 0);
	ck_assert_int_eq(meta_lookup(meta_of(4), 4, "x", &row), 0);
	stop(1);
	stop(2);
	WAIT_FOR(meta_leader(meta_of(4)) == 0);
	ck_assert_int_eq(create(4, 4, "y", NULL), -EROFS);
}
END_TEST

/* ---- formatted again --------------------------------------------------------------------------
 */

START_TEST(a_founder_alone_waits_for_the_others)
{
	ramp_node_t id;

	for (id = 1; id <= 3; id++)
		format(id, 3, 3, 100 + id);
	start(1);
	start(2);
	/* Node 3 might have been in a quorum with either of them: they can't know. */
	usleep(1000000);
	ck_assert(meta_waits_for_voice(meta_of(1)));
	ck_assert(meta_waits_for_voice(meta_of(2)));
	ck_assert_uint_eq(leader_among(1, 2), 0);
	start(3);
	wait_leader(1, 3);
	/* Two may have begun before the third heard that they were new; it is taken in by name. */
	all_up(3);
	WAIT_FOR(!meta_waits_for_voice(meta_of(1)) && !meta_waits_for_voice(meta_of(2)) &&
		 !meta_waits_for_voice(meta_of(3)));
}
END_TEST

START_TEST(a_node_formatted_again_has_no_voice)
{
	struct segment_row row;
	ramp_node_t old, a, b;

	found(3);
	all_up(3);
	old = another(wait_leader(1, 3));
	a = old == 1 ? 2 : 1;
	b = old == 3 || a == 3 ? 2 : 3;
	stop(old);
	format(old, 3, 3, 999);
	start(old);
	/* It takes the log, but is refused, and is no quorum together with one other. */
	ck_assert_int_eq(create(a, a, "x", NULL), 0);
	WAIT_FOR(meta_lookup(meta_of(old), a, "x", &row) == 0);
	ck_assert_int_eq(node_up(old, old, 55, 999), -EPERM);
	ck_assert(meta_waits_for_voice(meta_of(old)));
	stop(b);
	ck_assert_int_ne(create(a, a, "y", NULL), 0);
	start(b);
	ck_assert_int_eq(create(a, a, "z", NULL), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("meta");
	TCase *one = tcase_create("one voter"), *three = tcase_create("three voters"),
	      *members = tcase_create("members"), *again = tcase_create("formatted again");
	TCase *all[] = {one, three, members, again};
	size_t i;

	for (i = 0; i < 4; i++) {
		tcase_add_checked_fixture(all[i], setup, teardown);
		tcase_set_timeout(all[i], 120);
		suite_add_tcase(s, all[i]);
	}
	tcase_add_test(one, one_voter_creates_and_finds);
	tcase_add_test(one, a_retry_gets_the_first_result);
	tcase_add_test(one, a_bad_name_is_refused_at_once);
	tcase_add_test(one, everything_is_there_after_a_restart);
	tcase_add_test(one, listing_goes_in_the_order_of_ids);
	tcase_add_test(one, opened_twice_is_refused);
	tcase_add_test(one, what_is_no_journal_is_refused);
	tcase_add_test(one, format_refuses_a_file_that_is_there);
	tcase_add_test(three, every_node_may_propose_and_sees_its_own);
	tcase_add_test(three, a_read_after_sync_sees_all_that_was_committed);
	tcase_add_test(three, the_cluster_lives_through_the_loss_of_its_leader);
	tcase_add_test(three, what_was_acknowledged_survives_the_death_of_all);
	tcase_add_test(three, without_a_quorum_it_is_erofs);
	tcase_add_test(three, a_leader_that_is_cut_off_times_out_and_steps_down);
	tcase_add_test(three, a_node_far_behind_takes_a_snapshot);
	tcase_add_test(three, leadership_is_handed_over);
	tcase_add_test(three, close_answers_what_is_open);
	tcase_add_test(three, garbage_from_a_peer_changes_nothing);
	tcase_add_test(members, a_node_joins_votes_and_leaves);
	tcase_add_test(members, a_leader_that_is_removed_hands_over_first);
	tcase_add_test(members, a_standby_proposes_and_reads_but_is_no_quorum);
	tcase_add_test(again, a_founder_alone_waits_for_the_others);
	tcase_add_test(again, a_node_formatted_again_has_no_voice);
	return s;
}

int main(void)
{
	SRunner *runner = srunner_create(suite());
	int failed;

	log_open("test_meta", 0, getenv("META_LOG") ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
