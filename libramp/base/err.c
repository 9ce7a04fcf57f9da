#include "err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#undef ramp_err_set
#undef ramp_err_sys
#undef ramp_err_wrap

int ramp_err_set(struct ramp_err *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (err) {
		err->code = code;
		va_start(ap, fmt);
		vsnprintf(err->text, sizeof(err->text), fmt, ap);
		va_end(ap);
	}
	return -code;
}

/* If there is no room for both, the message (a long path) is cut, and not the reason. */
int ramp_err_sys(struct ramp_err *err, int code, const char *fmt, ...)
{
	char buf[64];
	const char *reason = strerror_r(code, buf, sizeof(buf));
	size_t len, most = sizeof(err->text) - strlen(reason) - sizeof(": ");
	va_list ap;

	if (err) {
		err->code = code;
		va_start(ap, fmt);
		vsnprintf(err->text, sizeof(err->text), fmt, ap);
		va_end(ap);
		len = strlen(err->text);
		if (len > most) {
			len = most;
			memcpy(err->text + len - 3, "...", 3);
		}
		snprintf(err->text + len, sizeof(err->text) - len, ": %s", reason);
	}
	return -code;
}

int ramp_err_wrap(struct ramp_err *err, const char *fmt, ...)
{
	char old[RAMP_ERR_TEXT_BYTES];
	va_list ap;
	size_t len;

	if (!err)
		return -EIO;
	memcpy(old, err->text, sizeof(old));
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	len = strlen(err->text);
	snprintf(err->text + len, sizeof(err->text) - len, ": %s", old);
	return -err->code;
}
