/*
 * Stores that are watched: whatever the program does after a store, a look finds the page, the next one or the
 * last. Huge pages that are split, and made huge again.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/kernel.h"
#include "memory/page_set.h"
#include "programs_world.h"

#define KNOWS	13 /* an agent that moves page tables */
#define STORED	5u /* the page that is stored into, of the first huge page */
#define TRIES	50
#define CHANGES (sizeof(changes) / sizeof(changes[0]))

enum { PAGES = SEG_BYTES / RAMP_PAGE_BYTES, HUGE_PAGES = RAMP_HUGE_BYTES / RAMP_PAGE_BYTES };

static const struct data_range whole = {0, SEG_BYTES};
static struct page_set found, before;
static struct ramp_err err;

static uint64_t at_page(const struct attached *x, uint64_t page)
{
	return x->addr + page * RAMP_PAGE_BYTES;
}

static void store(struct attached *x, uint64_t page)
{
	struct prog_order order = {
		.op = PROG_STORE, .addr = at_page(x, page) + 8, .value = page + 1};

	ck_assert_int_eq(prog_do(&x->prog, &order).result, 0);
}

static uint64_t look(struct attached *x)
{
	page_set_clear(&found);
	must(programs_stored(world.programs, x->seg, &whole, 1, &found, &err), &err);
	return page_set_count(&found);
}

/* Returns a program with an agent that moves page tables, which has the segment mapped. */
static struct attached mapped(void)
{
	struct prog_order session = {.op = PROG_SESSION, .value = KNOWS};
	struct attached x = {.seg = world_segment("x", 3)};

	prog_start(&x.prog, world.socket);
	ck_assert_int_eq(prog_do(&x.prog, &session).result, 0);
	x.addr = world_attach(&x.prog, x.seg, O_RDWR);
	return x;
}

static void watch(struct attached *x)
{
	must(programs_watch(world.programs, x->seg, &whole, 1, &err), &err);
	ck_assert_uint_eq(look(x), 0);
}

/* Returns one that has stored into each page, by entries of 4 KiB, and is watched. */
static struct attached watched(void)
{
	struct attached x;

