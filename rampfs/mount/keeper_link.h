/*
 * The daemon's end of the socket to the keeper. Control thread.
 */
#ifndef RAMP_KEEPER_LINK_H
#define RAMP_KEEPER_LINK_H

#include "mount_ref.h"

int keeper_link_open(struct mount *m, struct ramp_err *err);
void keeper_link_close(struct mount *m);

#endif
