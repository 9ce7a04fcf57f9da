/*
 * The thread is not the C library's, and has the agent's thread pointer: so it must not touch errno,
 * which is the agent's, and makes its system calls by itself.
 *
 * It gives no answer to the page faults that it reads: the next daemon wakes all of them when it is
 * ready.
 */
#include "move_guard.h"

#include <errno.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bare_thread.h"

#define MESSAGES 8

#if defined(__x86_64__)

static long guard_call(long number, long a, long b, long c)
{
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "0"(number), "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory");
	return result;
}

static long guard_poll(struct pollfd *fds, long count)
{
	return guard_call(SYS_poll, (long)fds, count, -1);
}

bool move_guard_possible(void)
{
	return true;
}

#else

static long guard_call(long number, long a, long b, long c)
{
	(void)number;
	(void)a;
	(void)b;
	(void)c;
	return -ENOSYS;
}

static long guard_poll(struct pollfd *fds, long count)
{
	(void)fds;
	(void)count;
	return -ENOSYS;
}

bool move_guard_possible(void)
{
	return false;
}

#endif

/* Waits for either descriptor. Returns false where the guard is to end, or can't wait. */
static bool guard_wait(const struct move_guard *guard, int fd, short events)
{
	struct pollfd wait[2] = {{.fd = guard->event, .events = POLLIN},
				 {.fd = fd, .events = events}};
	long n;

	do
		n = guard_poll(wait, 2);
	while (n == -EINTR);
	return n > 0 && !wait[0].revents;
}

static int guard_main(void *arg)
{
	struct move_guard *guard = arg;
	struct uffd_msg messages[MESSAGES];

	if (guard->sock < 0 || guard_wait(guard, guard->sock, POLLRDHUP))
		while (guard_wait(guard, guard->uffd, POLLIN))
			guard_call(SYS_read, guard->uffd, (long)messages, sizeof(messages));
	guard_call(SYS_exit, 0, 0, 0);
	return 0;
}

int move_guard_begin(struct move_guard *guard, int sock, int uffd)
{
	int code;

	if (!move_guard_possible())
		return ENOSYS;
	if (move_guard_stands(guard))
		return 0;
	move_guard_end(guard);
	guard->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (guard->event < 0)
		return errno;
	guard->sock = sock;
	guard->uffd = uffd;
	guard->alive = 1;
	code = bare_thread_begin(guard_main, guard, guard->stack + GUARD_STACK_BYTES,
				 &guard->alive);
	if (code < 0) {
		guard->alive = 0;
		close(guard->event);
		return -code;
	}
	guard->begun = true;
	return 0;
}

bool move_guard_stands(const struct move_guard *guard)
{
	return guard->begun && guard->alive;
}

void move_guard_end(struct move_guard *guard)
{
	uint64_t one = 1;

	if (!guard->begun)
		return;
	while (guard->alive && write(guard->event, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	while (guard->alive)
		syscall(SYS_futex, &guard->alive, FUTEX_WAIT, 1, NULL, NULL, 0);
	close(guard->event);
	guard->begun = false;
}
