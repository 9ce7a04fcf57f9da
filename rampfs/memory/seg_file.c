/*
 * A segment's data file: its descriptor, its size and times, descriptors for others.
 *
 * Happy path: the daemon's own descriptor is opened at the first use (open_cache.c). A program gets
 * an open file description of its own. From the first writable one on, seg_direct_begin refuses.
 *
 * How it fails: a segment whose size can't be read ends the daemon (seg_size). A removal whose proof
 * fails leaves the segment with the new descriptor, and all else as it was.
 */
#include "seg_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "gate.h"
#include "open_cache.h"
#include "seg_core.h"

#define DIRECT_NAP_NS 50000

int seg_fd(struct seg *seg)
{
	int rc = seg_wake_file(seg);

	if (rc && rc != -EIO)
		log_warn("segment %" PRIu64 ": its file: %s", seg->id, strerror(-rc));
	return atomic_load(&seg->fd);
}

/* ---- size and times -------------------------------------------------------------------------- */

struct timespec seg_from_ns(int64_t ns)
{
	struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

	if (t.tv_nsec < 0) {
		t.tv_sec--;
		t.tv_nsec += 1000000000;
	}
	return t;
}

bool seg_holds_mtime(struct seg *seg)
{
	struct state_header *state = atomic_load(&seg->state);

	return state && atomic_load(&state->mtime) != HELD_NOT;
}

/* Does not wake it. */
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
		st->st_mtim = seg_from_ns(held);
	return 0;
}

uint64_t seg_size(struct seg *seg)
{
	struct stat st;
	int rc = stat_file(seg, &st);

	if (!rc)
		return (uint64_t)st.st_size;
	if (rc == -ENOENT) /* damaged, or removed */
		return 0;
	/* A segment that is taken for empty would be moved as empty. The next daemon asks again. */
	log_error("segment %" PRIu64 ": its size: %s", seg->id, strerror(-rc));
	abort();
}

/* ---- descriptions for others ----------------------------------------------------------------- */

static int note_handed(struct seg *seg)
{
	int rc = seg_handed_out(seg) ? 0 : seg_wake_header(seg);

	if (!rc && !seg_handed_out(seg)) {
		atomic_store(&seg->state->handed, 1);
		atomic_store(&seg->handed, true);
	}
	return rc;
}

/* Opens it under the lock, so that no description is made between the proof that no other process
   has the file and the unlink. */
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

/* Waits for direct sections that began before it was noted, so that the program can block none. */
int seg_hand_out(struct seg *seg, int access_mode)
{
	int fd = open_file(seg, access_mode, (access_mode & O_ACCMODE) != O_RDONLY);

	if (fd >= 0 && seg_handed_out(seg))
		seg_direct_over(seg);
	return fd;
}

bool seg_handed_out(struct seg *seg)
{
	return atomic_load(&seg->handed);
}

bool seg_direct_begin(struct seg *seg)
{
	atomic_fetch_add(&seg->direct, 1); /* first: seg_hand_out notes, and then looks at it */
	if (!seg_handed_out(seg))
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

int seg_note_giving(struct seg *seg, uint64_t epoch)
{
	int rc = seg_wake_header(seg);

	if (!rc)
		atomic_store(&seg->state->giving, epoch);
	return rc;
}

/* ---- the proof that no other process has it -------------------------------------------------- */

/* Replaces the daemon's description, then takes the lease: one that is mapped counts for the kernel
   like one that is open. If the proof fails, the new one stays the daemon's. */
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
		return ramp_err_set(err, EBUSY, "segment %" PRIu64 " is still in use here",
				    seg->id);
	return take_lease(seg, err);
}
