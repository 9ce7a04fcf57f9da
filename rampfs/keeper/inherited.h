/*
 * The daemon's side of what it inherits from the keeper.
 */
#ifndef RAMP_KEEPER_INHERITED_H
#define RAMP_KEEPER_INHERITED_H

#include <stdint.h>

#include "base/err.h"

/* Checks what the daemon was executed with, and sets close-on-exec on the inherited descriptors;
   -EINVAL where RAMPFS_CONNECTION is missing. */
int keeper_inherited(uint64_t *connection, struct ramp_err *err);
/* Sends KEEPER_SAY_* to the keeper. Returns 0 also where the keeper has died. Any thread. */
int keeper_tell(char what);
/* Sends KEEPER_SAY_FAILED with the error's text, which the process that mounts then prints. For a
   daemon that is about to end with KEEPER_EXIT_FATAL. */
void keeper_tell_failure(const struct ramp_err *err);

#endif
