/*
 * Page states: the drawing of pages.h, word borders, sparse maps, restarts, and threads that race.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory_fixture.h"

#define PAGE	    UINT64_C(4096)
#define MIB	    (UINT64_C(1) << 20)
#define TIB	    (UINT64_C(1) << 40)
#define MODEL_PAGES 70000u /* several chunks of the map */
#define RACERS	    3
#define RACE_PAGES  5000u
#define RACE_BYTES  (RACE_PAGES * PAGE)

static struct store *store;
static struct ramp_err err;

static struct seg *reserve(uint64_t size)
{
	struct seg *seg;

	memory_fresh(MEMORY_CAPACITY);
	store = memory_open();
	ck_assert_int_eq(store_create(store, MEMORY_ID, RECORD_NONE, 1, &seg, &err), 0);
	ck_assert_int_eq(ftruncate(seg_fd(seg), (off_t)size), 0);
	ck_assert_int_eq(pages_prepare(seg, size, &err), 0);
	return seg;
}

static void take(struct seg *seg)
{
	struct record record = {.kind = RECORD_TAKEN, .epoch = 2, .peer = 2, .peer_inc = 5};

	ck_assert_int_eq(record_change(seg, &record, &err), 0);
}

static void done(struct seg *seg)
{
	seg_put(seg);
	store_close(store);
}

static struct seg *restart(struct seg *seg)
{
	seg_put(seg);
	store_close(store);
	store = memory_open();
	seg = store_find(store, MEMORY_ID);
	ck_assert_ptr_nonnull(seg);
	ck_assert(!seg_damaged(seg));
	return seg;
}

START_TEST(a_page_goes_through_the_drawing)
{
	struct seg *seg = reserve(100 * PAGE);

	ck_assert_int_eq(pages_get(seg, 40), PAGE_LOCAL);
	ck_assert_int_eq(pages_mark_remote(seg, 40, 30, &err), 0);
	ck_assert_uint_eq(pages_missing(seg), 30);
	take(seg);

	/* REMOTE -> IN_FLIGHT -> LOCAL */
	ck_assert_uint_eq(pages_claim(seg, 39, 5), 0);
	ck_assert_uint_eq(pages_claim(seg, 40, 5), 5);
	ck_assert_uint_eq(pages_claim(seg, 40, 5), 0);
	ck_assert_int_eq(pages_get(seg, 44), PAGE_IN_FLIGHT);
	pages_arrive(seg, 40, 3);
	ck_assert_int_eq(pages_get(seg, 42), PAGE_LOCAL);
	ck_assert_uint_eq(pages_missing(seg), 27);
	/* an arrival of pages that are not in flight changes nothing */
	pages_arrive(seg, 60, 5);
	ck_assert_int_eq(pages_get(seg, 60), PAGE_REMOTE);
	/* IN_FLIGHT -> REMOTE */
	pages_give_back(seg, 40, 60);
	ck_assert_int_eq(pages_get(seg, 43), PAGE_REMOTE);
	ck_assert_int_eq(pages_get(seg, 42), PAGE_LOCAL);
	ck_assert_uint_eq(pages_missing(seg), 27);
	/* REMOTE | IN_FLIGHT -> LOST -> (cut) IN_FLIGHT -> LOCAL */
	ck_assert_uint_eq(pages_claim(seg, 43, 1), 1);
	ck_assert_uint_eq(pages_lose_all(seg), 26); /* a page in flight then is a writer's */
	pages_give_back(seg, 43, 1);
	ck_assert_uint_eq(pages_lose_all(seg), 1);
	ck_assert_uint_eq(pages_lost(seg), 27);
	ck_assert_uint_eq(pages_missing(seg), 27);
	pages_arrive(seg, 43, 1);
	ck_assert_int_eq(pages_get(seg, 43), PAGE_LOST);
	ck_assert_uint_eq(pages_claim(seg, 43, 1), 0);
	ck_assert_uint_eq(pages_claim_cut(seg, 43, 2), 2);
	ck_assert_uint_eq(pages_lost(seg), 25);
	pages_arrive(seg, 43, 2);
	ck_assert_int_eq(pages_get(seg, 44), PAGE_LOCAL);
	ck_assert_uint_eq(pages_missing(seg), 25);
	/* beyond the map */
	ck_assert_int_eq(pages_get(seg, 5000), PAGE_LOCAL);
	ck_assert_uint_eq(pages_claim(seg, 5000, 1), 0);
	done(seg);
}
END_TEST

