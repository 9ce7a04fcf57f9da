/*
 * Which parts of a segment are registered with userfaultfd while pages of it are missing
 * (programs/attach/stretches.c), as /proc shows it: those near a missing page.
 *
 * Each segment has two stretches of 2 MiB.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/kernel.h"
#include "memory/pages.h"
#include "programs/proc/mappings.h"
#include "programs_world.h"

#define ASKS	17 /* the kind of agent */
#define OLDER	16
#define SECOND	(SEG_BYTES / 2) /* where the second stretch begins */
#define PAGES	(SEG_BYTES / RAMP_PAGE_BYTES)
#define MISSING UINT64_C(600) /* a page of the second stretch */
#define THERE	UINT64_C(0x1111111111111111)

enum { FIRST_ONLY, SECOND_ONLY, BOTH, NONE, CHANGES };

/* ---- the kernel fails ----------------------------------------------------------------------- */

static _Atomic int unregister_fails; /* errno; 0: it does not */
static _Atomic int register_fails;   /* the same, of ranges that are no whole segment */
static _Atomic int n_mappings;	     /* 0: as many as there are */

int __real_kernel_uffd_unregister(int uffd, uint64_t start, uint64_t len);
int __wrap_kernel_uffd_unregister(int uffd, uint64_t start, uint64_t len);
int __real_kernel_uffd_register(int uffd, uint64_t start, uint64_t len, uint64_t modes);
int __wrap_kernel_uffd_register(int uffd, uint64_t start, uint64_t len, uint64_t modes);
int __real_mappings_count(struct mappings *mappings, uint64_t lo, uint64_t hi, int most);
int __wrap_mappings_count(struct mappings *mappings, uint64_t lo, uint64_t hi, int most);

/* The kernel may have unregistered a part before it fails. */
int __wrap_kernel_uffd_unregister(int uffd, uint64_t start, uint64_t len)
{
	int error = unregister_fails;

	if (!error || len >= SEG_BYTES)
		return __real_kernel_uffd_unregister(uffd, start, len);
	(void)__real_kernel_uffd_unregister(uffd, start, len / 2);
	return -error;
}

int __wrap_kernel_uffd_register(int uffd, uint64_t start, uint64_t len, uint64_t modes)
{
	int error = register_fails;

	return error && len < SEG_BYTES ? -error
					: __real_kernel_uffd_register(uffd, start, len, modes);
}

int __wrap_mappings_count(struct mappings *mappings, uint64_t lo, uint64_t hi, int most)
{
	int n = n_mappings;

	return n ? n : __real_mappings_count(mappings, lo, hi, most);
}

static void nothing_fails(void)
{
	unregister_fails = register_fails = n_mappings = 0;
}

/* ---- looks ---------------------------------------------------------------------------------- */

/* Whether the mapping at that address is registered: for page faults of each kind, or for none. */
static bool is_registered(pid_t pid, uint64_t addr)
{
	char path[64], line[512];
	uint64_t start, end;
	bool here = false, found = false, is = false;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/smaps", (int)pid);
	file = fopen(path, "re");
	ck_assert_ptr_nonnull(file);
	while (!found && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &start, &end) == 2)
			here = start <= addr && addr < end;
		if (!here || strncmp(line, "VmFlags:", 8) != 0)
			continue;
		found = true;
		is = strstr(line, " um") != NULL;
		ck_assert_int_eq(is, strstr(line, " uw") != NULL);
		ck_assert_int_eq(is, strstr(line, " ui") != NULL);
	}
	fclose(file);
	ck_assert_msg(found, "nothing is mapped at %#" PRIx64, addr);
	return is;
}

/* Looks at the first and the last page of each stretch. A worker may be about to change that. */
static int registered(const struct attached *x)
{
	pid_t pid = x->prog.pid;
	bool first = is_registered(pid, x->addr), second = is_registered(pid, x->addr + SECOND);

	if (first != is_registered(pid, x->addr + SECOND - RAMP_PAGE_BYTES) ||
	    second != is_registered(pid, x->addr + SEG_BYTES - RAMP_PAGE_BYTES))
		return CHANGES;
	return first && second ? BOTH : first ? FIRST_ONLY : second ? SECOND_ONLY : NONE;
}

