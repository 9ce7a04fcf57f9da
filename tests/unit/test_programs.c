/*
 * Local programs against the daemon's side: real processes with an agent, the store's tmpfs, one
 * voter's metadata, a pager that fills pages with a pattern.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "programs_world.h"

static void wait_for_attachments(uint32_t n)
{
	struct programs_status status;

	for (int i = 0; i < 5000; i++) {
		programs_status(world.programs, &status);
		if (status.attachments == n)
			return;
		usleep(1000);
	}
	ck_abort_msg("%u attachments, not %u", status.attachments, n);
}

/* ---- attach --------------------------------------------------------------------------------- */

START_TEST(a_whole_segment_is_mapped_at_its_extent_and_not_registered)
{
	struct seg *seg = world_segment("x", 0x5a);
	struct segment_row row;
	struct prog prog;
	uint64_t addr;

	world_prog(&prog);
	addr = world_attach(&prog, seg, O_RDWR);
	ck_assert_int_eq(meta_segment(world.meta, seg_id(seg), &row), 0);
	ck_assert_uint_eq(addr, row.extent_addr);
	ck_assert_uint_eq(row.extent_len, 64 * MIB);
	ck_assert_uint_eq(prog_load(&prog, addr), UINT64_C(0x5a5a5a5a5a5a5a5a));
	ck_assert_int_eq(prog_at(&prog, PROG_STORE, addr + 8).result, 0);
	ck_assert_uint_eq(world_faults(), 0);
	ck_assert(programs_mapped(world.programs, seg));
	prog_end(&prog);
	wait_for_attachments(0);
	ck_assert(!programs_mapped(world.programs, seg));
	seg_put(seg);
}
END_TEST

START_TEST(what_the_open_or_the_extent_does_not_allow_is_refused)
{
	struct seg *seg = world_segment("x", 1);
	struct prog prog;
	struct prog_report r;

	world_prog(&prog);
	ck_assert_int_eq(
		world_try_attach(&prog, seg, O_RDONLY, PROT_READ | PROT_WRITE, 0, SEG_BYTES).result,
		-EACCES);
	ck_assert_int_eq(world_try_attach(&prog, seg, O_RDWR, PROT_READ, 1, SEG_BYTES).result,
			 -EINVAL);
	ck_assert_int_eq(world_try_attach(&prog, seg, O_RDWR, PROT_READ, 0, 0).result, -EINVAL);
	ck_assert_int_eq(
		world_try_attach(&prog, seg, O_RDWR, PROT_READ, -(uint64_t)4096, 8192).result,
		-EINVAL);
	r = world_try_attach(&prog, seg, O_RDONLY, PROT_READ, 4096, SEG_BYTES - 4096);
	ck_assert_int_eq(r.result, 0);
	ck_assert_uint_eq(r.all, 64 * MIB);
	ck_assert_int_eq(prog_at(&prog, PROG_STORE, r.addr).result, -SIGSEGV);
	/* The same place again: the program's shim would have counted. */
	ck_assert_int_eq(world_try_attach(&prog, seg, O_RDONLY, PROT_READ, 0, SEG_BYTES).result,
			 -EEXIST);
	r = world_try_attach(&prog, seg, O_RDWR, PROT_READ, 0, 65 * MIB);
	ck_assert_int_eq(r.result, -ENOMEM);
	ck_assert_msg(strstr(r.text, "user.ramp.extent") != NULL, "%s", r.text);
	prog_end(&prog);
	seg_put(seg);
}
END_TEST

START_TEST(a_token_is_good_for_one_attach_by_one_process)
{
	struct seg *seg = world_segment("x", 1);
	struct prog one, other;
	struct prog_order order = {.op = PROG_ATTACH, .len = SEG_BYTES, .prot = PROT_READ};

	world_prog(&one);
	world_prog(&other);
	order.token[0] = order.token[1] = 42;
	ck_assert_int_eq(prog_do(&one, &order).result, -EPERM);
	programs_token(world.programs, seg_id(seg), O_RDWR, one.pid, order.token, NULL);
	ck_assert_int_eq(prog_do(&other, &order).result, -EPERM);
	ck_assert_int_eq(prog_do(&one, &order).result, -EPERM); /* that attempt used the token up */
	programs_token(world.programs, seg_id(seg), O_RDWR, one.pid, order.token, NULL);
	ck_assert_int_eq(prog_do(&one, &order).result, 0);
	ck_assert_int_eq(prog_do(&one, &order).result, -EPERM);
	programs_token(world.programs, 999999, O_RDWR, one.pid, order.token, NULL);
	ck_assert_int_eq(prog_do(&one, &order).result, -ENOENT);
	prog_end(&one);
	prog_end(&other);
	seg_put(seg);
}
END_TEST

START_TEST(a_process_without_a_session_waits_and_is_refused)
{
	struct seg *seg = world_segment("x", 1);
	struct prog prog;

	prog_start(&prog, world.socket);
	ck_assert_int_eq(world_try_attach(&prog, seg, O_RDWR, PROT_READ, 0, SEG_BYTES).result,
			 -ESRCH);
	prog_end(&prog);
	seg_put(seg);
}
END_TEST

START_TEST(a_fork_child_adopts_what_its_parent_has)
{
	struct seg *x = world_segment("x", 0x21), *y = world_segment("y", 0x22);
	struct prog prog;
	struct prog_report r;
	uint64_t addr;

	world_prog(&prog);
	addr = world_attach(&prog, x, O_RDWR);
	world_attach(&prog, y, O_RDONLY);
	r = prog_at(&prog, PROG_FORK, addr);
	ck_assert_int_eq(r.result, 0);
	ck_assert_uint_eq(r.all, 2);
	ck_assert_uint_eq(r.value, UINT64_C(0x2121212121212121));
	r = prog_do(&prog, &(struct prog_order){.op = PROG_FORK, .addr = addr, .value = 1});
	ck_assert_int_eq(r.result, 0);
	ck_assert_uint_eq(r.value, UINT64_C(0x2121212121212121));
	prog_end(&prog);
	seg_put(x);
	seg_put(y);
}
END_TEST

