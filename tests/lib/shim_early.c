/*
 * A program whose library has mapped a segment before it begins: shim_early FILE, run by
 * rampfs-run. It forks, and the child has the segment at once.
 */
#include "shim_early.h"

#include <sys/wait.h>
#include <time.h>

#include "shim_prog.h"

#define PATIENCE_S 3 /* less than a fork's patience */

int main(void)
{
	struct timespec before, after;
	int status;
	pid_t pid;

	clock_gettime(CLOCK_MONOTONIC, &before);
	pid = fork();
	if (pid == 0)
		_exit(early[0] == 7 ? 0 : 1);
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	clock_gettime(CLOCK_MONOTONIC, &after);
	CHECK(after.tv_sec - before.tv_sec < PATIENCE_S);
	return 0;
}
