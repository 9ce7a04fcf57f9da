/*
 * Root may listen: uid 0 of the program's own user namespace, which may do anything with the
 * program as it is. The kernel remembers the uid of the process that called listen(2): for a
 * daemon, of its keeper.
 *
 * In a user namespace that does not have the machine's root (a rootless container), the kernel
 * shows that uid as the overflow uid, like all others that have no number there. There the path has
 * to do: /run/rampfs belongs to root, or to the user that made the container.
 */
#include "daemon_request.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/session.h"
#include "sys.h"

#define OVERFLOW_UID 65534 /* the default of /proc/sys/kernel/overflowuid */
#define UIDS	     UINT32_MAX

static bool right_place(const char *path)
{
	size_t len = strlen(SESSION_DIR "/");

	return strncmp(path, SESSION_DIR "/", len) == 0 && !strchr(path + len, '/');
}

/* Returns the next number in the text, and moves *text behind it. */
static uint64_t parse_number(const char **text)
{
	uint64_t number = 0;

	while (**text == ' ')
		(*text)++;
	for (; **text >= '0' && **text <= '9'; (*text)++)
		number = number * 10 + (uint64_t)(**text - '0');
	return number;
}

/* Whether our user namespace has no number for some users: its map is not "0 0 4294967295". */
static bool some_have_no_uid(void)
{
	char map[128];
	const char *at = map;
	int fd = sys_open("/proc/self/uid_map", O_RDONLY);
	ssize_t n = fd < 0 ? -1 : syscall(SYS_read, fd, map, sizeof(map) - 1);
	uint64_t inside, outside;

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return false;
	map[n] = '\0';
	inside = parse_number(&at);
	outside = parse_number(&at);
	return inside || outside || parse_number(&at) != UIDS;
}

static bool is_roots(int sock)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len))
		return false;
	return peer.uid == 0 || (peer.uid == OVERFLOW_UID && some_have_no_uid());
}

int daemon_connect(const char *path, uint32_t patience_ms)
{
	int sock;

	if (!right_place(path))
		return -EPERM;
	sock = session_connect_within(path, patience_ms);
	if (sock < 0)
		return sock == -EAGAIN ? -ETIMEDOUT : sock;
	if (is_roots(sock))
		return sock;
	close(sock);
	return -EPERM;
}

bool daemon_is_away(int rc)
{
	return rc == -EPIPE || rc == -ECONNREFUSED || rc == -ECONNRESET || rc == -ENOENT;
}

static uint32_t left_ms(uint64_t deadline_ms)
{
	uint64_t now_ms = clock_ms();

	return now_ms < deadline_ms ? (uint32_t)(deadline_ms - now_ms) : 1;
}

int daemon_request(const char *path, struct session_msg *msg, uint64_t deadline_ms)
{
	struct timeval time;
	uint32_t ms;
	int sock, rc;

	sock = daemon_connect(path, left_ms(deadline_ms));
	if (sock < 0)
		return daemon_is_away(sock) ? -EPIPE : sock;
	ms = left_ms(deadline_ms);
	time = (struct timeval){.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
	rc = session_send(sock, msg, NULL, 0, 0);
	if (rc == 0)
		rc = session_recv(sock, msg, NULL, NULL, 0);
	close(sock);
	if (rc == -EAGAIN)
		return -ETIMEDOUT;
	if (daemon_is_away(rc))
		return -EPIPE;
	if (rc == 0 && msg->type != SESSION_RESULT)
		return -EPROTO;
	return rc;
}
