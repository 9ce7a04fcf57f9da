/*
 * The store: its table of segments, found at the start and kept by create and remove.
 *
 * Happy path: store_open adopts or makes the tmpfs, reads its directory once, and makes a struct seg
 * for every segment. Creation and removal hold the table's lock from the first file to the table's
 * entry, so that directory and table agree.
 *
 * How it fails: files that a killed daemon left half made (a data file without its ID.state, a *.new,
 * a placeholder of a reservation, a reservation) are removed at the next store_open. A damaged
 * segment stays in the table, answers -EIO and is never served. A file that can't be unlinked is
 * tried again (store_tidy).
 */
#include "store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <search.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/log.h"
#include "reserve.h"
#include "seg_core.h"
#include "spare.h"
#include "stores.h"
#include "tmpfs.h"

/* A wait for memory that goes pays if that is at least 1/GOING_PART of the store, and less than
   1/FREE_PART of the store is free. It lasts at most GOING_MS plus GOING_GIB_MS for each GiB that
   goes; in GOING_GIB_MS the kernel frees two GiB. */
#define GOING_PART   16
#define FREE_PART    2
#define GOING_MS     1000
#define GOING_GIB_MS 250

/* ---- the table: its keys are the ids inside the segments ------------------------------------ */

static int by_id(const void *a, const void *b)
{
	ramp_segment_t x = *(const ramp_segment_t *)a, y = *(const ramp_segment_t *)b;

	return (x > y) - (x < y);
}

static struct seg *seg_of_key(void *key)
{
	return (struct seg *)(void *)((char *)key - offsetof(struct seg, id));
}

/* A node of tsearch(3) begins with the pointer to its key. */
static struct seg *seg_of(const void *node)
{
	return seg_of_key(*(void *const *)node);
}

/* store->lock is held. */
static struct seg *table_find(struct store *store, ramp_segment_t id)
{
	void *node = tfind(&id, &store->table, by_id);

	return node ? seg_of(node) : NULL;
}

struct seg *store_find(struct store *store, ramp_segment_t id)
{
	struct seg *seg;

	pthread_mutex_lock(&store->lock);
	seg = table_find(store, id);
	if (seg)
		seg_hold(seg);
	pthread_mutex_unlock(&store->lock);
	return seg;
}

struct seg_list {
	struct seg **at;
	size_t count, cap;
	bool failed;
};

static void collect_seg(const void *node, VISIT visit, void *arg)
{
	struct seg_list *list = arg;
	struct seg **more;

	if (list->failed || (visit != postorder && visit != leaf))
		return;
	if (list->count == list->cap) {
		more = reallocarray(list->at, list->cap + 64, 2 * sizeof(*more));
		list->failed = !more;
		if (!more)
			return;
		list->at = more;
		list->cap = 2 * (list->cap + 64);
	}
	list->at[list->count++] = seg_hold(seg_of(node));
}

void store_each(struct store *store, void (*fn)(void *arg, struct seg *seg), void *arg)
{
	struct seg_list list = {0};

	pthread_mutex_lock(&store->lock);
	twalk_r(store->table, collect_seg, &list);
	pthread_mutex_unlock(&store->lock);
	if (list.failed)
		log_error("out of memory: not every segment was looked at");
	for (size_t i = 0; i < list.count; i++) {
		fn(arg, list.at[i]);
		seg_put(list.at[i]);
	}
	free(list.at);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Returns the id of "4711", "4711.state" and so on, and the rest of the name; 0: it is a file of
   another kind. */
static ramp_segment_t id_of(const char *name, const char **suffix)
{
	char *end;
	unsigned long long id;

	*suffix = name;
	if (name[0] < '1' || name[0] > '9')
		return 0;
	errno = 0;
	id = strtoull(name, &end, 10);
	*suffix = end;
	return errno ? 0 : id;
}

static int load_one(struct store *store, ramp_segment_t id, struct ramp_err *err)
{
	struct seg *seg;
	int rc;

	if (table_find(store, id))
		return 0;
	rc = seg_load(store, id, &seg, err);
	if (rc <= 0)
		return rc;
	if (!tsearch(&seg->id, &store->table, by_id)) {
		seg_put(seg);
		return ramp_err_set(err, ENOMEM, "no memory for the table of segments");
	}
	seg->listed = true;
	seg_put(seg_hold(seg)); /* beyond SEG_AWAKE_MAX it rests */
	return 0;
}

static DIR *list_dir(int dir_fd)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	int saved = errno;

	if (!dir && fd >= 0)
		close(fd);
	errno = saved;
	return dir;
}

