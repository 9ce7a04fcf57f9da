/*
 * The format of the journal's file: which tables and indexes it has. It is this node's own affair;
 * the meaning of an entry is the level's (meta.h, META_LEVEL_KNOWN).
 *
 *	1	0.1.0
 *	2	the index segment_use
 */
#ifndef RAMP_META_JOURNAL_FORMAT_H
#define RAMP_META_JOURNAL_FORMAT_H

#include "base/err.h"

#define JOURNAL_FORMAT 2

struct journal;

/* Reads the file's format. Returns 0; -EOPNOTSUPP: it is a newer one; -EPROTO: the file is no
   journal; -EIO. */
int journal_check_format(struct journal *j, struct ramp_err *err);
/* Words that the file is no journal. Returns -EPROTO, or -EIO where the journal is dead. */
int journal_is_none(const struct journal *j, struct ramp_err *err);
/* Brings a file of an older format up, within a turn. Returns 0 or -EIO. */
int journal_bring_up(struct journal *j);

#endif
