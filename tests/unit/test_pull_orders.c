/*
 * Orders of steps that two threads seldom find by themselves: one is held between two of its steps
 * until the other has come by. And leftovers where a step fails.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/kernel.h"
#include "memory/pages.h"
#include "memory/reserve.h"
#include "pull/give_up.h"
#include "pull/link.h"
#include "pull/pulled.h"
#include "pull_world.h"

#define COME_BY_US 50000 /* the pager has seen all that it can see, and sleeps */

static struct world w;

static int want_until_known(uint64_t page)
{
	int rc, looks = 0;

	while ((rc = pull_want(w.t_pull, w.t_seg, page, 1)) == -EAGAIN && looks++ < WAIT_MS)
		usleep(1000);
	return rc;
}

/* ---- threads that are held: pull.cmake has --wrap for these ---- */

struct hold {
	_Atomic bool armed, reached, go;
};

static void hold_here(struct hold *hold)
{
	if (!atomic_exchange(&hold->armed, false))
		return;
	atomic_store(&hold->reached, true);
	while (!atomic_load(&hold->go))
		usleep(1000);
}

static void let_go(struct hold *hold)
{
	atomic_store(&hold->go, true);
}

static struct hold before_arrival; /* of many pages at once */
static _Atomic uint64_t many;

void __real_pages_arrive(struct seg *seg, uint64_t first, uint64_t count);
void __wrap_pages_arrive(struct seg *seg, uint64_t first, uint64_t count);

void __wrap_pages_arrive(struct seg *seg, uint64_t first, uint64_t count)
{
	if (seg == w.t_seg && count >= atomic_load(&many))
		hold_here(&before_arrival);
	__real_pages_arrive(seg, first, count);
}

static struct hold before_post;	      /* of a prefetch that fails */
static _Atomic int posts_left = 1000; /* of the prefetch: more fail */

#define POSTED_MAX 256
static ramp_segment_t posted[POSTED_MAX]; /* the segments of reads ahead, in order */
static _Atomic unsigned n_posted;

int __real_link_post(struct link *link, struct pulled *pulled, uint64_t first, uint64_t count,
		     const struct fault_waiter *waiter, uint8_t *bounce);
int __wrap_link_post(struct link *link, struct pulled *pulled, uint64_t first, uint64_t count,
		     const struct fault_waiter *waiter, uint8_t *bounce);

int __wrap_link_post(struct link *link, struct pulled *pulled, uint64_t first, uint64_t count,
		     const struct fault_waiter *waiter, uint8_t *bounce)
{
	if (link->links->class == TP_PREFETCH && n_posted < POSTED_MAX)
		posted[n_posted++] = seg_id(pulled->seg); /* by the one thread that prefetches */
	if (link->links->class != TP_PREFETCH || atomic_fetch_sub(&posts_left, 1) > 0)
		return __real_link_post(link, pulled, first, count, waiter, bounce);
	hold_here(&before_post);
	return -EAGAIN;
}

static struct hold before_claim; /* of page 12, by a writer */

uint64_t __real_pages_claim_cut(struct seg *seg, uint64_t first, uint64_t max);
uint64_t __wrap_pages_claim_cut(struct seg *seg, uint64_t first, uint64_t max);

uint64_t __wrap_pages_claim_cut(struct seg *seg, uint64_t first, uint64_t max)
{
	if (seg == w.t_seg && first == 12)
		hold_here(&before_claim);
	return __real_pages_claim_cut(seg, first, max);
}

static _Atomic bool seen_before_lost;

uint64_t __real_pages_lose_all(struct seg *seg);
uint64_t __wrap_pages_lose_all(struct seg *seg);

/* Pages that were given back are REMOTE here, and both threads are told to look. */
uint64_t __wrap_pages_lose_all(struct seg *seg)
{
	if (seg == w.t_seg && atomic_exchange(&seen_before_lost, false)) {
		atomic_store(&w.held, true);
		ck_assert_int_eq(pull_want(w.t_pull, seg, 9, 1), -EAGAIN);
		pull_prefetch_all(w.t_pull, MEMORY_ID);
		usleep(COME_BY_US);
	}
	return __real_pages_lose_all(seg);
}

