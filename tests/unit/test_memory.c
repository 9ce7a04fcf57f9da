/*
 * The store and its segments: found again, never half there, closed and opened by their gate.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/reserve.h"
#include "memory/spare.h"
#include "memory_fixture.h"

#define MIB (UINT64_C(1) << 20)

static struct store *store;
static struct ramp_err err;

static void open_fresh(void)
{
	memory_fresh(MEMORY_CAPACITY);
	store = memory_open();
}

static struct seg *create(ramp_segment_t id, enum record_kind kind)
{
	struct seg *seg;
	int rc = store_create(store, id, kind, 1, &seg, &err);

	ck_assert_msg(rc == 0, "%s", err.text);
	return seg;
}

static void reopen(void)
{
	store_close(store);
	store = memory_open();
}

static struct record given(void)
{
	return (struct record){
		.kind = RECORD_GIVEN,
		.epoch = 7,
		.k = {11, 12},
		.peer = 3,
		.peer_inc = 99,
		.unchanged = true,
		.size = 8192,
	};
}

/* ---- the store ---- */

START_TEST(a_store_that_is_opened_again_has_its_incarnation_and_segments)
{
	ramp_incarnation_t incarnation;
	struct record record;
	struct seg *seg;
	uint8_t byte = 0;

	open_fresh();
	incarnation = store_incarnation(store);
	ck_assert_uint_ne(incarnation, 0);
	seg = create(MEMORY_ID, RECORD_OWNED);
	memory_fill(seg, 0x5a, 0, 10000);
	seg_put(seg);

	reopen();

	ck_assert_uint_eq(store_incarnation(store), incarnation);
	seg = store_find(store, MEMORY_ID);
	ck_assert_ptr_nonnull(seg);
	record_get(seg, &record);
	ck_assert_int_eq(record.kind, RECORD_OWNED);
	ck_assert_uint_eq(record.epoch, 1);
	ck_assert_uint_eq(seg_size(seg), 10000);
	ck_assert_int_eq(pread(seg_fd(seg), &byte, 1, 9999), 1);
	ck_assert_uint_eq(byte, 0x5a);
	ck_assert_int_eq(seg_enter(seg), 0);
	seg_leave(seg);
	seg_put(seg);
	store_close(store);
}
END_TEST

START_TEST(a_store_that_is_made_anew_is_another_incarnation)
{
	ramp_incarnation_t first;

	open_fresh();
	first = store_incarnation(store);
	store_close(store);
	open_fresh();
	ck_assert_uint_ne(store_incarnation(store), first);
	store_close(store);
}
END_TEST

