#include "ids.h"

#include <stdlib.h>
#include <sys/random.h>

uint64_t ramp_random64(void)
{
	uint64_t v = 0;

	while (v == 0)
		if (getrandom(&v, sizeof(v), 0) != (ssize_t)sizeof(v))
			abort();
	return v;
}
