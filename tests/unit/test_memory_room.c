/*
 * Reservation: a promise that is kept, holes that stay holes, huge pages where they are worth it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/kernel.h"
#include "lock_keeper.h"
#include "memory_fixture.h"

#define PAGE UINT64_C(4096)
#define MIB  (UINT64_C(1) << 20)

static struct store *store;
static struct ramp_err err;

static struct seg *fresh(enum record_kind kind)
{
	struct seg *seg;

	memory_fresh(MEMORY_CAPACITY);
	store = memory_open();
	ck_assert_int_eq(store_create(store, MEMORY_ID, kind, 1, &seg, &err), 0);
	return seg;
}

static void done(struct seg *seg)
{
	seg_put(seg);
	store_close(store);
}

static void write_small(struct seg *seg, uint64_t page)
{
	memory_small_page(seg, (uint8_t)(page + 1), page);
}

/* A file that is full to its end is taken at once, and no page too many; one that is not, page by page. */
START_TEST(a_small_file_that_is_full_is_taken_without_being_cleared)
{
	const struct data_range full = {0, MIB + 3 * PAGE}, part = {0, MIB};
	struct seg *seg = fresh(RECORD_NONE);
	uint8_t there = 0, *base;
	struct stat st;

	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(reserve_memory(seg, full.len - 5, i ? &part : &full, 1, 0, &err),
				 0);
		ck_assert_int_eq(fstat(seg_fd(seg), &st), 0);
		ck_assert_uint_eq((uint64_t)st.st_blocks * 512, i ? part.len : full.len);
		base = mmap(NULL, MIB, PROT_READ, MAP_SHARED, seg_fd(seg), 0);
		ck_assert_ptr_ne(base, MAP_FAILED);
		ck_assert_int_eq(mincore(base, PAGE, &there), 0);
		ck_assert_int_eq(there & 1, i);
		munmap(base, MIB);
	}
	done(seg);
}
END_TEST

START_TEST(populated_ranges_are_listed_and_joined_over_small_gaps)
{
	struct data_range ranges[16];
	uint64_t bytes;
	uint32_t count;
	struct seg *seg = fresh(RECORD_OWNED);

	ck_assert_int_eq(populated_list(seg, ranges, 16, &count, &bytes, &err), 0);
	ck_assert_uint_eq(count, 0);
	ck_assert_uint_eq(bytes, 0);
	/* gaps of 1, 9, 2 and 99 pages */
	write_small(seg, 0);
	write_small(seg, 2);
	write_small(seg, 12);
	write_small(seg, 15);
	write_small(seg, 115);
	ck_assert_int_eq(ftruncate(seg_fd(seg), 115 * PAGE + 100), 0);
	ck_assert_int_eq(populated_list(seg, ranges, 16, &count, &bytes, &err), 0);
	ck_assert_uint_eq(count, 5);
	ck_assert_uint_eq(ranges[1].offset, 2 * PAGE);
	ck_assert_uint_eq(ranges[4].offset, 115 * PAGE);
	ck_assert_uint_eq(ranges[4].len, PAGE);
	ck_assert_uint_eq(bytes, 5 * PAGE);

	ck_assert_int_eq(populated_list(seg, ranges, 3, &count, &bytes, &err), 0);
	ck_assert_uint_eq(count, 3);
	ck_assert_uint_eq(ranges[0].offset, 0);
	ck_assert_uint_eq(ranges[0].len, 3 * PAGE);
	ck_assert_uint_eq(ranges[1].offset, 12 * PAGE);
	ck_assert_uint_eq(ranges[1].len, 4 * PAGE);
	ck_assert_uint_eq(ranges[2].offset, 115 * PAGE);

	ck_assert_int_eq(populated_list(seg, ranges, 1, &count, &bytes, &err), 0);
	ck_assert_uint_eq(count, 1);
	ck_assert_uint_eq(ranges[0].offset, 0);
	ck_assert_uint_eq(ranges[0].len, 116 * PAGE);
	done(seg);
}
END_TEST

