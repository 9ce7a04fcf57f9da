/* The base floor: errors, wire encoding, sizes and names of cluster.conf. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/config.h"
#include "base/err.h"
#include "base/log.h"
#include "base/output.h"
#include "base/size.h"
#include "base/wire.h"
#include "lib/run_suite.h"

START_TEST(errors_are_wrapped_in_front)
{
	struct ramp_err err = {0};

	ck_assert_int_eq(ramp_err_sys(&err, ENOSPC, "file %d", 7), -ENOSPC);
	ck_assert_str_eq(err.text, "file 7: No space left on device");
	ck_assert_int_eq(ramp_err_wrap(&err, "node %s", "a"), -ENOSPC);
	ck_assert_str_eq(err.text, "node a: file 7: No space left on device");
	ck_assert_int_eq(ramp_err_set(NULL, EIO, "no listener"), -EIO);
}
END_TEST

START_TEST(errors_that_are_too_long_are_cut)
{
	struct ramp_err err = {0};
	char long_text[2 * RAMP_ERR_TEXT_BYTES];

	memset(long_text, 'x', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = 0;
	ramp_err_sys(&err, EIO, "%s", long_text);
	ck_assert_uint_eq(strlen(err.text), RAMP_ERR_TEXT_BYTES - 1);
	ck_assert_ptr_nonnull(
		strstr(err.text, "xxx...: Input/output error")); /* the reason stays */
	for (size_t len = RAMP_ERR_TEXT_BYTES - 30; len < RAMP_ERR_TEXT_BYTES; len++) {
		ramp_err_sys(&err, EIO, "%.*s", (int)len, long_text);
		ck_assert_str_eq(strchr(err.text, ':'), ": Input/output error");
	}
	ramp_err_wrap(&err, "%s", long_text);
	ck_assert_uint_eq(strlen(err.text), RAMP_ERR_TEXT_BYTES - 1);
}
END_TEST

START_TEST(wire_gives_back_what_was_put)
{
	uint8_t buf[128];
	struct wire_w w;
	struct wire_r r;
	size_t len;
	char name[8];

	wire_w_init(&w, buf, sizeof(buf));
	wire_put_u8(&w, 0xab);
	wire_put_u16(&w, 0x1234);
	wire_put_u32(&w, 0xdeadbeef);
	wire_put_u64(&w, UINT64_C(0x0123456789abcdef));
	wire_put_str(&w, "name");
	wire_put_blob(&w, "\0\1", 2);
	ck_assert(!w.bad);
	ck_assert_uint_eq(buf[1], 0x34); /* little-endian */
	wire_r_init(&r, buf, w.len);
	ck_assert_uint_eq(wire_get_u8(&r), 0xab);
	ck_assert_uint_eq(wire_get_u16(&r), 0x1234);
	ck_assert_uint_eq(wire_get_u32(&r), 0xdeadbeef);
	ck_assert_uint_eq(wire_get_u64(&r), UINT64_C(0x0123456789abcdef));
	wire_get_str(&r, name, sizeof(name));
	ck_assert_str_eq(name, "name");
	ck_assert_mem_eq(wire_get_view(&r, &len), "\0\1", 2);
	ck_assert_uint_eq(len, 2);
	ck_assert(wire_r_done(&r));
}
END_TEST

START_TEST(wire_never_reads_or_writes_past_the_end)
{
	uint8_t buf[16] = {0};
	struct wire_w w;
	struct wire_r r;

	for (size_t cap = 0; cap < 12; cap++) {
		wire_w_init(&w, buf, cap);
		wire_put_u32(&w, 1);
		wire_put_u64(&w, 2);
		ck_assert(w.bad && w.len <= cap);
		wire_r_init(&r, buf, cap);
		wire_get_u32(&r);
		wire_get_u64(&r);
		ck_assert(r.bad && !wire_r_done(&r));
	}
}
END_TEST

