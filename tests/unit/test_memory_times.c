/*
 * The time of the last write while it is held beside a segment's bytes, and events that come just
 * as it is given to the file.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "memory_fixture.h"

static struct store *store;
static struct ramp_err err;

static struct seg *create(void)
{
	struct seg *seg;
	int rc;

	memory_fresh(MEMORY_CAPACITY);
	store = memory_open();
	rc = store_create(store, MEMORY_ID, RECORD_OWNED, 1, &seg, &err);
	ck_assert_msg(rc == 0, "%s", err.text);
	return seg;
}

static int64_t mtime_s(struct seg *seg)
{
	struct stat st;

	ck_assert_int_eq(seg_stat(seg, &st), 0);
	return st.st_mtim.tv_sec;
}

/* Its time is released while a thread asks for the time, or right after it has set the file's. */
static struct seg *release_at_clock, *release_at_futimens;
int __real_clock_gettime(clockid_t clock, struct timespec *ts);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts);
int __real_futimens(int fd, const struct timespec times[2]);
int __wrap_futimens(int fd, const struct timespec times[2]);

static void release_once(struct seg **at)
{
	struct seg *seg = *at;

	*at = NULL;
	if (seg)
		seg_release_mtime(seg);
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *ts)
{
	release_once(&release_at_clock);
	return __real_clock_gettime(clock, ts);
}

int __wrap_futimens(int fd, const struct timespec times[2])
{
	int rc = __real_futimens(fd, times);

	release_once(&release_at_futimens);
	return rc;
}

static void drop(struct seg *seg)
{
	seg_put(seg);
	store_close(store);
}

START_TEST(a_write_does_not_hold_what_is_released_meanwhile)
{
	struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 2000}};
	struct seg *seg = create();

	seg_hold_mtime(seg, (struct timespec){.tv_sec = 1000});
	release_at_clock = seg;
	seg_note_write(seg);
	ck_assert_ptr_null(release_at_clock);
	memory_fill(seg, 1, 0, 4096);

	/* From here on the file has it. */
	ck_assert_int_eq(seg_set_times(seg, times), 0);
	memory_fill(seg, 1, 4096, 4096);
	ck_assert_int_gt(mtime_s(seg), 2000);
	drop(seg);
}
END_TEST

START_TEST(a_time_that_is_set_is_not_undone_by_a_release)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 2000}};
	struct seg *seg = create();

	seg_hold_mtime(seg, (struct timespec){.tv_sec = 1000});
	release_at_futimens = seg;
	ck_assert_int_eq(seg_set_times(seg, times), 0);
	ck_assert_ptr_null(release_at_futimens);
	ck_assert_int_eq(mtime_s(seg), 2000);

	seg_hold_mtime(seg, (struct timespec){.tv_sec = 1000});
	release_at_futimens = seg;
	times[1].tv_nsec = UTIME_NOW;
	ck_assert_int_eq(seg_set_times(seg, times), 0);
	ck_assert_int_gt(mtime_s(seg), 2000);
	drop(seg);
}
END_TEST

START_TEST(a_note_stays_beside_the_bytes_and_is_whole_or_none)
{
	static const char text[SEG_ABOUT_MAX] = "a note";
	uint8_t note[SEG_ABOUT_MAX];
	struct seg *seg = create();
	char path[PATH_MAX];
	FILE *f;

	ck_assert(!seg_has_about(seg) && seg_about(seg, note) == 0);
	seg_note_about(seg, text, sizeof(text));
	seg_put(seg);
	store_close(store);
	store = memory_open();
	seg = store_find(store, MEMORY_ID);
	ck_assert(seg_has_about(seg));
	ck_assert_uint_eq(seg_about(seg, note), sizeof(text));
	ck_assert_mem_eq(note, text, sizeof(text));
	seg_note_about(seg, "b", 1);
	ck_assert_uint_eq(seg_about(seg, note), 1);
	seg_note_about(seg, NULL, 0);
	ck_assert(!seg_has_about(seg) && seg_about(seg, note) == 0);

	/* As a daemon that is killed in the middle leaves it. */
	seg_note_about(seg, text, sizeof(text));
	drop(seg);
	snprintf(path, sizeof(path), "%s/store/%" PRIu64 ".state", memory_dir(), MEMORY_ID);
	f = fopen(path, "r+");
	for (long at = 0; fseek(f, at, SEEK_SET) == 0 && fread(note, 6, 1, f) == 1; at++)
		if (memcmp(note, text, 6) == 0) {
			fseek(f, at, SEEK_SET);
			fputc('A', f);
			break;
		}
	ck_assert_int_eq(fclose(f), 0);
	store = memory_open();
	seg = store_find(store, MEMORY_ID);
	ck_assert(!seg_has_about(seg) && seg_about(seg, note) == 0);
	drop(seg);
}
END_TEST

START_TEST(what_the_row_said_stays_beside_the_bytes)
{
	struct seg_dated row = {.size = 3 << 20,
				.times = {{.tv_sec = 0}, {.tv_sec = -5, .tv_nsec = 7}}};
	const struct timespec *made = row.times;
	struct timespec later[2] = {{.tv_sec = 0}, {.tv_sec = 9}};
	bool news[2];
	struct seg *seg = create();
	struct stat st;

	ck_assert(!seg_row_news(seg, made, news)); /* none was noted */
	seg_put(seg);
	ck_assert_int_eq(
		store_create_dated(store, MEMORY_ID + 1, RECORD_OWNED, 1, &row, &seg, &err), 0);
	ck_assert_int_eq(seg_stat(seg, &st), 0);
	ck_assert_int_eq(st.st_atim.tv_sec, 0);
	ck_assert_int_eq(st.st_mtim.tv_sec, -5);
	ck_assert_int_eq(st.st_size, 3 << 20);
	seg_put(seg);
	store_close(store);
	store = memory_open();
	seg = store_find(store, MEMORY_ID + 1);
	ck_assert(seg_row_news(seg, made, news));
	ck_assert(!news[0] && !news[1]);
	ck_assert(seg_row_news(seg, later, news));
	ck_assert(!news[0] && news[1]);

	seg_note_row(seg, later);
	ck_assert(seg_row_news(seg, later, news));
	ck_assert(!news[0] && !news[1]);
	seg_forget_row(seg);
	ck_assert(!seg_row_news(seg, later, news));
	drop(seg);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("memory_times");
	TCase *c = tcase_create("held");
	int rc = memory_namespace();

	tcase_add_test(c, a_write_does_not_hold_what_is_released_meanwhile);
	tcase_add_test(c, a_time_that_is_set_is_not_undone_by_a_release);
	tcase_add_test(c, what_the_row_said_stays_beside_the_bytes);
	tcase_add_test(c, a_note_stays_beside_the_bytes_and_is_whole_or_none);
	suite_add_tcase(s, c);
	return rc ? rc : memory_run(s);
}
