/*
 * The messages between daemons: each comes back as it was sent, and nothing else is taken for one.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/run_suite.h"
#include "transport/proto.h"

#define BODY_MAX 4096

struct body {
	uint8_t bytes[BODY_MAX];
	size_t len;
};

/* One kind of message: how a good one is built, taken apart, and compared. */
struct kind {
	const char *name;
	void (*build)(struct body *body);
	int (*parse)(const uint8_t *bytes, size_t len); /* asserts the fields where it is good */
};

static struct msg_range ranges[] = {{0, 4096}, {8192, 8192}, {40960, 4096}};

static struct msg_connect connect_sample(void)
{
	struct msg_connect m = {
		.id = 4711,
		.source_id = UINT64_MAX,
		.epoch = 17,
		.size = 43000,
		.slack_bytes = 2 << 20,
		.src_inc = 0x1122334455667788,
		.demand_only = true,
		.trace = true,
		.prefill = true,
		.limit_bytes_s = 200 << 20,
		.batch = UINT64_MAX - 1,
		.n_ranges = 3,
		.ranges = ranges,
	};

	strcpy(m.name, "a cache");
	return m;
}

static void start(struct wire_w *w, struct body *body)
{
	wire_w_init(w, body->bytes, sizeof(body->bytes));
}

static void end(struct wire_w *w, struct body *body)
{
	ck_assert(!w->bad);
	body->len = w->len;
}

static void build_connect(struct body *body)
{
	struct msg_connect m = connect_sample();
	struct wire_w w;

	start(&w, body);
	proto_put_connect(&w, &m);
	end(&w, body);
	ck_assert_uint_le(body->len, proto_connect_bytes(&m));
}

static int parse_connect(const uint8_t *bytes, size_t len)
{
	struct msg_connect want = connect_sample(), m;
	struct wire_r r;
	int rc;

	wire_r_init(&r, bytes, len);
	rc = proto_get_connect(&r, &m);
	if (rc) {
		ck_assert_ptr_null(m.ranges);
		return rc;
	}
	ck_assert_uint_eq(m.id, want.id);
	ck_assert_uint_eq(m.source_id, want.source_id);
	ck_assert_uint_eq(m.epoch, want.epoch);
	ck_assert_uint_eq(m.size, want.size);
	ck_assert_uint_eq(m.slack_bytes, want.slack_bytes);
	ck_assert_uint_eq(m.src_inc, want.src_inc);
	ck_assert(m.demand_only && !m.progress && m.trace && m.limit_bytes_s == 200 << 20 &&
		  m.batch == UINT64_MAX - 1);
	ck_assert_str_eq(m.name, want.name);
	ck_assert_uint_eq(m.n_ranges, 3);
	ck_assert_mem_eq(m.ranges, ranges, sizeof(ranges));
	free(m.ranges);
	return 0;
}

static void build_accept(struct body *body)
{
	struct msg_accept m = {4711, 5, 6, 7};
	struct wire_w w;

	start(&w, body);
	proto_put_accept(&w, &m);
	end(&w, body);
}

static int parse_accept(const uint8_t *bytes, size_t len)
{
	struct msg_accept m;
	struct wire_r r;
	int rc;

	wire_r_init(&r, bytes, len);
	rc = proto_get_accept(&r, &m);
	if (!rc)
		ck_assert(m.id == 4711 && m.source_id == 5 && m.ticket == 6 && m.dst_inc == 7);
	return rc;
}

static void build_refuse(struct body *body)
{
	struct msg_refuse m = {.id = 4711, .source_id = 5, .code = ENOSPC};
	struct wire_w w;

	strcpy(m.text, "no room");
	start(&w, body);
	proto_put_refuse(&w, &m);
	end(&w, body);
}

