/*
 * Pages that are lost, with their source or by it; and how a page fault ends, and how it is counted,
 * when its read comes back.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/kernel.h"
#include "pull_world.h"

static struct world w;

START_TEST(another_incarnation_of_the_source_proves_the_loss)
{
	uint8_t bytes[PAGE];
	pthread_t thread;

	world_open_with(&w, MIB, true, false);
	ck_assert(world_page_is(w.t_programs.map, 0));
	world_source_stop(&w);
	world_source_start(&w, WORLD_INCARNATION + 1);
	world_wait_finished(&w);
	ck_assert_uint_eq(atomic_load(&w.lost), 255);
	ck_assert_uint_eq(pages_lost(w.t_seg), 255);
	ck_assert_int_eq(pull_want(w.t_pull, w.t_seg, 5, 1), -EIO);
	ck_assert_int_eq(pull_want(w.t_pull, w.t_seg, 0, 1), 0);
	ck_assert_int_eq(world_load(w.t_programs.map), world_byte(0, 0));
	ck_assert_int_eq(world_load(w.t_programs.map + 5 * PAGE), -1);
	ck_assert_uint_ge(atomic_load(&w.t_programs.poisoned), 1);

	/* a page that is written over is there again */
	ck_assert_int_eq(pull_cut_begin(w.t_pull, w.t_seg, 7 * PAGE, PAGE), 0);
	thread = world_touch(&w, 7);
	world_wait_for_fault(&w, 3);
	memset(bytes, 0xcc, PAGE);
	ck_assert_int_eq(pwrite(seg_fd(w.t_seg), bytes, PAGE, 7 * PAGE), PAGE);
	pull_cut_end(w.t_pull, w.t_seg, 7 * PAGE, PAGE, PAGE);
	ck_assert_uint_eq(world_touched(thread), 0xcc);
	ck_assert_uint_eq(pages_lost(w.t_seg), 254);
	ck_assert_int_eq(pull_cut_begin(w.t_pull, w.t_seg, 0, MIB), 0);
	pull_cut_end(w.t_pull, w.t_seg, 0, MIB, MIB);
	wait_until(atomic_load(&w.t_programs.pulled));
	ck_assert_uint_eq(atomic_load(&w.finished), 1);
	world_close(&w);
}
END_TEST

/* The source has lost pages itself, since it pulled them from a node that is over. */
static void lose_at_the_source(uint64_t page)
{
	struct ramp_err err = {0};

	ck_assert_int_eq(pages_prepare(w.s_seg, w.size, &err), 0);
	ck_assert_int_eq(pages_mark_remote(w.s_seg, page, 1, &err), 0);
	ck_assert_uint_eq(pages_lose(w.s_seg, page, 1), 1);
}

START_TEST(a_page_fault_of_what_the_source_has_lost_is_told)
{
	world_open_with(&w, MIB, true, false);
	lose_at_the_source(9);
	ck_assert_int_eq(world_load(w.t_programs.map + 9 * PAGE), -1);
	ck_assert_int_eq(pages_get(w.t_seg, 9), PAGE_LOST);
	ck_assert_uint_ge(atomic_load(&w.t_programs.poisoned), 1);
	ck_assert_int_eq(world_load(w.t_programs.map + 10 * PAGE), world_byte(10, 0));
	world_close(&w);
}
END_TEST

/* By how many page faults' times were counted. */
static uint64_t faults_counted(void)
{
	struct pull_status status;
	uint64_t counted = 0;

	pull_status(w.t_pull, &status);
	for (int i = 0; i < PULL_HISTOGRAM; i++)
		counted += status.fault_us[i];
	return counted;
}

static uint64_t faults_read(void)
{
	struct pull_status status;

	pull_status(w.t_pull, &status);
	return status.faults;
}

