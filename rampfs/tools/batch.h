/*
 * Many segments moved by one request (SESSION BATCH), for rampfs-migrate.
 */
#ifndef RAMP_BATCH_H
#define RAMP_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/session.h"

struct asked_dir;
struct migrate_options;

/* What rampfs-migrate does for one file, as migrate.c has it. Statuses are exit statuses. */
struct batch_ops {
	/* Finds the daemon's socket, and the segment. Returns 0, or a status: it has been complained about. */
	int (*ask_mount)(const char *file, struct asked_dir *dir, struct stat *st);
	/* Prints one answer; returns a status. */
	int (*report)(const char *file, const struct migrate_options *o,
		      const struct session_msg *answer, double took_s);
	/* After Ctrl-C, without a daemon: fills an answer by where the segment is, or returns -errno. */
	int (*see_where)(const char *file, const struct migrate_options *o, uint64_t segment,
			 struct session_msg *answer);
	/* Moves one by a request of its own; returns a status. */
	int (*one)(const char *file, const struct migrate_options *o);
	void (*complain)(const char *file, const char *what);
	void (*pause_ms)(long ms);
	int (*interrupts)(void);     /* how often Ctrl-C has come */
	void (*add)(int status);     /* takes each file's */
	void (*add_not_tried)(void); /* the same of one that Ctrl-C has kept from being tried */
	int status_failed, status_unknown;
};

/* Moves them. `what`: a BATCH without segments. Calls `add` or `add_not_tried` for each file. */
void batch_move(char *const *files, size_t n, const struct migrate_options *o,
		const struct session_msg *what, const struct batch_ops *ops);

#endif