/* Has all be unregistered that may be; jobs of one user end in the order in which they began, as a rule. */
static void trim(const struct attached *x, int wanted)
{
	for (int i = 0; i < 2000 && registered(x) != wanted; i++) {
		programs_trim(world.programs, x->seg);
		usleep(2000);
	}
	ck_assert_int_eq(registered(x), wanted);
}

/* A trim that changes nothing. */
static void trim_in_vain(const struct attached *x, int still)
{
	for (int i = 0; i < 20; i++) {
		programs_trim(world.programs, x->seg);
		usleep(5000);
		ck_assert_int_eq(registered(x), still);
	}
}

static struct attached attach(struct seg *seg, int kind)
{
	struct attached x = {.seg = seg};
	struct prog_order session = {.op = PROG_SESSION, .value = (uint64_t)kind};

	prog_start(&x.prog, world.socket);
	ck_assert_int_eq(prog_do(&x.prog, &session).result, 0);
	x.addr = world_attach(&x.prog, seg, O_RDWR);
	return x;
}

/* It leaves, and comes back as after a pre-copy: those pages alone are missing. */
static void come_back(struct attached *x, uint64_t first, uint64_t count)
{
	struct ramp_err err = {0};

	world_freeze(x->seg);
	world_give(x->seg);
	programs_gone(world.programs, x->seg, "b");
	x->seg = world_take(x->seg, first, count);
	must(programs_pulling(world.programs, x->seg, &err), &err);
	programs_back(world.programs, x->seg);
}

static struct attached back(int kind)
{
	struct attached x = attach(world_segment("x", 7), kind);

	come_back(&x, MISSING, 1);
	return x;
}

static void loads(struct attached *x, uint64_t page, uint64_t value)
{
	ck_assert_uint_eq(prog_load(&x->prog, x->addr + page * RAMP_PAGE_BYTES), value);
}

static void all_is_right(struct attached *x)
{
	for (uint64_t page = 0; page < PAGES; page += page == MISSING - 1 ? 1 : 37)
		loads(x, page, page == MISSING ? FILLED : THERE);
	loads(x, MISSING, FILLED);
}

/* The page comes by itself. */
static void come(struct seg *seg, uint64_t page)
{
	uint64_t word = FILLED;

	ck_assert_uint_eq(pages_claim(seg, page, 1), 1);
	for (uint64_t at = 0; at < RAMP_PAGE_BYTES; at += sizeof(word))
		ck_assert_int_eq(pwrite(seg_fd(seg), &word, sizeof(word),
					(off_t)(page * RAMP_PAGE_BYTES + at)),
				 (ssize_t)sizeof(word));
	pages_arrive(seg, page, 1);
}

/* ---- tests ---------------------------------------------------------------------------------- */

START_TEST(what_is_present_is_not_registered_when_it_comes_back)
{
	struct attached x = back(ASKS);
	uint64_t faults;

	ck_assert_int_eq(registered(&x), SECOND_ONLY);
	faults = world_faults();
	for (uint64_t page = 0; page < PAGES / 2; page += 7)
		loads(&x, page, THERE);
	ck_assert_int_eq(prog_at(&x.prog, PROG_STORE, x.addr + 16).result, 0);
	ck_assert_uint_eq(world_faults(), faults);
	loads(&x, MISSING, FILLED);
	ck_assert_uint_gt(world_faults(), faults);
	all_is_right(&x);
	world_pulled(x.seg);
	for (int i = 0; i < 2000 && registered(&x) != NONE; i++)
		usleep(2000);
	ck_assert_int_eq(registered(&x), NONE);
	all_is_right(&x);
	world_detached(&x);
}
END_TEST

START_TEST(what_comes_is_unregistered_and_what_is_missing_stays)
{
	struct attached x = attach(world_segment("x", 7), ASKS);

	come_back(&x, MISSING - 200, 201); /* of both stretches */
	ck_assert_int_eq(registered(&x), BOTH);
	for (uint64_t page = MISSING - 200; page < PAGES / 2; page++)
		come(x.seg, page);
	trim(&x, SECOND_ONLY);
	loads(&x, MISSING - 200, FILLED);
	ck_assert_int_eq(registered(&x), SECOND_ONLY);
	loads(&x, MISSING, FILLED);
	world_detached(&x);
}
END_TEST