/* Makes the same changes to an array of bytes, and asks both every question. */
static void check_against(struct seg *seg, const uint8_t *model)
{
	uint64_t missing = 0, lost = 0, next_missing = UINT64_MAX, next_remote = UINT64_MAX;
	uint64_t run = 0;

	for (uint64_t p = MODEL_PAGES; p-- > 0;) {
		enum page_state state;

		missing += model[p] != PAGE_LOCAL;
		lost += model[p] == PAGE_LOST;
		if (model[p] != PAGE_LOCAL)
			next_missing = p;
		if (model[p] == PAGE_REMOTE)
			next_remote = p;
		run = p + 1 < MODEL_PAGES && model[p + 1] == model[p] ? run + 1 : 1;
		ck_assert_int_eq(pages_get(seg, p), model[p]);
		if (p % 17 && p > 40 && p < MODEL_PAGES - 40)
			continue;
		ck_assert_uint_eq(pages_run(seg, p, MODEL_PAGES - p, &state), run);
		ck_assert_int_eq(state, model[p]);
		if (p + 3 < MODEL_PAGES)
			ck_assert_uint_eq(pages_run(seg, p, 3, &state), run < 3 ? run : 3);
		ck_assert_uint_eq(pages_next_missing(seg, p), next_missing);
		ck_assert_uint_eq(pages_next_remote(seg, p), next_remote);
		ck_assert_int_eq(pages_local(seg, p, 9), next_missing >= p + 9);
	}
	ck_assert_uint_eq(pages_missing(seg), missing);
	ck_assert_uint_eq(pages_lost(seg), lost);
}

static void model_change(uint8_t *model, uint64_t first, uint64_t count, int from, int to)
{
	for (uint64_t p = first; p < first + count; p++)
		if (model[p] == from)
			model[p] = (uint8_t)to;
}

static void model_step(struct seg *seg, uint8_t *model)
{
	uint64_t first = (uint64_t)random() % MODEL_PAGES;
	uint64_t count = (uint64_t)random() % (random() % 2 ? 100 : 20000) + 1, won = 0;

	if (count > MODEL_PAGES - first)
		count = MODEL_PAGES - first;
	switch (random() % 4) {
	case 0:
	case 1:
		while (won < count && model[first + won] == PAGE_REMOTE)
			won++;
		ck_assert_uint_eq(pages_claim(seg, first, count), won);
		model_change(model, first, won, PAGE_REMOTE, PAGE_IN_FLIGHT);
		break;
	case 2:
		pages_arrive(seg, first, count);
		model_change(model, first, count, PAGE_IN_FLIGHT, PAGE_LOCAL);
		break;
	default:
		pages_give_back(seg, first, count);
		model_change(model, first, count, PAGE_IN_FLIGHT, PAGE_REMOTE);
	}
}

START_TEST(any_sequence_of_changes_is_what_a_plain_array_says)
{
	static uint8_t model[MODEL_PAGES];
	struct seg *seg = reserve(MODEL_PAGES * PAGE);

	srandom((unsigned)_i);
	for (int i = 0; i < 12; i++) {
		uint64_t first = (uint64_t)random() % MODEL_PAGES;
		uint64_t count = (uint64_t)random() % (MODEL_PAGES - first) / 4 + 1;

		ck_assert_int_eq(pages_mark_remote(seg, first, count, &err), 0);
		model_change(model, first, count, PAGE_LOCAL, PAGE_REMOTE);
	}
	check_against(seg, model);
	take(seg);
	for (int i = 0; i < 300; i++)
		model_step(seg, model);
	check_against(seg, model);

	/* a restart: pages that were in flight are remote again */
	seg = restart(seg);
	model_change(model, 0, MODEL_PAGES, PAGE_IN_FLIGHT, PAGE_REMOTE);
	check_against(seg, model);

	pages_lose_all(seg);
	model_change(model, 0, MODEL_PAGES, PAGE_REMOTE, PAGE_LOST);
	seg = restart(seg);
	check_against(seg, model);
	done(seg);
}
END_TEST

