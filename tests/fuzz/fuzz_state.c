/*
 * ID.state files (seg.c, record.c, pages.c): the input is one, cut or laid over a sparse file, and
 * seg_load finds it as at a daemon's start. The checksums are made right, unless the first byte
 * says to leave them: a wrong one ends the load at once.
 *
 * A file that is accepted is used: states are read, claimed, given back, lost and settled; the
 * counts fit the states.
 */
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/wire.h"
#include "fuzz.h"
#include "memory/pages.h"
#include "memory/seg_core.h"

#define ID	   UINT64_C(4711)
#define INC	   UINT64_C(0x1234)
#define FILE_BYTES (16u << 10)

enum choice { LEAVE_CRC = 1, LONGER = 2, SETTLE = 4 };

static struct store store;
static uint8_t file[FILE_BYTES];

static void make_right(struct state_header *h)
{
	uint8_t bytes[28];
	struct wire_w w;

	h->magic = STATE_MAGIC;
	h->version = STATE_VERSION;
	h->incarnation = INC;
	h->id = ID;
	wire_w_init(&w, bytes, sizeof(bytes));
	wire_put_u64(&w, h->magic);
	wire_put_u32(&w, h->version);
	wire_put_u64(&w, h->incarnation);
	wire_put_u64(&w, h->id);
	h->crc = wire_crc32c(bytes, w.len);
	for (int i = 0; i < 2; i++) {
		size_t at = STATE_SLOT_BYTES - sizeof(uint32_t);

		wire_w_init(&w, h->slots[i] + at, sizeof(uint32_t));
		wire_put_u32(&w, wire_crc32c(h->slots[i], at));
	}
}

static void put_files(const void *bytes, size_t len, bool longer)
{
	char path[128];
	int fd;

	if (store.dir_fd <= 0) {
		store.dir_fd = open(fuzz_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		store.incarnation = INC;
		pthread_mutex_init(&store.lock, NULL);
	}
	seg_state_name(ID, path);
	fd = openat(store.dir_fd, path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	fuzz_rule(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
	fuzz_rule(!longer || ftruncate(fd, 1 << 20) == 0);
	close(fd);
	fd = openat(store.dir_fd, "4711", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	fuzz_rule(fd >= 0 && ftruncate(fd, 1 << 20) == 0);
	close(fd);
}

static uint64_t count(struct seg *seg, uint64_t pages, enum page_state which)
{
	uint64_t n = 0, run;
	enum page_state state;

	for (uint64_t page = 0; page < pages; page += run) {
		run = pages_run(seg, page, pages - page, &state);
		fuzz_rule(run > 0 && state == pages_get(seg, page));
		n += state == which ? run : 0;
	}
	return n;
}

static void use(struct seg *seg, enum choice choices)
{
	uint64_t pages = atomic_load(&seg->map_pages), got;
	struct record record;

	record_get(seg, &record);
	fuzz_rule(record.kind != RECORD_NONE && record.kind <= RECORD_TAKEN);
	fuzz_rule(count(seg, pages, PAGE_IN_FLIGHT) == 0); /* REMOTE again after a restart */
	fuzz_rule(count(seg, pages, PAGE_REMOTE) + count(seg, pages, PAGE_LOST) ==
		  pages_missing(seg));
	fuzz_rule(count(seg, pages, PAGE_LOST) == pages_lost(seg));
	for (uint64_t at = pages_next_remote(seg, 0); at != UINT64_MAX;
	     at = pages_next_remote(seg, at + 1)) {
		fuzz_rule(at < pages && !pages_local(seg, at, 1));
		got = pages_claim(seg, at, 5);
		fuzz_rule(got > 0 && got <= 5);
		if (choices & SETTLE)
			pages_arrive(seg, at, got);
		else
			pages_give_back(seg, at, got);
	}
	if (!(choices & SETTLE))
		pages_lose_all(seg);
	fuzz_rule(pages_next_remote(seg, 0) == UINT64_MAX);
	pages_settle(seg);
	record.kind = record.kind == RECORD_OWNED ? RECORD_GIVEN : RECORD_OWNED;
	fuzz_rule(record_change(seg, &record, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};
	enum choice choices = fuzz_u8(&in);
	size_t len = in.left < sizeof(file) ? in.left : sizeof(file);
	struct seg *seg = NULL;
	int rc;

	memset(file, 0, sizeof(file));
	if (len)
		memcpy(file, in.at, len);
	if (!(choices & LEAVE_CRC))
		make_right((struct state_header *)(void *)file);
	if (len < sizeof(struct state_header) && !(choices & LEAVE_CRC))
		len = sizeof(struct state_header);
	put_files(file, len, choices & LONGER);
	rc = seg_load(&store, ID, &seg, NULL);
	fuzz_rule(rc == 0 || rc == 1);
	if (rc == 0)
		return 0;
	if (!seg_damaged(seg))
		use(seg, choices);
	seg_put(seg);
	return 0;
}

/* Seeds: the files that the real code writes for a target with pages of every state. */
void fuzz_seeds(void)
{
	struct record record = {.kind = RECORD_NONE, .k = {1, 2}, .peer = 2, .size = 1 << 20};
	uint8_t bytes[1 + 4096 + 512] = {0};
	char name[32];
	struct seg *seg;
	int fd;

	put_files("", 0, false);
	unlinkat(store.dir_fd, "4711", 0);
	fuzz_rule(seg_make(&store, ID, &record, NULL, &seg, NULL) == 0);
	fuzz_rule(pages_prepare(seg, 200 * 4096, NULL) == 0);
	fuzz_rule(pages_mark_remote(seg, 3, 100, NULL) == 0);
	record.kind = RECORD_TAKEN;
	fuzz_rule(record_change(seg, &record, NULL) == 0);
	fuzz_rule(pages_claim(seg, 10, 9) == 9);
	fuzz_rule(pages_lose(seg, 30, 7) == 7);
	seg_state_name(ID, name);
	fd = openat(store.dir_fd, name, O_RDONLY | O_CLOEXEC);
	fuzz_rule(read(fd, bytes + 1, sizeof(bytes) - 1) == (ssize_t)sizeof(bytes) - 1);
	close(fd);
	bytes[0] = LONGER;
	fuzz_seed("taken", bytes, sizeof(bytes));
	bytes[0] = LONGER | SETTLE;
	fuzz_seed("settles", bytes, sizeof(bytes));
	bytes[0] = LEAVE_CRC;
	fuzz_seed("short", bytes, 1 + 2048);
	seg_put(seg);
}
