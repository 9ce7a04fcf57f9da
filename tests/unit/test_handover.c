/*
 * State that one daemon leaves to the next: INIT and its answer, and appends that land where they
 * did.
 */
#include <check.h>
#include <errno.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/kernel.h"
#include "lib/run_suite.h"
#include "mount/handover.h"

#define CONNECTION 0x1234
#define SEG	   5000

static int file; /* the private file, as the store keeps it */

static void setup(void)
{
	file = memfd_create("handover", MFD_CLOEXEC);
	ck_assert_int_ge(file, 0);
}

static void teardown(void)
{
	close(file);
}

static struct handover *open_on(uint64_t connection)
{
	struct handover *h = NULL;
	struct ramp_err err = {0};

	ck_assert_msg(handover_open(dup(file), connection, &h, &err) == 0, "%s", err.text);
	return h;
}

struct init_request {
	struct fuse_in_header header;
	struct fuse_init_in in;
};

static struct init_request request_of(uint32_t flags, uint32_t flags2)
{
	return (struct init_request){
		.header = {.opcode = FUSE_INIT, .unique = 2},
		.in = {.major = 7, .minor = 45, .flags = flags, .flags2 = flags2},
	};
}

START_TEST(init_answer_is_patched_for_resend)
{
	struct init_request req = request_of(FUSE_INIT_EXT, KERNEL_FUSE2_HAS_RESEND | (1u << 3));
	struct fuse_init_out out = {.major = 7, .minor = 38, .flags = 1, .max_write = 1 << 20};
	struct fuse_init_out parallel = out;

	handover_patch_reply(&req, sizeof(req), &out, sizeof(out));
	ck_assert_uint_eq(out.flags, 1 | FUSE_INIT_EXT);
	req.in.flags |= FUSE_PARALLEL_DIROPS;
	handover_patch_reply(&req, sizeof(req), &parallel, sizeof(parallel));
	ck_assert_uint_eq(parallel.flags, 1 | FUSE_INIT_EXT | FUSE_PARALLEL_DIROPS);
	ck_assert_uint_eq(out.flags2, KERNEL_FUSE2_HAS_RESEND);
	ck_assert_uint_eq(out.max_write, 1 << 20);
}
END_TEST

START_TEST(init_answer_is_patched_for_passthrough)
{
	struct init_request req =
		request_of(FUSE_INIT_EXT, KERNEL_FUSE2_HAS_RESEND | KERNEL_FUSE2_PASSTHROUGH);
	struct fuse_init_out out = {.major = 7, .minor = 38};
	uint32_t depth;

	handover_patch_reply(&req, sizeof(req), &out, sizeof(out));
	ck_assert_uint_eq(out.flags2, KERNEL_FUSE2_HAS_RESEND | KERNEL_FUSE2_PASSTHROUGH);
	memcpy(&depth, (char *)&out + KERNEL_FUSE_INIT_OUT_STACK_DEPTH_OFFSET, sizeof(depth));
	ck_assert_uint_eq(depth, 1);
}
END_TEST

START_TEST(passthrough_opens_outlive_a_daemon_and_the_mount_a_connection)
{
	struct handover *h = open_on(CONNECTION);
	struct handover_passthroughs *p = handover_passthroughs(h);

	/* One open, granted by a mount whose device is 44. */
	p->dev = 44;
	p->opens[7] = (struct handover_passthrough){.unique = 12, .id = SEG, .backing = 3};
	handover_close(h);
	/* The next daemon finds it. */
	h = open_on(CONNECTION);
	p = handover_passthroughs(h);
	ck_assert_uint_eq(p->opens[7].unique, 12);
	ck_assert_uint_eq(p->opens[7].backing, 3);
	handover_close(h);
	/* On another connection the open is dead; its mappings show under device 44. */
	h = open_on(CONNECTION + 1);
	p = handover_passthroughs(h);
	ck_assert_uint_eq(p->opens[7].unique, 0);
	ck_assert_uint_eq(p->dev, 0);
	ck_assert_uint_eq(p->former[0], 44);
	/* A connection without opens is not remembered; the older one stays. */
	handover_close(h);
	h = open_on(CONNECTION + 2);
	ck_assert_uint_eq(handover_passthroughs(h)->former[0], 44);
	ck_assert_uint_eq(handover_passthroughs(h)->former[1], 0);
	handover_close(h);
}
END_TEST

