/*
 * Runs the scripted cases. See scripted.h.
 */
#include "scripted.h"
#include "lib/run_suite.h"

#include <stdlib.h>

int main(void)
{
	Suite *s = suite_create("raft_scripted");

	suite_add_tcase(s, scripted_log());
	suite_add_tcase(s, scripted_votes());
	suite_add_tcase(s, scripted_leader());
	return run_suite(s);
}
