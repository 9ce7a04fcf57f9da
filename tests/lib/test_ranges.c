/* The ranges of the mapping table: cutting, counting, joining, and the refusals of a full table. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/ranges.h"
#include "lib/run_suite.h"

#define PAGE 4096u
#define BASE UINT64_C(0x200000000000)

static struct ranges t;

static void prepare(void)
{
	memset(&t, 0, sizeof(t));
}

static struct range pages(uint64_t first, uint64_t count)
{
	return (struct range){.addr = BASE + first * PAGE,
			      .len = count * PAGE,
			      .segment = 5000,
			      .extent = BASE,
			      .count = 1,
			      .prot = 3};
}

static void add(uint64_t first, uint64_t count)
{
	struct range r = pages(first, count);

	ck_assert_int_eq(ranges_add(&t, &r), 0);
}

/* Checks that the table lists exactly these first/count pairs, ended by a count of 0. */
static void expect(const uint64_t *want)
{
	uint32_t n = 0;

	for (; want[1]; want += 2, n++) {
		ck_assert_uint_lt(n, t.n);
		ck_assert_uint_eq(t.at[n].addr, BASE + want[0] * PAGE);
		ck_assert_uint_eq(t.at[n].len, want[1] * PAGE);
	}
	ck_assert_uint_eq(t.n, n);
}

START_TEST(ranges_stay_sorted_and_refuse_overlap)
{
	struct range r;

	add(10, 2);
	add(0, 2);
	add(4, 2);
	expect((uint64_t[]){0, 2, 4, 2, 10, 2, 0, 0});
	r = pages(5, 1);
	ck_assert_int_eq(ranges_add(&t, &r), -EEXIST);
	r = pages(3, 20);
	ck_assert_int_eq(ranges_add(&t, &r), -EEXIST);
	r = pages(2, 2);
	ck_assert_int_eq(ranges_add(&t, &r), 0);
}
END_TEST

START_TEST(isolate_cuts_at_both_ends)
{
	uint32_t first, last;

	add(0, 10);
	ck_assert_int_eq(ranges_isolate(&t, BASE + 3 * PAGE, BASE + 5 * PAGE, &first, &last), 0);
	expect((uint64_t[]){0, 3, 3, 2, 5, 5, 0, 0});
	ck_assert_uint_eq(first, 1);
	ck_assert_uint_eq(last, 2);
}
END_TEST

START_TEST(isolate_of_a_hole_is_empty)
{
	uint32_t first, last;

	add(0, 2);
	add(6, 2);
	ck_assert_int_eq(ranges_isolate(&t, BASE + 3 * PAGE, BASE + 5 * PAGE, &first, &last), 0);
	ck_assert_uint_eq(first, last);
	expect((uint64_t[]){0, 2, 6, 2, 0, 0});
}
END_TEST

START_TEST(gaps_are_found_one_after_the_other)
{
	uint64_t start, end;

	add(2, 2);
	add(6, 1);
	ck_assert(ranges_gap(&t, BASE, BASE + 10 * PAGE, &start, &end));
	ck_assert_uint_eq(start, BASE);
	ck_assert_uint_eq(end, BASE + 2 * PAGE);
	ck_assert(ranges_gap(&t, end, BASE + 10 * PAGE, &start, &end));
	ck_assert_uint_eq(start, BASE + 4 * PAGE);
	ck_assert_uint_eq(end, BASE + 6 * PAGE);
	ck_assert(ranges_gap(&t, end, BASE + 10 * PAGE, &start, &end));
	ck_assert_uint_eq(start, BASE + 7 * PAGE);
	ck_assert_uint_eq(end, BASE + 10 * PAGE);
	ck_assert(!ranges_gap(&t, BASE + 2 * PAGE, BASE + 4 * PAGE, &start, &end));
}
END_TEST

START_TEST(join_undoes_a_cut_but_keeps_differences)
{
	uint32_t first, last;

	add(0, 9);
	ck_assert_int_eq(ranges_isolate(&t, BASE + 3 * PAGE, BASE + 6 * PAGE, &first, &last), 0);
	t.at[first].count = 2;
	ranges_join(&t);
	expect((uint64_t[]){0, 3, 3, 3, 6, 3, 0, 0});
	t.at[1].count = 1;
	ranges_join(&t);
	expect((uint64_t[]){0, 9, 0, 0});
}
END_TEST