static int parse_refuse(const uint8_t *bytes, size_t len)
{
	struct msg_refuse m;
	struct wire_r r;
	int rc;

	wire_r_init(&r, bytes, len);
	rc = proto_get_refuse(&r, &m);
	if (!rc) {
		ck_assert(m.id == 4711 && m.source_id == 5 && m.code == ENOSPC);
		ck_assert_str_eq(m.text, "no room");
	}
	return rc;
}

static void build_transfer(struct body *body)
{
	struct msg_transfer m = {4711,	    {5, 6}, 18, UINT64_C(1) << 40, 7, 8, true, -5,
				 999999999, 3,	    2};
	struct wire_w w;

	start(&w, body);
	proto_put_transfer(&w, &m);
	end(&w, body);
}

static int parse_transfer(const uint8_t *bytes, size_t len)
{
	struct msg_transfer m;
	struct wire_r r;
	int rc;

	wire_r_init(&r, bytes, len);
	rc = proto_get_transfer(&r, &m);
	if (!rc)
		ck_assert(m.id == 4711 && m.k.source_id == 5 && m.k.ticket == 6 && m.epoch == 18 &&
			  m.size == UINT64_C(1) << 40 && m.src_inc == 7 && m.dst_inc == 8 &&
			  m.unchanged);
	return rc;
}

static void build_verdict(struct body *body)
{
	struct msg_verdict m = {4711, {5, 0}, 18};
	struct wire_w w;

	start(&w, body);
	proto_put_verdict(&w, &m);
	end(&w, body);
}

static int parse_verdict(const uint8_t *bytes, size_t len)
{
	struct msg_verdict m;
	struct wire_r r;
	int rc;

	wire_r_init(&r, bytes, len);
	rc = proto_get_verdict(&r, &m);
	if (!rc)
		ck_assert(m.id == 4711 && m.k.source_id == 5 && m.k.ticket == 0 && m.epoch == 18);
	return rc;
}

static void build_pulled(struct body *body)
{
	struct msg_pulled m = {4711, {5, 6}, 71, 100};
	struct wire_w w;

	start(&w, body);
	proto_put_pulled(&w, &m);
	end(&w, body);
}

static int parse_pulled(const uint8_t *bytes, size_t len)
{
	struct msg_pulled m;
	struct wire_r r;
	int rc;

	wire_r_init(&r, bytes, len);
	rc = proto_get_pulled(&r, &m);
	if (!rc)
		ck_assert(m.id == 4711 && m.k.ticket == 6 && m.done_pages == 71 &&
			  m.all_pages == 100);
	return rc;
}

static void build_prefill(struct body *body)
{
	struct msg_prefill m = {4711, {5, 6}, true, false, 64 << 20, 11, "x"};
	struct wire_w w;

	start(&w, body);
	proto_put_prefill(&w, &m);
	end(&w, body);
}

static int parse_prefill(const uint8_t *bytes, size_t len)
{
	struct msg_prefill m;
	struct wire_r r;
	int rc;

	wire_r_init(&r, bytes, len);
	rc = proto_get_prefill(&r, &m);
	if (!rc)
		ck_assert(m.id == 4711 && m.k.ticket == 6 && m.prefill && !m.progress &&
			  m.limit_bytes_s == 64 << 20 && m.batch == 11 && strcmp(m.name, "x") == 0);
	return rc;
}

static void build_figures(struct body *body)
{
	struct msg_figures m = {4711, 18,    1, 2,   1000, true, 5,  50, 6, 7, 8,
				true, false, 9, 100, 3,	   20,	 70, 10, 2, 1};
	struct wire_w w;

	start(&w, body);
	proto_put_figures(&w, &m);
	end(&w, body);
}