static struct hold before_end; /* of the pull */

bool __real_programs_pulled(struct programs *p, struct seg *seg);
bool __wrap_programs_pulled(struct programs *p, struct seg *seg);

bool __wrap_programs_pulled(struct programs *p, struct seg *seg)
{
	if (seg == w.t_seg)
		hold_here(&before_end);
	return __real_programs_pulled(p, seg);
}

static __thread bool gives_up;
static _Atomic unsigned found_to_give_up;
static _Atomic bool may_give_up;

struct pulled *__real_pulled_of(struct pull *pull, const struct seg *seg);
struct pulled *__wrap_pulled_of(struct pull *pull, const struct seg *seg);

struct pulled *__wrap_pulled_of(struct pull *pull, const struct seg *seg)
{
	struct pulled *pulled = __real_pulled_of(pull, seg);

	if (gives_up) {
		atomic_fetch_add(&found_to_give_up, 1);
		while (!atomic_load(&may_give_up))
			usleep(1000);
	}
	return pulled;
}

static _Atomic unsigned maps_to_fail;

int __real_seg_map(struct seg *seg, uint8_t **base, uint64_t *len, struct ramp_err *err);
int __wrap_seg_map(struct seg *seg, uint8_t **base, uint64_t *len, struct ramp_err *err);

int __wrap_seg_map(struct seg *seg, uint8_t **base, uint64_t *len, struct ramp_err *err)
{
	unsigned left = seg == w.s_seg ? atomic_load(&maps_to_fail) : 0;

	if (left) {
		atomic_store(&maps_to_fail, left - 1);
		return ramp_err_set(err, ENOMEM, "no memory for a mapping");
	}
	return __real_seg_map(seg, base, len, err);
}

static _Atomic uint64_t stopped_ms; /* 0: it runs */

uint64_t __real_pull_now_ms(void);
uint64_t __wrap_pull_now_ms(void);

uint64_t __wrap_pull_now_ms(void)
{
	uint64_t now = atomic_load(&stopped_ms);

	return now ? now : __real_pull_now_ms();
}

static _Atomic uint64_t stopped_us; /* 0: it runs */

uint64_t __real_pull_now_us(void);
uint64_t __wrap_pull_now_us(void);

uint64_t __wrap_pull_now_us(void)
{
	uint64_t now = atomic_load(&stopped_us);

	return now ? now : __real_pull_now_us();
}

/* ---- several segments of one source ---- */

#define AHEAD_MIB 8u

/* Another segment that is pulled ahead, under a key of its own; its bytes are those of the one that there
   is. */
static struct seg *also_pull(unsigned nth, enum pull_rank rank, uint64_t limit_bytes_s)
{
	struct pull_source source = {
		.node = w.s.id,
		.incarnation = WORLD_INCARNATION,
		.key = tp_key_of_attempt(OTHER_ID + nth, (struct ramp_attempt){5, 9 + nth}),
		.prefetch = true,
		.alone = true,
		.rank = rank,
		.limit_bytes_s = limit_bytes_s,
		.batch = 77,
	};
	struct ramp_err err = {0};
	struct seg *seg;

	ck_assert_int_eq(serve_grant(w.s_serve, w.s_seg, &source.key, w.t.id, &err), 0);
	ck_assert_int_eq(store_create(w.t_store, OTHER_ID + nth, RECORD_NONE, 0, &seg, &err), 0);
	ck_assert_int_eq(reserve_memory(seg, w.size, &(struct data_range){0, w.size}, 1, 0, &err),
			 0);
	ck_assert_int_eq(pages_prepare(seg, w.size, &err), 0);
	ck_assert_int_eq(pages_mark_all_remote(seg, &err), 0);
	ck_assert_msg(pull_begin(w.t_pull, seg, &source, &err) == 0, "%s", err.text);
	return seg;
}

