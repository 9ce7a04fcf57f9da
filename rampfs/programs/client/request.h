/*
 * A throw-away request: ATTACH, FORK, ADOPT, DETACH, PUNCH, GROW (request.c).
 */
#ifndef RAMP_PROGRAMS_REQUEST_H
#define RAMP_PROGRAMS_REQUEST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/session.h"

struct programs;
struct client;

/* Handled on a worker, then answered and freed. */
struct client_request {
	struct programs *programs;
	int sock, pidfd; /* pidfd -1: the process has ended */
	pid_t pid;
	uid_t uid;
	gid_t gid;
	uint64_t since_ms;
	struct session_msg msg;
};
/* Returns whether no process waits for the answer any more: the one that asked has ended, or has
   hung up. (False for DETACH, which is carried out all the same.) */
bool request_is_for_nobody(const struct client_request *request);
/* Returns the ready client of the very process that connected, with a reference. Waits for one
   until until_ms, as long as the process waits for the answer. NULL: none. */
struct client *request_client(struct client_request *request, uint64_t until_ms);
/* The same for another process. */
struct client *request_find(struct client_request *request, pid_t pid, uint64_t until_ms);
/* Sends RESULT. 0, or -errno: the process does not take it. */
int request_answer(struct client_request *request, const struct session_msg *result);
/* Closes its socket and gives its quota back. */
void request_free(struct client_request *request);

#endif
