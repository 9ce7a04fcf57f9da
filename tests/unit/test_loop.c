/*
 * The control loop's end: what was left to it is done, also by a worker.
 */
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "loop.h"

static bool worked, came_back;

static void work(void *arg)
{
	(void)arg;
	usleep(50000);
	worked = true;
}

static void come_back(void *arg)
{
	(void)arg;
	came_back = worked;
}

START_TEST(a_worker_comes_back_before_the_loop_is_closed)
{
	struct loop *loop;
	struct ramp_err err;

	ck_assert_int_eq(loop_open(&loop, &err), 0);
	loop_work(loop, work, come_back, NULL); /* of a loop that runs no more */
	loop_close(loop);
	ck_assert(came_back);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("loop");
	TCase *tc = tcase_create("loop");
	SRunner *runner;
	int failed;

	tcase_add_test(tc, a_worker_comes_back_before_the_loop_is_closed);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
