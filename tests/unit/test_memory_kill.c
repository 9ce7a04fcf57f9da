/*
 * kill -9 at any time: a child takes segments through their whole lives in a loop and is killed
 * after a random while, hundreds of times over the same store. The next store_open finds a state
 * that the child had reached: begun at most, finished at least.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory_fixture.h"

#define PAGE	 UINT64_C(4096)
#define SEGMENTS 4
#define PAGES	 96u
#define KILLS	 400
#define LONGEST	 4000 /* us */

/* The child's report on each segment, in memory that outlives it. Epochs count the record changes
   of a segment's lives, from 1. */
struct told {
	atomic_ullong begun, done;
	atomic_ullong gone_begun, gone_done; /* the last epoch before a removal */
};
static struct told *told;

static struct store *store;
static struct ramp_err err;

/* Makes a record all of whose fields tell its epoch. */
static struct record record_of(enum record_kind kind, uint64_t epoch)
{
	return (struct record){
		.kind = kind,
		.epoch = epoch,
		.k = {epoch * 3, epoch * 5},
		.peer = (ramp_node_t)epoch,
		.peer_inc = epoch * 7,
		.unchanged = epoch % 2,
		.size = epoch * 11,
	};
}

static void must(int rc)
{
	if (rc) {
		fprintf(stderr, "the child: %s (%s)\n", err.text, strerror(-rc));
		_exit(2);
	}
}

static void change(struct seg *seg, struct told *t, enum record_kind kind)
{
	uint64_t epoch = atomic_load(&t->begun) + 1;
	struct record record = record_of(kind, epoch);

	atomic_store(&t->begun, epoch);
	must(record_change(seg, &record, &err));
	atomic_store(&t->done, epoch);
}

static void remove_one(struct seg *seg, struct told *t)
{
	uint64_t epoch = atomic_load(&t->begun);

	atomic_store(&t->gone_begun, epoch);
	must(store_remove(seg, random() % 2, &err));
	atomic_store(&t->gone_done, epoch);
	seg_put(seg);
}

static void page_bytes(uint8_t page[PAGE], uint64_t number)
{
	for (size_t i = 0; i < PAGE; i++)
		page[i] = (uint8_t)(number * 31 + i % 251 + 1);
}

static void own_and_give(ramp_segment_t id, struct told *t)
{
	uint64_t epoch = atomic_load(&t->begun) + 1;
	struct seg *seg;

	atomic_store(&t->begun, epoch);
	must(store_create(store, id, RECORD_OWNED, epoch, &seg, &err));
	atomic_store(&t->done, epoch);
	for (long i = random() % 20; i > 0; i--) {
		change(seg, t, RECORD_GIVEN);
		change(seg, t, RECORD_OWNED);
	}
	remove_one(seg, t);
}

static void pull_all(struct seg *seg)
{
	uint64_t first, count, len;
	uint8_t *base;

	must(seg_map(seg, &base, &len, &err));
	while ((first = pages_next_remote(seg, (uint64_t)random() % PAGES)) != UINT64_MAX ||
	       (first = pages_next_remote(seg, 0)) != UINT64_MAX) {
		count = pages_claim(seg, first, 1 + (uint64_t)random() % 8);
		for (uint64_t p = first; p < first + count; p++)
			page_bytes(base + p * PAGE, p);
		if (random() % 5)
			pages_arrive(seg, first, count);
		else
			pages_give_back(seg, first, count);
	}
	seg_unmap(seg);
}

static void take_and_pull(ramp_segment_t id, struct told *t)
{
	const struct data_range range = {0, PAGES * PAGE};
	struct seg *seg;

	must(store_create(store, id, RECORD_NONE, 0, &seg, &err));
	must(reserve_memory(seg, PAGES * PAGE, &range, 1, 3 * PAGE, &err));
	must(pages_prepare(seg, PAGES * PAGE, &err));
	if (random() % 2)
		must(pages_mark_remote(seg, 0, PAGES, &err));
	else
		must(pages_mark_all_remote(seg, &err));
	change(seg, t, RECORD_TAKEN);
	reserve_release_slack(seg);
	pull_all(seg);
	pages_settle(seg);
	change(seg, t, RECORD_OWNED);
	remove_one(seg, t);
}

