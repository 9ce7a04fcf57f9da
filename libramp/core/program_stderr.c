#include "program_stderr.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* The file at descriptor 2 when the program began; type 0: it was closed. */
static struct {
	dev_t dev;
	ino_t ino;
	mode_t type;
} first_stderr;

void program_stderr_init(void)
{
	struct stat st;

	if (fstat(STDERR_FILENO, &st))
		return;
	first_stderr.dev = st.st_dev;
	first_stderr.ino = st.st_ino;
	first_stderr.type = st.st_mode & S_IFMT;
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

/* A pipe without a reader raises SIGPIPE in the thread that writes: that signal is taken back. */
static int write_and_take_back(const char *line, size_t len)
{
	struct timespec now = {0};
	sigset_t pending, pipe;

	sigemptyset(&pending);
	sigpending(&pending);
	if (write(STDERR_FILENO, line, len) >= 0)
		return 0;
	if (errno != EPIPE)
		return -errno;
	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	if (!sigismember(&pending, SIGPIPE))
		sigtimedwait(&pipe, NULL, &now);
	return -EPIPE;
}

/* Returns 1 where it takes a line, 0 where it does not in that time, or a negative errno. It is
   select(2) because poll(2) refuses a program that has set RLIMIT_NOFILE to 0. */
static int await_room(int patience_ms)
{
	struct timeval time = {.tv_sec = patience_ms / 1000,
			       .tv_usec = (patience_ms % 1000) * 1000};
	fd_set set;
	int rc;

	FD_ZERO(&set);
	FD_SET(STDERR_FILENO, &set);
	rc = select(STDERR_FILENO + 1, NULL, &set, NULL, &time);
	return rc < 0 ? -errno : rc;
}

int program_stderr_write(const char *line, size_t len, int patience_ms)
{
	struct stat st;
	int rc;

	if (fstat(STDERR_FILENO, &st))
		return -EBADF;
	if (!takes_lines(&st, (fcntl(STDERR_FILENO, F_GETFL) & O_ACCMODE) == O_RDWR))
		return -EBADF;
	rc = await_room(patience_ms);
	if (rc <= 0)
		return rc ? rc : -EAGAIN;
	if (!S_ISSOCK(st.st_mode))
		return write_and_take_back(line, len);
	return send(STDERR_FILENO, line, len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}