/* ---- being pulled --------------------------------------------------------------------------- */

START_TEST(remote_pages_wait_for_the_pager)
{
	struct seg *seg = world_take(world_segment("x", 1), 10, 20);
	struct attached x;
	struct ramp_err err = {0};

	ck_assert_int_eq(programs_pulling(world.programs, seg, &err), 0);
	x = world_attached(seg, O_RDWR);
	ck_assert_uint_eq(prog_load(&x.prog, x.addr + 10 * 4096), FILLED);
	ck_assert_uint_eq(prog_load(&x.prog, x.addr + 29 * 4096), FILLED);
	ck_assert_uint_eq(prog_load(&x.prog, x.addr), UINT64_C(0x1111111111111111));
	ck_assert_uint_ge(world_faults(), 3);
	ck_assert_int_eq(prog_at(&x.prog, PROG_STORE, x.addr + 11 * 4096).result, 0);
	ck_assert_uint_eq(prog_load(&x.prog, x.addr + 11 * 4096 + 8), FILLED);
	world_pulled(x.seg);
	ck_assert_uint_eq(prog_load(&x.prog, x.addr + 100 * 4096), UINT64_C(0x1111111111111111));
	world_detached(&x);
}
END_TEST

/* How many reads from a userfaultfd fail. */
static atomic_uint reads_fail;
ssize_t __real_preadv2(int fd, const struct iovec *io, int count, off_t offset, int flags);
ssize_t __wrap_preadv2(int fd, const struct iovec *io, int count, off_t offset, int flags);

ssize_t __wrap_preadv2(int fd, const struct iovec *io, int count, off_t offset, int flags)
{
	unsigned left = atomic_load(&reads_fail);

	while (left && !atomic_compare_exchange_weak(&reads_fail, &left, left - 1))
		;
	if (left) {
		errno = EIO;
		return -1;
	}
	return __real_preadv2(fd, io, count, offset, flags);
}

START_TEST(a_read_of_page_faults_that_fails_is_tried_again)
{
	struct seg *seg = world_take(world_segment("x", 1), 0, 20);
	struct attached x;
	struct ramp_err err = {0};

	ck_assert_int_eq(programs_pulling(world.programs, seg, &err), 0);
	x = world_attached(seg, O_RDWR);
	atomic_store(&reads_fail, 2);
	ck_assert_uint_eq(prog_load(&x.prog, x.addr), FILLED);
	ck_assert_uint_eq(atomic_load(&reads_fail), 0);
	world_detached(&x);
}
END_TEST

/* All pages of a small segment may be here before the thread that begins its pull has come to say
   so. No thread would say again that they are. */
START_TEST(a_pull_that_was_over_at_once_registers_nothing)
{
	struct seg *seg = world_take(world_segment("x", 1), 10, 20);
	struct attached x;
	struct ramp_err err = {0};

	ck_assert_uint_eq(pages_claim(seg, 10, 20), 20);
	pages_arrive(seg, 10, 20);
	x = world_attached(seg, O_RDWR);
	world_pulled(x.seg);
	ck_assert_int_eq(programs_pulling(world.programs, x.seg, &err), 0);
	for (uint64_t page = 0; page < 30; page++)
		ck_assert_int_eq(
			prog_at(&x.prog, PROG_LOAD, x.addr + page * RAMP_PAGE_BYTES).result, 0);
	ck_assert_uint_eq(world_faults(), 0);
	world_detached(&x);
}
END_TEST

START_TEST(a_lost_page_is_sigbus_after_a_line)
{
	struct seg *seg = world_take(world_segment("x", 1), 10, 20);
	struct attached x;
	struct prog_report r;

	programs_pulling(world.programs, seg, NULL);
	x = world_attached(seg, O_RDWR);
	programs_poison(world.programs, x.seg, 15, "a/x: page 15 is lost");
	do
		r = prog_at(&x.prog, PROG_TEXT, 0);
	while (!r.value);
	ck_assert_str_eq(r.text, "rampfs: a/x: page 15 is lost");
	/* The line comes first; then the page. */
	for (int i = 0; i < 1000 && r.result != -SIGBUS; i++)
		r = prog_at(&x.prog, PROG_LOAD, x.addr + 15 * 4096);
	world_detached(&x);
}
END_TEST

/* ---- revoke --------------------------------------------------------------------------------- */

START_TEST(nothing_changes_after_a_revoke_and_everything_continues_after_restore)
{
	struct seg *seg = world_segment("x", 0);
	struct prog prog[2];
	struct prog_order writers = {.op = PROG_WRITERS, .len = SEG_BYTES, .value = 3};
	struct programs_status status;

	world_prog(&prog[0]);
	world_prog(&prog[1]);
	writers.addr = world_attach(&prog[0], seg, O_RDWR);
	world_attach(&prog[1], seg, O_RDONLY);
	prog_do(&prog[0], &writers);
	for (int i = 0; i < 20; i++) {
		uint8_t *before, *after;

		usleep(5000);
		world_freeze(seg);
		before = world_contents(seg);
		usleep(2000);
		after = world_contents(seg);
		ck_assert_int_eq(memcmp(before, after, SEG_BYTES), 0);
		free(before);
		free(after);
		programs_restore(world.programs, seg);
	}
	for (int i = 0; i < 2; i++) {
		struct prog_report r = prog_at(&prog[i], PROG_STOP_WRITERS, 0);

		ck_assert_uint_eq(r.value, 0);
		ck_assert(i == 1 || r.all > 1000);
	}
	programs_status(world.programs, &status);
	ck_assert_uint_eq(status.revokes, 20);
	ck_assert_uint_gt(status.revoke_max_us, 0);
	prog_end(&prog[0]);
	prog_end(&prog[1]);
	seg_put(seg);
}
END_TEST