/* Data that a list does not name, between its ranges and behind them. */
START_TEST(what_came_after_the_list_is_counted)
{
	struct data_range ranges[8];
	uint64_t bytes;
	uint32_t count;
	struct seg *seg = fresh(RECORD_OWNED);

	for (uint64_t page = 0; page < 40; page += 10)
		write_small(seg, page);
	ck_assert_int_eq(populated_list(seg, ranges, 8, &count, &bytes, &err), 0);
	ck_assert_int_eq(populated_unlisted(seg, ranges, count, 0, &bytes, &err), 0);
	ck_assert_uint_eq(bytes, 0);
	for (uint64_t page = 9; page < 14; page++)
		write_small(seg, page);
	write_small(seg, 50);
	ck_assert_int_eq(populated_unlisted(seg, ranges, count, UINT64_MAX, &bytes, &err), 0);
	ck_assert_uint_eq(bytes, 5 * PAGE);
	ck_assert_int_eq(populated_unlisted(seg, ranges, count, 0, &bytes, &err), 0);
	ck_assert_uint_eq(bytes, PAGE);
	ck_assert_int_eq(populated_unlisted(seg, ranges, 0, UINT64_MAX, &bytes, &err), 0);
	ck_assert_uint_eq(bytes, 9 * PAGE);
	done(seg);
}
END_TEST

/* Also a page that a writer has claimed, which may fail. */
START_TEST(a_list_is_not_true_of_lost_pages)
{
	struct data_range ranges[2];
	uint64_t bytes, grown;
	uint32_t count;
	struct seg *seg = fresh(RECORD_NONE);

	ck_assert_int_eq(reserve_memory(seg, 4 * PAGE, NULL, 0, 0, &err), 0);
	ck_assert_int_eq(pages_prepare(seg, 4 * PAGE, &err), 0);
	ck_assert_int_eq(pages_mark_remote(seg, 1, 1, &err), 0);
	ck_assert_uint_eq(pages_lose(seg, 1, 1), 1);
	for (int i = 0; i < 2; i++) {
		seg_note_layout(seg);
		ck_assert_int_eq(populated_list(seg, ranges, 2, &count, &bytes, &err), 0);
		ck_assert(seg_layout_changed(seg, &grown));
		ck_assert_uint_eq(pages_claim_cut(seg, 1, 1), i == 0);
	}
	pages_arrive(seg, 1, 1);
	seg_note_layout(seg);
	ck_assert_int_eq(populated_list(seg, ranges, 2, &count, &bytes, &err), 0);
	ck_assert(!seg_layout_changed(seg, &grown));
	done(seg);
}
END_TEST

/* khugepaged takes blocks, and gives them back if it can't collapse: a count that includes some of
   those is noted, and later stores could make it true. */
START_TEST(a_list_is_not_true_of_other_blocks_than_were_noted)
{
	struct data_range ranges[2];
	uint64_t bytes;
	uint32_t count;
	struct seg *seg = fresh(RECORD_OWNED);

	seg_note_layout(seg);
	write_small(seg, 0);
	ck_assert_int_eq(populated_list(seg, ranges, 2, &count, &bytes, &err), 0);
	ck_assert(!seg_layout_is_noted(seg, bytes));
	seg_note_layout(seg);
	ck_assert_int_eq(populated_list(seg, ranges, 2, &count, &bytes, &err), 0);
	ck_assert(seg_layout_is_noted(seg, bytes));
	ck_assert(!seg_layout_was_cut(seg));
	done(seg);
}
END_TEST

START_TEST(many_scattered_pages_fit_a_short_list)
{
	struct data_range ranges[8];
	uint64_t bytes;
	uint32_t count;
	struct seg *seg = fresh(RECORD_OWNED);

	for (uint64_t page = 0; page < 3000; page += 3)
		write_small(seg, page);
	ck_assert_int_eq(populated_list(seg, ranges, 8, &count, &bytes, &err), 0);
	ck_assert_uint_ge(count, 1);
	ck_assert_uint_le(count, 8);
	/* nothing populated is outside */
	for (uint64_t page = 0; page < 3000; page += 3) {
		bool inside = false;

		for (uint32_t i = 0; i < count; i++)
			inside |= ranges[i].offset <= page * PAGE &&
				  page * PAGE < ranges[i].offset + ranges[i].len;
		ck_assert(inside);
	}
	done(seg);
}
END_TEST

START_TEST(reserved_room_is_taken_and_holes_stay_holes)
{
	const struct data_range ranges[] = {
		{0, 4 * MIB},		     /* two huge pages */
		{6 * MIB + 5 * PAGE, PAGE},  /* a small one */
		{8 * MIB, MIB},		     /* half of a block: small */
		{40 * MIB - PAGE, 2 * PAGE}, /* the file ends in the second */
	};
	struct seg *seg = fresh(RECORD_NONE);
	uint64_t size = 40 * MIB + 100;

	ck_assert_int_eq(reserve_memory(seg, size, ranges, 4, 3 * MIB, &err), 0);
	ck_assert_uint_eq(seg_size(seg), size);
	ck_assert_uint_eq(memory_blocks_bytes(seg), 4 * MIB + PAGE + MIB + 2 * PAGE);
	done(seg);
}
END_TEST