START_TEST(a_second_daemon_is_refused)
{
	struct store *second;
	pid_t child;
	int status;

	open_fresh();
	child = fork();
	if (child == 0) {
		int rc = store_open(memory_dir(), MEMORY_CAPACITY, &second, &err);

		_exit(rc == -EBUSY ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	store_close(store);
}
END_TEST

START_TEST(destroy_refuses_while_there_are_segments)
{
	struct seg *seg;

	open_fresh();
	seg = create(MEMORY_ID, RECORD_OWNED);
	seg_put(seg);
	store_close(store);

	ck_assert_int_eq(store_destroy(memory_dir(), false, &err), -EBUSY);
	ck_assert_int_eq(store_destroy(memory_dir(), true, &err), 0);
	ck_assert_int_eq(store_destroy(memory_dir(), false, &err), 0);
}
END_TEST

static void count_segment(void *arg, struct seg *seg)
{
	uint64_t *sum = arg;

	*sum += seg_id(seg);
}

START_TEST(the_table_holds_what_was_created_and_not_removed)
{
	uint64_t sum = 0, want = 0;
	struct seg *seg;

	open_fresh();
	for (ramp_segment_t id = 5000; id < 5300; id++) {
		seg = create(id, RECORD_OWNED);
		if (id % 3 == 0)
			ck_assert_int_eq(store_remove(seg, false, &err), 0);
		else
			want += id;
		seg_put(seg);
	}
	ck_assert_int_eq(store_create(store, 5000, RECORD_OWNED, 1, &seg, &err), -EEXIST);
	ck_assert_int_eq(store_create(store, 17, RECORD_OWNED, 1, &seg, &err), -EINVAL);
	store_each(store, count_segment, &sum);
	ck_assert_uint_eq(sum, want);
	reopen();
	sum = 0;
	store_each(store, count_segment, &sum);
	ck_assert_uint_eq(sum, want);
	ck_assert_ptr_null(store_find(store, 5001));
	store_close(store);
}
END_TEST

static void remove_one(ramp_segment_t id)
{
	struct seg *seg = store_find(store, id);

	ck_assert_int_eq(store_remove(seg, true, &err), 0);
	seg_put(seg);
}

START_TEST(a_full_store_says_so_at_the_call)
{
	struct store_space space;
	struct seg *seg, *second;
	uint8_t page[4096] = {1};
	uint64_t at = 0;

	open_fresh();
	seg = create(MEMORY_ID, RECORD_OWNED);
	store_space(store, &space);
	ck_assert_uint_eq(space.capacity_bytes, MEMORY_CAPACITY);
	while (pwrite(seg_fd(seg), page, sizeof(page), (off_t)at) == sizeof(page))
		at += sizeof(page);
	ck_assert_int_eq(errno, ENOSPC);
	store_space(store, &space);
	ck_assert_uint_lt(space.free_bytes, 4096);
	/* Empty segments find room, until that is used up, too; then it is filled again. */
	for (int round = 0; round < 2; round++) {
		ramp_segment_t id = MEMORY_ID + 1;

		for (; store_create(store, id, RECORD_OWNED, 1, &second, &err) == 0; id++) {
			ck_assert_int_ne(pwrite(seg_fd(second), page, sizeof(page), 0),
					 sizeof(page));
			seg_put(second);
		}
		ck_assert_int_eq(err.code, ENOSPC);
		ck_assert_uint_ge(id - MEMORY_ID - 1, SPARE_BYTES / sizeof(page));
		ck_assert_int_eq(ftruncate(seg_fd(seg), 0), 0);
		second = create(id, RECORD_OWNED);
		seg_put(second);
		while (id > MEMORY_ID)
			remove_one(id--);
		second = create(MEMORY_ID + 1, RECORD_OWNED); /* fills the spare */
		seg_put(second);
		remove_one(MEMORY_ID + 1);
		for (at = 0; pwrite(seg_fd(seg), page, sizeof(page), (off_t)at) == sizeof(page);)
			at += sizeof(page);
	}
	seg_put(seg);
	store_close(store);
}
END_TEST

START_TEST(private_files_live_with_the_store)
{
	char text[6] = "";
	int fd;

	open_fresh();
	fd = store_open_private(store, "init", O_RDWR | O_CREAT, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, "saved", 5), 5);
	close(fd);
	ck_assert_int_eq(store_open_private(store, "../init", O_RDONLY, 0), -EINVAL);
	ck_assert_int_eq(store_open_private(store, "123", O_RDWR | O_CREAT, 0600), -EINVAL);
	reopen();
	fd = store_open_private(store, "init", O_RDONLY, 0);
	ck_assert_int_eq(read(fd, text, 5), 5);
	ck_assert_str_eq(text, "saved");
	close(fd);
	store_close(store);
}
END_TEST

/* ---- segments found at a start ---- */

static void damage(const char *suffix, off_t offset, const void *bytes, size_t len)
{
	char path[400];
	int fd;

	snprintf(path, sizeof(path), "%s/store/%llu%s", memory_dir(), (unsigned long long)MEMORY_ID,
		 suffix);
	fd = open(path, O_RDWR);
	ck_assert_int_ge(fd, 0);
	if (bytes)
		ck_assert_int_eq(pwrite(fd, bytes, len, offset), (ssize_t)len);
	else
		ck_assert_int_eq(ftruncate(fd, offset), 0);
	close(fd);
}

static void expect_damaged(void)
{
	struct record record = given();
	struct seg *seg;

	store = memory_open();
	seg = store_find(store, MEMORY_ID);
	ck_assert_ptr_nonnull(seg);
	ck_assert(seg_damaged(seg));
	ck_assert_int_eq(seg_enter(seg), -EIO);
	ck_assert_int_eq(record_change(seg, &record, &err), -EINVAL);
	ck_assert_int_eq(store_remove(seg, true, &err), 0);
	seg_put(seg);
	ck_assert_ptr_null(store_find(store, MEMORY_ID));
	reopen();
	ck_assert_ptr_null(store_find(store, MEMORY_ID));
	store_close(store);
}

START_TEST(a_state_file_that_makes_no_sense_is_one_damaged_segment)
{
	static const struct {
		off_t offset;
		const void *bytes;
		size_t len;
	} how[] = {
		{0, "not a state file", 16},	 /* magic */
		{8, "\x02\x00\x00\x00", 4},	 /* version */
		{16, "\x01\x02\x03\x04", 4},	 /* incarnation */
		{24, "\x01", 1},		 /* id */
		{32, "\xff\xff\xff\xff\xff", 5}, /* a map longer than the file */
		{100, NULL, 0},			 /* cut off */
		{0, NULL, 0},			 /* empty */
	};
	struct seg *seg;

	for (size_t i = 0; i < sizeof(how) / sizeof(how[0]); i++) {
		open_fresh();
		seg = create(MEMORY_ID, RECORD_OWNED);
		seg_put(seg);
		seg = create(MEMORY_ID + 1, RECORD_OWNED);
		seg_put(seg);
		store_close(store);
		damage(".state", how[i].offset, how[i].bytes, how[i].len);
		expect_damaged();
		store = memory_open();
		seg = store_find(store, MEMORY_ID + 1);
		ck_assert_int_eq(seg_enter(seg), 0);
		seg_leave(seg);
		seg_put(seg);
		store_close(store);
	}
}
END_TEST

/* If set, the kernel does not say which filesystem is mounted. */
static bool no_statfs;
int __real_statfs(const char *path, struct statfs *fs);
int __wrap_statfs(const char *path, struct statfs *fs);

int __wrap_statfs(const char *path, struct statfs *fs)
{
	if (!no_statfs)
		return __real_statfs(path, fs);
	errno = ENOMEM;
	return -1;
}

/* How many calls of unlinkat(2) work, and how many fail then. */
static unsigned unlinks_work, unlinks_fail;
int __real_unlinkat(int dir_fd, const char *name, int flags);
int __wrap_unlinkat(int dir_fd, const char *name, int flags);

int __wrap_unlinkat(int dir_fd, const char *name, int flags)
{
	if (unlinks_work) {
		unlinks_work--;
	} else if (unlinks_fail) {
		unlinks_fail--;
		errno = EIO;
		return -1;
	}
	return __real_unlinkat(dir_fd, name, flags);
}

/* Removes a segment with 1 MiB, of which a file stays; the files are unlinked in order. */
static void remove_badly(unsigned works, unsigned fails)
{
	struct seg *seg = create(MEMORY_ID, RECORD_OWNED);

	memory_fill(seg, 'l', 0, 1 << 20);
	unlinks_work = works;
	unlinks_fail = fails;
	ck_assert_int_eq(store_remove(seg, true, &err), 0);
	seg_put(seg);
}

START_TEST(what_could_not_be_unlinked_goes_later)
{
	struct store_space before, space;
	struct seg *seg, *other;

	open_fresh();
	other = create(MEMORY_ID + 1, RECORD_OWNED);
	memory_fill(other, 'o', 0, 4096);
	store_space(store, &before);
	for (unsigned works = 0; works < 2; works++) {
		remove_badly(works, 3 - works); /* nor at once again, by neither name */
		ck_assert_ptr_null(store_find(store, MEMORY_ID));
		store_tidy(store);
		store_space(store, &space);
		ck_assert_uint_ge(space.used_bytes, before.used_bytes + (1 << 20));
		ck_assert_uint_eq(unlinks_fail, 0);
		store_tidy(store);
		store_space(store, &space);
		ck_assert_uint_eq(space.used_bytes, before.used_bytes);

		/* It comes back before any thread has looked. */
		remove_badly(works, 1);
		seg = create(MEMORY_ID, RECORD_OWNED);
		ck_assert_uint_eq(seg_size(seg), 0);
		ck_assert_int_eq(store_remove(seg, true, &err), 0);
		seg_put(seg);
	}

	/* It does not hinder the next daemon either: with its state file it is a segment again. */
	seg_put(other);
	remove_badly(1, 1);
	store_close(store);
	unlinks_fail = 1;
	store = memory_open();
	ck_assert_uint_eq(unlinks_fail, 0);
	ck_assert_ptr_null(store_find(store, MEMORY_ID));
	remove_badly(0, 1);
	store_close(store);
	store = memory_open();
	seg = store_find(store, MEMORY_ID);
	ck_assert_uint_eq(seg_size(seg), 1 << 20);
	ck_assert_int_eq(store_remove(seg, true, &err), 0);
	seg_put(seg);
	other = store_find(store, MEMORY_ID + 1);
	ck_assert_uint_eq(seg_size(other), 4096);
	seg_put(other);
	store_close(store);
}
END_TEST

START_TEST(a_store_that_cannot_be_looked_at_is_not_covered_by_another)
{
	struct seg *seg;

	open_fresh();
	seg = create(MEMORY_ID, RECORD_OWNED);
	seg_put(seg);
	store_close(store);
	no_statfs = true;
	ck_assert_int_eq(store_open(memory_dir(), MEMORY_CAPACITY, &store, &err), -ENOMEM);
	ck_assert_int_eq(store_destroy(memory_dir(), true, &err), -ENOMEM);
	no_statfs = false;
	store = memory_open();
	seg = store_find(store, MEMORY_ID);
	ck_assert_ptr_nonnull(seg);
	seg_put(seg);
	store_close(store);
}
END_TEST

/* Limits how many descriptors there may be beside those that are open. */
static void leave_free(rlim_t n)
{
	int next = open("/dev/null", O_RDONLY);
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = (rlim_t)next + n;
	close(next);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* In turn the first segment's state file can't be opened, its data file, those of the next one, ...:
   none is called damaged, or taken for the rest of a creation. */
START_TEST(what_cannot_be_looked_at_is_not_damaged)
{
	struct seg *seg;
	rlim_t refused = 0;

	open_fresh();
	for (ramp_segment_t id = MEMORY_ID; id < MEMORY_ID + 3; id++) {
		seg = create(id, RECORD_OWNED);
		memory_fill(seg, (uint8_t)id, 0, RAMP_PAGE_BYTES);
		seg_put(seg);
	}
	store_close(store);
	for (rlim_t n = 0; leave_free(n), store_open(memory_dir(), MEMORY_CAPACITY, &store, &err);
	     n++) {
		ck_assert_int_eq(err.code, EMFILE);
		refused++;
	}
	ck_assert_uint_gt(refused, 5);
	for (ramp_segment_t id = MEMORY_ID; id < MEMORY_ID + 3; id++) {
		uint8_t byte = 0;

		seg = store_find(store, id);
		ck_assert_ptr_nonnull(seg);
		ck_assert(!seg_damaged(seg));
		ck_assert_int_eq(seg_enter(seg), 0);
		ck_assert_int_eq(pread(seg_fd(seg), &byte, 1, 0), 1);
		ck_assert_uint_eq(byte, (uint8_t)id);
		seg_leave(seg);
		seg_put(seg);
	}
	store_close(store);
}
END_TEST

START_TEST(a_torn_record_leaves_the_one_before)
{
	struct record record = given(), got;
	struct seg *seg;

	open_fresh();
	seg = create(MEMORY_ID, RECORD_OWNED); /* slot 1 */
	ck_assert_int_eq(record_change(seg, &record, &err), 0);
	seg_put(seg);
	store_close(store);

	damage(".state", 48 + 20, "torn", 4); /* slot 0: GIVEN */

	store = memory_open();
	seg = store_find(store, MEMORY_ID);
	record_get(seg, &got);
	ck_assert_int_eq(got.kind, RECORD_OWNED);
	seg_put(seg);
	store_close(store);

	damage(".state", 48 + 128 + 20, "torn", 4); /* slot 1 as well */
	expect_damaged();
}
END_TEST

START_TEST(leftovers_are_removed)
{
	static const char *const names[] = {"9000", "9001.state.new", "9002.slack", NULL};
	char path[400];
	struct seg *seg;
	int fd;

	open_fresh();
	seg = create(MEMORY_ID, RECORD_NONE);
	ck_assert_int_eq(seg_enter(seg), -EREMOTE);
	seg_put(seg);
	for (int i = 0; names[i]; i++) {
		snprintf(path, sizeof(path), "%s/store/%s", memory_dir(), names[i]);
		fd = open(path, O_RDWR | O_CREAT, 0600);
		ck_assert_int_ge(fd, 0);
		close(fd);
	}
	reopen();
	ck_assert_ptr_null(store_find(store, MEMORY_ID));
	ck_assert_ptr_null(store_find(store, 9000));
	for (int i = 0; names[i]; i++) {
		snprintf(path, sizeof(path), "%s/store/%s", memory_dir(), names[i]);
		ck_assert_int_eq(access(path, F_OK), -1);
	}
	store_close(store);
}
END_TEST

/* ---- records ---- */

START_TEST(records_take_only_the_steps_of_the_drawing)
{
	static const bool allowed[4][4] = {
		[RECORD_NONE] = {[RECORD_TAKEN] = true},
		[RECORD_OWNED] = {[RECORD_GIVEN] = true},
		[RECORD_GIVEN] = {[RECORD_OWNED] = true},
		[RECORD_TAKEN] = {[RECORD_OWNED] = true},
	};
	struct record record, before, after;
	struct seg *seg;
	int rc;

	open_fresh();
	for (int from = 0; from < 4; from++)
		for (int to = 0; to < 4; to++) {
			seg = create(MEMORY_ID, from == RECORD_OWNED || from == RECORD_GIVEN
							? RECORD_OWNED
							: RECORD_NONE);
			record = given();
			record.kind = (enum record_kind)from;
			if (from == RECORD_GIVEN || from == RECORD_TAKEN)
				ck_assert_int_eq(record_change(seg, &record, &err), 0);
			record_get(seg, &before);
			record.kind = (enum record_kind)to;
			record.epoch = 8;
			rc = record_change(seg, &record, &err);
			record_get(seg, &after);
			if (allowed[from][to]) {
				ck_assert_int_eq(rc, 0);
				ck_assert_int_eq(after.kind, to);
				ck_assert_uint_eq(after.epoch, 8);
			} else {
				ck_assert_int_eq(rc, -EINVAL);
				ck_assert_int_eq(after.kind, before.kind);
				ck_assert_uint_eq(after.epoch, before.epoch);
			}
			ck_assert_int_eq(store_remove(seg, false, &err), 0);
			seg_put(seg);
		}
	store_close(store);
}
END_TEST

START_TEST(a_record_is_read_back_field_by_field)
{
	struct record record = given(), got;
	struct seg *seg;

	open_fresh();
	seg = create(MEMORY_ID, RECORD_OWNED);
	ck_assert_int_eq(record_change(seg, &record, &err), 0);
	ck_assert_int_eq(seg_enter(seg), -EREMOTE);
	seg_put(seg);
	reopen();
	seg = store_find(store, MEMORY_ID);
	record_get(seg, &got);
	ck_assert_int_eq(got.kind, RECORD_GIVEN);
	ck_assert_uint_eq(got.epoch, 7);
	ck_assert(ramp_attempt_equal(got.k, record.k));
	ck_assert_uint_eq(got.peer, 3);
	ck_assert_uint_eq(got.peer_inc, 99);
	ck_assert_uint_eq(got.size, 8192);
	ck_assert(got.unchanged);
	ck_assert(!got.demand_only);
	ck_assert_int_eq(seg_enter(seg), -EREMOTE);
	record.kind = RECORD_OWNED;
	ck_assert_int_eq(record_change(seg, &record, &err), 0);
	ck_assert_int_eq(seg_enter(seg), 0);
	seg_leave(seg);
	seg_put(seg);
	store_close(store);
}
END_TEST

/* ---- the gate ---- */

static atomic_int told;

static void on_change(void *arg, ramp_segment_t id)
{
	ck_assert_ptr_eq(arg, store);
	ck_assert_uint_eq(id, MEMORY_ID);
	atomic_fetch_add(&told, 1);
}

START_TEST(a_freeze_waits_for_those_inside_and_gives_up)
{
	struct seg *seg;

	open_fresh();
	store_on_change(store, on_change, store);
	seg = create(MEMORY_ID, RECORD_OWNED);
	ck_assert_int_eq(seg_enter(seg), 0);
	ck_assert_int_eq(seg_freeze(seg, 20, &err), -ETIMEDOUT);
	ck_assert_int_eq(atomic_load(&told), 1);
	ck_assert_int_eq(seg_enter(seg), 0);
	seg_leave(seg);
	seg_leave(seg);
	ck_assert_int_eq(seg_freeze(seg, 1000, &err), 0);
	ck_assert_int_eq(seg_freeze(seg, 1000, &err), -EBUSY);
	ck_assert_int_eq(seg_enter(seg), -EAGAIN);
	seg_thaw(seg);
	ck_assert_int_eq(atomic_load(&told), 2);
	ck_assert_int_eq(seg_enter(seg), 0);
	seg_leave(seg);
	seg_put(seg);
	store_close(store);
}
END_TEST

struct gate_race {
	struct seg *seg;
	atomic_int inside, frozen, stop;
	atomic_ullong entered, refused;
};

static void *enter_and_leave(void *arg)
{
	struct gate_race *race = arg;

	while (!atomic_load(&race->stop)) {
		if (seg_enter(race->seg)) {
			atomic_fetch_add(&race->refused, 1);
			continue;
		}
		atomic_fetch_add(&race->inside, 1);
		/* No thread may be inside while the freezer believes that it is alone. */
		ck_assert(!atomic_load(&race->frozen));
		atomic_fetch_add(&race->entered, 1);
		atomic_fetch_sub(&race->inside, 1);
		seg_leave(race->seg);
	}
	return NULL;
}

START_TEST(nobody_is_inside_while_it_is_frozen)
{
	struct gate_race race = {0};
	pthread_t threads[3];

	open_fresh();
	race.seg = create(MEMORY_ID, RECORD_OWNED);
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, enter_and_leave, &race);
	for (int i = 0; i < 2000; i++) {
		ck_assert_int_eq(seg_freeze(race.seg, 10000, &err), 0);
		atomic_store(&race.frozen, 1);
		ck_assert_int_eq(atomic_load(&race.inside), 0);
		atomic_store(&race.frozen, 0);
		seg_thaw(race.seg);
		if (i % 16 == 0)
			while (atomic_load(&race.entered) < (unsigned long long)i)
				sched_yield();
	}
	atomic_store(&race.stop, 1);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_gt(atomic_load(&race.entered), 0);
	seg_put(race.seg);
	store_close(store);
}
END_TEST

/* ---- removal ---- */

static int remove_proved(struct seg *seg)
{
	return store_remove(seg, true, &err);
}

START_TEST(removal_with_proof_refuses_while_anybody_has_it)
{
	struct record record = given();
	uint8_t *base, *theirs;
	struct seg *seg;
	uint64_t len;
	int fd;

	open_fresh();
	seg = create(MEMORY_ID, RECORD_OWNED);
	memory_fill(seg, 1, 0, 8192);
	ck_assert_int_eq(seg_map(seg, &base, &len, &err), 0);
	ck_assert_int_eq(remove_proved(seg), -EBUSY); /* the daemon's own mapping */
	seg_unmap(seg);
	ck_assert_int_eq(seg_enter(seg), 0);
	ck_assert_int_eq(remove_proved(seg), -EBUSY); /* a thread is inside */
	seg_leave(seg);
	fd = seg_open(seg, O_RDONLY);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(remove_proved(seg), -EBUSY); /* open */
	theirs = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	ck_assert_int_eq(remove_proved(seg), -EBUSY); /* mapped */

	/* and everything is as before */
	ck_assert_int_eq(seg_enter(seg), 0);
	ck_assert_int_eq(pwrite(seg_fd(seg), "x", 1, 0), 1);
	ck_assert_int_eq(theirs[0], 'x');
	seg_leave(seg);
	ck_assert_int_eq(record_change(seg, &record, &err), 0);

	munmap(theirs, 8192);
	ck_assert_int_eq(remove_proved(seg), 0);
	ck_assert_int_eq(remove_proved(seg), -ENOENT);
	ck_assert_int_eq(seg_enter(seg), -EREMOTE); /* for a thread that found it before */
	ck_assert_int_eq(seg_open(seg, O_RDWR), -ENOENT);
	ck_assert_int_eq(seg_map(seg, &base, &len, &err), -ENOENT);
	ck_assert_ptr_null(store_find(store, MEMORY_ID));
	seg_put(seg);
	store_close(store);
}
END_TEST

struct direct {
	struct seg *seg;
	atomic_bool over;
};

static void *end_direct(void *arg)
{
	struct direct *d = arg;

	usleep(100000);
	atomic_store(&d->over, true);
	seg_direct_end(d->seg);
	return NULL;
}

START_TEST(a_descriptor_is_handed_out_behind_who_has_begun)
{
	struct direct d = {0};
	pthread_t thread;
	struct seg *seg;
	int fd;

	open_fresh();
	seg = d.seg = create(MEMORY_ID, RECORD_OWNED);
	fd = seg_hand_out(seg, O_RDONLY); /* a program that only reads can block nothing */
	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert(!seg_handed_out(seg));
	ck_assert(seg_direct_begin(seg));
	ck_assert_int_eq(pthread_create(&thread, NULL, end_direct, &d), 0);
	fd = seg_hand_out(seg, O_RDWR);
	ck_assert(atomic_load(&d.over));
	pthread_join(thread, NULL);
	ck_assert_int_eq(pwrite(fd, "x", 1, 0), 1);
	close(fd);
	ck_assert(seg_handed_out(seg));
	ck_assert(!seg_direct_begin(seg));
	seg_direct_over(seg); /* the refused begin does not count */
	seg_put(seg);

	reopen();
	seg = store_find(store, MEMORY_ID);
	ck_assert_ptr_nonnull(seg);
	ck_assert(seg_handed_out(seg));
	ck_assert(!seg_direct_begin(seg));
	seg_put(seg);
	store_close(store);
}
END_TEST

/* ---- mapping, layout ---- */

static void *look_and_open(void *arg)
{
	struct gate_race *race = arg;
	int fd, rc;

	while (!atomic_load(&race->stop)) {
		rc = seg_enter(race->seg);
		ck_assert(rc == 0 || rc == -EAGAIN);
		if (rc == 0)
			seg_leave(race->seg);
		ck_assert_uint_eq(seg_size(race->seg), 8192);
		fd = seg_open(race->seg, O_RDONLY);
		ck_assert_int_ge(fd, 0);
		close(fd);
		atomic_fetch_add(&race->entered, 1);
	}
	return NULL;
}

START_TEST(nobody_notices_a_removal_that_is_refused)
{
	struct gate_race race = {0};
	pthread_t threads[2];
	int fd;

	open_fresh();
	race.seg = create(MEMORY_ID, RECORD_OWNED);
	memory_fill(race.seg, 1, 0, 8192);
	fd = seg_open(race.seg, O_RDONLY);
	ck_assert_int_ge(fd, 0);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, look_and_open, &race);
	while (atomic_load(&race.entered) < 30000)
		ck_assert_int_eq(remove_proved(race.seg), -EBUSY);
	atomic_store(&race.stop, 1);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(seg_enter(race.seg), 0);
	seg_leave(race.seg);
	close(fd);
	ck_assert_int_eq(remove_proved(race.seg), 0);
	seg_put(race.seg);
	store_close(store);
}
END_TEST