static int parse_figures(const uint8_t *bytes, size_t len)
{
	struct msg_figures m;
	struct wire_r r;
	int rc;

	wire_r_init(&r, bytes, len);
	rc = proto_get_figures(&r, &m);
	if (!rc)
		ck_assert(m.id == 4711 && m.epoch == 18 && m.from == 1 && m.to == 2 &&
			  m.at_ms == 1000 && m.of_source && m.connect_us == 5 &&
			  m.rounds_us == 50 && m.prepare_us == 6 && m.asked_us == 7 &&
			  m.window_us == 8 && m.of_target && !m.verbs && m.pull_us == 9 &&
			  m.round_pages == 100 && m.window_pages == 3 && m.demand_pages == 20 &&
			  m.prefetch_pages == 70 && m.hole_pages == 10 && m.local_pages == 2 &&
			  m.lost_pages == 1);
	return rc;
}

static void build_migrate(struct body *body)
{
	struct msg_migrate m = {.request = 9,
				.id = 4711,
				.dst = 2,
				.mode = 1,
				.wait_stable = true,
				.force = true,
				.timeout_ms = 5000,
				.limit_bytes_s = 8 << 20,
				.batch = 12};
	struct wire_w w;

	strcpy(m.name, "x");
	strcpy(m.from_name, "y");
	start(&w, body);
	proto_put_migrate(&w, &m);
	end(&w, body);
}

static int parse_migrate(const uint8_t *bytes, size_t len)
{
	struct msg_migrate m;
	struct wire_r r;
	int rc;

	wire_r_init(&r, bytes, len);
	rc = proto_get_migrate(&r, &m);
	if (!rc) {
		ck_assert(m.request == 9 && m.id == 4711 && m.dst == 2 && m.mode == 1 &&
			  m.wait_stable && !m.progress && m.force && m.timeout_ms == 5000 &&
			  m.limit_bytes_s == 8 << 20 && m.batch == 12);
		ck_assert_str_eq(m.name, "x");
		ck_assert_str_eq(m.from_name, "y");
	}
	return rc;
}

static void build_answer(struct body *body)
{
	struct msg_answer m = {.request = 9, .code = EBUSY, .epoch = 3};
	struct wire_w w;

	strcpy(m.text, "still being pulled, 71 %");
	start(&w, body);
	proto_put_answer(&w, &m);
	end(&w, body);
}

static int parse_answer(const uint8_t *bytes, size_t len)
{
	struct msg_answer m;
	struct wire_r r;
	int rc;

	wire_r_init(&r, bytes, len);
	rc = proto_get_answer(&r, &m);
	if (!rc) {
		ck_assert(m.request == 9 && m.code == EBUSY && m.epoch == 3);
		ck_assert_str_eq(m.text, "still being pulled, 71 %");
	}
	return rc;
}

static void build_give_back(struct body *body)
{
	struct msg_give_back m = {
		.request = 9, .id = 4711, .epoch = 3, .addr = 1 << 26, .len = 1 << 26};
	struct wire_w w;

	start(&w, body);
	proto_put_give_back(&w, &m);
	end(&w, body);
}

static int parse_give_back(const uint8_t *bytes, size_t len)
{
	struct msg_give_back m;
	struct wire_r r;
	int rc;

	wire_r_init(&r, bytes, len);
	rc = proto_get_give_back(&r, &m);
	if (!rc)
		ck_assert(m.request == 9 && m.id == 4711 && m.epoch == 3 && m.addr == 1 << 26 &&
			  m.len == 1 << 26);
	return rc;
}

static void build_give_back_said(struct body *body)
{
	struct msg_give_back_said m = {.request = 9, .code = EBUSY};
	struct wire_w w;

	strcpy(m.text, "process 4711 (x) maps it");
	start(&w, body);
	proto_put_give_back_said(&w, &m);
	end(&w, body);
}

static int parse_give_back_said(const uint8_t *bytes, size_t len)
{
	struct msg_give_back_said m;
	struct wire_r r;
	int rc;

	wire_r_init(&r, bytes, len);
	rc = proto_get_give_back_said(&r, &m);
	if (!rc) {
		ck_assert(m.request == 9 && m.code == EBUSY);
		ck_assert_str_eq(m.text, "process 4711 (x) maps it");
	}
	return rc;
}

