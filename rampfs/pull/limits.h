/*
 * Limits of what is read ahead of need: of this node (mount option limit), of one source, by which it
 * keeps the limit that it has itself, and of one request to move segments, however many. Reads on
 * demand are not counted.
 */
#ifndef RAMP_LIMITS_H
#define RAMP_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "pull_core.h"

struct limit_group;

/* The limits of one entry. */
struct limits {
	struct pull *pull;
	struct pull_tally *source;
	struct limit_group *group; /* a reference; NULL: its request has none */
};

/* -ENOMEM. Takes pull->lock. */
int limits_open(struct limits *limits, struct pull *pull, const struct pull_source *source);
void limits_close(struct limits *limits);

/* Takes as many of that many pages as may be asked for now. 0: none; *due_us says when to come again,
   and *by_all whether that holds for others of the same source, too. */
uint64_t limits_take(const struct limits *limits, uint64_t pages, uint64_t *due_us, bool *by_all);
/* They were not asked for, or were holes, which take nothing of the network. */
void limits_put_back(const struct limits *limits, uint64_t pages);
/* Returns the least of the limits, bytes a second; 0: there is none. */
uint64_t limits_least(const struct limits *limits);

#endif
