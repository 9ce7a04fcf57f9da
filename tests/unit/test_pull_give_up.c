/*
 * Pages that a program gives up before they have come: they are lost, or zeros, for good.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "pull_world.h"

static struct world w;

static uint64_t give_up(bool zeros)
{
	uint64_t count;

	ck_assert_int_eq(pull_give_up(w.t_pull, w.t_seg, zeros, &count), 0);
	ck_assert_uint_eq(pages_missing(w.t_seg), pages_lost(w.t_seg));
	return count;
}

/* Writes 0xcc over a page that is missing. */
static void write_over(uint64_t page)
{
	uint8_t bytes[PAGE];

	memset(bytes, 0xcc, PAGE);
	ck_assert_int_eq(pull_cut_begin(w.t_pull, w.t_seg, page * PAGE, PAGE), 0);
	ck_assert_int_eq(pwrite(seg_fd(w.t_seg), bytes, PAGE, (off_t)(page * PAGE)), PAGE);
	pull_cut_end(w.t_pull, w.t_seg, page * PAGE, PAGE, PAGE);
}

static uint8_t byte_of(uint64_t page)
{
	uint8_t byte;

	ck_assert_int_eq(pread(seg_fd(w.t_seg), &byte, 1, (off_t)(page * PAGE)), 1);
	return byte;
}

/* A read of page 5 is under way, and nothing comes of it. */
static void hold_a_read(void)
{
	world_open_with(&w, MIB, true, false);
	ck_assert(world_page_is(w.t_programs.map, 0));
	atomic_store(&w.held, true);
	ck_assert_int_eq(pull_want(w.t_pull, w.t_seg, 5, 1), -EAGAIN);
	wait_until(pages_get(w.t_seg, 5) == PAGE_IN_FLIGHT);
}

START_TEST(what_is_given_up_is_lost)
{
	hold_a_read();
	ck_assert_uint_eq(give_up(false), 255);
	ck_assert_uint_eq(pages_lost(w.t_seg), 255);
	world_wait_finished(&w);
	ck_assert_uint_eq(atomic_load(&w.lost), 255);
	ck_assert_int_eq(pull_want(w.t_pull, w.t_seg, 5, 1), -EIO);
	ck_assert_int_eq(pull_want(w.t_pull, w.t_seg, 0, 1), 0);
	ck_assert_int_eq(world_load(w.t_programs.map), world_byte(0, 0));
	ck_assert_int_eq(world_load(w.t_programs.map + 9 * PAGE), -1);
	ck_assert_uint_eq(give_up(true), 0); /* what is lost stays so */
	ck_assert_uint_eq(pages_lost(w.t_seg), 255);

	/* A page that is written there now is not overwritten by the read that was under way. */
	write_over(5);
	atomic_store(&w.held, false);
	usleep(50000);
	ck_assert_uint_eq(byte_of(5), 0xcc);
	ck_assert_uint_eq(pages_lost(w.t_seg), 254);
	ck_assert_uint_eq(atomic_load(&w.finished), 1);
	world_close(&w);
}
END_TEST

START_TEST(what_is_given_up_is_zeros_where_the_program_says_so)
{
	hold_a_read();
	ck_assert_uint_ge(memory_blocks_bytes(w.t_seg), MIB);
	ck_assert_uint_eq(give_up(true), 255);
	ck_assert_uint_eq(pages_lost(w.t_seg), 0);
	world_wait_finished(&w);
	ck_assert_uint_eq(atomic_load(&w.lost), 0);
	wait_until(atomic_load(&w.t_programs.pulled));
	ck_assert_uint_le(memory_blocks_bytes(w.t_seg), MIB / 2); /* they are holes */
	ck_assert_int_eq(world_load(w.t_programs.map + 5 * PAGE), 0);
	ck_assert_int_eq(world_load(w.t_programs.map), world_byte(0, 0));
	w.t_programs.map[5 * PAGE] = 7;
	atomic_store(&w.held, false);
	usleep(50000);
	ck_assert_uint_eq(byte_of(5), 7);
	ck_assert_uint_eq(byte_of(255), 0);
	world_close(&w);
}
END_TEST

/* The pages have bytes of before a pre-copy's last round. */
START_TEST(what_is_given_up_shows_no_old_bytes)
{
	world_open(&w, MIB);
	world_write_all(&w);
	world_take(&w, true);
	memory_fill(w.t_seg, 0xdd, 0, MIB);
	pages_note_old(w.t_seg);
	world_attach(&w);
	world_begin(&w, false);
	ck_assert(world_page_is(w.t_programs.map, 0));
	ck_assert_uint_eq(give_up(_i), 255);
	for (uint64_t page = 1; page < MIB / PAGE; page++) {
		ck_assert_int_eq(world_load(w.t_programs.map + page * PAGE), _i ? 0 : -1);
		ck_assert_int_eq(pull_want(w.t_pull, w.t_seg, page, 1), _i ? 0 : -EIO);
	}
	world_close(&w);
}
END_TEST

