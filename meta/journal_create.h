/*
 * A journal that mkfs makes.
 */
#ifndef RAMP_META_JOURNAL_CREATE_H
#define RAMP_META_JOURNAL_CREATE_H

#include "base/err.h"
#include "meta.h"

#define JOURNAL_FORMAT 1

/* Makes the file, in one transaction; an error leaves none behind. -EEXIST: it is there. */
int journal_create(const char *path, const char *vfs, const struct meta_founding *founding,
		   struct ramp_err *err);

#endif