/* A thread that waits for a page when its stretch is unregistered continues. */
START_TEST(what_waits_continues)
{
	struct prog_report r;
	struct attached x;

	world.deaf = true;
	x = back(ASKS);
	prog_send(&x.prog, &(struct prog_order){.op = PROG_LOAD,
						.addr = x.addr + MISSING * RAMP_PAGE_BYTES});
	ck_assert(!prog_wait(&x.prog, &r, BLOCKED_MS));
	come(x.seg, MISSING);
	programs_trim(world.programs, x.seg);
	ck_assert(prog_wait(&x.prog, &r, ANSWER_MS));
	ck_assert_uint_eq(r.value, FILLED);
	ck_assert_int_eq(registered(&x), NONE);
	world.deaf = false;
	world_detached(&x);
}
END_TEST

START_TEST(a_new_mapping_and_a_forks_child)
{
	struct seg *seg = world_take(world_segment("x", 1), MISSING, 1);
	struct ramp_err err = {0};
	struct prog_report r;
	struct attached x;
	uint64_t faults;

	must(programs_pulling(world.programs, seg, &err), &err);
	x = attach(seg, ASKS);
	ck_assert_int_eq(registered(&x), SECOND_ONLY);
	faults = world_faults();
	for (int i = 0; i < 2; i++) {
		struct prog_order order = {.op = PROG_FORK, .addr = x.addr, .flags = ASKS};

		order.addr += i ? MISSING * RAMP_PAGE_BYTES : 0;
		r = prog_do(&x.prog, &order);
		ck_assert_int_eq(r.result, 0);
		ck_assert_uint_eq(r.value, i ? FILLED : THERE);
		ck_assert_int_eq(world_faults() > faults, i);
	}
	all_is_right(&x);
	world_detached(&x);
}
END_TEST

START_TEST(an_older_agent_does_not_say_when_mappings_grow)
{
	struct attached x = back(OLDER);

	ck_assert_int_eq(registered(&x), BOTH);
	trim_in_vain(&x, BOTH);
	all_is_right(&x);
	world_detached(&x);
}
END_TEST

/* A mapping grows by mremap(2) from a page that is present over one that is missing. */
START_TEST(a_mapping_grows)
{
	struct attached x = back(ASKS);
	struct prog_order unmap = {.op = PROG_MUNMAP, .addr = x.addr + SECOND, .len = SECOND};
	struct prog_order grow = {
		.op = PROG_REMAP, .addr = x.addr, .offset = SECOND, .len = SEG_BYTES};
	uint64_t last = 1;

	ck_assert_int_eq(prog_do(&x.prog, &unmap).result, 0);
	ck_assert_int_eq(prog_at(&x.prog, PROG_GROW, 0).result, 0);
	ck_assert(is_registered(x.prog.pid, x.addr));
	if (_i) { /* the next daemon hears of it */
		world_programs_stop();
		world_programs_start();
		world_wait_session(&x.prog, ++last);
	}
	programs_trim(world.programs, x.seg);
	usleep(20000);
	ck_assert_int_eq(prog_do(&x.prog, &grow).result, 0);
	loads(&x, MISSING, FILLED);
	trim_in_vain(&x, BOTH);
	all_is_right(&x);
	world_detached(&x);
}
END_TEST

START_TEST(a_daemon_that_comes_back_leaves_it_so)
{
	struct attached x = back(ASKS);

	world_programs_stop();
	world_programs_start();
	world_wait_session(&x.prog, 2);
	ck_assert_int_eq(registered(&x), SECOND_ONLY);
	if (_i) { /* a page of the other one has become SIGBUS, as far as this daemon knows */
		programs_poison(world.programs, x.seg, 1, "no room");
		usleep(20000);
		trim_in_vain(&x, SECOND_ONLY);
	}
	all_is_right(&x);
	world_pulled(x.seg);
	world_revert(x.seg);
	come_back(&x, 1, 1);
	ck_assert_int_eq(registered(&x), FIRST_ONLY);
	world_detached(&x);
}
END_TEST

