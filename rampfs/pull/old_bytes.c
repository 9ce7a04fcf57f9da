/*
 * Clears pages that have bytes of before a pre-copy's last round.
 *
 * The kernel stores the zeros, by a read(2) into the mapping: where the file is cut meanwhile that is
 * EFAULT, and a store would be SIGBUS. It takes no lock that a program may keep (seg_handed_out).
 */
#include "old_bytes.h"

#include <errno.h>
#include <unistd.h>

#include "memory/find_data.h"

/* A part that has been cut (EFAULT) has no bytes. */
static void clear_run(int zeros, uint8_t *at, uint64_t len)
{
	while (len) {
		ssize_t n = read(zeros, at, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		at += n;
		len -= (uint64_t)n;
	}
}

void old_bytes_clear(struct pulled *pulled, uint64_t first, uint64_t count)
{
	uint64_t from = first * RAMP_PAGE_BYTES, to = from + count * RAMP_PAGE_BYTES;
	struct data_range run;

	if (!pages_old(pulled->seg))
		return;
	/* Pages behind the mapping came after the last round: it has no bytes of before. */
	to = to < pulled->mapped ? to : pulled->mapped;
	while (from < to) {
		if (find_data_run(pulled->seg, pulled->base, from, to, to - from, &run) < 0)
			run = (struct data_range){from, to - from};
		if (run.len)
			clear_run(pulled->pull->zeros, pulled->base + run.offset, run.len);
		from = run.offset + run.len;
	}
}