/* Its main thread is a zombie without memory; the others continue to write. */
START_TEST(a_process_without_its_main_thread_is_stopped_like_any_other)
{
	struct seg *seg = world_segment("x", 0);
	struct prog prog, raw;
	struct prog_order writers = {.op = PROG_WRITERS, .len = SEG_BYTES, .value = 2};
	struct prog_order map = {.op = PROG_MAP_RAW, .addr = 0x10000000, .len = SEG_BYTES};
	struct ramp_err err = {0};

	world_prog(&prog);
	ck_assert_int_eq(prog_at(&prog, PROG_MAIN_ENDS, 0).result, 0);
	/* Its session begins again, too. */
	world_programs_stop();
	world_programs_start();
	writers.addr = world_attach(&prog, seg, O_RDWR);
	prog_do(&prog, &writers);
	for (int i = 0; i < 5; i++) {
		uint8_t *before, *after;

		usleep(5000);
		world_freeze(seg);
		before = world_contents(seg);
		usleep(2000);
		after = world_contents(seg);
		ck_assert_int_eq(memcmp(before, after, SEG_BYTES), 0);
		free(before);
		free(after);
		programs_restore(world.programs, seg);
	}
	ck_assert_uint_eq(prog_at(&prog, PROG_STOP_WRITERS, 0).value, 0);
	prog_end(&prog);
	wait_for_attachments(0);

	/* One that has no session is found, too. */
	prog_start(&raw, world.socket);
	world_path(seg, map.path);
	ck_assert_int_eq(prog_do(&raw, &map).result, 0);
	ck_assert_int_eq(prog_at(&raw, PROG_MAIN_ENDS, 0).result, 0);
	ck_assert(programs_mapped(world.programs, seg));
	ck_assert_int_eq(programs_may_move(world.programs, seg, &err), -EBUSY);
	prog_end(&raw);
	seg_put(seg);
}
END_TEST

/* By what the kernel remembers, a writable mapping at the place of an earlier read-only one looks
   read-only. */
START_TEST(a_process_without_its_main_thread_maps_writable_what_it_had_read_only)
{
	struct seg *seg = world_segment("x", 5);
	struct prog_order unmap = {.op = PROG_MUNMAP, .len = SEG_BYTES};
	struct prog prog;

	world_prog(&prog);
	ck_assert_int_eq(prog_at(&prog, PROG_MAIN_ENDS, 0).result, 0);
	unmap.addr = world_attach(&prog, seg, O_RDONLY);
	ck_assert_int_eq(prog_do(&prog, &unmap).result, 0);
	ck_assert_uint_eq(world_attach(&prog, seg, O_RDWR), unmap.addr);
	ck_assert_int_eq(prog_at(&prog, PROG_STORE, unmap.addr).result, 0);
	prog_end(&prog);
	seg_put(seg);
}
END_TEST

START_TEST(stale_answers_do_not_keep_a_segment_frozen)
{
	struct seg *seg = world_segment("x", 3);
	struct ramp_err err = {0};
	struct prog prog;
	uint64_t addr;

	prog_start(&prog, world.socket);
	ck_assert_int_eq(
		prog_do(&prog, &(struct prog_order){.op = PROG_SESSION, .value = 4}).result, 0);
	addr = world_attach(&prog, seg, O_RDWR);
	ck_assert_int_eq(programs_revoke(world.programs, seg, 200, &err), -EBUSY);
	ck_assert_msg(strstr(err.text, "does not answer"), "%s", err.text);
	ck_assert_uint_eq(prog_load(&prog, addr), UINT64_C(0x0303030303030303));
	prog_end(&prog);
	seg_put(seg);
}
END_TEST

START_TEST(private_copies_make_a_move_busy_and_are_kept)
{
	struct attached x = world_attached(world_segment("x", 3), O_RDONLY);
	struct prog_order writable = {
		.op = PROG_MPROTECT, .len = SEG_BYTES, .prot = PROT_READ | PROT_WRITE};
	struct ramp_err err = {0};
	uint8_t *bytes;

	prog_load(&x.prog, x.addr);
	ck_assert_int_eq(programs_may_move(world.programs, x.seg, &err), 0);
	/* Done past the shim, which would refuse it. */
	writable.addr = x.addr;
	ck_assert_int_eq(prog_do(&x.prog, &writable).result, 0);
	prog_do(&x.prog, &(struct prog_order){.op = PROG_STORE, .addr = x.addr, .value = 8});
	ck_assert_int_eq(programs_may_move(world.programs, x.seg, &err), -EBUSY);
	ck_assert_msg(strstr(err.text, "private copies"), "%s", err.text);
	ck_assert_uint_eq(prog_load(&x.prog, x.addr), 8);
	bytes = world_contents(x.seg);
	ck_assert_uint_eq(bytes[0], 3);
	free(bytes);
	world_detached(&x);
}
END_TEST

static struct programs_extent extent_of(struct seg *seg)
{
	struct segment_row row;

	ck_assert_int_eq(meta_segment(world.meta, seg_id(seg), &row), 0);
	return (struct programs_extent){row.id, row.epoch, row.extent_addr, row.extent_len};
}