static void live(unsigned seed)
{
	srandom(seed);
	if (store_open(memory_dir(), MEMORY_CAPACITY, &store, &err))
		must(-err.code);
	for (;;) {
		long which = random() % SEGMENTS;
		ramp_segment_t id = MEMORY_ID + (uint64_t)which;
		struct seg *seg = store_find(store, id);

		if (seg)
			remove_one(seg, &told[which]);
		else if (random() % 2)
			own_and_give(id, &told[which]);
		else
			take_and_pull(id, &told[which]);
	}
}

static void check_pages(struct seg *seg)
{
	uint8_t want[PAGE], got[PAGE];
	uint64_t missing = 0;

	for (uint64_t p = 0; p < PAGES; p++) {
		enum page_state state = pages_get(seg, p);

		ck_assert(state == PAGE_LOCAL || state == PAGE_REMOTE);
		missing += state == PAGE_REMOTE;
		if (state == PAGE_REMOTE)
			continue;
		page_bytes(want, p);
		ck_assert_int_eq(pread(seg_fd(seg), got, PAGE, (off_t)(p * PAGE)), PAGE);
		ck_assert_msg(!memcmp(want, got, PAGE), "page %lu is LOCAL without its data", p);
	}
	ck_assert_uint_eq(pages_missing(seg), missing);
}

static void check_one(ramp_segment_t id, const struct told *t)
{
	struct seg *seg = store_find(store, id);
	uint64_t begun = atomic_load(&t->begun), done = atomic_load(&t->done);
	struct record got, want;

	if (!seg) {
		/* never made, or in the middle of its removal, or not made again yet */
		ck_assert(done == 0 || atomic_load(&t->gone_begun) >= done);
		return;
	}
	ck_assert(!seg_damaged(seg));
	record_get(seg, &got);
	ck_assert_int_ne(got.kind, RECORD_NONE);
	ck_assert_uint_le(got.epoch, begun);
	ck_assert_uint_ge(got.epoch, done);
	ck_assert_uint_gt(got.epoch, atomic_load(&t->gone_done));
	want = record_of(got.kind, got.epoch);
	/* the first record of an owned segment is store_create's */
	if (got.k.source_id || got.kind != RECORD_OWNED) {
		ck_assert(ramp_attempt_equal(got.k, want.k));
		ck_assert_uint_eq(got.peer, want.peer);
		ck_assert_uint_eq(got.peer_inc, want.peer_inc);
		ck_assert_int_eq(got.unchanged, want.unchanged);
		ck_assert_uint_eq(got.size, want.size);
	}
	if (got.kind == RECORD_TAKEN)
		check_pages(seg);
	seg_put(seg);
}

/* From here on the state that was found counts. */
static void begin_from_what_is_there(ramp_segment_t id, struct told *t)
{
	struct seg *seg = store_find(store, id);
	struct record got;

	if (!seg)
		return;
	record_get(seg, &got);
	atomic_store(&t->done, got.epoch);
	seg_put(seg);
}

START_TEST(a_kill_leaves_what_was_reached)
{
	struct store_space empty, left;
	pid_t child;
	int status;

	told = mmap(NULL, sizeof(*told) * SEGMENTS, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(told, MAP_FAILED);
	memory_fresh(MEMORY_CAPACITY);
	store = memory_open();
	store_space(store, &empty);
	store_close(store);
	srandom(1);
	for (int i = 0; i < KILLS; i++) {
		child = fork();
		if (child == 0)
			live((unsigned)i);
		usleep((useconds_t)(random() % LONGEST));
		kill(child, SIGKILL);
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert(WIFSIGNALED(status));
		store = memory_open();
		for (unsigned s = 0; s < SEGMENTS; s++) {
			check_one(MEMORY_ID + s, &told[s]);
			begin_from_what_is_there(MEMORY_ID + s, &told[s]);
		}
		store_close(store);
	}
	/* and nothing has leaked */
	store = memory_open();
	for (unsigned s = 0; s < SEGMENTS; s++) {
		struct seg *seg = store_find(store, MEMORY_ID + s);

		if (seg)
			remove_one(seg, &told[s]);
	}
	store_space(store, &left);
	ck_assert_uint_eq(left.used_bytes, empty.used_bytes);
	ck_assert_uint_gt(atomic_load(&told[0].begun), KILLS);
	store_close(store);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("memory_kill");
	TCase *c = tcase_create("kill");

	tcase_set_timeout(c, 240);
	tcase_add_test(c, a_kill_leaves_what_was_reached);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	int rc = memory_namespace();

	return rc ? rc : memory_run(suite());
}
