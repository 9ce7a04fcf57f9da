/*
 * The simulator's disks. See sim_vfs.h.
 *
 * xWrite changes the live image and notes the range; xSync copies the noted ranges into the
 * durable one, or, where it fails, forgets them. WAL's shared memory and locks are plain memory:
 * all connections are in one thread.
 */
#include "sim_vfs.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILES_MAX    (SIM_DISKS * 4)
#define SHM_REGIONS  8
#define EPOCH_OF_SIM INT64_C(210866803200000) /* 1970 as SQLite counts, in ms */

struct image {
	uint8_t *bytes;
	size_t len, cap;
};

struct range {
	size_t offset, len;
};

struct file {
	bool used;
	char path[SIM_PATH_MAX];
	unsigned disk;
	unsigned handles;
	struct image live, durable;
	struct range *dirty;
	size_t n_dirty, cap_dirty;
	/* Locks of the database file. */
	unsigned shared;
	struct handle *reserved, *exclusive;
	/* Shared memory of a WAL database. */
	unsigned shm_users;
	void *region[SHM_REGIONS];
	unsigned shm_shared[SQLITE_SHM_NLOCK];
	struct handle *shm_exclusive[SQLITE_SHM_NLOCK];
};

struct handle {
	sqlite3_file base;
	struct file *file;
	int lock;
	bool shm;
	bool delete_on_close;
	unsigned shm_held_shared, shm_held_exclusive; /* masks */
};

static struct file files[FILES_MAX];
static struct disk {
	enum sim_disk_state state;
	uint64_t after;
	bool frozen;
} disks[SIM_DISKS];
static unsigned temporary;
static struct sim_rng vfs_rng;

/* ---- images --------------------------------------------------------------------------------- */

static int image_grow(struct image *im, size_t len)
{
	size_t cap = im->cap ? im->cap : 4096;

	if (len <= im->len)
		return 0;
	while (cap < len)
		cap *= 2;
	if (cap != im->cap) {
		uint8_t *bytes = realloc(im->bytes, cap);

		if (!bytes)
			return -ENOMEM;
		im->bytes = bytes;
		im->cap = cap;
	}
	memset(im->bytes + im->len, 0, len - im->len);
	im->len = len;
	return 0;
}

static int image_write(struct image *im, const void *bytes, size_t len, size_t offset)
{
	if (!len)
		return 0;
	if (image_grow(im, offset + len))
		return -ENOMEM;
	memcpy(im->bytes + offset, bytes, len);
	return 0;
}

static int image_copy_range(struct image *to, const struct image *from, const struct range *r)
{
	size_t len = r->len;

	if (r->offset >= from->len)
		return 0; /* truncated since */
	if (len > from->len - r->offset)
		len = from->len - r->offset;
	return image_write(to, from->bytes + r->offset, len, r->offset);
}

static int file_note(struct file *f, size_t offset, size_t len)
{
	struct range *last = f->n_dirty ? &f->dirty[f->n_dirty - 1] : NULL;

	if (last && last->offset == offset && last->len == len)
		return 0;
	if (f->n_dirty == f->cap_dirty) {
		size_t cap = f->cap_dirty ? f->cap_dirty * 2 : 16;
		struct range *dirty = realloc(f->dirty, cap * sizeof(*dirty));

		if (!dirty)
			return -ENOMEM;
		f->dirty = dirty;
		f->cap_dirty = cap;
	}
	f->dirty[f->n_dirty++] = (struct range){offset, len};
	return 0;
}

static void file_free(struct file *f)
{
	free(f->live.bytes);
	free(f->durable.bytes);
	free(f->dirty);
	for (int i = 0; i < SHM_REGIONS; i++)
		free(f->region[i]);
	memset(f, 0, sizeof(*f));
}

static struct file *file_find(const char *path)
{
	for (size_t i = 0; i < FILES_MAX; i++)
		if (files[i].used && !strcmp(files[i].path, path))
			return &files[i];
	return NULL;
}

