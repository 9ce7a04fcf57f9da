/*
 * The log of rejected connections and messages. Thread-safety: the caller's.
 */
#ifndef RAMP_REJECT_H
#define RAMP_REJECT_H

#include <stdint.h>

struct reject_log;

struct reject_log *reject_log_open(void); /* NULL: no memory */
void reject_log_close(struct reject_log *log);
/* Writes one line, or counts it as silent where there were enough like it. */
void reject_log_write(struct reject_log *log, uint64_t now_ms, const char *endpoint,
		      const char *reason);

#endif
