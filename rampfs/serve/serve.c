/*
 * The source's side: answers reads of a GIVEN segment under its attempt's key.
 *
 * Happy path: serve_grant maps the segment and exports it. The transport's serve threads ask for
 * pieces: data where the file has some that is not all zero, else a hole as far as it reaches. The
 * segment is frozen or GIVEN when a target can ask, so nothing of it changes.
 *
 * How it fails: a page that is LOST here is -EIO to the target, and so is a page whose memory has
 * failed. serve_revoke returns when no byte of the segment leaves this node any more. A program that
 * holds the file itself may cut it at any time, and a load from the mapping would be SIGBUS then: so
 * a serve thread reads by pread, and only the kernel touches the mapping, to send from it. A piece that
 * the kernel can't send from there (cut, or failed) ends the connection, and is read before it goes
 * out the next time. A program that may write to the file can keep the file's lock, too: then it
 * makes no call that takes it (find_data_run).
 */
#include "serve.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/log.h"
#include "base/page.h"
#include "memory/pages.h"
#include "memory/populated.h"
#include "memory/record.h"
#include "memory/reserve.h"

#define DATA_BYTES	(64u << 10) /* looked through at once: as many as the wire takes at once */
#define DATA_PAGES	(DATA_BYTES / RAMP_PAGE_BYTES)
#define ZERO_PAGES	(TP_READ_MAX_BYTES / RAMP_PAGE_BYTES) /* looked through for zeros at once */
#define DENSE_PIECES	16u /* without a zero page: only the first page of each is looked at then */
#define GLANCE_BYTES	64u /* of a page: where one of these is not zero, the page is not zero */
#define WORTH_A_HOLE	4u  /* zero pages that interrupt data */
#define FAILED_TRIES	3u  /* times in a row that a page must be EIO before it is lost */
#define HOLE_TO_THE_END (UINT64_C(1) << 62) /* bytes */

struct grant {
	LIST_ENTRY(grant) entry; /* protected by serve->lock */
	struct tp_key key;
	struct seg *seg;
	struct trace *trace;  /* a reference; NULL: not traced */
	pthread_mutex_t lock; /* protects the rest; of one of the serve threads at a time */
	uint8_t *base;
	uint64_t mapped;
	uint32_t maps;
	uint64_t data_from, data_to; /* bytes: the last range of data that was found */
	bool early;		     /* it was found before the freeze */
	uint32_t dense;		     /* pieces in a row without a zero page to skip */
	bool failing; /* something could not be sent: all is read before it goes out */
};

struct serve {
	struct tp *tp;
	pthread_mutex_t lock; /* protects grants */
	LIST_HEAD(, grant) grants;
};

static uint64_t min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static bool all_zero(const uint8_t *page)
{
	/* The analyzer does not see that pread(2) fills as many bytes as it says.
	   NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult) */
	return page[0] == 0 && memcmp(page, page + 1, RAMP_PAGE_BYTES - 1) == 0;
}

/* Maps a segment again that has grown between its grant and its freeze. */
static int map_again(struct grant *grant, uint64_t size)
{
	int rc;

	if (size <= grant->mapped)
		return 0;
	rc = seg_map(grant->seg, &grant->base, &grant->mapped, NULL);
	if (!rc)
		grant->maps++;
	return rc;
}

/* Finds the range of data around or behind `offset`, all of it. */
static void seek_data(struct grant *grant, uint64_t offset, uint64_t size)
{
	off_t from, to;

	from = lseek(seg_fd(grant->seg), (off_t)offset, SEEK_DATA);
	to = from < 0 ? from : lseek(seg_fd(grant->seg), from, SEEK_HOLE);
	if (to < 0) {
		/* Where the kernel does not say, all may be data: reading the pages shows it. */
		grant->data_from = errno == ENXIO ? size : offset;
		grant->data_to = size;
		return;
	}
	grant->data_from = page_down((uint64_t)from);
	grant->data_to = page_up((uint64_t)to);
}

/* Does the same for a file whose lock a program may keep, and for about as much as is asked for: this
   thread serves all other segments, too. */
static void look_for_data(struct grant *grant, uint64_t offset, uint64_t len, uint64_t size)
{
	const uint64_t to = min(size, grant->mapped); /* mapped as it was cut, it may be less */
	struct data_range run = {.offset = size};

	if (offset < to && find_data_run(grant->seg, grant->base, offset, to, len, &run) < 0)
		run = (struct data_range){offset, to - offset};
	grant->data_from = run.offset;
	grant->data_to = run.offset + run.len;
}

/* Finds the range of data around or behind `offset`, of which `len` bytes are asked for.
   data_from == data_to: none that far. */
