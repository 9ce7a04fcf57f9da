/*
 * Runs the scripted cases. See scripted.h.
 */
#include "scripted.h"

#include <stdlib.h>

int main(void)
{
	Suite *s = suite_create("raft_scripted");
	SRunner *runner;
	int failed;

	suite_add_tcase(s, scripted_log());
	suite_add_tcase(s, scripted_votes());
	suite_add_tcase(s, scripted_leader());
	runner = srunner_create(s);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
