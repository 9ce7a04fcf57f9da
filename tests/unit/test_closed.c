/*
 * A segment is closed to stores while loads continue, handed over from there, or opened again: with programs
 * whose agents can do that, and with older ones; while programs attach, fork, unmap and die, and while the
 * daemon is replaced.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "programs_world.h"

#define THREES UINT64_C(0x0303030303030303)
#define OLDER  13
#define NEWER  16

/* A program with an agent of that kind that has the segment mapped. */
static struct attached begin(struct seg *seg, uint64_t kind, int access_mode)
{
	struct prog_order session = {.op = PROG_SESSION, .value = kind};
	struct attached x = {.seg = seg};

	prog_start(&x.prog, world.socket);
	ck_assert_int_eq(prog_do(&x.prog, &session).result, 0);
	x.addr = world_attach(&x.prog, seg, access_mode);
	return x;
}

static int try_close(struct seg *seg, struct ramp_err *err)
{
	int rc = programs_prelook(world.programs, seg, err);

	rc = rc ? rc : programs_close_ahead(world.programs, seg, err);
	rc = rc ? rc : programs_revoke(world.programs, seg, REVOKE_MS, err);
	rc = rc ? rc : programs_close_stores(world.programs, seg, REVOKE_MS, err);
	if (rc)
		programs_restore(world.programs, seg);
	return rc;
}

static void close_stores(struct seg *seg)
{
	struct ramp_err err = {0};

	must(try_close(seg, &err), &err);
}

/* From closed to the hand-over. */
static void finish(struct seg *seg)
{
	struct ramp_err err = {0};

	must(programs_prelook(world.programs, seg, &err), &err);
	must(programs_revoke(world.programs, seg, REVOKE_MS, &err), &err);
}

static void store_begins(struct attached *x, uint64_t at, uint64_t value)
{
	struct prog_order o = {.op = PROG_STORE, .addr = x->addr + at, .value = value};

	prog_send(&x->prog, &o);
}

static void waits(struct attached *x)
{
	struct prog_report r;

	ck_assert(!prog_wait(&x->prog, &r, BLOCKED_MS));
}

static struct prog_report ends(struct attached *x)
{
	struct prog_report r;

	ck_assert(prog_wait(&x->prog, &r, ANSWER_MS));
	return r;
}

static uint64_t in_file(struct seg *seg, uint64_t at)
{
	uint8_t *bytes = world_contents(seg);
	uint64_t word;

	memcpy(&word, bytes + at, sizeof(word));
	free(bytes);
	return word;
}

/* Loads from each page, but for the first one. */
static void loads(struct attached *x)
{
	for (uint64_t at = RAMP_PAGE_BYTES; at < SEG_BYTES; at += RAMP_PAGE_BYTES)
		ck_assert_uint_eq(prog_load(&x->prog, x->addr + at), THREES);
}

/* A store into the first page waits, until programs_restore. */
static void is_closed(struct attached *x, uint64_t value)
{
	uint64_t before = in_file(x->seg, 0);

	loads(x);
	store_begins(x, 0, value);
	waits(x);
	ck_assert_uint_eq(in_file(x->seg, 0), before);
}

static void is_open(struct attached *x, uint64_t value)
{
	ck_assert_int_eq(ends(x).result, 0);
	ck_assert_uint_eq(in_file(x->seg, 0), value);
	store_begins(x, 0, value + 1);
	ck_assert_int_eq(ends(x).result, 0);
	ck_assert_uint_eq(in_file(x->seg, 0), value + 1);
	loads(x);
}

/* ---- closed, and open again ------------------------------------------------------------------ */

/* 0: no page was touched before; 1: all were loaded; 2: all were stored into. */
START_TEST(loads_go_on_and_a_store_waits)
{
	struct attached x = begin(world_segment("x", 3), NEWER, O_RDWR);

	for (uint64_t at = 0; _i && at < SEG_BYTES; at += RAMP_PAGE_BYTES) {
		prog_load(&x.prog, x.addr + at);
		if (_i == 2) {
			store_begins(&x, at, THREES);
			ck_assert_int_eq(ends(&x).result, 0);
		}
	}
	for (uint64_t n = 10; n < 40; n += 10) {
		close_stores(x.seg);
		is_closed(&x, n);
		programs_restore(world.programs, x.seg);
		is_open(&x, n);
	}
	world_detached(&x);
}
END_TEST