START_TEST(wire_refuses_strings_that_are_none)
{
	uint8_t buf[32];
	struct wire_w w;
	struct wire_r r;
	char s[4];

	wire_w_init(&w, buf, sizeof(buf));
	wire_put_blob(&w, "a\0b", 3);
	wire_r_init(&r, buf, w.len);
	wire_get_str(&r, s, sizeof(s));
	ck_assert(r.bad && s[0] == 0);
	wire_w_init(&w, buf, sizeof(buf));
	wire_put_str(&w, "long");
	wire_r_init(&r, buf, w.len);
	wire_get_str(&r, s, sizeof(s));
	ck_assert(r.bad && s[0] == 0);
	wire_w_init(&w, buf, sizeof(buf));
	wire_put_u32(&w, UINT32_MAX); /* a blob that says it is 4 GiB */
	wire_r_init(&r, buf, w.len);
	wire_get_str(&r, s, sizeof(s));
	ck_assert(r.bad);
}
END_TEST

START_TEST(crc32c_is_castagnolis)
{
	ck_assert_uint_eq(wire_crc32c("123456789", 9), 0xe3069283);
	ck_assert_uint_eq(wire_crc32c("", 0), 0);
}
END_TEST

START_TEST(sizes)
{
	uint64_t v;

	ck_assert(size_parse("0", &v) == 0 && v == 0);
	ck_assert(size_parse("4096", &v) == 0 && v == 4096);
	ck_assert(size_parse("8G", &v) == 0 && v == UINT64_C(8) << 30);
	ck_assert(size_parse("32T", &v) == 0 && v == UINT64_C(32) << 40);
	ck_assert_int_eq(size_parse("18446744073709551615", &v), -ERANGE);
	ck_assert_int_eq(size_parse("16777216T", &v), -ERANGE);
	ck_assert_int_eq(size_parse("", &v), -EINVAL);
	ck_assert_int_eq(size_parse("-1", &v), -EINVAL);
	ck_assert_int_eq(size_parse("1.5G", &v), -EINVAL);
	ck_assert_int_eq(size_parse("1GB", &v), -EINVAL);
	ck_assert_int_eq(size_parse("0x10", &v), -EINVAL);
}
END_TEST

START_TEST(names_and_addresses)
{
	ck_assert(config_name_ok("node-1.lab_2"));
	ck_assert(!config_name_ok("") && !config_name_ok(".") && !config_name_ok("..") &&
		  !config_name_ok(".ramp") && !config_name_ok("a/b") && !config_name_ok("a b"));
	ck_assert(config_address_ok("host:1") && config_address_ok("[::1]:65535") &&
		  config_address_ok("10.0.0.1:7000"));
	ck_assert(!config_address_ok("host") && !config_address_ok(":1") &&
		  !config_address_ok("host:") && !config_address_ok("host:0") &&
		  !config_address_ok("host:65536") && !config_address_ok("::1:1") &&
		  !config_address_ok("host:1x") && !config_address_ok("[]:1") &&
		  !config_address_ok("ho\x1bst:1"));
}
END_TEST

/* An address that could not be read would make the state directory of every later joiner useless. */
START_TEST(an_address_that_is_accepted_can_be_read_in_a_cluster_conf)
{
	struct config_node node = {.name = "a", .capacity_bytes = CONFIG_CAPACITY_MIN};
	struct config_cluster made = {.name = "lab",
				      .arena_addr = CONFIG_ARENA_ADDR,
				      .arena_len = CONFIG_ARENA_LEN,
				      .nodes = &node,
				      .n_nodes = 1},
			      got;
	char path[] = "/tmp/rampfs-conf.XXXXXX", address[RAMP_ADDRESS_MAX + 2], *text;
	struct ramp_err err = {0};
	size_t len = sizeof(address);
	int fd = mkstemp(path);

	node.voter = true;
	do {
		memset(address, 'h', --len);
		snprintf(address + len - 2, 3, ":1");
	} while (!config_address_ok(address));
	ck_assert_uint_ge(len, 128);
	memcpy(node.address, address, len + 1);
	text = config_canonical(&made);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	ck_assert_msg(config_read(path, &got, &err) == 0, "%s", err.text);
	ck_assert_str_eq(got.nodes[0].address, address);
	config_free(&got);
	free(text);
	unlink(path);
}
END_TEST

