/*
 * Reads and writes of a file whose pages are being pulled, by read(2), write(2), truncate and punched
 * holes: the requests that mount/ parks until their pages are there.
 *
 * A read needs its pages LOCAL (pull_want). A write, a truncate or a punched hole replaces whole pages
 * without pulling them: it claims them (pull_cut_begin), changes the file, and makes them LOCAL
 * (pull_cut_end).
 */
#include "pull.h"

#include <errno.h>

#include "base/page.h"
#include "give_up.h"
#include "pull_core.h"
#include "pulled.h"

/* More than any write has. Pages beyond are of a hole or of an end that moves. */
#define WRITTEN_PAGES 1024u

static int ask_pager(struct pull *pull, struct seg *seg, uint64_t first, uint64_t count)
{
	const struct waitlist_entry entry = {.first = first, .count = count};
	struct pulled *pulled = pulled_of(pull, seg);
	uint64_t now = pull_now_ms(), since;
	int rc = -EAGAIN;

	if (!pulled)
		return -EAGAIN; /* it is about to begin */
	waitlist_add(&pulled->waitlist, &entry);
	pull_wake_pager(pull);
	since = pulled_silent_since(pulled); /* the pager's time: it may be after `now` */
	if (atomic_load(&pulled->no_room_ms) > now)
		rc = -ENOSPC;
	else if (since && now >= since + PULL_SILENT_MS && pulled_is_alive(pulled))
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
	return ask_pager(pull, seg, from, end - from);
}

/* True: no thread pulls it any more. A page that is not LOCAL is LOST, or claimed by a writer. */
static bool nothing_comes(struct pulled *pulled)
{
	return pulled_is(pulled, PULLED_FINISHED) ||
	       ((pulled_is(pulled, PULLED_SOURCE_OVER) || pulled_is(pulled, PULLED_GIVEN_UP)) &&
		pulled_is_released(pulled));
}

/* Gives back pages that were claimed and did not get their bytes. If no thread pulls the segment any
   more they were LOST, and are LOST again; or are what a program has given them up as. */
static void cut_give_back(struct pull *pull, struct seg *seg, uint64_t first, uint64_t count)
{
	struct pulled *pulled;

	pages_give_back(seg, first, count);
	pulled = pulled_of(pull, seg);
	if (pulled && pulled_is(pulled, PULLED_GIVEN_UP) && nothing_comes(pulled) &&
	    !pulled_is(pulled, PULLED_FINISHED))
		(void)give_up_decide(pulled);
	else if (pulled && nothing_comes(pulled))
		pages_lose_all(seg);
	if (pulled) {
		pulled_given_back(pulled);
		pull_wake_pager(pull); /* page faults may have found them claimed */
	}
	pulled_put(pulled);
}

/* Claims all pages that are not LOCAL. Where another one has claimed a page, all go back and are
   requested: beside a prefetch there would always be a page under way. */
static int cut_claim(struct pull *pull, struct seg *seg, uint64_t first, uint64_t end)
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
	if (pulled && rc) /* before others see the pages that go back */
		claim_request_make(&pulled->claim, first, end, pull_now_ms());
	else if (pulled)
		claim_request_end(&pulled->claim, first, end);
	/* Up to here every page that is IN_FLIGHT was claimed by us. */
	if (rc && from < page)
		cut_give_back(pull, seg, from, page - from);
	pulled_put(pulled);
	return rc;
}

static uint64_t end_of(uint64_t offset, uint64_t len)
{
	return len > UINT64_MAX - offset ? UINT64_MAX : offset + len;
}

int pull_cut_begin(struct pull *pull, struct seg *seg, uint64_t offset, uint64_t len)
{
	uint64_t end = end_of(offset, len), first = page_count(offset),
		 last = end / RAMP_PAGE_BYTES;
	int rc = 0;

	if (len == 0 || pages_missing(seg) == 0)
		return 0;
	if (offset % RAMP_PAGE_BYTES)
		rc = pull_want(pull, seg, offset / RAMP_PAGE_BYTES, 1);
	/* Nothing lies behind the end of the file, so a last page that is cut up to there is whole. */
	if (end % RAMP_PAGE_BYTES && end >= seg_size(seg))
		last++;
	else if (!rc && end % RAMP_PAGE_BYTES)
		rc = pull_want(pull, seg, last, 1);
	if (rc || last <= first)
		return rc;
	return cut_claim(pull, seg, first, last);
}

/*
 * The file's size may differ from the one that pull_cut_begin saw. So the last page is always taken
 * for a whole one: where it is not, it is LOCAL, and stays LOCAL.
 */
void pull_cut_end(struct pull *pull, struct seg *seg, uint64_t offset, uint64_t len, uint64_t done)
{
	uint64_t first = page_count(offset), last = page_count(end_of(offset, len)), right;
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
		cut_give_back(pull, seg, right, last - right);
	pulled = held ? held : pulled_of(pull, seg); /* one that has begun meanwhile */
	/* A program that got SIGBUS for one of them gets the page now. A hole has no page to give,
	   and stays SIGBUS until the end. */
	if (pulled && right > first && right - first <= WRITTEN_PAGES &&
	    right <= page_count(seg_size(seg)))
		programs_written(pull->config.programs, seg_id(seg), first, right - first);
	if (held)
		atomic_fetch_sub(&held->cuts, 1);
	if (!pulled)
		return;
	pulled_check_end(pulled);
	pull_wake_pager(pull); /* page faults that waited for these are in the waitlist */
	pulled_put(pulled);
}
