/*
 * Metadata of one voter, and of three: proposals, reads, losses, catching up.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "lib/run_suite.h"
#include "meta/meta_core.h"
#include "meta/raft_log.h"
#include "meta/raft_wire.h"
#include "meta/row_cache.h"
#include "meta_net.h"

/* ---- one voter ----------------------------------------------------------------------------- */

START_TEST(one_voter_creates_and_finds)
{
	struct segment_row row;
	ramp_segment_t id;

	net_found(1);
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

START_TEST(a_change_of_attributes_alone_is_told_as_one)
{
	struct meta_command c = {.type = META_SETATTR, .flags = META_SET_MODE};
	unsigned long before;

	net_found(1);
	all_up(1);
	ck_assert_int_eq(create(1, 1, "x", &c.id), 0);
	ck_assert_uint_eq(atomic_load(&net.node[1].attributes), 0);
	before = atomic_load(&net.node[1].changes);
	c.cid = meta_own_command(meta_of(1));
	ck_assert_int_eq(meta_propose_wait(meta_of(1), &c, NULL), 0);
	ck_assert_uint_eq(atomic_load(&net.node[1].attributes), 1);
	ck_assert_uint_eq(atomic_load(&net.node[1].changes), before + 1);
}
END_TEST

START_TEST(a_retry_gets_the_first_result)
{
	struct meta_command c;
	struct meta_reply first, again;

	net_found(1);
	all_up(1);
	c = create_command(1, 1, "x");
	ck_assert_int_eq(meta_propose_wait(meta_of(1), &c, &first), 0);
	ck_assert_int_eq(meta_propose_wait(meta_of(1), &c, &again), 0);
	ck_assert_uint_eq(first.id, again.id);

	net_stop(1);
	net_start(1);
	ck_assert_int_eq(meta_propose_wait(meta_of(1), &c, &again), 0);
	ck_assert_uint_eq(first.id, again.id);
}
END_TEST

START_TEST(a_bad_name_is_refused_at_once)
{
	net_found(1);
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

	net_found(1);
	all_up(1);
	for (i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		ck_assert_int_eq(create(1, 1, name, NULL), 0);
	}
	net_stop(1);
	net_start(1);
	for (i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		ck_assert_int_eq(meta_lookup(meta_of(1), 1, name, &row), 0);
	}
	ck_assert_int_eq(meta_node_by_name(meta_of(1), "a", &node), 0);
	ck_assert_uint_eq(node.incarnation, 11);
	ck_assert_uint_eq(node.instance, 101);
}
END_TEST

START_TEST(a_single_voter_waits_for_nobody)
{
	net_found(1);
	all_up(1);
	net_stop(1);
	net.election_ms = 60000; /* a time-out would be EROFS */
	net_start(1);
	ck_assert_int_eq(create(1, 1, "x", NULL), 0);
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

	net_found(1);
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

	net_found(1);
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

	net_format(1, 1, 1, 101);
	ck_assert_int_eq(meta_format(net.node[1].path, &f, &err), -EEXIST);
}
END_TEST

/* ---- rows that are kept in memory ---- */

START_TEST(a_row_is_kept_until_it_changes)
{
	struct row_cache *cache = row_cache_open();
	struct segment_row row = {.id = 4711, .epoch = 1}, got;
	struct node_row node = {.node = 3}, got_node;
	uint64_t turn, later;

	ck_assert(!row_cache_segment(cache, 4711, &got, &turn));
	row_cache_put_segment(cache, &row, turn);
	ck_assert(row_cache_segment(cache, 4711, &got, &later));
	ck_assert_uint_eq(got.epoch, 1);
	ck_assert(!row_cache_segment(cache, 4711 + 1024, &got, &later)); /* in the same place */
	ck_assert(!row_cache_node(cache, 3, &got_node, &later));
	row_cache_put_node(cache, &node, later);

	/* Out before the commit, and what was read before it comes in neither before nor after it. */
	row_cache_changes(cache, 4711);
	ck_assert(!row_cache_segment(cache, 4711, &got, &later));
	row_cache_put_segment(cache, &row, later);
	ck_assert(!row_cache_segment(cache, 4711, &got, &later));
	row_cache_committed(cache);
	row_cache_put_segment(cache, &row, later);
	ck_assert(!row_cache_segment(cache, 4711, &got, &turn));
	row.epoch = 2;
	row_cache_put_segment(cache, &row, turn);
	ck_assert(row_cache_segment(cache, 4711, &got, &later));
	ck_assert_uint_eq(got.epoch, 2);
	ck_assert(row_cache_node(cache, 3, &got_node, &later));

	row_cache_changes(cache, 0);
	ck_assert(!row_cache_segment(cache, 4711, &got, &later));
	ck_assert(!row_cache_node(cache, 3, &got_node, &later));
	row_cache_put_segment(cache, &row, later);
	row_cache_put_node(cache, &node, later);
	row_cache_committed(cache);
	ck_assert(!row_cache_segment(cache, 4711, &got, &later));
	ck_assert(!row_cache_node(cache, 3, &got_node, &later));
	row_cache_close(cache);
}
END_TEST

struct reading {
	ramp_segment_t id;
	atomic_bool stop;
	atomic_uint backwards;
};

static void *read_for_ever(void *arg)
{
	struct reading *reading = arg;
	struct segment_row row;
	uint32_t last = 0;

	while (!atomic_load(&reading->stop)) {
		if (meta_segment(meta_of(1), reading->id, &row) || row.mode < last)
			atomic_fetch_add(&reading->backwards, 1);
		last = row.mode;
	}
	return NULL;
}

/* The mode goes up with each commit. */
START_TEST(a_row_is_never_older_than_it_was)
{
	struct reading reading = {0};
	struct segment_row row;
	pthread_t readers[3];

	net_found(1);
	all_up(1);
	ck_assert_int_eq(create(1, 1, "x", &reading.id), 0);
	for (size_t i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&readers[i], NULL, read_for_ever, &reading), 0);
	for (unsigned int i = 0645; i < 0777; i++) {
		struct meta_command c = command(1, META_SETATTR);
		struct wait w = {.left = 1};

		c.id = reading.id;
		c.flags = META_SET_MODE;
		c.attr.mode = i;
		meta_propose(meta_of(1), &c, one_done, &w);
		while (atomic_load(&w.left))
			usleep(10);
		ck_assert_int_eq(meta_segment(meta_of(1), reading.id, &row), 0);
		ck_assert_uint_eq(row.mode, i);
	}
	atomic_store(&reading.stop, true);
	for (size_t i = 0; i < 3; i++)
		pthread_join(readers[i], NULL);
	ck_assert_uint_eq(atomic_load(&reading.backwards), 0);
}
END_TEST