static void build_progress(struct body *body)
{
	struct msg_progress m = {.request = 9, .done_pages = 1, .all_pages = 2};
	struct wire_w w;

	strcpy(m.state, "pulling");
	start(&w, body);
	proto_put_progress(&w, &m);
	end(&w, body);
}

static int parse_progress(const uint8_t *bytes, size_t len)
{
	struct msg_progress m;
	struct wire_r r;
	int rc;

	wire_r_init(&r, bytes, len);
	rc = proto_get_progress(&r, &m);
	if (!rc) {
		ck_assert(m.request == 9 && m.done_pages == 1 && m.all_pages == 2);
		ck_assert_str_eq(m.state, "pulling");
	}
	return rc;
}

static void build_cancel(struct body *body)
{
	struct msg_cancel m = {9};
	struct wire_w w;

	start(&w, body);
	proto_put_cancel(&w, &m);
	end(&w, body);
}

static int parse_cancel(const uint8_t *bytes, size_t len)
{
	struct msg_cancel m;
	struct wire_r r;
	int rc;

	wire_r_init(&r, bytes, len);
	rc = proto_get_cancel(&r, &m);
	if (!rc)
		ck_assert_uint_eq(m.request, 9);
	return rc;
}

static void build_clock(struct body *body)
{
	struct msg_clock m = {4711, 5, 6, true};
	struct wire_w w;

	start(&w, body);
	proto_put_clock(&w, &m);
	end(&w, body);
}

static int parse_clock(const uint8_t *bytes, size_t len)
{
	struct msg_clock m;
	struct wire_r r;
	int rc;

	wire_r_init(&r, bytes, len);
	rc = proto_get_clock(&r, &m);
	if (!rc)
		ck_assert(m.id == 4711 && m.source_id == 5 && m.sent_ns == 6 && m.steps);
	return rc;
}

static void build_clocked(struct body *body)
{
	struct msg_clocked m = {5, 6, 7, 8, 9, true};
	struct wire_w w;

	start(&w, body);
	proto_put_clocked(&w, &m);
	end(&w, body);
}

static int parse_clocked(const uint8_t *bytes, size_t len)
{
	struct msg_clocked m;
	struct wire_r r;
	int rc;

	wire_r_init(&r, bytes, len);
	rc = proto_get_clocked(&r, &m);
	if (!rc)
		ck_assert(m.source_id == 5 && m.sent_ns == 6 && m.came_ns == 7 &&
			  m.answered_ns == 8 && m.faults == 9 && m.whole);
	return rc;
}

static void build_step(struct body *body)
{
	struct msg_step m = {5, 2, UINT64_MAX, 7, "TRANSFER is sent"};
	struct wire_w w;

	start(&w, body);
	proto_put_step(&w, &m);
	end(&w, body);
}

static int parse_step(const uint8_t *bytes, size_t len)
{
	struct msg_step m;
	struct wire_r r;
	int rc;

	wire_r_init(&r, bytes, len);
	rc = proto_get_step(&r, &m);
	if (!rc)
		ck_assert(m.about == 5 && m.node == 2 && m.page == UINT64_MAX && m.at_ns == 7 &&
			  strcmp(m.name, "TRANSFER is sent") == 0);
	return rc;
}

