/*
 * The state directory: made beside the place that is asked for, and renamed into it when it is
 * whole.
 */
#ifndef RAMP_MKFS_MAKE_DIR_H
#define RAMP_MKFS_MAKE_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "plan.h"

/* Returns 0 where STATE_DIR may be made: it is absent or empty, or holds a node and --force was
   given, or a node that is kept (keep.h). *lock is then the lock of that node, else unchanged. */
int may_make(const struct mkfs_options *o, int *lock, struct ramp_err *err);
/* Makes the directory. `replace`: in the place of the node that may_make has locked. On failure
   nothing is left behind. */
int make_dir(const struct mkfs_options *o, const struct plan *plan, bool replace,
	     const uint8_t *key_bytes, size_t key_len, struct ramp_err *err);

#endif
