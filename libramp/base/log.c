#include "log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "visible.h"

#define STAMP_BYTES 40
#define TEXT_BYTES  1024
#define LINE_BYTES  2048

static const char *log_ident = "rampfs";
static int log_syslog, log_journal, log_terminal;
static enum log_level log_most = LOG_LEVEL_INFO;

static const struct {
	int priority;
	const char *name;
} levels[] = {
	[LOG_LEVEL_ERROR] = {LOG_ERR, "error"},
	[LOG_LEVEL_WARN] = {LOG_WARNING, "warning"},
	[LOG_LEVEL_INFO] = {LOG_INFO, "info"},
	[LOG_LEVEL_DEBUG] = {LOG_DEBUG, "debug"},
};

/* Whether stderr is the journal's stream: systemd gives its device and inode in JOURNAL_STREAM,
   which is set even if stderr was redirected to a file (sd_journal_stream_fd(3), systemd.exec(5)). */
static int stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;

	return stream && sscanf(stream, "%llu:%llu", &dev, &ino) == 2 &&
	       fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

void log_open(const char *ident, int to_syslog, enum log_level most)
{
	log_ident = ident;
	log_syslog = to_syslog;
	log_most = most;
	log_journal = stderr_is_journal();
	log_terminal = isatty(STDERR_FILENO);
	if (to_syslog)
		openlog(ident, LOG_PID, LOG_DAEMON);
}

/* Formats "2026-11-21 08:45:01.123 ", which comes before a line in a file; a terminal needs none. */
static const char *time_of_day(char stamp[STAMP_BYTES])
{
	struct timespec now;
	struct tm tm;
	size_t len;

	stamp[0] = 0;
	if (log_terminal || clock_gettime(CLOCK_REALTIME, &now) || !localtime_r(&now.tv_sec, &tm))
		return stamp;
	len = strftime(stamp, STAMP_BYTES, "%F %T", &tm);
	snprintf(stamp + len, STAMP_BYTES - len, ".%03ld ", now.tv_nsec / 1000000);
	return stamp;
}

void log_line(enum log_level level, const char *fmt, ...)
{
	char raw[TEXT_BYTES], text[TEXT_BYTES + TEXT_BYTES / 2], line[LINE_BYTES];
	char stamp[STAMP_BYTES];
	va_list ap;
	int len;

	if (level > log_most)
		return;
	va_start(ap, fmt);
	vsnprintf(raw, sizeof(raw), fmt, ap);
	va_end(ap);
	visible(text, sizeof(text), raw);
	if (log_syslog) {
		syslog(levels[level].priority, "%s", text);
		return;
	}
	if (log_journal)
		len = snprintf(line, sizeof(line), "<%d>%s\n", levels[level].priority, text);
	else
		len = snprintf(line, sizeof(line), "%s%s: %s: %s\n", time_of_day(stamp), log_ident,
			       levels[level].name, text);
	/* If the log itself cannot be written, there is no way to report that. */
	if (write(STDERR_FILENO, line, (size_t)len) < 0)
		return;
}
