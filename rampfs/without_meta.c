/*
 * Happy path: the note lies in the store, since the disk that it is about may take none.
 *
 * How it fails: where the journal can't be copied, or the copy makes no sense, the tables are made of the
 * records (by_records.c). A journal that is missing or damaged is never made again: the node says that it
 * needs --rejoin. Where even the records do not suffice, the first error is returned, and the daemon
 * can't serve.
 */
#include "without_meta.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/statedir.h"
#include "by_records.h"
#include "memory/store.h"

#define COPY_FILE  "store/journal"
#define REJOIN	   "needs --rejoin, or its journal back"
#define ROOM_BYTES (UINT64_C(1) << 20)

/* ---- the note ------------------------------------------------------------------------------- */

/* By the note's first byte; FAILED has none of its own. */
enum note { NOTE_NONE, NOTE_FAILED, NOTE_OF_COPY = '!', NOTE_ONCE = '?' };

/* Reads the note, and its text to `why`. */
static enum note read_note(const struct statedir *dir, struct ramp_err *why)
{
	char path[PATH_MAX], text[RAMP_ERR_TEXT_BYTES] = "";
	enum note kind = NOTE_FAILED;
	struct ramp_err err;
	ssize_t n;
	int fd;

	if (statedir_file(dir->path, STATEDIR_NOTE, path, &err))
		return NOTE_NONE;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return NOTE_NONE;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (text[0] == NOTE_OF_COPY || text[0] == NOTE_ONCE)
		kind = (enum note)text[0];
	ramp_err_set(why, EIO, "%s",
		     n > 1 ? text + (kind != NOTE_FAILED) : "the journal has failed");
	return kind;
}

void without_meta_forget(const struct statedir *dir)
{
	char path[PATH_MAX];
	struct ramp_err err;

	if (statedir_file(dir->path, STATEDIR_NOTE, path, &err) == 0)
		unlink(path);
}

static void write_note(const struct statedir *dir, enum note kind, const char *text)
{
	char path[PATH_MAX], mark[2] = {kind == NOTE_FAILED ? 0 : (char)kind};
	struct ramp_err err;
	int fd;

	if (statedir_file(dir->path, STATEDIR_NOTE, path, &err))
		return;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0 && dprintf(fd, "%s%s", mark, text) < 0)
		log_warn("%s: %s", path, strerror(errno)); /* it is there, and says enough */
	if (fd >= 0)
		close(fd);
}

void without_meta_note(const struct statedir *dir, const char *text, bool of_copy)
{
	write_note(dir, of_copy ? NOTE_OF_COPY : NOTE_FAILED, text);
}

/* ---- opening -------------------------------------------------------------------------------- */

/* Looks whether the journal itself is what fails, of which the copy's error tells; a full store proves
   nothing. */
static void look_at_journal(struct without_meta *how, struct store *store, const char *journal,
			    int copy_rc)
{
	struct store_space space;
	bool missing = stat(journal, &how->journal) && errno == ENOENT;

	store_space(store, &space);
	if (missing)
		memset(&how->journal, 0, sizeof(how->journal));
	how->needs_journal = missing || (copy_rc == -EUCLEAN && space.free_bytes >= ROOM_BYTES);
}

/* Opens what can be had. `why` has the first error. */
static int open_without(struct meta_config *config, const struct without_meta_config *c,
			const char *copy, bool of_copy, struct meta **out, struct without_meta *how,
			struct ramp_err *why)
{
	struct ramp_err first = *why, err = {0};
	int rc;

	config->why = first.text;
	rc = of_copy ? -EIO : meta_open_copy(config, copy, out, &err);
	if (rc) {
		if (!of_copy)
			log_warn("no copy of the metadata: %s", err.text);
		look_at_journal(how, c->store, config->journal_path, rc);
		if (how->needs_journal)
			ramp_err_wrap(&first, REJOIN);
		rc = by_records_open(config, c->store, copy, out, &err);
	}
	if (rc) {
		log_error("no metadata, and the records do not suffice: %s", err.text);
		*why = first;
		return -EIO;
	}
	log_error("no metadata: %s; what this node owns continues by its records, names are "
		  "read-only",
		  first.text);
	/* So this state ends by disk_probe.c alone, not by any other restart. */
	without_meta_note(c->dir, why->text, of_copy);
	return 0;
}

/* Another process may have it open, or memory, threads or descriptors are short. */
static bool is_passing(int rc)
{
	return rc == -EBUSY || rc == -ENOMEM || rc == -EAGAIN || rc == -EMFILE || rc == -ENFILE;
}

static bool is_missing(const char *path)
{
	return access(path, F_OK) && errno == ENOENT;
}

static void any_segment(void *arg, struct seg *seg)
{
	(void)seg;
	*(bool *)arg = true;
}

int without_meta_open(const struct meta_config *config, const struct without_meta_config *c,
		      struct meta **out, struct without_meta *how, struct ramp_err *err)
{
	char journal[PATH_MAX], copy[PATH_MAX];
	struct meta_config mc = *config;
	bool adopts = c->living;
	enum note note = NOTE_NONE;
	int rc = statedir_file(c->dir->path, "journal.db", journal, err);

	*how = (struct without_meta){0};
	rc = rc ? rc : statedir_file(c->dir->path, COPY_FILE, copy, err);
	if (rc)
		return rc;
	mc.journal_path = journal;
	if (!adopts)
		store_each(c->store, any_segment, &adopts);
	if (adopts)
		note = read_note(c->dir, err);
	if (note == NOTE_FAILED || note == NOTE_OF_COPY)
		return open_without(&mc, c, copy, note == NOTE_OF_COPY, out, how, err);
	rc = meta_open(&mc, out, err);
	if (!rc) {
		meta_remove_copy(copy);
		without_meta_forget(c->dir);
		return 0;
	}
	if (!adopts || is_passing(rc))
		return is_missing(journal) ? ramp_err_wrap(err, REJOIN) : rc;
	/* The next start may do better, and comes at once. */
	if (c->living && note == NOTE_NONE) {
		write_note(c->dir, NOTE_ONCE, err->text);
		return rc;
	}
	return open_without(&mc, c, copy, false, out, how, err);
}