START_TEST(the_mapping_grows_with_the_file_and_old_bases_stay)
{
	uint8_t *first, *second;
	struct seg *seg;
	uint64_t len;

	open_fresh();
	seg = create(MEMORY_ID, RECORD_OWNED);
	memory_fill(seg, 7, 0, 5000);
	ck_assert_int_eq(seg_map(seg, &first, &len, &err), 0);
	ck_assert_uint_eq(len, 8192);
	memory_fill(seg, 8, 0, 20 * MIB);
	ck_assert_int_eq(seg_map(seg, &second, &len, &err), 0);
	ck_assert_uint_eq(len, 20 * MIB);
	ck_assert_uint_eq(second[20 * MIB - 1], 8);
	ck_assert_uint_eq(first[4999], 8);
	seg_unmap(seg);
	ck_assert_uint_eq(first[4999], 8);
	seg_unmap(seg);
	seg_put(seg);
	store_close(store);
}
END_TEST

START_TEST(that_we_map_it_is_no_access)
{
	const struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_nsec = UTIME_NOW}};
	struct stat st;
	uint8_t *base;
	struct seg *seg;
	uint64_t len;

	open_fresh();
	seg = create(MEMORY_ID, RECORD_OWNED);
	memory_fill(seg, 1, 0, 5000);
	ck_assert_int_eq(seg_set_times(seg, times), 0);
	ck_assert_int_eq(seg_map(seg, &base, &len, &err), 0);
	ck_assert_int_eq(base[4999], 1);
	seg_unmap(seg);
	ck_assert_int_eq(seg_stat(seg, &st), 0);
	ck_assert_int_eq(st.st_atim.tv_sec, 1000000000);
	seg_put(seg);
	store_close(store);
}
END_TEST

