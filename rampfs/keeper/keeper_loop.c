/*
 * The keeper's loop: one poll(2) for the daemon's end, its messages, signals, and the times
 * at which something is due.
 */
#include "keeper_loop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "keeper_daemon.h"
#include "keeper_mount.h"
#include "keeper_name.h"
#include "protocol.h"
#include "sd_notify.h"

#define END_MS 10000 /* to end when told to */

void keeper_tell_ready(const struct keeper_config *config, const char *text)
{
	if (config->ready_fd < 0)
		return;
	if (dprintf(config->ready_fd, "%s\n", text) < 0)
		log_debug("no process waits for the mount");
	close(config->ready_fd);
}

static void on_control(struct keeper *k)
{
	char message[1 + RAMP_ERR_TEXT_BYTES] = "", what;
	ssize_t n = recv(k->control, message, sizeof(message) - 1, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0) {
		/* The daemon may have sent the message that we would wait for. */
		log_warn("no message of the daemon can be received: %s; starting another",
			 strerror(errno));
		syscall(SYS_pidfd_send_signal, k->pidfd, SIGKILL, NULL, 0);
	}
	what = message[0];
	if (n <= 0) {
		close(k->control);
		k->control = -1;
	} else if (what == KEEPER_SAY_SERVING) {
		k->serving_since_ms = clock_ms();
		k->unserved = 0;
		if (!k->served && k->child)
			keeper_tell_ready(k->config, "");
		notify_systemd("READY=1\nSTATUS=serving");
		k->served = true;
	} else if (what == KEEPER_SAY_SESSIONS) {
		keeper_name_taken(k);
	} else if (what == KEEPER_SAY_FAILED) {
		snprintf(k->failure, sizeof(k->failure), "%s", message + 1);
	} else if (what == KEEPER_SAY_GONE) {
		k->gone = true;
		notify_systemd("STOPPING=1\nSTATUS=unmounted; finishing what is on its way");
	}
}

/* Opens the log file again, where it was moved away: the next daemon inherits the new file. */
static void reopen_log(const struct keeper *k)
{
	int fd;

	if (!k->config->log_path)
		return;
	fd = open(k->config->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
	if (fd < 0 || dup2(fd, STDERR_FILENO) < 0)
		log_error("log file %s: %s", k->config->log_path, strerror(errno));
	if (fd >= 0)
		close(fd);
}

static void on_signal(struct keeper *k)
{
	struct signalfd_siginfo si;
	struct ramp_err err = {0};

	if (read(k->signals, &si, sizeof(si)) != (ssize_t)sizeof(si))
		return;
	if (si.ssi_signo == SIGTERM || si.ssi_signo == SIGINT) {
		k->ending = true;
		notify_systemd("STOPPING=1");
		keeper_say(k, KEEPER_SAY_END);
		keeper_drop_mount(k);
		k->kill_at_ms = clock_ms() + END_MS;
	} else if (si.ssi_signo == SIGHUP && !k->ending && !k->gone) {
		notify_reloading();
		reopen_log(k);
		if (k->config->check(k->config, &err)) {
			log_error("the daemon stays as it is: %s", err.text);
			notify_systemd("READY=1\nSTATUS=serving");
			return;
		}
		keeper_say(k, KEEPER_SAY_UPGRADE);
		k->kill_at_ms = clock_ms() + END_MS;
	}
}

static int next_timeout(const struct keeper *k)
{
	uint64_t at = k->pidfd < 0 ? k->start_at_ms : k->kill_at_ms, now = clock_ms();

	if (!at || k->look_at_ms < at)
		at = k->look_at_ms;
	return at <= now ? 0 : (int)(at - now);
}

int keeper_loop(struct keeper *k, struct ramp_err *err)
{
	while (k->pidfd >= 0 || !(k->ending || k->gone)) {
		struct pollfd p[3] = {{.fd = k->pidfd, .events = POLLIN},
				      {.fd = k->control, .events = POLLIN},
				      {.fd = k->signals, .events = POLLIN}};
		int rc;

		if (poll(p, 3, next_timeout(k)) < 0)
			continue;
		if (p[2].revents)
			on_signal(k);
		if (p[1].revents)
			on_control(k);
		if (p[0].revents) {
			rc = keeper_daemon_died(k, err);
			if (rc)
				return rc;
		}
		if (clock_ms() >= k->look_at_ms)
			keeper_name_look(k);
		if (k->pidfd >= 0 && k->kill_at_ms && clock_ms() >= k->kill_at_ms) {
			log_warn("the daemon does not end: killing it");
			syscall(SYS_pidfd_send_signal, k->pidfd, SIGKILL, NULL, 0);
			k->kill_at_ms = 0;
		}
		if (k->pidfd < 0 && k->start_at_ms && clock_ms() >= k->start_at_ms && !k->ending &&
		    !k->gone) {
			rc = keeper_start_daemon(k, err);
			if (rc)
				return rc;
		}
	}
	return 0;
}

void keeper_let_go(struct keeper *k)
{
	keeper_drop_mount(k);
	keeper_name_drop(k);
	if (k->sessions >= 0)
		unlink(k->config->session_path);
	if (k->control >= 0)
		close(k->control);
	if (k->sessions >= 0)
		close(k->sessions);
	if (k->fuse >= 0)
		close(k->fuse);
	if (k->signals >= 0)
		close(k->signals);
	for (int i = 0; i < 2; i++)
		if (k->fdstore[i] >= 0)
			close(k->fdstore[i]);
}