START_TEST(init_answer_is_left_alone_where_the_kernel_offers_nothing)
{
	struct init_request req = request_of(0, KERNEL_FUSE2_HAS_RESEND);
	struct fuse_init_out out = {.flags = 1}, old = out;

	handover_patch_reply(&req, sizeof(req), &out, sizeof(out));
	ck_assert_mem_eq(&out, &old, sizeof(out));
	req = request_of(FUSE_INIT_EXT, 0);
	handover_patch_reply(&req, sizeof(req), &out, sizeof(out));
	ck_assert_uint_eq(out.flags2, 0);
	/* An answer of an older protocol has no room for it. */
	out = old;
	req = request_of(FUSE_INIT_EXT, KERNEL_FUSE2_HAS_RESEND);
	handover_patch_reply(&req, sizeof(req), &out, 24);
	ck_assert_mem_eq(&out, &old, sizeof(out));
}
END_TEST

START_TEST(the_next_daemon_finds_init)
{
	struct init_request req = request_of(FUSE_INIT_EXT, 0);
	struct fuse_init_out out = {.major = 7};
	struct handover *h = open_on(CONNECTION);
	size_t len;

	ck_assert_ptr_null(handover_init(h, &len));
	ck_assert_int_eq(handover_save_init(h, &req, sizeof(req)), 0);
	ck_assert_ptr_null(
		handover_init(h, &len)); /* it is not answered: the kernel sends it again */
	handover_save_reply(h, &out, sizeof(out));
	handover_close(h);

	h = open_on(CONNECTION);
	ck_assert_ptr_nonnull(handover_init(h, &len));
	ck_assert_uint_eq(len, sizeof(req));
	ck_assert_mem_eq(handover_init(h, &len), &req, sizeof(req));
	ck_assert_mem_eq(handover_reply(h, &len), &out, sizeof(out));
	ck_assert_uint_eq(len, sizeof(out));
	handover_close(h);

	h = open_on(CONNECTION + 1); /* another mount: nothing of it counts */
	ck_assert_ptr_null(handover_init(h, &len));
	ck_assert_ptr_null(handover_reply(h, &len));
	handover_close(h);
}
END_TEST

START_TEST(an_init_that_is_too_long_is_refused)
{
	struct handover *h = open_on(CONNECTION);
	uint8_t bytes[HANDOVER_INIT_BYTES + 1] = {0};

	ck_assert_int_eq(handover_save_init(h, bytes, sizeof(bytes)), -EMSGSIZE);
	handover_close(h);
}
END_TEST

START_TEST(an_append_sent_again_lands_where_it_did)
{
	struct handover *h = open_on(CONNECTION);
	struct handover_append *slot;
	uint64_t at;

	ck_assert_int_eq(handover_append_begin(h, 10, SEG, 100, 50, &slot, &at), 0);
	ck_assert_uint_eq(at, 100);
	handover_close(h); /* the daemon dies before or after its write */

	h = open_on(CONNECTION);
	ck_assert_int_eq(handover_append_begin(h, 10, SEG, 150, 50, &slot, &at), 1);
	ck_assert_uint_eq(at, 100);
	handover_append_end(slot);
	ck_assert_int_eq(handover_append_begin(h, 12, SEG, 150, 50, &slot, &at), 0);
	ck_assert_uint_eq(at, 150);
	handover_close(h);
}
END_TEST

