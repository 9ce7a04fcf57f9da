/*
 * One segment in the store: its two files, its layout.
 *
 * Happy path: seg_make writes the data file, then ID.state under another name, and renames it: from
 * then on the segment is there. seg_load finds it again. What nobody uses rests (rest.c).
 *
 * How it fails: a kill before the rename leaves a data file alone, as one in the middle of
 * seg_unlink does: seg_load removes it. A state file that makes no sense marks the segment damaged.
 * What can't be unlinked is litter, which store_tidy tries again.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/wire.h"
#include "reserve.h"
#include "seg.h"

#define DIRECT_NAP_NS 50000
#define GOING_STAYS   UINT64_MAX /* seg->going: it did, and is in use after all, or free */

void seg_state_name(ramp_segment_t id, char name[32])
{
	snprintf(name, 32, "%llu.state", (unsigned long long)id);
}

void seg_data_name(ramp_segment_t id, char name[32])
{
	snprintf(name, 32, "%llu", (unsigned long long)id);
}

bool seg_unlink_name(struct store *store, const char *name)
{
	if (!unlinkat(store->dir_fd, name, 0) || errno == ENOENT)
		return true;
	if (!atomic_exchange(&store->litter, true))
		log_warn("%s/%s could not be unlinked, and is tried again: %s", store->path, name,
			 strerror(errno));
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

void seg_tell(struct seg *seg)
{
	if (seg->store->changed)
		seg->store->changed(seg->store->changed_arg, seg->id);
}

/* ---- life --------------------------------------------------------------------------------------
 */

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

struct seg *seg_get(struct seg *seg)
{
	seg_touch(seg);
	return seg_hold(seg);
}

void seg_goes(struct seg *seg)
{
	struct store *store = seg->store;
	uint64_t none = 0, bytes;
	struct stat st;

	if (seg_stat(seg, &st) || st.st_blocks == 0)
		return;
	bytes = (uint64_t)st.st_blocks * 512;
	atomic_fetch_add(&store->going_bytes, bytes); /* first: seg_stays may come between */
	if (!atomic_compare_exchange_strong(&seg->going, &none, bytes))
		atomic_fetch_sub(&store->going_bytes, bytes);
}

void seg_stays(struct seg *seg)
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
	seg_stays(seg);
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

/* ---- making one ---------------------------------------------------------------------------------
 */

static int write_state(struct seg *seg, const struct record *record, const struct timespec times[2],
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
	/* With its page, or a store through the mapping might find no room. */
	rc = fallocate(fd, 0, 0, STATE_HEADER_BYTES) ? -errno : seg_take_header(seg, fd);
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
	if (times) {
		futimens(atomic_load(&seg->fd), times);
		seg_note_row(seg, times);
	}
	if (renameat(seg->store->dir_fd, made, seg->store->dir_fd, name)) {
		rc = ramp_err_sys(err, errno, "%s", name);
		seg_unlink_name(seg->store, made);
	}
	return rc;
}

int seg_make(struct store *store, ramp_segment_t id, const struct record *record,
	     const struct timespec times[2], struct seg **out, struct ramp_err *err)
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
	rc = write_state(seg, record, times, err);
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

/* ---- finding one --------------------------------------------------------------------------------
 */

static bool header_sound(const struct seg *seg)
{
	const struct state_header *h = seg->state;

	return h->magic == STATE_MAGIC && h->version == STATE_VERSION && h->id == seg->id &&
	       h->incarnation == seg->store->incarnation && h->crc == header_crc(h);
}

/*
 * 0; *damage says why the segment is damaged, NULL: it is not. What can't be looked at for want of
 * something is not damaged: -errno, and the next daemon finds it.
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
		log_info("segment %llu: removing what a creation or removal left half done",
			 (unsigned long long)id);
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
		return ramp_err_wrap(err, "segment %llu", (unsigned long long)id);
	}
	if (!damage && seg->record.kind == RECORD_NONE) {
		log_info("segment %llu: dropping the reservation of a former daemon",
			 (unsigned long long)id);
		seg_unlink(store, id);
		seg_put(seg);
		return 0;
	}
	if (!damage)
		damage = no_data;
	if (damage) {
		log_error("segment %llu is damaged and not served: %s", (unsigned long long)id,
			  damage);
		gate_set(seg, GATE_DAMAGED);
	}
	*out = seg;
	return 1;
}

/* ---- small things -------------------------------------------------------------------------------
 */

ramp_segment_t seg_id(const struct seg *seg)
{
	return seg->id;
}

int seg_fd(struct seg *seg)
{
	int rc = seg_wake_file(seg);

	if (rc && rc != -EIO)
		log_warn("segment %llu: its file: %s", (unsigned long long)seg->id, strerror(-rc));
	return atomic_load(&seg->fd);
}

bool seg_damaged(struct seg *seg)
{
	return atomic_load(&seg->gate) & GATE_DAMAGED;
}

bool seg_removed(struct seg *seg)
{
	return atomic_load(&seg->gate) & GATE_GONE;
}

int seg_note_passed(struct seg *seg, bool passed)
{
	int rc;

	if (seg_passed(seg) == passed)
		return 0;
	rc = seg_wake_header(seg);
	if (!rc)
		atomic_store(&seg->state->passed, passed);
	return rc;
}

bool seg_passed(struct seg *seg)
{
	struct state_header *state = atomic_load(&seg->state);

	return state && atomic_load(&state->passed);
}

void seg_set_leaving(struct seg *seg, bool leaving)
{
	atomic_store(&seg->leaving, leaving);
}

bool seg_leaving(struct seg *seg)
{
	return atomic_load(&seg->leaving);
}

void seg_set_copying(struct seg *seg, bool copying)
{
	atomic_store(&seg->copying, copying);
}

bool seg_copying(struct seg *seg)
{
	return atomic_load(&seg->copying);
}

static int64_t to_ns(struct timespec t)
{
	int64_t ns;

	if (__builtin_mul_overflow((int64_t)t.tv_sec, INT64_C(1000000000), &ns) ||
	    __builtin_add_overflow(ns, (int64_t)t.tv_nsec, &ns))
		ns = t.tv_sec < 0 ? INT64_MIN : INT64_MAX;
	return ns == HELD_NOT ? HELD_NOT + 1 : ns;
}

static struct timespec from_ns(int64_t ns)
{
	struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

	if (t.tv_nsec < 0) {
		t.tv_sec--;
		t.tv_nsec += 1000000000;
	}
	return t;
}

void seg_hold_mtime(struct seg *seg, struct timespec mtime)
{
	if (seg->state)
		atomic_store(&seg->state->mtime, to_ns(mtime));
}

static bool holds_mtime(struct seg *seg)
{
	struct state_header *state = atomic_load(&seg->state);

	return state && atomic_load(&state->mtime) != HELD_NOT;
}

/* Only as long as one is held: what is released meanwhile stays so, since nobody would again. */
static void hold_still(struct seg *seg, struct timespec mtime)
{
	int64_t held = atomic_load(&seg->state->mtime);

	while (held != HELD_NOT &&
	       !atomic_compare_exchange_weak(&seg->state->mtime, &held, to_ns(mtime)))
		;
}

/* A write that comes meanwhile has noted itself first, so it is seen or comes after futimens. */
void seg_release_mtime(struct seg *seg)
{
	int64_t held = seg->state ? atomic_load(&seg->state->mtime) : HELD_NOT;
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}};

	while (held != HELD_NOT) {
		times[1] = from_ns(held);
		if (futimens(seg_fd(seg), times))
			log_warn("segment %llu: its time of the last write: %s",
				 (unsigned long long)seg->id, strerror(errno));
		if (atomic_compare_exchange_strong(&seg->state->mtime, &held, HELD_NOT))
			break;
	}
}