/* ---- three voters -------------------------------------------------------------------------- */

START_TEST(every_node_may_propose_and_sees_its_own)
{
	struct segment_row row;
	ramp_node_t id;
	char name[16];

	net_found(3);
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

	net_found(3);
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

#define READ_ANSWER 4 /* the first byte of 17: meta_core.h */

static struct {
	ramp_node_t to;
	uint8_t former[8][17];
	unsigned int n_former;
	atomic_bool reborn, open;
	atomic_int held;
} late;

/* Delivers the answers to late.to's earlier life again, and none to its new life. */
static bool former_answers_come_late(ramp_node_t from, ramp_node_t to, const uint8_t *bytes,
				     size_t len)
{
	unsigned int i;

	if (to != late.to || len != sizeof(late.former[0]) || bytes[0] != READ_ANSWER ||
	    atomic_load(&late.open))
		return true;
	if (!atomic_load(&late.reborn)) {
		if (late.n_former < 8)
			memcpy(late.former[late.n_former++], bytes, len);
		return true;
	}
	for (i = 0; i < late.n_former; i++)
		meta_receive(net.node[to].meta, from, 0, late.former[i], len);
	atomic_fetch_add(&late.held, 1);
	return false;
}

START_TEST(an_answer_to_a_former_life_proves_nothing)
{
	struct wait w = {.left = 1};

	net_found(3);
	all_up(3);
	late.to = another(wait_leader(1, 3));
	net.passes = former_answers_come_late;
	ck_assert_int_eq(sync_done_with(late.to), 0);
	net_stop(late.to);
	ck_assert_uint_ge(late.n_former, 1);
	atomic_store(&late.reborn, true);
	net_start(late.to);
	meta_sync(meta_of(late.to), one_done, &w);
	/* A second question shows that it has handled the answers that came first. */
	WAIT_FOR(atomic_load(&late.held) >= 2 || atomic_load(&w.left) == 0);
	ck_assert_int_eq(atomic_load(&w.left), 1);
	atomic_store(&late.open, true);
	WAIT_FOR(atomic_load(&w.left) == 0);
	ck_assert_int_eq(atomic_load(&w.failed), 0);
}
END_TEST

#define RAFT 1 /* the first byte: meta_core.h */
#define SHOW 9

static struct {
	ramp_node_t to;
	atomic_bool behind;
	atomic_int answers, shows;
} news;

static bool news_come_later(ramp_node_t from, ramp_node_t to, const uint8_t *bytes, size_t len)
{
	(void)from;
	if (to != news.to)
		return true;
	if (len == 17 && bytes[0] == READ_ANSWER)
		atomic_fetch_add(&news.answers, 1);
	if (len == 17 && bytes[0] == SHOW)
		atomic_fetch_add(&news.shows, 1);
	return bytes[0] != RAFT || !atomic_load(&news.behind);
}

struct look {
	struct wait wait;
	int found;
};

static void look_for_late(void *arg, const struct meta_reply *reply)
{
	struct look *l = arg;
	struct segment_row row;

	l->found = meta_lookup(meta_of(news.to), 1, "late", &row);
	one_done(&l->wait, reply);
}

/* The end is reported before anything else can happen on that node. */
START_TEST(what_a_sync_waited_for_is_in_the_tables_when_it_ends)
{
	struct look look = {.wait = {.left = 1}};
	ramp_node_t leader;

	net.election_ms = 2000; /* no node campaigns while it hears nothing */
	net_found(3);
	all_up(3);
	leader = wait_leader(1, 3);
	news.to = another(leader);
	net.passes = news_come_later;
	ck_assert_int_eq(sync_done_with(news.to), 0);
	atomic_store(&news.answers, 0);
	atomic_store(&news.behind, true);
	ck_assert_int_eq(create(leader, 1, "late", NULL), 0);
	meta_sync(meta_of(news.to), look_for_late, &look);
	WAIT_FOR(atomic_load(&news.answers) > 0);
	atomic_store(&news.behind, false);
	WAIT_FOR(atomic_load(&look.wait.left) == 0);
	ck_assert_int_eq(atomic_load(&look.wait.failed), 0);
	ck_assert_int_eq(look.found, 0);
}
END_TEST

/* It says so when its tables hold what the asking node's held, and not before. */
START_TEST(another_nodes_tables_are_waited_for)
{
	struct look look = {.wait = {.left = 1}};
	struct wait in_vain = {.left = 1};
	ramp_node_t leader;

	net.election_ms = 2000;
	net_found(3);
	all_up(3);
	leader = wait_leader(1, 3);
	news.to = another(leader);
	net.passes = news_come_later;
	ck_assert_int_eq(sync_done_with(news.to), 0);
	atomic_store(&news.shows, 0);
	atomic_store(&news.behind, true);
	ck_assert_int_eq(create(leader, 1, "late", NULL), 0);
	meta_wait_shown(meta_of(leader), news.to, 20000, look_for_late, &look);
	meta_wait_shown(meta_of(leader), news.to, 50, one_done, &in_vain);
	WAIT_FOR(atomic_load(&news.shows) == 2 && atomic_load(&in_vain.left) == 0);
	ck_assert_int_eq(atomic_load(&in_vain.failed), 1);
	ck_assert_int_eq(atomic_load(&look.wait.left), 1);
	atomic_store(&news.behind, false);
	WAIT_FOR(atomic_load(&look.wait.left) == 0);
	ck_assert_int_eq(atomic_load(&look.wait.failed), 0);
	ck_assert_int_eq(look.found, 0);

	/* A node that holds it already says so at once; a node that is gone says nothing. */
	look = (struct look){.wait = {.left = 1}};
	meta_wait_shown(meta_of(leader), news.to, 20000, look_for_late, &look);
	WAIT_FOR(atomic_load(&look.wait.left) == 0);
	ck_assert_int_eq(atomic_load(&look.wait.failed), 0);
	net_stop(news.to);
	in_vain = (struct wait){.left = 1};
	meta_wait_shown(meta_of(leader), news.to, 50, one_done, &in_vain);
	WAIT_FOR(atomic_load(&in_vain.left) == 0);
	ck_assert_int_eq(atomic_load(&in_vain.failed), 1);
}
END_TEST

#define CROWD 450 /* more than the window and the kept results */

/* A command as of a FUSE connection: its requests come again with their numbers. */
static struct meta_command request(ramp_node_t at, ramp_segment_t id, uint64_t unique)
{
	struct meta_command c = id ? command(at, META_SETATTR) : create_command(at, 1, "once");

	c.cid = (struct meta_command_id){.client = 77, .unique = unique};
	c.id = id;
	c.flags = id ? META_SET_MODE : 0;
	c.attr.mode = 0600;
	return c;
}

struct answer {
	struct wait wait;
	struct meta_reply reply;
};

static void keep_answer(void *arg, const struct meta_reply *reply)
{
	struct answer *a = arg;

	a->reply = *reply;
	one_done(&a->wait, reply);
}

static void ask_crowd(ramp_node_t at, ramp_segment_t id, struct wait *w)
{
	for (uint64_t i = 0; i < CROWD; i++) {
		struct meta_command c = request(at, id, 100 + i);

		meta_propose(meta_of(at), &c, one_done, w);
	}
}

/* Returns when the queue of a node holds no earlier proposal any more. */
static void queue_is_looked_at(ramp_node_t at)
{
	struct meta_command bad = create_command(at, 1, "..");

	ck_assert_int_eq(meta_propose_wait(meta_of(at), &bad, NULL), -EINVAL);
}

START_TEST(what_a_former_life_did_is_found_by_who_waits_in_a_crowd)
{
	struct answer first = {.wait = {.left = 1}}, again = {.wait = {.left = 1}};
	struct wait crowd = {.left = CROWD};
	struct meta_command c;
	struct segment_row row;
	ramp_node_t leader;

	net.election_ms = 2000;
	net_found(3);
	all_up(3);
	leader = wait_leader(1, 3);
	news.to = another(leader);
	WAIT_FOR(meta_leader(meta_of(news.to)) == leader);
	net.passes = news_come_later;
	atomic_store(&news.behind, true);
	c = request(news.to, 0, 1);
	meta_propose(meta_of(news.to), &c, keep_answer, &first);
	WAIT_FOR(meta_lookup(meta_of(leader), 1, "once", &row) == 0);
	net_stop(news.to);
	ck_assert_int_eq(first.reply.result, -ESHUTDOWN);

	net_start(news.to);
	ask_crowd(news.to, row.id, &crowd);
	meta_propose(meta_of(news.to), &c, keep_answer, &again);
	queue_is_looked_at(news.to);
	atomic_store(&news.behind, false);
	WAIT_FOR(atomic_load(&again.wait.left) == 0 && atomic_load(&crowd.left) == 0);
	ck_assert_int_eq(again.reply.result, 0);
	ck_assert_uint_eq(again.reply.id, row.id);
}
END_TEST

START_TEST(while_held_results_are_found_and_none_goes)
{
	struct answer again = {.wait = {.left = 1}};
	struct wait crowd = {.left = CROWD};
	struct meta_command c;
	struct meta_reply first;

	net_found(1);
	all_up(1);
	c = request(1, 0, 1);
	ck_assert_int_eq(meta_propose_wait(meta_of(1), &c, &first), 0);
	meta_hold(meta_of(1));
	ask_crowd(1, first.id, &crowd);
	for (int i = 0; i < 10; i++)
		queue_is_looked_at(1); /* each time a turn is made, which would send some */
	ck_assert_int_eq(atomic_load(&crowd.left), CROWD);
	meta_propose(meta_of(1), &c, keep_answer, &again);
	WAIT_FOR(atomic_load(&again.wait.left) == 0);
	ck_assert_int_eq(again.reply.result, 0);
	ck_assert_uint_eq(again.reply.id, first.id);
	meta_release(meta_of(1));
	WAIT_FOR(atomic_load(&crowd.left) == 0);
	ck_assert_int_eq(atomic_load(&crowd.failed), 0);
}
END_TEST

START_TEST(the_cluster_lives_through_the_loss_of_its_leader)
{
	struct segment_row row;
	ramp_node_t old, now, other;
	int round;
	char name[16];

	net_found(3);
	all_up(3);
	for (round = 0; round < 4; round++) {
		old = wait_leader(1, 3);
		net_stop(old);
		other = another(old);
		snprintf(name, sizeof(name), "r%d", round);
		ck_assert_int_eq(create(other, other, name, NULL), 0);
		now = wait_leader(1, 3);
		ck_assert_uint_ne(now, old);
		net_start(old);
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

	net_found(3);
	all_up(3);
	for (i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		ck_assert_int_eq(create(2, 1, name, NULL), 0);
	}
	for (id = 1; id <= 3; id++)
		net_stop(id);
	for (id = 1; id <= 3; id++)
		net_start(id);
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

	net_found(3);
	all_up(3);
	ck_assert_int_eq(create(1, 1, "before", NULL), 0);
	net_stop(2);
	net_stop(3);
	WAIT_FOR(meta_leader(meta_of(1)) == 0);

	began = seconds();
	rc = create(1, 1, "without", NULL);
	ck_assert_int_eq(rc, -EROFS);
	ck_assert(seconds() - began < 15);
	ck_assert_int_eq(sync_done_with(1), 1);
	ck_assert(!meta_has_quorum(meta_of(1)));
	began = seconds();
	ck_assert_int_eq(create(1, 1, "at once", NULL), -EROFS);
	ck_assert(seconds() - began < 4); /* it has 5 s */
	/* The tables can still be read. */
	ck_assert_int_eq(meta_lookup(meta_of(1), 1, "before", &row), 0);

	net_start(2);
	WAIT_FOR(meta_has_quorum(meta_of(1)));
	ck_assert_int_eq(create(1, 1, "again", NULL), 0);
	ck_assert_int_eq(meta_lookup(meta_of(1), 1, "without", &row), -ENOENT);
}
END_TEST

/* Its earlier copy may be in the log of a node that is cut off. */
START_TEST(without_a_quorum_what_is_asked_again_may_be_done)
{
	struct meta_command c;

	net_found(3);
	all_up(3);
	net_stop(2);
	net_stop(3);
	WAIT_FOR(meta_leader(meta_of(1)) == 0);
	c = create_command(1, 1, "again");
	c.again = true;
	ck_assert_int_eq(meta_propose_wait(meta_of(1), &c, NULL), -ETIMEDOUT);
	WAIT_FOR(!meta_has_quorum(meta_of(1)));
	ck_assert_int_eq(create(1, 1, "new", NULL), -EROFS);
	ck_assert_int_eq(meta_propose_wait(meta_of(1), &c, NULL), -ETIMEDOUT); /* at once */
}
END_TEST

static atomic_bool stands_still;

/* Blocks the meta thread of node 1, as a disk that doesn't answer would. */
static bool stand_still(ramp_node_t from, ramp_node_t to, const uint8_t *bytes, size_t len)
{
	(void)to;
	(void)bytes;
	(void)len;
	while (from == 1 && atomic_load(&stands_still))
		usleep(2000);
	return true;
}

START_TEST(a_meta_thread_that_stands_still_has_no_quorum)
{
	struct meta_status s;

	net_found(3);
	all_up(3);
	WAIT_FOR(meta_has_quorum(meta_of(1)));
	atomic_store(&stands_still, true);
	atomic_store(&net.passes, stand_still);
	WAIT_FOR(!meta_has_quorum(meta_of(1)));
	meta_get_status(meta_of(1), &s);
	ck_assert(!s.quorum);

	atomic_store(&stands_still, false);
	WAIT_FOR(meta_has_quorum(meta_of(1)));
	ck_assert_int_eq(create(1, 1, "continues", NULL), 0);
}
END_TEST

static struct {
	_Atomic ramp_node_t node; /* cut off in both directions */
	bool is_heard;		  /* its first message about LONELY arrives */
} cut_off;

#define LONELY "lonely"

/* Cuts off the first node that sends that name. */
static bool names_it_no_more(ramp_node_t from, ramp_node_t to, const uint8_t *bytes, size_t len)
{
	ramp_node_t none = 0;

	if (memmem(bytes, len, LONELY, strlen(LONELY)) &&
	    atomic_compare_exchange_strong(&cut_off.node, &none, from))
		return cut_off.is_heard;
	return from != atomic_load(&cut_off.node) && to != atomic_load(&cut_off.node);
}

static void cut_off_by_name(bool is_heard)
{
	atomic_store(&cut_off.node, 0);
	cut_off.is_heard = is_heard;
	atomic_store(&net.passes, names_it_no_more);
}

START_TEST(a_leader_that_is_cut_off_times_out_and_steps_down)
{
	struct segment_row row;
	ramp_node_t old, now;

	net_found(3);
	all_up(3);
	old = wait_leader(1, 3);
	cut_off_by_name(false);
	ck_assert_int_eq(create(old, old, LONELY, NULL), -ETIMEDOUT);
	ck_assert_uint_eq(cut_off.node, old);
	WAIT_FOR(meta_leader(meta_of(old)) == 0);
	now = wait_leader(1, 3);
	ck_assert_uint_ne(now, old);
	ck_assert_int_eq(create(now, now, "continues", NULL), 0);
	atomic_store(&net.passes, NULL);
	/* After 5 s without a quorum a change is EROFS at once. */
	WAIT_FOR(meta_has_quorum(meta_of(old)));
	ck_assert_int_eq(create(old, now, "back", NULL), 0);
	ck_assert_int_eq(meta_lookup(meta_of(old), old, LONELY, &row), -ENOENT);
}
END_TEST

/* It has asked the leader, and gets no answer: the command is carried out all the same. */
START_TEST(what_has_timed_out_may_be_done)
{
	struct segment_row row;
	ramp_node_t leader, asks;

	net_found(3);
	all_up(3);
	leader = wait_leader(1, 3);
	asks = another(leader);
	cut_off_by_name(true);
	ck_assert_int_eq(create(asks, asks, LONELY, NULL), -ETIMEDOUT);
	ck_assert_uint_eq(cut_off.node, asks);
	ck_assert_int_eq(meta_lookup(meta_of(asks), asks, LONELY, &row), -ENOENT);
	ck_assert_int_eq(meta_lookup(meta_of(leader), asks, LONELY, &row), 0);
	atomic_store(&net.passes, NULL);
	WAIT_FOR(meta_lookup(meta_of(asks), asks, LONELY, &row) == 0);
}
END_TEST

START_TEST(a_node_far_behind_takes_a_snapshot)
{
	struct meta_status s;
	struct segment_row row;
	ramp_node_t leader, behind;
	ramp_segment_t id;

	net_found(3);
	all_up(3);
	ck_assert_int_eq(create(1, 1, "x", &id), 0);
	leader = wait_leader(1, 3);
	behind = another(leader);
	net_stop(behind);
	churn(leader, id, 12000);
	net_start(behind);
	WAIT_FOR(applied(behind) >= applied(leader));
	meta_get_status(meta_of(behind), &s);
	ck_assert_uint_ge(s.snapshots_taken, 1);
	ck_assert_uint_lt(s.log_entries, 12000);
	ck_assert_int_eq(meta_segment(meta_of(behind), id, &row), 0);
	ck_assert_uint_eq(row.mode, 0600 + (11999 & 7));
	ck_assert_int_eq(create(behind, 1, "y", NULL), 0);
}
END_TEST

#define SNAPSHOT 7 /* the third byte: enum raft_message_type */

static struct {
	ramp_node_t to;
	atomic_bool begun, back;
} half;

/* Cuts half.to off once the first piece of a snapshot is on its way to it. */
static bool goes_in_the_middle(ramp_node_t from, ramp_node_t to, const uint8_t *bytes, size_t len)
{
	if ((from != half.to && to != half.to) || atomic_load(&half.back))
		return true;
	if (atomic_load(&half.begun))
		return false;
	if (len > 2 && bytes[0] == RAFT && bytes[2] == SNAPSHOT)
		atomic_store(&half.begun, true);
	return true;
}

/* A dump of which no node takes a piece keeps the WAL since its time from being reset. */
START_TEST(a_snapshot_that_nobody_takes_makes_no_journal_grow)
{
	struct meta_status s;
	ramp_node_t leader;
	ramp_segment_t id;
	int i;

	net_found(3);
	all_up(3);
	ck_assert_int_eq(create(1, 1, "x", &id), 0);
	leader = wait_leader(1, 3);
	half.to = another(leader);
	atomic_store(&half.begun, false);
	atomic_store(&half.back, false);
	net_stop(half.to);
	churn(leader, id, 12000);
	net.passes = goes_in_the_middle;
	net_start(half.to);
	WAIT_FOR(atomic_load(&half.begun));
	for (i = 0; i < 700; i++) {
		churn(leader, id, 4);
		usleep(5000);
	}
	meta_get_status(meta_of(leader), &s);
	ck_assert_uint_lt(s.journal_bytes, 20u << 20); /* journal_size_limit, and the tables */
	atomic_store(&half.back, true);
	WAIT_FOR(applied(half.to) >= applied(leader));
}
END_TEST

#define APPEND_ANSWER 6 /* as above */

static struct {
	ramp_node_t node;
	atomic_bool given, installs;
} slow;

static bool is_last_piece(const uint8_t *bytes, size_t len)
{
	struct raft_message m;
	bool is = false;

	if (bytes[2] == SNAPSHOT && raft_message_decode(bytes + 1, len - 1, &m) == 0) {
		is = m.done;
		raft_message_release(&m);
	}
	return is;
}

/* Blocks the meta thread of slow.node when it is to answer that it has installed a snapshot. */
static bool takes_long_to_install(ramp_node_t from, ramp_node_t to, const uint8_t *bytes,
				  size_t len)
{
	if (len <= 2 || bytes[0] != RAFT)
		return true;
	if (to == slow.node && is_last_piece(bytes, len))
		atomic_store(&slow.given, true);
	while (from == slow.node && bytes[2] == APPEND_ANSWER && atomic_load(&slow.given) &&
	       atomic_load(&slow.installs))
		usleep(2000);
	return true;
}

START_TEST(who_installs_a_snapshot_is_not_made_another)
{
	struct meta_status s;
	ramp_node_t leader;
	ramp_segment_t id;

	net.election_ms = 300; /* so that the leader remains */
	net_found(3);
	all_up(3);
	ck_assert_int_eq(create(1, 1, "x", &id), 0);
	leader = wait_leader(1, 3);
	slow.node = another(leader);
	atomic_store(&slow.given, false);
	atomic_store(&slow.installs, true);
	net_stop(slow.node);
	churn(leader, id, 12000);
	net.passes = takes_long_to_install;
	net_start(slow.node);
	WAIT_FOR(atomic_load(&slow.given));
	usleep(14 * net.election_ms * 1000);
	churn(leader, id, 4);
	atomic_store(&slow.installs, false);
	WAIT_FOR(applied(slow.node) >= applied(leader));
	meta_get_status(meta_of(slow.node), &s);
	ck_assert_uint_eq(s.snapshots_taken, 1);
	ck_assert_int_eq(meta_leader(meta_of(leader)), leader);
	meta_get_status(meta_of(leader), &s);
	ck_assert_uint_eq(s.snapshots_sent, 1);
}
END_TEST

START_TEST(leadership_is_handed_over)
{
	double began, took;
	int tries = 5;
	ramp_node_t old;

	net.election_ms = 2000;
	net_found(3);
	all_up(3);
	do {
		old = wait_leader(1, 3);
		began = seconds();
		meta_transfer_leadership(meta_of(old));
		WAIT_FOR(leader_among(1, 3) != 0 && leader_among(1, 3) != old);
		took = seconds() - began;
	} while (took >= 2 && --tries);
	/* No election time-out passed; on a busy machine one may, but not each time. */
	ck_assert(took < 2);
	ck_assert_int_eq(create(old, 1, "x", NULL), 0);
}
END_TEST

START_TEST(close_answers_what_is_open)
{
	struct wait w = {.left = 50};
	struct meta_command c;
	int i;

	net_found(3);
	all_up(3);
	net_cut(1, true);
	for (i = 0; i < 50; i++) {
		c = create_command(1, 1, "never");
		meta_propose(meta_of(1), &c, one_done, &w);
	}
	net_stop(1);
	ck_assert_int_eq(atomic_load(&w.left), 0);
	ck_assert_int_eq(atomic_load(&w.failed), 50);
}
END_TEST

START_TEST(garbage_from_a_peer_changes_nothing)
{
	uint8_t junk[300];
	unsigned int seed = 1;
	size_t i, n;

	net_found(3);
	all_up(3);
	for (n = 0; n < 20000; n++) {
		size_t len = (size_t)rand_r(&seed) % sizeof(junk);

		for (i = 0; i < len; i++)
			junk[i] = (uint8_t)rand_r(&seed);
		if (len > 2) {
			junk[0] = (uint8_t)(1 + n % WIRE_MEMBERS);
			junk[1] = 1;
		}
		/* Not an answer of a node that may be believed about the leader's term. */
		meta_receive(meta_of(1 + (ramp_node_t)(n % 3)), 77, 0, junk, len);
	}
	ck_assert_int_eq(create(1, 1, "x", NULL), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("meta");
	TCase *one_voter = tcase_create("one_voter");
	TCase *three_voters = tcase_create("three_voters");

	tcase_add_checked_fixture(one_voter, net_setup, net_teardown);
	tcase_set_timeout(one_voter, 120);
	suite_add_tcase(s, one_voter);
	tcase_add_test(one_voter, one_voter_creates_and_finds);
	tcase_add_test(one_voter, a_change_of_attributes_alone_is_told_as_one);
	tcase_add_test(one_voter, a_row_is_kept_until_it_changes);
	tcase_add_test(one_voter, a_row_is_never_older_than_it_was);
	tcase_add_test(one_voter, a_retry_gets_the_first_result);
	tcase_add_test(one_voter, a_bad_name_is_refused_at_once);
	tcase_add_test(one_voter, everything_is_there_after_a_restart);
	tcase_add_test(one_voter, a_single_voter_waits_for_nobody);
	tcase_add_test(one_voter, listing_goes_in_the_order_of_ids);
	tcase_add_test(one_voter, opened_twice_is_refused);
	tcase_add_test(one_voter, what_is_no_journal_is_refused);
	tcase_add_test(one_voter, format_refuses_a_file_that_is_there);
	tcase_add_test(one_voter, while_held_results_are_found_and_none_goes);
	tcase_add_checked_fixture(three_voters, net_setup, net_teardown);
	tcase_set_timeout(three_voters, 120);
	suite_add_tcase(s, three_voters);
	tcase_add_test(three_voters, every_node_may_propose_and_sees_its_own);
	tcase_add_test(three_voters, a_read_after_sync_sees_all_that_was_committed);
	tcase_add_test(three_voters, an_answer_to_a_former_life_proves_nothing);
	tcase_add_test(three_voters, what_a_sync_waited_for_is_in_the_tables_when_it_ends);
	tcase_add_test(three_voters, another_nodes_tables_are_waited_for);
	tcase_add_test(three_voters, what_a_former_life_did_is_found_by_who_waits_in_a_crowd);
	tcase_add_test(three_voters, the_cluster_lives_through_the_loss_of_its_leader);
	tcase_add_test(three_voters, what_was_acknowledged_survives_the_death_of_all);
	tcase_add_test(three_voters, without_a_quorum_it_is_erofs);
	tcase_add_test(three_voters, without_a_quorum_what_is_asked_again_may_be_done);
	tcase_add_test(three_voters, a_meta_thread_that_stands_still_has_no_quorum);
	tcase_add_test(three_voters, a_leader_that_is_cut_off_times_out_and_steps_down);
	tcase_add_test(three_voters, what_has_timed_out_may_be_done);
	tcase_add_test(three_voters, a_node_far_behind_takes_a_snapshot);
	tcase_add_test(three_voters, a_snapshot_that_nobody_takes_makes_no_journal_grow);
	tcase_add_test(three_voters, who_installs_a_snapshot_is_not_made_another);
	tcase_add_test(three_voters, leadership_is_handed_over);
	tcase_add_test(three_voters, close_answers_what_is_open);
	tcase_add_test(three_voters, garbage_from_a_peer_changes_nothing);
	return s;
}

int main(void)
{
	log_open("test_meta", 0, LOG_LEVEL_ERROR);
	return run_suite(suite());
}
