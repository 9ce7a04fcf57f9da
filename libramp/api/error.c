#include "error.h"

#include <stdio.h>
#include <string.h>

#include "include/ramp.h"

#define ERROR_TEXT_MAX 1024

#define EXPORT __attribute__((visibility("default")))

static _Thread_local char text[ERROR_TEXT_MAX];

int error_set(int code, const char *what, const char *why)
{
	char words[128];

	if (!why || !why[0])
		why = strerror_r(code, words, sizeof(words));
	snprintf(text, sizeof(text), "%s: %s", what, why);
	return -code;
}

int error_none(void)
{
	text[0] = '\0';
	return 0;
}

EXPORT const char *ramp_error(void)
{
	return text;
}

EXPORT int ramp_api_version(void)
{
	return RAMP_API_VERSION;
}
