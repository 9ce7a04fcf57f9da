#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* An open takes the lowest descriptor that is free. */
void output_begin(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
		    open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0)
			return;
}

int output_end(const char *program)
{
	/* Only the fact is known of a write that failed earlier, not its errno. */
	int failed = ferror(stdout);

	errno = 0;
	if (fflush(stdout) == 0 && !failed)
		return 0;
	fprintf(stderr, "%s: standard output: %s\n", program,
		errno ? strerror(errno) : "write error");
	return 1;
}
