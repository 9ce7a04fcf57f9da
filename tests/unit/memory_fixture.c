#include "memory_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/run_suite.h"
#include "own_mounts.h"

static char base[256];
static char dir[300];

int memory_namespace(void)
{
	const char *tmp = getenv("TMPDIR");

	if (geteuid() != 0) {
		fprintf(stderr, "skipped: a store is a mount, which takes root\n");
		return 77;
	}
	if (own_mounts()) {
		perror("a mount namespace of our own");
		return 1;
	}
	snprintf(base, sizeof(base), "%s/rampfs-memory-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(base)) {
		perror(base);
		return 1;
	}
	return 0;
}

void memory_fresh(uint64_t capacity)
{
	struct ramp_err err = {0};
	struct store *store;
	int rc;

	snprintf(dir, sizeof(dir), "%s/state", base);
	rc = store_destroy(dir, true, &err);
	ck_assert_msg(rc == 0, "%s", err.text);
	ck_assert(!mkdir(dir, 0700) || access(dir, F_OK) == 0);
	rc = store_open(dir, capacity, &store, &err);
	ck_assert_msg(rc == 0, "%s", err.text);
	store_close(store);
}

struct store *memory_again(const char *name, uint64_t capacity)
{
	struct ramp_err err = {0};
	struct store *store;
	char path[300];

	snprintf(path, sizeof(path), "%s/%s", base, name);
	ck_assert_msg(store_open(path, capacity, &store, &err) == 0, "%s", err.text);
	return store;
}

struct store *memory_beside(const char *name, uint64_t capacity)
{
	struct ramp_err err = {0};
	char path[300];

	snprintf(path, sizeof(path), "%s/%s", base, name);
	ck_assert_int_eq(store_destroy(path, true, &err), 0);
	ck_assert(!mkdir(path, 0700) || access(path, F_OK) == 0);
	return memory_again(name, capacity);
}

const char *memory_dir(void)
{
	return dir;
}

struct store *memory_open(void)
{
	struct ramp_err err = {0};
	struct store *store;
	int rc = store_open(dir, MEMORY_CAPACITY, &store, &err);

	ck_assert_msg(rc == 0, "%s", err.text);
	return store;
}

void memory_fill(struct seg *seg, uint8_t byte, uint64_t offset, uint64_t len)
{
	uint8_t piece[65536];

	memset(piece, byte, sizeof(piece));
	while (len) {
		size_t now = len < sizeof(piece) ? len : sizeof(piece);

		ck_assert_int_eq(pwrite(seg_fd(seg), piece, now, (off_t)offset), (ssize_t)now);
		offset += now;
		len -= now;
	}
}

void memory_small_page(struct seg *seg, uint8_t byte, uint64_t page)
{
	uint64_t end = (page + 1) * RAMP_PAGE_BYTES;
	uint8_t *at;

	if (seg_size(seg) < end)
		ck_assert_int_eq(ftruncate(seg_fd(seg), (off_t)end), 0);
	at = mmap(NULL, RAMP_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, seg_fd(seg),
		  (off_t)(end - RAMP_PAGE_BYTES));
	ck_assert_ptr_ne(at, MAP_FAILED);
	ck_assert_int_eq(madvise(at, RAMP_PAGE_BYTES, MADV_NOHUGEPAGE), 0);
	memset(at, byte, RAMP_PAGE_BYTES);
	munmap(at, RAMP_PAGE_BYTES);
}

uint64_t memory_blocks_bytes(struct seg *seg)
{
	struct stat st;

	ck_assert_int_eq(fstat(seg_fd(seg), &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	if (umount2(path, MNT_DETACH) && errno != EINVAL)
		perror(path);
	if (remove(path))
		perror(path);
	return 0;
}

int memory_run(Suite *suite)
{
	int failed = run_suite(suite);

	nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return failed;
}