START_TEST(a_new_append_goes_behind_one_that_is_promised)
{
	struct handover *h = open_on(CONNECTION);
	struct handover_append *first, *second, *other;
	uint64_t at;

	/* The first was begun and not written when the daemon died: the file still ends at 100. */
	ck_assert_int_eq(handover_append_begin(h, 10, SEG, 100, 50, &first, &at), 0);
	ck_assert_int_eq(handover_append_begin(h, 12, SEG, 100, 30, &second, &at), 0);
	ck_assert_uint_eq(at, 150);
	ck_assert_int_eq(handover_append_begin(h, 14, SEG + 1, 100, 30, &other, &at), 0);
	ck_assert_uint_eq(at, 100); /* another segment's promises are its own */
	handover_append_end(first);
	handover_append_end(second);
	ck_assert_int_eq(handover_append_begin(h, 16, SEG, 180, 30, &first, &at), 0);
	ck_assert_uint_eq(at, 180);
	handover_close(h);
}
END_TEST

/* A program may cut the file and append again before the slot of its first append is free. */
START_TEST(an_append_that_is_written_promises_nothing)
{
	struct handover *h = open_on(CONNECTION);
	struct handover_append *first, *second;
	uint64_t at;

	ck_assert_int_eq(handover_append_begin(h, 10, SEG, 100, 50, &first, &at), HANDOVER_NEW);
	handover_append_written(first, 50);
	ck_assert_int_eq(handover_append_begin(h, 12, SEG, 7, 30, &second, &at), HANDOVER_NEW);
	ck_assert_uint_eq(at, 7);
	handover_append_written(second, 20); /* there was no room for more */
	handover_close(h);

	/* Both are sent again, since it is unknown whether they were answered; neither is written
	   again. */
	h = open_on(CONNECTION);
	ck_assert(handover_append_done(h, 10, &at));
	ck_assert_uint_eq(at, 50);
	ck_assert(handover_append_done(h, 12, &at));
	ck_assert_uint_eq(at, 20);
	handover_append_drop(h, 10);
	ck_assert(!handover_append_done(h, 10, &at));
	/* An append that was begun is written, and so is one that no daemon has begun. */
	ck_assert_int_eq(handover_append_begin(h, 14, SEG, 27, 30, &first, &at), HANDOVER_NEW);
	ck_assert(!handover_append_done(h, 14, &at));
	ck_assert(!handover_append_done(h, 16, &at));
	handover_close(h);
}
END_TEST

START_TEST(the_next_daemon_knows_which_segment_was_to_be_moved)
{
	struct handover *h = open_on(CONNECTION);

	ck_assert_uint_eq(handover_move(h, 10), 0);
	handover_move_begin(h, 10, SEG);
	handover_move_begin(h, 12, SEG + 1);
	handover_close(h);

	h = open_on(CONNECTION);
	ck_assert_uint_eq(handover_move(h, 12), SEG + 1);
	ck_assert_uint_eq(handover_move(h, 10), 0);
	handover_close(h);

	h = open_on(CONNECTION + 1); /* another mount's numbers mean nothing */
	ck_assert_uint_eq(handover_move(h, 12), 0);
	handover_close(h);
}
END_TEST

START_TEST(appends_that_cannot_come_again_are_forgotten)
{
	struct handover *h = open_on(CONNECTION);
	struct handover_append *slot;
	uint64_t at, wanted[] = {99, 12};

	for (uint64_t unique = 10; unique < 20; unique += 2)
		ck_assert_int_eq(handover_append_begin(h, unique, SEG + unique, 0, 50, &slot, &at),
				 0);
	handover_forget_others(h, wanted, 2);
	ck_assert_int_eq(handover_append_begin(h, 12, SEG + 12, 70, 50, &slot, &at), 1);
	ck_assert_uint_eq(at, 0);
	ck_assert_int_eq(handover_append_begin(h, 10, SEG + 10, 70, 50, &slot, &at), 0);
	ck_assert_uint_eq(at, 70);
	handover_append_drop(h, 12);
	ck_assert_int_eq(handover_append_begin(h, 12, SEG + 12, 80, 50, &slot, &at), 0);
	ck_assert_uint_eq(at, 80);
	handover_close(h);
}
END_TEST