static const struct kind kinds[] = {
	{"CONNECT", build_connect, parse_connect},
	{"ACCEPT", build_accept, parse_accept},
	{"REFUSE", build_refuse, parse_refuse},
	{"TRANSFER", build_transfer, parse_transfer},
	{"TAKEN, REFUSED, CLOSE", build_verdict, parse_verdict},
	{"PULLED", build_pulled, parse_pulled},
	{"PREFILL", build_prefill, parse_prefill},
	{"FIGURES", build_figures, parse_figures},
	{"MIGRATE", build_migrate, parse_migrate},
	{"ANSWER", build_answer, parse_answer},
	{"GIVE_BACK", build_give_back, parse_give_back},
	{"GIVE_BACK_SAID", build_give_back_said, parse_give_back_said},
	{"PROGRESS", build_progress, parse_progress},
	{"CANCEL", build_cancel, parse_cancel},
	{"CLOCK", build_clock, parse_clock},
	{"CLOCKED", build_clocked, parse_clocked},
	{"STEP", build_step, parse_step},
};
#define N_KINDS ((int)(sizeof(kinds) / sizeof(kinds[0])))

/* Parses from memory of exactly that length, so that a sanitizer sees a read beyond it. */
static int parse_exact(const struct kind *kind, const uint8_t *bytes, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);
	int rc;

	memcpy(copy, bytes, len);
	rc = kind->parse(copy, len);
	free(copy);
	return rc;
}

START_TEST(comes_back_as_it_was)
{
	struct body body;

	kinds[_i].build(&body);
	ck_assert_int_eq(parse_exact(&kinds[_i], body.bytes, body.len), 0);
}
END_TEST

START_TEST(cut_at_any_byte_is_refused)
{
	struct body body;

	kinds[_i].build(&body);
	for (size_t len = 0; len < body.len; len++)
		ck_assert_msg(parse_exact(&kinds[_i], body.bytes, len) == -EBADMSG,
			      "%s of %zu bytes cut at %zu was taken", kinds[_i].name, body.len,
			      len);
}
END_TEST

START_TEST(a_byte_too_many_is_refused)
{
	struct body body;

	kinds[_i].build(&body);
	body.bytes[body.len] = 0;
	ck_assert_int_eq(parse_exact(&kinds[_i], body.bytes, body.len + 1), -EBADMSG);
}
END_TEST

START_TEST(another_version_is_refused)
{
	struct body body;

	kinds[_i].build(&body);
	body.bytes[0]++;
	ck_assert_int_eq(parse_exact(&kinds[_i], body.bytes, body.len), -EBADMSG);
}
END_TEST

/* A buffer that is too small makes the writer bad, and is not written beyond. */
START_TEST(a_small_buffer_is_noticed)
{
	struct msg_connect m = connect_sample();
	uint8_t buf[64];
	struct wire_w w;

	memset(buf, 0xaa, sizeof(buf));
	wire_w_init(&w, buf, 40);
	proto_put_connect(&w, &m);
	ck_assert(w.bad);
	for (size_t i = 40; i < sizeof(buf); i++)
		ck_assert_uint_eq(buf[i], 0xaa);
}
END_TEST

static int connect_with(struct msg_connect *m)
{
	struct msg_connect got;
	struct body body;
	struct wire_r r;
	struct wire_w w;
	int rc;

	start(&w, &body);
	proto_put_connect(&w, m);
	end(&w, &body);
	wire_r_init(&r, body.bytes, body.len);
	rc = proto_get_connect(&r, &got);
	if (!rc)
		free(got.ranges);
	return rc;
}

/* Ranges that would make a target reserve, or mark, pages that do not exist. */
START_TEST(senseless_ranges_are_refused)
{
	static struct msg_range bad[][2] = {
		{{0, 0}, {4096, 4096}},			/* empty */
		{{1, 4096}, {8192, 4096}},		/* not on a page */
		{{0, 100}, {4096, 4096}},		/* not whole pages */
		{{8192, 4096}, {0, 4096}},		/* out of order */
		{{0, 8192}, {4096, 4096}},		/* on top of each other */
		{{0, 4096}, {40960, 8192}},		/* beyond the end */
		{{0, 4096}, {4096, UINT64_MAX - 4095}}, /* wraps */
		{{0, 4096}, {UINT64_MAX - 4095, 4096}}, /* begins beyond the end */
	};
	struct msg_connect m = connect_sample();

	m.n_ranges = 2;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		m.ranges = bad[i];
		ck_assert_msg(connect_with(&m) == -EBADMSG, "ranges %zu were taken", i);
	}
	m.ranges = ranges;
	ck_assert_int_eq(connect_with(&m), 0);
}
END_TEST