/* Looks at every name with an id, since either file may be there without the other. */
static int find_segments(struct store *store, DIR *dir, struct ramp_err *err)
{
	struct dirent *entry;
	ramp_segment_t id;
	const char *suffix;
	int rc = 0;

	while (!rc && (entry = readdir(dir))) {
		id = id_of(entry->d_name, &suffix);
		if (id == 0)
			continue;
		if (!strcmp(suffix, "") || !strcmp(suffix, ".state"))
			rc = load_one(store, id, err);
		else
			seg_unlink_name(store, entry->d_name);
	}
	return rc;
}

/* A file whose segment is not in the table is not in use, since the table's lock is held from a
   segment's first file on. */
static bool unlink_litter(struct store *store, DIR *dir)
{
	struct dirent *entry;
	ramp_segment_t id;
	const char *suffix;
	bool gone = true;

	while ((entry = readdir(dir))) {
		id = id_of(entry->d_name, &suffix);
		if (id == 0 || table_find(store, id))
			continue;
		if (!strcmp(suffix, "") || !strcmp(suffix, ".state"))
			gone &= seg_unlink(store, id);
		else
			gone &= seg_unlink_name(store, entry->d_name);
	}
	return gone;
}

void store_tidy(struct store *store)
{
	DIR *dir;

	if (!atomic_load(&store->litter))
		return;
	pthread_mutex_lock(&store->lock);
	dir = list_dir(store->dir_fd);
	if (dir && unlink_litter(store, dir)) {
		atomic_store(&store->litter, false);
		log_info("%s: the files that could not be unlinked are gone now", store->path);
	}
	if (dir)
		closedir(dir);
	pthread_mutex_unlock(&store->lock);
}