/* Without waking it. */
static int stat_file(struct seg *seg, struct stat *st)
{
	int fd = atomic_load(&seg->fd);
	char name[32];

	if (fd >= 0)
		return fstat(fd, st) ? -errno : 0;
	seg_data_name(seg->id, name);
	return fstatat(seg->store->dir_fd, name, st, 0) ? -errno : 0;
}

int seg_stat(struct seg *seg, struct stat *st)
{
	int64_t held;
	int rc = stat_file(seg, st);

	if (rc)
		return rc;
	held = seg->state ? atomic_load(&seg->state->mtime) : HELD_NOT;
	if (held != HELD_NOT)
		st->st_mtim = from_ns(held);
	return 0;
}

/* The one held comes first, as a write's: the file's own alone could be undone by a release. */
int seg_set_times(struct seg *seg, const struct timespec times[2])
{
	struct timespec mtime = times[1];

	seg_touch(seg);
	if (mtime.tv_nsec != UTIME_OMIT && holds_mtime(seg)) {
		if (mtime.tv_nsec == UTIME_NOW)
			clock_gettime(CLOCK_REALTIME, &mtime);
		hold_still(seg, mtime);
	}
	return futimens(seg_fd(seg), times) ? -errno : 0;
}

void seg_note_hint(struct seg *seg, const struct timespec times[2])
{
	struct state_header *state;
	int64_t *hint;

	if (seg_hinted(seg, times) || seg_wake_header(seg))
		return;
	state = seg->state;
	hint = state->hints[state->next_hint++ % SEG_HINTS];
	hint[0] = to_ns(times[0]);
	hint[1] = to_ns(times[1]);
}

bool seg_hinted(struct seg *seg, const struct timespec times[2])
{
	struct state_header *state;

	if (seg_wake_header(seg))
		return false;
	state = seg->state;
	for (size_t i = 0; i < SEG_HINTS; i++)
		if ((state->hints[i][0] || state->hints[i][1]) &&
		    state->hints[i][0] == to_ns(times[0]) && state->hints[i][1] == to_ns(times[1]))
			return true;
	return false;
}