START_TEST(a_full_table_refuses_and_changes_nothing)
{
	uint32_t first, last;
	struct range r;

	for (uint64_t i = 0; i < RANGES_MAX; i++)
		add(i * 4, 3);
	r = pages(RANGES_MAX * 4, 1);
	ck_assert_int_eq(ranges_add(&t, &r), -ENOMEM);
	ck_assert_int_eq(ranges_isolate(&t, BASE + PAGE, BASE + 2 * PAGE, &first, &last), -ENOMEM);
	ck_assert_uint_eq(t.n, RANGES_MAX);
	ck_assert_uint_eq(t.at[0].len, 3 * PAGE);
	ck_assert_int_eq(ranges_isolate(&t, BASE, BASE + 7 * PAGE, &first, &last), 0);
	ck_assert_uint_eq(last - first, 2);
}
END_TEST

START_TEST(as_many_pieces_as_a_process_can_have_mappings_for_find_room)
{
	ck_assert_uint_ge(RANGES_MAX, 32768);
	for (uint64_t i = 0; i < 32768; i++)
		add(i * 2, 1);
	for (uint32_t i = 0; i < t.n; i += 3)
		t.at[i].session = 1;
	ranges_remove_session(&t, 1);
	ck_assert_uint_eq(t.n, 32768 - (32768 + 2) / 3);
	for (uint32_t i = 0; i < t.n; i++)
		ck_assert_uint_eq(t.at[i].session, 0);
}
END_TEST

/* Compares the table with a plain array that holds a count for every page. */
START_TEST(random_counting_agrees_with_a_page_map)
{
	static unsigned int model[200];
	static struct ranges joined;
	uint32_t first, last;

	memset(model, 0, sizeof(model));
	srandom(7);
	for (int round = 0; round < 20000; round++) {
		uint64_t at = (uint64_t)random() % 190, n = 1 + (uint64_t)random() % 10;
		uint64_t start = BASE + at * PAGE, end = start + n * PAGE, from, to;
		bool more = random() % 2;

		ck_assert_int_eq(ranges_isolate(&t, start, end, &first, &last), 0);
		for (uint32_t left = last - first; left; left--) {
			t.at[first].count += more ? 1 : 0;
			if (more || --t.at[first].count)
				first++;
			else
				ranges_remove(&t, first);
		}
		while (more && ranges_gap(&t, start, end, &from, &to))
			add((from - BASE) / PAGE, (to - from) / PAGE);
		ranges_join_near(&t, start, end);
		joined = t; /* nothing is left to join elsewhere */
		ranges_join(&joined);
		ck_assert_uint_eq(joined.n, t.n);
		for (uint64_t i = at; i < at + n; i++)
			model[i] = more ? model[i] + 1 : model[i] - (model[i] > 0);
	}
	for (uint64_t i = 0; i < 200; i++) {
		uint32_t index = ranges_first(&t, BASE + i * PAGE);
		bool there = index < t.n && t.at[index].addr <= BASE + i * PAGE;

		ck_assert_uint_eq(there ? t.at[index].count : 0, model[i]);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ranges");
	TCase *tc = tcase_create("table");

	tcase_add_checked_fixture(tc, prepare, NULL);
	tcase_add_test(tc, ranges_stay_sorted_and_refuse_overlap);
	tcase_add_test(tc, isolate_cuts_at_both_ends);
	tcase_add_test(tc, isolate_of_a_hole_is_empty);
	tcase_add_test(tc, gaps_are_found_one_after_the_other);
	tcase_add_test(tc, join_undoes_a_cut_but_keeps_differences);
	tcase_add_test(tc, as_many_pieces_as_a_process_can_have_mappings_for_find_room);
	tcase_add_test(tc, a_full_table_refuses_and_changes_nothing);
	tcase_add_test(tc, random_counting_agrees_with_a_page_map);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
