/*
 * A revoke moves page tables away, and back: with a program whose agent can do that, and with one that
 * does it wrong; while the daemon is replaced, and while the program stops.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/kernel.h"
#include "programs/client/away.h"
#include "programs/proc/mappings.h"
#include "programs_world.h"

#define THREES UINT64_C(0x0303030303030303)
#define PAGES  (SEG_BYTES / RAMP_PAGE_BYTES)
#define KNOWS  13
#define STRAYS 14
#define STOPS  15
#define GIB    (UINT64_C(1) << 30)

/* Returns for how many pages of the segment the program has an entry. */
static uint64_t mapped_pages(const struct attached *x)
{
	char path[64];
	uint64_t pages = 0, entry;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)x->prog.pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	for (uint64_t at = x->addr; at < x->addr + SEG_BYTES; at += RAMP_PAGE_BYTES) {
		ck_assert_int_eq(pread(fd, &entry, sizeof(entry),
				       (off_t)(at / RAMP_PAGE_BYTES * sizeof(entry))),
				 sizeof(entry));
		pages += entry >> 63;
	}
	close(fd);
	return pages;
}

/* Returns how many mappings the program has where page tables are moved to. */
static unsigned int places(const struct attached *x)
{
	char path[64], line[512];
	unsigned int count = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)x->prog.pid);
	maps = fopen(path, "re");
	while (fgets(line, sizeof(line), maps)) {
		uint64_t start, end;

		ck_assert_int_eq(sscanf(line, "%" SCNx64 "-%" SCNx64, &start, &end), 2);
		count += start != x->addr && start % GIB == x->addr % GIB &&
			 end - start == SEG_BYTES;
	}
	fclose(maps);
	return count;
}

/* An agent that unmaps answers before. */
static void await_no_places(const struct attached *x)
{
	for (int i = 0; i < 10000 && places(x); i++)
		usleep(1000);
	ck_assert_uint_eq(places(x), 0);
}

/* Touches every page, as often as it takes: the kernel may take entries. */
static void touch_all(struct attached *x)
{
	for (int tries = 20; mapped_pages(x) < PAGES; tries--) {
		ck_assert_int_gt(tries, 0);
		for (uint64_t at = 0; at < SEG_BYTES; at += RAMP_PAGE_BYTES)
			prog_load(&x->prog, x->addr + at);
	}
}

/* Returns a program with an agent of that kind, which has the segment mapped and all of its pages
   touched, by entries of 4 KiB. */
static struct attached touched(struct seg *seg, uint64_t kind, int access_mode)
{
	struct prog_order session = {.op = PROG_SESSION, .value = kind};
	struct attached x = {.seg = seg};

