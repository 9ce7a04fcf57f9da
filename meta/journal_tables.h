/*
 * The tables of the state machine, in the order of a dump. They are what a snapshot consists of.
 */
#ifndef RAMP_META_JOURNAL_TABLES_H
#define RAMP_META_JOURNAL_TABLES_H

#include <stddef.h>

/* The extents of each user's segments. */
#define JOURNAL_SEGMENT_USE                                                                        \
	"CREATE INDEX segment_use ON segment (uid, extent_len) WHERE extent_len <> 0"

struct journal_table {
	const char *create;
	const char *dump;   /* all rows, in the order of the key */
	const char *insert; /* one row, its columns in the order of `dump` */
	const char *clear;
	int columns;
};
extern const struct journal_table journal_tables[];
extern const size_t journal_n_tables;

#endif