static void give_back(const struct programs_extent *e)
{
	struct meta_command up = {.type = META_LEVEL_UP, .value = META_LEVEL_UNEXTENT};
	struct meta_command command = {
		.type = META_UNEXTENT, .id = e->id, .epoch = e->epoch, .value = e->addr};
	struct meta_reply reply;

	up.cid = meta_own_command(world.meta); /* the other member is silent */
	ck_assert_int_eq(meta_propose_wait(world.meta, &up, &reply), 0);
	command.cid = meta_own_command(world.meta);
	ck_assert_int_eq(meta_propose_wait(world.meta, &command, &reply), 0);
}

static void send_attach(struct prog *prog, struct seg *seg)
{
	struct prog_order order = {.op = PROG_ATTACH, .len = SEG_BYTES, .prot = PROT_READ};

	ck_assert_int_eq(
		programs_token(world.programs, seg_id(seg), O_RDONLY, prog->pid, order.token, NULL),
		0);
	prog_send(prog, &order);
}

START_TEST(addresses_go_back_only_where_nothing_lies_and_attaches_wait)
{
	struct attached x = world_attached(world_segment("x", 3), O_RDONLY);
	struct prog_order unmap = {.op = PROG_MUNMAP, .addr = x.addr, .len = SEG_BYTES};
	struct seg *other = world_segment("y", 4);
	struct programs_extent e = extent_of(x.seg);
	struct prog_report report;
	struct ramp_err err = {0};
	struct prog prog;
	char pid[32];

	ck_assert_int_eq(programs_hold_attaches(world.programs, e.id, &err), 0);
	ck_assert_int_eq(programs_hold_attaches(world.programs, e.id, &err), -EBUSY);
	ck_assert_int_eq(programs_give_back(world.programs, &e, &err), -EBUSY);
	snprintf(pid, sizeof(pid), "process %d (", (int)x.prog.pid);
	ck_assert_msg(strstr(err.text, pid), "%s", err.text);
	ck_assert_int_eq(prog_do(&x.prog, &unmap).result, 0);
	ck_assert_int_eq(programs_give_back(world.programs, &e, &err), 0);

	send_attach(&x.prog, x.seg);
	ck_assert(!prog_wait(&x.prog, &report, BLOCKED_MS));
	give_back(&e);
	world_prog(&prog);
	ck_assert_uint_eq(world_attach(&prog, other, O_RDONLY), x.addr);
	programs_release_attaches(world.programs, e.id);
	ck_assert(prog_wait(&x.prog, &report, ANSWER_MS));
	ck_assert_msg(report.result == 0, "%d %s", report.result, report.text);
	ck_assert_uint_eq(report.addr, extent_of(x.seg).addr);
	ck_assert_uint_ne(report.addr, x.addr);
	ck_assert_uint_eq(prog_load(&x.prog, report.addr) & 0xff, 3);
	prog_end(&prog);
	seg_put(other);
	world_detached(&x);
}
END_TEST

/* No program says what it unmaps, so the table may still show it there; also when that is an empty file. */
START_TEST(addresses_that_were_another_segments_are_the_new_ones)
{
	struct attached x = world_attached(world_segment("x", 3), O_RDWR);
	struct prog_order unmap = {.op = PROG_MUNMAP, .addr = x.addr, .len = SEG_BYTES};
	struct programs_extent e = extent_of(x.seg);
	struct seg *y = world_segment("y", 1);
	struct ramp_err err = {0};

	if (_i) {
		world_freeze(x.seg);
		world_give(x.seg);
		programs_gone(world.programs, x.seg, "b");
	}
	ck_assert_int_eq(prog_do(&x.prog, &unmap).result, 0);
	give_back(&e);
	y = world_take(y, 0, SEG_BYTES / RAMP_PAGE_BYTES);
	ck_assert_int_eq(programs_pulling(world.programs, y, &err), 0);
	ck_assert_uint_eq(world_attach(&x.prog, y, O_RDWR), x.addr);
	ck_assert_uint_eq(prog_load(&x.prog, x.addr + RAMP_PAGE_BYTES), FILLED);
	seg_put(y);
	world_detached(&x);
}
END_TEST

/* An UNEXTENT that the daemon before may have proposed is decided by an EXTENT, before the attach
   continues; an attach waits for tables that are as new as the record. */
START_TEST(an_attach_goes_by_no_address_that_may_be_given_back)
{
	struct attached x = world_attached(world_segment("x", 3), O_RDONLY);
	struct prog_order unmap = {.op = PROG_MUNMAP, .addr = x.addr, .len = SEG_BYTES};
	struct record record = {.kind = RECORD_OWNED, .epoch = 2};
	struct programs_extent e = extent_of(x.seg);
	struct meta_status before, after;
	struct prog_report report;

	ck_assert_int_eq(prog_do(&x.prog, &unmap).result, 0);
	ck_assert_int_eq(seg_note_giving(x.seg, e.epoch), 0);
	meta_get_status(world.meta, &before);
	ck_assert_uint_eq(world_attach(&x.prog, x.seg, O_RDONLY), x.addr);
	do /* its answer may come before the status has it */
		meta_get_status(world.meta, &after);
	while (after.applied == before.applied && !usleep(1000));
	ck_assert_uint_eq(seg_giving(x.seg), 0);
	ck_assert_int_eq(prog_do(&x.prog, &unmap).result, 0);

	x.seg = world_take(x.seg, 0, 0);
	ck_assert_int_eq(record_change(x.seg, &record, NULL), 0);
	send_attach(&x.prog, x.seg);
	ck_assert(!prog_wait(&x.prog, &report, BLOCKED_MS));
	world_step(x.seg, META_PREPARE);
	ck_assert(prog_wait(&x.prog, &report, ANSWER_MS));
	ck_assert_msg(report.result == 0, "%d %s", report.result, report.text);
	world_detached(&x);
}
END_TEST