static struct file *file_make(const char *path)
{
	unsigned disk = 0;

	if (strlen(path) >= SIM_PATH_MAX)
		return NULL;
	if (sscanf(path, "/sim/%u/", &disk) != 1 || disk >= SIM_DISKS)
		return NULL;
	for (size_t i = 0; i < FILES_MAX; i++) {
		struct file *f = &files[i];

		if (f->used)
			continue;
		f->used = true;
		f->disk = disk;
		snprintf(f->path, sizeof(f->path), "%s", path);
		return f;
	}
	return NULL;
}

/* Returns SQLITE_OK where the disk takes one more write or sync. */
static int disk_take(struct file *f, bool grows, int error)
{
	struct disk *d = &disks[f->disk];

	if (d->frozen)
		return error;
	if (d->state == SIM_DISK_OK || d->state == SIM_DISK_SLIPS)
		return SQLITE_OK;
	if (d->after) {
		d->after--;
		return SQLITE_OK;
	}
	if (d->state == SIM_DISK_FULL)
		return grows ? SQLITE_FULL : SQLITE_OK;
	return error;
}

/* Returns SQLITE_OK where a sync succeeds. */
static int disk_sync(struct file *f)
{
	struct disk *d = &disks[f->disk];

	if (d->state != SIM_DISK_SLIPS || d->frozen)
		return disk_take(f, false, SQLITE_IOERR_FSYNC);
	if (d->after) {
		d->after--;
		return SQLITE_OK;
	}
	d->state = SIM_DISK_OK;
	return SQLITE_IOERR_FSYNC;
}

/* ---- a file's methods ------------------------------------------------------------------------ */

static struct handle *handle_of(sqlite3_file *base)
{
	return (struct handle *)(void *)base;
}

static int shm_unmap(sqlite3_file *base, int delete_flag);
static int vfs_unlock(sqlite3_file *base, int level);

static int vfs_close(sqlite3_file *base)
{
	struct handle *h = handle_of(base);

	if (h->shm)
		shm_unmap(base, 0);
	vfs_unlock(base, SQLITE_LOCK_NONE);
	h->file->handles--;
	if (h->delete_on_close && !h->file->handles)
		file_free(h->file);
	return SQLITE_OK;
}

static int vfs_read(sqlite3_file *base, void *to, int amount, sqlite3_int64 offset)
{
	const struct image *im = &handle_of(base)->file->live;
	size_t at = (size_t)offset, want = (size_t)amount, have;

	have = at >= im->len ? 0 : im->len - at;
	if (have > want)
		have = want;
	if (have)
		memcpy(to, im->bytes + at, have);
	if (have == want)
		return SQLITE_OK;
	memset((uint8_t *)to + have, 0, want - have);
	return SQLITE_IOERR_SHORT_READ;
}

static int vfs_write(sqlite3_file *base, const void *from, int amount, sqlite3_int64 offset)
{
	struct file *f = handle_of(base)->file;
	size_t end = (size_t)offset + (size_t)amount;
	int rc = disk_take(f, end > f->live.len, SQLITE_IOERR_WRITE);

	if (rc)
		return rc;
	if (image_write(&f->live, from, (size_t)amount, (size_t)offset) ||
	    file_note(f, (size_t)offset, (size_t)amount))
		return SQLITE_IOERR_NOMEM;
	return SQLITE_OK;
}

static int vfs_truncate(sqlite3_file *base, sqlite3_int64 size)
{
	struct file *f = handle_of(base)->file;

	if (disks[f->disk].frozen)
		return SQLITE_IOERR_TRUNCATE;
	if ((size_t)size < f->live.len)
		f->live.len = (size_t)size;
	if ((size_t)size < f->durable.len)
		f->durable.len = (size_t)size;
	return SQLITE_OK;
}

