/*
 * Room for records in a full store.
 *
 * Happy path: a file of the store holds SPARE_BYTES. A segment that is made while there is no room
 * takes the page of its ID.state from it, so that a full store takes an empty file, as any
 * filesystem does. With the next segment that is made while there is room the spare is filled again.
 *
 * How it fails: the page that is given back is for any thread, and a program's store may take it
 * before the record does: then the next one is given, until the spare is used up.
 */
#include "spare.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "seg_core.h"

#define FILE_NAME "spare"

void spare_fill(struct store *store)
{
	if (store->spare_fd < 0 || store->spare_bytes == SPARE_BYTES)
		return;
	/* All of it or nothing: tmpfs gives back a part. */
	if (fallocate(store->spare_fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)SPARE_BYTES) == 0)
		store->spare_bytes = SPARE_BYTES;
}

bool spare_give(struct store *store)
{
	if (store->spare_fd < 0 || store->spare_bytes < STATE_HEADER_BYTES)
		return false;
	if (fallocate(store->spare_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      (off_t)(store->spare_bytes - STATE_HEADER_BYTES), STATE_HEADER_BYTES))
		return false;
	store->spare_bytes -= STATE_HEADER_BYTES;
	return true;
}

void spare_open(struct store *store)
{
	struct stat st;

	store->spare_fd = openat(store->dir_fd, FILE_NAME, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (store->spare_fd < 0 || fstat(store->spare_fd, &st)) {
		log_warn("%s/" FILE_NAME ": %s; a full store takes no file", store->path,
			 strerror(errno));
		spare_close(store);
		return;
	}
	/* Given from its end: the rest is one piece. */
	store->spare_bytes = (uint64_t)st.st_blocks * 512;
	spare_fill(store);
}

void spare_close(struct store *store)
{
	if (store->spare_fd >= 0)
		close(store->spare_fd);
	store->spare_fd = -1;
}