static void wait_for_others(unsigned count)
{
	for (int i = 0; i < WAIT_MS && atomic_load(&w.finished_other) < count; i++)
		usleep(1000);
	ck_assert_uint_eq(atomic_load(&w.finished_other), count);
}

static int first_of(ramp_segment_t id)
{
	for (unsigned i = 0; i < n_posted; i++)
		if (posted[i] == id)
			return (int)i;
	return INT_MAX;
}

static int last_of(ramp_segment_t id)
{
	int last = -1;

	for (unsigned i = 0; i < n_posted; i++)
		if (posted[i] == id)
			last = (int)i;
	return last;
}

/* ---- the orders ---- */

/* Pages that were stored into after they were read ahead go before a prefetch, that before a pre-copy; and
   segments of one kind take turns, whichever came first. */
START_TEST(pages_that_programs_need_sooner_are_asked_for_first)
{
	const enum pull_rank ranks[] = {PULL_AHEAD, PULL_PREFETCH, PULL_PREFETCH, PULL_DIRTY};
	struct seg *segs[4];

	world_open(&w, AHEAD_MIB * MIB);
	world_write_all(&w);
	n_posted = 0;
	atomic_store(&w.held, true); /* no connection is ready before all have begun */
	for (unsigned i = 0; i < 4; i++)
		segs[i] = also_pull(i, ranks[i], 0);
	atomic_store(&w.held, false);
	wait_for_others(4);
	ck_assert_int_lt(last_of(OTHER_ID + 3), first_of(OTHER_ID + 1));
	ck_assert_int_lt(last_of(OTHER_ID + 3), first_of(OTHER_ID + 2));
	ck_assert_int_lt(last_of(OTHER_ID + 1), first_of(OTHER_ID));
	ck_assert_int_lt(last_of(OTHER_ID + 2), first_of(OTHER_ID));
	ck_assert_int_eq(abs(first_of(OTHER_ID + 1) - first_of(OTHER_ID + 2)), 1);
	w.t_seg = segs[0]; /* world_close puts it */
	for (unsigned i = 1; i < 4; i++)
		seg_put(segs[i]);
	world_close(&w);
}
END_TEST

/* Two segments share the limit of their request, of their node, or of their source; a page that is waited for does
   not count. */
START_TEST(a_limit_holds_reads_ahead_and_no_demand)
{
	const uint64_t limit = 64 * MIB, burst = limit / 50 / PAGE;
	const uint64_t page = AHEAD_MIB * MIB / PAGE - 1;
	struct seg *segs[2];
	uint64_t here = 0;

	world_limit_bytes_s = _i == 1 ? limit : 0;
	world_open(&w, AHEAD_MIB * MIB);
	world_write_all(&w);
	atomic_store(&stopped_us, __real_pull_now_us());
	if (_i == 2)
		pull_source_limit(w.t_pull, w.s.id, limit);
	for (unsigned i = 0; i < 2; i++)
		segs[i] = also_pull(i, PULL_PREFETCH, _i == 0 ? limit : 0);
	for (int i = 0; i < WAIT_MS && here + HUGE_PAGES / 4 < burst; i++) {
		usleep(1000);
		here = 2 * page + 2 - pages_missing(segs[0]) - pages_missing(segs[1]);
	}
	usleep(COME_BY_US);
	here = 2 * page + 2 - pages_missing(segs[0]) - pages_missing(segs[1]);
	ck_assert_uint_gt(here, 0);
	ck_assert_uint_le(here, burst);
	for (int i = 0; i < WAIT_MS && pull_want(w.t_pull, segs[1], page, 1); i++)
		usleep(1000);
	ck_assert(pages_local(segs[1], page, 1));
	ck_assert_uint_gt(pages_missing(segs[1]), 0);
	atomic_store(&stopped_us, 0);
	wait_for_others(2);
	w.t_seg = segs[0]; /* world_close puts it */
	seg_put(segs[1]);
	world_close(&w);
}
END_TEST

