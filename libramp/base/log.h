/*
 * The log: one line for each event that a person needs, none for each page.
 *
 * Lines go to stderr or to syslog(3). On stderr they are `rampfs: LEVEL: text`, with the time in
 * front if it is no terminal, with syslog's <N> prefix if it is systemd's journal. Any thread may
 * log. A line is written by one write(2), and stays one line for any bytes in the names it shows.
 * The pager never logs.
 */
#ifndef RAMP_LOG_H
#define RAMP_LOG_H

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* `ident` must outlive the process's logging. Call once, before threads start. */
void log_open(const char *ident, int to_syslog, enum log_level most);

void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
