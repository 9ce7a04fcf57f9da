/*
 * What this daemon leaves to the next one: the userfaultfds of orphans (space.c), whose last copies
 * it has. With the last one goes all that is registered, and who goes on with that memory would read
 * zeros where pages are missing.
 *
 * Happy path: an orphan's userfaultfd is sent into a socket pair both ends of which the keeper holds,
 * too, and with it the file of /proc that is its memory's, whatever has become of its process. Nobody
 * reads that as long as this daemon lives. The next one does, sends it again, and makes it an orphan
 * of its own. When an orphan goes, it is taken off the shelf.
 *
 * How it fails: on a full shelf nothing is put, and one line says so: that orphan's missing pages
 * hang on this daemon's life, as all do until their session's end has been seen, and before Linux
 * 6.11. One that can't be looked at stays on the shelf, and its page faults wait.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "programs/local.h"

/* The HELLO that nobody says any more: `tid` is the process, `flags` its user. */
static int put(struct programs *p, const struct session_msg *hello, const int fds[2])
{
	return session_send(p->shelf[0], hello, fds, 2, MSG_DONTWAIT);
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

	if (!session_recv(p->shelf[1], &hello, fds, &nfds, MSG_DONTWAIT))
		close_all(fds, nfds);
}

/* It goes to the end before it is taken from the front: this daemon may be killed between. A full
   shelf has room for it only then. */
static int move_to_end(struct programs *p, const struct session_msg *hello, const int fds[2])
{
	int rc = put(p, hello, fds);

	if (rc && rc != -EAGAIN)
		return rc;
	take_first(p);
	return rc ? put(p, hello, fds) : 0;
}

typedef bool shelf_fn(void *arg, const struct session_msg *hello, const int fds[2]);

/* fn for all that lies there; what it says false of is taken off. What comes without its
   descriptors, for want of room for them here, stays where it is, and so does all behind it. */
static void each(struct programs *p, shelf_fn *fn, void *arg)
{
	struct session_msg hello;
	int fds[SESSION_FDS_MAX], nfds;
	bool more = true;

	pthread_mutex_lock(&p->shelving);
	p->shelf_round++;
	while (more && !session_recv(p->shelf[1], &hello, fds, &nfds, MSG_DONTWAIT | MSG_PEEK)) {
		more = hello.serial != p->shelf_round && nfds == 2;
		hello.serial = p->shelf_round;
		if (more && fn(arg, &hello, fds))
			more = !move_to_end(p, &hello, fds);
		else if (more)
			take_first(p);
		close_all(fds, nfds);
	}
	pthread_mutex_unlock(&p->shelving);
}

void shelf_put(struct space *space)
{
	struct programs *p = space->programs;
	const int fds[2] = {space->uffd, space->maps.fd};
	struct session_msg hello = {
		.type = SESSION_HELLO, .tid = (uint32_t)space->pid, .flags = space->uid};
	static atomic_bool said;
	int rc;

	if (p->shelf[0] < 0 || space->uffd < 0 || !space->maps_open || space->maps.text)
		return;
	pthread_mutex_lock(&p->shelving);
	hello.serial = p->shelf_round;
	rc = put(p, &hello, fds);
	pthread_mutex_unlock(&p->shelving);
	space->shelved = !rc;
	if (rc && !atomic_exchange(&said, true))
		log_warn("missing pages of what process %d has left hang on this daemon's life: %s",
			 (int)space->pid, strerror(-rc));
}

static bool is_another(void *arg, const struct session_msg *hello, const int fds[2])
{
	struct space *space = arg;

	(void)hello;
	return kernel_same_file(space->uffd, fds[0]) <= 0;
}

void shelf_drop(struct space *space)
{
	if (space->shelved)
		each(space->programs, is_another, space);
	space->shelved = false;
}

/* ---- what a former daemon has left ---------------------------------------------------------- */

struct finds {
	struct programs *programs;
	struct space_list list;
};

static bool find(void *arg, const struct session_msg *hello, const int fds[2])
{
	struct finds *finds = arg;
	struct programs *p = finds->programs;
	struct space *space;

	TAILQ_FOREACH (space, &finds->list, link)
		if (kernel_same_file(space->uffd, fds[0]) > 0)
			return false;
	space = space_make(p, (pid_t)hello->tid, hello->flags);
	if (!space)
		return true;
	space->uffd = fcntl(fds[0], F_DUPFD_CLOEXEC, 0);
	space->maps = (struct kernel_maps){.fd = fcntl(fds[1], F_DUPFD_CLOEXEC, 0)};
	space->maps_open = space->maps.fd >= 0;
	if (space->uffd < 0 || !space->maps_open) {
		log_warn("what process %d has left waits for a daemon with more descriptors",
			 (int)hello->tid);
		space_put(space); /* the shelf's own copies stay */
		return true;
	}
	space->state = SPACE_DEAD;
	space->orphan = space->shelved = true;
	TAILQ_INSERT_TAIL(&finds->list, space, link);
	return true;
}

void shelf_adopt(struct programs *p)
{
	struct finds finds = {.programs = p};
	struct space *space;

	if (p->shelf[0] < 0)
		return;
	TAILQ_INIT(&finds.list);
	each(p, find, &finds);
	while ((space = TAILQ_FIRST(&finds.list))) {
		TAILQ_REMOVE(&finds.list, space, link);
		space_adopt(space);
	}
}
