/*
 * Carry out the requests FORK and ADOPT; they answer and free them (fork_adopt.c). On a worker.
 */
#ifndef RAMP_PROGRAMS_FORK_ADOPT_H
#define RAMP_PROGRAMS_FORK_ADOPT_H

struct client_request;

void adopt_begin(struct client_request *request);
void fork_begin(struct client_request *request);

#endif