START_TEST(huge_blocks_are_taken_where_they_are_wanted)
{
	const struct data_range ranges[] = {
		{2 * MIB, 36 * MIB}, {40 * MIB, 4 * MIB}, /* more than one call takes; a hole */
		{44 * MIB, PAGE},    {46 * MIB, 2 * MIB}, /* a small one in between */
		{50 * MIB, 2 * MIB},
	};
	struct seg *seg = fresh(RECORD_NONE);

	ck_assert_int_eq(reserve_memory(seg, 64 * MIB, ranges, 5, 0, &err), 0);
	ck_assert_uint_eq(memory_blocks_bytes(seg), 44 * MIB + PAGE);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(fallocate(seg_fd(seg), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					   (off_t)ranges[i].offset, (off_t)ranges[i].len),
				 0);
	ck_assert_uint_eq(memory_blocks_bytes(seg), 0);
	done(seg);
}
END_TEST

static uint64_t free_bytes(void)
{
	struct store_space space;

	store_space(store, &space);
	return space.free_bytes;
}

START_TEST(slack_is_held_until_it_is_released)
{
	const struct data_range range = {0, MIB};
	struct seg *seg = fresh(RECORD_NONE);
	uint64_t before = free_bytes();

	ck_assert_int_eq(reserve_memory(seg, MIB, &range, 1, 8 * MIB, &err), 0);
	ck_assert_uint_eq(before - free_bytes(), 9 * MIB);
	/* again, with another list: nothing is left of the first */
	ck_assert_int_eq(reserve_memory(seg, MIB, &range, 1, 4 * MIB, &err), 0);
	ck_assert_uint_eq(before - free_bytes(), 5 * MIB);
	reserve_release_slack(seg);
	reserve_release_slack(seg);
	ck_assert_uint_eq(before - free_bytes(), MIB);
	ck_assert_int_eq(reserve_memory(seg, MIB, &range, 1, 4 * MIB, &err), 0);
	ck_assert_int_eq(store_remove(seg, false, &err), 0);
	done(seg);
	store = memory_open();
	ck_assert_uint_eq(free_bytes(), before + PAGE); /* its ID.state went, too */
	store_close(store);
}
END_TEST

START_TEST(a_promise_that_cannot_be_kept_is_not_made)
{
	const struct data_range large = {0, 80 * MIB}, fits = {0, 40 * MIB};
	const struct data_range crossed[] = {{MIB, MIB}, {0, MIB}};
	struct seg *seg = fresh(RECORD_NONE);
	uint64_t before = free_bytes();

	ck_assert_int_eq(reserve_memory(seg, 80 * MIB, &large, 1, 0, &err), -ENOSPC);
	ck_assert_uint_eq(free_bytes(), before);
	ck_assert_int_eq(reserve_memory(seg, 40 * MIB, &fits, 1, 30 * MIB, &err), -ENOSPC);
	ck_assert_uint_eq(free_bytes(), before);
	ck_assert_uint_eq(seg_size(seg), 0);
	ck_assert_int_eq(reserve_memory(seg, MIB, crossed, 2, 0, &err), -EINVAL);
	ck_assert_int_eq(reserve_memory(seg, 40 * MIB, &fits, 1, 0, &err), 0);
	done(seg);
}
END_TEST

/* Returns how much of the file is mapped by huge pages in this process. */
static uint64_t huge_bytes(struct seg *seg)
{
	uint64_t len, found = 0, kib;
	char line[256];
	uint8_t *base;
	FILE *smaps;

	ck_assert_int_eq(seg_map(seg, &base, &len, &err), 0);
	madvise(base, len, MADV_DONTNEED);
	for (uint64_t at = 0; at < len; at += 2 * MIB)
		(void)*(volatile uint8_t *)(base + at);
	smaps = fopen("/proc/self/smaps", "re");
	ck_assert_ptr_nonnull(smaps);
	while (fgets(line, sizeof(line), smaps))
		if (sscanf(line, "ShmemPmdMapped: %lu kB", &kib) == 1)
			found += kib * 1024;
	fclose(smaps);
	seg_unmap(seg);
	return found;
}

static unsigned collapses_asked, populates_asked; /* since the test began */

int __real_madvise(void *addr, size_t len, int advice);
int __wrap_madvise(void *addr, size_t len, int advice);

