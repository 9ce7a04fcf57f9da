/*
 * The page-state map: two bits a page, 32 pages a word, changed by compare-and-swap.
 *
 * Happy path: pages_prepare maps the words for all pages of the segment; marking sets bits while no
 * other thread looks. From TAKEN on, pullers claim runs and let them arrive, and readers ask.
 * `missing` counts the pages that are not LOCAL: while it is 0 no thread looks at the map at all.
 *
 * How it fails: a store through the mapping into a hole of a full tmpfs would be SIGBUS. So a word
 * is touched only if its page of the map is populated (a bit in `chunks`), and populating is done
 * by madvise(2), which fails with an error instead (EFAULT, returned as ENOSPC). A kill may leave
 * IN_FLIGHT pages, which pages_load makes REMOTE, and pages behind the end of a file that was just
 * truncated, which it makes LOCAL; the counts are counted again then. A late reader at a settle finds
 * zeros (LOCAL) at the same address.
 */
#include "pages.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/page.h"
#include "seg_core.h"

#define WORD_PAGES	  32u
#define CHUNK_BYTES	  4096u		    /* of the map: one page of tmpfs */
#define CHUNK_PAGES	  (4 * CHUNK_BYTES) /* of the segment */
#define PREPARE_ALL_BYTES (1u << 20)

#define EACH_PAIR UINT64_C(0x5555555555555555)

/* ---- words: a pair of bits a page, marked by its lower bit ----------------------------------- */

static uint64_t pairs_of(uint64_t word, enum page_state state)
{
	uint64_t differs = word ^ (EACH_PAIR * (uint64_t)state);

	return ~(differs | differs >> 1) & EACH_PAIR;
}

static uint64_t pairs_missing(uint64_t word)
{
	return (word | word >> 1) & EACH_PAIR;
}

/* Returns the pairs of pages [at, at + count) within a word. */
static uint64_t pairs_range(unsigned at, uint64_t count)
{
	uint64_t pairs = EACH_PAIR << (2 * at);

	if (count < WORD_PAGES - at)
		pairs &= (UINT64_C(1) << (2 * (at + count))) - 1;
	return pairs;
}

static uint64_t with_state(uint64_t word, uint64_t pairs, enum page_state to)
{
	return (word & ~(pairs * 3)) | pairs * (uint64_t)to;
}

/* ---- chunks: which pages of the map are populated -------------------------------------------- */

static size_t chunk_words(uint64_t map_pages)
{
	return (size_t)(map_pages / CHUNK_PAGES / 64 + 1);
}

static bool chunk_there(struct seg *seg, uint64_t page)
{
	uint64_t chunk = page / CHUNK_PAGES;

	return atomic_load_explicit(&seg->chunks[chunk / 64], memory_order_acquire) >>
		       (chunk % 64) &
	       1;
}

static uint64_t chunk_end(uint64_t page)
{
	return (page / CHUNK_PAGES + 1) * CHUNK_PAGES;
}

static void chunks_set(struct seg *seg, uint64_t first_chunk, uint64_t chunks)
{
	for (uint64_t c = first_chunk; c < first_chunk + chunks; c++)
		atomic_fetch_or(&seg->chunks[c / 64], UINT64_C(1) << (c % 64));
}

/* Takes the room of the map's part for [first, first + count), unless it has that: scattered pages are marked
   one by one while programs wait. */
static int populate(struct seg *seg, uint64_t first, uint64_t count, struct ramp_err *err)
{
	uint64_t from = first / CHUNK_PAGES, to = (first + count - 1) / CHUNK_PAGES + 1;
	uint8_t *map = (uint8_t *)(uintptr_t)seg->map;

	while (from < to && chunk_there(seg, from * CHUNK_PAGES))
		from++;
	if (from == to)
		return 0;
	if (madvise(map + from * CHUNK_BYTES, (to - from) * CHUNK_BYTES, MADV_POPULATE_WRITE))
		return ramp_err_set(err, errno == EFAULT ? ENOSPC : errno,
				    "no room in the store for the page states of segment %" PRIu64,
				    seg->id);
	chunks_set(seg, from, to - from);
	return 0;
}

/* ---- the map's life -------------------------------------------------------------------------- */