START_TEST(canonical_text_is_a_config_that_means_the_same)
{
	char first[] = "/tmp/rampfs-conf.XXXXXX", second[] = "/tmp/rampfs-conf.XXXXXX";
	static const char text[] = "# comment\n[cluster]\nname = lab\n\n[node a]\n"
				   "capacity=1G\naddress=h:1\n[node b]\nvoter=no\n"
				   "address=h:2\ncapacity=1048576K\ntransport=tcp\nstreams=4\n"
				   "[node c]\nstreams=auto\naddress=h:3\ncapacity=1G\n";
	struct config_cluster one, two;
	struct ramp_err err = {0};
	char *a, *b;
	int fd = mkstemp(first);

	ck_assert_int_eq(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
	close(fd);
	ck_assert_msg(config_read(first, &one, &err) == 0, "%s", err.text);
	ck_assert_uint_eq(one.n_nodes, 3);
	ck_assert(one.nodes[0].voter && !one.nodes[1].voter);
	ck_assert_uint_eq(one.nodes[0].streams, 0);
	ck_assert_uint_eq(one.nodes[1].streams, 4);
	ck_assert_uint_eq(one.nodes[2].streams, 0);
	ck_assert_uint_eq(one.nodes[0].capacity_bytes, one.nodes[1].capacity_bytes);
	/* The clusters' ids are made of it: no default that came later is in it. */
	a = config_canonical(&one);
	ck_assert_str_eq(
		a,
		"[cluster]\nname=lab\narena=0x200000000000:35184372088832\n"
		"[node a]\naddress=h:1\ncapacity=1073741824\ntransport=auto\nvoter=yes\n"
		"[node b]\naddress=h:2\ncapacity=1073741824\ntransport=tcp\nvoter=no\nstreams=4\n"
		"[node c]\naddress=h:3\ncapacity=1073741824\ntransport=auto\nvoter=yes\n");
	free(a);
	one.arena_user_max = UINT64_C(5) << 40;
	a = config_canonical(&one);
	fd = mkstemp(second);
	ck_assert_int_eq(write(fd, "\xef\xbb\xbf", 3), 3); /* as editors write UTF-8 */
	ck_assert_int_eq(write(fd, a, strlen(a)), (ssize_t)strlen(a));
	close(fd);
	ck_assert_msg(config_read(second, &two, &err) == 0, "%s", err.text);
	ck_assert_uint_eq(two.arena_user_max, UINT64_C(5) << 40);
	b = config_canonical(&two);
	ck_assert_str_eq(a, b);
	free(a);
	free(b);
	config_free(&one);
	config_free(&two);
	unlink(first);
	unlink(second);
}
END_TEST

/* Returns the line that log_line writes if stderr is a file. `stream`: JOURNAL_STREAM; empty: it
   names that very file; NULL: it is not set. */
static const char *logged(const char *stream, enum log_level level, const char *text)
{
	static char got[8192];
	char path[] = "/tmp/rampfs-log.XXXXXX";
	int fd = mkstemp(path), saved = dup(STDERR_FILENO);
	char name[64];
	struct stat st;
	ssize_t n;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	snprintf(name, sizeof(name), "%llu:%llu", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino);
	if (stream)
		setenv("JOURNAL_STREAM", *stream ? stream : name, 1);
	dup2(fd, STDERR_FILENO);
	log_open("rampfs", 0, LOG_LEVEL_INFO);
	log_line(level, "%s", text);
	dup2(saved, STDERR_FILENO);
	close(saved);
	unsetenv("JOURNAL_STREAM");
	n = pread(fd, got, sizeof(got) - 1, 0);
	ck_assert_int_ge(n, 0);
	got[n] = 0;
	close(fd);
	unlink(path);
	return got;
}

START_TEST(a_log_line_is_one_line_whatever_is_in_it)
{
	char all[3000];
	const char *line =
		logged(NULL, LOG_LEVEL_WARN, "'a\nrampfs: error: b\x1b[31m\x7f' \xc3\xa4\xff");

	ck_assert_ptr_nonnull(strstr(
		line, " rampfs: warning: 'a\\x0arampfs: error: b\\x1b[31m\\x7f' \xc3\xa4\xff\n"));
	ck_assert_ptr_eq(strchr(line, '\n'), line + strlen(line) - 1);
	memset(all, '\n', sizeof(all) - 1);
	all[sizeof(all) - 1] = 0;
	line = logged(NULL, LOG_LEVEL_ERROR, all);
	ck_assert_ptr_eq(strchr(line, '\n'), line + strlen(line) - 1);
	line = logged(NULL, LOG_LEVEL_WARN,
		      "a\xc2\x9b"
		      "31m b\x9b"
		      "31m \xc2\xa0 \xe2\x80\x9b");
	ck_assert_ptr_nonnull(strstr(line, " a\\xc2\\x9b31m b\\x9b31m \xc2\xa0 \xe2\x80\x9b\n"));
	ck_assert_str_eq(logged(NULL, LOG_LEVEL_DEBUG, "too much"), "");
}
END_TEST

START_TEST(log_lines_have_levels_in_the_journal_and_the_time_in_a_file)
{
	int year, month, day;

	ck_assert_str_eq(logged("", LOG_LEVEL_ERROR, "text"), "<3>text\n");
	ck_assert_str_eq(logged("", LOG_LEVEL_WARN, "text"), "<4>text\n");
	ck_assert_str_eq(logged("", LOG_LEVEL_INFO, "text"), "<6>text\n");
	/* systemd's variable is inherited, and stderr is a file all the same. */
	ck_assert_int_eq(
		sscanf(logged("1:2", LOG_LEVEL_INFO, "text"), "%d-%d-%d", &year, &month, &day), 3);
	ck_assert_ptr_nonnull(
		strstr(logged("1:2", LOG_LEVEL_INFO, "text"), " rampfs: info: text\n"));
}
END_TEST

/* 0, or the number of the look that went wrong. */
static int begun_without(int first, int last)
{
	char byte = 0;
	int fd;

	for (fd = first; fd <= last; fd++)
		close(fd);
	output_begin();
	fd = open("/dev/zero", O_RDWR);
	if (fd <= STDERR_FILENO)
		return 1;
	for (fd = first; fd <= last; fd++)
		if (fd == STDIN_FILENO ? read(fd, &byte, 1) != -1 : write(fd, &byte, 1) != -1)
			return 2;
	for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if ((fd < first || fd > last) && write(fd, &byte, 1) != 1)
			return 3;
	return 0;
}

START_TEST(nothing_is_opened_as_an_output_that_is_closed)
{
	for (int first = 0; first <= 2; first++)
		for (int last = first; last <= 2; last++) {
			int status, fd;
			pid_t pid = fork();

			if (pid == 0) {
				fd = open("/dev/null", O_RDWR);
				for (int i = 0; i <= 2; i++)
					dup2(fd, i);
				close_range(3, ~0U, 0);
				_exit(begun_without(first, last));
			}
			ck_assert_int_eq(waitpid(pid, &status, 0), pid);
			ck_assert_msg(status == 0, "%d to %d closed: %x", first, last,
				      (unsigned)status);
		}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("base");
	TCase *tc = tcase_create("base");

	tcase_add_test(tc, errors_are_wrapped_in_front);
	tcase_add_test(tc, errors_that_are_too_long_are_cut);
	tcase_add_test(tc, wire_gives_back_what_was_put);
	tcase_add_test(tc, wire_never_reads_or_writes_past_the_end);
	tcase_add_test(tc, wire_refuses_strings_that_are_none);
	tcase_add_test(tc, crc32c_is_castagnolis);
	tcase_add_test(tc, sizes);
	tcase_add_test(tc, names_and_addresses);
	tcase_add_test(tc, an_address_that_is_accepted_can_be_read_in_a_cluster_conf);
	tcase_add_test(tc, canonical_text_is_a_config_that_means_the_same);
	tcase_add_test(tc, a_log_line_is_one_line_whatever_is_in_it);
	tcase_add_test(tc, log_lines_have_levels_in_the_journal_and_the_time_in_a_file);
	tcase_add_test(tc, nothing_is_opened_as_an_output_that_is_closed);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