int __wrap_madvise(void *addr, size_t len, int advice)
{
	collapses_asked += advice == MADV_COLLAPSE;
	populates_asked += advice == MADV_POPULATE_WRITE;
	return __real_madvise(addr, len, advice);
}

START_TEST(room_of_page_states_is_taken_once)
{
	const uint64_t pages = 40000; /* three pages of the map */
	struct seg *seg = fresh(RECORD_NONE);

	ck_assert_int_eq(reserve_memory(seg, PAGE, NULL, 0, 0, &err), 0);
	ck_assert_int_eq(pages_prepare(seg, pages * PAGE, &err), 0);
	ck_assert_uint_ge(populates_asked, 1);
	populates_asked = 0;
	for (uint64_t page = 0; page < pages; page += 100)
		ck_assert_int_eq(pages_mark_remote(seg, page, 1, &err), 0);
	ck_assert_uint_eq(pages_missing(seg), pages / 100);
	ck_assert_uint_eq(populates_asked, 0);
	done(seg);
}
END_TEST

/*
 * khugepaged also collapses blocks that any process has mapped, and fills their holes, shortly after
 * the first mapping if it has nothing else to do: until the last step it skips this process.
 */
START_TEST(full_blocks_are_collapsed_and_scattered_ones_are_not)
{
	struct seg *seg = fresh(RECORD_OWNED);
	atomic_bool stop = true; /* the caller does not want to wait any more */
	uint64_t taken;

	ck_assert_int_eq(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
	/* small pages throughout: the file grows page by page */
	for (uint64_t page = 0; page < 512; page++)
		write_small(seg, page);
	for (uint64_t page = 512; page < 1024; page += 2)
		write_small(seg, page);
	write_small(seg, 1024);
	taken = memory_blocks_bytes(seg);
	ck_assert_uint_eq(taken, (512 + 256 + 1) * PAGE);

	collapse_segment(seg, &stop, NULL, NULL);
	ck_assert_uint_eq(collapses_asked, 0);
	atomic_store(&stop, false);
	seg_set_leaving(seg, true);
	collapse_segment(seg, &stop, NULL, NULL);
	ck_assert_uint_eq(collapses_asked, 0);
	seg_set_leaving(seg, false);
	collapse_segment(seg, &stop, NULL, NULL);
	ck_assert_uint_eq(collapses_asked, 1);
	ck_assert_uint_eq(memory_blocks_bytes(seg), taken);

	ck_assert_int_eq(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0), 0);
	/* again if the kernel had no huge page just then */
	for (int tries = 50; huge_bytes(seg) < 2 * MIB && tries; tries--) {
		collapse_segment(seg, &stop, NULL, NULL);
		usleep(1000);
	}
	ck_assert_uint_ge(huge_bytes(seg), 2 * MIB);
	done(seg);
}
END_TEST

/* A program asks at once for the collapse that khugepaged does now and then; and asks again if the
   kernel had no huge page just then. */
static bool collapses(uint8_t *at)
{
	int tries = 50;

	while (madvise(at, 2 * MIB, MADV_COLLAPSE) && --tries)
		usleep(10000);
	return tries;
}

START_TEST(what_the_daemon_maps_keeps_its_holes)
{
	struct seg *seg = fresh(RECORD_OWNED);
	uint8_t *base, *program;
	uint64_t len;

	write_small(seg, 0);
	ck_assert_int_eq(ftruncate(seg_fd(seg), 4 * MIB), 0);
	ck_assert_int_eq(seg_map(seg, &base, &len, &err), 0);
	program = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, seg_fd(seg), 0);
	ck_assert(program != MAP_FAILED && (uintptr_t)program % (2 * MIB) == 0);
	ck_assert_int_eq(madvise(program, 2 * MIB, MADV_COLLAPSE), -1);
	ck_assert_uint_eq(memory_blocks_bytes(seg), PAGE);

	/* one that is full has none */
	for (uint64_t page = 1; page < 512; page++)
		program[page * PAGE] = (uint8_t)page;
	ck_assert(collapses(program));
	for (uint64_t page = 1; page < 512; page++)
		ck_assert_uint_eq(base[page * PAGE], (uint8_t)page);

	seg_unmap(seg);
	program[2 * MIB] = 1;
	ck_assert(collapses(program + 2 * MIB));
	ck_assert_uint_eq(memory_blocks_bytes(seg), 4 * MIB);
	munmap(program, 4 * MIB);
	done(seg);
}
END_TEST