/* A source keeps the limit of what it sends by itself, too. */
START_TEST(a_source_sends_ahead_no_faster_than_its_limit)
{
	const uint64_t began = __real_pull_now_us();

	node_limit_bytes_s = 32 * MIB;
	world_open_with(&w, 16 * MIB, false, true);
	world_wait_finished(&w);
	node_limit_bytes_s = 0;
	ck_assert_uint_ge(__real_pull_now_us() - began, 400000); /* 16 MiB, less what it saved up */
	world_check(&w);
	world_close(&w);
}
END_TEST

/*
 * A hole that reaches beyond the read: the prefetch claims its pages and makes them
 * LOCAL. A page fault that finds one of them claimed is told when that is over, though nothing else
 * comes: page 1 is a writer's meanwhile.
 */
START_TEST(a_page_fault_in_a_hole_that_is_being_taken_goes_on)
{
	pthread_t thread;

	world_open(&w, 16 * MIB);
	world_take(&w, false);
	world_attach(&w);
	ck_assert_int_eq(pull_cut_begin(w.t_pull, w.t_seg, PAGE, PAGE), 0);
	atomic_store(&posts_left, 1); /* page 0, and the hole reaches to the end */
	atomic_store(&many, 1000);
	atomic_store(&before_arrival.armed, true);
	world_begin(&w, true);
	wait_until(atomic_load(&before_arrival.reached));
	thread = world_touch(&w, 2000);
	world_wait_for_fault(&w, 1);
	usleep(COME_BY_US);
	let_go(&before_arrival);
	ck_assert_uint_eq(world_touched(thread), 0);
	ck_assert_uint_eq(pages_missing(w.t_seg), 1);
	pull_cut_end(w.t_pull, w.t_seg, PAGE, PAGE, PAGE);
	world_wait_finished(&w);
	world_close(&w);
}
END_TEST

START_TEST(a_page_fault_of_what_could_not_be_asked_for_is_asked_for)
{
	pthread_t thread;

	world_open(&w, MIB);
	world_write_all(&w);
	world_take(&w, true);
	world_attach(&w);
	atomic_store(&posts_left, 0);
	atomic_store(&before_post.armed, true);
	world_begin(&w, true);
	wait_until(atomic_load(&before_post.reached));
	thread = world_touch(&w, 100);
	world_wait_for_fault(&w, 1);
	usleep(COME_BY_US);
	let_go(&before_post);
	ck_assert_uint_eq(world_touched(thread), world_byte(100, 0));
	atomic_store(&posts_left, 1000);
	pull_prefetch_all(w.t_pull, MEMORY_ID);
	world_wait_finished(&w);
	world_check(&w);
	world_close(&w);
}
END_TEST

static void *cut_five(void *arg)
{
	(void)arg;
	ck_assert_int_eq(pull_cut_begin(w.t_pull, w.t_seg, 10 * PAGE, 5 * PAGE), -EAGAIN);
	return NULL;
}

/* A writer that finds another in its way gives back the pages that it has claimed. */
START_TEST(a_page_fault_of_what_a_writer_gives_back_is_asked_for)
{
	pthread_t thread, writer;

	world_open(&w, MIB);
	world_write_all(&w);
	world_take(&w, true);
	world_attach(&w);
	world_begin(&w, false);
	ck_assert_int_eq(want_until_known(20), 0);
	ck_assert_int_eq(pull_cut_begin(w.t_pull, w.t_seg, 12 * PAGE, PAGE), 0);
	atomic_store(&before_claim.armed, true);
	ck_assert_int_eq(pthread_create(&writer, NULL, cut_five, NULL), 0);
	wait_until(atomic_load(&before_claim.reached));
	thread = world_touch(&w, 10);
	world_wait_for_fault(&w, 1);
	usleep(COME_BY_US);
	let_go(&before_claim);
	pthread_join(writer, NULL);
	ck_assert_uint_eq(world_touched(thread), world_byte(10, 0));
	pull_cut_end(w.t_pull, w.t_seg, 12 * PAGE, PAGE, PAGE);
	world_close(&w);
}
END_TEST

