/*
 * What a daemon remembers of its state directory, for the next one.
 *
 * A daemon that takes over from a dead one must start: programs wait for it, and what they wait for
 * lies in the store. So its start does not depend on files that an operator may have touched meanwhile,
 * nor on the disk that they are on. Each daemon leaves what it read in the private file `start` of
 * the store, which is memory, for root alone, and lasts as long as what programs wait for.
 */
#ifndef RAMP_REMEMBERED_H
#define RAMP_REMEMBERED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct statedir;
struct store;

/* Returns true where an earlier daemon has served this connection, from this state directory. */
bool remembered_living(const char *state_dir, uint64_t connection);
/* statedir_read; where that fails and `living`, the reason is logged, and what an earlier daemon has
   read is returned. */
int remembered_read(const char *state_dir, bool living, struct statedir *dir, struct ramp_err *err);
/* Leaves it for the next daemon. A failure is logged: that one then needs the files. */
void remembered_save(struct store *store, const struct statedir *dir);

#endif
