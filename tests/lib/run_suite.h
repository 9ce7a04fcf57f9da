/*
 * The end of main() of a test program.
 */
#ifndef RAMP_RUN_SUITE_H
#define RAMP_RUN_SUITE_H

#include <check.h>

/* Runs the suite, and frees it. Returns the exit status. */
static inline int run_suite(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}

#endif