/* The prefetch has asked for all the rest, and sleeps until it is told of more. */
START_TEST(what_a_writer_gives_back_is_prefetched)
{
	world_open(&w, MIB);
	world_write_all(&w);
	world_take(&w, true);
	ck_assert_int_eq(pull_cut_begin(w.t_pull, w.t_seg, 250 * PAGE, 6 * PAGE), 0);
	world_begin(&w, true);
	wait_until(pages_missing(w.t_seg) == 6);
	usleep(COME_BY_US);
	pull_cut_end(w.t_pull, w.t_seg, 250 * PAGE, 6 * PAGE, _i ? 2 * PAGE : 0);
	if (_i)
		ck_assert(pages_local(w.t_seg, 250, 2));
	world_wait_finished(&w);
	ck_assert_uint_eq(pages_missing(w.t_seg), 0);
	world_close(&w);
}
END_TEST

/* The source had lost it, and is not asked again: it may know nothing of that key any more. */
START_TEST(what_a_writer_gives_back_after_the_end_is_lost_again)
{
	struct ramp_err err = {0};

	world_open(&w, MIB);
	world_write_all(&w);
	ck_assert_int_eq(pages_prepare(w.s_seg, w.size, &err), 0);
	ck_assert_int_eq(pages_mark_remote(w.s_seg, 9, 1, &err), 0);
	ck_assert_uint_eq(pages_lose(w.s_seg, 9, 1), 1);
	world_take(&w, true);
	world_begin(&w, true);
	world_wait_finished(&w);
	ck_assert_uint_eq(atomic_load(&w.lost), 1);
	serve_revoke(w.s_serve, &w.key);

	ck_assert_int_eq(pull_cut_begin(w.t_pull, w.t_seg, 9 * PAGE, PAGE), 0);
	for (int i = 0; i < 20; i++) { /* a request waits for it meanwhile */
		ck_assert_int_eq(pull_want(w.t_pull, w.t_seg, 9, 1), -EAGAIN);
		usleep(10000);
	}
	atomic_store(&seen_before_lost, true);
	pull_cut_end(w.t_pull, w.t_seg, 9 * PAGE, PAGE, 0);
	ck_assert(!atomic_load(&seen_before_lost));
	atomic_store(&w.held, false);
	ck_assert_int_eq(want_until_known(9), -EIO);
	ck_assert_uint_eq(pages_lost(w.t_seg), 1);
	world_close(&w);
}
END_TEST

/*
 * Page faults of one page, in several places: each is resolved where it was, whether it was read
 * before the page was asked for, while it was under way, or when it had come. Nothing is mapped
 * where no page fault waits.
 */
START_TEST(who_waits_for_a_page_elsewhere_gets_it_too)
{
	pthread_t first, second, third;
	uint8_t *other, *another;

	world_open(&w, MIB);
	world_write_all(&w);
	world_take(&w, true);
	world_attach(&w);
	other = world_attach_other(&w);
	another = world_attach_other(&w);
	world_attach_other(&w);
	world_begin(&w, false);
	ck_assert_int_eq(want_until_known(20), 0);
	atomic_store(&w.held, true);
	first = world_touch(&w, 7);
	world_wait_for_fault(&w, 1);
	second = world_touch_at(other + 7 * PAGE);
	third = world_touch_at(another + 7 * PAGE + 5);
	world_wait_for_fault(&w, 3);
	usleep(COME_BY_US);
	if (_i) { /* the page that they wait for is asked for again */
		atomic_store(&w.cut_after, 1);
		atomic_store(&w.held, false);
		wait_until(atomic_load(&w.cuts) >= 1);
		atomic_store(&w.cut_after, 0);
	}
	atomic_store(&w.held, false);
	ck_assert_uint_eq(world_touched(first), world_byte(7, 0));
	ck_assert_uint_eq(world_touched(second), world_byte(7, 0));
	ck_assert_uint_eq(world_touched(third), world_byte(7, 5));
	ck_assert_uint_eq(atomic_load(&w.t_programs.resolves), 3);
	ck_assert(world_page_is(other + 20 * PAGE, 20)); /* LOCAL, and not mapped yet */
	ck_assert_uint_eq(atomic_load(&w.t_programs.resolves), 4);
	world_close(&w);
}
END_TEST

