/*
 * GROW: a program asks before the first mapping of a segment grows in it by mremap(2), of which the daemon
 * hears nothing else.
 *
 * The kernel registers what grows as the mapping was that grows. One that is not registered, since all of its
 * pages are present (stretches.c), could so grow over pages that are missing. So from here on all attachments of
 * the process are registered as a whole while pages of their segments are missing, and its mappings may grow
 * without another question.
 *
 * How it fails: what can't be registered must not grow: ENOMEM.
 */
#include "grow.h"

#include <errno.h>
#include <pthread.h>

#include "attachments.h"
#include "base/clock.h"
#include "base/session.h"
#include "programs/client/clients.h"
#include "programs/client/request.h"

/* Registers all attachments of the client that must be, as a whole. */
static int arm_whole(struct programs *p, struct client *client)
{
	struct mapped_segment *mseg;
	ramp_segment_t last = 0;
	int rc = 0;

	atomic_store(&client->grown, true);
	while (!rc && (mseg = client_next_mseg(p, client, last))) {
		last = mseg->id;
		pthread_mutex_lock(&mseg->change);
		if (mseg_armed(mseg))
			rc = mseg_look(p, mseg, client);
		pthread_mutex_unlock(&mseg->change);
		mseg_put(p, mseg);
	}
	return rc;
}

void grow_begin(struct client_request *r)
{
	struct session_msg result = {.type = SESSION_RESULT};
	struct programs *p = r->programs;
	struct client *client = request_client(r, clock_ms() + p->connect_ms);

	if (!client)
		result.result = ESRCH;
	else if (arm_whole(p, client))
		result.result = ENOMEM;
	if (client)
		client_put(client);
	request_answer(r, &result);
	request_free(r);
}