START_TEST(a_sparse_tebibyte_costs_what_is_marked)
{
	struct store_space before, after;
	enum page_state state;
	struct seg *seg = reserve(TIB);
	uint64_t pages = TIB / PAGE, last = pages - 1;

	store_space(store, &before);
	ck_assert_int_eq(pages_mark_remote(seg, 0, 1, &err), 0);
	ck_assert_int_eq(pages_mark_remote(seg, pages / 2, 1, &err), 0);
	ck_assert_int_eq(pages_mark_remote(seg, last, 1, &err), 0);
	take(seg);
	store_space(store, &after);
	ck_assert_uint_le(before.free_bytes - after.free_bytes, 3 * PAGE);

	ck_assert_uint_eq(pages_missing(seg), 3);
	ck_assert_uint_eq(pages_next_remote(seg, 1), pages / 2);
	ck_assert_uint_eq(pages_next_missing(seg, pages / 2 + 1), last);
	ck_assert_uint_eq(pages_run(seg, 1, UINT64_MAX, &state), pages / 2 - 1);
	ck_assert(pages_local(seg, 1, pages / 2 - 1));
	ck_assert(!pages_local(seg, 1, pages / 2));
	seg = restart(seg);
	ck_assert_uint_eq(pages_missing(seg), 3);
	ck_assert_uint_eq(pages_claim(seg, last, 10), 1);
	pages_arrive(seg, 0, pages);
	ck_assert_uint_eq(pages_missing(seg), 2);
	store_space(store, &after);
	ck_assert_uint_le(before.free_bytes - after.free_bytes, 3 * PAGE);
	done(seg);
}
END_TEST

START_TEST(a_map_that_finds_no_room_says_so)
{
	struct seg *seg = reserve(TIB);
	struct store_space space;
	struct seg *filler;
	uint64_t at = 0;
	uint8_t page[4096] = {1};

	ck_assert_int_eq(pages_mark_remote(seg, 0, 1, &err), 0);
	ck_assert_int_eq(store_create(store, MEMORY_ID + 1, RECORD_OWNED, 1, &filler, &err), 0);
	while (pwrite(seg_fd(filler), page, sizeof(page), (off_t)at) == sizeof(page))
		at += sizeof(page);
	store_space(store, &space);
	ck_assert_uint_eq(space.free_bytes, 0);

	ck_assert_int_eq(pages_mark_remote(seg, TIB / PAGE / 2, 1, &err), -ENOSPC);
	ck_assert_int_eq(pages_mark_all_remote(seg, &err), -ENOSPC);
	/* and questions about the parts without room are answered without touching them */
	ck_assert_int_eq(pages_get(seg, TIB / PAGE / 2), PAGE_LOCAL);
	ck_assert_uint_eq(pages_claim(seg, TIB / PAGE / 2, 1), 0);
	ck_assert_uint_eq(pages_missing(seg), 1);
	ck_assert_int_eq(pages_mark_remote(seg, 5, 1, &err), 0);
	seg_put(filler);
	done(seg);
}
END_TEST

