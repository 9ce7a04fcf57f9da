/*
 * A throw-away request: one message of a process that waits for the answer.
 */
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "clients.h"
#include "programs/proc/process.h"
#include "quota.h"
#include "request.h"

#define FOR_NOBODY_MS 100u /* how often it is checked that the process still waits for the answer */

int request_answer(struct client_request *request, const struct session_msg *result)
{
	return session_send(request->sock, result, NULL, 0, MSG_DONTWAIT);
}

void request_free(struct client_request *request)
{
	if (request->pidfd >= 0)
		close(request->pidfd);
	close(request->sock);
	quota_give(request->programs->quota, request->uid, QUOTA_REQUESTS, 1);
	free(request);
}

bool request_is_for_nobody(const struct client_request *r)
{
	struct pollfd at = {.fd = r->sock, .events = POLLRDHUP};

	return r->msg.type != SESSION_DETACH && poll(&at, 1, 0) > 0;
}

struct client *request_find(struct client_request *request, pid_t pid, uint64_t until_ms)
{
	struct programs *p = request->programs;
	struct client *client;
	uint64_t look_ms;

	do {
		look_ms = clock_ms() + FOR_NOBODY_MS;
		client = client_find(p, pid, look_ms < until_ms ? look_ms : until_ms);
	} while (!client && look_ms < until_ms && !atomic_load(&p->closing) &&
		 !request_is_for_nobody(request));
	return client;
}

struct client *request_client(struct client_request *request, uint64_t until_ms)
{
	struct client *client = request_find(request, request->pid, until_ms);

	/* The client and the process that connected existed at the same time under one pid: they
	   are the same process. */
	if (!client || process_lives(request->pidfd))
		return client;
	client_put(client);
	return NULL;
}