/* The pager has read a page fault by a client that goes while the page is on its way, or waits to
   be asked for, a writer having claimed it. */
START_TEST(a_page_fault_outlives_the_session_by_which_it_was_read)
{
	pthread_t thread;

	world_open(&w, MIB);
	world_write_all(&w);
	world_take(&w, true);
	world_attach(&w);
	world_begin(&w, false);
	if (_i)
		ck_assert_int_eq(pull_cut_begin(w.t_pull, w.t_seg, 7 * PAGE, PAGE), 0);
	else
		ck_assert_int_eq(want_until_known(20), 0);
	atomic_store(&w.held, true);
	thread = world_touch(&w, 7);
	world_wait_for_fault(&w, 1);
	usleep(COME_BY_US);
	world_attach_again(&w);
	if (_i)
		pull_cut_end(w.t_pull, w.t_seg, 7 * PAGE, PAGE, 0);
	atomic_store(&w.held, false);
	ck_assert_uint_eq(world_touched(thread), world_byte(7, 0));
	world_close(&w);
}
END_TEST

/* ---- a writer among pages that come ---- */

static int begin_slowly_and_cut(void)
{
	world_open(&w, 64 * MIB);
	world_write_all(&w);
	world_take(&w, true);
	world_attach(&w);
	atomic_store(&w.slow_after, 4 * MIB);
	world_begin(&w, true);
	wait_until(atomic_load(&w.slowed));
	return pull_cut_begin(w.t_pull, w.t_seg, 0, w.size);
}

/* There is always a page under way somewhere. The writer never gives up: its clock is stopped. */
START_TEST(a_truncate_beside_a_prefetch_does_not_wait_for_all_pages)
{
	uint64_t last = 64 * MIB / PAGE - 1;
	struct pull_status status;
	int rc, looks = 0;

	atomic_store(&stopped_ms, __real_pull_now_ms());
	ck_assert_int_eq(begin_slowly_and_cut(), -EAGAIN);
	atomic_store(&w.slow_after, 0);
	/* A program that touches one of them gets it. */
	ck_assert(world_page_is(w.t_programs.map + last * PAGE, last));
	while ((rc = pull_cut_begin(w.t_pull, w.t_seg, 0, w.size)) == -EAGAIN && looks++ < WAIT_MS)
		usleep(1000);
	ck_assert_int_eq(rc, 0);
	pull_status(w.t_pull, &status);
	ck_assert_uint_le(status.prefetch_pages, last / 4);
	ck_assert_uint_eq(status.demand_pages, 1);
	pull_cut_end(w.t_pull, w.t_seg, 0, w.size, w.size);
	world_wait_finished(&w);
	atomic_store(&stopped_ms, 0);
	world_close(&w);
}
END_TEST

/* Nothing else wakes the prefetch, which has left the pages to the writer. */
START_TEST(a_truncate_that_is_given_up_leaves_its_pages_to_the_prefetch)
{
	ck_assert_int_eq(begin_slowly_and_cut(), -EAGAIN);
	atomic_store(&w.slow_after, 0);
	world_wait_finished(&w);
	world_check(&w);
	world_close(&w);
}
END_TEST

/* ---- leftovers ---- */

START_TEST(a_source_that_could_not_map_what_has_grown_can_be_freed)
{
	struct ramp_err err = {0};

	world_open(&w, MIB);
	world_write_all(&w);
	world_take(&w, true);
	ck_assert_int_eq(ftruncate(seg_fd(w.s_seg), 2 * MIB), 0);
	atomic_store(&maps_to_fail, 3);
	world_begin(&w, true);
	world_wait_finished(&w);
	ck_assert_uint_eq(atomic_load(&maps_to_fail), 0);
	ck_assert_int_eq(ftruncate(seg_fd(w.s_seg), MIB), 0);
	world_check(&w);
	serve_revoke(w.s_serve, &w.key);
	ck_assert_int_eq(store_remove(w.s_seg, true, &err), 0);
	world_close(&w);
}
END_TEST