	ck_assert_int_eq(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
	x = mapped();
	for (uint64_t page = 0; page < PAGES; page++)
		store(&x, page);
	watch(&x);
	return x;
}

static void unwatched(struct attached *x)
{
	programs_unwatch(world.programs, x->seg);
	world_detached(x);
}

START_TEST(a_look_finds_what_was_stored_into_since)
{
	struct attached x = watched();

	store(&x, STORED);
	store(&x, PAGES - 1);
	ck_assert_uint_eq(look(&x), 2);
	ck_assert(page_set_has(&found, STORED) && page_set_has(&found, PAGES - 1));
	ck_assert_uint_eq(look(&x), 0);
	unwatched(&x);
}
END_TEST

/* As in a window: stores are watched since it was asked whether the segment may move. */
static void freeze(struct attached *x)
{
	must(programs_prelook(world.programs, x->seg, &err), &err);
	must(programs_revoke(world.programs, x->seg, REVOKE_MS, &err), &err);
	page_set_clear(&found);
	ck_assert_int_eq(programs_stored_last(world.programs, x->seg, &whole, 1, &found), 0);
}

/* ---- what a program does after a store ------------------------------------------------------ */

static void ordered(struct attached *x, struct prog_order order)
{
	order.addr = order.addr ? order.addr : x->addr;
	order.len = order.len ? order.len : SEG_BYTES;
	ck_assert_int_eq(prog_do(&x->prog, &order).result, 0);
}

static void drops_it(struct attached *x)
{
	ordered(x, (struct prog_order){.op = PROG_ADVISE, .value = MADV_DONTNEED});
}

static void drops_its_page(struct attached *x)
{
	ordered(x, (struct prog_order){.op = PROG_ADVISE,
				       .addr = at_page(x, STORED),
				       .len = RAMP_PAGE_BYTES,
				       .value = MADV_DONTNEED});
}

static void collapses_it(struct attached *x)
{
	prog_do(&x->prog, &(struct prog_order){.op = PROG_ADVISE,
					       .addr = x->addr,
					       .len = SEG_BYTES,
					       .value = MADV_COLLAPSE});
}

static void locks_it(struct attached *x)
{
	ordered(x, (struct prog_order){.op = PROG_LOCK});
}

static void locks_and_unlocks_it(struct attached *x)
{
	ordered(x, (struct prog_order){.op = PROG_LOCK, .value = 1});
}

static void protects_it(struct attached *x)
{
	ordered(x, (struct prog_order){
			   .op = PROG_MPROTECT, .len = RAMP_HUGE_BYTES, .prot = PROT_READ});
}

static void protects_it_for_a_while(struct attached *x)
{
	protects_it(x);
	ordered(x, (struct prog_order){.op = PROG_MPROTECT, .prot = PROT_READ | PROT_WRITE});
}

static void unmaps_it(struct attached *x)
{
	ordered(x, (struct prog_order){.op = PROG_MUNMAP});
}

static void unmaps_a_part(struct attached *x)
{
	ordered(x, (struct prog_order){.op = PROG_MUNMAP, .len = RAMP_HUGE_BYTES});
}

/* Within the arena: what lies outside of it keeps the segment. */
static void moves_it(struct attached *x)
{
	ordered(x, (struct prog_order){.op = PROG_REMAP,
				       .offset = SEG_BYTES,
				       .value = x->addr + 2 * SEG_BYTES});
}

static void forks(struct attached *x)
{
	ck_assert_uint_eq(prog_at(&x->prog, PROG_FORK, at_page(x, STORED) + 8).value, STORED + 1);
}

static void wait_exec(pid_t pid)
{
	char path[64], exe[256] = "";

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	for (int i = 0; i < ANSWER_MS && !strstr(exe, "/bin/"); i++) {
		ssize_t n = readlink(path, exe, sizeof(exe) - 1);

		exe[n > 0 ? n : 0] = 0;
		usleep(1000);
	}
	ck_assert_ptr_nonnull(strstr(exe, "/bin/"));
}

static void becomes_another_program(struct attached *x)
{
	prog_send(&x->prog, &(struct prog_order){.op = PROG_EXEC});
	wait_exec(x->prog.pid);
}

static void is_killed(struct attached *x)
{
	kill(x->prog.pid, SIGKILL);
}

static void is_stopped(struct attached *x)
{
	kill(x->prog.pid, SIGSTOP);
}

static const struct change {
	void (*make)(struct attached *x);
	bool stays; /* where it is: the last look is at page tables that were moved */
} changes[] = {
	{drops_it, true},
	{drops_its_page, true},
	{collapses_it, true},
	{locks_it, false},
	{locks_and_unlocks_it, true},
	{protects_it, false},
	{protects_it_for_a_while, true},
	{unmaps_it, false},
	{unmaps_a_part, false},
	{moves_it, false},
	{forks, false},
	{becomes_another_program, false},
	{is_killed, false},
	{is_stopped, false},
};

START_TEST(a_store_is_found_whatever_follows)
{
	const struct change *change = &changes[(size_t)_i % CHANGES];
	struct attached x = watched();

	store(&x, STORED);
	change->make(&x);
	if ((size_t)_i < CHANGES)
		look(&x);
	else
		freeze(&x);
	ck_assert(page_set_has(&found, STORED));
	if (change->stays)
		ck_assert_uint_lt(page_set_count(&found), PAGES);
	if (change->make == is_stopped && (size_t)_i >= CHANGES) /* its page tables did not move */
		ck_assert_ptr_nonnull(programs_stored_all(world.programs, x.seg));
	programs_restore(world.programs, x.seg);
	kill(x.prog.pid, SIGCONT);
	unwatched(&x);
}
END_TEST

/* Looks at the events of a program's mappings find an mremap under way, that many times. */
static atomic_uint unread;

bool __wrap_uffd_remaps(struct client *client, uint64_t *count);
bool __real_uffd_remaps(struct client *client, uint64_t *count);

bool __wrap_uffd_remaps(struct client *client, uint64_t *count)
{
	if (!atomic_load(&unread))
		return __real_uffd_remaps(client, count);
	atomic_fetch_sub(&unread, 1);
	return false;
}

static void look_or_last(struct attached *x, bool last)
{
	page_set_clear(&found);
	if (last)
		ck_assert_int_eq(programs_stored_last(world.programs, x->seg, &whole, 1, &found),
				 0);
	else
		look(x);
}

/* As on a busy machine, where the agent has not run since the event of its move was read. */
START_TEST(a_move_that_is_about_to_end_makes_nothing_count)
{
	struct attached x = watched();

	store(&x, STORED);
	if (_i) {
		must(programs_prelook(world.programs, x.seg, &err), &err);
		must(programs_revoke(world.programs, x.seg, REVOKE_MS, &err), &err);
	}
	atomic_store(&unread, 5);
	look_or_last(&x, _i);
	ck_assert_uint_eq(page_set_count(&found), 1);
	ck_assert_ptr_null(programs_stored_all(world.programs, x.seg));
	atomic_store(&unread, UINT_MAX);
	look_or_last(&x, _i);
	ck_assert_uint_eq(page_set_count(&found), PAGES);
	ck_assert_ptr_nonnull(programs_stored_all(world.programs, x.seg));
	atomic_store(&unread, 0);
	programs_restore(world.programs, x.seg);
	unwatched(&x);
}
END_TEST

/* A program that comes while another is watched, and stores at once. */
START_TEST(a_program_that_comes_makes_all_count)
{
	struct attached x = watched();
	struct attached y = world_attached(x.seg, O_RDWR);

	store(&y, STORED);
	look(&x);
	ck_assert(page_set_has(&found, STORED));
	store(&y, STORED + 1);
	ck_assert_uint_eq(look(&x), 1);
	ck_assert(page_set_has(&found, STORED + 1));
	prog_end(&y.prog);
	unwatched(&x);
}
END_TEST

/* A file that is open for direct I/O is found whether or not the main thread still is. */
START_TEST(a_program_that_may_store_past_the_page_tables_is_named)
{
	int direct = open("/proc/self/exe", O_RDONLY | O_DIRECT); /* the program inherits it */
	struct attached x;

	ck_assert_int_ge(direct, 0);
	x = mapped();
	if (_i)
		ck_assert_int_eq(prog_at(&x.prog, PROG_MAIN_ENDS, 0).result, 0);
	ck_assert_int_eq(programs_watch(world.programs, x.seg, &whole, 1, &err), -EBUSY);
	ck_assert_msg(strstr(err.text, "direct I/O"), "%s", err.text);
	close(direct);
	world_detached(&x);
}
END_TEST

/* ---- huge pages ----------------------------------------------------------------------------- */

static bool is_huge(const struct attached *x, uint64_t page)
{
	const struct kernel_page_kind huge = {.all = KERNEL_PAGE_PRESENT | KERNEL_PAGE_HUGE};
	char path[64];
	int fd, rc;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)x->prog.pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	rc = kernel_pagemap_find(fd, at_page(x, page), at_page(x, page) + RAMP_HUGE_BYTES, huge,
				 NULL);
	close(fd);
	return rc == 1;
}