static uint64_t map_bytes_for(uint64_t pages)
{
	return (pages + CHUNK_PAGES - 1) / CHUNK_PAGES * CHUNK_BYTES;
}

void pages_free(struct seg *seg)
{
	if (seg->map)
		munmap((void *)(uintptr_t)seg->map, seg->map_bytes);
	free((void *)(uintptr_t)seg->chunks);
	seg->map = NULL;
	seg->chunks = NULL;
	atomic_store(&seg->map_pages, 0);
}

/* Maps the words of `pages` pages in place of the present map; the chunks keep their bits. Only while
   no other thread looks. */
static int map_words(struct seg *seg, int state_fd, uint64_t pages, struct ramp_err *err)
{
	size_t bytes = map_bytes_for(pages), words = chunk_words(pages);
	uint64_t *chunks = calloc(words, sizeof(*chunks));
	void *map;

	if (!chunks)
		return ramp_err_set(err, ENOMEM, "no memory for page states");
	map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, state_fd, STATE_HEADER_BYTES);
	if (map == MAP_FAILED) {
		free(chunks);
		return ramp_err_sys(err, errno, "mapping page states");
	}
	/* A huge page for a few marks would be 512 times what they need. */
	madvise(map, bytes, MADV_NOHUGEPAGE);
	if (seg->chunks)
		memcpy(chunks, (void *)(uintptr_t)seg->chunks,
		       chunk_words(atomic_load(&seg->map_pages)) * sizeof(*chunks));
	pages_free(seg);
	seg->map = map;
	seg->map_bytes = bytes;
	seg->chunks = (_Atomic uint64_t *)(uintptr_t)chunks;
	atomic_store(&seg->map_pages, pages);
	return 0;
}

static int open_state(struct seg *seg)
{
	char name[32];

	seg_state_name(seg->id, name);
	return openat(seg->store->dir_fd, name, O_RDWR | O_CLOEXEC);
}

int pages_prepare(struct seg *seg, uint64_t size_bytes, struct ramp_err *err)
{
	uint64_t pages = page_count(size_bytes);
	int fd, rc = 0;

	if (pages <= atomic_load(&seg->map_pages))
		return 0;
	fd = open_state(seg);
	if (fd < 0)
		return ramp_err_sys(err, errno, "page states of segment %" PRIu64, seg->id);
	if (ftruncate(fd, (off_t)(STATE_HEADER_BYTES + map_bytes_for(pages))))
		rc = ramp_err_sys(err, errno, "page states of segment %" PRIu64, seg->id);
	if (!rc)
		rc = map_words(seg, fd, pages, err);
	close(fd);
	if (!rc && seg->map_bytes <= PREPARE_ALL_BYTES)
		rc = populate(seg, 0, pages, err);
	if (!rc)
		atomic_store(&seg->state->map_pages, pages);
	return rc;
}

static uint64_t change(struct seg *seg, uint64_t first, uint64_t count, uint64_t from_states,
		       enum page_state to);

static void count_again(struct seg *seg)
{
	uint64_t missing = 0, lost = 0, word;

	for (uint64_t page = 0; page < seg->map_pages;) {
		if (!chunk_there(seg, page)) {
			page = chunk_end(page);
			continue;
		}
		word = atomic_load(&seg->map[page / WORD_PAGES]);
		missing += (uint64_t)__builtin_popcountll(pairs_missing(word));
		lost += (uint64_t)__builtin_popcountll(pairs_of(word, PAGE_LOST));
		page += WORD_PAGES;
	}
	atomic_store(&seg->missing, missing);
	atomic_store(&seg->lost, lost);
}

/*
 * Makes pages behind the end LOCAL. A truncate that a kill interrupted has cut the file, and its
 * pages still count as missing. If they were pulled they would have no place in
 * the file, and pages that the file gets there later must be zeros.
 */
static int forget_behind_end(struct seg *seg, uint64_t pages, struct ramp_err *err)
{
	uint64_t first;
	struct stat st;

	if (seg->fd < 0) /* its data file is not there: it is damaged */
		return 0;
	if (fstat(seg->fd, &st))
		return ramp_err_sys(err, errno, "its file");
	first = page_count((uint64_t)st.st_size);
	if (first < pages)
		change(seg, first, pages - first,
		       1u << PAGE_REMOTE | 1u << PAGE_IN_FLIGHT | 1u << PAGE_LOST, PAGE_LOCAL);
	return 0;
}