START_TEST(all_remote_and_settled)
{
	struct stat st;
	char path[400];
	struct seg *seg = reserve(1000 * PAGE);

	ck_assert_int_eq(pages_mark_remote(seg, 10, 20, &err), 0);
	ck_assert_int_eq(ftruncate(seg_fd(seg), 2000 * PAGE - 1), 0);
	ck_assert_int_eq(pages_prepare(seg, 2000 * PAGE - 1, &err), 0);
	ck_assert_uint_eq(pages_missing(seg), 20);
	ck_assert(!pages_unlisted(seg));
	ck_assert_int_eq(pages_mark_all_remote(seg, &err), 0);
	ck_assert_uint_eq(pages_missing(seg), 2000);
	take(seg);
	seg = restart(seg);
	ck_assert(pages_unlisted(seg));
	ck_assert_uint_eq(pages_missing(seg), 2000);
	pages_settle(seg); /* not yet: nothing happens */
	ck_assert_uint_eq(pages_claim(seg, 0, 5000), 2000);
	pages_arrive(seg, 0, 5000);
	ck_assert_uint_eq(pages_missing(seg), 0);
	pages_settle(seg);
	pages_settle(seg);
	ck_assert_int_eq(pages_get(seg, 3), PAGE_LOCAL);
	ck_assert(!pages_unlisted(seg));
	snprintf(path, sizeof(path), "%s/store/%llu.state", memory_dir(),
		 (unsigned long long)MEMORY_ID);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_eq(st.st_size, 4096);
	seg = restart(seg);
	ck_assert_uint_eq(pages_missing(seg), 0);
	done(seg);
}
END_TEST

START_TEST(what_is_behind_the_end_of_the_file_is_nobodys)
{
	struct seg *seg = reserve(60 * MIB);
	uint8_t *base, there;
	uint64_t len;

	ck_assert_int_eq(pages_mark_all_remote(seg, &err), 0);
	take(seg);
	ck_assert_int_eq(ftruncate(seg_fd(seg), 2 * PAGE + 1), 0);

	/* a cut of the file takes no place from pages that are to come */
	ck_assert_int_eq(seg_map(seg, &base, &len, &err), 0);
	ck_assert_uint_eq(len, 3 * PAGE);
	ck_assert_int_eq(mincore(base + 60 * MIB - PAGE, PAGE, &there), 0);
	seg_unmap(seg);

	ck_assert_uint_eq(pages_claim(seg, 2, 10), 10);
	seg = restart(seg);
	ck_assert_uint_eq(pages_missing(seg), 3);
	ck_assert_uint_eq(pages_claim(seg, 0, UINT64_MAX), 3);
	done(seg);
}
END_TEST

/* A daemon is killed when all pages are here, and perhaps the record says so already. */
START_TEST(a_map_that_a_kill_left_goes_at_the_next_start)
{
	const struct record owned = {.kind = RECORD_OWNED, .epoch = 3};
	struct stat st;
	char path[400];
	struct seg *seg = reserve(1000 * PAGE);

	snprintf(path, sizeof(path), "%s/store/%llu.state", memory_dir(),
		 (unsigned long long)MEMORY_ID);
	ck_assert_int_eq(pages_mark_all_remote(seg, &err), 0);
	take(seg);
	ck_assert_uint_gt(pages_claim(seg, 0, UINT64_MAX), 0);
	pages_arrive(seg, 0, UINT64_MAX);
	seg = restart(seg);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_gt(st.st_size, 4096); /* the pull's end looks at it */
	ck_assert_int_eq(record_change(seg, &owned, &err), 0);
	seg = restart(seg);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_eq(st.st_size, 4096);
	ck_assert_uint_eq(pages_missing(seg), 0);
	ck_assert_int_eq(pages_get(seg, 3), PAGE_LOCAL);
	done(seg);
}
END_TEST

/* A page that is lost is not forgotten. */
START_TEST(a_map_with_lost_pages_stays)
{
	const struct record owned = {.kind = RECORD_OWNED, .epoch = 3};
	struct seg *seg = reserve(100 * PAGE);

	ck_assert_int_eq(pages_mark_remote(seg, 7, 2, &err), 0);
	take(seg);
	ck_assert_uint_eq(pages_lose_all(seg), 2);
	ck_assert_int_eq(record_change(seg, &owned, &err), 0);
	seg = restart(seg);
	ck_assert_uint_eq(pages_lost(seg), 2);
	ck_assert_int_eq(pages_get(seg, 7), PAGE_LOST);
	done(seg);
}
END_TEST