START_TEST(no_byte_changes_while_it_is_closed)
{
	struct attached x = begin(world_segment("x", 0), NEWER, O_RDWR);
	struct prog_order writers = {.op = PROG_WRITERS, .len = SEG_BYTES, .value = 3};
	uint8_t *before, *after;

	writers.addr = x.addr;
	prog_do(&x.prog, &writers);
	for (int i = 0; i < 20; i++) {
		usleep(2000);
		close_stores(x.seg);
		before = world_contents(x.seg);
		usleep(3000);
		if (i % 2)
			finish(x.seg);
		after = world_contents(x.seg);
		ck_assert_int_eq(memcmp(before, after, SEG_BYTES), 0);
		free(before);
		free(after);
		programs_restore(world.programs, x.seg);
	}
	ck_assert_uint_eq(prog_at(&x.prog, PROG_STOP_WRITERS, 0).value, 0);
	world_detached(&x);
}
END_TEST

/* A mapping of which page tables were dropped, not moved away, since it is locked. */
START_TEST(what_is_locked_is_closed_and_opened_too)
{
	struct attached x = begin(world_segment("x", 3), NEWER, O_RDWR);
	struct prog_order lock = {.op = PROG_LOCK, .addr = x.addr, .len = RAMP_PAGE_BYTES};

	prog_do(&x.prog, &lock);
	close_stores(x.seg);
	is_closed(&x, 5);
	if (_i) {
		finish(x.seg);
		waits(&x);
	}
	programs_restore(world.programs, x.seg);
	is_open(&x, 5);
	world_detached(&x);
}
END_TEST

/* Several mappings, of different protections; one of them is unmapped while it is closed. */
START_TEST(parts_of_it)
{
	struct attached x = begin(world_segment("x", 3), NEWER, O_RDWR);
	struct prog_order o = {.op = PROG_MPROTECT,
			       .addr = x.addr + SEG_BYTES / 2,
			       .len = RAMP_PAGE_BYTES,
			       .prot = PROT_READ};

	ck_assert_int_eq(prog_do(&x.prog, &o).result, 0);
	close_stores(x.seg);
	is_closed(&x, 5);
	if (_i == 1)
		finish(x.seg);
	programs_restore(world.programs, x.seg);
	is_open(&x, 5);
	close_stores(x.seg);
	o = (struct prog_order){
		.op = PROG_MUNMAP, .addr = x.addr + SEG_BYTES / 2, .len = SEG_BYTES / 2};
	ck_assert_int_eq(prog_do(&x.prog, &o).result, 0);
	store_begins(&x, 0, 9);
	waits(&x);
	if (_i == 1)
		finish(x.seg);
	programs_restore(world.programs, x.seg);
	ck_assert_int_eq(ends(&x).result, 0);
	ck_assert_uint_eq(in_file(x.seg, 0), 9);
	world_detached(&x);
}
END_TEST

static void await_sessions(uint32_t count)
{
	struct programs_status status = {0};

	for (int i = 0; i < 10000 && status.sessions < count; i++) {
		usleep(1000);
		programs_status(world.programs, &status);
	}
	ck_assert_uint_eq(status.sessions, count);
}

/* ---- the hand-over ---------------------------------------------------------------------------- */

/* 0: it is given up; 1: it is given, and gone; 2: the same, and the daemon is replaced first. */
START_TEST(loads_wait_from_the_hand_over_on)
{
	struct attached x = begin(world_segment("x", 3), NEWER, O_RDWR);
	struct attached y = begin(seg_get(x.seg), NEWER, _i ? O_RDONLY : O_RDWR);
	uint64_t at = y.addr + RAMP_PAGE_BYTES;

	close_stores(x.seg);
	is_closed(&x, 7);
	finish(x.seg);
	prog_send(&y.prog, &(struct prog_order){.op = PROG_LOAD, .addr = at});
	waits(&y);
	waits(&x);
	ck_assert_uint_eq(in_file(x.seg, 0), THREES);
	if (_i == 0) {
		programs_restore(world.programs, x.seg);
		ck_assert_uint_eq(ends(&y).value, THREES);
		is_open(&x, 7);
	} else {
		world_give(x.seg);
		if (_i == 2) {
			world_programs_stop();
			world_programs_start();
			await_sessions(2);
			waits(&x);
		}
		programs_gone(world.programs, x.seg, "b");
		ck_assert_int_eq(ends(&x).result, -SIGBUS);
		ck_assert_int_eq(ends(&y).result, -SIGBUS);
		ck_assert_uint_eq(in_file(x.seg, 0), THREES);
		for (int i = 0; i < 10000 && programs_mapped(world.programs, x.seg); i++)
			usleep(1000);
		ck_assert(!programs_mapped(world.programs, x.seg));
	}
	world_detached(&y);
	world_detached(&x);
}
END_TEST

