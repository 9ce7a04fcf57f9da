/*
 * Reads and writes of a file whose pages are being pulled: for parked requests.
 */
#include <errno.h>

#include "pull_impl.h"

/* More than any write; what is beyond is a hole or an end that moves. */
#define WRITTEN_PAGES 1024u

static int ask(struct pull *pull, struct seg *seg, uint64_t first, uint64_t count)
{
	const struct want want = {.first = first, .count = count};
	struct pulled *pulled = pulled_of(pull, seg);
	uint64_t now = pull_now_ms(), since;
	int rc = -EAGAIN;

	if (!pulled)
		return -EAGAIN; /* it is about to begin */
	pulled_want(pulled, &want);
	puller_wake(&pull->pager);
	since = pulled_silent_since(pulled); /* by the puller's clock: it may be after `now` */
	if (atomic_load(&pulled->no_room_ms) > now)
		rc = -ENOSPC;
	else if (since && now >= since + SILENT_MS && pulled_alive(pulled))
		rc = -EHOSTDOWN;
	pulled_put(pulled);
	return rc;
}

int pull_want(struct pull *pull, struct seg *seg, uint64_t first, uint64_t count)
{
	uint64_t end = count > UINT64_MAX - first ? UINT64_MAX : first + count;
	uint64_t page = pages_next_missing(seg, first), from = page;
	enum page_state state;

	if (page >= end)
		return 0;
	while (page < end) {
		uint64_t run = pages_run(seg, page, end - page, &state);

		if (state == PAGE_LOST)
			return -EIO;
		page = pages_next_missing(seg, page + run);
	}
	return ask(pull, seg, from, end - from);
}

/* Nobody pulls it any more: what is not LOCAL is LOST, or a writer's. */
static bool is_decided(struct pulled *pulled)
{
	return atomic_load(&pulled->told) ||
	       (atomic_load(&pulled->over) && atomic_load(&pulled->released) == PULLER_BOTH);
}

/* What was claimed and did not become right; of pages that nobody pulls any more, what was lost is
   lost again. */
static void give_back(struct pull *pull, struct seg *seg, uint64_t first, uint64_t count)
{
	struct pulled *pulled;

	pages_give_back(seg, first, count);
	pulled = pulled_of(pull, seg);
	if (pulled && is_decided(pulled))
		pages_lose_all(seg);
	if (pulled) {
		pulled_again(pulled);
		puller_wake(&pull->pager); /* page faults may have found them claimed */
	}
	pulled_put(pulled);
}

/* Claims all that is not LOCAL; where a page is another's, everything goes back, and is wished for:
   beside a prefetch there would always be one. */
static int claim_all(struct pull *pull, struct seg *seg, uint64_t first, uint64_t end)
{
	struct pulled *pulled = pulled_of(pull, seg);
	uint64_t page = first, from = end, won;
	int rc = 0;

	while (!rc && (page = pages_next_missing(seg, page)) < end) {
		won = pages_claim_cut(seg, page, end - page);
		if (won == 0 && pages_get(seg, page) != PAGE_LOCAL)
			rc = -EAGAIN;
		else if (won && from == end)
			from = page;
		page += won;
	}
	if (pulled && rc)
		wish_for(pulled, first, end); /* before others see what goes back */
	else if (pulled)
		wish_fulfilled(pulled, first, end);
	/* Up to here every page that is IN_FLIGHT was claimed by us. */
	if (rc && from < page)
		give_back(pull, seg, from, page - from);
	pulled_put(pulled);
	return rc;
}

static uint64_t page_up(uint64_t offset)
{
	return offset / RAMP_PAGE_BYTES + (offset % RAMP_PAGE_BYTES != 0);
}

static uint64_t end_of(uint64_t offset, uint64_t len)
{
	return len > UINT64_MAX - offset ? UINT64_MAX : offset + len;
}

int pull_cut_begin(struct pull *pull, struct seg *seg, uint64_t offset, uint64_t len)
{
	uint64_t end = end_of(offset, len), first = page_up(offset), last = end / RAMP_PAGE_BYTES;
	int rc = 0;

	if (len == 0 || pages_missing(seg) == 0)
		return 0;
	if (offset % RAMP_PAGE_BYTES)
		rc = pull_want(pull, seg, offset / RAMP_PAGE_BYTES, 1);
	/* Nothing lies behind the end of the file: a last page that is cut up to there is whole. */
	if (end % RAMP_PAGE_BYTES && end >= seg_size(seg))
		last++;
	else if (!rc && end % RAMP_PAGE_BYTES)
		rc = pull_want(pull, seg, last, 1);
	if (rc || last <= first)
		return rc;
	return claim_all(pull, seg, first, last);
}

/*
 * The file's size may be another than at the beginning. So the last page is always seen as a whole
 * one: where it was not, it is LOCAL, and stays that.
 */
void pull_cut_end(struct pull *pull, struct seg *seg, uint64_t offset, uint64_t len, uint64_t done)
{
	uint64_t first = page_up(offset), last = page_up(end_of(offset, len)), right;
	struct pulled *pulled, *held;

	if (len == 0 || pages_missing(seg) == 0 || last <= first)
		return;
	right = done >= len ? last : end_of(offset, done) / RAMP_PAGE_BYTES;
	if (right < first)
		right = first;
	held = pulled_of(pull, seg);
	if (held)
		atomic_fetch_add(&held->cuts, 1);
	pages_arrive(seg, first, right - first);
	if (right < last)
		give_back(pull, seg, right, last - right);
	pulled = held ? held : pulled_of(pull, seg); /* one that has begun meanwhile */
	/* Who was told SIGBUS of one gets it now. A hole has no page to give, and
	   stays SIGBUS until the end. */
	if (pulled && right > first && right - first <= WRITTEN_PAGES &&
	    right <= page_up(seg_size(seg)))
		programs_written(pull->config.programs, seg_id(seg), first, right - first);
	if (held)
		atomic_fetch_sub(&held->cuts, 1);
	if (!pulled)
		return;
	pulled_look(pulled);
	puller_wake(&pull->pager); /* page faults that waited for these are among its wants */
	pulled_put(pulled);
}
