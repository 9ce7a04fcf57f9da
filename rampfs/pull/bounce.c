/*
 * Whole huge pages on their way into the store.
 *
 * Room that was taken with fallocate(2) is not cleared yet. A byte that lands in place makes the
 * kernel clear all of its huge page first, which costs a third of the time to receive the page. A
 * write of the whole page at once needs no clearing. So the prefetch receives untouched huge pages
 * into buffers that stay in the cache, and stores each with one pwrite.
 *
 * How it fails: pages that have not been stored are given back with their read. Where there is no
 * buffer, or the page has been touched, the read lands in place. So does a read of a file whose lock
 * a program may keep (seg_handed_out): a pwrite would wait for that lock, and with it all that is
 * prefetched here, but recv(2) into the mapping takes no such lock.
 */
#include "bounce.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define BOUNCE_BUFFERS 4u

bool bounce_is_untouched(struct pulled *pulled, uint64_t page)
{
	uint8_t there = 1;

	return !mincore(pulled->base + page * RAMP_PAGE_BYTES, RAMP_PAGE_BYTES, &there) &&
	       !(there & 1);
}

uint8_t *bounce_take(struct bounce *bounce, struct pulled *pulled, uint64_t first, uint64_t count)
{
	unsigned slot;

	if (first % HUGE_PAGES || count != HUGE_PAGES || seg_handed_out(pulled->seg) ||
	    pages_unlisted(pulled->seg) || (first + count) * RAMP_PAGE_BYTES > pulled->mapped ||
	    (first + count) * RAMP_PAGE_BYTES > seg_size(pulled->seg) ||
	    !bounce_is_untouched(pulled, first))
		return NULL;
	if (!bounce->buffers) {
		void *at = mmap(NULL, (size_t)BOUNCE_BUFFERS * RAMP_HUGE_BYTES,
				PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (at == MAP_FAILED)
			return NULL;
		bounce->buffers = at;
	}
	for (slot = 0; slot < BOUNCE_BUFFERS; slot++)
		if (!(bounce->used >> slot & 1)) {
			bounce->used |= 1u << slot;
			return bounce->buffers + (size_t)slot * RAMP_HUGE_BYTES;
		}
	return NULL;
}

void bounce_put(struct bounce *bounce, const uint8_t *buffer)
{
	if (buffer)
		bounce->used &=
			~(1u << (unsigned)((size_t)(buffer - bounce->buffers) / RAMP_HUGE_BYTES));
}

void bounce_trim(struct bounce *bounce)
{
	if (!bounce->buffers || bounce->used)
		return;
	munmap(bounce->buffers, (size_t)BOUNCE_BUFFERS * RAMP_HUGE_BYTES);
	bounce->buffers = NULL;
}

static int bounce_write(int fd, const uint8_t *buffer, size_t len, off_t offset)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pwrite(fd, buffer + done, len - done, offset + (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ENOSPC;
		done += (size_t)n;
	}
	return 0;
}

int bounce_store(struct pulled *pulled, const uint8_t *buffer, uint64_t first, uint64_t count)
{
	struct seg *seg = pulled->seg;
	int rc;

	if (!seg_direct_begin(seg))
		return -EBUSY;
	rc = bounce_write(seg_fd(seg), buffer, count * RAMP_PAGE_BYTES,
			  (off_t)(first * RAMP_PAGE_BYTES));
	seg_direct_end(seg);
	return rc;
}
