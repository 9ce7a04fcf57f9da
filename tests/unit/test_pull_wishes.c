/*
 * Ranges that are fetched before the rest: those that programs wait for, and hints.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "pull/link.h"
#include "pull_world.h"

static struct world w;

/* The first pages of the first reads. */
static _Atomic uint64_t posts[64];
static _Atomic unsigned n_posts;

int __real_link_post(struct link *link, struct pulled *pulled, uint64_t first, uint64_t count,
		     const struct fault_waiter *waiter, uint8_t *bounce);
int __wrap_link_post(struct link *link, struct pulled *pulled, uint64_t first, uint64_t count,
		     const struct fault_waiter *waiter, uint8_t *bounce);
int __wrap_link_post(struct link *link, struct pulled *pulled, uint64_t first, uint64_t count,
		     const struct fault_waiter *waiter, uint8_t *bounce)
{
	unsigned n = atomic_fetch_add(&n_posts, 1);

	if (n < 64)
		atomic_store(&posts[n], first);
	return __real_link_post(link, pulled, first, count, waiter, bounce);
}

static _Atomic unsigned orders_done;
static _Atomic int order_result;
static _Atomic uint64_t order_lost;

static void order_done(void *arg, int result, uint64_t lost)
{
	ck_assert_ptr_eq(arg, &w);
	atomic_store(&order_result, result);
	atomic_store(&order_lost, lost);
	atomic_fetch_add(&orders_done, 1);
}

static struct pull_order *order(uint64_t first, uint64_t count)
{
	struct pull_order *order =
		pull_order_begin(w.t_pull, w.t_seg, first, count, order_done, &w);

	ck_assert_ptr_nonnull(order);
	return order;
}

/* Waits for the one order that is under way. */
static int order_wait(struct pull_order *order)
{
	wait_until(atomic_load(&orders_done) == 1);
	ck_assert(!pull_order_end(order));
	atomic_store(&orders_done, 0);
	return atomic_load(&order_result);
}

static uint64_t missing_in(uint64_t first, uint64_t count)
{
	uint64_t n = 0;

	for (uint64_t page = first; page < first + count; page++)
		n += pages_get(w.t_seg, page) != PAGE_LOCAL;
	return n;
}

/* Of a segment that is pulled on demand: the range comes, and nothing else. */
START_TEST(an_order_brings_its_range_alone)
{
	struct pull_order *never;
	struct pull_status status;

	world_open_with(&w, 16 * MIB, false, false);
	ck_assert_int_eq(order_wait(order(700, 1000)), 0);
	ck_assert_uint_eq(missing_in(700, 1000), 0);
	ck_assert_uint_eq(pages_missing(w.t_seg), 4096 - 1000);
	ck_assert_int_eq(order_wait(order(700, 1000)), 0); /* it is there */
	pull_status(w.t_pull, &status);
	ck_assert_uint_eq(status.prefetch_pages, 1000);

	/* One that is given up brings no more, and is not told. */
	atomic_store(&w.held, true);
	never = order(0, 100);
	usleep(50000);
	ck_assert(pull_order_end(never));
	atomic_store(&w.held, false);

	/* Up to the end, however far the range goes. */
	ck_assert_int_eq(order_wait(order(4000, UINT64_MAX)), 0);
	ck_assert_uint_eq(missing_in(4000, 96), 0);
	world_close(&w);
}
END_TEST

/* The source does not answer: the pages of an order come by a write. */
START_TEST(an_order_sees_what_others_bring)
{
	struct pull_order *waits;
	uint8_t bytes[2 * PAGE] = {1};

	world_open(&w, MIB);
	world_write_all(&w);
	world_take(&w, true);
	atomic_store(&w.held, true);
	world_begin(&w, false);
	waits = order(5, 2);
	ck_assert_int_eq(pull_cut_begin(w.t_pull, w.t_seg, 5 * PAGE, sizeof(bytes)), 0);
	ck_assert_int_eq(pwrite(seg_fd(w.t_seg), bytes, sizeof(bytes), 5 * PAGE), sizeof(bytes));
	pull_cut_end(w.t_pull, w.t_seg, 5 * PAGE, sizeof(bytes), sizeof(bytes));
	ck_assert_int_eq(order_wait(waits), 0);
	atomic_store(&w.held, false);
	world_close(&w);
}
END_TEST

START_TEST(an_order_counts_the_pages_that_are_lost)
{
	world_open_with(&w, MIB, false, false);
	ck_assert_int_eq(order_wait(order(0, 10)), 0);
	world_source_stop(&w);
	world_source_start(&w, WORLD_INCARNATION + 1);
	ck_assert_int_eq(order_wait(order(5, 20)), -EIO);
	ck_assert_uint_eq(atomic_load(&order_lost), 15);
	ck_assert_int_eq(order_wait(order(0, 10)), 0);
	world_close(&w);
}
END_TEST

START_TEST(what_is_hinted_at_is_asked_for_before_the_rest)
{
	const uint64_t pages = 16 * MIB / PAGE, last = pages - 512;
	const uint64_t want[] = {pages / 4, last, pages / 2, 0};
	struct pull_order *waits;

	world_streams = 1;
	world_open(&w, 16 * MIB);
	world_write_all(&w);
	world_take(&w, true);
	/* Before the pull has begun. The newest hint goes first, and an order before it. */
	pull_hint(w.t_pull, w.t_seg, pages / 2, 512);
	pull_hint(w.t_pull, w.t_seg, last, UINT64_MAX);
	pull_order_end(order(pages / 8, 512));
	waits = order(pages / 4, 512);
	world_begin(&w, true);
	world_wait_finished(&w);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_uint_eq(atomic_load(&posts[i]), want[i]);
	ck_assert_int_eq(order_wait(waits), 0);
	world_check(&w);
	world_close(&w);
}
END_TEST

/* On demand alone a hint brings its range, and no page more; many are forgotten, and harmless. */
START_TEST(a_hint_is_followed_on_demand_too)
{
	world_open_with(&w, 16 * MIB, false, false);
	pull_hint(w.t_pull, w.t_seg, 100, 50);
	wait_until(missing_in(100, 50) == 0);
	usleep(20000);
	ck_assert_uint_eq(pages_missing(w.t_seg), 4096 - 50);
	atomic_store(&w.held, true);
	for (uint64_t i = 0; i < 100; i++)
		pull_hint(w.t_pull, w.t_seg, 4000 - i, 1);
	pull_hint(w.t_pull, w.t_seg, 5000, 1); /* behind the end */
	atomic_store(&w.held, false);
	ck_assert_int_eq(order_wait(order(0, 600)), 0);
	ck_assert_uint_ge(pages_missing(w.t_seg), 4096 - 650 - 20);
	world_close(&w);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("pull_wishes");
	TCase *c = tcase_create("pull_wishes");

	tcase_set_timeout(c, 60);
	tcase_add_test(c, an_order_brings_its_range_alone);
	tcase_add_test(c, an_order_sees_what_others_bring);
	tcase_add_test(c, an_order_counts_the_pages_that_are_lost);
	tcase_add_test(c, what_is_hinted_at_is_asked_for_before_the_rest);
	tcase_add_test(c, a_hint_is_followed_on_demand_too);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	int rc = memory_namespace();

	return rc ? rc : memory_run(suite());
}
