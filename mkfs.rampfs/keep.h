/*
 * A node that has lost its journal, and not its store: --rejoin keeps the store, with the segments in it, and
 * makes the journal alone.
 */
#ifndef RAMP_MKFS_KEEP_H
#define RAMP_MKFS_KEEP_H

#include <stdbool.h>

#include "base/err.h"
#include "base/ids.h"
#include "plan.h"

/* Whether a store is mounted in the directory. */
bool store_mounted(const char *dir);
/* Whether STATE_DIR is the node's, and its store is mounted. */
bool keep_is_due(const struct mkfs_options *o);
/* Reads the incarnation of that store. */
int keep_incarnation(const struct mkfs_options *o, ramp_incarnation_t *incarnation,
		     struct ramp_err *err);
/* Says of each segment of the store, a line each, where its bytes are: the cluster does not take them. */
void keep_say_aside(const struct mkfs_options *o);
/*
 * Puts the files of the directory `made` into STATE_DIR, the journal last. The journal that was there
 * becomes journal.db.old. Killed in between, it leaves the node without a journal, as it was.
 */
int keep_place(const char *made, const struct mkfs_options *o, struct ramp_err *err);

#endif
