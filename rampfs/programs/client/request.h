/*
 * A throw-away request: ATTACH, FORK, ADOPT, DETACH, PUNCH (request.c).
 */
#ifndef RAMP_PROGRAMS_REQUEST_H
#define RAMP_PROGRAMS_REQUEST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/session.h"

struct programs;
struct space;

/* On a worker, then closed. */
struct client_request {
	struct programs *programs;
	int sock, pidfd; /* pidfd -1: the process has ended */
	pid_t pid;
	uid_t uid;
	gid_t gid;
	uint64_t since_ms;
	struct session_msg msg;
};
/* Who asked for it has ended, or has hung up. */
bool request_is_for_nobody(const struct client_request *request);
/* The ready client of the very process that has connected, as client_find; it is waited for as long
   as somebody waits for the answer. */
struct space *request_client(struct client_request *request, uint64_t until_ms);
/* The same of another process. */
struct space *request_find(struct client_request *request, pid_t pid, uint64_t until_ms);
/* Sends RESULT: 0, or -errno where nobody takes it. */
int request_answer(struct client_request *request, const struct session_msg *result);
void request_free(struct client_request *request);

#endif