START_TEST(what_a_program_unmaps_is_forgotten_by_the_next_revoke)
{
	struct attached x = world_attached(world_segment("x", 3), O_RDWR);
	struct prog_order hole = {.op = PROG_MUNMAP, .len = MIB};

	hole.addr = x.addr + MIB;
	ck_assert_int_eq(prog_do(&x.prog, &hole).result, 0);
	world_freeze(x.seg);
	programs_restore(world.programs, x.seg);
	hole.addr = x.addr;
	hole.len = SEG_BYTES;
	ck_assert_int_eq(programs_may_move(world.programs, x.seg, NULL), 0);
	ck_assert_int_eq(prog_do(&x.prog, &hole).result, 0);
	/* Nothing is mapped any more, and the table does not know it yet. */
	ck_assert_int_eq(programs_revoke(world.programs, x.seg, 1000, NULL), 0);
	programs_restore(world.programs, x.seg);
	world_detached(&x);
}
END_TEST

START_TEST(a_silent_agent_makes_a_move_busy)
{
	struct seg *seg = world_segment("x", 3);
	struct prog prog;
	struct ramp_err err = {0};
	char path[256];
	struct prog_order raw = {.op = PROG_MAP_RAW, .len = SEG_BYTES};
	struct segment_row row;
	struct prog other;

	world_prog(&other);
	world_attach(&other, seg, O_RDWR); /* so that there is an extent */
	meta_segment(world.meta, seg_id(seg), &row);
	prog_start(&prog, world.socket);
	world_path(seg, path);
	memcpy(raw.path, path, sizeof(path));
	raw.addr = row.extent_addr;
	ck_assert_int_eq(prog_do(&prog, &raw).result, 0);
	ck_assert_int_eq(programs_may_move(world.programs, seg, &err), -EBUSY);
	ck_assert_msg(strstr(err.text, "no session"), "%s", err.text);
	/* An agent that never answers. */
	prog_do(&prog, &(struct prog_order){.op = PROG_SESSION, .value = 1});
	ck_assert_int_eq(programs_may_move(world.programs, seg, &err), -EBUSY);
	ck_assert_msg(strstr(err.text, "does not answer"), "%s", err.text);
	ck_assert_int_eq(programs_revoke(world.programs, seg, 200, &err), -EBUSY);
	ck_assert_msg(strstr(err.text, "does not answer"), "%s", err.text);
	ck_assert_uint_eq(prog_load(&prog, row.extent_addr), UINT64_C(0x0303030303030303));
	prog_end(&prog);
	prog_end(&other);
	seg_put(seg);
}
END_TEST

START_TEST(an_attach_waits_while_the_segment_is_frozen)
{
	struct seg *seg = world_segment("x", 7);
	struct prog prog;
	struct prog_report r;
	struct prog_order order = {.op = PROG_ATTACH, .len = SEG_BYTES, .prot = PROT_READ};

	world_prog(&prog);
	world_freeze(seg);
	programs_token(world.programs, seg_id(seg), O_RDWR, prog.pid, order.token, NULL);
	prog_send(&prog, &order);
	ck_assert(!prog_wait(&prog, &r, BLOCKED_MS));
	programs_restore(world.programs, seg);
	ck_assert(prog_wait(&prog, &r, ANSWER_MS));
	ck_assert_int_eq(r.result, 0);
	/* An attach is refused when the segment has gone. */
	world_freeze(seg);
	programs_token(world.programs, seg_id(seg), O_RDWR, prog.pid, order.token, NULL);
	prog_send(&prog, &order);
	world_give(seg);
	programs_gone(world.programs, seg, "b");
	ck_assert(prog_wait(&prog, &r, ANSWER_MS));
	ck_assert_int_eq(r.result, -EREMOTE);
	prog_end(&prog);
	seg_put(seg);
}
END_TEST

/* ---- gone and back -------------------------------------------------------------------------- */

START_TEST(what_has_gone_is_sigbus_and_one_line_and_comes_back)
{
	struct seg *seg = world_segment("cache", 9);
	struct prog prog;
	struct prog_report r;
	struct ramp_err err = {0};
	uint64_t addr;

	world_prog(&prog);
	addr = world_attach(&prog, seg, O_RDWR);
	ck_assert_uint_eq(prog_load(&prog, addr), UINT64_C(0x0909090909090909));
	world_freeze(seg);
	/* The program is blocked in a page fault when the segment goes. */
	prog_send(&prog, &(struct prog_order){.op = PROG_LOAD, .addr = addr});
	ck_assert(!prog_wait(&prog, &r, BLOCKED_MS));
	world_give(seg);
	programs_gone(world.programs, seg, "b");
	ck_assert(prog_wait(&prog, &r, ANSWER_MS));
	ck_assert_int_eq(r.result, -SIGBUS);
	ck_assert_int_eq(prog_at(&prog, PROG_STORE, addr + 4096).result, -SIGBUS);
	ck_assert_int_eq(prog_at(&prog, PROG_SYSCALL, addr + 8192).result, -EFAULT);
	r = prog_at(&prog, PROG_TEXT, 0);
	ck_assert_uint_eq(r.value, 1);
	ck_assert_str_eq(r.text, "rampfs: a/cache is now on node b; touching it here is SIGBUS");
	ck_assert(!programs_mapped(world.programs, seg));

	/* A child of a fork finds the same. */
	r = prog_at(&prog, PROG_FORK, addr);
	ck_assert_int_ne(r.result, 0);

	seg = world_take(seg, 0, SEG_BYTES / 4096);
	ck_assert_int_eq(programs_pulling(world.programs, seg, &err), 0);
	programs_back(world.programs, seg);
	ck_assert_uint_eq(prog_load(&prog, addr), FILLED);
	ck_assert_int_eq(prog_at(&prog, PROG_STORE, addr + 4096).result, 0);
	ck_assert_uint_eq(prog_load(&prog, addr + 4096 + 8), FILLED);
	prog_end(&prog);
	wait_for_attachments(0);
	seg_put(seg);
}
END_TEST