/* The guard is a mapping, too, by which nothing may become huge. */
START_TEST(what_is_to_be_small_is_not_collapsed_by_the_daemons_mappings)
{
	struct seg *seg = fresh(RECORD_OWNED);
	uint64_t len, mappings = 0;
	char line[512], name[64];
	unsigned long from, to;
	uint8_t *base;
	FILE *maps;

	if (_i)
		seg_set_small(seg, true);
	for (uint64_t page = 0; page < 512; page++)
		write_small(seg, page);
	ck_assert_int_eq(seg_map(seg, &base, &len, &err), 0);
	seg_set_small(seg, true);
	snprintf(name, sizeof(name), "/store/%lu\n", MEMORY_ID);
	maps = fopen("/proc/self/maps", "re");
	ck_assert_ptr_nonnull(maps);
	while (fgets(line, sizeof(line), maps)) {
		if (!strstr(line, name) || sscanf(line, "%lx-%lx", &from, &to) != 2)
			continue;
		mappings++;
		ck_assert_uint_eq(from % (2 * MIB), 0);
		ck_assert_int_eq(madvise((void *)from, 2 * MIB, MADV_COLLAPSE), -1);
	}
	fclose(maps);
	ck_assert_uint_eq(mappings, 2);
	seg_unmap(seg);
	done(seg);
}
END_TEST

START_TEST(data_and_holes_are_the_sources)
{
	struct record taken = {.kind = RECORD_TAKEN, .epoch = 2, .peer = 2, .peer_inc = 5};
	const struct data_range range = {10 * PAGE, 20 * PAGE};
	struct seg *seg = fresh(RECORD_NONE);

	ck_assert_int_eq(reserve_memory(seg, 100 * PAGE - 5, &range, 1, 0, &err), 0);
	ck_assert_int_eq(pages_prepare(seg, 100 * PAGE - 5, &err), 0);
	ck_assert_int_eq(pages_mark_remote(seg, 10, 20, &err), 0);
	ck_assert_int_eq(record_change(seg, &taken, &err), 0);

	ck_assert_int_eq(populated_seek_data(seg, 0), 10 * (int64_t)PAGE);
	ck_assert_int_eq(populated_seek_data(seg, 12 * PAGE + 7), 12 * (int64_t)PAGE + 7);
	ck_assert_int_eq(populated_seek_data(seg, 30 * PAGE), -ENXIO);
	ck_assert_int_eq(populated_seek_hole(seg, 0), 0);
	ck_assert_int_eq(populated_seek_hole(seg, 10 * PAGE), 30 * (int64_t)PAGE);
	ck_assert_int_eq(populated_seek_hole(seg, 40 * PAGE + 3), 40 * (int64_t)PAGE + 3);
	ck_assert_int_eq(populated_seek_hole(seg, 100 * PAGE), -ENXIO);

	/* half of it arrives, data is written behind it, and before it a page stays */
	ck_assert_uint_eq(pages_claim(seg, 10, 10), 10);
	memory_fill(seg, 1, 10 * PAGE, 10 * PAGE);
	pages_arrive(seg, 10, 10);
	memory_small_page(seg, 1, 30);
	memory_small_page(seg, 1, 99);
	ck_assert_int_eq(ftruncate(seg_fd(seg), 100 * PAGE - 5), 0);
	ck_assert_int_eq(populated_seek_data(seg, 0), 10 * (int64_t)PAGE);
	ck_assert_int_eq(populated_seek_hole(seg, 10 * PAGE), 31 * (int64_t)PAGE);
	ck_assert_int_eq(populated_seek_hole(seg, 25 * PAGE), 31 * (int64_t)PAGE);
	ck_assert_int_eq(populated_seek_data(seg, 31 * PAGE), 99 * (int64_t)PAGE);
	ck_assert_int_eq(populated_seek_hole(seg, 99 * PAGE), 100 * (int64_t)PAGE - 5);
	done(seg);
}
END_TEST

/* A page arrives while a thread asks where the file has data: right after the answer. */
static struct seg *arriving;
static uint64_t arriving_page;

off_t __real_lseek(int fd, off_t offset, int whence);
off_t __wrap_lseek(int fd, off_t offset, int whence);

off_t __wrap_lseek(int fd, off_t offset, int whence)
{
	off_t told = __real_lseek(fd, offset, whence);
	struct seg *seg = arriving;

	if (seg && fd == seg_fd(seg)) {
		arriving = NULL;
		ck_assert_uint_eq(pages_claim(seg, arriving_page, 1), 1);
		memory_small_page(seg, 1, arriving_page);
		pages_arrive(seg, arriving_page, 1);
	}
	return told;
}

