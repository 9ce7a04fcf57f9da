/*
 * The progress of a migration on stderr (rampfs-migrate --progress): on a terminal one line that is
 * drawn again and again and never takes more than the terminal's width; elsewhere several lines.
 */
#ifndef RAMP_BAR_H
#define RAMP_BAR_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/session.h"

struct bar {
	const char *file;	 /* borrowed */
	char name[4 * PATH_MAX]; /* the same, safe for a terminal */
	bool tty, drawn;
	char state[SESSION_TEXT_MAX];
	double since_s; /* when pages began to arrive */
	uint64_t first; /* how many there were then */
	uint64_t lined; /* percent that the last plain line told */
};

void bar_begin(struct bar *bar, const char *file);
/* Shows a PROGRESS. */
void bar_show(struct bar *bar, const struct session_msg *msg);
/* Clears the line that is drawn: another line may follow. */
void bar_clear(struct bar *bar);

#endif
