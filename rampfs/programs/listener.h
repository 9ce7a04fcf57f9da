/*
 * Connections to the session socket: what each of them asks for (listener.c). Control thread.
 */
#ifndef RAMP_PROGRAMS_LISTENER_H
#define RAMP_PROGRAMS_LISTENER_H

#include "base/err.h"

struct programs;

int listener_open(struct programs *p, int listen_fd, struct ramp_err *err);
/* Hangs up everybody; then, when the workers have ended, the rest. */
void listener_stop(struct programs *p);
void listener_close(struct programs *p);

#endif
