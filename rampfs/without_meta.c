/*
 * Happy path: the note lies in the store, since the disk that it is about may take none. A probe
 * writes as much as a large turn, syncs it and removes it.
 *
 * How it fails: where even the copy can't be made or makes no sense, the first error is returned, and
 * the daemon can't serve. A journal that is missing or damaged is never made again. A probe that
 * succeeds while the journal still fails costs a start, DISK_GOOD probes apart at least.
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

#define DISK_GOOD     3
#define DISK_PROBE_MS 2000
#define PROBE_BYTES   (256u << 10)
#define PROBE_PIECE   4096u

#define COPY_FILE  "store/journal"
#define NOTE_FILE  "store/failed"
#define PROBE_FILE "probe"

/* ---- opening -------------------------------------------------------------------------------- */

/* Reads the note that a turn has failed. False: there is none. */
static bool read_note(const struct statedir *dir, struct ramp_err *why)
{
	char path[PATH_MAX], text[RAMP_ERR_TEXT_BYTES] = "";
	struct ramp_err err;
	ssize_t n;
	int fd;

	if (statedir_file(dir->path, NOTE_FILE, path, &err))
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	ramp_err_set(why, EIO, "%s", n > 0 ? text : "a write of the journal has failed");
	return true;
}

static void remove_note(const struct statedir *dir)
{
	char path[PATH_MAX];
	struct ramp_err err;

	if (statedir_file(dir->path, NOTE_FILE, path, &err) == 0)
		unlink(path);
}

void without_meta_note(const struct statedir *dir, const char *text)
{
	char path[PATH_MAX];
	struct ramp_err err;
	int fd;

	if (statedir_file(dir->path, NOTE_FILE, path, &err))
		return;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0 && write(fd, text, strlen(text)) < 0)
		log_warn("%s: %s", path, strerror(errno)); /* it is there, and says enough */
	if (fd >= 0)
		close(fd);
}

/* `why`: what the journal's opening said; it stays where the copy fails, too. */
static int open_copy(struct meta_config *config, const char *copy, struct meta **out,
		     const struct ramp_err *why)
{
	struct ramp_err err = {0};
	int rc;

	config->why = why->text;
	rc = meta_open_copy(config, copy, out, &err);
	if (rc)
		log_error("no metadata, and no copy of it: %s", err.text);
	else
		log_error(
			"no metadata: %s; what this node owns continues by its records, names are "
			"read-only",
			why->text);
	return rc;
}

/* Says what only a person can do: a journal that is gone or damaged is never made again. */
static int say_rejoin(int rc, const char *journal, struct ramp_err *err)
{
	if (rc != -EPROTO && (access(journal, F_OK) == 0 || errno != ENOENT))
		return rc;
	return ramp_err_wrap(err, "needs --rejoin, or its journal back");
}

int without_meta_open(const struct meta_config *config, const struct statedir *dir, bool living,
		      struct meta **out, struct ramp_err *err)
{
	char journal[PATH_MAX], copy[PATH_MAX];
	struct meta_config mc = *config;
	int rc = statedir_file(dir->path, "journal.db", journal, err);

	rc = rc ? rc : statedir_file(dir->path, COPY_FILE, copy, err);
	if (rc)
		return rc;
	mc.journal_path = journal;
	if (living && read_note(dir, err) && open_copy(&mc, copy, out, err) == 0)
		return 0;
	remove_note(dir); /* or without a copy there would never be metadata again */
	rc = meta_open(&mc, out, err);
	if (!rc) {
		meta_remove_copy(copy);
		return 0;
	}
	/* Another process may have it open, or it is damaged: a copy would be, too. */
	if (!living || rc == -EBUSY || rc == -EPROTO || open_copy(&mc, copy, out, err))
		return say_rejoin(rc, journal, err);
	return 0;
}

/* ---- the disk ------------------------------------------------------------------------------- */

static int write_probe(int fd)
{
	static const char piece[PROBE_PIECE] = {1};

	for (size_t done = 0; done < PROBE_BYTES; done += PROBE_PIECE) {
		ssize_t n = write(fd, piece, PROBE_PIECE);

		if (n != (ssize_t)PROBE_PIECE)
			return n < 0 ? -errno : -ENOSPC;
	}
	return fsync(fd) ? -errno : 0;
}

static void probe_work(void *arg)
{
	struct disk_probe *probe = arg;
	char path[PATH_MAX];
	struct ramp_err err;
	int fd;

	probe->result = statedir_file(probe->dir->path, PROBE_FILE, path, &err);
	if (probe->result)
		return;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0)
		unlink(path); /* a kill leaves nothing */
	probe->result = fd < 0 ? -errno : write_probe(fd);
	if (fd >= 0)
		close(fd);
}

static void on_probe_timer(uv_timer_t *timer);

static void on_probed(void *arg)
{
	struct disk_probe *probe = arg;

	if (uv_is_closing((uv_handle_t *)&probe->timer))
		return;
	if (probe->result)
		log_debug("the disk of %s: %s", probe->dir->path, strerror(-probe->result));
	probe->good = probe->result ? 0 : probe->good + 1;
	if (probe->good < DISK_GOOD) {
		uv_timer_start(&probe->timer, on_probe_timer, DISK_PROBE_MS, 0);
		return;
	}
	log_info("the disk of %s can be written again: starting with metadata", probe->dir->path);
	remove_note(probe->dir);
	probe->recovered(probe->arg);
}

static void on_probe_timer(uv_timer_t *timer)
{
	struct disk_probe *probe = timer->data;

	loop_work_slow(probe->loop, probe_work, on_probed, probe);
}

void disk_probe_start(struct disk_probe *probe)
{
	uv_timer_init(loop_uv(probe->loop), &probe->timer);
	probe->timer.data = probe;
	uv_timer_start(&probe->timer, on_probe_timer, DISK_PROBE_MS, 0);
}
