/*
 * The making of a journal, by mkfs.
 */
#ifndef RAMP_META_JOURNAL_CREATE_H
#define RAMP_META_JOURNAL_CREATE_H

#include "base/err.h"
#include "meta.h"

/* Makes the file, in one transaction; on failure none is left behind. Returns 0, -EEXIST: there is
   one already; -EINVAL, -EIO, -ENOMEM. */
int journal_create(const char *path, const char *vfs, const struct meta_founding *founding,
		   struct ramp_err *err);

#endif
