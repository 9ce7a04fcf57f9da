/*
 * A node whose journal can't be used: full, failing or read-only disk.
 *
 *   (start) --meta_open--> WITH METADATA --a turn fails--> (ends, and has left a note)
 *   (start on a living connection) --the note is there, or meta_open fails--> WITHOUT
 *   WITHOUT --DISK_GOOD probes in a row succeed--> (the note goes; it ends, for a new start)
 *
 * Without metadata everything that the node owns continues by its records, names come from a
 * read-only copy of the journal in the store, and all else is as without a quorum (meta_open_copy).
 * Raft's core never steps in such a life, nor again after a failed turn.
 */
#ifndef RAMP_WITHOUT_META_H
#define RAMP_WITHOUT_META_H

#include <stdbool.h>

#include "base/err.h"
#include "base/loop.h"
#include "meta/meta.h"

struct statedir;

/* Opens the journal, or where it can't be used and `living` a copy. `config` lacks the paths and
   `why`. */
int without_meta_open(const struct meta_config *config, const struct statedir *dir, bool living,
		      struct meta **out, struct ramp_err *err);
/* Leaves a note for the next daemon that a turn has failed. Any thread. */
void without_meta_note(const struct statedir *dir, const char *text);

/* Looks whether the disk can be written again. Control loop; it is closed with the loop. */
struct disk_probe {
	struct loop *loop;
	const struct statedir *dir;
	/* Called once. */
	void (*recovered)(void *arg);
	void *arg;

	uv_timer_t timer;
	unsigned good; /* probes in a row */
	int result;    /* the worker's */
};
/* The first four fields are set. */
void disk_probe_start(struct disk_probe *probe);

#endif
