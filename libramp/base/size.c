#include "size.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

int size_parse(const char *text, uint64_t *bytes)
{
	static const char units[] = "KMGT";
	const char *unit;
	uint64_t v = 0;
	unsigned shift = 0;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	for (; isdigit((unsigned char)*text); text++) {
		if (v > (UINT64_MAX - 9) / 10)
			return -ERANGE;
		v = v * 10 + (uint64_t)(*text - '0');
	}
	if (*text) {
		unit = strchr(units, *text);
		if (!unit || text[1])
			return -EINVAL;
		shift = 10 * (unsigned)(unit - units + 1);
	}
	if (v > UINT64_MAX >> shift)
		return -ERANGE;
	*bytes = v << shift;
	return 0;
}