/* Faults in order, until one brings 16 pages: the next is the one that is returned. */
static uint64_t fault_in_order(void)
{
	uint64_t page = 0;

	for (; page < 31 || pages_get(w.t_seg, page) != PAGE_REMOTE; page++)
		ck_assert(world_page_is(w.t_programs.map + page * PAGE, page));
	wait_until(faults_counted() == faults_read());
	return page;
}

/* It waits for one page. The others of its read come, or do not, whether or not a program
   touches them: here a writer brings all of them, since the connection is cut. */
START_TEST(a_page_fault_whose_read_is_cut_is_one_page_fault)
{
	uint8_t bytes[16 * PAGE];
	pthread_t thread;
	uint64_t page;

	world_open_with(&w, MIB, true, false);
	page = fault_in_order();
	atomic_store(&w.held, true);
	thread = world_touch(&w, page);
	wait_until(pages_get(w.t_seg, page + 15) == PAGE_IN_FLIGHT);
	atomic_store(&w.cut_after, 1);
	atomic_store(&w.held, false);
	wait_until(pull_cut_begin(w.t_pull, w.t_seg, page * PAGE, sizeof(bytes)) == 0);
	memset(bytes, 0xcc, sizeof(bytes));
	ck_assert_int_eq(pwrite(seg_fd(w.t_seg), bytes, sizeof(bytes), (off_t)(page * PAGE)),
			 sizeof(bytes));
	pull_cut_end(w.t_pull, w.t_seg, page * PAGE, sizeof(bytes), sizeof(bytes));
	ck_assert_uint_eq(world_touched(thread), 0xcc);
	atomic_store(&w.cut_after, 0);
	ck_assert(world_page_is(w.t_programs.map + 200 * PAGE, 200)); /* all of that is over */
	wait_until(faults_counted() >= faults_read());
	ck_assert_uint_eq(faults_counted(), faults_read());
	world_close(&w);
}
END_TEST

/* The same where the source has lost one of the other pages; no program that has not touched that one
   is told of it. */
START_TEST(a_page_fault_whose_read_meets_a_lost_page_is_one_page_fault)
{
	uint64_t page;

	world_open_with(&w, MIB, true, false);
	page = fault_in_order();
	lose_at_the_source(page + 4);
	ck_assert_int_eq(world_load(w.t_programs.map + page * PAGE), world_byte(page, 0));
	wait_until(pages_get(w.t_seg, page + 4) == PAGE_LOST);
	ck_assert_int_eq(world_load(w.t_programs.map + 200 * PAGE), world_byte(200, 0));
	wait_until(faults_counted() >= faults_read());
	ck_assert_uint_eq(faults_counted(), faults_read());
	ck_assert_uint_eq(atomic_load(&w.t_programs.poisoned), 0);
	ck_assert_int_eq(world_load(w.t_programs.map + (page + 4) * PAGE), -1);
	world_close(&w);
}
END_TEST

/* Stands in for lseek(2): where the source's file has data, or where that ends, is EIO the first time. */
off_t __real_lseek(int fd, off_t offset, int whence);
off_t __wrap_lseek(int fd, off_t offset, int whence);

static atomic_int unsaid; /* SEEK_DATA or SEEK_HOLE */

off_t __wrap_lseek(int fd, off_t offset, int whence)
{
	int once = whence;

	if (fd == seg_fd(w.s_seg) && whence >= SEEK_DATA &&
	    atomic_compare_exchange_strong(&unsaid, &once, 0)) {
		errno = EIO;
		return -1;
	}
	return __real_lseek(fd, offset, whence);
}

START_TEST(of_what_the_kernel_does_not_say_no_page_is_lost)
{
	world_open(&w, MIB);
	world_write_all(&w);
	w.size = MIB - 100;
	ck_assert_int_eq(ftruncate(seg_fd(w.s_seg), (off_t)w.size), 0);
	atomic_store(&unsaid, _i ? SEEK_HOLE : SEEK_DATA);
	world_take(&w, true);
	world_begin(&w, true);
	world_wait_finished(&w);
	ck_assert_int_eq(atomic_load(&unsaid), 0);
	ck_assert_uint_eq(pages_lost(w.t_seg), 0);
	world_check(&w);
	world_close(&w);
}
END_TEST

