/*
 * A copy: SQLite can't read a WAL without writing beside it, which a full or read-only disk refuses. So both
 * files are read as files: no process has the journal open, and opening the copy recovers it as
 * opening the journal would after a crash.
 */
#include "journal_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "journal.h"
#include "journal_create.h"
#include "journal_segments.h"
#include "journal_sql.h"

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

/* Says what is wrong with a copy: opening it reads only some of its pages. */
static int check_copy(const char *copy, struct ramp_err *err)
{
	sqlite3_stmt *st = NULL;
	sqlite3 *db = NULL;
	int rc = journal_connect(copy, NULL, true, &db, err), step;

	if (rc)
		return -EUCLEAN;
	step = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &st, NULL);
	step = step == SQLITE_OK ? sqlite3_step(st) : step;
	if (step != SQLITE_ROW)
		rc = ramp_err_set(err, step == SQLITE_NOMEM ? ENOMEM : EUCLEAN, "%s: %s", copy,
				  sqlite3_errmsg(db));
	else if (strcmp((const char *)sqlite3_column_text(st, 0), "ok") != 0)
		rc = ramp_err_set(err, EUCLEAN, "%s: %s", copy, sqlite3_column_text(st, 0));
	sqlite3_finalize(st);
	sqlite3_close(db);
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
	if (rc) {
		journal_copy_remove(to);
		return ramp_err_sys(err, -rc, "copying %s to %s", from, to);
	}
	rc = check_copy(to, err);
	if (rc)
		journal_copy_remove(to);
	return rc;
}

static int put_row(struct journal *j, const struct segment_row *known)
{
	struct segment_row row = *known;
	ramp_segment_t other;
	bool reserved;
	int rc = journal_get_name(j, row.node, row.name, &other, &reserved);

	if (rc == 0) /* the other one's note is older, or this one's */
		snprintf(row.name, sizeof(row.name), "recovered-%" PRIu64, row.id);
	else if (rc != -ENOENT)
		return rc;
	rc = journal_put_segment(j, &row);
	return rc ? rc : journal_put_name(j, row.node, row.name, row.id, false);
}

int journal_of_rows(const char *to, const struct meta_founding *known,
		    const struct segment_row *rows, size_t n, struct ramp_err *err)
{
	const struct journal_config config = {
		.path = to, .fatal = journal_remember_failure, .arg = err};
	struct journal *j = NULL;
	int rc;

	journal_copy_remove(to);
	rc = journal_create(to, NULL, known, err);
	rc = rc ? rc : journal_open(&config, &j, err);
	rc = rc ? rc : journal_begin(j, false);
	for (size_t i = 0; !rc && i < n; i++)
		rc = put_row(j, &rows[i]);
	rc = rc ? rc : journal_commit(j);
	journal_close(j);
	if (rc)
		journal_copy_remove(to);
	return rc;
}

void journal_copy_remove(const char *to)
{
	static const char *const tails[] = {"", "-wal", "-shm", ".lock"};
	char path[PATH_MAX];

	for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++)
		if (path_of(to, tails[i], path) == 0)
			unlink(path);
}
