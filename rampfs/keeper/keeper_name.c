/*
 * The name of the listening session socket: made at the start, looked after, and made again when it
 * was removed (by a cleaner of /run, or by hand).
 *
 *   there --gone--> a new socket at NAME.new, sent to the daemon --taken--> renamed to NAME
 *
 * A socket can be bound once, so a name that is gone needs a new socket. The daemon gets it first,
 * and then the name: a program that finds the name finds a listener. The daemon keeps the old socket
 * until it has accepted the connections that wait there. Until the name is back, a program's mmap
 * waits for it (libramp/core/attach.c).
 *
 * How it fails: a daemon of an older version does not take a socket; then the name stays away, as
 * it does where it can't be bound, and is tried again after a longer pause. The log says so once.
 */
#include "keeper_name.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/kernel.h"
#include "base/log.h"
#include "keeper_held.h"
#include "protocol.h"

#define LOOK_MS	      1000
#define LOOK_AGAIN_MS 10000 /* after a failure */

/* Where the new socket is until it has the name. */
struct new_path {
	char text[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

static struct new_path new_path(const struct keeper *k)
{
	struct new_path path;

	snprintf(path.text, sizeof(path.text), "%.*s.new", (int)sizeof(path.text) - 5,
		 k->config->session_path);
	return path;
}

int keeper_listen_at(const struct keeper_config *config, const char *path, int *fd,
		     struct ramp_err *err)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int rc, sock;

	if (strlen(path) >= sizeof(addr.sun_path))
		return ramp_err_set(err, ENAMETOOLONG, "session socket %s: more than %zu bytes",
				    path, sizeof(addr.sun_path) - 1);
	strcpy(addr.sun_path, path);
	sock = socket(AF_UNIX, config->session_type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (sock < 0)
		return ramp_err_sys(err, errno, "session socket");
	/* Before any client connects; where that fails the daemon says so. */
	kernel_refuse_fds(sock);
	unlink(addr.sun_path);
	if (bind(sock, (struct sockaddr *)&addr, sizeof(addr)) || chmod(addr.sun_path, 0666) ||
	    listen(sock, 128)) {
		int code = errno;

		close(sock);
		return ramp_err_sys(err, code, "session socket %s", addr.sun_path);
	}
	rc = keeper_move_high(sock, fd);
	return rc ? ramp_err_sys(err, -rc, "session socket %s", addr.sun_path) : 0;
}

void keeper_name_note(struct keeper *k)
{
	struct stat st;

	k->name_ino = stat(k->config->session_path, &st) ? 0 : st.st_ino;
	k->name_dev = k->name_ino ? st.st_dev : 0;
	k->look_at_ms = clock_ms() + LOOK_MS;
}

static bool is_there(const struct keeper *k)
{
	struct stat st;

	if (stat(k->config->session_path, &st))
		return errno != ENOENT && errno != ENOTDIR;
	return k->name_ino && st.st_ino == k->name_ino && st.st_dev == k->name_dev;
}

/* The directory is as paths_find makes it: every user's programs look into it. */
static int make_directory(const struct keeper *k)
{
	struct new_path path = new_path(k);

	*strrchr(path.text, '/') = 0;
	if (mkdir(path.text, 0755) == 0)
		return chmod(path.text, 0755) ? -errno : 0;
	return errno == EEXIST ? 0 : -errno;
}

static int send_socket(const struct keeper *k)
{
	char what = KEEPER_SAY_SESSIONS;
	struct iovec iov = {&what, 1};
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &k->sessions_new, sizeof(int));
	return sendmsg(k->control, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) == 1 ? 0 : -errno;
}

static int offer_socket(struct keeper *k, struct ramp_err *err)
{
	struct new_path path = new_path(k);
	int rc = make_directory(k);

	if (rc)
		return ramp_err_sys(err, -rc, "its directory");
	rc = keeper_listen_at(k->config, path.text, &k->sessions_new, err);
	if (rc)
		return rc;
	rc = send_socket(k);
	return rc ? ramp_err_sys(err, -rc, "sending the daemon a new one") : 0;
}

static void name_failed(struct keeper *k, const char *why)
{
	keeper_name_drop(k);
	k->look_at_ms = clock_ms() + LOOK_AGAIN_MS;
	if (!k->name_said)
		log_error(
			"the session socket %s was removed: no program can map a segment until it "
			"is back: %s",
			k->config->session_path, why);
	k->name_said = true;
}

void keeper_name_look(struct keeper *k)
{
	struct ramp_err err = {0};

	k->look_at_ms = clock_ms() + LOOK_MS;
	if (k->pidfd < 0 || k->control < 0 || !k->served || k->ending || k->gone) {
		keeper_name_drop(k);
	} else if (k->sessions_new >= 0) {
		name_failed(k, "the daemon does not take a new one");
	} else if (!is_there(k)) {
		k->look_at_ms = clock_ms() + LOOK_AGAIN_MS; /* or sooner, when it is taken */
		if (offer_socket(k, &err))
			name_failed(k, err.text);
	}
}

void keeper_name_taken(struct keeper *k)
{
	struct new_path path = new_path(k);

	if (k->sessions_new < 0)
		return; /* it was dropped meanwhile */
	if (rename(path.text, k->config->session_path)) {
		name_failed(k, strerror(errno));
		return;
	}
	close(k->sessions);
	k->sessions = k->sessions_new;
	k->sessions_new = -1;
	keeper_name_note(k);
	k->name_said = false;
	log_warn("the session socket %s was removed: it is there again", k->config->session_path);
}

void keeper_name_drop(struct keeper *k)
{
	struct new_path path = new_path(k);

	if (k->sessions_new < 0)
		return;
	unlink(path.text);
	close(k->sessions_new);
	k->sessions_new = -1;
}