static int vfs_sync(sqlite3_file *base, int flags)
{
	struct file *f = handle_of(base)->file;
	int rc = disk_sync(f);

	(void)flags;
	if (rc && !disks[f->disk].frozen)
		f->n_dirty = 0;
	if (rc)
		return rc;
	for (size_t i = 0; i < f->n_dirty; i++)
		if (image_copy_range(&f->durable, &f->live, &f->dirty[i]))
			return SQLITE_IOERR_NOMEM;
	f->n_dirty = 0;
	return SQLITE_OK;
}

static int vfs_size(sqlite3_file *base, sqlite3_int64 *size)
{
	*size = (sqlite3_int64)handle_of(base)->file->live.len;
	return SQLITE_OK;
}

static int vfs_lock(sqlite3_file *base, int level)
{
	struct handle *h = handle_of(base);
	struct file *f = h->file;

	if (level <= h->lock)
		return SQLITE_OK;
	if (f->exclusive && f->exclusive != h)
		return SQLITE_BUSY;
	if (level >= SQLITE_LOCK_RESERVED && f->reserved && f->reserved != h)
		return SQLITE_BUSY;
	if (level == SQLITE_LOCK_EXCLUSIVE && f->shared > 1)
		return SQLITE_BUSY;
	if (h->lock == SQLITE_LOCK_NONE)
		f->shared++;
	if (level >= SQLITE_LOCK_RESERVED)
		f->reserved = h;
	if (level == SQLITE_LOCK_EXCLUSIVE)
		f->exclusive = h;
	h->lock = level;
	return SQLITE_OK;
}

static int vfs_unlock(sqlite3_file *base, int level)
{
	struct handle *h = handle_of(base);
	struct file *f = h->file;

	if (level >= h->lock)
		return SQLITE_OK;
	if (f->exclusive == h)
		f->exclusive = NULL;
	if (f->reserved == h)
		f->reserved = NULL;
	if (level == SQLITE_LOCK_NONE)
		f->shared--;
	h->lock = level;
	return SQLITE_OK;
}

static int vfs_check_reserved(sqlite3_file *base, int *out)
{
	*out = handle_of(base)->file->reserved != NULL;
	return SQLITE_OK;
}

static int vfs_control(sqlite3_file *base, int op, void *arg)
{
	(void)base;
	(void)op;
	(void)arg;
	return SQLITE_NOTFOUND;
}

static int vfs_sector(sqlite3_file *base)
{
	(void)base;
	return 4096;
}