START_TEST(a_changed_layout_is_seen)
{
	struct seg *seg;
	uint64_t grown;

	open_fresh();
	seg = create(MEMORY_ID, RECORD_OWNED);
	ck_assert_int_eq(ftruncate(seg_fd(seg), 8 * MIB), 0);
	memory_fill(seg, 1, 0, 4096);
	seg_note_layout(seg);
	ck_assert(!seg_layout_changed(seg, &grown));
	memory_fill(seg, 2, 0, 4096);
	ck_assert(!seg_layout_changed(seg, &grown));
	memory_fill(seg, 2, 4 * MIB, 4096);
	ck_assert(seg_layout_changed(seg, &grown));
	ck_assert_uint_ge(grown, 4096);
	seg_note_layout(seg);
	/* One page goes, another comes: st_blocks is the same. */
	seg_layout_cut(seg);
	ck_assert(seg_layout_changed(seg, &grown));
	ck_assert_uint_eq(grown, 0);
	seg_put(seg);
	store_close(store);
}
END_TEST

/* As a program does past the shim: a page goes, another comes, and st_blocks is the same. */
static void punch_past_us(struct seg *seg, uint64_t gone, uint64_t come)
{
	char *at = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, seg_fd(seg), 0);
	int status;
	pid_t pid;

	ck_assert_ptr_ne(at, MAP_FAILED);
	ck_assert_int_eq(madvise(at, 8 * MIB, MADV_NOHUGEPAGE), 0);
	pid = fork();
	if (pid == 0) {
		at[come] = 1;
		_exit(madvise(at + gone, 4096, MADV_REMOVE) ? 1 : 0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	munmap(at, 8 * MIB);
}

START_TEST(a_hole_that_a_program_punches_past_us_is_seen)
{
	struct seg *seg, *other;
	struct stat before, after;
	uint64_t grown;

	open_fresh();
	seg = create(MEMORY_ID, RECORD_OWNED);
	other = create(MEMORY_ID + 1, RECORD_OWNED);
	ck_assert_int_eq(ftruncate(seg_fd(seg), 8 * MIB), 0);
	ck_assert_int_eq(ftruncate(seg_fd(other), 8 * MIB), 0);
	memory_fill(seg, 1, 0, 4096);
	seg_note_layout(seg);
	seg_note_layout(other);
	ck_assert_int_eq(seg_stat(seg, &before), 0);
	punch_past_us(seg, 0, 4 * MIB);
	ck_assert_int_eq(seg_stat(seg, &after), 0);
	ck_assert_int_eq(after.st_blocks, before.st_blocks);
	ck_assert(!seg_layout_changed(other, &grown)); /* reads all events */
	ck_assert(seg_layout_changed(seg, &grown));
	ck_assert_uint_eq(grown, 0);
	seg_note_layout(seg);
	ck_assert(!seg_layout_changed(seg, &grown));
	seg_forget_layout(seg);
	punch_past_us(seg, 4 * MIB, 0);
	seg_note_layout(seg);
	ck_assert(!seg_layout_changed(seg, &grown));
	seg_put(other);
	seg_put(seg);
	store_close(store);
}
END_TEST

#define CROWD 100

static struct seg *crowd_member(int i)
{
	struct seg *seg = create(MEMORY_ID + (ramp_segment_t)i, RECORD_OWNED);

	ck_assert_int_eq(ftruncate(seg_fd(seg), 8 * MIB), 0);
	memory_fill(seg, 1, 0, 4096);
	seg_note_layout(seg);
	punch_past_us(seg, 0, 4 * MIB);
	return seg;
}

static void *look_at_layout(void *arg)
{
	uint64_t grown;

	ck_assert(seg_layout_changed(arg, &grown));
	return NULL;
}

/* The first thread to look reads the events of all segments; the other one must wait for it. */
START_TEST(two_who_look_at_layouts_at_once)
{
	struct seg *crowd[CROWD];
	pthread_t first;
	uint64_t grown;

	open_fresh();
	for (int i = 0; i < CROWD; i++)
		crowd[i] = crowd_member(i);
	pthread_create(&first, NULL, look_at_layout, crowd[0]);
	usleep(100u * (unsigned)_i);
	ck_assert(seg_layout_changed(crowd[CROWD - 1], &grown));
	pthread_join(first, NULL);
	for (int i = 0; i < CROWD; i++)
		seg_put(crowd[i]);
	store_close(store);
}
END_TEST

/* The kernel opens the file of each event for the daemon: if it can't, that counts as a change. */
START_TEST(a_hole_is_seen_without_descriptors_too)
{
	struct seg *seg, *other;
	struct rlimit limit;
	uint64_t grown;

	open_fresh();
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	other = crowd_member(0);
	seg = crowd_member(1);
	leave_free((rlim_t)_i);
	seg_layout_changed(other, &grown);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert(seg_layout_changed(seg, &grown));
	seg_put(other);
	seg_put(seg);
	store_close(store);
}
END_TEST

/* A move is given up; then the segment is removed. */
START_TEST(a_forgotten_layout_keeps_no_memory)
{
	struct store_space before, after;
	struct seg *seg;
	uint64_t grown;

	open_fresh();
	store_space(store, &before);
	seg = create(MEMORY_ID, RECORD_OWNED);
	seg_note_layout(seg);
	memory_fill(seg, 1, 0, 8 * MIB);
	if (_i)
		ck_assert(seg_layout_changed(seg, &grown));
	memory_fill(seg, 2, 0, 8 * MIB);
	seg_forget_layout(seg);
	ck_assert_int_eq(store_remove(seg, false, &err), 0);
	seg_put(seg);
	store_space(store, &after);
	ck_assert_uint_eq(after.used_bytes, before.used_bytes);
	store_close(store);
}
END_TEST

static int64_t mtime_s(struct seg *seg)
{
	struct stat st;

	ck_assert_int_eq(seg_stat(seg, &st), 0);
	return st.st_mtim.tv_sec;
}

START_TEST(the_time_of_the_last_write_is_held_while_pages_come)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 2000}};
	struct seg *seg;
	struct stat st;

	open_fresh();
	seg = create(MEMORY_ID, RECORD_OWNED);
	seg_note_write(seg); /* no time is held: the file has it */
	seg_hold_mtime(seg, (struct timespec){.tv_sec = -1000, .tv_nsec = 5});
	memory_fill(seg, 1, 0, 4096); /* as a page that arrives */
	ck_assert_int_eq(mtime_s(seg), -1000);

	/* It is kept beside the bytes: another daemon finds it. */
	seg_put(seg);
	reopen();
	seg = store_find(store, MEMORY_ID);
	ck_assert_ptr_nonnull(seg);
	ck_assert_int_eq(mtime_s(seg), -1000);

	ck_assert_int_eq(seg_set_times(seg, times), 0);
	memory_fill(seg, 1, 4096, 4096);
	ck_assert_int_eq(mtime_s(seg), 2000);

	/* When all pages are here, the file gets it, and reports it itself from now on. */
	seg_release_mtime(seg);
	ck_assert_int_eq(fstat(seg_fd(seg), &st), 0);
	ck_assert_int_eq(st.st_mtim.tv_sec, 2000);
	memory_fill(seg, 1, 8192, 4096);
	ck_assert_int_gt(mtime_s(seg), 2000);

	/* A user's write meanwhile is a write. */
	seg_hold_mtime(seg, (struct timespec){.tv_sec = 1});
	seg_note_write(seg);
	ck_assert_int_gt(mtime_s(seg), 2000);
	seg_release_mtime(seg);
	ck_assert_int_gt(mtime_s(seg), 2000);
	seg_put(seg);
	store_close(store);
}
END_TEST

