/*
 * The cache of open files and mapped headers: segments at rest have neither.
 *
 * Happy path: while there are few segments, each keeps its file open and its header mapped. Beyond
 * SEG_AWAKE_MAX the last user's seg_put closes both, and the next user's first access opens them
 * again (a few microseconds).
 *
 * How it fails: waking needs a descriptor and a mapping. If there is none, reads and writes get the
 * error at the gate, a migration at its first step; size and times are read by name and need
 * neither.
 */
#include "open_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pages.h"
#include "seg_core.h"

static void note_awake(struct seg *seg)
{
	if (!atomic_exchange(&seg->awake, true))
		atomic_fetch_add(&seg->store->awake, 1);
}

void seg_take_file(struct seg *seg, int fd)
{
	int none = -1;

	note_awake(seg);
	if (!atomic_compare_exchange_strong(&seg->fd, &none, fd))
		close(fd); /* another thread was faster */
}

/* Keeps the number: another thread may be about to use it, for the file's size. */
int seg_replace_file(struct seg *seg, int fd)
{
	int old = -1, rc;

	note_awake(seg);
	if (atomic_compare_exchange_strong(&seg->fd, &old, fd))
		return 0;
	rc = dup3(fd, old, O_CLOEXEC) < 0 ? -errno : 0;
	close(fd);
	return rc;
}

int seg_take_header(struct seg *seg, int state_fd)
{
	struct state_header *none = NULL;
	void *at = mmap(NULL, STATE_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, state_fd, 0);

	if (at == MAP_FAILED)
		return -errno;
	note_awake(seg);
	if (!atomic_compare_exchange_strong(&seg->state, &none, at))
		munmap(at, STATE_HEADER_BYTES);
	return 0;
}

int seg_wake_file(struct seg *seg)
{
	char name[32];
	int fd;

	if (atomic_load(&seg->fd) >= 0)
		return 0;
	if (seg_damaged(seg))
		return -EIO;
	seg_data_name(seg->id, name);
	fd = openat(seg->store->dir_fd, name, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	seg_take_file(seg, fd);
	return 0;
}

int seg_wake_header(struct seg *seg)
{
	char name[32];
	int fd, rc;

	if (atomic_load(&seg->state))
		return 0;
	if (seg_damaged(seg))
		return -EIO;
	seg_state_name(seg->id, name);
	fd = openat(seg->store->dir_fd, name, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	rc = seg_take_header(seg, fd);
	close(fd);
	return rc;
}

void seg_close(struct seg *seg)
{
	struct state_header *state = atomic_exchange(&seg->state, NULL);
	int fd = atomic_exchange(&seg->fd, -1);

	pages_free(seg);
	if (state)
		munmap(state, STATE_HEADER_BYTES);
	if (fd >= 0)
		close(fd);
	if (atomic_exchange(&seg->awake, false))
		atomic_fetch_sub(&seg->store->awake, 1);
}

/* Only the table and the caller have a reference, and store->lock is held. */
static bool may_rest(struct seg *seg)
{
	struct state_header *state = atomic_load(&seg->state);

	return seg->record.kind == RECORD_OWNED && atomic_load(&seg->gate) == 0 && !seg->mappings &&
	       seg->slack_fd < 0 &&
	       (!state || (!atomic_load(&state->map_pages) && !atomic_load(&state->passed) &&
			   !atomic_load(&state->giving) && atomic_load(&state->mtime) == HELD_NOT));
}

void seg_may_rest(struct seg *seg)
{
	struct store *store = seg->store;

	if (atomic_load(&seg->refs) != 2 || !atomic_load(&seg->awake) ||
	    atomic_load(&store->awake) <= SEG_AWAKE_MAX)
		return;
	pthread_mutex_lock(&store->lock);
	if (seg->listed && atomic_load(&seg->refs) == 2 && may_rest(seg))
		seg_close(seg);
	pthread_mutex_unlock(&store->lock);
}