int pages_load(struct seg *seg, int state_fd, struct ramp_err *err)
{
	uint64_t pages = atomic_load(&seg->state->map_pages);
	struct stat st;
	off_t at = STATE_HEADER_BYTES, end = 0;
	int rc;

	if (fstat(state_fd, &st))
		return ramp_err_sys(err, errno, "page states");
	if (pages == 0)
		return st.st_size > STATE_HEADER_BYTES && ftruncate(state_fd, STATE_HEADER_BYTES)
			       ? ramp_err_sys(err, errno, "page states")
			       : 0;
	if (pages > UINT64_MAX / RAMP_PAGE_BYTES ||
	    (uint64_t)st.st_size < STATE_HEADER_BYTES + map_bytes_for(pages))
		return ramp_err_set(err, EUCLEAN, "the page-state map is shorter than it says");
	rc = map_words(seg, state_fd, pages, err);
	if (rc)
		return rc;
	while ((at = lseek(state_fd, at, SEEK_DATA)) >= 0) {
		end = lseek(state_fd, at, SEEK_HOLE);
		if (end < 0)
			break;
		if (end > (off_t)(STATE_HEADER_BYTES + map_bytes_for(pages)))
			end = (off_t)(STATE_HEADER_BYTES + map_bytes_for(pages));
		if (end <= at)
			break;
		chunks_set(seg, (uint64_t)at / CHUNK_BYTES - 1,
			   (uint64_t)(end - at + CHUNK_BYTES - 1) / CHUNK_BYTES);
		at = end;
	}
	/* Parts that were skipped count as LOCAL, so the search must have reached the end. */
	if ((at < 0 || end < 0) && errno != ENXIO)
		return ramp_err_sys(err, errno, "page states");
	/* Beyond the map every page is LOCAL, for any bits of its last word. */
	if (pages % WORD_PAGES && chunk_there(seg, pages - 1))
		atomic_fetch_and(&seg->map[pages / WORD_PAGES],
				 pairs_range(0, pages % WORD_PAGES) * 3);
	rc = forget_behind_end(seg, pages, err);
	if (rc)
		return rc;
	change(seg, 0, pages, 1u << PAGE_IN_FLIGHT, PAGE_REMOTE);
	count_again(seg);
	/* The earlier daemon was killed after OWNED, before it dropped the map. */
	if (seg->record.kind == RECORD_OWNED)
		pages_settle(seg);
	return 0;
}

