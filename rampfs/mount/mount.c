/*
 * Opening, starting and ending the daemon's side of the mount.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attr_sync.h"
#include "base/log.h"
#include "fuse_loop.h"
#include "inode.h"
#include "keeper/inherited.h"
#include "keeper/protocol.h"
#include "keeper_link.h"
#include "mount_ref.h"
#include "offload.h"
#include "ops_io.h"
#include "ops_setid.h"
#include "orphans.h"
#include "passthrough.h"
#include "ramp_files.h"
#include "row_sync.h"

/* ---- callbacks of the floors below ---------------------------------------------------------- */

static void store_changed_here(void *arg, ramp_segment_t id)
{
	struct mount *m = arg;

	park_changed(m->park, id);
}

struct row_change {
	struct mount *mount;
	ramp_segment_t id;
};

static void on_row(void *arg)
{
	struct row_change *c = arg;

	row_sync(c->mount, c->id);
	atomic_fetch_sub_explicit(&c->mount->rows_posted, 1, memory_order_release);
	mount_put(c->mount);
	free(c);
}

void mount_row_changed(struct mount *m, ramp_segment_t id)
{
	struct row_change *c;
	struct seg *seg;

	if (!id)
		return; /* rows of nodes are looked up when they are needed */
	park_changed(m->park, id);
	seg = store_find(m->config.store, id);
	if (seg)
		seg_put(seg);
	else if (!orphan_was_removed(m, id))
		return;
	c = malloc(sizeof(*c));
	if (!c)
		abort();
	*c = (struct row_change){.mount = mount_get(m), .id = id};
	atomic_fetch_add_explicit(&m->rows_posted, 1, memory_order_relaxed);
	loop_post(m->config.loop, on_row, c);
}

static void on_restored(void *arg)
{
	struct mount *m = arg;

	attr_sync_all(m);
	mount_put(m);
}

void mount_rows_restored(struct mount *m)
{
	atomic_fetch_add_explicit(&m->rows_posted, 1, memory_order_relaxed);
	loop_post(m->config.loop, on_restored, mount_get(m));
}

bool mount_was_served(int fd, uint64_t connection)
{
	return handover_living(fd, connection);
}

/* ---- opening -------------------------------------------------------------------------------- */

/* Opens the handover file. Its own age gives the directories' times, so that they do not change
   with daemons. */
static int open_handover(struct mount *m, struct ramp_err *err)
{
	struct stat st;
	int fd = store_open_private(m->config.store, "mount", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0)
		return ramp_err_sys(err, -fd, "the mount's file in the store");
	clock_gettime(CLOCK_REALTIME, &m->born);
	if (fstat(fd, &st) == 0 && st.st_size == 0) {
		struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};

		futimens(fd, times);
	} else {
		m->born = st.st_atim;
	}
	return handover_open(fd, m->config.connection, &m->handover, err);
}

static void mount_destroy(struct mount *m)
{
	attr_sync_free(m);
	ramp_files_close(m);
	if (m->session)
		fuse_session_destroy(m->session);
	if (m->park)
		park_free(m->park);
	offload_close(m);
	if (m->handover)
		handover_close(m->handover);
	for (size_t i = 0; i < 64; i++)
		pthread_mutex_destroy(&m->append_lock[i]);
	pthread_mutex_destroy(&m->make_lock);
	pthread_mutex_destroy(&m->ask_lock);
	pthread_mutex_destroy(&m->passthrough_lock);
	pthread_mutex_destroy(&m->work_lock);
	pthread_cond_destroy(&m->work_done);
	free(m);
}

/* mount.finish. Nothing is left to tell where the mount has not started. */
static void mount_finish(struct mount *m, loop_fn *fn)
{
	if (m->attr_sync)
		attr_sync_finish(m, fn, m);
	else
		fn(m);
}

static struct mount *mount_new(const struct mount_config *config)
{
	struct mount *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->config = *config;
	m->refs = 1;
	m->destroy = mount_destroy;
	m->finish = mount_finish;
	m->since_ms = park_now_ms();
	m->self = meta_self(config->meta);
	m->incarnation = store_incarnation(config->store);
	for (size_t i = 0; i < 64; i++)
		pthread_mutex_init(&m->append_lock[i], NULL);
	pthread_mutex_init(&m->make_lock, NULL);
	pthread_mutex_init(&m->ask_lock, NULL);
	pthread_mutex_init(&m->passthrough_lock, NULL);
	pthread_mutex_init(&m->work_lock, NULL);
	pthread_cond_init(&m->work_done, NULL);
	return m;
}

int mount_open(const struct mount_config *config, struct mount **out, struct ramp_err *err)
{
	struct mount *m = mount_new(config);
	int rc;

	if (!m)
		return ramp_err_sys(err, ENOMEM, "mount");
	rc = open_handover(m, err);
	if (!rc)
		rc = passthrough_open(m, err);
	if (!rc)
		rc = park_open(&m->park, err);
	if (!rc)
		rc = offload_open(m) ? ramp_err_sys(err, ENOMEM, "mount") : 0;
	if (!rc)
		rc = ramp_files_open(m, err);
	if (!rc)
		rc = fuse_loop_open(m, err);
	if (rc) {
		mount_stop(m);
		mount_free(m);
		return rc;
	}
	store_on_change(config->store, store_changed_here, m);
	*out = m;
	return 0;
}

int mount_start(struct mount *m, struct ramp_err *err)
{
	int rc = keeper_link_open(m, err);

	if (!rc)
		rc = attr_sync_open(m, err);
	if (rc)
		return rc;
	programs_set_punch(m->config.programs, ops_punch, m, setid_kept);
	programs_set_passthrough(m->config.programs, passthrough_check, m);
	rc = fuse_loop_start(m, err);
	if (rc)
		return rc;
	rc = keeper_tell(KEEPER_SAY_SERVING);
	return rc ? ramp_err_sys(err, -rc, "telling the keeper that it serves") : 0;
}

void mount_stop(struct mount *m)
{
	fuse_loop_stop(m);
	mount_work_end(m);
	if (m->park)
		park_close(m->park);
	attr_sync_close(m);
	keeper_link_close(m);
}

void mount_free(struct mount *m)
{
	store_on_change(m->config.store, NULL, NULL);
	mount_put(m);
}