#define MANY  5000
#define AWAKE 4096 /* as many keep their file open and their header mapped */

static unsigned open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static unsigned mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned n = 0;
	int c;

	ck_assert_ptr_nonnull(maps);
	while ((c = fgetc(maps)) != EOF)
		n += c == '\n';
	fclose(maps);
	return n;
}

static bool never(void *arg, struct seg *seg)
{
	(void)arg;
	(void)seg;
	return false;
}

static void check_owner(ramp_segment_t id, uint32_t mode)
{
	struct seg *seg = store_find(store, id);
	struct seg_owner owner = seg_owner(seg);

	ck_assert_uint_eq(owner.mode, mode);
	ck_assert_uint_eq(owner.uid, 7);
	ck_assert_uint_eq(owner.gid, 8);
	seg_put(seg);
}

/* A segment at rest that can't be woken reports its owner all the same, also to the next daemon. */
static ramp_segment_t note_owner_without_descriptors(void)
{
	struct seg_owner owner = {.mode = 0640, .uid = 7, .gid = 8};
	struct rlimit limit;
	struct seg *seg = NULL;
	ramp_segment_t id;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	leave_free(0);
	for (uint64_t i = 0; !seg; i++) {
		ck_assert_uint_lt(i, MANY);
		seg = store_find(store, MEMORY_ID + i);
		if (seg_enter(seg) == -EMFILE)
			break;
		seg_leave(seg);
		seg_put(seg);
		seg = NULL;
	}
	id = seg_id(seg);
	seg_note_owner(seg, &owner);
	check_owner(id, 0640);
	owner.mode = 04750;
	seg_note_owner(seg, &owner);
	check_owner(id, 04750);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	seg_put(seg);
	return id;
}

