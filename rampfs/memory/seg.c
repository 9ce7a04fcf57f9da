/*
 * One segment in the store: making, finding, unlinking and freeing it.
 *
 * Happy path: seg_make writes the data file, then ID.state under another name, and renames it: from
 * then on the segment is there. seg_load finds it again. A segment that no thread uses rests
 * (open_cache.c).
 *
 * How it fails: a kill before the rename leaves a data file alone, as a kill in the middle of
 * seg_unlink does: seg_load removes it. A state file that makes no sense marks the segment damaged.
 * A file that can't be unlinked is litter, which store_tidy tries again.
 */
#include "seg.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "about.h"
#include "base/log.h"
#include "base/wire.h"
#include "gate.h"
#include "mapping.h"
#include "open_cache.h"
#include "pages.h"
#include "record.h"
#include "seg_core.h"
#include "seg_file.h"
#include "seg_times.h"
#include "spare.h"

#define GOING_STAYS UINT64_MAX /* seg->going: it is in use after all, or freed */

bool seg_unlink_name(struct store *store, const char *name)
{
	if (!unlinkat(store->dir_fd, name, 0) || errno == ENOENT)
		return true;
	if (!atomic_exchange(&store->litter, true))
		log_warn("%s/%s could not be unlinked; this is tried again later: %s", store->path,
			 name, strerror(errno));
	return false;
}

bool seg_unlink(struct store *store, ramp_segment_t id)
{
	char name[32];

	seg_state_name(id, name);
	if (!seg_unlink_name(store, name))
		return false;
	seg_data_name(id, name);
	return seg_unlink_name(store, name);
}

/* ---- memory that is being freed ------------------------------------------------------------- */

static struct seg *seg_alloc(struct store *store, ramp_segment_t id)
{
	struct seg *seg = calloc(1, sizeof(*seg));
	pthread_condattr_t attr;

	if (!seg)
		return NULL;
	seg->store = store;
	seg->id = id;
	seg->slack_fd = -1;
	atomic_init(&seg->refs, 1);
	atomic_init(&seg->gate, GATE_REMOTE);
	atomic_init(&seg->fd, -1);
	pthread_mutex_init(&seg->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&seg->out, &attr);
	pthread_condattr_destroy(&attr);
	return seg;
}

void seg_freeing(struct seg *seg)
{
	struct store *store = seg->store;
	uint64_t none = 0, bytes;
	struct stat st;

	if (seg_stat(seg, &st) || st.st_blocks == 0)
		return;
	bytes = (uint64_t)st.st_blocks * 512;
	atomic_fetch_add(&store->going_bytes, bytes); /* first: seg_not_freeing may come between */
	if (!atomic_compare_exchange_strong(&seg->going, &none, bytes))
		atomic_fetch_sub(&store->going_bytes, bytes);
}

void seg_not_freeing(struct seg *seg)
{
	uint64_t bytes = atomic_exchange(&seg->going, GOING_STAYS);

	if (bytes != GOING_STAYS)
		atomic_fetch_sub(&seg->store->going_bytes, bytes);
}

void seg_put(struct seg *seg)
{
	seg_may_rest(seg);
	if (atomic_fetch_sub(&seg->refs, 1) != 1)
		return;
	mapping_drop_all(seg);
	seg_close(seg);
	if (seg->slack_fd >= 0)
		close(seg->slack_fd);
	seg_not_freeing(seg);
	page_set_free(&seg->stored);
	pthread_cond_destroy(&seg->out);
	pthread_mutex_destroy(&seg->lock);
	free(seg);
}

static uint32_t header_crc(const struct state_header *header)
{
	uint8_t bytes[28];
	struct wire_w w;

	wire_w_init(&w, bytes, sizeof(bytes));
	wire_put_u64(&w, header->magic);
	wire_put_u32(&w, header->version);
	wire_put_u64(&w, header->incarnation);
	wire_put_u64(&w, header->id);
	return wire_crc32c(bytes, w.len);
}

/* ---- making one ----------------------------------------------------------------------------- */

/* Takes the header's page, or a store through the mapping might find no room. The store's lock is
   held. */
static int take_page(struct store *store, int fd)
{
	int rc;

	do
		rc = fallocate(fd, 0, 0, STATE_HEADER_BYTES) ? -errno : 0;
	while (rc == -ENOSPC && spare_give(store));
	return rc;
}

static int write_state(struct seg *seg, const struct record *record, const struct seg_dated *row,
		       struct ramp_err *err)
{
	char made[40], name[32];
	struct state_header *state;
	int fd, rc;