/* Returns how many mappings of the process lie in that range. */
static unsigned count_mappings(const struct prog *prog, uint64_t addr, uint64_t len)
{
	char path[32], line[512];
	unsigned count = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)prog->pid);
	maps = fopen(path, "re");
	ck_assert_ptr_nonnull(maps);
	while (fgets(line, sizeof(line), maps)) {
		uint64_t start = strtoull(line, NULL, 16);

		count += start >= addr && start < addr + len;
	}
	fclose(maps);
	return count;
}

START_TEST(what_was_mapped_in_parts_comes_back_as_one)
{
	struct seg *seg = world_segment("x", 5);
	uint64_t half = SEG_BYTES / 2;
	struct prog_report low, high;
	struct prog prog;

	world_prog(&prog);
	low = world_try_attach(&prog, seg, O_RDWR, PROT_READ | PROT_WRITE, 0, half);
	high = world_try_attach(&prog, seg, O_RDWR, PROT_READ | PROT_WRITE, half, half);
	ck_assert_int_eq(low.result, 0);
	ck_assert_int_eq(high.result, 0);
	ck_assert_uint_eq(high.addr, low.addr + half);
	ck_assert_uint_eq(count_mappings(&prog, low.addr, SEG_BYTES), 2);
	ck_assert_uint_eq(prog_at(&prog, PROG_TICKET, 0).all, 1); /* a child gets one range */
	world_freeze(seg);
	world_give(seg);
	programs_gone(world.programs, seg, "b");
	world_revert(seg);
	programs_back(world.programs, seg);
	ck_assert_uint_eq(count_mappings(&prog, low.addr, SEG_BYTES), 1);
	ck_assert_uint_eq(prog_load(&prog, low.addr), UINT64_C(0x0505050505050505));
	ck_assert_uint_eq(prog_load(&prog, high.addr + half - 8), UINT64_C(0x0505050505050505));
	ck_assert_int_eq(prog_at(&prog, PROG_STORE, high.addr).result, 0);
	/* The segment may leave again. */
	world_freeze(seg);
	programs_restore(world.programs, seg);
	prog_end(&prog);
	seg_put(seg);
}
END_TEST

START_TEST(a_process_that_was_stopped_learns_later_that_it_has_gone)
{
	struct attached x = world_attached(world_segment("x", 9), O_RDWR);
	struct prog_report r;
	int status;

	world_freeze(x.seg);
	prog_send(&x.prog, &(struct prog_order){.op = PROG_LOAD, .addr = x.addr});
	ck_assert(!prog_wait(&x.prog, &r, BLOCKED_MS));
	kill(x.prog.pid, SIGSTOP);
	ck_assert_int_eq(waitpid(x.prog.pid, &status, WUNTRACED), x.prog.pid);
	world_give(x.seg);
	programs_gone(world.programs, x.seg, "b");
	ck_assert(!prog_wait(&x.prog, &r, BLOCKED_MS));
	kill(x.prog.pid, SIGCONT);
	ck_assert(prog_wait(&x.prog, &r, ANSWER_MS));
	ck_assert_int_eq(r.result, -SIGBUS);
	world_detached(&x);
}
END_TEST

/* ---- another daemon ------------------------------------------------------------------------- */

START_TEST(the_next_daemon_learns_what_is_mapped)
{
	struct attached x = world_attached(world_segment("x", 0), O_RDWR);
	struct prog_order writers = {.op = PROG_WRITERS, .len = SEG_BYTES, .value = 3};
	struct prog_report r;

	writers.addr = x.addr;
	prog_do(&x.prog, &writers);
	for (uint64_t i = 2; i < 6; i++) {
		world_programs_stop();
		usleep(2000);
		world_programs_start();
		world_wait_session(&x.prog, i);
		world_freeze(x.seg);
		programs_restore(world.programs, x.seg);
	}
	r = prog_at(&x.prog, PROG_STOP_WRITERS, 0);
	ck_assert_uint_eq(r.value, 0);
	ck_assert_uint_gt(r.all, 1000);
	world_detached(&x);
}
END_TEST

START_TEST(a_freeze_ends_with_its_daemon)
{
	struct attached x = world_attached(world_segment("x", 5), O_RDWR);
	struct prog_report r;

	world_freeze(x.seg);
	prog_send(&x.prog, &(struct prog_order){.op = PROG_LOAD, .addr = x.addr});
	ck_assert(!prog_wait(&x.prog, &r, BLOCKED_MS));
	world_programs_stop();
	ck_assert(!prog_wait(&x.prog, &r, BLOCKED_MS));
	world_programs_start();
	ck_assert(prog_wait(&x.prog, &r, ANSWER_MS));
	ck_assert_int_eq(r.result, 0);
	ck_assert_uint_eq(r.value, UINT64_C(0x0505050505050505));
	world_detached(&x);
}
END_TEST