START_TEST(what_nobody_uses_costs_no_descriptor_and_no_mapping)
{
	unsigned files, maps;
	struct record given = {.kind = RECORD_GIVEN, .epoch = 7};
	struct seg *seg, *held;
	ramp_segment_t noted;
	char byte = 'r';

	open_fresh();
	files = open_files();
	maps = mappings();
	for (uint64_t i = 0; i < MANY; i++)
		seg_put(create(MEMORY_ID + i, RECORD_OWNED));
	store_each_touched(store, never, NULL); /* each thread that touched them had a reference */
	noted = note_owner_without_descriptors();
	store_each_touched(store, never, NULL);
	ck_assert_uint_le(open_files(), files + AWAKE);
	ck_assert_uint_le(mappings(), maps + AWAKE + 200); /* the allocator has some, too */

	for (uint64_t i = 0; i < MANY; i += 100) { /* as before fallocate(2), at rest and awake */
		seg = store_find(store, MEMORY_ID + i);
		ck_assert_int_eq(seg_enter(seg), 0);
		reserve_keep(seg);
		seg_leave(seg);
		seg_put(seg);
	}
	for (int again = 0; again < 2; again++) {
		held = store_find(store, MEMORY_ID + MANY - 1);
		ck_assert_int_eq(seg_enter(held), 0);
		ck_assert_int_eq(pwrite(seg_fd(held), &byte, 1, 4096 * again), 1);
		seg_leave(held);
		/* At rest it is read without being woken. */
		seg = store_find(store, MEMORY_ID + MANY - 2);
		files = open_files();
		ck_assert_uint_eq(seg_size(seg), 0);
		ck_assert_uint_eq(open_files(), files);
		seg_put(seg);
		/* A segment with a reference keeps its descriptor. */
		store_each_touched(store, never, NULL);
		ck_assert_int_eq(pwrite(seg_fd(held), &byte, 1, 4096 * again), 1);
		seg_put(held);
		store_each_touched(store, never, NULL);
		held = store_find(store, MEMORY_ID + MANY - 1);
		ck_assert_uint_eq(seg_size(held), 4096 * (unsigned)again + 1);
		byte = 0;
		ck_assert_int_eq(pread(seg_fd(held), &byte, 1, 4096 * again), 1);
		ck_assert_int_eq(byte, 'r');
		seg_set_small(held, true);
		seg_put(held);
		reopen();
		check_owner(noted, 04750);
		ck_assert_uint_le(open_files(), files + AWAKE);
	}

	/* A migration takes its first step from rest, and its record stays. */
	seg = store_find(store, MEMORY_ID + MANY - 3);
	ck_assert_int_eq(record_change(seg, &given, &err), 0);
	seg_put(seg);
	reopen();
	seg = store_find(store, MEMORY_ID + MANY - 3);
	record_get(seg, &given);
	ck_assert_int_eq(given.kind, RECORD_GIVEN);
	ck_assert_uint_eq(given.epoch, 7);
	ck_assert_int_eq(seg_enter(seg), -EREMOTE);
	seg_put(seg);
	seg = store_find(store, MEMORY_ID + MANY - 1);
	ck_assert(seg_small(seg));
	seg_put(seg);
	for (uint64_t i = 0; i < MANY; i++) {
		seg = store_find(store, MEMORY_ID + i);
		ck_assert_ptr_nonnull(seg);
		ck_assert_int_eq(store_remove(seg, true, &err), 0);
		seg_put(seg);
	}
	store_close(store);
}
END_TEST

