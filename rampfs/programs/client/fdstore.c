/*
 * The fdstore: userfaultfds of orphans (client_life.c) that this daemon leaves to the next one.
 *
 * This daemon has the last copy of an orphan's userfaultfd. When the last copy is closed, every
 * registration goes with it, and a process that still runs with that memory would read zeros where
 * pages are missing.
 *
 * Happy path: an orphan's userfaultfd is sent into a socket pair both ends of which the keeper
 * holds, too, and with it the orphan's /proc/PID/maps, which is of its memory whatever becomes of
 * the process. Nothing reads that socket as long as this daemon lives. The next daemon reads it,
 * sends each message into it again, and makes it an orphan of its own. When an orphan ends, it is
 * taken off the fdstore.
 *
 * How it fails: when the fdstore is full, nothing is put into it, and one log line says so: that
 * orphan's missing pages depend on this daemon's life, as do those of all processes until their
 * session's end has been seen, and of all before Linux 6.11. An orphan that can't be looked into
 * stays in the fdstore, and its page faults wait.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/log.h"
#include "base/session.h"
#include "clients.h"
#include "fdstore.h"

/* The message is a HELLO that stands for the process that has ended: `tid` is its pid, `flags`
   its user. */
static int fdstore_send(struct programs *p, const struct session_msg *hello, const int fds[2])
{
	return session_send(p->fdstore[0], hello, fds, 2, MSG_DONTWAIT);
}

static void close_all(const int *fds, int nfds)
{
	for (int i = 0; i < nfds; i++)
		close(fds[i]);
}

static void take_first(struct programs *p)
{
	struct session_msg hello;
	int fds[SESSION_FDS_MAX], nfds;

	if (!session_recv(p->fdstore[1], &hello, fds, &nfds, MSG_DONTWAIT))
		close_all(fds, nfds);
}

/* Sends the first message again at the end before taking it from the front: this daemon may be
   killed between the two. Only if the fdstore is full, it is taken first, to make room. */
static int move_to_end(struct programs *p, const struct session_msg *hello, const int fds[2])
{
	int rc = fdstore_send(p, hello, fds);

	if (rc && rc != -EAGAIN)
		return rc;
	take_first(p);
	return rc ? fdstore_send(p, hello, fds) : 0;
}

typedef bool fdstore_fn(void *arg, const struct session_msg *hello, const int fds[2]);

/* Calls fn for each message; those for which fn returns false are taken off. A message that
   comes without its descriptors, since this process has no room for them, stays where it is, and
   so do all behind it. */
static void fdstore_each(struct programs *p, fdstore_fn *fn, void *arg)
{
	struct session_msg hello;
	int fds[SESSION_FDS_MAX], nfds;
	bool more = true;

	pthread_mutex_lock(&p->fdstore_lock);
	p->fdstore_round++;
	while (more && !session_recv(p->fdstore[1], &hello, fds, &nfds, MSG_DONTWAIT | MSG_PEEK)) {
		more = hello.serial != p->fdstore_round && nfds == 2;
		hello.serial = p->fdstore_round;
		if (more && fn(arg, &hello, fds))
			more = !move_to_end(p, &hello, fds);
		else if (more)
			take_first(p);
		close_all(fds, nfds);
	}
	pthread_mutex_unlock(&p->fdstore_lock);
}

void fdstore_put(struct client *client)
{
	struct programs *p = client->programs;
	const int fds[2] = {client->uffd, client->mappings.maps.fd};
	struct session_msg hello = {
		.type = SESSION_HELLO, .tid = (uint32_t)client->pid, .flags = client->uid};
	static atomic_bool said;
	int rc;

	if (p->fdstore[0] < 0 || client->uffd < 0 || !client->mappings.maps_open ||
	    client->mappings.maps.text)
		return;
	pthread_mutex_lock(&p->fdstore_lock);
	hello.serial = p->fdstore_round;
	rc = fdstore_send(p, &hello, fds);
	pthread_mutex_unlock(&p->fdstore_lock);
	client->stored = !rc;
	if (rc && !atomic_exchange(&said, true))
		log_warn("missing pages of the memory that process %d left depend on this daemon's "
			 "life: %s",
			 (int)client->pid, strerror(-rc));
}

static bool is_another(void *arg, const struct session_msg *hello, const int fds[2])
{
	struct client *client = arg;

	(void)hello;
	return kernel_same_file(client->uffd, fds[0]) <= 0;
}

void fdstore_drop(struct client *client)
{
	if (client->stored)
		fdstore_each(client->programs, is_another, client);
	client->stored = false;
}

/* ---- the orphans of the daemon before ------------------------------------------------------- */

struct adopted {
	struct programs *programs;
	struct client_list list;
};

static bool adopt_one(void *arg, const struct session_msg *hello, const int fds[2])
{
	struct adopted *finds = arg;
	struct programs *p = finds->programs;
	struct client *client;

	TAILQ_FOREACH (client, &finds->list, link)
		if (kernel_same_file(client->uffd, fds[0]) > 0)
			return false;
	client = client_make(p, (pid_t)hello->tid, hello->flags);
	if (!client)
		return true;
	client->uffd = fcntl(fds[0], F_DUPFD_CLOEXEC, 0);
	mappings_take(&client->mappings, fcntl(fds[1], F_DUPFD_CLOEXEC, 0));
	if (client->uffd < 0 || !client->mappings.maps_open) {
		log_warn("the memory that process %d left waits for a daemon with more descriptors",
			 (int)hello->tid);
		client_put(client); /* the fdstore's own copies stay */
		return true;
	}
	client_go(client, CLIENT_AT_BROKER, CLIENT_DEAD);
	client->orphan = client->stored = true;
	TAILQ_INSERT_TAIL(&finds->list, client, link);
	return true;
}

void fdstore_adopt(struct programs *p, void (*adopt)(struct client *client))
{
	struct adopted finds = {.programs = p};
	struct client *client;

	if (p->fdstore[0] < 0)
		return;
	TAILQ_INIT(&finds.list);
	fdstore_each(p, adopt_one, &finds);
	while ((client = TAILQ_FIRST(&finds.list))) {
		TAILQ_REMOVE(&finds.list, client, link);
		adopt(client);
	}
}
