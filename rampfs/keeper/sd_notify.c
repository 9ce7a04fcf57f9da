#include "sd_notify.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

void notify_systemd(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	socklen_t len;
	int fd;

	if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof(addr.sun_path))
		return;
	strcpy(addr.sun_path, path);
	len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
	if (path[0] == '@')
		addr.sun_path[0] = 0; /* an abstract name */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
			     (struct sockaddr *)&addr, len) < 0)
		log_debug("systemd is not told %s", state);
	if (fd >= 0)
		close(fd);
}

void notify_reloading(void)
{
	char state[64];
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
		 (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
	notify_systemd(state);
}