	/* khugepaged would make huge ones of them. The program inherits it. */
	ck_assert_int_eq(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
	prog_start(&x.prog, world.socket);
	ck_assert_int_eq(prog_do(&x.prog, &session).result, 0);
	x.addr = world_attach(&x.prog, seg, access_mode);
	touch_all(&x);
	return x;
}

static void is_blocked(struct attached *x)
{
	struct prog_report r;

	prog_send(&x->prog, &(struct prog_order){.op = PROG_LOAD, .addr = x->addr});
	ck_assert(!prog_wait(&x->prog, &r, BLOCKED_MS));
}

static void goes_on(struct attached *x)
{
	struct prog_report r;

	ck_assert(prog_wait(&x->prog, &r, ANSWER_MS));
	ck_assert_uint_eq(r.value, THREES);
}

/* Of mappings that can be written, and of private ones that can't. */
START_TEST(page_tables_go_away_and_come_back_whole)
{
	struct attached x = touched(world_segment("x", 3), KNOWS, _i ? O_RDONLY : O_RDWR);

	for (int tries = 20;; tries--) {
		world_freeze(x.seg);
		ck_assert_uint_eq(mapped_pages(&x), 0);
		ck_assert_uint_eq(places(&x), 1);
		is_blocked(&x);
		programs_restore(world.programs, x.seg);
		goes_on(&x);
		ck_assert_uint_eq(places(&x), 0);
		if (mapped_pages(&x) == PAGES) /* the kernel may have taken some */
			break;
		ck_assert_int_gt(tries, 0);
		touch_all(&x);
	}
	world_detached(&x);
}
END_TEST

START_TEST(no_store_comes_through_and_none_is_lost)
{
	struct attached x = touched(world_segment("x", 0), KNOWS, O_RDWR);
	struct prog_order writers = {.op = PROG_WRITERS, .len = SEG_BYTES, .value = 3};
	uint8_t *before, *after;

	writers.addr = x.addr;
	prog_do(&x.prog, &writers);
	for (int i = 0; i < 30; i++) {
		usleep(2000);
		world_freeze(x.seg);
		before = world_contents(x.seg);
		usleep(2000);
		after = world_contents(x.seg);
		ck_assert_int_eq(memcmp(before, after, SEG_BYTES), 0);
		free(before);
		free(after);
		programs_restore(world.programs, x.seg);
	}
	ck_assert_uint_eq(prog_at(&x.prog, PROG_STOP_WRITERS, 0).value, 0);
	ck_assert_uint_eq(places(&x), 0);
	world_detached(&x);
}
END_TEST

START_TEST(a_look_without_a_revoke_gives_the_places_back)
{
	struct attached x = touched(world_segment("x", 3), KNOWS, O_RDWR);
	struct ramp_err err = {0};

	must(programs_prelook(world.programs, x.seg, &err), &err);
	ck_assert_uint_eq(places(&x), 1);
	ck_assert_uint_eq(prog_load(&x.prog, x.addr), THREES);
	programs_restore(world.programs, x.seg);
	ck_assert_uint_eq(places(&x), 0);
	world_detached(&x);
}
END_TEST

/* A program that attaches after the look outdates it: all mappings are looked at in the window. */
START_TEST(a_full_look_knows_what_is_away)
{
	struct attached x = touched(world_segment("x", 3), KNOWS, O_RDWR), y;
	struct ramp_err err = {0};

	must(programs_prelook(world.programs, x.seg, &err), &err);
	y = world_attached(seg_get(x.seg), O_RDWR);
	must(programs_revoke(world.programs, x.seg, REVOKE_MS, &err), &err);
	ck_assert_uint_eq(places(&x), 1);
	is_blocked(&x);
	programs_restore(world.programs, x.seg);
	goes_on(&x);
	ck_assert_uint_eq(prog_load(&y.prog, y.addr), THREES);
	world_detached(&y);
	world_detached(&x);
}
END_TEST

static _Atomic int unnoted; /* looks that find no place yet */

size_t __real_away_places(struct client *client, ramp_segment_t id,
			  struct address_range places[static AWAY_MAX]);
size_t __wrap_away_places(struct client *client, ramp_segment_t id,
			  struct address_range places[static AWAY_MAX]);

size_t __wrap_away_places(struct client *client, ramp_segment_t id,
			  struct address_range places[static AWAY_MAX])
{
	return atomic_fetch_sub(&unnoted, 1) > 0 ? 0 : __real_away_places(client, id, places);
}

/* A thread that has read the event, for another segment's revoke, has no processor just then. */
START_TEST(a_full_look_waits_for_what_is_not_noted_yet)
{
	struct attached x = touched(world_segment("x", 3), KNOWS, O_RDWR), y;
	struct ramp_err err = {0};

	must(programs_prelook(world.programs, x.seg, &err), &err);
	y = world_attached(seg_get(x.seg), O_RDWR);
	atomic_store(&unnoted, 3);
	must(programs_revoke(world.programs, x.seg, REVOKE_MS, &err), &err);
	ck_assert_int_lt(atomic_load(&unnoted), 1);
	programs_restore(world.programs, x.seg);
	world_detached(&y);
	world_detached(&x);
}
END_TEST

START_TEST(what_is_moved_to_another_place_makes_it_busy)
{
	struct attached x = touched(world_segment("x", 3), STRAYS, O_RDWR);
	struct ramp_err err = {0};

	must(programs_prelook(world.programs, x.seg, &err), &err);
	ck_assert_int_eq(programs_revoke(world.programs, x.seg, REVOKE_MS, &err), -EBUSY);
	ck_assert_ptr_nonnull(strstr(err.text, "maps it and has changed that"));
	ck_assert_uint_eq(prog_load(&x.prog, x.addr), THREES);
	world_detached(&x);
}
END_TEST

/* 0: the program is told; 1: it has unmapped the segment meanwhile. */
START_TEST(what_is_away_of_a_segment_that_has_gone_is_unmapped)
{
	struct attached x = touched(world_segment("x", 3), KNOWS, O_RDWR);
	struct prog_order unmap = {.op = PROG_MUNMAP, .addr = x.addr, .len = SEG_BYTES};

	world_freeze(x.seg);
	ck_assert_uint_eq(places(&x), 1);
	if (_i)
		ck_assert_int_eq(prog_do(&x.prog, &unmap).result, 0);
	world_give(x.seg);
	programs_gone(world.programs, x.seg, "b");
	await_no_places(&x);
	ck_assert(!programs_mapped(world.programs, x.seg));
	if (!_i)
		ck_assert_int_eq(prog_at(&x.prog, PROG_LOAD, x.addr).result, -SIGBUS);
	world_detached(&x);
}
END_TEST

static _Atomic unsigned looks;

int __real_client_learn(struct programs *p, struct client *client);
int __wrap_client_learn(struct programs *p, struct client *client);

int __wrap_client_learn(struct programs *p, struct client *client)
{
	atomic_fetch_add(&looks, 1);
	return __real_client_learn(p, client);
}

/* The mapping comes back registered, and its move into its place is an event. */
START_TEST(what_comes_back_costs_no_look_at_all_mappings)
{
	struct attached x = touched(world_segment("x", 3), KNOWS, O_RDWR);
	struct ramp_err err = {0};
	unsigned before;

	world_freeze(x.seg);
	world_give(x.seg);
	programs_gone(world.programs, x.seg, "b");
	x.seg = world_take(x.seg, 0, SEG_BYTES / RAMP_PAGE_BYTES);
	ck_assert_int_eq(programs_pulling(world.programs, x.seg, &err), 0);
	before = atomic_load(&looks);
	programs_back(world.programs, x.seg);
	ck_assert_uint_eq(prog_load(&x.prog, x.addr), FILLED);
	usleep(200000); /* a look that was asked for would come by now */
	ck_assert_uint_eq(atomic_load(&looks), before);
	world_detached(&x);
}
END_TEST

static void await_session(void)
{
	struct programs_status status = {0};

	for (int i = 0; i < 10000 && !status.sessions; i++) {
		usleep(1000);
		programs_status(world.programs, &status);
	}
	ck_assert_uint_eq(status.sessions, 1);
}

/* 0: this node owns the segment all the time; 1: it was GIVEN, and is given back; 2: it has gone. */
START_TEST(a_daemon_that_comes_back_finds_what_is_away)
{
	struct attached x = touched(world_segment("x", 3), KNOWS, O_RDWR);

	world_freeze(x.seg);
	is_blocked(&x);
	if (_i)
		world_give(x.seg);
	world_programs_stop();
	world_programs_start();
	await_session();
	if (_i) {
		struct prog_report r;

		ck_assert(!prog_wait(&x.prog, &r, BLOCKED_MS));
		ck_assert_uint_eq(places(&x), 1);
	}
	if (_i == 1) {
		world_revert(x.seg);
		programs_restore(world.programs, x.seg);
	} else if (_i == 2) {
		struct prog_report r;

		programs_gone(world.programs, x.seg, "b");
		ck_assert(prog_wait(&x.prog, &r, ANSWER_MS));
		ck_assert_int_eq(r.result, -SIGBUS);
	}
	if (_i < 2)
		goes_on(&x);
	await_no_places(&x);
	world_detached(&x);
}
END_TEST

/* When it continues it would give access back in the midst of the next move. */
START_TEST(a_stopped_program_that_owes_a_return_is_not_revoked_from_outside)
{
	struct attached x = touched(world_segment("x", 3), STOPS, O_RDWR);
	struct ramp_err err = {0};

	world_freeze(x.seg);
	programs_restore(world.programs, x.seg);
	ck_assert_int_eq(waitpid(x.prog.pid, NULL, WUNTRACED), x.prog.pid);
	ck_assert_int_eq(programs_revoke(world.programs, x.seg, REVOKE_MS, &err), -EBUSY);
	ck_assert_ptr_nonnull(strstr(err.text, "has not taken back what an earlier move left"));
	kill(x.prog.pid, SIGCONT);
	await_no_places(&x);
	ck_assert_uint_eq(prog_load(&x.prog, x.addr), THREES);
	world_freeze(x.seg);
	is_blocked(&x);
	programs_restore(world.programs, x.seg);
	goes_on(&x);
	world_detached(&x);
}
END_TEST

/* ---- markers in page tables ----------------------------------------------------------------- */

/* A page that is write-protected and not there has a marker, as a poisoned one has. */
START_TEST(a_protected_page_is_not_taken_for_a_poisoned_one)
{
	struct mappings mappings;
	uint64_t at, found = 0;
	int file = memfd_create("markers", MFD_CLOEXEC);
	int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	ck_assert_int_eq(ftruncate(file, SEG_BYTES), 0);
	at = (uintptr_t)mmap(NULL, SEG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	ck_assert_int_eq(kernel_uffd_api(uffd, UFFD_FEATURE_MISSING_SHMEM |
						       UFFD_FEATURE_MINOR_SHMEM |
						       UFFD_FEATURE_WP_HUGETLBFS_SHMEM |
						       KERNEL_UFFD_WP_UNPOPULATED |
						       KERNEL_UFFD_WP_ASYNC | KERNEL_UFFD_POISON),
			 0);
	ck_assert_int_eq(kernel_uffd_register(uffd, at, SEG_BYTES, KERNEL_UFFD_MODES), 0);
	ck_assert_int_eq(kernel_uffd_protect(uffd, at, SEG_BYTES, true), 0);
	mappings_init(&mappings, 0);
	ck_assert_int_eq(mappings_open(&mappings, getpid(), 0), 0);
	ck_assert_int_eq(mappings_poisoned(&mappings, at, at + SEG_BYTES, &found), 0);
	ck_assert_int_eq(kernel_uffd_protect(uffd, at + MIB, RAMP_PAGE_BYTES, false), 0);
	ck_assert_int_eq(kernel_uffd_poison(uffd, at + MIB, RAMP_PAGE_BYTES), RAMP_PAGE_BYTES);
	ck_assert_int_eq(mappings_poisoned(&mappings, at, at + SEG_BYTES, &found), 1);
	ck_assert_uint_eq(found, at + MIB);
	mappings_close(&mappings);
	close(uffd);
	close(file);
}
END_TEST

static void add_tests(TCase *tc)
{
	tcase_add_loop_test(tc, page_tables_go_away_and_come_back_whole, 0, 2);
	tcase_add_test(tc, no_store_comes_through_and_none_is_lost);
	tcase_add_test(tc, a_look_without_a_revoke_gives_the_places_back);
	tcase_add_test(tc, a_full_look_knows_what_is_away);
	tcase_add_test(tc, a_full_look_waits_for_what_is_not_noted_yet);
	tcase_add_test(tc, what_is_moved_to_another_place_makes_it_busy);
	tcase_add_test(tc, what_comes_back_costs_no_look_at_all_mappings);
	tcase_add_loop_test(tc, what_is_away_of_a_segment_that_has_gone_is_unmapped, 0, 2);
	tcase_add_loop_test(tc, a_daemon_that_comes_back_finds_what_is_away, 0, 3);
	tcase_add_test(tc, a_protected_page_is_not_taken_for_a_poisoned_one);
	tcase_add_test(tc, a_stopped_program_that_owes_a_return_is_not_revoked_from_outside);
}

int main(int argc, char **argv)
{
	return world_main(argc, argv, "away", add_tests);
}
