/*
 * The line that says where a segment has gone: once, whatever the program's stderr is, and no
 * thread of the program waits for it. And all that under a filter as services have.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_daemon.h"
#include "shim_driver.h"

#define LINE "rampfs: a/seg is now on node b; touching it here is SIGBUS"

/* A daemon that had no answer in time tells it again. */
static void leave_and_return(struct program *p)
{
	await(p, "here");
	fake_revoke(fake, p->pid);
	for (int i = 0; i < 3; i++)
		fake_gone(fake, p->pid, LINE);
	go_on(p);
	await(p, "gone");
	fake_back(fake, p->pid);
	go_on(p);
}

/* Checks that all that can be read there, until its end, is the line. */
static void says_the_line(int fd)
{
	char text[256];
	size_t len = 0;
	ssize_t n;

	while ((n = read(fd, text + len, sizeof(text) - 1 - len)) > 0)
		len += (size_t)n;
	text[len] = '\0';
	ck_assert_int_eq(n, 0);
	ck_assert_str_eq(text, LINE "\n");
	close(fd);
}

static void into_socket(int type)
{
	struct program p;
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair), 0);
	stderr_fd = pair[1];
	p = start("gone");
	close(pair[1]);
	leave_and_return(&p);
	finish(&p);
	says_the_line(pair[0]);
}

START_TEST(a_socket_gets_the_line)
{
	into_socket(_i ? SOCK_SEQPACKET : SOCK_STREAM);
}
END_TEST

START_TEST(a_file_that_the_program_may_not_open_gets_the_line)
{
	struct program p;

	close(open(errors, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	p = start_as("gone", 65534);
	leave_and_return(&p);
	finish(&p);
	ck_assert_str_eq(said(), LINE "\n");
}
END_TEST

START_TEST(a_program_whose_first_thread_has_ended_gets_the_line)
{
	struct program p = start("headless");

	leave_and_return(&p);
	finish(&p);
	ck_assert_str_eq(said(), LINE "\n");
}
END_TEST

/* The line waits for room; the program does not, nor does its segment. */
START_TEST(a_full_pipe_gets_the_line_when_it_has_room)
{
	char full[4096] = {0};
	struct program p;
	size_t len = 0;
	int ends[2];
	ssize_t n;

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	while ((n = write(ends[1], full, sizeof(full))) > 0)
		len += (size_t)n;
	ck_assert_int_eq(fcntl(ends[1], F_SETFL, 0), 0);
	ck_assert_int_eq(fcntl(ends[0], F_SETFL, 0), 0);
	stderr_fd = ends[1];
	p = start("gone");
	close(ends[1]);
	await(&p, "here");
	fake_revoke(fake, p.pid);
	fake_gone(fake, p.pid, LINE);
	go_on(&p);
	await(&p, "gone");
	for (; len > 0; len -= (size_t)n) {
		n = read(ends[0], full, sizeof(full));
		ck_assert_int_gt(n, 0);
	}
	ck_assert_int_eq(read(ends[0], full, sizeof(full)), strlen(LINE) + 1);
	fake_back(fake, p.pid);
	go_on(&p);
	finish(&p);
	close(ends[0]);
}
END_TEST

/* No thread of ours keeps it open. */
START_TEST(a_pipe_that_the_program_has_closed_ends)
{
	struct pollfd end;
	struct program p;
	int ends[2];

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	stderr_fd = ends[1];
	p = start("closer");
	close(ends[1]);
	await(&p, "closed");
	end = (struct pollfd){.fd = ends[0]};
	ck_assert_int_eq(poll(&end, 1, 20000), 1);
	ck_assert_int_eq(end.revents, POLLHUP);
	go_on(&p);
	finish(&p);
	close(ends[0]);
}
END_TEST

START_TEST(a_filter_for_services_allows_all_that_the_shim_calls)
{
	static const char *const alone[] = {"basic", "flags",	"protect",
					    "forks", "threads", "full"};
	struct program p;

	wrapper = AS_SERVICE;
	p = start("gone");
	leave_and_return(&p);
	finish(&p);
	ck_assert_str_eq(said(), LINE "\n");
	into_socket(SOCK_STREAM);
	stderr_fd = -1;
	for (size_t i = 0; i < sizeof(alone) / sizeof(alone[0]); i++) {
		p = start(alone[i]);
		finish(&p);
	}
}
END_TEST

START_TEST(a_daemon_that_comes_back_finds_agents_with_a_filter_for_services)
{
	struct program p;

	wrapper = AS_SERVICE;
	p = start("restart");
	await(&p, "mapped");
	fake_die(fake);
	fake_wait_session(fake, p.pid);
	go_on(&p);
	await(&p, "forked");
	go_on(&p);
	finish(&p);
	ck_assert_str_eq(said(), "");
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("fake daemon");

	tcase_add_loop_test(tc, a_socket_gets_the_line, 0, 2);
	tcase_add_test(tc, a_file_that_the_program_may_not_open_gets_the_line);
	tcase_add_test(tc, a_program_whose_first_thread_has_ended_gets_the_line);
	tcase_add_test(tc, a_full_pipe_gets_the_line_when_it_has_room);
	tcase_add_test(tc, a_pipe_that_the_program_has_closed_ends);
	tcase_add_test(tc, a_filter_for_services_allows_all_that_the_shim_calls);
	tcase_add_test(tc, a_daemon_that_comes_back_finds_agents_with_a_filter_for_services);
	return driver_run("shim_stderr", tc);
}
