#include "transfer_mode.h"

#include <errno.h>
#include <string.h>

static const char *const names[TRANSFER_MODES] = {
	[TRANSFER_LAZY] = "lazy",	[TRANSFER_DEMAND] = "demand", [TRANSFER_COPY] = "copy",
	[TRANSFER_PRECOPY] = "precopy", [TRANSFER_AUTO] = "auto",
};

const char *transfer_mode_name(unsigned mode)
{
	return mode < TRANSFER_MODES ? names[mode] : "default";
}

int transfer_mode_of(const char *name)
{
	for (int mode = 0; mode < TRANSFER_MODES; mode++)
		if (strcmp(name, names[mode]) == 0)
			return mode;
	return -EINVAL;
}