START_TEST(what_was_given_stays_frozen_for_the_next_daemon)
{
	struct attached x = world_attached(world_segment("x", 5), O_RDWR);
	struct prog_report r;

	world_freeze(x.seg);
	prog_send(&x.prog, &(struct prog_order){.op = PROG_LOAD, .addr = x.addr});
	ck_assert(!prog_wait(&x.prog, &r, BLOCKED_MS));
	world_give(x.seg);
	world_programs_stop();
	world_programs_start();
	wait_for_attachments(1);
	ck_assert(!prog_wait(&x.prog, &r, BLOCKED_MS));
	programs_gone(world.programs, x.seg, "b");
	ck_assert(prog_wait(&x.prog, &r, ANSWER_MS));
	ck_assert_int_eq(r.result, -SIGBUS);

	/* The next daemon knows from /proc what belongs there. */
	world_programs_stop();
	x.seg = world_take(x.seg, 0, 4);
	world_programs_start();
	world_wait_session(&x.prog, 3);
	programs_pulling(world.programs, x.seg, NULL);
	programs_back(world.programs, x.seg);
	ck_assert_uint_eq(prog_load(&x.prog, x.addr), FILLED);
	ck_assert_int_eq(prog_at(&x.prog, PROG_STORE, x.addr).result, 0);
	world_detached(&x);
}
END_TEST

/* Returns true where the process maps an empty file, as /proc has it. */
static bool maps_the_empty_file(pid_t pid)
{
	char path[64], line[512];
	bool found = false;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	file = fopen(path, "re");
	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file))
		found |= strstr(line, "/gone.") != NULL;
	fclose(file);
	return found;
}

static uint64_t clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void *continue_soon(void *arg)
{
	usleep(BLOCKED_MS * 1000);
	kill(*(pid_t *)arg, SIGCONT);
	return NULL;
}

/* The daemon died after TAKEN: the next one waits for the sessions of the programs that had the
   segment, and for no longer than it may. */
START_TEST(a_program_that_had_it_and_has_not_come_back_yet_is_waited_for)
{
	struct attached x = world_attached(world_segment("x", 5), O_RDWR);
	pthread_t thread;
	int status;

	world_freeze(x.seg);
	world_give(x.seg);
	programs_gone(world.programs, x.seg, "b");
	world_programs_stop();
	kill(x.prog.pid, SIGSTOP);
	ck_assert_int_eq(waitpid(x.prog.pid, &status, WUNTRACED), x.prog.pid);
	x.seg = world_take(x.seg, 0, 4);
	world_programs_start();
	programs_pulling(world.programs, x.seg, NULL);

	programs_back(world.programs, x.seg);
	programs_await(world.programs, x.seg, clock_ms() + BLOCKED_MS);
	ck_assert(maps_the_empty_file(x.prog.pid));

	ck_assert_int_eq(pthread_create(&thread, NULL, continue_soon, &x.prog.pid), 0);
	programs_await(world.programs, x.seg, clock_ms() + 20000);
	ck_assert(!maps_the_empty_file(x.prog.pid));
	pthread_join(thread, NULL);
	ck_assert_uint_eq(prog_load(&x.prog, x.addr), FILLED);
	ck_assert_int_eq(prog_at(&x.prog, PROG_STORE, x.addr).result, 0);
	/* A program that has come back is not waited for. */
	programs_await(world.programs, x.seg, UINT64_MAX);
	world_detached(&x);
}
END_TEST

START_TEST(page_faults_that_a_dead_daemon_had_read_are_raised_again)
{
	struct seg *seg = world_take(world_segment("x", 1), 0, 100);
	struct attached x;
	struct prog_report r;

	programs_pulling(world.programs, seg, NULL);
	x = world_attached(seg, O_RDWR);
	world_freeze(x.seg); /* the pager reads what comes now, and leaves it */
	prog_send(&x.prog, &(struct prog_order){.op = PROG_LOAD, .addr = x.addr + 8192});
	ck_assert(!prog_wait(&x.prog, &r, BLOCKED_MS));
	world_programs_stop();
	world_programs_start();
	ck_assert(prog_wait(&x.prog, &r, ANSWER_MS));
	ck_assert_uint_eq(r.value, FILLED);
	world_detached(&x);
}
END_TEST

/* ---- holes ---------------------------------------------------------------------------------- */

static _Atomic uint64_t punched_offset;

static void on_punch(void *arg, struct punch_request *request, ramp_segment_t id, uint64_t offset,
		     uint64_t len)
{
	(void)arg;
	(void)id;
	(void)len;
	punched_offset = offset;
	punch_answer(request, 0);
}

START_TEST(only_a_program_that_may_write_punches_holes)
{
	struct seg *seg = world_segment("x", 5);
	struct prog writer, reader;
	struct prog_order punch = {
		.op = PROG_PUNCH, .value = seg_id(seg), .offset = 8192, .len = 4096};

	world_prog(&writer);
	world_prog(&reader);
	world_attach(&writer, seg, O_RDWR);
	world_attach(&reader, seg, O_RDONLY);
	ck_assert_int_eq(prog_do(&writer, &punch).result, -EOPNOTSUPP);
	world_programs_stop();
	world.punch = on_punch;
	world_programs_start();
	world_wait_session(&writer, 2);
	world_wait_session(&reader, 2);
	ck_assert_int_eq(prog_do(&writer, &punch).result, 0);
	ck_assert_uint_eq(punched_offset, 8192);
	ck_assert_int_eq(prog_do(&reader, &punch).result, -EACCES);
	punch.offset = SEG_BYTES;
	ck_assert_int_eq(prog_do(&writer, &punch).result, -EACCES);
	punch.offset = 1;
	ck_assert_int_eq(prog_do(&writer, &punch).result, -EINVAL);
	prog_end(&writer);
	prog_end(&reader);
	seg_put(seg);
}
END_TEST

static struct punch_request *_Atomic kept_punch;

