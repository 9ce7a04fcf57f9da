#include "say.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "libc_parts.h"
#include "program_stderr.h"
#include "scribe.h"

static bool quiet;

void say_init(bool silent)
{
	const char *value = getenv("RAMPFS_QUIET");

	quiet = value ? strcmp(value, "1") == 0 : silent;
	program_stderr_init();
}

/* Returns the line's bytes with its newline; a line that does not fit is cut. */
static size_t join_parts(char *line, const char *part, va_list ap)
{
	size_t len = 0;

	for (; part; part = va_arg(ap, const char *))
		while (*part && len < SCRIBE_LINE_BYTES - 1)
			line[len++] = *part++;
	line[len++] = '\n';
	return len;
}

/* Has a line written, unless the user wants none. */
static void say_by(void (*write_line)(const char *line, size_t len), const char *first, va_list ap)
{
	char line[SCRIBE_LINE_BYTES];

	if (!quiet)
		write_line(line, join_parts(line, first, ap));
}

static void say_at_once(const char *line, size_t len)
{
	program_stderr_write(line, len, 0);
}

void say_line(const char *first, ...)
{
	va_list ap;

	va_start(ap, first);
	say_by(say_at_once, first, ap);
	va_end(ap);
}

int say_refusal(const char *what, int code, const char *reason)
{
	say_line("rampfs: ", what, ": ", reason[0] ? reason : errno_text(code), NULL);
	return -code;
}

void say_agents_begin(void)
{
	if (!quiet)
		scribe_start();
}

void say_agent_line(const char *first, ...)
{
	va_list ap;

	va_start(ap, first);
	say_by(scribe_write, first, ap);
	va_end(ap);
}
