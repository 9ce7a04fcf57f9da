#include "output.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int output_end(const char *program)
{
	/* Of a write that failed earlier only the fact is known. */
	int failed = ferror(stdout);

	errno = 0;
	if (fflush(stdout) == 0 && !failed)
		return 0;
	fprintf(stderr, "%s: standard output: %s\n", program,
		errno ? strerror(errno) : "write error");
	return 1;
}