static void keep_punch(void *arg, struct punch_request *request, ramp_segment_t id, uint64_t offset,
		       uint64_t len)
{
	(void)arg;
	(void)id;
	(void)offset;
	(void)len;
	kept_punch = request;
}

/* The handler that punches ends later than the daemon that asked it. The program hears that the
   daemon has gone, as of one that died, and asks the next one. */
START_TEST(a_hole_that_a_daemon_ends_before)
{
	struct seg *seg = world_segment("x", 5);
	struct prog writer;
	struct prog_report report;
	struct prog_order punch = {.op = PROG_PUNCH, .value = seg_id(seg), .len = 4096};

	world_programs_stop();
	world.punch = keep_punch;
	world_programs_start();
	world_prog(&writer);
	world_attach(&writer, seg, O_RDWR);
	prog_send(&writer, &punch);
	while (!kept_punch)
		usleep(1000);
	world_programs_stop();
	punch_answer(kept_punch, -ESHUTDOWN);
	ck_assert(prog_wait(&writer, &report, ANSWER_MS));
	ck_assert_int_eq(report.result, -EPIPE);
	world.punch = on_punch;
	world_programs_start();
	world_wait_session(&writer, 2);
	ck_assert_int_eq(prog_do(&writer, &punch).result, 0);
	prog_end(&writer);
	seg_put(seg);
}
END_TEST

/* The program may store there from then on, and that must not be punched. */
START_TEST(a_hole_that_no_program_waits_for_any_more_is_late)
{
	struct seg *seg = world_segment("x", 5);
	struct prog writer;
	struct prog_report report;
	struct prog_order punch = {.op = PROG_PUNCH, .value = seg_id(seg), .len = 4096};
	uint64_t sent_ms;

	world_programs_stop();
	world.punch = keep_punch;
	world_programs_start();
	world_prog(&writer);
	world_attach(&writer, seg, O_RDWR);
	for (int killed = 0; killed < 2; killed++) {
		kept_punch = NULL;
		sent_ms = clock_ms();
		prog_send(&writer, &punch);
		while (!kept_punch)
			usleep(1000);
		ck_assert(!punch_is_late(kept_punch));
		if (killed)
			kill(writer.pid, SIGKILL);
		while (!punch_is_late(kept_punch))
			usleep(1000);
		ck_assert_int_eq(clock_ms() - sent_ms < SESSION_PUNCH_MS, killed);
		punch_answer(kept_punch, -ETIMEDOUT);
		if (!killed) {
			ck_assert(prog_wait(&writer, &report, ANSWER_MS));
			ck_assert_int_eq(report.result, -ETIMEDOUT);
		}
	}
	prog_end(&writer);
	seg_put(seg);
}
END_TEST

static void add_tests(TCase *tc)
{
	tcase_add_test(tc, a_whole_segment_is_mapped_at_its_extent_and_not_registered);
	tcase_add_test(tc, what_the_open_or_the_extent_does_not_allow_is_refused);
	tcase_add_test(tc, a_token_is_good_for_one_attach_by_one_process);
	tcase_add_test(tc, a_process_without_a_session_waits_and_is_refused);
	tcase_add_test(tc, a_fork_child_adopts_what_its_parent_has);
	tcase_add_test(tc, remote_pages_wait_for_the_pager);
	tcase_add_test(tc, a_read_of_page_faults_that_fails_is_tried_again);
	tcase_add_test(tc, a_pull_that_was_over_at_once_registers_nothing);
	tcase_add_test(tc, a_lost_page_is_sigbus_after_a_line);
	tcase_add_test(tc, nothing_changes_after_a_revoke_and_everything_continues_after_restore);
	tcase_add_test(tc, a_process_without_its_main_thread_is_stopped_like_any_other);
	tcase_add_test(tc, a_process_without_its_main_thread_maps_writable_what_it_had_read_only);
	tcase_add_test(tc, stale_answers_do_not_keep_a_segment_frozen);
	tcase_add_test(tc, private_copies_make_a_move_busy_and_are_kept);
	tcase_add_test(tc, addresses_go_back_only_where_nothing_lies_and_attaches_wait);
	tcase_add_loop_test(tc, addresses_that_were_another_segments_are_the_new_ones, 0, 2);
	tcase_add_test(tc, an_attach_goes_by_no_address_that_may_be_given_back);
	tcase_add_test(tc, what_a_program_unmaps_is_forgotten_by_the_next_revoke);
	tcase_add_test(tc, a_silent_agent_makes_a_move_busy);
	tcase_add_test(tc, an_attach_waits_while_the_segment_is_frozen);
	tcase_add_test(tc, what_has_gone_is_sigbus_and_one_line_and_comes_back);
	tcase_add_test(tc, what_was_mapped_in_parts_comes_back_as_one);
	tcase_add_test(tc, a_process_that_was_stopped_learns_later_that_it_has_gone);
	tcase_add_test(tc, the_next_daemon_learns_what_is_mapped);
	tcase_add_test(tc, a_freeze_ends_with_its_daemon);
	tcase_add_test(tc, what_was_given_stays_frozen_for_the_next_daemon);
	tcase_add_test(tc, a_program_that_had_it_and_has_not_come_back_yet_is_waited_for);
	tcase_add_test(tc, page_faults_that_a_dead_daemon_had_read_are_raised_again);
	tcase_add_test(tc, only_a_program_that_may_write_punches_holes);
	tcase_add_test(tc, a_hole_that_a_daemon_ends_before);
	tcase_add_test(tc, a_hole_that_no_program_waits_for_any_more_is_late);
}

int main(int argc, char **argv)
{
	return world_main(argc, argv, "programs", add_tests);
}
