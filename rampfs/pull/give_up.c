/*
 * Pages that a program gives up before they have come (contrib/doc/design.md, "Page states and pulls").
 *
 * Happy path: pull_give_up marks the entry GIVEN_UP. Each thread gives its reads of it up and releases it, as
 * after the end of the source. Then the pages that have not come are LOST, or LOCAL and holes, beside the bytes;
 * and the pull ends as ever.
 *
 * How it fails: the mark is in memory. After a daemon's end the pages that were not decided are pulled again, until
 * the program's request comes again; those that were are never pulled.
 */
#include "give_up.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>

#include "base/log.h"

#define PIECE_PAGES ((UINT64_C(1) << 30) / RAMP_PAGE_BYTES) /* claimed at once */

/* Makes a run of pages holes: they may have been reserved, or have bytes of a pre-copy. */
static int punch(struct pulled *pulled, uint64_t first, uint64_t count)
{
	if (!fallocate(seg_fd(pulled->seg), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		       (off_t)(first * RAMP_PAGE_BYTES), (off_t)(count * RAMP_PAGE_BYTES)))
		return 0;
	return -errno;
}

static int make_zeros(struct pulled *pulled)
{
	uint64_t page = 0, won;
	int rc = 0;

	while (!rc && (page = pages_next_remote(pulled->seg, page)) != UINT64_MAX) {
		won = pages_claim(pulled->seg, page, PIECE_PAGES);
		rc = won ? punch(pulled, page, won) : 0;
		if (rc)
			pages_give_back(pulled->seg, page, won);
		else
			pages_arrive(pulled->seg, page, won);
		page += won;
	}
	return rc;
}

int give_up_decide(struct pulled *pulled)
{
	int rc = 0;

	if (atomic_load(&pulled->zeros))
		rc = make_zeros(pulled);
	else
		pages_lose_all(pulled->seg);
	pulled_check_end(pulled);
	pull_wake_pager(
		pulled->pull); /* page faults and requests that wait are of decided pages now */
	return rc;
}

/* The first call says what they become. */
static void mark(struct pulled *pulled, bool zeros)
{
	pthread_mutex_lock(&pulled->pull->lock);
	if (!pulled_is(pulled, PULLED_GIVEN_UP)) {
		atomic_store(&pulled->zeros, zeros);
		pulled_set(pulled, PULLED_GIVEN_UP);
	}
	pthread_mutex_unlock(&pulled->pull->lock);
	pull_wake_all(pulled->pull);
}

static int await_release(struct pulled *pulled)
{
	struct pull *pull = pulled->pull;

	pthread_mutex_lock(&pull->lock);
	while (!pulled_is_released(pulled) && !pulled_is(pulled, PULLED_FINISHED) &&
	       !atomic_load(&pull->stop))
		pthread_cond_wait(&pull->released, &pull->lock);
	pthread_mutex_unlock(&pull->lock);
	if (pulled_is(pulled, PULLED_ENDED))
		return -ENOENT;
	return pulled_is_released(pulled) || pulled_is(pulled, PULLED_FINISHED) ? 0 : -ESHUTDOWN;
}

int pull_give_up(struct pull *pull, struct seg *seg, bool zeros, uint64_t *count)
{
	struct pulled *pulled;
	uint64_t missing;
	int rc;

	*count = 0;
	if (pages_missing(seg) == pages_lost(seg))
		return 0;
	pulled = pulled_of(pull, seg);
	if (!pulled)
		return -EAGAIN;
	mark(pulled, zeros);
	rc = await_release(pulled);
	missing = pages_missing(seg) - pages_lost(seg);
	if (!rc)
		rc = give_up_decide(pulled);
	if (!rc)
		*count = missing;
	pulled_put(pulled);
	return rc;
}
