/*
 * A start that has no journal at all: the tables are made of what lies in the store (R8).
 *
 * Each segment has its record and the note of its row (mount/row_note.h) beside its bytes. This node's
 * identity and the members are in the private file `members`, which each daemon with metadata writes
 * when they change. All of it is memory, for root alone, and lasts as long as the segments.
 */
#ifndef RAMP_BY_RECORDS_H
#define RAMP_BY_RECORDS_H

#include <stdbool.h>

#include "base/err.h"

struct meta;
struct meta_config;
struct store;

/* Leaves the members for a later start. Nothing is written while they are unchanged. */
void by_records_keep(struct store *store, struct meta *meta);
/* Opens tables at `copy` (meta_open_rows). */
int by_records_open(const struct meta_config *config, struct store *store, const char *copy,
		    struct meta **out, struct ramp_err *err);

#endif
