/*
 * GROW: a program asks before the first mapping of a segment grows in it (grow.c).
 */
#ifndef RAMP_PROGRAMS_GROW_H
#define RAMP_PROGRAMS_GROW_H

struct client_request;

/* Answers and frees it. On a worker. */
void grow_begin(struct client_request *request);

#endif
