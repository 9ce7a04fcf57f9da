/*
 * Whole huge pages on their way into the store.
 *
 * Room that was taken with fallocate(2) is not cleared yet. A byte that lands in place makes the
 * kernel clear all of its huge page first, which costs a third of what receiving it does. A write
 * of the whole page at once needs no clearing: so the prefetch receives untouched huge pages into
 * buffers that stay in the cache, and stores each with one pwrite.
 *
 * How it fails: what has not been stored is given back with its read. Where there is no buffer, or
 * the page has been touched, the read lands in place. So it does where a program may keep the file's
 * lock (seg_handed), for which a pwrite would wait, and with it all that is prefetched here: recv(2)
 * into the mapping takes no such lock.
 */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pull_impl.h"

bool stage_untouched(struct pulled *pulled, uint64_t page)
{
	uint8_t there = 1;

	return !mincore(pulled->base + page * RAMP_PAGE_BYTES, RAMP_PAGE_BYTES, &there) &&
	       !(there & 1);
}

uint8_t *stage_take(struct puller *puller, struct pulled *pulled, uint64_t first, uint64_t count)
{
	unsigned slot;

	if (first % HUGE_PAGES || count != HUGE_PAGES || seg_handed(pulled->seg) ||
	    pages_unlisted(pulled->seg) || (first + count) * RAMP_PAGE_BYTES > pulled->mapped ||
	    (first + count) * RAMP_PAGE_BYTES > seg_size(pulled->seg) ||
	    !stage_untouched(pulled, first))
		return NULL;
	if (!puller->stages) {
		void *at = mmap(NULL, (size_t)STAGES * RAMP_HUGE_BYTES, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (at == MAP_FAILED)
			return NULL;
		puller->stages = at;
	}
	for (slot = 0; slot < STAGES; slot++)
		if (!(puller->stages_used >> slot & 1)) {
			puller->stages_used |= 1u << slot;
			return puller->stages + (size_t)slot * RAMP_HUGE_BYTES;
		}
	return NULL;
}

void stage_put(struct puller *puller, const uint8_t *stage)
{
	if (stage)
		puller->stages_used &=
			~(1u << (unsigned)((size_t)(stage - puller->stages) / RAMP_HUGE_BYTES));
}

void stage_forget(struct puller *puller)
{
	if (!puller->stages || puller->stages_used)
		return;
	munmap(puller->stages, (size_t)STAGES * RAMP_HUGE_BYTES);
	puller->stages = NULL;
}

static int store(const struct flight *flight)
{
	size_t len = (flight->next - flight->first) * RAMP_PAGE_BYTES, done = 0;

	while (done < len) {
		ssize_t n = pwrite(seg_fd(flight->pulled->seg), flight->stage + done, len - done,
				   (off_t)(flight->first * RAMP_PAGE_BYTES + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ENOSPC;
		done += (size_t)n;
	}
	return 0;
}

int stage_store(const struct flight *flight)
{
	struct seg *seg = flight->pulled->seg;
	int rc;

	if (!seg_direct_begin(seg))
		return -EBUSY;
	rc = store(flight);
	seg_direct_end(seg);
	return rc;
}
