/*
 * A copy of a journal that nothing has open: the file and what its WAL holds.
 */
#ifndef RAMP_META_JOURNAL_COPY_H
#define RAMP_META_JOURNAL_COPY_H

#include "base/err.h"

/* Writes nothing beside `from`. An older copy at `to` goes first, and an error leaves none. */
int journal_copy(const char *from, const char *to, struct ramp_err *err);
/* Removes a copy, if there is one. */
void journal_copy_remove(const char *to);

#endif