static bool note_id(void *arg, struct seg *seg)
{
	uint64_t *seen = arg;

	*seen += seg_id(seg);
	return false;
}

static uint64_t touched(void)
{
	uint64_t sum = 0;

	store_each_touched(store, note_id, &sum);
	return sum;
}

START_TEST(the_touched_are_those_whose_files_may_have_changed)
{
	struct seg *a, *b;
	struct store_space full, space;
	int fd;

	open_fresh();
	a = create(MEMORY_ID, RECORD_OWNED);
	b = create(MEMORY_ID + 1, RECORD_OWNED);
	seg_put(b);
	ck_assert_uint_eq(touched(), 2 * MEMORY_ID + 1);
	ck_assert_uint_eq(touched(), MEMORY_ID); /* referenced by a thread */
	seg_put(a);
	ck_assert_uint_eq(touched(), MEMORY_ID);
	ck_assert_uint_eq(touched(), 0);

	b = store_find(store, MEMORY_ID + 1);
	ck_assert_int_eq(seg_enter(b), 0);
	seg_leave(b);
	seg_put(b);
	ck_assert_uint_eq(touched(), MEMORY_ID + 1);
	b = store_find(store, MEMORY_ID + 1);
	fd = seg_open(b, O_RDONLY);
	seg_put(b);
	ck_assert_uint_eq(touched(), MEMORY_ID + 1);
	close(fd);

	/* A segment that is removed is not looked at any more, and its memory is freed without that. */
	b = store_find(store, MEMORY_ID + 1);
	memory_fill(b, 1, 0, 1 << 20);
	seg_touch(b);
	store_space(store, &full);
	ck_assert_int_eq(store_remove(b, true, &err), 0);
	seg_put(b);
	store_space(store, &space);
	ck_assert_uint_le(space.used_bytes + (1 << 20), full.used_bytes);
	ck_assert_uint_eq(touched(), 0);
	ck_assert_int_eq(seg_note_passed(store_find(store, MEMORY_ID), true), 0);
	a = store_find(store, MEMORY_ID);
	seg_touch(a);
	seg_put(a);
	seg_put(a);
	ck_assert_uint_eq(touched(), MEMORY_ID);
	ck_assert_uint_eq(touched(), MEMORY_ID); /* passed through: it changes without notice */
	store_close(store);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("memory");
	TCase *c = tcase_create("store");

	tcase_set_timeout(c, 60);
	tcase_add_test(c, a_store_that_is_opened_again_has_its_incarnation_and_segments);
	tcase_add_test(c, a_store_that_is_made_anew_is_another_incarnation);
	tcase_add_test(c, a_second_daemon_is_refused);
	tcase_add_test(c, destroy_refuses_while_there_are_segments);
	tcase_add_test(c, the_table_holds_what_was_created_and_not_removed);
	tcase_add_test(c, what_nobody_uses_costs_no_descriptor_and_no_mapping);
	tcase_add_test(c, the_touched_are_those_whose_files_may_have_changed);
	tcase_add_test(c, a_full_store_says_so_at_the_call);
	tcase_add_test(c, private_files_live_with_the_store);
	tcase_add_test(c, a_state_file_that_makes_no_sense_is_one_damaged_segment);
	tcase_add_test(c, what_cannot_be_looked_at_is_not_damaged);
	tcase_add_test(c, what_could_not_be_unlinked_goes_later);
	tcase_add_test(c, a_store_that_cannot_be_looked_at_is_not_covered_by_another);
	tcase_add_test(c, a_torn_record_leaves_the_one_before);
	tcase_add_test(c, leftovers_are_removed);
	tcase_add_test(c, records_take_only_the_steps_of_the_drawing);
	tcase_add_test(c, a_record_is_read_back_field_by_field);
	tcase_add_test(c, a_freeze_waits_for_those_inside_and_gives_up);
	tcase_add_test(c, nobody_is_inside_while_it_is_frozen);
	tcase_add_test(c, removal_with_proof_refuses_while_anybody_has_it);
	tcase_add_test(c, nobody_notices_a_removal_that_is_refused);
	tcase_add_test(c, the_mapping_grows_with_the_file_and_old_bases_stay);
	tcase_add_test(c, that_we_map_it_is_no_access);
	tcase_add_test(c, a_descriptor_is_handed_out_behind_who_has_begun);
	tcase_add_test(c, a_changed_layout_is_seen);
	tcase_add_test(c, a_hole_that_a_program_punches_past_us_is_seen);
	tcase_add_loop_test(c, two_who_look_at_layouts_at_once, 1, 6);
	tcase_add_loop_test(c, a_hole_is_seen_without_descriptors_too, 0, 2);
	tcase_add_loop_test(c, a_forgotten_layout_keeps_no_memory, 0, 2);
	tcase_add_test(c, the_time_of_the_last_write_is_held_while_pages_come);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	int rc = memory_namespace();

	return rc ? rc : memory_run(suite());
}