/* Returns a program that has the segment mapped by two huge pages, and is watched. */
static struct attached huge(void)
{
	struct attached x = mapped();

	/* again if the kernel had no huge page just then */
	for (int tries = TRIES; tries && !(is_huge(&x, 0) && is_huge(&x, HUGE_PAGES)); tries--) {
		collapses_it(&x);
		usleep(1000);
	}
	ck_assert(is_huge(&x, 0) && is_huge(&x, HUGE_PAGES));
	watch(&x);
	return x;
}

/* Two looks that find the first huge page, and with `both` the second one. */
static uint32_t looked_twice(struct attached *x, bool both)
{
	for (int i = 0; i < 2; i++) {
		store(x, STORED);
		if (both)
			store(x, HUGE_PAGES + STORED);
		ck_assert_int_eq(page_set_join(&before, &found), 0);
		ck_assert_uint_eq(look(x), both ? PAGES : HUGE_PAGES);
		if (i == 0) {
			page_set_clear(&before);
			ck_assert_uint_eq(programs_split(world.programs, x->seg, &before, &found),
					  0);
		}
	}
	return programs_split(world.programs, x->seg, &before, &found);
}

START_TEST(a_huge_page_that_is_stored_into_again_is_split)
{
	struct attached x = huge();

	ck_assert_uint_eq(looked_twice(&x, false), 1);
	ck_assert(!is_huge(&x, 0) && is_huge(&x, HUGE_PAGES));
	ck_assert_uint_eq(look(&x), 0);
	store(&x, STORED + 2);
	ck_assert_uint_eq(look(&x), 1);
	ck_assert(page_set_has(&found, STORED + 2));
	ck_assert_uint_eq(prog_load(&x.prog, at_page(&x, STORED) + 8), STORED + 1);
	if (_i) { /* the last look finds it, too */
		store(&x, STORED + 3);
		freeze(&x);
		ck_assert_uint_eq(page_set_count(&found), 1);
		ck_assert(page_set_has(&found, STORED + 3));
		programs_restore(world.programs, x.seg);
	}
	programs_unwatch(world.programs, x.seg);
	ck_assert(is_huge(&x, 0));
	ck_assert_uint_eq(prog_load(&x.prog, at_page(&x, STORED + 2) + 8), STORED + 3);
	world_detached(&x);
}
END_TEST

