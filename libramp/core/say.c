#include "say.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sys.h"

#define LINE_BYTES 512

static bool quiet;

/* The file at descriptor 2 when the program began; type 0: it was closed. */
static struct {
	dev_t dev;
	ino_t ino;
	mode_t type;
} first_stderr;

static void note_stderr(void)
{
	struct stat st;

	if (fstat(STDERR_FILENO, &st))
		return;
	first_stderr.dev = st.st_dev;
	first_stderr.ino = st.st_ino;
	first_stderr.type = st.st_mode & S_IFMT;
}

void say_init(void)
{
	const char *value = getenv("RAMPFS_QUIET");

	quiet = value && strcmp(value, "1") == 0;
	note_stderr();
}

/* Returns the line's bytes with its newline; a line that does not fit is cut. */
static size_t join_parts(char *line, const char *part, va_list ap)
{
	size_t len = 0;

	for (; part; part = va_arg(ap, const char *))
		while (*part && len < LINE_BYTES - 1)
			line[len++] = *part++;
	line[len++] = '\n';
	return len;
}

/*
 * Whether a line may be written there. A program that has closed its stderr gets the number for
 * another file, and a line in the midst of its data would spoil that: so nothing is written where
 * there was no stderr, nor into a file that the program also reads. A log that was put in stderr's
 * place is a file for writing alone. A pipe or socket has to be the one that was stderr at the
 * beginning.
 */
static bool takes_lines(const struct stat *st, bool also_read)
{
	mode_t type = st->st_mode & S_IFMT;

	if (!first_stderr.type)
		return false;
	if (type == S_IFREG)
		return !also_read;
	return type == S_IFCHR || (type == first_stderr.type && st->st_dev == first_stderr.dev &&
				   st->st_ino == first_stderr.ino);
}

/* Writes the line. A pipe without a reader raises SIGPIPE in the thread that writes: that signal is
   taken back. */
static void write_stderr(const char *line, size_t len)
{
	struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
	struct timespec now = {0};
	sigset_t pending, pipe;
	struct stat st;

	if (fstat(STDERR_FILENO, &st) ||
	    !takes_lines(&st, (fcntl(STDERR_FILENO, F_GETFL) & O_ACCMODE) == O_RDWR))
		return;
	if (poll(&ready, 1, 0) != 1 || (ready.revents & (POLLERR | POLLHUP | POLLNVAL)))
		return;
	sigemptyset(&pending);
	sigpending(&pending);
	if (write(STDERR_FILENO, line, len) < 0 && errno == EPIPE &&
	    !sigismember(&pending, SIGPIPE)) {
		sigemptyset(&pipe);
		sigaddset(&pipe, SIGPIPE);
		sigtimedwait(&pipe, NULL, &now);
	}
}

void say_line(const char *first, ...)
{
	char line[LINE_BYTES];
	va_list ap;
	size_t len;

	if (quiet)
		return;
	va_start(ap, first);
	len = join_parts(line, first, ap);
	va_end(ap);
	write_stderr(line, len);
}

int say_refusal(const char *what, int code, const char *reason)
{
	say_line("rampfs: ", what, ": ", reason[0] ? reason : strerrordesc_np(code), NULL);
	return -code;
}

/*
 * Opens the program's stderr, for a thread with a file table of its own. It is opened again, so
 * that nothing of the program's is held and no thread waits. But a regular file has an offset at
 * which the program continues to write, and the program would write over the line: there the
 * descriptor has to be of the same open file, which never waits.
 */
static int open_stderr(void)
{
	int fd = sys_open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_APPEND | O_NOCTTY);
	int pidfd, same = -1;
	struct stat st, link;

	if (fd < 0)
		return fd;
	/* The link's own mode says how the program has it open, proc_pid_fd(5). */
	if (lstat("/proc/self/fd/2", &link) || fstat(fd, &st) ||
	    !takes_lines(&st, (link.st_mode & S_IRUSR) != 0)) {
		close(fd);
		return -1;
	}
	if (!S_ISREG(st.st_mode))
		return fd;
	pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (pidfd >= 0) {
		same = (int)syscall(SYS_pidfd_getfd, pidfd, STDERR_FILENO, 0);
		close(pidfd);
	}
	if (same < 0)
		return fd;
	close(fd);
	return same;
}

/* A SIGPIPE stays blocked and pending. */
void say_agent_line(const char *first, ...)
{
	char line[LINE_BYTES];
	va_list ap;
	size_t len;
	int fd;

	if (quiet)
		return;
	va_start(ap, first);
	len = join_parts(line, first, ap);
	va_end(ap);
	fd = open_stderr();
	if (fd < 0)
		return;
	if (write(fd, line, len) < 0) {
		/* It has no reader: the line is lost, the program continues. */
	}
	close(fd);
}