void pages_settle(struct seg *seg)
{
	void *map = (void *)(uintptr_t)seg->map;
	int fd;

	if (!map || pages_missing(seg))
		return;
	/* From here on a restart finds no map. */
	if (atomic_exchange(&seg->state->map_pages, 0) == 0)
		return;
	/* Zeros at the same address, in one step: a reader that saw pages missing may be about to
	   look. */
	if (mmap(map, seg->map_bytes, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED)
		return;
	atomic_store(&seg->state->unlisted, 0);
	atomic_store(&seg->state->old, 0);
	fd = open_state(seg);
	/* If this fails, the room comes back at the next start or with the segment. */
	if (fd < 0 || ftruncate(fd, STATE_HEADER_BYTES))
		log_warn("segment %" PRIu64 ": the memory of its page states is not freed yet: %s",
			 seg->id, strerror(errno));
	if (fd >= 0)
		close(fd);
}

/* ---- changes --------------------------------------------------------------------------------- */

/*
 * The door of every change except a claim: pages of [first, first + count) that are in one of
 * from_states (bits by state) become `to`; returns how many. Release, so that a thread that sees the
 * state sees the bytes written before; the caller updates the counts.
 */
static uint64_t change(struct seg *seg, uint64_t first, uint64_t count, uint64_t from_states,
		       enum page_state to)
{
	uint64_t map_pages = atomic_load(&seg->map_pages), changed = 0, end;

	if (first >= map_pages)
		return 0;
	end = count > map_pages - first ? map_pages : first + count;
	for (uint64_t page = first; page < end;) {
		_Atomic uint64_t *at = &seg->map[page / WORD_PAGES];
		unsigned in_word = (unsigned)(page % WORD_PAGES);
		uint64_t range = pairs_range(in_word, end - page), old, pairs;

		if (!chunk_there(seg, page)) {
			page = chunk_end(page);
			continue;
		}
		old = atomic_load(at);
		do {
			pairs = 0;
			for (unsigned s = 0; s < 4; s++)
				if (from_states >> s & 1)
					pairs |= pairs_of(old, (enum page_state)s) & range;
		} while (pairs &&
			 !atomic_compare_exchange_weak(at, &old, with_state(old, pairs, to)));
		changed += (uint64_t)__builtin_popcountll(pairs);
		page += WORD_PAGES - in_word;
	}
	return changed;
}

int pages_mark_remote(struct seg *seg, uint64_t first, uint64_t count, struct ramp_err *err)
{
	uint64_t map_pages = atomic_load(&seg->map_pages), marked;
	int rc;

	if (first >= map_pages || count == 0)
		return 0;
	if (count > map_pages - first)
		count = map_pages - first;
	rc = populate(seg, first, count, err);
	if (rc)
		return rc;
	marked = change(seg, first, count, 1u << PAGE_LOCAL, PAGE_REMOTE);
	atomic_fetch_add(&seg->missing, marked);
	return 0;
}

int pages_mark_all_remote(struct seg *seg, struct ramp_err *err)
{
	atomic_store(&seg->state->unlisted, 1);
	return pages_mark_remote(seg, 0, UINT64_MAX, err);
}

void pages_note_old(struct seg *seg)
{
	atomic_store(&seg->state->old, 1);
}

bool pages_old(struct seg *seg)
{
	return atomic_load(&seg->state->old);
}

bool pages_unlisted(struct seg *seg)
{
	return atomic_load(&seg->state->unlisted);
}

/* Makes the longest prefix of [first, first + max) that is REMOTE (or LOST, if lost_too) IN_FLIGHT;
   *lost: how many of them were LOST. */
static uint64_t claim(struct seg *seg, uint64_t first, uint64_t max, bool lost_too, uint64_t *lost)
{
	uint64_t map_pages = atomic_load(&seg->map_pages), page = first, end;

	*lost = 0;
	if (first >= map_pages)
		return 0;
	end = max > map_pages - first ? map_pages : first + max;
	while (page < end && chunk_there(seg, page)) {
		_Atomic uint64_t *at = &seg->map[page / WORD_PAGES];
		unsigned in_word = (unsigned)(page % WORD_PAGES);
		uint64_t range = pairs_range(in_word, end - page), old, match, barrier;

		old = atomic_load(at);
		do {
			match = pairs_of(old, PAGE_REMOTE);
			if (lost_too)
				match |= pairs_of(old, PAGE_LOST);
			barrier = range & ~match;
			/* Only pages before the first page that does not match. */
			match &= range;
			if (barrier)
				match &= (barrier & (0 - barrier)) - 1;
		} while (match && !atomic_compare_exchange_weak(
					  at, &old, with_state(old, match, PAGE_IN_FLIGHT)));
		*lost += (uint64_t)__builtin_popcountll(pairs_of(old, PAGE_LOST) & match);
		page += (uint64_t)__builtin_popcountll(match);
		if (barrier)
			break;
	}
	return page - first;
}

uint64_t pages_claim(struct seg *seg, uint64_t first, uint64_t max)
{
	uint64_t lost;

	return claim(seg, first, max, false, &lost);
}

uint64_t pages_claim_cut(struct seg *seg, uint64_t first, uint64_t max)
{
	uint64_t lost, claimed = claim(seg, first, max, true, &lost);

	atomic_fetch_sub(&seg->lost, lost);
	return claimed;
}

void pages_arrive(struct seg *seg, uint64_t first, uint64_t count)
{
	uint64_t arrived = change(seg, first, count, 1u << PAGE_IN_FLIGHT, PAGE_LOCAL);

	atomic_fetch_sub(&seg->missing, arrived);
	seg_tell(seg);
}

void pages_give_back(struct seg *seg, uint64_t first, uint64_t count)
{
	change(seg, first, count, 1u << PAGE_IN_FLIGHT, PAGE_REMOTE);
}

static uint64_t lose(struct seg *seg, uint64_t first, uint64_t count, unsigned from)
{
	uint64_t lost = change(seg, first, count, from, PAGE_LOST);

	atomic_fetch_add(&seg->lost, lost);
	seg_tell(seg);
	return lost;
}

uint64_t pages_lose(struct seg *seg, uint64_t first, uint64_t count)
{
	return lose(seg, first, count, 1u << PAGE_REMOTE | 1u << PAGE_IN_FLIGHT);
}

uint64_t pages_lose_all(struct seg *seg)
{
	return lose(seg, 0, UINT64_MAX, 1u << PAGE_REMOTE);
}

/* ---- questions ------------------------------------------------------------------------------- */

uint64_t pages_missing(struct seg *seg)
{
	return atomic_load_explicit(&seg->missing, memory_order_acquire);
}

uint64_t pages_lost(struct seg *seg)
{
	return atomic_load(&seg->lost);
}

enum page_state pages_get(struct seg *seg, uint64_t page)
{
	if (pages_missing(seg) == 0 || page >= atomic_load(&seg->map_pages) ||
	    !chunk_there(seg, page))
		return PAGE_LOCAL;
	return (enum page_state)(
		atomic_load_explicit(&seg->map[page / WORD_PAGES], memory_order_acquire) >>
			(2 * (page % WORD_PAGES)) &
		3);
}

uint64_t pages_run(struct seg *seg, uint64_t first, uint64_t max, enum page_state *state)
{
	uint64_t map_pages = atomic_load(&seg->map_pages), page = first, differs;
	uint64_t end = max > UINT64_MAX - first ? UINT64_MAX : first + max;

	*state = pages_get(seg, first);
	if (*state == PAGE_LOCAL && pages_missing(seg) == 0)
		return end - first;
	while (page < end) {
		if (page >= map_pages) {
			page = *state == PAGE_LOCAL ? end : page;
			break;
		}
		if (!chunk_there(seg, page)) {
			if (*state != PAGE_LOCAL)
				break;
			page = chunk_end(page);
			continue;
		}
		differs = ~pairs_of(atomic_load_explicit(&seg->map[page / WORD_PAGES],
							 memory_order_acquire),
				    *state) &
			  pairs_range((unsigned)(page % WORD_PAGES), WORD_PAGES);
		if (differs) {
			page += (uint64_t)__builtin_ctzll(differs) / 2 - page % WORD_PAGES;
			break;
		}
		page += WORD_PAGES - page % WORD_PAGES;
	}
	/* The first page may have changed since its state was read. */
	if (page == first)
		page++;
	return (page < end ? page : end) - first;
}

/* Returns the first REMOTE page of [from, end), or, with any_missing, the first that is not LOCAL; it
   may also be one beyond `end`. UINT64_MAX: none. */
static uint64_t next(struct seg *seg, uint64_t from, uint64_t end, bool any_missing)
{
	uint64_t map_pages = atomic_load(&seg->map_pages), word, found;

	if (pages_missing(seg) == 0)
		return UINT64_MAX;
	if (end > map_pages)
		end = map_pages;
	for (uint64_t page = from; page < end;) {
		if (!chunk_there(seg, page)) {
			page = chunk_end(page);
			continue;
		}
		word = atomic_load_explicit(&seg->map[page / WORD_PAGES], memory_order_acquire);
		found = (any_missing ? pairs_missing(word) : pairs_of(word, PAGE_REMOTE)) &
			pairs_range((unsigned)(page % WORD_PAGES), WORD_PAGES);
		if (found)
			return page - page % WORD_PAGES + (uint64_t)__builtin_ctzll(found) / 2;
		page += WORD_PAGES - page % WORD_PAGES;
	}
	return UINT64_MAX;
}

bool pages_local(struct seg *seg, uint64_t first, uint64_t count)
{
	uint64_t end = count > UINT64_MAX - first ? UINT64_MAX : first + count;

	return next(seg, first, end, true) >= end;
}

uint64_t pages_next_remote(struct seg *seg, uint64_t from)
{
	return next(seg, from, UINT64_MAX, false);
}

uint64_t pages_next_missing(struct seg *seg, uint64_t from)
{
	return next(seg, from, UINT64_MAX, true);
}