/*
 * Stands in for pread(2) (pull.cmake: --wrap): a page of the source's file whose memory has failed
 * is EIO, and the pages before it are read, as on tmpfs.
 */
ssize_t __real_pread(int fd, void *buf, size_t len, off_t offset);
ssize_t __wrap_pread(int fd, void *buf, size_t len, off_t offset);

static const uint64_t failing[] = {1000, 3000, 3001, 3500}; /* one by one, and two in a row */
#define FAILING (sizeof(failing) / sizeof(failing[0]))
static atomic_bool memory_failed;
static atomic_bool every_other_fails; /* of a thread's reads from the source's file */

ssize_t __wrap_pread(int fd, void *buf, size_t len, off_t offset)
{
	static _Thread_local unsigned reads;
	uint64_t first = (uint64_t)offset / PAGE;

	if (atomic_load(&every_other_fails) && fd == seg_fd(w.s_seg) && reads++ % 2 == 0) {
		errno = EIO;
		return -1;
	}
	for (size_t i = 0; i < FAILING && atomic_load(&memory_failed); i++) {
		if (fd != seg_fd(w.s_seg) || failing[i] < first)
			continue;
		if (failing[i] == first) {
			errno = EIO;
			return -1;
		}
		if (len > failing[i] * PAGE - (uint64_t)offset)
			len = failing[i] * PAGE - (uint64_t)offset;
	}
	return __real_pread(fd, buf, len, offset);
}

/* Nor can the kernel send from there. */
static void fail_memory(bool failed)
{
	struct ramp_err err = {0};
	uint64_t mapped;
	uint8_t *base;

	ck_assert_int_eq(seg_map(w.s_seg, &base, &mapped, &err), 0);
	for (size_t i = 0; i < FAILING; i++)
		ck_assert_int_eq(mprotect(base + failing[i] * PAGE, PAGE,
					  failed ? PROT_NONE : PROT_READ | PROT_WRITE),
				 0);
	seg_unmap(w.s_seg);
	atomic_store(&memory_failed, failed);
}

static bool has_failed(uint64_t page)
{
	bool found = false;

	for (size_t i = 0; i < FAILING; i++)
		found |= failing[i] == page;
	return found;
}

/* Found by a program that touches them, among others that are known as data; by the prefetch, to which
   pages without zeros for long are sent from the mapping; or by both at once. */
START_TEST(memory_that_has_failed_at_the_source_is_lost_and_the_rest_comes)
{
	bool touched = _i != 1;
	struct pull_status status;

	world_open_with(&w, 16 * MIB, true, false);
	fail_memory(true);
	if (_i == 2)
		pull_prefetch_all(w.t_pull, MEMORY_ID);
	for (size_t i = 0; i < FAILING && touched; i++) {
		for (uint64_t page = failing[i] - 3; page < failing[i]; page++)
			ck_assert_int_eq(world_load(w.t_programs.map + page * PAGE),
					 has_failed(page) ? -1 : world_byte(page, 0));
		ck_assert_int_eq(world_load(w.t_programs.map + failing[i] * PAGE), -1);
	}
	pull_prefetch_all(w.t_pull, MEMORY_ID);
	world_wait_finished(&w);
	ck_assert_uint_eq(atomic_load(&w.lost), FAILING);
	for (uint64_t page = 0; page < 4096; page++) {
		ck_assert_int_eq(pages_get(w.t_seg, page),
				 has_failed(page) ? PAGE_LOST : PAGE_LOCAL);
		ck_assert_int_eq(world_load(w.t_programs.map + page * PAGE),
				 has_failed(page) ? -1 : world_byte(page, 0));
	}
	ck_assert_int_eq(pull_want(w.t_pull, w.t_seg, failing[0], 1), -EIO);
	pull_status(w.t_pull, &status);
	ck_assert_uint_le(status.reconnects, 3 * FAILING); /* not again and again */
	fail_memory(false);
	world_close(&w);
}
END_TEST

