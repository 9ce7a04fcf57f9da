#include "ids.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "log.h"

uint64_t ramp_random64(void)
{
	uint64_t v = 0;

	while (v == 0) {
		if (getrandom(&v, sizeof(v), 0) == (ssize_t)sizeof(v))
			continue;
		log_error("no random numbers: %s", strerror(errno));
		abort();
	}
	return v;
}