START_TEST(what_arrives_meanwhile_is_data)
{
	struct record taken = {.kind = RECORD_TAKEN, .epoch = 2, .peer = 2, .peer_inc = 5};
	struct seg *seg = fresh(RECORD_NONE);

	ck_assert_int_eq(reserve_memory(seg, 100 * PAGE, NULL, 0, 0, &err), 0);
	ck_assert_int_eq(pages_prepare(seg, 100 * PAGE, &err), 0);
	ck_assert_int_eq(pages_mark_remote(seg, 20, 1, &err), 0);
	ck_assert_int_eq(pages_mark_remote(seg, 65, 1, &err), 0);
	ck_assert_int_eq(record_change(seg, &taken, &err), 0);
	for (uint64_t page = 60; page < 70; page++)
		if (page != 65)
			memory_small_page(seg, 1, page);

	arriving_page = 20;
	arriving = seg;
	ck_assert_int_eq(populated_seek_data(seg, 3 * PAGE), 20 * (int64_t)PAGE);
	arriving_page = 65;
	arriving = seg;
	ck_assert_int_eq(populated_seek_hole(seg, 60 * PAGE), 70 * (int64_t)PAGE);
	ck_assert_uint_eq(pages_missing(seg), 0);
	done(seg);
}
END_TEST

/* ---- a program holds the file's lock ---- */

#define LAYOUT_BYTES (UINT64_C(768) << 20)
#define RUNS	     40

static uint64_t random_below(unsigned *seed, uint64_t below)
{
	return ((uint64_t)rand_r(seed) << 24 ^ (uint64_t)rand_r(seed)) % below;
}

/* Stored, written, reserved and cut here and there, far apart and side by side. Page 0 is data. */
static void scatter(struct seg *seg, unsigned seed)
{
	uint64_t pages = LAYOUT_BYTES / PAGE - random_below(&seed, 3000), first, count;
	int fd = seg_fd(seg);

	ck_assert_int_eq(ftruncate(fd, (off_t)(pages * PAGE - random_below(&seed, PAGE))), 0);
	memory_small_page(seg, 1, 0);
	if (seed % 2) /* the last one is rarely whole */
		ck_assert_int_eq(pwrite(fd, "x", 1, (off_t)(seg_size(seg) - 1)), 1);
	for (int i = 0; i < RUNS; i++) {
		first = random_below(&seed, i % 2 ? pages - 600 : 4000) + 1;
		count = 1 + random_below(&seed, i % 8 ? 40 : 599);
		switch (random_below(&seed, 4)) {
		case 0:
			memory_fill(seg, 1, first * PAGE, PAGE);
			break;
		case 1:
			ck_assert_int_eq(fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)(first * PAGE),
						   (off_t)(count * PAGE)),
					 0);
			break;
		case 2:
			ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
						   (off_t)(first * PAGE), (off_t)(count * PAGE)),
					 0);
			break;
		default:
			for (uint64_t page = first; page < first + count; page++)
				memory_small_page(seg, 1, page);
		}
	}
}

/* A walk by find_data_run, its pieces put together. */
static uint32_t look_at_all(struct seg *seg, struct data_range *ranges, uint32_t max)
{
	struct data_range run, *last = NULL;
	uint64_t len, at = 0, enough;
	unsigned seed = 1;
	int goes_on = 0, went_on;
	uint32_t n = 0;
	uint8_t *base;

	ck_assert_int_eq(seg_map(seg, &base, &len, &err), 0);
	while (at < len) {
		enough = random_below(&seed, 900) * PAGE + 1;
		went_on = goes_on;
		goes_on = find_data_run(seg, base, at, len, enough, &run);
		ck_assert(goes_on == 0 || (goes_on == 1 && run.len));
		ck_assert_uint_ge(run.offset, at);
		ck_assert_uint_gt(run.offset + run.len, at);
		at = run.offset + run.len;
		ck_assert_uint_le(at, len);
		if (run.len && last && last->offset + last->len == run.offset) {
			ck_assert(went_on);
			last->len += run.len;
		} else if (run.len) {
			ck_assert_uint_lt(n, max);
			last = &ranges[n++];
			*last = run;
		}
	}
	seg_unmap(seg);
	return n;
}