static void find_data(struct grant *grant, uint64_t offset, uint64_t len, uint64_t size)
{
	if (offset >= grant->data_from && offset < grant->data_to)
		return;
	size = page_up(size);
	if (seg_direct_begin(grant->seg)) {
		seek_data(grant, offset, size);
		seg_direct_end(grant->seg);
	} else {
		look_for_data(grant, offset, len, size);
	}
}

static uint64_t zero_pages(const uint8_t *at, uint64_t max)
{
	uint64_t n = 0;

	while (n < max && all_zero(at + n * RAMP_PAGE_BYTES))
		n++;
	return n;
}

/* Returns how many pages are data: they end where a few zero pages come. */
static uint64_t data_pages(const uint8_t *at, uint64_t max)
{
	uint64_t n = 1, zeros = 0;

	for (; n < max && zeros < WORTH_A_HOLE; n++)
		zeros = all_zero(at + n * RAMP_PAGE_BYTES) ? zeros + 1 : 0;
	return n - zeros;
}

/* Returns the bytes of hole from `offset` on; 0: there is data. */
static uint64_t hole_bytes(struct grant *grant, uint64_t offset, uint64_t len, uint64_t size)
{
	find_data(grant, offset, len, size);
	if (offset >= size || grant->data_from >= size)
		return HOLE_TO_THE_END;
	return grant->data_from > offset ? grant->data_from - offset : 0;
}

/* Logs that the memory of the page there has failed (a hardware error): on tmpfs, read(2) says EIO
   for nothing else. Returns -EIO: the page is lost. */
static int has_failed(struct grant *grant, uint64_t offset)
{
	log_error("segment %" PRIu64 ": the memory of its page %" PRIu64
		  " has failed, which is lost",
		  seg_id(grant->seg), offset / RAMP_PAGE_BYTES);
	return -EIO;
}

/* Reads whole pages into buf, the last one filled up with zeros. *pages becomes less where one behind
   the first has failed, or the file ends (cut, since it was known as data). -EIO: the first page has
   failed, or the file ends before it; -EAGAIN: the target asks again. To lose a page is for ever, so
   it is not lost by one EIO. */
static int read_pages(struct grant *grant, uint64_t offset, uint64_t *pages, uint8_t *buf)
{
	size_t want = *pages * RAMP_PAGE_BYTES, got = 0;
	unsigned failed = 0;

	while (got < want) {
		ssize_t n = pread(seg_fd(grant->seg), buf + got, want - got, (off_t)(offset + got));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EIO || errno == EHWPOISON) && ++failed < FAILED_TRIES)
			continue;
		if (n < 0 && (errno == EIO || errno == EHWPOISON)) {
			*pages = got / RAMP_PAGE_BYTES;
			return *pages ? 0 : has_failed(grant, offset);
		}
		if (n < 0)
			return -EAGAIN; /* -EIO would say that they are lost */
		if (n == 0)
			break;
		got += (size_t)n;
		failed = 0;
	}
	*pages = page_count(got);
	memset(buf + got, 0, *pages * RAMP_PAGE_BYTES - got);
	return *pages ? 0 : -EIO;
}

/* Reads a page that begins with zeros to its end. 1: it is all zero; 0: it is not. */
static int is_zero_page(struct grant *grant, uint64_t offset)
{
	uint8_t buf[RAMP_PAGE_BYTES];
	ssize_t n = pread(seg_fd(grant->seg), buf, GLANCE_BYTES, (off_t)offset);
	uint64_t one = 1;
	int rc;

	for (ssize_t i = 0; i < n; i++)
		if (buf[i])
			return 0;
	rc = read_pages(grant, offset, &one, buf);
	return rc ? rc : all_zero(buf);
}

/* Counts the pages of long data, until the first page of a piece is zero. */
static int dense_pages(struct grant *grant, uint64_t offset, uint64_t max, uint64_t *pages)
{
	int rc = 0;

	for (*pages = 0; *pages < max; *pages += min(max - *pages, DATA_PAGES)) {
		rc = is_zero_page(grant, offset + *pages * RAMP_PAGE_BYTES);
		if (rc)
			break;
	}
	/* The pages before one that can't be read are good. */
	return rc < 0 && *pages == 0 ? rc : 0;
}

