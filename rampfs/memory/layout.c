/*
 * Whether a segment's holes are where they were.
 *
 * Happy path: the size in blocks is as it was, and nothing was cut out of the file since. The daemon
 * counts its own truncates and punched holes. A program that maps the segment can punch holes by a
 * system call that the shim does not see (madvise(2), MADV_REMOVE), and as many new pages elsewhere
 * hide that from the count of blocks: fanotify(7) reports it. It does not report stores, and it names
 * the process, so that the daemon's own writes are left out.
 *
 * An event holds its file, unlinked or not, until it is read. So seg_forget_layout leaves no event
 * of the segment behind.
 *
 * How it fails: without fanotify, every layout counts as changed; if an event is lost, every layout
 * that was noted before. A hole whose system call is between its last page and its event while all
 * programs are frozen is not seen: the kernel says no more about it.
 */
#include "layout.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "seg_core.h"
#include "seg_file.h"

void layout_open(struct store *store, store_cut_fn *cut)
{
	store->on_cut = cut;
	store->layout_fd =
		fanotify_init(FAN_CLASS_NOTIF | FAN_UNLIMITED_QUEUE | FAN_NONBLOCK | FAN_CLOEXEC,
			      O_RDONLY | O_CLOEXEC);
	if (store->layout_fd < 0)
		log_warn("no fanotify (%s): every segment that moves is assumed to have new holes",
			 strerror(errno));
}

void layout_close(struct store *store)
{
	if (store->layout_fd >= 0)
		close(store->layout_fd);
}

static int mark(struct seg *seg, unsigned int what)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", seg_fd(seg));
	return fanotify_mark(seg->store->layout_fd, what, FAN_MODIFY, AT_FDCWD, path);
}

void seg_layout_cut(struct seg *seg)
{
	atomic_fetch_add(&seg->cuts, 1);
}

/* Counts an event, whose file is open in this process. False: it can't be told which file it is. */
static bool take_event(struct store *store, const struct fanotify_event_metadata *event)
{
	char link[32], path[4096];
	const char *name;
	ssize_t n;

	if (event->fd < 0) /* the kernel had no memory for an event */
		return false;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", event->fd);
	n = readlink(link, path, sizeof(path) - 1);
	close(event->fd);
	path[n < 0 ? 0 : n] = 0;
	name = strrchr(path, '/');
	if (!name)
		return false;
	if (event->pid == getpid())
		return true;
	store->on_cut(store, strtoull(name + 1, NULL, 10));
	return true;
}

/*
 * Reads all events, one at a time: of several, the kernel silently drops one whose file it can't
 * open. Under the lock, so that a thread that finds none left knows that all are counted.
 */
static void take_events(struct store *store)
{
	struct fanotify_event_metadata event;
	ssize_t n;

	if (store->layout_fd < 0)
		return;
	pthread_mutex_lock(&store->layout_lock);
	while ((n = read(store->layout_fd, &event, sizeof(event))) > 0)
		if (!take_event(store, &event))
			atomic_fetch_add(&store->layouts_lost, 1);
	if (n < 0 && errno != EAGAIN)
		atomic_fetch_add(&store->layouts_lost, 1);
	pthread_mutex_unlock(&store->layout_lock);
}

static uint64_t cuts_now(struct seg *seg)
{
	return atomic_load(&seg->cuts) + atomic_load(&seg->store->layouts_lost);
}

static uint64_t blocks_now(struct seg *seg)
{
	struct stat st;

	return seg_stat(seg, &st) ? 0 : (uint64_t)st.st_blocks;
}

void seg_note_layout(struct seg *seg)
{
	bool seen = !mark(seg, FAN_MARK_ADD);

	pthread_mutex_lock(&seg->lock);
	seg->noted_cuts = cuts_now(seg);
	seg->noted_blocks = blocks_now(seg);
	seg->layout_unseen = !seen;
	pthread_mutex_unlock(&seg->lock);
	if (!seen)
		seg_layout_cut(seg);
}

struct seg_layout seg_layout_now(struct seg *seg)
{
	take_events(seg->store);
	return (struct seg_layout){.blocks = blocks_now(seg), .cuts = cuts_now(seg)};
}

void seg_layout_note(struct seg *seg, struct seg_layout layout)
{
	pthread_mutex_lock(&seg->lock);
	seg->noted_cuts = layout.cuts;
	seg->noted_blocks = layout.blocks;
	pthread_mutex_unlock(&seg->lock);
}

bool seg_layout_is_noted(struct seg *seg, uint64_t populated_bytes)
{
	bool noted;

	pthread_mutex_lock(&seg->lock);
	noted = populated_bytes == seg->noted_blocks * 512;
	pthread_mutex_unlock(&seg->lock);
	return noted;
}

bool seg_layout_changed(struct seg *seg, uint64_t *grown)
{
	uint64_t blocks = blocks_now(seg);
	bool changed;

	take_events(seg->store);
	pthread_mutex_lock(&seg->lock);
	changed = cuts_now(seg) != seg->noted_cuts || blocks != seg->noted_blocks;
	*grown = blocks > seg->noted_blocks ? (blocks - seg->noted_blocks) * 512 : 0;
	pthread_mutex_unlock(&seg->lock);
	return changed;
}

bool seg_layout_was_cut(struct seg *seg)
{
	bool cut;

	take_events(seg->store);
	pthread_mutex_lock(&seg->lock);
	cut = cuts_now(seg) != seg->noted_cuts;
	pthread_mutex_unlock(&seg->lock);
	return cut;
}

void seg_forget_layout(struct seg *seg)
{
	if (!mark(seg, FAN_MARK_REMOVE)) /* -1: there was no mark */
		take_events(seg->store);
}
