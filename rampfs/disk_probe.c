/*
 * Happy path: a worker writes as much as a large turn, syncs it and removes it, until that has succeeded
 * DISK_GOOD times in a row.
 *
 * How it fails: a probe that succeeds while the journal still fails costs a start, DISK_GOOD probes
 * apart at least.
 */
#include "disk_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/statedir.h"

#define PROBE_BYTES (256u << 10)
#define PROBE_PIECE 4096u
#define PROBE_FILE  "probe"

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

static bool is_another_journal(const struct disk_probe *probe)
{
	const struct stat *was = &probe->journal;
	char path[PATH_MAX];
	struct ramp_err err;
	struct stat st;

	if (statedir_file(probe->dir->path, "journal.db", path, &err) || stat(path, &st))
		return false;
	return st.st_dev != was->st_dev || st.st_ino != was->st_ino || st.st_size != was->st_size ||
	       st.st_mtim.tv_sec != was->st_mtim.tv_sec ||
	       st.st_mtim.tv_nsec != was->st_mtim.tv_nsec;
}

static void probe_work(void *arg)
{
	struct disk_probe *probe = arg;
	char path[PATH_MAX];
	struct ramp_err err;
	int fd;

	probe->result = statedir_file(probe->dir->path, PROBE_FILE, path, &err);
	if (!probe->result && probe->needs_journal && !is_another_journal(probe))
		probe->result = -ENOENT;
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
		log_debug("the disk of %s, or its journal: %s", probe->dir->path,
			  strerror(-probe->result));
	probe->good = probe->result ? 0 : probe->good + 1;
	if (probe->good < DISK_GOOD) {
		uv_timer_start(&probe->timer, on_probe_timer, DISK_PROBE_MS, 0);
		return;
	}
	log_info("the disk of %s can be written again%s: starting with metadata", probe->dir->path,
		 probe->needs_journal ? ", and has another journal" : "");
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
