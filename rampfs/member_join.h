/*
 * A new node joins the cluster (mkfs.rampfs --join), or a known one with an empty state directory
 * joins again (--rejoin), or one that has lost its journal and not its store.
 */
#ifndef RAMP_MEMBER_JOIN_H
#define RAMP_MEMBER_JOIN_H

#include "member_view.h"
#include "transport/hello.h"

/* Receives the request on `fd`, carries it out and sends the answer. By the worker of members.c; fd
   stays the caller's. */
void member_join(struct member_view *v, int fd, const struct hello *hello);

#endif
