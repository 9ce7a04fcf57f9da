/*
 * Conversations with an agent: one command, one DONE, and one conversation at a time (client->io).
 *
 * How it fails: an agent that does not answer a DROP, a MOVE or a SAY in time is left alone (its process
 * may be stopped) and answers later; that DONE has an older serial, and the next conversation skips
 * it. An agent that may leave a mapping half made (MAP, PROTECT, UNMAP, BACK, SWAP) is hung up on:
 * it connects again, and /proc says what has become of the mapping. A late answer to GONE matters
 * in another way: accesses that wait in that range must be woken after it. An answer that is not a
 * DONE means a broken or hostile agent, which is hung up on. So is an agent that does not read,
 * when its socket is full.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "agent_call.h"
#include "base/clock.h"
#include "base/kernel.h"
#include "mapped_segment.h"
#include "programs/client/clients.h"

#define LATE_MAX 1024u /* GONEs that one agent may leave unanswered */
#define SLICE_MS 100u
#define SKIP_MAX 4096 /* late answers that one call reads at most */

/* A GONE that is not answered yet. */
struct late {
	STAILQ_ENTRY(late) link;
	uint32_t serial;
	struct mapped_segment *mseg; /* a reference */
	uint64_t addr, len;
};

static int hang_up(struct client *client, int why)
{
	shutdown(client->sock, SHUT_RDWR); /* the control loop sees it and buries the client */
	return why;
}

int agent_send(struct client *client, struct session_msg *msg, int fd)
{
	int rc;

	if (!client_is(client, CLIENT_READY))
		return -ESRCH;
	msg->serial = ++client->serial;
	rc = session_send(client->sock, msg, &fd, fd >= 0, MSG_DONTWAIT);
	return rc ? hang_up(client, -ESRCH) : 0;
}

static void late_done(struct client *client, uint32_t serial)
{
	struct late *late;

	STAILQ_FOREACH (late, &client->late, link)
		if (late->serial == serial)
			break;
	if (!late)
		return;
	STAILQ_REMOVE(&client->late, late, late, link);
	client->n_late--;
	atomic_fetch_sub(&late->mseg->late, 1);
	kernel_uffd_wake(client->uffd, late->addr, late->len);
	atomic_store(&client->stale, true);
	loop_wake_send(client->programs->look);
	mseg_put(client->programs, late->mseg);
	free(late);
}

int agent_look(struct client *client, uint32_t serial, uint64_t *at)
{
	struct session_msg msg;

	for (int i = 0; i < SKIP_MAX; i++) {
		int rc = session_recv(client->sock, &msg, NULL, NULL, MSG_DONTWAIT);

		if (rc == -EAGAIN)
			return rc;
		if (rc == -EPIPE || rc == -ECONNRESET)
			return -ESRCH;
		if (rc || msg.type != SESSION_DONE || msg.result > 4095)
			return hang_up(client, -EPROTO);
		atomic_store(&client->answered_us, clock_us());
		if (msg.serial == client->return_serial)
			client->return_serial = 0;
		if (msg.serial != serial) {
			late_done(client, msg.serial);
			continue;
		}
		if (at)
			*at = msg.addr;
		/* agent_look uses EAGAIN for "no answer yet"; the kernel returns it for an mmap
		   that would lock too much memory. */
		return msg.result == EAGAIN ? -ENOMEM : -(int)msg.result;
	}
	return hang_up(client, -EPROTO);
}

int agent_wait(struct client *client, uint32_t serial, uint64_t until_ms, uint64_t *at)
{
	struct pollfd poller = {.fd = client->sock, .events = POLLIN};

	for (;;) {
		uint64_t now = clock_ms();
		int rc, slice;

		if (now >= until_ms || atomic_load(&client->programs->closing))
			return -ETIMEDOUT;
		slice = (int)(until_ms - now < SLICE_MS ? until_ms - now : SLICE_MS);
		if (poll(&poller, 1, slice) <= 0)
			continue;
		rc = agent_look(client, serial, at);
		if (rc == -EAGAIN && !(poller.revents & POLLHUP))
			continue;
		return rc == -EAGAIN ? -ESRCH : rc;
	}
}

static bool leaves_half_done(uint16_t type)
{
	return type != SESSION_DROP && type != SESSION_SAY && type != SESSION_RESERVE &&
	       type != SESSION_MOVE && type != SESSION_RETURN;
}

int agent_ask(struct client *client, struct session_msg *msg, int fd, uint64_t until_ms,
	      uint64_t *at)
{
	int rc = agent_send(client, msg, fd);

	if (!rc)
		rc = agent_wait(client, msg->serial, until_ms, at);
	if (rc == -ETIMEDOUT && leaves_half_done(msg->type))
		hang_up(client, rc);
	return rc;
}

int agent_call(struct client *client, struct session_msg *msg, int fd, uint64_t until_ms,
	       uint64_t *at)
{
	int rc;

	pthread_mutex_lock(&client->io);
	rc = agent_ask(client, msg, fd, until_ms, at);
	pthread_mutex_unlock(&client->io);
	return rc;
}

void agent_expect(struct client *client, uint32_t serial, struct mapped_segment *mseg,
		  uint64_t addr, uint64_t len)
{
	struct late *late = malloc(sizeof(*late));

	if (!late || client->n_late >= LATE_MAX) {
		free(late);
		hang_up(client, 0); /* it connects again, and is told again */
		return;
	}
	*late = (struct late){
		.serial = serial,
		.mseg = mseg_hold(client->programs, mseg),
		.addr = addr,
		.len = len,
	};
	STAILQ_INSERT_TAIL(&client->late, late, link);
	client->n_late++;
	atomic_fetch_add(&mseg->late, 1);
	loop_wake_send(client->programs->look);
}

bool agent_expects(struct client *client, const struct mapped_segment *mseg, uint64_t addr,
		   uint64_t len)
{
	const struct late *late;

	STAILQ_FOREACH (late, &client->late, link)
		if (late->mseg == mseg && late->addr == addr && late->len == len)
			return true;
	return false;
}

void agent_take_late(struct client *client)
{
	if (pthread_mutex_trylock(&client->io))
		return;
	/* No command has the serial 0, so every answer is a late one. */
	agent_look(client, 0, NULL);
	pthread_mutex_unlock(&client->io);
}

void agent_forget_late(struct client *client)
{
	struct late *late;

	while ((late = STAILQ_FIRST(&client->late))) {
		STAILQ_REMOVE_HEAD(&client->late, link);
		atomic_fetch_sub(&late->mseg->late, 1);
		mseg_put(client->programs, late->mseg);
		free(late);
	}
}
