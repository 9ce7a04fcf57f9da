#include "daemon_link.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "core/daemon_request.h"

#define CONNECT_MS 5000u /* a daemon that accepts no connection for longer is away */
#define REST_MS	   100u	 /* between two tries to find one */

int link_open(struct daemon_link *link, struct ramp_cluster *ramp)
{
	struct epoll_event event = {.events = EPOLLIN};

	link->ramp = handle_get(ramp);
	link->sock = -1;
	link->away_since_ms = 0;
	link->silent = 0;
	link->epoll = epoll_create1(EPOLL_CLOEXEC);
	link->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (link->epoll < 0 || link->timer < 0 ||
	    epoll_ctl(link->epoll, EPOLL_CTL_ADD, link->timer, &event))
		return -errno;
	return 0;
}

void link_close(struct daemon_link *link)
{
	link_hang_up(link);
	if (link->timer >= 0)
		close(link->timer);
	if (link->epoll >= 0)
		close(link->epoll);
	handle_put(link->ramp);
}

int link_ask(struct daemon_link *link, const struct session_msg *first)
{
	struct epoll_event event = {.events = EPOLLIN};
	int rc = daemon_connect(link->ramp->info.socket, CONNECT_MS);

	if (rc < 0)
		return rc;
	link->sock = rc;
	rc = session_send(link->sock, first, NULL, 0, 0);
	if (!rc && epoll_ctl(link->epoll, EPOLL_CTL_ADD, link->sock, &event))
		rc = -errno;
	if (rc) {
		link_hang_up(link);
		return rc;
	}
	link->away_since_ms = 0;
	link->silent++;
	return 0;
}

void link_hang_up(struct daemon_link *link)
{
	if (link->sock >= 0)
		close(link->sock);
	link->sock = -1;
}

static void set_timer(const struct daemon_link *link, long ns)
{
	struct itimerspec when = {.it_value.tv_nsec = ns};

	timerfd_settime(link->timer, 0, &when, NULL);
}

static void now_away(struct daemon_link *link)
{
	link_hang_up(link);
	if (!link->away_since_ms)
		link->away_since_ms = clock_ms();
}

void link_rest(struct daemon_link *link)
{
	now_away(link);
	set_timer(link, REST_MS * 1000000);
}

int link_next(struct daemon_link *link, int rc)
{
	if (!rc)
		return 0;
	if (!daemon_is_away(rc) && rc != -ETIMEDOUT)
		return rc;
	if (link->away_since_ms && clock_ms() - link->away_since_ms > LINK_AWAY_MS)
		return -ETIMEDOUT;
	link_rest(link);
	return 0;
}

void link_stay_readable(struct daemon_link *link)
{
	set_timer(link, 1);
}

int link_take(struct daemon_link *link, struct session_msg *msg)
{
	uint64_t expired;
	int rc;

	if (link->sock < 0)
		return read(link->timer, &expired, sizeof(expired)) > 0 ? -EPIPE : -EAGAIN;
	rc = session_recv(link->sock, msg, NULL, NULL, MSG_DONTWAIT);
	/* The daemon had answered and hung up before it read what was sent: the error comes
	   first. */
	if (rc == -ECONNRESET)
		rc = session_recv(link->sock, msg, NULL, NULL, MSG_DONTWAIT);
	if (rc == -EAGAIN || rc == -EINTR)
		return -EAGAIN;
	if (!rc) {
		link->silent = 0;
		return 0;
	}
	now_away(link);
	if (rc == -EPROTO)
		return rc;
	if (!link->silent)
		return -EPIPE;
	link_rest(link);
	return -EAGAIN;
}

int link_poll(const struct daemon_link *link, uint64_t until_ms)
{
	struct pollfd at = {.fd = link->epoll, .events = POLLIN};
	uint64_t now_ms = clock_ms(), ms = until_ms > now_ms ? until_ms - now_ms : 0;
	int n, wait_ms = until_ms == UINT64_MAX ? -1 : ms < INT_MAX ? (int)ms : INT_MAX;

	n = poll(&at, 1, wait_ms);
	return n < 0 ? -errno : n;
}

bool link_wait(const struct daemon_link *link, uint64_t until_ms)
{
	return link_poll(link, until_ms) != 0;
}

uint64_t link_until_ms(int timeout_ms)
{
	return timeout_ms < 0 ? UINT64_MAX : clock_ms() + (uint64_t)timeout_ms;
}