static int open_dir(struct store *store, struct ramp_err *err)
{
	DIR *dir;
	int rc;

	store->dir_fd = open(store->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (store->dir_fd < 0)
		return ramp_err_sys(err, errno, "%s", store->path);
	rc = tmpfs_lock(store->dir_fd, &store->lock_fd, err);
	if (rc)
		return ramp_err_wrap(err, "%s", store->path);
	rc = tmpfs_incarnation(store->dir_fd, &store->incarnation, err);
	if (rc)
		return rc;
	dir = list_dir(store->dir_fd);
	if (!dir)
		return ramp_err_sys(err, errno, "%s", store->path);
	rc = find_segments(store, dir, err);
	closedir(dir);
	if (!rc)
		spare_open(store);
	return rc;
}

static int store_path(const char *state_dir, char **path, struct ramp_err *err)
{
	if (asprintf(path, "%s/store", state_dir) < 0) {
		*path = NULL;
		return ramp_err_set(err, ENOMEM, "no memory");
	}
	return 0;
}

/* Counts a cut that layout.c has read, if the segment is still here. */
static void on_cut(struct store *store, ramp_segment_t id)
{
	struct seg *seg = store_find(store, id);

	if (!seg)
		return;
	seg_layout_cut(seg);
	stores_lose(seg);
	seg_put(seg);
}

int store_open(const char *state_dir, uint64_t capacity_bytes, struct store **out,
	       struct ramp_err *err)
{
	struct store *store = calloc(1, sizeof(*store));
	int rc;

	if (!store)
		return ramp_err_set(err, ENOMEM, "no memory for a store");
	store->dir_fd = store->lock_fd = store->layout_fd = store->guard_fd = store->spare_fd = -1;
	pthread_mutex_init(&store->lock, NULL);
	pthread_mutex_init(&store->owner_lock, NULL);
	pthread_mutex_init(&store->touched_lock, NULL);
	pthread_mutex_init(&store->layout_lock, NULL);
	rc = store_path(state_dir, &store->path, err);
	if (!rc)
		rc = tmpfs_mount(store->path, capacity_bytes, err);
	if (!rc)
		rc = open_dir(store, err);
	if (rc) {
		store_close(store);
		return rc;
	}
	layout_open(store, on_cut);
	guard_open(store);
	*out = store;
	return 0;
}

static void put_node(void *key)
{
	seg_put(seg_of_key(key));
}

void store_close(struct store *store)
{
	touched_close(store);
	layout_close(store);
	tdestroy(store->table, put_node);
	guard_close(store);
	spare_close(store);
	if (store->lock_fd >= 0)
		close(store->lock_fd);
	if (store->dir_fd >= 0)
		close(store->dir_fd);
	pthread_mutex_destroy(&store->layout_lock);
	pthread_mutex_destroy(&store->touched_lock);
	pthread_mutex_destroy(&store->owner_lock);
	pthread_mutex_destroy(&store->lock);
	free(store->path);
	free(store);
}

/* ---- destroying ------------------------------------------------------------------------------ */

static int count_segments(int dir_fd, uint64_t *count, struct ramp_err *err)
{
	DIR *dir = list_dir(dir_fd);
	struct dirent *entry;
	const char *suffix;

	if (!dir)
		return ramp_err_sys(err, errno, "the store");
	*count = 0;
	while ((entry = readdir(dir)))
		*count += id_of(entry->d_name, &suffix) && !strcmp(suffix, ".state");
	closedir(dir);
	return 0;
}

static int may_destroy(const char *path, bool force, struct ramp_err *err)
{
	int dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int lock_fd, rc;
	uint64_t count = 0;

	if (dir_fd < 0)
		return ramp_err_sys(err, errno, "%s", path);
	rc = tmpfs_lock(dir_fd, &lock_fd, err);
	if (!rc) {
		rc = count_segments(dir_fd, &count, err);
		close(lock_fd);
	}
	close(dir_fd);
	if (!rc && count && !force)
		return ramp_err_set(err, EBUSY,
				    "%s holds %" PRIu64 " segment%s (--force destroys them)", path,
				    count, count == 1 ? "" : "s");
	return rc;
}

int store_destroy(const char *state_dir, bool force, struct ramp_err *err)
{
	char *path;
	int rc = store_path(state_dir, &path, err);

	if (rc)
		return rc;
	rc = tmpfs_mounted(path, err);
	if (rc > 0) {
		rc = may_destroy(path, force, err);
		if (!rc)
			rc = tmpfs_unmount(path, force, err);
	}
	free(path);
	return rc;
}

/* ---- questions, creating, removing ----------------------------------------------------------- */

void store_on_change(struct store *store, store_changed *fn, void *arg)
{
	store->changed_arg = arg;
	store->changed = fn;
}

void store_set_flags(struct store *store, unsigned long mount_flags)
{
	int rc = tmpfs_set_flags(store->path, mount_flags);

	if (rc)
		log_warn("%s: atime and noexec are as before: %s", store->path, strerror(-rc));
}

ramp_incarnation_t store_incarnation(struct store *store)
{
	return store->incarnation;
}

int store_open_private(struct store *store, const char *name, int flags, mode_t mode)
{
	int fd;

	/* A name that begins with a digit is a segment's. */
	if (strchr(name, '/') || name[0] == '.' || (name[0] >= '0' && name[0] <= '9'))
		return -EINVAL;
	fd = openat(store->dir_fd, name, flags | O_CLOEXEC, mode);
	return fd < 0 ? -errno : fd;
}

int store_replace_private(struct store *store, const char *name, const void *bytes, size_t len)
{
	char next[NAME_MAX + 1];
	int fd, rc = 0;

	snprintf(next, sizeof(next), "%s.new", name);
	fd = store_open_private(store, next, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		return fd;
	errno = ENOSPC; /* the cause of a short write */
	if (write(fd, bytes, len) != (ssize_t)len)
		rc = -errno;
	close(fd);
	if (!rc && renameat(store->dir_fd, next, store->dir_fd, name))
		rc = -errno;
	return rc;
}

void store_space(struct store *store, struct store_space *space)
{
	struct statfs fs;

	*space = (struct store_space){0};
	if (fstatfs(store->dir_fd, &fs))
		return;
	space->capacity_bytes = (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize - SPARE_BYTES;
	space->free_bytes = (uint64_t)fs.f_bfree * (uint64_t)fs.f_bsize;
	if (space->free_bytes > space->capacity_bytes)
		space->free_bytes = space->capacity_bytes; /* the spare is not filled */
	space->used_bytes = space->capacity_bytes - space->free_bytes;
}

int store_create(struct store *store, ramp_segment_t id, enum record_kind kind, uint64_t epoch,
		 struct seg **out, struct ramp_err *err)
{
	return store_create_dated(store, id, kind, epoch, NULL, out, err);
}

int store_create_dated(struct store *store, ramp_segment_t id, enum record_kind kind,
		       uint64_t epoch, const struct seg_dated *row, struct seg **out,
		       struct ramp_err *err)
{
	struct record record = {.kind = kind, .epoch = epoch};
	struct seg *seg;
	int rc;

	if (kind != RECORD_OWNED && kind != RECORD_NONE)
		return ramp_err_set(err, EINVAL, "a segment is not made %s",
				    record_kind_name(kind));
	if (id < RAMP_SEGMENT_ID_MIN)
		return ramp_err_set(err, EINVAL, "%" PRIu64 " is no segment's id", id);
	store_tidy(store); /* or a file of that name may be there */
	pthread_mutex_lock(&store->lock);
	spare_fill(store);
	if (table_find(store, id))
		rc = ramp_err_set(err, EEXIST, "segment %" PRIu64 " is here already", id);
	else
		rc = seg_make(store, id, &record, row, &seg, err);
	if (!rc && !tsearch(&seg->id, &store->table, by_id)) {
		seg_unlink(store, id);
		seg_put(seg);
		rc = ramp_err_set(err, ENOMEM, "no memory for the table of segments");
	}
	if (!rc) {
		seg->listed = true;
		*out = seg_get(seg);
	}
	pthread_mutex_unlock(&store->lock);
	return rc;
}

/* Sets GONE, or returns why not. During the proof the gate is closed, so that a removal that is
   refused is not seen as one. */
static int make_gone(struct seg *seg, bool prove, struct ramp_err *err)
{
	bool closed = false;
	int rc = 0;

	pthread_mutex_lock(&seg->lock);
	if (atomic_load(&seg->gate) & GATE_GONE) {
		rc = ramp_err_set(err, ENOENT, "segment %" PRIu64 " is removed already", seg->id);
	} else if (prove) {
		closed = !(atomic_fetch_or(&seg->gate, GATE_FROZEN) & GATE_FROZEN);
		rc = seg_prove_alone(seg, err);
	}
	if (!rc)
		gate_set(seg, GATE_GONE);
	pthread_mutex_unlock(&seg->lock);
	if (rc && closed)
		seg_thaw(seg);
	return rc;
}

bool store_awaits_memory(struct store *store, uint64_t waited_ms)
{
	uint64_t bytes = atomic_load(&store->going_bytes);
	struct store_space space;

	if (bytes == 0 || waited_ms >= GOING_MS + GOING_GIB_MS * (bytes >> 30))
		return false;
	store_space(store, &space);
	return bytes >= space.capacity_bytes / GOING_PART &&
	       space.free_bytes < space.capacity_bytes / FREE_PART;
}

bool store_will_have_memory(struct store *store, uint64_t bytes)
{
	uint64_t going = atomic_load(&store->going_bytes);
	struct store_space space;

	if (going == 0)
		return false;
	store_space(store, &space);
	return space.free_bytes < bytes && bytes <= space.free_bytes + going;
}

int store_remove(struct seg *seg, bool prove, struct ramp_err *err)
{
	struct store *store = seg->store;
	int rc = make_gone(seg, prove, err);

	if (rc)
		return rc;
	reserve_release_slack(seg);
	pthread_mutex_lock(&store->lock);
	seg_unlink(store, seg->id);
	tdelete(&seg->id, &store->table, by_id);
	seg->listed = false;
	pthread_mutex_unlock(&store->lock);
	seg_untouch(seg);
	seg_tell(seg);
	seg_put(seg); /* the table's */
	return 0;
}