/* All stays registered where this fails: to unregister, to register a part; and a program has too many mappings. */
START_TEST(what_fails)
{
	struct attached x, y;

	if (_i == 0)
		unregister_fails = ENOMEM;
	else if (_i == 1)
		unregister_fails = EINVAL;
	else if (_i == 2)
		register_fails = ENOMEM;
	else
		n_mappings = _i == 3 ? 16384 : -EBUSY;
	x = back(ASKS);
	/* To register a part is not needed to come back. */
	ck_assert_int_eq(registered(&x), _i == 2 ? SECOND_ONLY : BOTH);
	y = attach(seg_get(x.seg), ASKS);
	ck_assert_int_eq(registered(&y), _i < 2 ? SECOND_ONLY : BOTH);
	loads(&y, 3, THERE);
	nothing_fails();
	trim(&x, SECOND_ONLY);
	trim(&y, SECOND_ONLY);
	all_is_right(&x);
	all_is_right(&y);
	world_detached(&y);
	world_detached(&x);
}
END_TEST

START_TEST(a_program_that_has_ended)
{
	struct attached x = back(ASKS), y = attach(seg_get(x.seg), ASKS);

	come(x.seg, MISSING);
	kill(x.prog.pid, SIGKILL);
	trim(&y, NONE);
	all_is_right(&y);
	world_detached(&y);
	world_detached(&x);
}
END_TEST

/* A page that is lost, and SIGBUS, is written over. Until that is mapped its stretch stays registered. */
START_TEST(a_page_that_is_sigbus)
{
	struct attached x = back(ASKS);
	struct prog_report r = {0};

	ck_assert_uint_eq(pages_lose(x.seg, MISSING, 1), 1);
	programs_poison(world.programs, x.seg, MISSING, "it is lost");
	for (int i = 0; i < 2000 && r.result != -SIGBUS; i++)
		r = prog_at(&x.prog, PROG_LOAD, x.addr + MISSING * RAMP_PAGE_BYTES);
	ck_assert_int_eq(r.result, -SIGBUS);
	trim_in_vain(&x, SECOND_ONLY);
	ck_assert_uint_eq(pages_claim_cut(x.seg, MISSING, 1), 1);
	ck_assert_int_eq(
		pwrite(seg_fd(x.seg), &(uint64_t){5}, 8, (off_t)(MISSING * RAMP_PAGE_BYTES)), 8);
	pages_arrive(x.seg, MISSING, 1);
	trim_in_vain(&x, SECOND_ONLY);
	programs_written(world.programs, seg_id(x.seg), MISSING, 1);
	loads(&x, MISSING, 5);
	trim(&x, NONE);
	loads(&x, MISSING, 5);
	world_detached(&x);
}
END_TEST

/* A freeze registers all; access that is given back leaves it so. */
START_TEST(a_freeze)
{
	struct attached x = back(ASKS);
	struct prog_report r;

	world_freeze(x.seg);
	ck_assert_int_eq(registered(&x), BOTH);
	trim_in_vain(&x, BOTH);
	prog_send(&x.prog, &(struct prog_order){.op = PROG_LOAD, .addr = x.addr});
	ck_assert(!prog_wait(&x.prog, &r, BLOCKED_MS));
	programs_restore(world.programs, x.seg);
	ck_assert(prog_wait(&x.prog, &r, ANSWER_MS));
	ck_assert_uint_eq(r.value, THERE);
	trim(&x, SECOND_ONLY);
	all_is_right(&x);
	world_detached(&x);
}
END_TEST

/* Nothing is divided while a move has begun, since it knows the mappings. */
START_TEST(a_move_that_has_begun)
{
	struct attached x = back(ASKS);
	struct ramp_err err = {0};

	world_may_move(x.seg);
	must(programs_prelook(world.programs, x.seg, &err), &err);
	trim_in_vain(&x, BOTH);
	programs_restore(world.programs, x.seg);
	trim(&x, SECOND_ONLY);
	world_detached(&x);
}
END_TEST