void seg_forget_hints(struct seg *seg)
{
	struct state_header *state = seg->state;

	if (state)
		memset(state->hints, 0, sizeof(state->hints));
}

void seg_note_row(struct seg *seg, const struct timespec times[2])
{
	struct state_header *state;

	if (seg_wake_header(seg))
		return;
	state = seg->state;
	state->row[0] = to_ns(times[0]);
	state->row[1] = to_ns(times[1]);
}

bool seg_row_news(struct seg *seg, const struct timespec times[2], bool news[2])
{
	struct state_header *state;

	if (seg_wake_header(seg))
		return false;
	state = seg->state;
	for (size_t i = 0; i < 2; i++)
		news[i] = state->row[i] != to_ns(times[i]);
	return state->row[0] || state->row[1];
}

void seg_forget_row(struct seg *seg)
{
	struct state_header *state = seg->state;

	if (state)
		memset(state->row, 0, sizeof(state->row));
}

void seg_note_write(struct seg *seg)
{
	struct timespec now;

	if (!holds_mtime(seg))
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	hold_still(seg, now);
}

uint64_t seg_size(struct seg *seg)
{
	struct stat st;
	int rc = stat_file(seg, &st);

	if (!rc)
		return (uint64_t)st.st_size;
	if (rc == -ENOENT) /* damaged, or removed */
		return 0;
	/* A segment that is taken for empty would be moved as that. The next daemon asks again. */
	log_error("segment %llu: its size: %s", (unsigned long long)seg->id, strerror(-rc));
	abort();
}

static int note_handed(struct seg *seg)
{
	int rc = seg_handed(seg) ? 0 : seg_wake_header(seg);

	if (!rc && !seg_handed(seg)) {
		atomic_store(&seg->state->handed, 1);
		atomic_store(&seg->handed, true);
	}
	return rc;
}

/* Under the lock, so that none is opened between the proof that nobody has it and the unlink. */
static int open_file(struct seg *seg, int access_mode, bool hand_out)
{
	char name[32];
	int fd = -ENOENT;

	seg_touch(seg);
	seg_data_name(seg->id, name);
	pthread_mutex_lock(&seg->lock);
	if (!(atomic_load(&seg->gate) & GATE_GONE))
		fd = hand_out ? note_handed(seg) : 0;
	if (!fd) {
		fd = openat(seg->store->dir_fd, name, (access_mode & O_ACCMODE) | O_CLOEXEC);
		if (fd < 0)
			fd = -errno;
	}
	pthread_mutex_unlock(&seg->lock);
	return fd;
}

int seg_open(struct seg *seg, int access_mode)
{
	return open_file(seg, access_mode, false);
}

/* Who has begun before it was noted ends before anybody can hold him up. */
int seg_hand_out(struct seg *seg, int access_mode)
{
	int fd = open_file(seg, access_mode, (access_mode & O_ACCMODE) != O_RDONLY);

	if (fd >= 0 && seg_handed(seg))
		seg_direct_over(seg);
	return fd;
}

bool seg_handed(struct seg *seg)
{
	return atomic_load(&seg->handed);
}

bool seg_direct_begin(struct seg *seg)
{
	atomic_fetch_add(&seg->direct, 1); /* first: seg_hand_out looks when it has noted */
	if (!seg_handed(seg))
		return true;
	seg_direct_end(seg);
	return false;
}

void seg_direct_end(struct seg *seg)
{
	atomic_fetch_sub(&seg->direct, 1);
}

void seg_direct_over(struct seg *seg)
{
	while (atomic_load(&seg->direct))
		nanosleep(&(struct timespec){.tv_nsec = DIRECT_NAP_NS}, NULL);
}

/* A description that is mapped counts for the kernel like one that is open, so ours goes first; the
   new one stays as ours where the proof fails. */
static int take_lease(struct seg *seg, struct ramp_err *err)
{
	char name[32];
	int fd, rc;

	seg_data_name(seg->id, name);
	fd = openat(seg->store->dir_fd, name, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : ramp_err_sys(err, errno, "segment %s", name);
	rc = seg_replace_file(seg, fd);
	if (rc)
		return ramp_err_sys(err, -rc, "segment %s", name);
	fd = atomic_load(&seg->fd);
	if (fcntl(fd, F_SETLEASE, F_WRLCK)) {
		if (errno == EAGAIN)
			return ramp_err_set(err, EBUSY,
					    "segment %s is still open or mapped by a process",
					    name);
		return ramp_err_sys(err, errno, "lease on segment %s", name);
	}
	fcntl(fd, F_SETLEASE, F_UNLCK);
	return 0;
}

int seg_prove_alone(struct seg *seg, struct ramp_err *err)
{
	if (!gate_empty(seg) || seg->map_users)
		return ramp_err_set(err, EBUSY, "segment %llu is still in use here",
				    (unsigned long long)seg->id);
	return take_lease(seg, err);
}

void seg_layout_cut(struct seg *seg)
{
	atomic_fetch_add(&seg->cuts, 1);
}
