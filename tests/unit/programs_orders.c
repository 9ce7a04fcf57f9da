/* The test's side of a program (programs_prog.h). */
#include "programs_prog.h"

#include <check.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

void prog_start(struct prog *prog, const char *session_path)
{
	char *argv[] = {"program", (char *)session_path, NULL};
	posix_spawn_file_actions_t files;
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, pair[1], 3);
	ck_assert_int_eq(posix_spawn(&prog->pid, PROG_PATH, &files, NULL, argv, environ), 0);
	posix_spawn_file_actions_destroy(&files);
	close(pair[1]);
	prog->sock = pair[0];
}

void prog_end(struct prog *prog)
{
	kill(prog->pid, SIGKILL);
	waitpid(prog->pid, NULL, 0);
	close(prog->sock);
}

void prog_send(struct prog *prog, const struct prog_order *order)
{
	ck_assert_int_eq(send(prog->sock, order, sizeof(*order), 0), (ssize_t)sizeof(*order));
}

bool prog_wait(struct prog *prog, struct prog_report *report, int ms)
{
	struct pollfd at = {.fd = prog->sock, .events = POLLIN};

	if (poll(&at, 1, ms) <= 0)
		return false;
	ck_assert_int_eq(recv(prog->sock, report, sizeof(*report), 0), (ssize_t)sizeof(*report));
	return true;
}

struct prog_report prog_do(struct prog *prog, const struct prog_order *order)
{
	struct prog_report report = {0};

	prog_send(prog, order);
	ck_assert_msg(prog_wait(prog, &report, 20000), "order %d was not carried out", order->op);
	return report;
}