/* An error that passes is none of the memory's. */
START_TEST(memory_that_is_read_the_next_time_is_not_lost)
{
	world_open_with(&w, MIB, true, false);
	atomic_store(&every_other_fails, true);
	ck_assert_int_eq(world_load(w.t_programs.map + 9 * PAGE), world_byte(9, 0));
	pull_prefetch_all(w.t_pull, MEMORY_ID);
	world_wait_finished(&w);
	atomic_store(&every_other_fails, false);
	ck_assert_uint_eq(atomic_load(&w.lost), 0);
	world_check(&w);
	world_close(&w);
}
END_TEST

START_TEST(a_fence_is_a_loss_and_those_who_wait_get_it)
{
	world_open_with(&w, MIB, true, false);
	world_source_stop(&w);
	ck_assert_int_eq(pull_want(w.t_pull, w.t_seg, 9, 1), -EAGAIN);
	pull_source_over(w.t_pull, 1, WORLD_INCARNATION + 5); /* not that one */
	pull_source_over(w.t_pull, 2, WORLD_INCARNATION);
	ck_assert_uint_eq(pages_lost(w.t_seg), 0);
	pull_source_over(w.t_pull, 1, WORLD_INCARNATION);
	ck_assert_int_eq(world_load(w.t_programs.map + 9 * PAGE), -1);
	world_wait_finished(&w);
	ck_assert_uint_eq(atomic_load(&w.lost), 256);
	ck_assert_int_eq(pull_want(w.t_pull, w.t_seg, 9, 1), -EIO);
	world_close(&w);
}
END_TEST

START_TEST(who_is_in_anothers_way_leaves_lost_what_was_lost)
{
	world_open_with(&w, MIB, true, false);
	pull_source_over(w.t_pull, 1, WORLD_INCARNATION);
	world_wait_finished(&w);
	ck_assert_int_eq(pull_cut_begin(w.t_pull, w.t_seg, 12 * PAGE, PAGE), 0);
	ck_assert_int_eq(pull_cut_begin(w.t_pull, w.t_seg, 10 * PAGE, 5 * PAGE), -EAGAIN);
	ck_assert_int_eq(pull_want(w.t_pull, w.t_seg, 10, 2), -EIO);
	ck_assert_uint_eq(pages_lost(w.t_seg), 255);
	ck_assert_int_eq(world_load(w.t_programs.map + 11 * PAGE), -1);
	pull_cut_end(w.t_pull, w.t_seg, 12 * PAGE, PAGE, PAGE);
	ck_assert_uint_eq(pages_missing(w.t_seg), 255);
	ck_assert_uint_eq(pages_lost(w.t_seg), 255);
	world_close(&w);
}
END_TEST

/* A daemon that finds it GIVEN does not look for its lost pages; it may be its own again. */
START_TEST(what_was_given_with_lost_pages_is_watched_when_it_is_back)
{
	struct record record = {.kind = RECORD_OWNED, .epoch = 4};
	struct pull_progress progress;
	struct ramp_err err = {0};

	world_open_with(&w, MIB, true, false);
	pull_source_over(w.t_pull, 1, WORLD_INCARNATION);
	world_wait_finished(&w);
	ck_assert_int_eq(record_change(w.t_seg, &record, &err), 0);
	record = (struct record){.kind = RECORD_GIVEN, .epoch = 5, .k = {6, 8}, .peer = 3};
	ck_assert_int_eq(record_change(w.t_seg, &record, &err), 0);
	world_target_restart(&w);
	ck_assert_int_eq(pull_progress(w.t_pull, MEMORY_ID, &progress), -ENOENT);
	record = (struct record){.kind = RECORD_OWNED, .epoch = 7};
	ck_assert_int_eq(record_change(w.t_seg, &record, &err), 0);
	pull_watch_lost(w.t_pull, w.t_seg);
	pull_watch_lost(w.t_pull, w.t_seg);
	ck_assert_int_eq(world_load(w.t_programs.map + 9 * PAGE), -1);
	ck_assert_uint_eq(atomic_load(&w.finished), 1);
	world_close(&w);
}
END_TEST