/* A daemon that finds it GIVEN, and its own again, while no program touches it. */
START_TEST(what_is_watched_for_lost_pages_can_leave)
{
	struct record record = {.kind = RECORD_OWNED, .epoch = 4};
	struct pull_progress progress;
	struct ramp_err err = {0};

	world_open(&w, MIB);
	world_write_all(&w);
	world_take(&w, true);
	world_begin(&w, false);
	pull_source_over(w.t_pull, 1, WORLD_INCARNATION);
	world_wait_finished(&w);
	ck_assert_int_eq(record_change(w.t_seg, &record, &err), 0);
	record = (struct record){.kind = RECORD_GIVEN, .epoch = 5, .k = {6, 8}, .peer = 3};
	ck_assert_int_eq(record_change(w.t_seg, &record, &err), 0);
	world_target_restart(&w);
	usleep(COME_BY_US);
	record = (struct record){.kind = RECORD_OWNED, .epoch = 7};
	ck_assert_int_eq(record_change(w.t_seg, &record, &err), 0);
	pull_watch_lost(w.t_pull, w.t_seg);
	ck_assert_int_eq(pull_progress(w.t_pull, MEMORY_ID, &progress), 0);

	record = (struct record){.kind = RECORD_GIVEN, .epoch = 8, .k = {7, 9}, .peer = 3};
	ck_assert_int_eq(record_change(w.t_seg, &record, &err), 0);
	wait_until(store_remove(w.t_seg, true, &err) != -EBUSY);
	wait_until(pull_progress(w.t_pull, MEMORY_ID, &progress) == -ENOENT);
	world_close(&w);
}
END_TEST

/* A program that holds its mmap lock. */
static struct programs keeper;

static uint8_t page_of(uint64_t page)
{
	return world_touched(world_touch(&w, page));
}

START_TEST(a_program_that_keeps_the_pager_keeps_no_other)
{
	pthread_t first, second;

	world_open_with(&w, MIB, true, false);
	world_attach_second(&w, &keeper);
	for (unsigned i = 1; i <= 2; i++) { /* it may do that again */
		atomic_store(&keeper.keeps, true);
		first = world_touch_at(keeper.map + i * 16 * PAGE);
		wait_until(atomic_load(&keeper.kept) == i);
		ck_assert_uint_eq(page_of(i * 64), world_byte(i * 64, 0));
		second = world_touch_at(keeper.map + (i * 16 + 8) * PAGE);
		ck_assert_uint_eq(page_of(i * 64 + 32), world_byte(i * 64 + 32, 0));
		ck_assert_uint_eq(atomic_load(&keeper.kept), i);
		ck_assert_uint_eq(atomic_load(&keeper.told), i);
		atomic_store(&keeper.keeps, false);
		ck_assert_uint_eq(world_touched(first), world_byte(i * 16, 0));
		ck_assert_uint_eq(world_touched(second), world_byte(i * 16 + 8, 0));
	}
	world_close(&w);
	world_detach_second(&keeper);
}
END_TEST

START_TEST(a_program_that_keeps_the_prefetch_keeps_no_pull)
{
	world_open(&w, 16 * MIB);
	world_write_all(&w);
	world_take(&w, true);
	world_attach(&w);
	atomic_store(&w.t_programs.keeps_prefetch, true);
	world_begin(&w, true);
	wait_until(atomic_load(&w.t_programs.kept) > 0);
	world_wait_finished(&w);
	world_check(&w);
	atomic_store(&w.t_programs.keeps_prefetch, false);
	world_close(&w);
}
END_TEST

