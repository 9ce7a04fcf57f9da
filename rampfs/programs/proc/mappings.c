/*
 * Mappings of the store's files in one process, as /proc shows them: which file, where, and with
 * which access.
 *
 * A mapping is known by the device and the name of its file: only this daemon makes files in the
 * store. `4711` is a segment. `gone.4711.w (deleted)` is the empty file that an agent has put in
 * place of a segment, for an attachment that could write (`.r`: that could not). The name and the
 * access of the file description come from /proc/PID/map_files, the rest from PROCMAP_QUERY
 * (kernel.h).
 *
 * A process is looked into through a thread that lives: if its main thread has ended, that shows as
 * a zombie without memory, while the other threads can still write.
 *
 * How it fails: a process that ends meanwhile maps nothing (-ESRCH). A mapping that changes between
 * the query and the look at its name is asked for again; if it changes every time, the result is
 * -EBUSY: it must not be taken for no mapping.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/kernel.h"
#include "found.h"
#include "mappings.h"
#include "process.h"

#define PROC_PATH  64
#define KNOW_TRIES 100 /* tries for a mapping that changes all the time */

static int open_in(pid_t tid, const char *name, int flags)
{
	char path[PROC_PATH];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)tid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC | flags);
	return fd < 0 ? -errno : fd;
}

static int open_files(struct mappings *mappings, pid_t tid)
{
	int rc;

	mappings->pagemap = open_in(tid, "pagemap", 0);
	if (mappings->pagemap < 0)
		return mappings->pagemap;
	mappings->map_files = open_in(tid, "map_files", O_DIRECTORY);
	if (mappings->map_files < 0)
		return mappings->map_files;
	rc = kernel_maps_open(&mappings->maps, tid);
	mappings->maps_open = !rc;
	return rc;
}

void mappings_init(struct mappings *mappings, dev_t store_dev)
{
	*mappings = (struct mappings){.store_dev = store_dev, .pagemap = -1, .map_files = -1};
	pthread_mutex_init(&mappings->lock, NULL);
}

int mappings_open(struct mappings *mappings, pid_t pid, uint32_t agent_tid)
{
	pid_t tid = process_tid(pid, agent_tid);
	int rc;

	mappings->pid = pid;
	mappings->agent_tid = agent_tid;
	rc = open_files(mappings, tid ? tid : pid);
	/* It is still a thread of that process, and not a later thread of another process with
	   the same number. */
	if (!rc && tid && process_tid(pid, agent_tid) != tid)
		rc = -ESRCH;
	return rc == -ENOENT ? -ESRCH : rc;
}

void mappings_take(struct mappings *mappings, int maps_fd)
{
	mappings->maps = (struct kernel_maps){.fd = maps_fd};
	mappings->maps_open = maps_fd >= 0;
}

void mappings_close(struct mappings *mappings)
{
	if (mappings->pagemap >= 0)
		close(mappings->pagemap);
	if (mappings->map_files >= 0)
		close(mappings->map_files);
	if (mappings->maps_open)
		kernel_maps_close(&mappings->maps);
	pthread_mutex_destroy(&mappings->lock);
}

/* Only the text of /proc/PID/maps has to be read by one thread at a time. Without a text no
   thread waits here for another that waits in the process. */
static void enter_maps(struct mappings *mappings)
{
	if (mappings->maps.text)
		pthread_mutex_lock(&mappings->lock);
}

static void leave_maps(struct mappings *mappings)
{
	if (mappings->maps.text)
		pthread_mutex_unlock(&mappings->lock);
}

static uint32_t prot_of(uint32_t flags)
{
	return (flags & KERNEL_VMA_READ ? 1u : 0) | (flags & KERNEL_VMA_WRITE ? 2u : 0) |
	       (flags & KERNEL_VMA_EXEC ? 4u : 0);
}

/* Mounts a new instance of /proc, which has cached nothing yet. Returns its descriptor; -errno. */
static int fresh_proc(void)
{
	int fs = fsopen("proc", FSOPEN_CLOEXEC), fd;

	if (fs < 0)
		return -errno;
	fd = fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) ? -1
							      : fsmount(fs, FSMOUNT_CLOEXEC, 0);
	if (fd < 0)
		fd = -errno;
	close(fs);
	return fd;
}