/* Page 20 was here, and the others were lost; it leaves, and comes back whole. */
static void leave_and_come_again(void)
{
	struct record record = {.kind = RECORD_OWNED, .epoch = 4};
	struct pull_progress progress;
	struct ramp_err err = {0};

	world_open_with(&w, MIB, false, false);
	wait_until(pull_want(w.t_pull, w.t_seg, 20, 1) == 0);
	pull_source_over(w.t_pull, 1, WORLD_INCARNATION);
	world_wait_finished(&w);
	ck_assert_int_eq(record_change(w.t_seg, &record, &err), 0);
	ck_assert_int_eq(pull_progress(w.t_pull, MEMORY_ID, &progress), 0);
	record = (struct record){.kind = RECORD_GIVEN, .epoch = 5, .k = {6, 8}, .peer = 3};
	ck_assert_int_eq(record_change(w.t_seg, &record, &err), 0);
	wait_until(store_remove(w.t_seg, true, &err) != -EBUSY);
	seg_put(w.t_seg);

	w.k = (struct ramp_attempt){7, 9};
	w.key = tp_key_of_attempt(MEMORY_ID, w.k);
	world_take(&w, true);
}

/* Before its pull can begin: the entry of the one before is still there, and says nothing of this one. */
START_TEST(what_came_again_is_not_what_left)
{
	static const uint64_t pages[] = {20, 21};
	struct pull_progress progress;
	struct ramp_err err = {0};
	pthread_t threads[2];

	leave_and_come_again();
	world_attach(&w);
	ck_assert_int_eq(programs_pulling(&w.t_programs, w.t_seg, &err), 0);
	for (int i = 0; i < 2; i++)
		threads[i] = world_touch(&w, pages[i]);
	world_wait_for_fault(&w, 2);
	ck_assert_int_eq(pull_cut_begin(w.t_pull, w.t_seg, 12 * PAGE, PAGE), 0);
	ck_assert_int_eq(pull_cut_begin(w.t_pull, w.t_seg, 10 * PAGE, 5 * PAGE), -EAGAIN);
	pull_cut_end(w.t_pull, w.t_seg, 12 * PAGE, PAGE, 0);
	ck_assert_uint_eq(pages_lost(w.t_seg), 0);
	wait_until(pull_progress(w.t_pull, MEMORY_ID, &progress) == -ENOENT);
	atomic_store(&w.finished, 0);
	world_begin(&w, false);
	kernel_uffd_wake(w.t_programs.uffd, (uintptr_t)w.t_programs.map, w.t_programs.len);
	for (int i = 0; i < 2; i++)
		ck_assert_uint_eq(world_touched(threads[i]), world_byte(pages[i], 0));
	ck_assert_uint_eq(atomic_load(&w.t_programs.poisoned), 0);
	pull_prefetch_all(w.t_pull, MEMORY_ID);
	world_wait_finished(&w);
	world_check(&w);
	world_close(&w);
}
END_TEST

START_TEST(what_left_with_lost_pages_can_come_again)
{
	struct pull_progress progress;

	leave_and_come_again();
	wait_until(pull_progress(w.t_pull, MEMORY_ID, &progress) == -ENOENT);
	atomic_store(&w.finished, 0);
	world_begin(&w, true);
	world_wait_finished(&w);
	world_check(&w);
	world_close(&w);
}
END_TEST