static int vfs_characteristics(sqlite3_file *base)
{
	(void)base;
	return SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

/* ---- WAL's shared memory --------------------------------------------------------------------- */

static int shm_map(sqlite3_file *base, int region, int size, int extend, void volatile **out)
{
	struct handle *h = handle_of(base);
	struct file *f = h->file;

	*out = NULL;
	if (region >= SHM_REGIONS)
		return SQLITE_IOERR_SHMMAP;
	if (!h->shm) {
		h->shm = true;
		f->shm_users++;
	}
	if (!f->region[region] && extend)
		f->region[region] = calloc(1, (size_t)size);
	if (!f->region[region] && extend)
		return SQLITE_IOERR_NOMEM;
	*out = f->region[region];
	return SQLITE_OK;
}

static int shm_unlock(struct handle *h, unsigned first, unsigned end, bool shared)
{
	for (unsigned i = first; i < end; i++) {
		unsigned *held = shared ? &h->shm_held_shared : &h->shm_held_exclusive;

		if (!(*held & (1u << i)))
			continue;
		*held &= ~(1u << i);
		if (shared)
			h->file->shm_shared[i]--;
		else
			h->file->shm_exclusive[i] = NULL;
	}
	return SQLITE_OK;
}

static bool shm_free(const struct handle *h, unsigned slot, bool shared)
{
	const struct file *f = h->file;
	unsigned own = h->shm_held_shared & (1u << slot) ? 1 : 0;

	if (f->shm_exclusive[slot] && f->shm_exclusive[slot] != h)
		return false;
	return shared || f->shm_shared[slot] == own;
}

static int shm_lock(sqlite3_file *base, int offset, int n, int flags)
{
	struct handle *h = handle_of(base);
	unsigned first = (unsigned)offset, end = (unsigned)(offset + n);
	bool shared = flags & SQLITE_SHM_SHARED;

	if (flags & SQLITE_SHM_UNLOCK)
		return shm_unlock(h, first, end, shared);
	for (unsigned i = first; i < end; i++)
		if (!shm_free(h, i, shared))
			return SQLITE_BUSY;
	for (unsigned i = first; i < end; i++) {
		if (shared && !(h->shm_held_shared & (1u << i))) {
			h->shm_held_shared |= 1u << i;
			h->file->shm_shared[i]++;
		} else if (!shared) {
			h->shm_held_exclusive |= 1u << i;
			h->file->shm_exclusive[i] = h;
		}
	}
	return SQLITE_OK;
}

static void shm_barrier(sqlite3_file *base)
{
	(void)base;
}

static int shm_unmap(sqlite3_file *base, int delete_flag)
{
	struct handle *h = handle_of(base);
	struct file *f = h->file;

	(void)delete_flag;
	if (!h->shm)
		return SQLITE_OK;
	h->shm = false;
	shm_unlock(h, 0, SQLITE_SHM_NLOCK, true);
	shm_unlock(h, 0, SQLITE_SHM_NLOCK, false);
	if (--f->shm_users)
		return SQLITE_OK;
	for (int i = 0; i < SHM_REGIONS; i++) {
		free(f->region[i]);
		f->region[i] = NULL;
	}
	return SQLITE_OK;
}

static const sqlite3_io_methods methods = {
	.iVersion = 2,
	.xClose = vfs_close,
	.xRead = vfs_read,
	.xWrite = vfs_write,
	.xTruncate = vfs_truncate,
	.xSync = vfs_sync,
	.xFileSize = vfs_size,
	.xLock = vfs_lock,
	.xUnlock = vfs_unlock,
	.xCheckReservedLock = vfs_check_reserved,
	.xFileControl = vfs_control,
	.xSectorSize = vfs_sector,
	.xDeviceCharacteristics = vfs_characteristics,
	.xShmMap = shm_map,
	.xShmLock = shm_lock,
	.xShmBarrier = shm_barrier,
	.xShmUnmap = shm_unmap,
};

/* ---- the VFS --------------------------------------------------------------------------------- */

static int vfs_open(sqlite3_vfs *vfs, const char *path, sqlite3_file *base, int flags,
		    int *out_flags)
{
	struct handle *h = handle_of(base);
	char name[SIM_PATH_MAX];
	struct file *f;

	(void)vfs;
	memset(h, 0, sizeof(*h));
	if (!path) {
		snprintf(name, sizeof(name), "/sim/0/temporary-%u", temporary++);
		path = name;
		h->delete_on_close = true;
	}
	f = file_find(path);
	if (!f && (flags & SQLITE_OPEN_CREATE))
		f = file_make(path);
	if (!f)
		return SQLITE_CANTOPEN;
	f->handles++;
	h->file = f;
	h->base.pMethods = &methods;
	if (out_flags)
		*out_flags = flags;
	return SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *path, int sync)
{
	struct file *f = file_find(path);

	(void)vfs;
	(void)sync;
	if (!f)
		return SQLITE_IOERR_DELETE_NOENT;
	if (disks[f->disk].frozen || f->handles)
		return SQLITE_IOERR_DELETE;
	file_free(f);
	return SQLITE_OK;
}

static int vfs_access(sqlite3_vfs *vfs, const char *path, int flags, int *out)
{
	const struct file *f = file_find(path);

	(void)vfs;
	*out = f && (flags != SQLITE_ACCESS_EXISTS || f->live.len > 0);
	return SQLITE_OK;
}

static int vfs_full_path(sqlite3_vfs *vfs, const char *path, int cap, char *out)
{
	(void)vfs;
	snprintf(out, (size_t)cap, "%s", path);
	return SQLITE_OK;
}

static int vfs_randomness(sqlite3_vfs *vfs, int len, char *out)
{
	(void)vfs;
	for (int i = 0; i < len; i++)
		out[i] = (char)sim_random(&vfs_rng);
	return len;
}

static int vfs_sleep(sqlite3_vfs *vfs, int us)
{
	(void)vfs;
	return us;
}

static int vfs_time(sqlite3_vfs *vfs, sqlite3_int64 *ms)
{
	(void)vfs;
	*ms = EPOCH_OF_SIM;
	return SQLITE_OK;
}

static int vfs_last_error(sqlite3_vfs *vfs, int len, char *out)
{
	(void)vfs;
	if (len > 0)
		out[0] = '\0';
	return 0;
}

int sim_vfs_register(void)
{
	static sqlite3_vfs vfs = {
		.iVersion = 2,
		.szOsFile = sizeof(struct handle),
		.mxPathname = SIM_PATH_MAX,
		.zName = SIM_VFS,
		.xOpen = vfs_open,
		.xDelete = vfs_delete,
		.xAccess = vfs_access,
		.xFullPathname = vfs_full_path,
		.xRandomness = vfs_randomness,
		.xSleep = vfs_sleep,
		.xGetLastError = vfs_last_error,
		.xCurrentTimeInt64 = vfs_time,
	};

	return sqlite3_vfs_register(&vfs, 0) ? -EIO : 0;
}

void sim_vfs_reset(void)
{
	for (size_t i = 0; i < FILES_MAX; i++)
		if (files[i].used)
			file_free(&files[i]);
	memset(disks, 0, sizeof(disks));
	temporary = 0;
	vfs_rng.state = 1;
	sqlite3_randomness(0, NULL);
}

int sim_vfs_put(const char *path, const void *bytes, size_t len)
{
	struct file *f = file_find(path);

	if (f)
		file_free(f);
	f = file_make(path);
	if (!f || image_write(&f->live, bytes, len, 0) || image_write(&f->durable, bytes, len, 0))
		return -ENOMEM;
	return 0;
}

void sim_vfs_wipe(unsigned disk)
{
	for (size_t i = 0; i < FILES_MAX; i++)
		if (files[i].used && files[i].disk == disk)
			file_free(&files[i]);
	disks[disk] = (struct disk){SIM_DISK_OK, 0, false};
}

void sim_vfs_fault(unsigned disk, enum sim_disk_state state, uint64_t after)
{
	disks[disk].state = state;
	disks[disk].after = after;
}

void sim_vfs_freeze(unsigned disk)
{
	disks[disk].frozen = true;
}

/* Makes the file as found after a power failure: each unsynced write is there by chance. */
static void file_lose(struct file *f, struct sim_rng *rng)
{
	uint32_t kept = sim_chance(rng, 500) ? 0 : (uint32_t)sim_between(rng, 0, 1000);

	for (size_t i = 0; i < f->n_dirty; i++)
		if (sim_chance(rng, kept) && image_copy_range(&f->durable, &f->live, &f->dirty[i]))
			abort();
	f->n_dirty = 0;
	f->live.len = 0;
	if (image_write(&f->live, f->durable.bytes, f->durable.len, 0))
		abort();
}

unsigned sim_vfs_thaw(unsigned disk, bool power, struct sim_rng *rng)
{
	unsigned open = 0;

	disks[disk].frozen = false;
	for (size_t i = 0; i < FILES_MAX; i++) {
		struct file *f = &files[i];

		if (!f->used || f->disk != disk)
			continue;
		open += f->handles;
		if (power && !f->handles)
			file_lose(f, rng);
	}
	return open;
}