/* All that lseek(2) reported before, while a program holds the lock that it would wait for. */
START_TEST(what_is_populated_is_found_without_the_files_lock)
{
	struct data_range before[2 * RUNS], after[2 * RUNS];
	uint64_t bytes_before, bytes_after, unlisted_before, unlisted_after;
	uint32_t n_before, n_after;
	struct lock_keeper keeper;
	struct seg *seg = fresh(RECORD_OWNED);
	atomic_bool stop = false;

	ck_assert_int_eq(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
	scatter(seg, (unsigned)_i);
	ck_assert_int_eq(populated_list(seg, before, 2 * RUNS, &n_before, &bytes_before, &err), 0);
	ck_assert_int_eq(populated_unlisted(seg, before + 1, n_before / 2, UINT64_MAX,
					    &unlisted_before, &err),
			 0);
	lock_keep(&keeper, seg, 0);
	ck_assert_int_eq(populated_list(seg, after, 2 * RUNS, &n_after, &bytes_after, &err), 0);
	ck_assert_uint_eq(n_after, n_before);
	ck_assert_mem_eq(after, before, n_before * sizeof(before[0]));
	ck_assert_uint_eq(bytes_after, bytes_before);
	ck_assert_int_eq(populated_unlisted(seg, before + 1, n_before / 2, UINT64_MAX,
					    &unlisted_after, &err),
			 0);
	ck_assert_uint_eq(unlisted_after, unlisted_before);
	ck_assert_uint_eq(look_at_all(seg, after, 2 * RUNS), n_before);
	ck_assert_mem_eq(after, before, n_before * sizeof(before[0]));
	collapse_segment(seg, &stop, NULL, NULL);
	lock_let_go(&keeper);
	done(seg);
}
END_TEST

/* By a program that has such a descriptor. */
START_TEST(a_file_that_is_cut_while_it_is_looked_at_has_nothing_there)
{
	struct data_range run;
	uint64_t len;
	uint8_t *base;
	struct seg *seg = fresh(RECORD_OWNED);
	int fd;

	for (uint64_t page = 0; page < 100; page++)
		write_small(seg, page);
	ck_assert_int_eq(seg_map(seg, &base, &len, &err), 0);
	fd = seg_hand_out(seg, O_RDWR);
	ck_assert_int_eq(find_data_run(seg, base, 50 * PAGE, 100 * PAGE, UINT64_MAX, &run), 0);
	ck_assert_uint_eq(run.len, 50 * PAGE);
	ck_assert_int_eq(ftruncate(fd, 60 * PAGE), 0);
	ck_assert_int_eq(find_data_run(seg, base, 50 * PAGE, 100 * PAGE, UINT64_MAX, &run), 0);
	ck_assert_uint_eq(run.offset, 50 * PAGE);
	ck_assert_uint_eq(run.len, 10 * PAGE);
	ck_assert_int_eq(find_data_run(seg, base, 60 * PAGE, 100 * PAGE, UINT64_MAX, &run), 0);
	ck_assert_uint_eq(run.offset, 100 * PAGE);
	ck_assert_uint_eq(run.len, 0);
	ck_assert_int_eq(ftruncate(fd, 0), 0);
	ck_assert_int_eq(find_data_run(seg, base, 0, 100 * PAGE, UINT64_MAX, &run), 0);
	ck_assert_uint_eq(run.len, 0);
	close(fd);
	seg_unmap(seg);
	done(seg);
}
END_TEST

/* No thread waits for it under the segment's lock either. */
START_TEST(room_is_not_given_back_where_that_could_wait)
{
	const struct data_range range = {0, MIB};
	struct record taken = {.kind = RECORD_TAKEN, .epoch = 2, .peer = 2, .peer_inc = 5};
	struct seg *seg = fresh(RECORD_NONE);
	struct lock_keeper keeper;

	ck_assert_int_eq(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
	ck_assert_int_eq(reserve_memory(seg, MIB, &range, 1, MIB, &err), 0);
	ck_assert_int_eq(pages_prepare(seg, MIB, &err), 0);
	ck_assert_int_eq(pages_mark_all_remote(seg, &err), 0);
	ck_assert_int_eq(record_change(seg, &taken, &err), 0);
	ck_assert_uint_eq(pages_claim(seg, 0, 16), 16);
	reserve_give_back(seg, 0, 8);
	ck_assert_uint_eq(memory_blocks_bytes(seg), MIB - 8 * PAGE);
	lock_keep(&keeper, seg, 128);
	reserve_give_back(seg, 8, 8);
	ck_assert_uint_eq(memory_blocks_bytes(seg), MIB - 8 * PAGE);
	ck_assert(reserve_use_slack(seg));
	lock_let_go(&keeper);
	done(seg);
}
END_TEST

START_TEST(memory_that_goes_is_worth_a_wait)
{
	struct seg *seg = fresh(RECORD_OWNED), *other, *full;
	struct store_space space;

	ck_assert_int_eq(store_create(store, MEMORY_ID + 1, RECORD_OWNED, 1, &other, &err), 0);
	ck_assert_int_eq(store_create(store, MEMORY_ID + 2, RECORD_OWNED, 1, &full, &err), 0);
	seg_freeing(other);
	memory_fill(seg, 1, 0, 3 * MIB);
	memory_fill(full, 1, 0, 30 * MIB);
	ck_assert(!store_awaits_memory(store, 0)); /* nothing is in it */

	/* a sixteenth is 4 MiB */
	seg_freeing(seg);
	seg_freeing(seg);
	ck_assert(!store_awaits_memory(store, 0));
	memory_fill(other, 1, 0, 3 * MIB);
	seg_freeing(other);
	ck_assert(store_awaits_memory(store, 0));
	ck_assert(store_awaits_memory(store, 999));
	ck_assert(!store_awaits_memory(store, 1000)); /* it should be done */

	/* half of it is free */
	ck_assert_int_eq(ftruncate(seg_fd(full), 20 * MIB), 0);
	ck_assert(!store_awaits_memory(store, 0));
	store_space(store, &space);
	ck_assert(!store_will_have_memory(store, space.free_bytes));
	ck_assert(store_will_have_memory(store, space.free_bytes + 1));
	ck_assert(store_will_have_memory(store, space.free_bytes + 6 * MIB));
	ck_assert(!store_will_have_memory(store, space.free_bytes + 6 * MIB + 1)); /* never */
	memory_fill(full, 1, 0, 30 * MIB);
	ck_assert(store_awaits_memory(store, 0));

	/* in use after all, even if a thread says again that it goes */
	seg_not_freeing(seg);
	seg_not_freeing(seg);
	seg_freeing(seg);
	ck_assert(!store_awaits_memory(store, 0));
	store_space(store, &space);
	ck_assert(store_will_have_memory(store, space.free_bytes + 3 * MIB));
	ck_assert(!store_will_have_memory(store, space.free_bytes + 3 * MIB + 1));
	seg_not_freeing(other);
	ck_assert(!store_will_have_memory(store, space.free_bytes + 1));

	/* it is freed with its last reference */
	seg_freeing(full);
	ck_assert_int_eq(store_remove(full, false, &err), 0);
	ck_assert(store_awaits_memory(store, 0));
	seg_put(full);
	ck_assert(!store_awaits_memory(store, 0));
	seg_put(other);
	done(seg);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("memory_room");
	TCase *c = tcase_create("room");

	tcase_set_timeout(c, 60);
	tcase_add_test(c, a_small_file_that_is_full_is_taken_without_being_cleared);
	tcase_add_test(c, populated_ranges_are_listed_and_joined_over_small_gaps);
	tcase_add_test(c, what_came_after_the_list_is_counted);
	tcase_add_test(c, a_list_is_not_true_of_lost_pages);
	tcase_add_test(c, a_list_is_not_true_of_other_blocks_than_were_noted);
	tcase_add_test(c, many_scattered_pages_fit_a_short_list);
	tcase_add_test(c, reserved_room_is_taken_and_holes_stay_holes);
	tcase_add_test(c, huge_blocks_are_taken_where_they_are_wanted);
	tcase_add_test(c, slack_is_held_until_it_is_released);
	tcase_add_test(c, a_promise_that_cannot_be_kept_is_not_made);
	tcase_add_test(c, room_of_page_states_is_taken_once);
	tcase_add_test(c, full_blocks_are_collapsed_and_scattered_ones_are_not);
	tcase_add_test(c, what_the_daemon_maps_keeps_its_holes);
	tcase_add_loop_test(c, what_is_to_be_small_is_not_collapsed_by_the_daemons_mappings, 0, 2);
	tcase_add_test(c, data_and_holes_are_the_sources);
	tcase_add_test(c, what_arrives_meanwhile_is_data);
	tcase_add_loop_test(c, what_is_populated_is_found_without_the_files_lock, 0, 12);
	tcase_add_test(c, a_file_that_is_cut_while_it_is_looked_at_has_nothing_there);
	tcase_add_test(c, room_is_not_given_back_where_that_could_wait);
	tcase_add_test(c, memory_that_goes_is_worth_a_wait);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	int rc = memory_namespace();

	return rc ? rc : memory_run(suite());
}
