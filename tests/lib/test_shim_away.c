/*
 * The shim's agent moves page tables away and back: beside a writer, while its daemon dies, and for a
 * daemon that knows nothing of it.
 *
 * Needs root and /dev/fuse.
 */
#include <errno.h>
#include <string.h>

#include "base/session.h"
#include "fake_daemon.h"
#include "shim_driver.h"

/* How the page tables come back: 0 by their daemon; 1 by the next one, after the first has died with
   the event unread; 2 never, since the next daemon is an older one. */
START_TEST(what_is_moved_away_stops_every_store_and_comes_back)
{
	struct program p = start("moved");

	await(&p, "writing");
	ck_assert_int_eq(fake_reserve(fake, p.pid), 0);
	if (_i == 2)
		fake_grow_old(fake);
	if (_i)
		fake_move_and_die(fake, p.pid);
	else
		fake_move(fake, p.pid);
	go_on(&p);
	await(&p, "frozen");
	if (_i < 2)
		fake_return(fake, p.pid, 0);
	fake_await_away(fake, p.pid, false);
	fake_restore(fake, p.pid);
	go_on(&p);
	await(&p, "thawed");
	go_on(&p);
	finish(&p);
	ck_assert_str_eq(said(), "");
}
END_TEST

/* 0: the program is told; 1: it has unmapped the segment, and the daemon says FORGET. */
START_TEST(what_is_away_of_a_segment_that_has_gone_is_unmapped)
{
	struct program p = start("gone");

	await(&p, "here");
	ck_assert_int_eq(fake_reserve(fake, p.pid), 0);
	fake_move(fake, p.pid);
	fake_await_away(fake, p.pid, true);
	if (_i)
		fake_return(fake, p.pid, SESSION_FORGET | SESSION_NOW);
	fake_gone(fake, p.pid, "");
	fake_await_away(fake, p.pid, false);
	/* It is not given back any more. */
	fake_return(fake, p.pid, 0);
	go_on(&p);
	await(&p, "gone");
	fake_back(fake, p.pid);
	go_on(&p);
	finish(&p);
}
END_TEST

START_TEST(what_has_no_place_is_dropped)
{
	struct program p = start("limited");

	await(&p, "mapped");
	go_on(&p);
	await(&p, "limited");
	ck_assert_int_eq(fake_reserve(fake, p.pid), ENOMEM);
	go_on(&p);
	await(&p, "writing");
	fake_move(fake, p.pid);
	go_on(&p);
	await(&p, "frozen");
	fake_restore(fake, p.pid);
	go_on(&p);
	finish(&p);
}
END_TEST

/* A place that was kept and not used is given back, by RETURN or by a daemon's death. */
START_TEST(a_place_that_was_not_used_is_given_back)
{
	struct program p = start("restart");

	await(&p, "mapped");
	ck_assert_int_eq(fake_reserve(fake, p.pid), 0);
	ck_assert_int_eq(fake_reserve(fake, p.pid), EEXIST);
	if (_i) {
		fake_die(fake);
		fake_wait_session(fake, p.pid);
	} else {
		fake_return(fake, p.pid, 0);
	}
	ck_assert_int_eq(fake_reserve(fake, p.pid), 0);
	fake_return(fake, p.pid, 0);
	fake_restore(fake, p.pid);
	go_on(&p);
	await(&p, "forked");
	go_on(&p);
	finish(&p);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("away");

	tcase_add_loop_test(tc, what_is_moved_away_stops_every_store_and_comes_back, 0, 3);
	tcase_add_loop_test(tc, what_is_away_of_a_segment_that_has_gone_is_unmapped, 0, 2);
	tcase_add_test(tc, what_has_no_place_is_dropped);
	tcase_add_loop_test(tc, a_place_that_was_not_used_is_given_back, 0, 2);
	return driver_run("shim_away", tc);
}
