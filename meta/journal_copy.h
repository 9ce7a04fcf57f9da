/*
 * What is read where the journal can't be: a copy of it, or a journal of the rows that are known
 * otherwise. Nothing has the journal open.
 */
#ifndef RAMP_META_JOURNAL_COPY_H
#define RAMP_META_JOURNAL_COPY_H

#include <stddef.h>

#include "base/err.h"
#include "meta.h"

/* Writes nothing beside `from`. An older copy at `to` goes first, and an error leaves none. -EUCLEAN: it
   was read, and is damaged. */
int journal_copy(const char *from, const char *to, struct ramp_err *err);
/* Makes one of rows: meta_open_rows. */
int journal_of_rows(const char *to, const struct meta_founding *known,
		    const struct segment_row *rows, size_t n, struct ramp_err *err);
/* Removes a copy, if there is one. */
void journal_copy_remove(const char *to);

#endif