/* Counts, where the file has data, the pages that are zero, else those that are not (then *data). */
static int data_or_zeros(struct grant *grant, uint64_t offset, uint64_t max, const void **data,
			 uint64_t *pages)
{
	uint8_t buf[DATA_BYTES];
	uint64_t zeros = 0, some, more;
	int rc;

	max = min(max, (grant->data_to - offset) / RAMP_PAGE_BYTES);
	if (grant->dense >= DENSE_PIECES && !grant->failing) {
		rc = dense_pages(grant, offset, max, pages);
		if (*pages)
			*data = grant->base + offset;
		if (rc || *data)
			return rc;
	}
	do {
		some = min(max - zeros, DATA_PAGES);
		rc = read_pages(grant, offset + zeros * RAMP_PAGE_BYTES, &some, buf);
		if (rc && zeros)
			break; /* the pages before it are good */
		if (rc)
			return rc;
		more = zero_pages(buf, some);
		zeros += more;
	} while (more == some && zeros < min(max, ZERO_PAGES));
	*pages = zeros;
	if (zeros == 0) {
		*data = grant->base + offset;
		*pages = data_pages(buf, some);
	}
	grant->dense = *pages == some && !zeros ? grant->dense + 1 : 0;
	return 0;
}

/*
 * True: a single page where the file had data the last time that it was asked. It goes out unread: to
 * look whether it is zero would cost the program that waits for it more than to send it.
 */
static bool is_known_data(const struct grant *grant, uint64_t offset, size_t len)
{
	return len == RAMP_PAGE_BYTES && offset >= grant->data_from &&
	       offset + len <= min(grant->data_to, grant->mapped) && !grant->failing &&
	       pages_get(grant->seg, offset / RAMP_PAGE_BYTES) == PAGE_LOCAL;
}

/* True: the target can't go by its list of populated pages, and gives back the room of each hole
   that it is told. So zeros that have their pages here go out to it as zeros, not as a hole. */
static bool tells_holes(struct grant *grant)
{
	struct record record;

	record_get(grant->seg, &record);
	return record.kind == RECORD_GIVEN && !record.unchanged;
}

static int find_piece(struct grant *grant, uint64_t offset, size_t len, const void **data,
		      uint64_t *out_len)
{
	uint64_t size = seg_size(grant->seg), page = offset / RAMP_PAGE_BYTES, whole, pages;
	int rc;

	size = page_up(size);
	rc = map_again(grant, size);
	if (rc)
		return rc;
	/* pages from here on that are not lost */
	whole = pages_next_missing(grant->seg, page) - page;
	if (whole == 0)
		return -EIO;
	*data = NULL;
	pages = hole_bytes(grant, offset, len, size) / RAMP_PAGE_BYTES;
	if (pages == 0) {
		rc = data_or_zeros(grant, offset, min(len / RAMP_PAGE_BYTES, whole), data, &pages);
		if (!rc && !*data && tells_holes(grant))
			*data = grant->base + offset;
	}
	*out_len = min(pages, whole) * RAMP_PAGE_BYTES;
	return rc;
}

static int serve_piece(void *arg, uint64_t offset, size_t len, const void **data, uint64_t *out_len)
{
	struct grant *grant = arg;
	uint64_t page = offset / RAMP_PAGE_BYTES;
	int rc = 0;

	if (len == RAMP_PAGE_BYTES)
		trace_served(grant->trace, page, "the page is asked for");
	pthread_mutex_lock(&grant->lock);
	/* The target is to hear that a range that was cut between the grant and the freeze is a hole. */
	if (grant->early && tells_holes(grant))
		grant->data_from = grant->data_to = 0;
	grant->early = false;
	if (is_known_data(grant, offset, len)) {
		*data = grant->base + offset;
		*out_len = len;
	} else {
		rc = find_piece(grant, offset, len, data, out_len);
	}
	pthread_mutex_unlock(&grant->lock);
	if (len == RAMP_PAGE_BYTES)
		trace_served(grant->trace, page, "the page goes out");
	return rc;
}

/* True: the pages that were to be sent from there can't be read. */
static bool is_failing(struct grant *grant, const void *data, size_t len)
{
	uint64_t offset = (uint64_t)((uintptr_t)data - (uintptr_t)grant->base);
	uint64_t some = min(page_count(len), DATA_PAGES);
	uint64_t pages = some;
	uint8_t buf[DATA_BYTES];

	/* In the mapping from before the file grew: it can't be told. */
	if (offset >= grant->mapped)
		return true;
	offset -= offset % RAMP_PAGE_BYTES;
	return read_pages(grant, offset, &pages, buf) || pages < some;
}

/* The mapping stays for as long as the grant. Where pages could not be read, data is looked for again. */
static void piece_done(void *arg, const void *data, size_t len, size_t left)
{
	struct grant *grant = arg;

	if (left == 0)
		return;
	pthread_mutex_lock(&grant->lock);
	grant->data_from = grant->data_to = 0;
	if (!grant->failing)
		grant->failing = is_failing(grant, (const uint8_t *)data + len, left);
	pthread_mutex_unlock(&grant->lock);
}