/*
 * Returns 1: the mapping's file description is writable; 0: it is not; -errno: the mapping has
 * changed since it was asked for, or this can't be told.
 *
 * The kernel caches the mode of a map_files entry: as long as anything is mapped in exactly that
 * range, it keeps the mode of the first mapping there. So a writable mapping in the place of a
 * read-only one looks read-only for ever. Shared mappings of agents are always writable, so a
 * shared one that looks read-only is looked at through a fresh /proc (*fresh: that, or -1; the
 * caller closes it). If a mapping were wrongly taken for unwritable, it would come back private
 * from its next move, and its stores would be lost.
 */
static int is_writable(struct mappings *mappings, const struct kernel_vma *vma, mode_t mode,
		       const char *range, int *fresh)
{
	char path[PROC_PATH];
	struct stat st;

	if (!(vma->flags & KERNEL_VMA_SHARED))
		return 0;
	if (mode & S_IWUSR)
		return 1;
	if (*fresh < 0)
		*fresh = fresh_proc();
	if (*fresh < 0)
		return *fresh;
	snprintf(path, sizeof(path), "%d/map_files/%s", (int)mappings->pid, range);
	if (fstatat(*fresh, path, &st, AT_SYMLINK_NOFOLLOW)) {
		/* The main thread may have ended, and the agent's not. */
		snprintf(path, sizeof(path), "%d/map_files/%s",
			 (int)process_tid(mappings->pid, mappings->agent_tid), range);
		if (fstatat(*fresh, path, &st, AT_SYMLINK_NOFOLLOW))
			return -errno;
	}
	return (st.st_mode & S_IWUSR) != 0;
}

static int read_name(int dir, const char *path, char target[4096], struct stat *st)
{
	ssize_t n = readlinkat(dir, path, target, 4095);

	if (n <= 0 || fstatat(dir, path, st, AT_SYMLINK_NOFOLLOW))
		return -ENOENT;
	target[n] = 0;
	return 0;
}

/* Fills in *m. Returns 1; 0: it is not a segment's mapping; -errno: it has changed since the
   query. */
static int know_file(struct mappings *mappings, const struct kernel_vma *vma,
		     struct proc_mapping *m, int *fresh)
{
	char path[PROC_PATH], target[4096];
	const char *name, *range;
	char *end;
	struct stat st;
	int writable;

	snprintf(path, sizeof(path), "/proc/%d/map_files/%llx-%llx", (int)mappings->pid,
		 (unsigned long long)vma->start, (unsigned long long)vma->end);
	range = strrchr(path, '/') + 1;
	if (!mappings->pid) {
		/* No process is known whose map_files could show it, and this mapping is never
		   put back. */
		if (kernel_maps_name(&mappings->maps, vma->start, target, sizeof(target)))
			return -ENOENT;
		st.st_mode = S_IWUSR;
	} else if (read_name(mappings->map_files, range, target, &st) &&
		   read_name(AT_FDCWD, path, target, &st)) {
		/* It was visible neither through the agent's thread, which may have ended, nor
		   through the main thread. */
		return -ENOENT;
	}
	name = strrchr(target, '/');
	name = name ? name + 1 : target;
	m->gone = strncmp(name, "gone.", 5) == 0;
	if (m->gone)
		name += 5;
	if (!isdigit((unsigned char)*name))
		return 0;
	m->id = strtoull(name, &end, 10);
	if (m->gone) {
		m->writable = end[0] == '.' && end[1] == 'w';
		return end[0] == '.';
	}
	if (*end && *end != ' ')
		return 0;
	writable = is_writable(mappings, vma, st.st_mode, range, fresh);
	m->writable = writable > 0;
	return writable < 0 ? writable : 1;
}

int mappings_each(struct mappings *mappings, uint64_t lo, uint64_t hi, proc_mapping_fn *fn,
		  void *arg)
{
	dev_t dev = mappings->store_dev;
	struct kernel_vma vma;
	uint64_t seen = 0;
	int rc = 0, tries = 0, known, fresh = -1;

	enter_maps(mappings);
	while (!rc && lo < hi) {
		struct proc_mapping m = {0};

		rc = kernel_maps_next(&mappings->maps, lo, hi, &vma);
		if (rc <= 0)
			break;
		known = 0;
		if (makedev(vma.dev_major, vma.dev_minor) == dev)
			known = know_file(mappings, &vma, &m, &fresh);
		rc = known < 0 && ++tries == KNOW_TRIES ? -EBUSY : 0;
		if (known < 0)
			continue;
		tries = 0;
		/* A mapping may have become larger since its first part was seen. */
		m.start = vma.start > seen ? vma.start : seen;
		m.end = lo = seen = vma.end;
		if (!known)
			continue;
		m.offset = vma.offset + (m.start - vma.start);
		m.prot = prot_of(vma.flags);
		rc = fn(arg, &m);
	}
	leave_maps(mappings);
	if (fresh >= 0)
		close(fresh);
	return rc;
}