START_TEST(more_ranges_than_bytes_are_refused)
{
	struct body body;
	size_t at;

	build_connect(&body);
	at = body.len - 3 * 16 - 4; /* their number */
	body.bytes[at] = 0xff;
	body.bytes[at + 1] = 0xff;
	ck_assert_int_eq(parse_exact(&kinds[0], body.bytes, body.len), -EBADMSG);
	body.bytes[at + 3] = 0x10; /* and more than are allowed at all */
	ck_assert_int_eq(parse_exact(&kinds[0], body.bytes, body.len), -EBADMSG);
}
END_TEST

START_TEST(numbers_out_of_range_are_refused)
{
	struct msg_connect m = connect_sample();

	m.id = RAMP_SEGMENT_ID_MIN - 1;
	ck_assert_int_eq(connect_with(&m), -EBADMSG);
	m = connect_sample();
	m.source_id = 0;
	ck_assert_int_eq(connect_with(&m), -EBADMSG);
	m = connect_sample();
	m.src_inc = 0;
	ck_assert_int_eq(connect_with(&m), -EBADMSG);
	m = connect_sample();
	m.size = PROTO_SIZE_MAX + 1;
	ck_assert_int_eq(connect_with(&m), -EBADMSG);
	m = connect_sample();
	m.slack_bytes = UINT64_MAX;
	ck_assert_int_eq(connect_with(&m), -EBADMSG);
}
END_TEST

START_TEST(names_that_are_no_names_are_refused)
{
	static const char *const bad[] = {"", ".", "..", "a/b", "/"};
	struct msg_connect m = connect_sample();

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		strcpy(m.name, bad[i]);
		ck_assert_msg(connect_with(&m) == -EBADMSG, "'%s' was taken", bad[i]);
	}
	memset(m.name, 'n', RAMP_NAME_MAX);
	m.name[RAMP_NAME_MAX] = 0;
	ck_assert_int_eq(connect_with(&m), 0);
}
END_TEST

/* Any single byte of any message altered: refused, or still within its bounds. */
START_TEST(altered_bytes_break_no_bound)
{
	struct body body;
	struct msg_connect m;
	struct wire_r r;

	build_connect(&body);
	for (size_t i = 0; i < body.len; i++) {
		for (unsigned v = 0; v < 256; v++) {
			uint8_t was = body.bytes[i];

			body.bytes[i] = (uint8_t)v;
			wire_r_init(&r, body.bytes, body.len);
			if (proto_get_connect(&r, &m) == 0) {
				ck_assert_uint_le(m.size, PROTO_SIZE_MAX);
				ck_assert(proto_name_ok(m.name));
				free(m.ranges);
			}
			body.bytes[i] = was;
		}
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("proto");
	TCase *tc = tcase_create("messages");

	tcase_add_loop_test(tc, comes_back_as_it_was, 0, N_KINDS);
	tcase_add_loop_test(tc, cut_at_any_byte_is_refused, 0, N_KINDS);
	tcase_add_loop_test(tc, a_byte_too_many_is_refused, 0, N_KINDS);
	tcase_add_loop_test(tc, another_version_is_refused, 0, N_KINDS);
	tcase_add_test(tc, a_small_buffer_is_noticed);
	tcase_add_test(tc, senseless_ranges_are_refused);
	tcase_add_test(tc, more_ranges_than_bytes_are_refused);
	tcase_add_test(tc, numbers_out_of_range_are_refused);
	tcase_add_test(tc, names_that_are_no_names_are_refused);
	tcase_add_test(tc, altered_bytes_break_no_bound);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
