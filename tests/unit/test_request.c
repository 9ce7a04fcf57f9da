/*
 * How long a request waits: for a gate, for pages, and when a source counts as silent. This file
 * stands in for the clock, the pull and the segment.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "lib/run_suite.h"
#include "mount/request.h"

#define SECOND UINT64_C(1000)

static uint64_t now_ms;
static bool pulling;
static struct pull_progress progress;
static struct mount mount_double;
static struct parked_request r;
static bool copying;
static int references;

uint64_t __wrap_park_now_ms(void);
uint64_t __wrap_park_now_ms(void)
{
	return now_ms;
}

int __wrap_pull_progress(struct pull *pull, ramp_segment_t id, struct pull_progress *out);
int __wrap_pull_progress(struct pull *pull, ramp_segment_t id, struct pull_progress *out)
{
	(void)pull;
	(void)id;
	*out = progress;
	return pulling ? 0 : -ENOENT;
}

struct seg *__wrap_store_find(struct store *store, ramp_segment_t id);
struct seg *__wrap_store_find(struct store *store, ramp_segment_t id)
{
	(void)store;
	(void)id;
	references++;
	return (struct seg *)&references;
}

void __wrap_seg_put(struct seg *seg);
void __wrap_seg_put(struct seg *seg)
{
	(void)seg;
	references--;
}

bool __wrap_seg_copying(struct seg *seg);
bool __wrap_seg_copying(struct seg *seg)
{
	(void)seg;
	return copying;
}

static void setup(void)
{
	copying = false;
	references = 0;
	now_ms = 1000 * SECOND;
	pulling = true;
	progress = (struct pull_progress){0};
	r = (struct parked_request){.mount = &mount_double, .parked = {.since_ms = now_ms}};
}

/* Returns the result of the looks in the next `ms`: 0 where the request waited all the time. */
static int looks_for(uint64_t ms, bool gate)
{
	for (uint64_t end = now_ms + ms; now_ms < end; now_ms += PARK_TICK_MS) {
		int rc = -EAGAIN;

		if (request_judge(&r, &rc, gate) == PARK_DONE)
			return rc;
		ck_assert_int_eq(rc, -EAGAIN);
	}
	return 0;
}

START_TEST(a_source_that_is_silent_is_given_up_after_five_seconds)
{
	uint64_t from = now_ms;

	progress.source_silent = true;
	ck_assert_int_eq(looks_for(60 * SECOND, false), -EHOSTDOWN);
	ck_assert_uint_ge(now_ms - from, REQUEST_SILENT_MS);
	ck_assert_uint_le(now_ms - from, REQUEST_SILENT_MS + 2 * PARK_TICK_MS);
}
END_TEST

/* Between its looks the request waits for a worker; only the step there sees the pages. */
START_TEST(a_silent_source_is_given_up_on_a_worker_too)
{
	uint64_t from = now_ms;
	int rc = 0;

	progress.source_silent = true;
	while (rc == 0 && now_ms - from < 60 * SECOND) {
		rc = -EAGAIN;
		r.needs_worker = true;
		ck_assert_int_eq(request_judge(&r, &rc, false), PARK_WAIT);
		r.needs_worker = false;
		rc = looks_for(PARK_TICK_MS, false);
	}
	ck_assert_int_eq(rc, -EHOSTDOWN);
	ck_assert_uint_le(now_ms - from, REQUEST_SILENT_MS + 2 * PARK_TICK_MS);
}
END_TEST

START_TEST(a_source_that_answers_is_waited_for)
{
	ck_assert_int_eq(looks_for(60 * SECOND, false), 0);
	pulling = false; /* the pull is about to begin */
	ck_assert_int_eq(looks_for(60 * SECOND, false), 0);
}
END_TEST

/* Pages of other requests, or its own, came all the time: a source that is silent just now has not
   been silent for five seconds. */
START_TEST(silence_begins_with_the_last_page)
{
	uint64_t from;

	for (int i = 0; i < 20; i++) {
		progress.heard_ms = from = now_ms;
		progress.source_silent = i % 2;
		ck_assert_int_eq(looks_for(SECOND, false), 0);
	}
	progress.source_silent = true;
	ck_assert_int_eq(looks_for(60 * SECOND, false), -EHOSTDOWN);
	ck_assert_uint_ge(now_ms - from, REQUEST_SILENT_MS);
}
END_TEST

START_TEST(a_closed_gate_is_no_silence)
{
	uint64_t from;

	progress.source_silent = true;
	ck_assert_int_eq(looks_for(4 * SECOND, false), 0);
	ck_assert_int_eq(looks_for(8 * SECOND, true), 0);
	from = now_ms;
	ck_assert_int_eq(looks_for(60 * SECOND, false), -EHOSTDOWN);
	ck_assert_uint_ge(now_ms - from, REQUEST_SILENT_MS);
	setup();
	from = now_ms;
	ck_assert_int_eq(looks_for(60 * SECOND, true), -EBUSY);
	ck_assert_uint_ge(now_ms - from, REQUEST_GATE_MS);
}
END_TEST

START_TEST(a_copy_is_waited_for_to_its_end)
{
	uint64_t from;

	copying = true;
	ck_assert_int_eq(looks_for(3600 * SECOND, true), 0);
	copying = false; /* and programs are not let in again */
	from = now_ms;
	ck_assert_int_eq(looks_for(60 * SECOND, true), -EBUSY);
	ck_assert_uint_le(now_ms - from, REQUEST_GATE_MS + 2 * PARK_TICK_MS);
	ck_assert_int_eq(references, 0);
}
END_TEST

START_TEST(who_is_killed_waits_for_no_copy)
{
	copying = true;
	ck_assert_int_eq(looks_for(3600 * SECOND, true), 0);
	r.parked.interrupted = true;
	r.caller = -1; /* no thread */
	ck_assert_int_eq(looks_for(SECOND, true), -EINTR);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("request");
	TCase *tc = tcase_create("waiting");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, a_source_that_is_silent_is_given_up_after_five_seconds);
	tcase_add_test(tc, a_silent_source_is_given_up_on_a_worker_too);
	tcase_add_test(tc, a_source_that_answers_is_waited_for);
	tcase_add_test(tc, silence_begins_with_the_last_page);
	tcase_add_test(tc, a_closed_gate_is_no_silence);
	tcase_add_test(tc, a_copy_is_waited_for_to_its_end);
	tcase_add_test(tc, who_is_killed_waits_for_no_copy);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
