/*
 * Connections to the session socket, and the request that each makes (listener.c). Control thread.
 */
#ifndef RAMP_PROGRAMS_LISTENER_H
#define RAMP_PROGRAMS_LISTENER_H

#include "base/err.h"

struct programs;

int listener_open(struct programs *p, int listen_fd, struct ramp_err *err);
/* listener_stop hangs up every connection; listener_close does the rest, when the workers have
   ended. */
void listener_stop(struct programs *p);
void listener_close(struct programs *p);

#endif