/* A program that splits the mapping, takes protection away, and drops entries meanwhile. */
START_TEST(a_program_that_changes_its_mapping)
{
	struct attached x = back(ASKS);
	struct prog_order split = {.op = PROG_SPLIT, .addr = x.addr, .len = SEG_BYTES, .value = 1};
	struct prog_order drop = {
		.op = PROG_ADVISE, .addr = x.addr, .len = SEG_BYTES, .value = MADV_DONTNEED};
	struct prog_order collapse = {
		.op = PROG_ADVISE, .addr = x.addr, .len = SEG_BYTES, .value = MADV_COLLAPSE};

	ck_assert_int_eq(prog_do(&x.prog, &split).result, 0);
	for (int i = 0; i < 50; i++) {
		programs_trim(world.programs, x.seg);
		(void)prog_do(&x.prog, &collapse);
		loads(&x, (uint64_t)i, THERE);
		ck_assert_int_eq(prog_do(&x.prog, &drop).result, 0);
	}
	split.value = 0;
	ck_assert_int_eq(prog_do(&x.prog, &split).result, 0);
	trim(&x, SECOND_ONLY);
	all_is_right(&x);
	world_detached(&x);
}
END_TEST

/* Two programs store into all of it while pages come and stretches are unregistered. */
START_TEST(writers_meanwhile)
{
	struct attached x = attach(world_segment("x", 7), ASKS), y;
	struct prog_order writers = {.op = PROG_WRITERS, .value = 2, .len = SEG_BYTES / 4};
	uint64_t page;

	come_back(&x, PAGES / 4, PAGES / 2);
	y = attach(seg_get(x.seg), ASKS);
	memory_fill(x.seg, 0, 0, SEG_BYTES / 4);
	memory_fill(x.seg, 0, 3 * SEG_BYTES / 4, SEG_BYTES / 4);
	writers.addr = x.addr;
	prog_do(&x.prog, &writers);
	writers.addr = y.addr + 3 * SEG_BYTES / 4;
	prog_do(&y.prog, &writers);
	for (page = PAGES / 4; page < 3 * PAGES / 4; page++) {
		if (pages_get(x.seg, page) == PAGE_REMOTE)
			come(x.seg, page);
		if (page % 64 == 0)
			programs_trim(world.programs, x.seg);
	}
	trim(&x, NONE);
	trim(&y, NONE);
	ck_assert_uint_eq(prog_at(&x.prog, PROG_STOP_WRITERS, 0).value, 0);
	ck_assert_uint_eq(prog_at(&y.prog, PROG_STOP_WRITERS, 0).value, 0);
	for (page = PAGES / 4; page < 3 * PAGES / 4; page++)
		loads(page % 2 ? &x : &y, page, FILLED);
	world_detached(&y);
	world_detached(&x);
}
END_TEST

static void add_tests(TCase *tc)
{
	tcase_add_checked_fixture(tc, nothing_fails, nothing_fails);
	tcase_add_test(tc, what_is_present_is_not_registered_when_it_comes_back);
	tcase_add_test(tc, what_comes_is_unregistered_and_what_is_missing_stays);
	tcase_add_test(tc, what_waits_continues);
	tcase_add_test(tc, a_new_mapping_and_a_forks_child);
	tcase_add_test(tc, an_older_agent_does_not_say_when_mappings_grow);
	tcase_add_loop_test(tc, a_mapping_grows, 0, 2);
	tcase_add_loop_test(tc, a_daemon_that_comes_back_leaves_it_so, 0, 2);
	tcase_add_loop_test(tc, what_fails, 0, 5);
	tcase_add_test(tc, a_program_that_has_ended);
	tcase_add_test(tc, a_page_that_is_sigbus);
	tcase_add_test(tc, a_freeze);
	tcase_add_test(tc, a_move_that_has_begun);
	tcase_add_test(tc, a_program_that_changes_its_mapping);
	tcase_add_test(tc, writers_meanwhile);
}

int main(int argc, char **argv)
{
	return world_main(argc, argv, "stretches", add_tests);
}