START_TEST(where_all_huge_pages_are_stored_into_none_is_split)
{
	struct attached x = huge();

	ck_assert_uint_eq(looked_twice(&x, true), 0);
	ck_assert(is_huge(&x, 0) && is_huge(&x, HUGE_PAGES));
	unwatched(&x);
}
END_TEST

/* Those that are listed are split at the first look, and be it each: then a store makes 4 KiB count. */
START_TEST(all_huge_pages_are_listed_and_split)
{
	struct page_set listed = {0};
	struct attached x = huge();

	for (int i = 0; i < 2; i++) {
		store(&x, STORED);
		store(&x, HUGE_PAGES + STORED);
		ck_assert_uint_eq(look(&x), i ? 2 : PAGES);
		ck_assert_int_eq(programs_huge(world.programs, x.seg, &found, &listed), 0);
		ck_assert_uint_eq(page_set_count(&listed), i ? 0 : 2);
		if (!i)
			ck_assert(page_set_has(&listed, 0) && page_set_has(&listed, HUGE_PAGES));
		page_set_clear(&listed);
		ck_assert_uint_eq(programs_split(world.programs, x.seg, NULL, &found), i ? 0 : 2);
		ck_assert(!is_huge(&x, 0) && !is_huge(&x, HUGE_PAGES));
	}
	page_set_free(&listed);
	programs_unwatch(world.programs, x.seg);
	ck_assert(is_huge(&x, 0) && is_huge(&x, HUGE_PAGES));
	world_detached(&x);
}
END_TEST

/* A kernel that says nothing of pages where no page table is. */
static atomic_bool silent;

int __wrap_kernel_pagemap_each(int pagemap_fd, uint64_t start, uint64_t end,
			       struct kernel_page_kind kind, bool arm, kernel_region_fn *fn,
			       void *arg);
int __real_kernel_pagemap_each(int pagemap_fd, uint64_t start, uint64_t end,
			       struct kernel_page_kind kind, bool arm, kernel_region_fn *fn,
			       void *arg);

int __wrap_kernel_pagemap_each(int pagemap_fd, uint64_t start, uint64_t end,
			       struct kernel_page_kind kind, bool arm, kernel_region_fn *fn,
			       void *arg)
{
	if (atomic_load(&silent) && !arm && kind.all == KERNEL_PAGE_WRITTEN)
		return 0;
	return __real_kernel_pagemap_each(pagemap_fd, start, end, kind, arm, fn, arg);
}

START_TEST(where_no_page_table_is_all_counts)
{
	struct attached x = huge();

	store(&x, STORED);
	ordered(&x, (struct prog_order){
			    .op = PROG_ADVISE, .len = RAMP_HUGE_BYTES, .value = MADV_DONTNEED});
	atomic_store(&silent, true);
	freeze(&x);
	atomic_store(&silent, false);
	ck_assert_uint_eq(page_set_count(&found), HUGE_PAGES);
	ck_assert(page_set_has(&found, STORED));
	programs_restore(world.programs, x.seg);
	unwatched(&x);
}
END_TEST