int mappings_copied(struct mappings *mappings, uint64_t start, uint64_t end, bool swapped)
{
	struct kernel_page_kind own = {
		.none = KERNEL_PAGE_FILE,
		.any = KERNEL_PAGE_PRESENT | (swapped ? KERNEL_PAGE_SWAPPED : 0),
	};

	return kernel_pagemap_find(mappings->pagemap, start, end, own, NULL);
}

int mappings_poisoned(struct mappings *mappings, uint64_t start, uint64_t end, uint64_t *at)
{
	/* The store's pages are never swapped out. A marker of write protection is not WRITTEN. */
	struct kernel_page_kind marked = {.all = KERNEL_PAGE_SWAPPED | KERNEL_PAGE_WRITTEN};

	return kernel_pagemap_find(mappings->pagemap, start, end, marked, at);
}

static bool is_covered(const struct kernel_vma *vma, const struct address_range *ranges, size_t n)
{
	uint64_t at = vma->start;

	for (size_t i = 0; i < n && at < vma->end; i++)
		if (ranges[i].start <= at && ranges[i].end > at)
			at = ranges[i].end;
	return at >= vma->end;
}

int mappings_clear(struct mappings *mappings, uint64_t lo, uint64_t hi, uint64_t ino,
		   const struct revoked_ranges *known)
{
	const struct kernel_page_kind present = {.all = KERNEL_PAGE_PRESENT};
	dev_t dev = mappings->store_dev;
	struct kernel_vma vma;
	int rc;

	enter_maps(mappings);
	for (;;) {
		rc = kernel_maps_next(&mappings->maps, lo, hi, &vma);
		if (rc <= 0)
			break;
		lo = vma.end;
		if (vma.inode != ino || makedev(vma.dev_major, vma.dev_minor) != dev)
			continue;
		rc = is_covered(&vma, known->covered, known->n_covered)
			     ? kernel_pagemap_find(mappings->pagemap, vma.start, vma.end, present,
						   NULL)
			     : !is_covered(&vma, known->away, known->n_away);
		if (rc)
			break;
	}
	leave_maps(mappings);
	return rc > 0 ? -EBUSY : rc == -ESRCH ? 0 : rc;
}

int mappings_files(struct mappings *mappings, struct found_list *found)
{
	dev_t dev = mappings->store_dev;
	struct kernel_vma vma;
	uint64_t at = 0;
	int rc;

	enter_maps(mappings);
	while ((rc = kernel_maps_next(&mappings->maps, at, UINT64_MAX, &vma)) > 0) {
		at = vma.end;
		if (makedev(vma.dev_major, vma.dev_minor) != dev)
			continue;
		rc = found_note(found, mappings->pid, vma.inode, vma.start, vma.end);
		if (rc)
			break;
	}
	leave_maps(mappings);
	return rc == -ESRCH ? 0 : rc;
}

int mappings_count(struct mappings *mappings, uint64_t lo, uint64_t hi, int most)
{
	struct kernel_vma vma = {.end = lo};
	int n = 0, rc = 1;

	enter_maps(mappings);
	while (n < most && (rc = kernel_maps_next(&mappings->maps, vma.end, hi, &vma)) > 0)
		n++;
	leave_maps(mappings);
	return rc < 0 ? rc : n;
}

int mappings_foreign(struct mappings *mappings, uint64_t addr, struct address_range *range)
{
	struct kernel_vma vma = {0};
	int rc;

	enter_maps(mappings);
	rc = kernel_maps_next(&mappings->maps, addr, addr + 1, &vma);
	leave_maps(mappings);
	*range = (struct address_range){vma.start, vma.end};
	return rc > 0 ? makedev(vma.dev_major, vma.dev_minor) != mappings->store_dev : rc;
}

int mappings_gap(struct mappings *mappings, uint64_t at, uint64_t end, struct address_range *gap)
{
	struct kernel_vma vma = {0};
	int rc = 0;

	enter_maps(mappings);
	while (at < end && (rc = kernel_maps_next_any(&mappings->maps, at, end, &vma)) > 0 &&
	       vma.start <= at)
		at = vma.end;
	leave_maps(mappings);
	*gap = (struct address_range){at, rc > 0 ? vma.start : end};
	return rc < 0 ? rc : at < end;
}