/* True: programs continue to store into it (mode precopy). */
static bool is_live(struct grant *grant)
{
	struct record record;

	record_get(grant->seg, &record);
	return record.kind == RECORD_OWNED && !seg_copying(grant->seg);
}

/* Names no run while the segment is live: an adapter would continue to read a page that was punched out and
   made again, as it was. By a worker: it uses nothing that is the serve threads', and takes no lock that a program may keep. */
static int next_run(void *arg, uint64_t from, uint64_t *offset, uint64_t *len)
{
	struct grant *grant = arg;

	return is_live(grant) ? 0 : room_next_run(grant->seg, from, offset, len);
}

static bool is_ahead(void *arg)
{
	return is_live(arg);
}

static const struct tp_export_ops export_ops = {
	.piece = serve_piece, .done = piece_done, .next_run = next_run, .ahead = is_ahead};

/* serve->lock is held. */
static struct grant *find_grant(struct serve *serve, const struct tp_key *key)
{
	struct grant *grant;

	LIST_FOREACH (grant, &serve->grants, entry)
		if (tp_key_equal(&grant->key, key))
			return grant;
	return NULL;
}

static void grant_free(struct grant *grant)
{
	while (grant->maps--)
		seg_unmap(grant->seg);
	pthread_mutex_destroy(&grant->lock);
	seg_put(grant->seg);
	trace_put(grant->trace);
	free(grant);
}

int serve_open(struct tp *tp, struct serve **out, struct ramp_err *err)
{
	struct serve *serve = calloc(1, sizeof(*serve));

	if (!serve)
		return ramp_err_set(err, ENOMEM, "no memory to serve segments");
	serve->tp = tp;
	pthread_mutex_init(&serve->lock, NULL);
	*out = serve;
	return 0;
}

/* A serve thread that has a demand to answer lends its priority to the one that it waits for. */
static void init_lock(pthread_mutex_t *lock)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(lock, &attr);
	pthread_mutexattr_destroy(&attr);
}

int serve_grant(struct serve *serve, struct seg *seg, const struct tp_key *key, ramp_node_t reader,
		struct ramp_err *err)
{
	struct tp_export export = {
		.key = *key,
		.reader = reader,
		.map_fd = seg_fd(seg),
		.size = seg_size(seg),
		.ops = &export_ops,
	};
	struct grant *grant = calloc(1, sizeof(*grant));
	int rc;

	if (!grant)
		return ramp_err_set(err, ENOMEM, "no memory to serve a segment");
	grant->key = *key;
	grant->seg = seg_get(seg);
	init_lock(&grant->lock);
	rc = seg_map(seg, &grant->base, &grant->mapped, err);
	if (!rc) {
		grant->maps = 1;
		/* The kernel finds the end of data page by page (16 ms a GiB of small ones): the first
		   page fault would wait for that, and with it all reads that this node serves. */
		find_data(grant, 0, TP_READ_MAX_BYTES, export.size);
		grant->early = true;
		export.arg = grant;
		rc = tp_export(serve->tp, &export, err);
	}
	if (rc) {
		grant_free(grant);
		return rc == -EEXIST ? 0 : rc;
	}
	pthread_mutex_lock(&serve->lock);
	LIST_INSERT_HEAD(&serve->grants, grant, entry);
	pthread_mutex_unlock(&serve->lock);
	return 0;
}

void serve_revoke(struct serve *serve, const struct tp_key *key)
{
	struct grant *grant;

	pthread_mutex_lock(&serve->lock);
	grant = find_grant(serve, key);
	if (grant)
		LIST_REMOVE(grant, entry);
	pthread_mutex_unlock(&serve->lock);
	if (!grant)
		return;
	tp_unexport(serve->tp, key);
	grant_free(grant);
}

void serve_trace(struct serve *serve, const struct tp_key *key, struct trace *trace)
{
	struct grant *grant;

	pthread_mutex_lock(&serve->lock);
	grant = find_grant(serve, key);
	if (grant && !grant->trace)
		grant->trace = trace_get(trace);
	pthread_mutex_unlock(&serve->lock);
}

void serve_close(struct serve *serve)
{
	struct grant *grant;

	while ((grant = LIST_FIRST(&serve->grants))) {
		LIST_REMOVE(grant, entry);
		tp_unexport(serve->tp, &grant->key);
		grant_free(grant);
	}
	pthread_mutex_destroy(&serve->lock);
	free(serve);
}
