/*
 * The daemon's mapping of a segment, and which pages it gets through it: small or huge ones.
 *
 * Happy path: a thread that serves or pulls a segment maps it (seg_map); the last seg_unmap unmaps
 * it. Each mapping has a guard: a second mapping that no thread ever touches, registered for MISSING
 * page faults. The reason is that khugepaged fills the holes of a file that any process has mapped,
 * up to 2 MiB for one page, unless a userfaultfd is registered there. A program attached to a
 * segment that moves has one; without any, the zeros would be sent as data to a target that promised
 * room for the listed pages only, and would take the room of other segments there. khugepaged still
 * collapses blocks without holes. (The mapping itself is without MADV_NOHUGEPAGE, so that the daemon
 * copies through entries of 2 MiB.)
 *
 * How it fails: without a guard, the mapping has no huge pages at all.
 */
#include "mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/log.h"
#include "base/page.h"
#include "gate.h"
#include "open_cache.h"
#include "seg_core.h"
#include "seg_file.h"

void guard_open(struct store *store)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	int rc = fd < 0 ? -errno : kernel_uffd_api(fd, UFFD_FEATURE_MISSING_SHMEM);

	if (rc) {
		log_warn("no userfaultfd (%s): segments that this node serves and pulls are "
			 "mapped by small pages",
			 strerror(-rc));
		if (fd >= 0)
			close(fd);
		fd = -1;
	}
	store->guard_fd = fd;
}

void guard_close(struct store *store)
{
	if (store->guard_fd >= 0)
		close(store->guard_fd);
}

/* ---- small pages ----------------------------------------------------------------------------- */

/* A kernel without huge pages refuses this, and makes none. */
void mapping_want_small(void *base, uint64_t len)
{
	if (madvise(base, len, MADV_NOHUGEPAGE))
		log_debug("MADV_NOHUGEPAGE: %s", strerror(errno));
}

void seg_map_small(struct seg *seg)
{
	for (struct seg_mapping *mapping = seg->mappings; mapping; mapping = mapping->next)
		mapping_want_small(mapping->base, mapping->len);
}

bool seg_small(struct seg *seg)
{
	return atomic_load(&seg->small);
}

void seg_set_small(struct seg *seg, bool small)
{
	if (seg_damaged(seg) || seg_small(seg) == small)
		return;
	if (seg_wake_header(seg)) {
		log_warn("segment %" PRIu64 ": its wish for small pages is not recorded", seg->id);
		return;
	}
	pthread_mutex_lock(&seg->lock);
	atomic_store(&seg->state->small, small);
	atomic_store(&seg->small, small);
	if (small)
		seg_map_small(seg);
	pthread_mutex_unlock(&seg->lock);
}

/* Whether there is room for the holes in [from, to). Pages taken one by one are not given back if
   that fails halfway, as fallocate(2) gives them back. */
static bool holes_fit(int fd, uint64_t from, uint64_t to)
{
	off_t at = (off_t)from, end = (off_t)to, data;
	uint64_t free_bytes, holes = 0;
	struct statfs fs;

	if (fstatfs(fd, &fs))
		return false;
	free_bytes = (uint64_t)fs.f_bfree * (uint64_t)fs.f_bsize;
	while (at >= 0 && at < end && holes <= free_bytes) {
		data = lseek(fd, at, SEEK_DATA);
		if (data < 0 || data > end)
			data = end;
		holes += (uint64_t)(data - at);
		at = data < end ? lseek(fd, data, SEEK_HOLE) : end;
	}
	return at >= 0 && holes <= free_bytes;
}

/* Takes [from, to), which lies within the file, through a mapping without huge pages. */
static int take_within(int fd, uint64_t from, uint64_t to)
{
	void *base = mmap(NULL, to - from, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)from);
	int rc;

	if (base == MAP_FAILED)
		return -errno;
	mapping_want_small(base, to - from);
	rc = madvise(base, to - from, MADV_POPULATE_WRITE) ? -errno : 0;
	munmap(base, to - from);
	return rc;
}

/* Takes [from, to) behind the file's end, which stays where it is. */
static int take_kept(int fd, uint64_t from, uint64_t to)
{
	while (from < to && fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(to - from)))
		if (errno != EINTR)
			return -errno;
	return 0;
}

static int take_page(int fd, uint64_t size, uint64_t at)
{
	return at < size ? take_within(fd, at, at + RAMP_PAGE_BYTES)
			 : take_kept(fd, at, at + RAMP_PAGE_BYTES);
}

/*
 * Takes [from, to) behind the file's end, where there is nothing to map. The kernel
 * (huge=within_size) counts the end of the write itself as the file's, and takes the largest aligned
 * folio around a page that ends by then and has no page yet: 2 MiB for the last page of a block. So
 * the first page of each block is taken alone, which all folios that begin before it would have to
 * contain. Alone it gets a page of its own where its number is even; where it is odd, the page
 * before it is taken for that, and is one too many.
 */
static int take_behind(int fd, uint64_t size, uint64_t from, uint64_t to)
{
	int rc = 0;

	while (from < to && !rc) {
		uint64_t end = (from / RAMP_HUGE_BYTES + 1) * RAMP_HUGE_BYTES;

		if (from / RAMP_PAGE_BYTES % 2)
			from -= RAMP_PAGE_BYTES;
		if (end > to)
			end = to;
		rc = take_page(fd, size, from);
		if (!rc)
			rc = take_kept(fd, from + RAMP_PAGE_BYTES, end);
		from = end;
	}
	return rc;
}

