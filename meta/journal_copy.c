/*
 * SQLite can't read a WAL without writing beside it, which a full or read-only disk refuses. So both
 * files are read as files: no process has the journal open, and opening the copy recovers it as
 * opening the journal would after a crash.
 */
#include "journal_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <unistd.h>

static int path_of(const char *path, const char *tail, char out[PATH_MAX])
{
	return snprintf(out, PATH_MAX, "%s%s", path, tail) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int copy_bytes(int from, int to)
{
	ssize_t n;

	while ((n = sendfile(to, from, NULL, 1 << 20)) > 0)
		;
	return n < 0 ? -errno : 0;
}

static int copy_file(const char *from, const char *to)
{
	int rc, out, in = open(from, O_RDONLY | O_CLOEXEC);

	if (in < 0)
		return -errno;
	out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	rc = out < 0 ? -errno : copy_bytes(in, out);
	close(in);
	if (out >= 0)
		close(out);
	return rc;
}

int journal_copy(const char *from, const char *to, struct ramp_err *err)
{
	static const char *const tails[] = {"-wal", ""};
	char in[PATH_MAX], out[PATH_MAX];
	int rc = 0;

	journal_copy_remove(to);
	for (size_t i = 0; !rc && i < 2; i++) {
		rc = path_of(from, tails[i], in);
		rc = rc ? rc : path_of(to, tails[i], out);
		rc = rc ? rc : copy_file(in, out);
		if (rc == -ENOENT && tails[i][0])
			rc = 0; /* it was closed in good order */
	}
	if (!rc)
		return 0;
	journal_copy_remove(to);
	return ramp_err_sys(err, -rc, "copying %s to %s", from, to);
}

void journal_copy_remove(const char *to)
{
	static const char *const tails[] = {"", "-wal", "-shm", ".lock"};
	char path[PATH_MAX];

	for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++)
		if (path_of(to, tails[i], path) == 0)
			unlink(path);
}
