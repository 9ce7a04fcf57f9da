#include "stranger.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "programs_world.h"

const char *stranger_file;
int stranger_has = -1;

/* In the other process: a path of the session socket that needs no rights on the directories
   above it. */
static char door_path[32];

struct stranger stranger_start(uid_t uid, int (*act)(const void *arg), const void *arg)
{
	int at = open(world.socket, O_PATH | O_CLOEXEC), pipefd[2], n;
	struct stranger s;

	ck_assert_int_ge(at, 0);
	ck_assert_int_eq(chmod(world.socket, 0666), 0);
	ck_assert_int_eq(pipe2(pipefd, O_CLOEXEC), 0);
	s.pid = fork();
	ck_assert_int_ge(s.pid, 0);
	if (s.pid == 0) {
		snprintf(door_path, sizeof(door_path), "/proc/self/fd/%d", at);
		if (stranger_file)
			stranger_has = open(stranger_file, O_RDWR | O_CLOEXEC);
		if (setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
			_exit(1);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		n = act(arg);
		if (write(pipefd[1], &n, sizeof(n)) != sizeof(n))
			_exit(1);
		for (;;)
			pause();
	}
	close(at);
	close(pipefd[1]);
	s.from = pipefd[0];
	return s;
}

int stranger_said(struct stranger *s)
{
	struct pollfd at = {.fd = s->from, .events = POLLIN};
	int n = -1;

	ck_assert_int_eq(poll(&at, 1, PATIENCE), 1);
	ck_assert_int_eq(read(s->from, &n, sizeof(n)), (ssize_t)sizeof(n));
	return n;
}

void stranger_end(struct stranger *s)
{
	kill(s->pid, SIGKILL);
	waitpid(s->pid, NULL, 0);
	close(s->from);
}

int stranger_connect(void)
{
	return session_connect(door_path);
}

int stranger_hello(void)
{
	struct session_msg m = {.type = SESSION_HELLO, .tid = 1};
	int sock = stranger_connect();

	if (sock >= 0 && session_send(sock, &m, NULL, 0, 0)) {
		close(sock);
		return -1;
	}
	return sock;
}

int stranger_welcome(int sock, int ms, int *door)
{
	struct pollfd at = {.fd = sock, .events = POLLIN};
	int fds[SESSION_FDS_MAX], nfds = 0, rc;
	struct session_msg m;

	*door = -1;
	if (poll(&at, 1, ms) != 1)
		return -EAGAIN;
	rc = session_recv(sock, &m, fds, &nfds, 0);
	if (rc)
		return rc;
	if (nfds > 0)
		*door = fds[0];
	for (int i = 1; i < nfds; i++)
		close(fds[i]);
	return (int)m.result;
}