/* Returns where its page tables lie: the first mapping of the segment that is elsewhere. */
static uint64_t place_of(const struct attached *x)
{
	char line[512], id[32];
	uint64_t start, place = 0;
	struct stat st;
	FILE *maps;

	snprintf(line, sizeof(line), "/proc/%d/maps", (int)x->prog.pid);
	ck_assert_int_eq(fstat(seg_fd(x->seg), &st), 0);
	snprintf(id, sizeof(id), " %lu ", (unsigned long)st.st_ino);
	maps = fopen(line, "re");
	ck_assert_ptr_nonnull(maps);
	while (!place && fgets(line, sizeof(line), maps))
		if (strstr(line, id) && sscanf(line, "%" SCNx64, &start) == 1 &&
		    (start < x->addr || start >= x->addr + SEG_BYTES))
			place = start;
	fclose(maps);
	return place;
}

/* A program that unmaps what it does not know. */
START_TEST(what_is_not_mapped_any_more_counts)
{
	struct attached x = watched();
	uint64_t place;

	store(&x, STORED);
	must(programs_prelook(world.programs, x.seg, &err), &err);
	must(programs_revoke(world.programs, x.seg, REVOKE_MS, &err), &err);
	place = place_of(&x);
	ck_assert_uint_ne(place, 0);
	ordered(&x, (struct prog_order){.op = PROG_MUNMAP,
					.addr = place + STORED * RAMP_PAGE_BYTES,
					.len = RAMP_PAGE_BYTES});
	look_or_last(&x, true);
	ck_assert(page_set_has(&found, STORED));
	kill(x.prog.pid, SIGKILL);
	programs_restore(world.programs, x.seg);
	unwatched(&x);
}
END_TEST

/* A touch while its mapping is in parts leaves a small entry, as one does while pages are pulled. */
START_TEST(what_the_file_has_as_a_huge_page_is_mapped_as_one)
{
	struct attached x = huge();

	programs_unwatch(world.programs, x.seg);
	ordered(&x, (struct prog_order){
			    .op = PROG_MPROTECT, .len = RAMP_PAGE_BYTES, .prot = PROT_READ});
	store(&x, STORED);
	ordered(&x, (struct prog_order){.op = PROG_MPROTECT, .prot = PROT_READ | PROT_WRITE});
	store(&x, STORED + 1);
	ck_assert(!is_huge(&x, 0));
	programs_map_huge(world.programs, x.seg, 0);
	ck_assert(is_huge(&x, 0));
	ck_assert_uint_eq(prog_load(&x.prog, at_page(&x, STORED) + 8), STORED + 1);
	world_detached(&x);
}
END_TEST

static void add_tests(TCase *tc)
{
	tcase_add_test(tc, a_look_finds_what_was_stored_into_since);
	tcase_add_loop_test(tc, a_store_is_found_whatever_follows, 0, 2 * (int)CHANGES);
	tcase_add_loop_test(tc, a_move_that_is_about_to_end_makes_nothing_count, 0, 2);
	tcase_add_test(tc, a_program_that_comes_makes_all_count);
	tcase_add_loop_test(tc, a_program_that_may_store_past_the_page_tables_is_named, 0, 2);
	tcase_add_loop_test(tc, a_huge_page_that_is_stored_into_again_is_split, 0, 2);
	tcase_add_test(tc, where_all_huge_pages_are_stored_into_none_is_split);
	tcase_add_test(tc, all_huge_pages_are_listed_and_split);
	tcase_add_test(tc, where_no_page_table_is_all_counts);
	tcase_add_test(tc, what_is_not_mapped_any_more_counts);
	tcase_add_test(tc, what_the_file_has_as_a_huge_page_is_mapped_as_one);
}

int main(int argc, char **argv)
{
	return world_main(argc, argv, "watch", add_tests);
}