START_TEST(who_is_kept_when_all_ends_uses_nothing_that_is_gone)
{
	pthread_t waits;

	world_open_with(&w, MIB, true, false);
	world_attach_second(&w, &keeper);
	atomic_store(&keeper.keeps, true);
	waits = world_touch_at(keeper.map);
	wait_until(atomic_load(&keeper.kept) == 1);
	if (_i == 1) /* else that is found out at the end */
		ck_assert_uint_eq(page_of(64), world_byte(64, 0));
	world_close(&w);
	atomic_store(&keeper.registered, false);
	atomic_store(&keeper.keeps, false);
	wait_until(atomic_load(&keeper.resolves) == 1);
	usleep(COME_BY_US);
	kernel_uffd_unregister(keeper.uffd, (uintptr_t)keeper.map, keeper.len);
	kernel_uffd_wake(keeper.uffd, (uintptr_t)keeper.map, keeper.len);
	pthread_join(waits, NULL);
	world_detach_second(&keeper);
}
END_TEST

static _Atomic unsigned given_up;

static void *give_up(void *arg)
{
	uint64_t count = 1;

	(void)arg;
	gives_up = true;
	ck_assert_int_eq(pull_give_up(w.t_pull, w.t_seg, false, &count), 0);
	ck_assert_uint_eq(count, 0);
	atomic_fetch_add(&given_up, 1);
	return NULL;
}

/* Two programs give up what has not come when the last page comes: the pull ends before its threads have
   seen that. */
START_TEST(who_gives_up_as_the_pull_ends_is_answered)
{
	pthread_t threads[2];

	world_open_with(&w, MIB, false, false);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, give_up, NULL), 0);
	wait_until(atomic_load(&found_to_give_up) == 2);
	atomic_store(&before_end.armed, true);
	pull_prefetch_all(w.t_pull, MEMORY_ID);
	wait_until(atomic_load(&before_end.reached));
	atomic_store(&may_give_up, true);
	usleep(COME_BY_US);
	let_go(&before_end);
	wait_until(atomic_load(&given_up) == 2);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	world_wait_finished(&w);
	world_check(&w);
	world_close(&w);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("pull_orders");
	TCase *c = tcase_create("orders");

	tcase_set_timeout(c, 60);
	tcase_add_test(c, pages_that_programs_need_sooner_are_asked_for_first);
	tcase_add_loop_test(c, a_limit_holds_reads_ahead_and_no_demand, 0, 3);
	tcase_add_test(c, a_source_sends_ahead_no_faster_than_its_limit);
	tcase_add_test(c, a_page_fault_in_a_hole_that_is_being_taken_goes_on);
	tcase_add_test(c, a_page_fault_of_what_could_not_be_asked_for_is_asked_for);
	tcase_add_test(c, a_page_fault_of_what_a_writer_gives_back_is_asked_for);
	tcase_add_loop_test(c, what_a_writer_gives_back_is_prefetched, 0, 2);
	tcase_add_test(c, what_a_writer_gives_back_after_the_end_is_lost_again);
	tcase_add_loop_test(c, who_waits_for_a_page_elsewhere_gets_it_too, 0, 2);
	tcase_add_loop_test(c, a_page_fault_outlives_the_session_by_which_it_was_read, 0, 2);
	tcase_add_test(c, a_truncate_beside_a_prefetch_does_not_wait_for_all_pages);
	tcase_add_test(c, a_truncate_that_is_given_up_leaves_its_pages_to_the_prefetch);
	tcase_add_test(c, a_source_that_could_not_map_what_has_grown_can_be_freed);
	tcase_add_test(c, what_is_watched_for_lost_pages_can_leave);
	tcase_add_test(c, a_program_that_keeps_the_pager_keeps_no_other);
	tcase_add_test(c, a_program_that_keeps_the_prefetch_keeps_no_pull);
	tcase_add_test(c, who_gives_up_as_the_pull_ends_is_answered);
	tcase_add_loop_test(c, who_is_kept_when_all_ends_uses_nothing_that_is_gone, 0, 2);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	int rc = memory_namespace();

	return rc ? rc : memory_run(suite());
}
