/*
 * Looks whether a node that serves without metadata can have it again. Control loop; it is closed with
 * the loop.
 *
 * A probe is good where a write and its fsync in the state directory succeed, and, where the journal
 * itself was missing or damaged, another one lies in its place.
 */
#ifndef RAMP_DISK_PROBE_H
#define RAMP_DISK_PROBE_H

#include <stdbool.h>
#include <sys/stat.h>

#include "base/loop.h"

#define DISK_GOOD     3 /* good probes in a row */
#define DISK_PROBE_MS 2000

struct statedir;

struct disk_probe {
	struct loop *loop;
	const struct statedir *dir;
	bool needs_journal;  /* the journal that was there at the start is none */
	struct stat journal; /* that one; zeros: it was missing */
	/* Called once. */
	void (*recovered)(void *arg);
	void *arg;

	uv_timer_t timer;
	unsigned good; /* probes in a row */
	int result;    /* the worker's */
};
/* The fields before `timer` are set. */
void disk_probe_start(struct disk_probe *probe);

#endif