void seg_take_small(struct seg *seg, uint64_t offset, uint64_t len)
{
	uint64_t size, from, to, within;
	int fd, rc = 0;

	if (!seg_small(seg) || !len)
		return;
	size = page_up(seg_size(seg));
	from = page_down(offset);
	to = page_up(offset + len);
	within = to < size ? to : size;
	fd = seg_fd(seg);
	if (!holes_fit(fd, from, to))
		return;
	if (from < within)
		rc = take_within(fd, from, within);
	if (!rc && to > size)
		rc = take_behind(fd, size, from > size ? from : size, to);
	if (rc)
		log_debug("segment %" PRIu64 ": small pages: %s", seg->id, strerror(-rc));
}

/* ---- the mapping and its guard --------------------------------------------------------------- */

/* Opens the file O_NOATIME for it: the daemon's mapping is no access by a user, and would count as one
   if the last access is older than the last change (relatime). If no descriptor is to be had, it
   counts. */
void *mapping_of_file(struct seg *seg, int prot, uint64_t from, uint64_t len)
{
	char name[32];
	void *base;
	int fd, saved;

	seg_data_name(seg->id, name);
	fd = openat(seg->store->dir_fd, name, O_RDWR | O_NOATIME | O_CLOEXEC);
	base = mmap(NULL, len, prot, MAP_SHARED, fd < 0 ? seg_fd(seg) : fd, (off_t)from);
	saved = errno;
	if (fd >= 0)
		close(fd);
	errno = saved;
	return base;
}

static void unmap(struct seg_mapping *mapping)
{
	if (mapping->base)
		munmap(mapping->base, mapping->len);
	if (mapping->guard)
		munmap(mapping->guard, mapping->len);
	free(mapping);
}

void mapping_drop_all(struct seg *seg)
{
	struct seg_mapping *mapping;

	while ((mapping = seg->mappings)) {
		seg->mappings = mapping->next;
		unmap(mapping);
	}
}

/* Maps the guard; NULL: there is none. If very many segments are awake they get none, since the
   number of a process's mappings is limited. The guard itself is MADV_NOHUGEPAGE, or khugepaged would
   make full blocks of small pages huge through it. */
static void *guard(struct seg *seg, uint64_t len)
{
	void *guard;
	int rc;

	if (seg->store->guard_fd < 0 || atomic_load(&seg->store->awake) > SEG_AWAKE_MAX)
		return NULL;
	guard = mapping_of_file(seg, PROT_NONE, 0, len);
	if (guard == MAP_FAILED)
		return NULL;
	mapping_want_small(guard, len);
	rc = kernel_uffd_register(seg->store->guard_fd, (uint64_t)guard, len,
				  UFFDIO_REGISTER_MODE_MISSING);
	if (rc == 0)
		return guard;
	log_debug("segment %" PRIu64 ": no guard: %s", seg->id, strerror(-rc));
	munmap(guard, len);
	return NULL;
}

/* Maps twice the size, so that a file that grows slowly does not need a mapping each time; the part
   beyond its end costs addresses only. seg->lock is held. */
static int grow_mapping(struct seg *seg, uint64_t need, struct ramp_err *err)
{
	struct seg_mapping *mapping = malloc(sizeof(*mapping));
	uint64_t len = need < RAMP_HUGE_BYTES ? 2 * RAMP_HUGE_BYTES : 2 * need;
	void *base;
	int rc;

	if (!mapping)
		return ramp_err_set(err, ENOMEM, "no memory for a mapping");
	*mapping =
		(struct seg_mapping){.next = seg->mappings, .guard = guard(seg, len), .len = len};
	base = mapping_of_file(seg, PROT_READ | PROT_WRITE, 0, len);
	if (base == MAP_FAILED) {
		rc = ramp_err_sys(err, errno, "mapping segment %" PRIu64, seg->id);
		unmap(mapping);
		return rc;
	}
	mapping->base = base;
	if (seg_small(seg) || seg->scarce || !mapping->guard)
		mapping_want_small(base, len);
	seg->mappings = mapping;
	return 0;
}

int seg_map(struct seg *seg, uint8_t **base, uint64_t *len, struct ramp_err *err)
{
	uint64_t need = page_up(seg_size(seg));
	/* Pages that are to come land in it, even if the file has been cut. */
	uint64_t mapped = atomic_load(&seg->map_pages) * RAMP_PAGE_BYTES;
	int rc = 0;

	if (mapped < need)
		mapped = need;
	pthread_mutex_lock(&seg->lock);
	if (atomic_load(&seg->gate) & GATE_GONE)
		rc = ramp_err_set(err, ENOENT, "segment %" PRIu64 " is removed", seg->id);
	else if (!seg->mappings || seg->mappings->len < mapped)
		rc = grow_mapping(seg, mapped, err);
	if (!rc) {
		seg->map_users++;
		*base = seg->mappings->base;
		*len = need;
	}
	pthread_mutex_unlock(&seg->lock);
	return rc;
}

void seg_unmap(struct seg *seg)
{
	pthread_mutex_lock(&seg->lock);
	if (--seg->map_users == 0)
		mapping_drop_all(seg);
	pthread_mutex_unlock(&seg->lock);
}