/* The next daemon finds it beside the bytes; the source would still serve it. */
START_TEST(what_is_given_up_is_not_pulled_again)
{
	struct pull_status status;

	world_open_with(&w, MIB, false, false);
	write_over(3);
	ck_assert_uint_eq(give_up(false), 255);
	write_over(7);
	world_target_restart(&w);
	atomic_store(&w.finished, 0); /* the life before may have said so or not */
	world_begin(&w, true);
	world_wait_finished(&w);
	usleep(50000);
	ck_assert_uint_eq(pages_lost(w.t_seg), 254);
	ck_assert_uint_eq(byte_of(3), 0xcc);
	ck_assert_uint_eq(byte_of(7), 0xcc);
	pull_status(w.t_pull, &status);
	ck_assert_uint_eq(status.prefetch_pages + status.demand_pages, 0);
	world_close(&w);
}
END_TEST

static void *gives_up(void *zeros)
{
	uint64_t count;
	int rc = pull_give_up(w.t_pull, w.t_seg, zeros != NULL, &count);

	ck_assert_int_eq(rc, 0);
	return NULL;
}

/* Amid a prefetch, by two at once, while a writer has pages: each page is whole, and one of what it may be. */
START_TEST(a_prefetch_is_given_up)
{
	const uint64_t pages = 32 * MIB / PAGE;
	uint64_t zeros = 0, right = 0;
	pthread_t thread[2];
	uint8_t bytes[PAGE];

	world_open_with(&w, 32 * MIB, true, true);
	wait_until(pages_missing(w.t_seg) < pages - 100 || atomic_load(&w.finished));
	for (int i = 0; i < 2; i++)
		pthread_create(&thread[i], NULL, gives_up, &w);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	world_wait_finished(&w);
	ck_assert_uint_eq(pages_missing(w.t_seg), 0);
	for (uint64_t page = 0; page < pages; page++) {
		ck_assert_int_eq(pread(seg_fd(w.t_seg), bytes, PAGE, (off_t)(page * PAGE)), PAGE);
		if (world_page_is(bytes, page))
			right++;
		else if (bytes[0] == 0 && !memcmp(bytes, bytes + 1, PAGE - 1))
			zeros++;
	}
	ck_assert_uint_eq(zeros + right, pages);
	ck_assert_uint_ge(right, 100);
	world_close(&w);
}
END_TEST

/* A writer has claimed pages and fails: they are what the others are. */
START_TEST(a_write_that_fails_leaves_what_was_given_up)
{
	uint64_t count;

	world_open_with(&w, MIB, false, false);
	ck_assert_int_eq(pull_cut_begin(w.t_pull, w.t_seg, 0, 4 * PAGE), 0);
	ck_assert_int_eq(pull_give_up(w.t_pull, w.t_seg, true, &count), 0);
	ck_assert_uint_eq(pages_missing(w.t_seg), 4);
	ck_assert_uint_eq(atomic_load(&w.finished), 0);
	pull_cut_end(w.t_pull, w.t_seg, 0, 4 * PAGE, 0);
	world_wait_finished(&w);
	ck_assert_uint_eq(pages_missing(w.t_seg), 0);
	ck_assert_uint_eq(byte_of(2), 0);
	world_close(&w);
}
END_TEST

START_TEST(what_is_not_pulled_is_not_given_up)
{
	uint64_t count;

	world_open(&w, MIB);
	world_write_all(&w);
	world_take(&w, true);
	ck_assert_int_eq(pull_give_up(w.t_pull, w.t_seg, false, &count), -EAGAIN);
	world_begin(&w, true);
	world_wait_finished(&w);
	ck_assert_uint_eq(give_up(false), 0);
	world_check(&w);
	world_close(&w);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("pull_give_up");
	TCase *c = tcase_create("pull_give_up");

	tcase_set_timeout(c, 60);
	tcase_add_test(c, what_is_given_up_is_lost);
	tcase_add_test(c, what_is_given_up_is_zeros_where_the_program_says_so);
	tcase_add_loop_test(c, what_is_given_up_shows_no_old_bytes, 0, 2);
	tcase_add_test(c, what_is_given_up_is_not_pulled_again);
	tcase_add_loop_test(c, a_prefetch_is_given_up, 0, 5);
	tcase_add_test(c, a_write_that_fails_leaves_what_was_given_up);
	tcase_add_test(c, what_is_not_pulled_is_not_given_up);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	int rc = memory_namespace();

	return rc ? rc : memory_run(suite());
}