	seg_state_name(seg->id, name);
	snprintf(made, sizeof(made), "%s.new", name);
	fd = openat(seg->store->dir_fd, made, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return ramp_err_sys(err, errno, "%s", made);
	rc = take_page(seg->store, fd);
	if (!rc)
		rc = seg_take_header(seg, fd);
	close(fd);
	if (rc) {
		seg_unlink_name(seg->store, made);
		return ramp_err_sys(err, -rc, "%s", made);
	}
	state = atomic_load(&seg->state);
	state->magic = STATE_MAGIC;
	state->version = STATE_VERSION;
	state->incarnation = seg->store->incarnation;
	state->id = seg->id;
	state->crc = header_crc(state);
	record_write_first(seg, record);
	if (row) {
		futimens(atomic_load(&seg->fd), row->times);
		seg_note_row(seg, row->times);
	}
	if (renameat(seg->store->dir_fd, made, seg->store->dir_fd, name)) {
		rc = ramp_err_sys(err, errno, "%s", name);
		seg_unlink_name(seg->store, made);
	}
	return rc;
}

int seg_make(struct store *store, ramp_segment_t id, const struct record *record,
	     const struct seg_dated *row, struct seg **out, struct ramp_err *err)
{
	struct seg *seg = seg_alloc(store, id);
	char name[32];
	int fd, rc;

	if (!seg)
		return ramp_err_set(err, ENOMEM, "no memory for a segment");
	seg_data_name(id, name);
	fd = openat(store->dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0) {
		rc = ramp_err_sys(err, errno, "segment %s", name);
		goto err_after_alloc;
	}
	seg_take_file(seg, fd);
	if (row && row->size && ftruncate(fd, (off_t)row->size))
		rc = ramp_err_sys(err, errno, "segment %s of %" PRIu64 " bytes", name, row->size);
	else
		rc = write_state(seg, record, row, err);
	if (rc)
		goto err_after_data;
	*out = seg;
	return 0;

err_after_data:
	seg_unlink_name(store, name);
err_after_alloc:
	seg_put(seg);
	return rc;
}

/* ---- finding one ---------------------------------------------------------------------------- */

static bool header_sound(const struct seg *seg)
{
	const struct state_header *h = seg->state;

	return h->magic == STATE_MAGIC && h->version == STATE_VERSION && h->id == seg->id &&
	       h->incarnation == seg->store->incarnation && h->crc == header_crc(h);
}

/*
 * Returns 0; *damage says why the segment is damaged, NULL: it is not. If the file can't be examined
 * for want of a resource it is not damaged: -errno, and the next daemon finds it.
 */
static int load_state(struct seg *seg, int state_fd, const char **damage, struct ramp_err *err)
{
	struct stat st;
	int rc;

	if (fstat(state_fd, &st))
		return ramp_err_sys(err, errno, "its state file");
	if (st.st_size < STATE_HEADER_BYTES) {
		*damage = "its state file has no header";
		return 0;
	}
	rc = seg_take_header(seg, state_fd);
	if (rc)
		return ramp_err_sys(err, -rc, "its state file");
	if (!header_sound(seg)) {
		*damage = "its state file's header is not of this store, or of an unknown version";
		return 0;
	}
	if (record_load(seg)) {
		*damage = "neither of its records is whole";
		return 0;
	}
	rc = pages_load(seg, state_fd, err);
	if (rc == -EUCLEAN)
		*damage = "its page-state map is torn";
	else if (rc)
		return rc;
	if (*damage)
		return 0;
	atomic_store(&seg->small, atomic_load(&seg->state->small));
	atomic_store(&seg->handed, atomic_load(&seg->state->handed));
	about_load(seg);
	return 0;
}

static int load_data(struct seg *seg, const char **damage, struct ramp_err *err)
{
	char name[32];
	int fd;

	seg_data_name(seg->id, name);
	fd = openat(seg->store->dir_fd, name, O_RDWR | O_CLOEXEC);
	if (fd >= 0)
		seg_take_file(seg, fd);
	else if (errno == ENOENT)
		*damage = "its data file is not there";
	else
		return ramp_err_sys(err, errno, "its file");
	return 0;
}

int seg_load(struct store *store, ramp_segment_t id, struct seg **out, struct ramp_err *err)
{
	struct seg *seg = NULL;
	const char *damage = NULL, *no_data = NULL;
	char name[32];
	int state_fd, rc;

	seg_state_name(id, name);
	state_fd = openat(store->dir_fd, name, O_RDWR | O_CLOEXEC);
	if (state_fd < 0 && errno == ENOENT) {
		log_info("segment %" PRIu64
			 ": removing the rest of an interrupted creation or removal",
			 id);
		seg_unlink(store, id);
		return 0;
	}
	if (state_fd < 0)
		return ramp_err_sys(err, errno, "%s", name);
	seg = seg_alloc(store, id);
	if (!seg) {
		close(state_fd);
		return ramp_err_set(err, ENOMEM, "no memory for a segment");
	}
	rc = load_data(seg, &no_data, err);
	if (!rc)
		rc = load_state(seg, state_fd, &damage, err);
	close(state_fd);
	if (rc) {
		seg_put(seg);
		return ramp_err_wrap(err, "segment %" PRIu64, id);
	}
	if (!damage && seg->record.kind == RECORD_NONE) {
		log_info("segment %" PRIu64 ": dropping the reservation of an earlier daemon", id);
		seg_unlink(store, id);
		seg_put(seg);
		return 0;
	}
	if (!damage)
		damage = no_data;
	if (damage) {
		log_error("segment %" PRIu64 " is damaged and not served: %s", id, damage);
		gate_set(seg, GATE_DAMAGED);
	}
	*out = seg;
	return 1;
}