START_TEST(slots_run_out_loudly_and_come_back)
{
	struct handover *h = open_on(CONNECTION);
	struct handover_append *slot = NULL, *last = NULL;
	uint64_t at;

	for (uint64_t i = 0; i < HANDOVER_APPENDS; i++)
		ck_assert_int_eq(handover_append_begin(h, i + 1, SEG + i, 0, 1, &last, &at), 0);
	ck_assert_int_eq(handover_append_begin(h, 9999, SEG, 0, 1, &slot, &at), -EBUSY);
	ck_assert_ptr_null(slot);
	handover_append_end(last);
	ck_assert_int_eq(handover_append_begin(h, 9999, SEG, 0, 1, &slot, &at), 0);
	handover_close(h);
}
END_TEST

/* Killed at any moment, the file is whole: every slot that counts has its own offset. */
START_TEST(a_kill_leaves_whole_slots)
{
	for (int round = 0; round < 50; round++) {
		struct handover *h;
		struct handover_append *slot;
		uint64_t at;
		pid_t pid = fork();

		if (pid == 0) {
			h = open_on(CONNECTION);
			for (uint64_t i = 1;; i++) {
				if (handover_append_begin(h, i, SEG, i * 7, 3, &slot, &at) < 0)
					_exit(1);
				handover_append_end(slot);
			}
		}
		usleep((useconds_t)(round * 50));
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		h = open_on(CONNECTION);
		/* Behind all open promises: a multiple of 7 and 3, or the size itself. */
		ck_assert_int_ge(handover_append_begin(h, UINT64_MAX, SEG, 1, 3, &slot, &at), 0);
		ck_assert(at == 1 || (at - 3) % 7 == 0);
		handover_forget_others(h, NULL, 0);
		handover_close(h);
	}
}
END_TEST

/* Opens as the next daemon, after one that died in this request (0: in another place). */
static struct handover *after_a_death_in(struct handover *h, uint64_t unique)
{
	if (unique)
		handover_try_begin(h, unique);
	handover_close(h);
	return open_on(CONNECTION);
}

START_TEST(deaths_of_one_request_in_a_row_are_counted)
{
	struct handover *h = open_on(CONNECTION);

	for (unsigned i = 1; i <= 3; i++) {
		handover_try_begin(h, 6); /* comes first each time, and is carried out */
		handover_try_end(h);
		h = after_a_death_in(h, 8);
		ck_assert_uint_eq(handover_deaths(h, 8), i);
		ck_assert_uint_eq(handover_deaths(h, 6), 0);
	}
	h = after_a_death_in(h, 6);
	ck_assert_uint_eq(handover_deaths(h, 6), 1);
	ck_assert_uint_eq(handover_deaths(h, 8), 0);
	h = after_a_death_in(h, 0);
	ck_assert_uint_eq(handover_deaths(h, 6), 0);
	h = after_a_death_in(h, 6);
	handover_close(h);
	h = open_on(CONNECTION + 1);
	ck_assert_uint_eq(handover_deaths(h, 6), 0);
	handover_close(h);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("handover");
	TCase *tc = tcase_create("handover");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, init_answer_is_patched_for_resend);
	tcase_add_test(tc, init_answer_is_patched_for_passthrough);
	tcase_add_test(tc, passthrough_opens_outlive_a_daemon_and_the_mount_a_connection);
	tcase_add_test(tc, init_answer_is_left_alone_where_the_kernel_offers_nothing);
	tcase_add_test(tc, the_next_daemon_finds_init);
	tcase_add_test(tc, an_init_that_is_too_long_is_refused);
	tcase_add_test(tc, an_append_sent_again_lands_where_it_did);
	tcase_add_test(tc, a_new_append_goes_behind_one_that_is_promised);
	tcase_add_test(tc, an_append_that_is_written_promises_nothing);
	tcase_add_test(tc, the_next_daemon_knows_which_segment_was_to_be_moved);
	tcase_add_test(tc, appends_that_cannot_come_again_are_forgotten);
	tcase_add_test(tc, slots_run_out_loudly_and_come_back);
	tcase_add_test(tc, a_kill_leaves_whole_slots);
	tcase_add_test(tc, deaths_of_one_request_in_a_row_are_counted);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