/* ---- others ----------------------------------------------------------------------------------- */

START_TEST(an_older_agent_is_named_and_nothing_changes)
{
	struct attached x = begin(world_segment("x", 3), NEWER, O_RDWR);
	struct attached y = begin(seg_get(x.seg), OLDER, O_RDWR);
	struct ramp_err err = {0};
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", (int)y.prog.pid);
	ck_assert_int_eq(try_close(x.seg, &err), -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(err.text, pid));
	ck_assert_ptr_nonnull(strstr(err.text, "too old to close it to stores"));
	store_begins(&x, 0, 1);
	is_open(&x, 1);
	store_begins(&y, 0, 3);
	is_open(&y, 3);
	world_detached(&y);
	world_detached(&x);
}
END_TEST

/* A program that attaches while it is closed can load; one with an older agent is refused. */
START_TEST(attached_while_it_is_closed)
{
	struct attached x = begin(world_segment("x", 3), NEWER, O_RDWR), y;
	struct prog_order session = {.op = PROG_SESSION, .value = OLDER};
	struct prog older;

	close_stores(x.seg);
	y = begin(seg_get(x.seg), NEWER, O_RDWR);
	is_closed(&y, 4);
	prog_start(&older, world.socket);
	ck_assert_int_eq(prog_do(&older, &session).result, 0);
	ck_assert_int_eq(
		world_try_attach(&older, x.seg, O_RDWR, PROT_READ | PROT_WRITE, 0, SEG_BYTES)
			.result,
		-EOPNOTSUPP);
	prog_end(&older);
	if (_i) {
		finish(x.seg);
		waits(&y);
	}
	programs_restore(world.programs, x.seg);
	is_open(&y, 4);
	world_detached(&y);
	world_detached(&x);
}
END_TEST

START_TEST(forked_while_it_is_closed)
{
	struct attached x = begin(world_segment("x", 3), NEWER, O_RDWR);
	struct prog_order fork = {
		.op = PROG_FORK, .addr = x.addr + RAMP_PAGE_BYTES, .flags = NEWER};
	struct prog_report r;

	close_stores(x.seg);
	r = prog_do(&x.prog, &fork);
	ck_assert_int_eq(r.result, 0);
	is_closed(&x, 4);
	programs_restore(world.programs, x.seg);
	is_open(&x, 4);
	world_detached(&x);
}
END_TEST

START_TEST(killed_while_it_waits_to_store)
{
	struct attached x = begin(world_segment("x", 3), NEWER, O_RDWR);
	struct attached y = begin(seg_get(x.seg), NEWER, O_RDWR);

	close_stores(x.seg);
	is_closed(&x, 4);
	store_begins(&y, RAMP_PAGE_BYTES, 6);
	waits(&y);
	kill(y.prog.pid, SIGKILL);
	if (_i)
		finish(x.seg);
	programs_restore(world.programs, x.seg);
	is_open(&x, 4);
	prog_end(&y.prog);
	seg_put(y.seg);
	world_detached(&x);
}
END_TEST

/* The next daemon owns it: it opens it before anything else. 1: of the hand-over. */
START_TEST(the_next_daemon_opens_it)
{
	struct attached x = begin(world_segment("x", 3), NEWER, O_RDWR);

	close_stores(x.seg);
	is_closed(&x, 4);
	if (_i)
		finish(x.seg);
	world_programs_stop();
	world_programs_start();
	is_open(&x, 4);
	close_stores(x.seg);
	is_closed(&x, 8);
	programs_restore(world.programs, x.seg);
	is_open(&x, 8);
	world_detached(&x);
}
END_TEST

static void add_tests(TCase *tc)
{
	tcase_add_loop_test(tc, loads_go_on_and_a_store_waits, 0, 3);
	tcase_add_test(tc, no_byte_changes_while_it_is_closed);
	tcase_add_loop_test(tc, what_is_locked_is_closed_and_opened_too, 0, 2);
	tcase_add_loop_test(tc, parts_of_it, 0, 2);
	tcase_add_loop_test(tc, loads_wait_from_the_hand_over_on, 0, 3);
	tcase_add_test(tc, an_older_agent_is_named_and_nothing_changes);
	tcase_add_loop_test(tc, attached_while_it_is_closed, 0, 2);
	tcase_add_test(tc, forked_while_it_is_closed);
	tcase_add_loop_test(tc, killed_while_it_waits_to_store, 0, 2);
	tcase_add_loop_test(tc, the_next_daemon_opens_it, 0, 2);
}

int main(int argc, char **argv)
{
	return world_main(argc, argv, "closed", add_tests);
}