START_TEST(lost_pages_are_lost_after_a_restart_too)
{
	struct record owned = {.kind = RECORD_OWNED, .epoch = 4};
	struct ramp_err err = {0};

	world_open_with(&w, MIB, true, false);
	ck_assert_int_eq(world_load(w.t_programs.map), world_byte(0, 0));
	pull_source_over(w.t_pull, 1, WORLD_INCARNATION);
	world_wait_finished(&w);
	ck_assert_int_eq(record_change(w.t_seg, &owned, &err), 0);
	world_target_restart(&w);
	ck_assert_uint_eq(pages_lost(w.t_seg), 255);
	ck_assert_int_eq(world_load(w.t_programs.map), world_byte(0, 0));
	ck_assert_int_eq(world_load(w.t_programs.map + 9 * PAGE), -1);
	ck_assert_int_eq(pull_want(w.t_pull, w.t_seg, 9, 1), -EIO);
	ck_assert_uint_eq(atomic_load(&w.finished), 1);

	/* and it can be removed: nothing of ours holds it */
	pull_close(w.s_pull);
	serve_close(w.s_serve);
	w.s_pull = NULL;
	munmap(w.t_programs.map, w.t_programs.len);
	w.t_programs.map = NULL;
	wait_until(store_remove(w.t_seg, true, &err) != -EBUSY);
	world_close(&w);
}
END_TEST

/* A program that got SIGBUS for a page finds it, once it has been written over. Other pages, and those
   that are still lost, are as before. Also where that was the last one, and no page fault is resolved
   any more. */
START_TEST(a_page_that_was_told_lost_is_there_when_it_is_written_over)
{
	const uint64_t len = _i ? MIB : PAGE;
	static uint8_t bytes[MIB];

	memset(bytes, 0xcc, sizeof(bytes));
	world_open_with(&w, MIB, true, false);
	pull_source_over(w.t_pull, 1, WORLD_INCARNATION);
	world_wait_finished(&w);
	for (uint64_t page = 0; page < 2; page++)
		ck_assert_int_eq(world_load(w.t_programs.map + page * PAGE), -1);
	ck_assert_int_eq(pull_cut_begin(w.t_pull, w.t_seg, 0, len), 0);
	ck_assert_int_eq(pwrite(seg_fd(w.t_seg), bytes, len, 0), (ssize_t)len);
	pull_cut_end(w.t_pull, w.t_seg, 0, len, len);
	if (_i)
		wait_until(atomic_load(&w.t_programs.pulled));
	ck_assert_int_eq(world_load(w.t_programs.map), 0xcc);
	ck_assert_int_eq(world_load(w.t_programs.map + PAGE), _i ? 0xcc : -1);
	world_close(&w);
}
END_TEST

/* ---- pages with bytes of before a pre-copy's last round ---- */

#define OLD 0xdd

/* Every page was stored into since its round; pages 40 to 79 are holes at the source where `holes`. */
static void take_old(bool holes)
{
	struct ramp_err err = {0};

	world_open(&w, MIB);
	for (uint64_t page = 0; page < MIB / PAGE; page++)
		if (!holes || page < 40 || page >= 80)
			world_write(&w, page);
	world_take(&w, true);
	ck_assert_int_eq(pages_mark_remote(w.t_seg, 0, MIB / PAGE, &err), 0);
	memory_fill(w.t_seg, OLD, 0, MIB);
	pages_note_old(w.t_seg);
}

static void old_pages_are_lost(void)
{
	ck_assert_uint_eq(pages_lost(w.t_seg), 255);
	ck_assert_int_eq(world_load(w.t_programs.map), world_byte(0, 0));
	for (uint64_t page = 1; page < MIB / PAGE; page++) {
		ck_assert_int_eq(pull_want(w.t_pull, w.t_seg, page, 1), -EIO);
		ck_assert_int_eq(world_load(w.t_programs.map + page * PAGE), -1);
	}
}

