/*
 * A node whose journal can't be used: it is missing or damaged, or its disk is full, failing or read-only.
 *
 *   (start) --meta_open--> WITH METADATA --a turn fails--> (ends, and has left a note)
 *   (start with segments, or on a living connection) --the note is there, or meta_open fails (of a living
 *                                                      connection: twice)--> WITHOUT
 *   WITHOUT --disk_probe.c: it may be had again--> (the note goes; it ends, for a new start)
 *
 * Without metadata everything that the node owns continues by its records. Names come from a read-only
 * copy of the journal in the store, or where it is missing or damaged, from the notes beside the records
 * (by_records.c). All else is as without a quorum (meta_open_copy).
 * Raft's core never steps in such a life, nor again after a failed turn.
 */
#ifndef RAMP_WITHOUT_META_H
#define RAMP_WITHOUT_META_H

#include <stdbool.h>
#include <sys/stat.h>

#include "base/err.h"
#include "meta/meta.h"

struct statedir;
struct store;

struct without_meta_config {
	const struct statedir *dir;
	struct store *store;
	bool living; /* an earlier daemon has served this connection */
};

struct without_meta {
	bool needs_journal;  /* it was missing or damaged: only another one ends this state */
	struct stat journal; /* that one; zeros: missing */
};

/* Opens the journal, or where it can't be used, what can be had. `config` lacks the paths and `why`. `how`
   counts where there is no metadata (meta_why_copy). */
int without_meta_open(const struct meta_config *config, const struct without_meta_config *c,
		      struct meta **out, struct without_meta *how, struct ramp_err *err);
/* Leaves a note for the next daemon that a turn has failed. of_copy: the copy could not be read. Any
   thread. */
void without_meta_note(const struct statedir *dir, const char *text, bool of_copy);
/* Takes it away: the next daemon may have metadata. */
void without_meta_forget(const struct statedir *dir);

#endif