/* ---- threads ---- */

struct race {
	struct seg *seg;
	uint8_t *base;
	atomic_uint pulled[RACE_PAGES];
	atomic_int finished;
	unsigned seed;
};

/* Claims at random, writes the page's number into the page, and lets it arrive, or gives up. */
static void *puller(void *arg)
{
	struct race *race = arg;
	unsigned seed = __atomic_add_fetch(&race->seed, 1, __ATOMIC_RELAXED);

	while (pages_missing(race->seg)) {
		uint64_t first = pages_next_remote(race->seg, (uint64_t)rand_r(&seed) % RACE_PAGES);
		uint64_t won = first == UINT64_MAX ? 0
						   : pages_claim(race->seg, first,
								 1 + (uint64_t)rand_r(&seed) % 40);

		if (won && rand_r(&seed) % 4 == 0) {
			pages_give_back(race->seg, first, won);
			continue;
		}
		for (uint64_t p = first; p < first + won; p++) {
			memcpy(race->base + p * PAGE, &p, sizeof(p));
			atomic_fetch_add(&race->pulled[p], 1);
		}
		if (won)
			pages_arrive(race->seg, first, won);
	}
	return NULL;
}

/* Checks without any lock that a LOCAL page has its data. */
static void *reader(void *arg)
{
	struct race *race = arg;
	unsigned seed = 77;
	uint64_t p, got;

	while (!atomic_load(&race->finished)) {
		p = (uint64_t)rand_r(&seed) % RACE_PAGES;
		if (pages_get(race->seg, p) != PAGE_LOCAL)
			continue;
		memcpy(&got, race->base + p * PAGE, sizeof(got));
		ck_assert_uint_eq(got, p);
	}
	return NULL;
}

START_TEST(each_page_is_pulled_once_and_seen_whole)
{
	static struct race race;
	pthread_t threads[RACERS], looker;
	uint64_t len;

	race.seg = reserve(RACE_BYTES);
	ck_assert_int_eq(reserve_memory(race.seg, RACE_BYTES, NULL, 0, 0, &err), 0);
	ck_assert_int_eq(pages_mark_all_remote(race.seg, &err), 0);
	take(race.seg);
	ck_assert_int_eq(seg_map(race.seg, &race.base, &len, &err), 0);
	pthread_create(&looker, NULL, reader, &race);
	for (int i = 0; i < RACERS; i++)
		pthread_create(&threads[i], NULL, puller, &race);
	for (int i = 0; i < RACERS; i++)
		pthread_join(threads[i], NULL);
	/* while the reader may still look at the map */
	pages_settle(race.seg);
	atomic_store(&race.finished, 1);
	pthread_join(looker, NULL);
	for (uint64_t p = 0; p < RACE_PAGES; p++)
		ck_assert_uint_eq(atomic_load(&race.pulled[p]), 1);
	seg_unmap(race.seg);
	done(race.seg);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("memory_pages");
	TCase *c = tcase_create("pages");

	tcase_set_timeout(c, 120);
	tcase_add_test(c, a_page_goes_through_the_drawing);
	tcase_add_loop_test(c, any_sequence_of_changes_is_what_a_plain_array_says, 1, 9);
	tcase_add_test(c, a_sparse_tebibyte_costs_what_is_marked);
	tcase_add_test(c, a_map_that_finds_no_room_says_so);
	tcase_add_test(c, all_remote_and_settled);
	tcase_add_test(c, what_is_behind_the_end_of_the_file_is_nobodys);
	tcase_add_test(c, a_map_that_a_kill_left_goes_at_the_next_start);
	tcase_add_test(c, a_map_with_lost_pages_stays);
	tcase_add_test(c, each_page_is_pulled_once_and_seen_whole);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	int rc = memory_namespace();

	return rc ? rc : memory_run(suite());
}