/* The source is fenced, or its next life has come; the target has been killed before, or is afterwards. */
START_TEST(a_page_that_is_old_is_lost_with_its_source)
{
	struct record owned = {.kind = RECORD_OWNED, .epoch = 4};
	struct ramp_err err = {0};

	take_old(false);
	if (_i & 2) {
		world_begin(&w, false);
		world_target_restart(&w);
	}
	world_attach(&w);
	world_begin(&w, false);
	ck_assert(world_page_is(w.t_programs.map, 0));
	if (_i & 1) {
		world_source_stop(&w);
		world_source_start(&w, WORLD_INCARNATION + 1);
	} else {
		pull_source_over(w.t_pull, 1, WORLD_INCARNATION);
	}
	world_wait_finished(&w);
	old_pages_are_lost();
	ck_assert_int_eq(record_change(w.t_seg, &owned, &err), 0);
	world_target_restart(&w);
	old_pages_are_lost();
	world_close(&w);
}
END_TEST

/* By the prefetch, by a program that touches a page in the hole, or by one that touches the page before. */
START_TEST(a_page_that_is_old_is_zeros_where_the_source_has_a_hole)
{
	take_old(true);
	world_begin(&w, false);
	wait_until(pull_want(w.t_pull, w.t_seg, 100, 1) == 0);
	world_target_restart(&w);
	ck_assert_int_eq(pages_get(w.t_seg, 50), PAGE_REMOTE);
	world_attach(&w);
	world_begin(&w, _i == 0);
	if (_i == 1)
		ck_assert_int_eq(world_load(w.t_programs.map + 50 * PAGE), 0);
	if (_i == 2)
		ck_assert_int_eq(world_load(w.t_programs.map + 39 * PAGE), world_byte(39, 0));
	pull_prefetch_all(w.t_pull, MEMORY_ID);
	world_wait_finished(&w);
	ck_assert_uint_eq(pages_lost(w.t_seg), 0);
	world_check(&w);
	world_close(&w);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("pull_lost");
	TCase *c = tcase_create("lost");

	tcase_set_timeout(c, 60);
	tcase_add_test(c, another_incarnation_of_the_source_proves_the_loss);
	tcase_add_test(c, a_page_fault_of_what_the_source_has_lost_is_told);
	tcase_add_test(c, a_page_fault_whose_read_is_cut_is_one_page_fault);
	tcase_add_loop_test(c, of_what_the_kernel_does_not_say_no_page_is_lost, 0, 2);
	tcase_add_test(c, a_page_fault_whose_read_meets_a_lost_page_is_one_page_fault);
	tcase_add_loop_test(c, memory_that_has_failed_at_the_source_is_lost_and_the_rest_comes, 0,
			    3);
	tcase_add_test(c, memory_that_is_read_the_next_time_is_not_lost);
	tcase_add_test(c, a_fence_is_a_loss_and_those_who_wait_get_it);
	tcase_add_test(c, who_is_in_anothers_way_leaves_lost_what_was_lost);
	tcase_add_test(c, what_was_given_with_lost_pages_is_watched_when_it_is_back);
	tcase_add_test(c, what_came_again_is_not_what_left);
	tcase_add_test(c, what_left_with_lost_pages_can_come_again);
	tcase_add_test(c, lost_pages_are_lost_after_a_restart_too);
	tcase_add_loop_test(c, a_page_that_was_told_lost_is_there_when_it_is_written_over, 0, 2);
	tcase_add_loop_test(c, a_page_that_is_old_is_lost_with_its_source, 0, 4);
	tcase_add_loop_test(c, a_page_that_is_old_is_zeros_where_the_source_has_a_hole, 0, 3);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	int rc = memory_namespace();

	return rc ? rc : memory_run(suite());
}
