/*
 * Remote reads over TCP: a source exports, a target reads, and something comes between them.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <check.h>

#include "lib/run_suite.h"
#include "transport/hello_io.h"
#include "transport/tcp/tcp_wire.h"
#include "transport_node.h"

#define PAGE ((size_t)RAMP_PAGE_BYTES)

static const struct node_identity ID_S = {.key = 'k', .cluster = 'c', .incarnation = 0x51};
static const struct node_identity ID_T = {.key = 'k', .cluster = 'c', .incarnation = 0x71};

/* ---- exports ------------------------------------------------------------------------------ */

/* Page i is a hole where i % hole_every == hole_every - 1 (0: none), else full of page_byte(i). */
struct image {
	uint8_t *mem;
	size_t pages, hole_every;
	int error;			    /* negative: the result of piece */
	void (*asked)(struct image *image); /* NULL, or called by piece first */
	_Atomic bool over;
	_Atomic unsigned int pieces, held, late; /* late: asked for after it was over */
};

static uint8_t page_byte(uint64_t page)
{
	return (uint8_t)(page * 37 % 251 + 1); /* never 0 */
}

static bool is_hole(const struct image *image, uint64_t page)
{
	return image->hole_every && page % image->hole_every == image->hole_every - 1;
}

static int image_piece(void *arg, uint64_t offset, size_t len, const void **data, uint64_t *out_len)
{
	struct image *image = arg;
	uint64_t first = offset / PAGE, page = first;
	bool hole = is_hole(image, first);

	(void)len;
	image->pieces++;
	if (image->asked)
		image->asked(image);
	if (image->over)
		image->late++;
	if (image->error)
		return image->error;
	if (first >= image->pages)
		return -EINVAL;
	while (page < image->pages && is_hole(image, page) == hole)
		page++;
	*out_len = (page - first) * PAGE;
	*data = hole ? NULL : image->mem + offset;
	if (!hole)
		image->held++;
	return 0;
}

static void image_done(void *arg, const void *data, size_t len, size_t left)
{
	struct image *image = arg;

	(void)data;
	(void)len;
	(void)left;
	ck_assert_uint_gt(image->held, 0);
	image->held--;
}

static int image_next_run(void *arg, uint64_t from, uint64_t *offset, uint64_t *len)
{
	(void)arg;
	(void)from;
	(void)offset;
	(void)len;
	ck_abort_msg("TCP asks piece for each read");
	return 0;
}

static const struct tp_export_ops image_ops = {
	.piece = image_piece, .done = image_done, .next_run = image_next_run};

static void image_make(struct image *image, size_t pages, size_t hole_every)
{
	*image = (struct image){.pages = pages, .hole_every = hole_every};
	image->mem =
		mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(image->mem, MAP_FAILED);
	for (size_t i = 0; i < pages; i++)
		memset(image->mem + i * PAGE, is_hole(image, i) ? 0 : page_byte(i), PAGE);
}

static void image_free(struct image *image)
{
	ck_assert_uint_eq(image->held, 0);
	munmap(image->mem, image->pages * PAGE);
}

/* ---- source and target -------------------------------------------------------------------- */

static const struct tp_key KEY = {.segment = 5000, .grant = "eleven thirteen"};

struct both {
	struct node s, t;
};

static void both_start(struct both *both)
{
	*both = (struct both){0};
	node_start(&both->s, 1, ID_S);
	node_start(&both->t, 2, ID_T);
	nodes_join(&both->s, &both->t);
	node_open_transport(&both->s);
	node_open_transport(&both->t);
}

static void both_stop(struct both *both)
{
	node_stop(&both->t);
	node_stop(&both->s);
}

static int export_to(struct node *node, ramp_node_t reader, const struct tp_key *key,
		     struct image *image)
{
	const struct tp_export export = {
		.key = *key,
		.reader = reader,
		.map_fd = -1,
		.size = image->pages * PAGE,
		.ops = &image_ops,
		.arg = image,
	};
	struct ramp_err err;

	return tp_export(node->tp, &export, &err);
}

static void export_image(struct both *both, const struct tp_key *key, struct image *image)
{
	ck_assert_int_eq(export_to(&both->s, both->t.id, key, image), 0);
}

static void wait_io(struct tp_conn *conn, int timeout_ms)
{
	uint32_t events;
	int fd = conn->tp->ops->fd(conn, &events);
	struct pollfd pollfd = {.fd = fd};

	pollfd.events =
		(short)((events & EPOLLIN ? POLLIN : 0) | (events & EPOLLOUT ? POLLOUT : 0));
	poll(&pollfd, 1, timeout_ms);
}

/* Waits until the connection is ready or has failed. */
static enum tp_state settle(struct tp_conn *conn, struct ramp_err *err)
{
	enum tp_state state;

	while ((state = conn->tp->ops->state(conn, err)) == TP_CONNECTING)
		wait_io(conn, 1000);
	return state;
}

static struct tp_conn *open_to(struct node *from, ramp_node_t to, enum tp_class class)
{
	struct tp_conn *conn;
	struct ramp_err err = {0};

	ck_assert_msg(from->tp->ops->connect(from->tp, to, 0, class, &conn, &err) == 0, "%s",
		      err.text);
	ck_assert_msg(settle(conn, &err) == TP_READY, "%s", err.text);
	return conn;
}

static int post(struct tp_conn *conn, const struct tp_key *key, uint64_t page, size_t pages,
		void *dst, uint64_t cookie)
{
	struct tp_read read = {
		.key = *key,
		.offset = page * PAGE,
		.len = (uint32_t)(pages * PAGE),
		.dst = dst,
		.cookie = cookie,
	};

	return conn->tp->ops->read(conn, &read);
}

/* Waits for one completion; -ENOTCONN where the connection ends first. */
static int next_done(struct tp_conn *conn, struct tp_done *done)
{
	for (int i = 0; i < 20000; i++) {
		int n = conn->tp->ops->reap(conn, done, 1, 0);

		if (n)
			return n < 0 ? n : 0;
		wait_io(conn, 1000);
	}
	ck_abort_msg("no completion");
	return 0;
}

static bool all_bytes(const uint8_t *at, uint8_t byte, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (at[i] != byte)
			return false;
	return true;
}

#define UNTOUCHED 0xEE

/* Checks one completion of the read that began at `offset` into dst. */
static void check_done(const struct image *image, const struct tp_done *done, uint64_t offset,
		       const uint8_t *dst)
{
	ck_assert_int_eq(done->result, 0);
	for (uint64_t at = done->offset; at < done->offset + done->len; at += PAGE) {
		uint64_t page = at / PAGE;

		ck_assert_int_eq(done->kind == TP_HOLE, is_hole(image, page));
		if (done->kind == TP_DATA)
			ck_assert(all_bytes(dst + (at - offset), page_byte(page), PAGE));
	}
}

/* Reads [page, page + pages) and checks all that comes. */
static void read_and_check(struct tp_conn *conn, const struct tp_key *key,
			   const struct image *image, uint64_t page, size_t pages)
{
	uint8_t *dst = malloc(pages * PAGE);
	uint64_t next = page * PAGE;
	struct tp_done done;

	memset(dst, UNTOUCHED, pages * PAGE);
	ck_assert_int_eq(post(conn, key, page, pages, dst, page), 0);
	do {
		ck_assert_int_eq(next_done(conn, &done), 0);
		ck_assert_uint_eq(done.cookie, page);
		ck_assert_uint_eq(done.offset, next);
		check_done(image, &done, page * PAGE, dst);
		next += done.len;
	} while (done.more);
	ck_assert_uint_ge(next, (page + pages) * PAGE);
	for (uint64_t i = page; i < page + pages; i++)
		if (is_hole(image, i))
			ck_assert(all_bytes(dst + (i - page) * PAGE, UNTOUCHED, PAGE));
	free(dst);
}

/* ---- which transport ---------------------------------------------------------------------- */

START_TEST(the_choice_of_a_transport)
{
	static const enum transport_choice choices[] = {TRANSPORT_AUTO, TRANSPORT_TCP,
							TRANSPORT_VERBS};
	/* At a loopback address there is no RDMA device, also where the machine has one. */
	const bool there = choices[_i] != TRANSPORT_VERBS;
	static const char *const names[] = {"verbs", "tcp"};
	struct transport_config config = {.choice = choices[_i], .address = "127.0.0.1:7"};
	struct node node = {0};
	struct ramp_err err = {0};

	node_start(&node, 1, ID_S);
	config.peers = node.peers;
	config.loop = node.loop;
	ck_assert_int_eq(transport_open(&config, &node.tp, &err), there ? 0 : -ENODEV);
	if (there)
		ck_assert_str_eq(node.tp->ops->name, names[_i]);
	else
		ck_assert_ptr_nonnull(strstr(err.text, "transport=verbs: "));
	node_stop(&node);
}
END_TEST

/* ---- reading ------------------------------------------------------------------------------ */

static void read_sizes(size_t hole_every, enum tp_class class)
{
	static const size_t sizes[] = {1, 2, 3, 15, 16, 17, 64, 511, 512};
	struct image image;
	struct both both;
	struct tp_conn *conn;

	both_start(&both);
	image_make(&image, 2048, hole_every);
	export_image(&both, &KEY, &image);
	conn = open_to(&both.t, 1, class);
	ck_assert_uint_eq(conn->tp->ops->incarnation(conn), 0x51);

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (uint64_t page = 0; page + sizes[i] <= image.pages; page += 211)
			read_and_check(conn, &KEY, &image, page, sizes[i]);

	conn->tp->ops->close(conn);
	tp_unexport(both.s.tp, &KEY);
	both_stop(&both);
	image_free(&image);
}

START_TEST(data_of_many_sizes)
{
	read_sizes(0, _i ? TP_PREFETCH : TP_DEMAND);
}
END_TEST

START_TEST(data_and_holes)
{
	read_sizes(7, _i ? TP_PREFETCH : TP_DEMAND);
}
END_TEST

START_TEST(holes_alone)
{
	read_sizes(1, _i ? TP_PREFETCH : TP_DEMAND);
}
END_TEST

/* The source has the larger number: the other node has dialed, both know the address. */
START_TEST(the_other_way_round)
{
	struct image image;
	struct both both;
	struct tp_conn *conn;
	struct tp_stats stats;

	both_start(&both);
	image_make(&image, 64, 0);
	ck_assert_int_eq(export_to(&both.t, both.s.id, &KEY, &image), 0);
	ck_assert_int_eq(export_to(&both.t, both.s.id, &KEY, &image), -EEXIST);
	ck_assert_int_eq(export_to(&both.t, 3, &KEY, &image), -EEXIST);
	conn = open_to(&both.s, 2, TP_DEMAND);
	read_and_check(conn, &KEY, &image, 0, 64);

	/* The last bytes are counted once they are sent, and may arrive before that. */
	wait_until((tp_get_stats(both.t.tp, &stats), stats.served_bytes == 64 * PAGE));
	ck_assert_uint_eq(stats.served_reads, 1);
	ck_assert_uint_eq(stats.connections, 1);
	tp_get_stats(both.s.tp, &stats);
	ck_assert_uint_eq(stats.read_bytes, 64 * PAGE);
	ck_assert_uint_eq(stats.reads, 1);
	conn->tp->ops->close(conn);
	tp_unexport(both.t.tp, &KEY);
	tp_unexport(both.t.tp, &KEY); /* a second time: nothing */
	both_stop(&both);
	image_free(&image);
}
END_TEST

START_TEST(many_in_flight)
{
	struct image image;
	struct both both;
	struct tp_conn *conn;
	uint8_t *dst = malloc(TP_QUEUE_MAX * 32 * PAGE);
	unsigned int posted = 0, ended = 0;
	bool full = false;

	both_start(&both);
	image_make(&image, 4096, 5);
	export_image(&both, &KEY, &image);
	conn = open_to(&both.t, 1, _i ? TP_PREFETCH : TP_DEMAND);

	while (ended < 2000) {
		struct tp_done done[8];
		int n;

		while (posted < 2000) {
			uint64_t slot = posted % TP_QUEUE_MAX;
			int rc;

			/* The slot's last read must be over: the source answers in order. */
			if (posted - ended >= TP_QUEUE_MAX)
				break;
			rc = post(conn, &KEY, posted % 4064, 1 + posted % 32,
				  dst + slot * 32 * PAGE, posted);
			ck_assert_int_eq(rc, 0);
			posted++;
		}
		if (posted - ended == TP_QUEUE_MAX && !full) {
			ck_assert_int_eq(post(conn, &KEY, 0, 1, dst, 0), -EAGAIN);
			full = true;
		}
		n = conn->tp->ops->reap(conn, done, 8, 100000);
		ck_assert_int_ge(n, 0);
		for (int i = 0; i < n; i++) {
			uint64_t read = done[i].cookie;

			check_done(&image, &done[i], read % 4064 * PAGE,
				   dst + read % TP_QUEUE_MAX * 32 * PAGE);
			ended += !done[i].more;
		}
		if (n == 0)
			wait_io(conn, 1000);
	}
	ck_assert(full);
	conn->tp->ops->close(conn);
	tp_unexport(both.s.tp, &KEY);
	both_stop(&both);
	image_free(&image);
	free(dst);
}
END_TEST

START_TEST(reads_that_make_no_sense)
{
	uint8_t dst[2 * PAGE];
	struct both both;
	struct tp_conn *conn;
	struct tp_read read = {.key = KEY, .len = PAGE, .dst = dst};
	const struct tp_ops *ops;

	both_start(&both);
	conn = open_to(&both.t, 1, TP_DEMAND);
	ops = conn->tp->ops;

	read.len = 0;
	ck_assert_int_eq(ops->read(conn, &read), -EINVAL);
	read.len = 100;
	ck_assert_int_eq(ops->read(conn, &read), -EINVAL);
	read.len = TP_READ_MAX_BYTES + PAGE;
	ck_assert_int_eq(ops->read(conn, &read), -EINVAL);
	read.len = PAGE;
	read.offset = 1;
	ck_assert_int_eq(ops->read(conn, &read), -EINVAL);
	read.offset = UINT64_MAX - PAGE + 1;
	ck_assert_int_eq(ops->read(conn, &read), -EINVAL);
	read.offset = 0;
	read.dst = NULL;
	ck_assert_int_eq(ops->read(conn, &read), -EINVAL);
	ops->close(conn);
	both_stop(&both);
}
END_TEST

START_TEST(errors_of_the_source)
{
	struct tp_key wrong[4] = {KEY, KEY, KEY, KEY};
	uint8_t dst[PAGE];
	struct image image;
	struct both both;
	struct tp_conn *conn;
	struct tp_done done;

	both_start(&both);
	image_make(&image, 16, 0);
	export_image(&both, &KEY, &image);
	conn = open_to(&both.t, 1, TP_DEMAND);
	wrong[0].segment++;
	wrong[1].grant[0] ^= 0x80;
	wrong[2].grant[7] ^= 1;
	wrong[3].grant[TP_GRANT_BYTES - 1] ^= 1;
	memset(dst, UNTOUCHED, sizeof(dst));

	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(post(conn, &wrong[i], 0, 1, dst, 77), 0);
		ck_assert_int_eq(next_done(conn, &done), 0);
		ck_assert_int_eq(done.result, -EKEYREVOKED);
		ck_assert_uint_eq(done.cookie, 77);
		ck_assert(!done.more);
	}
	ck_assert_uint_eq(image.pieces, 0);
	image.error = -EIO;
	ck_assert_int_eq(post(conn, &KEY, 0, 1, dst, 78), 0);
	ck_assert_int_eq(next_done(conn, &done), 0);
	ck_assert_int_eq(done.result, -EIO);
	ck_assert(all_bytes(dst, UNTOUCHED, PAGE));

	image.error = 0;
	read_and_check(conn, &KEY, &image, 0, 16); /* the connection is sound */
	conn->tp->ops->close(conn);
	tp_unexport(both.s.tp, &KEY);
	both_stop(&both);
	image_free(&image);
}
END_TEST

/* A node that has the right key and is not the reader gets nothing, as if the key were revoked. */
START_TEST(a_key_is_good_for_its_reader_alone)
{
	static const struct node_identity id_u = {.key = 'k', .cluster = 'c', .incarnation = 0x75};
	struct tp_conn *reader, *other;
	struct node third = {0};
	uint8_t dst[PAGE];
	struct image image;
	struct tp_done done;
	struct both both;

	both_start(&both);
	node_start(&third, 3, id_u);
	nodes_join(&both.s, &third);
	node_open_transport(&third);
	image_make(&image, 16, 0);
	export_image(&both, &KEY, &image);
	reader = open_to(&both.t, 1, TP_DEMAND);
	other = open_to(&third, 1, TP_DEMAND);
	memset(dst, UNTOUCHED, sizeof(dst));
	ck_assert_int_eq(post(other, &KEY, 0, 1, dst, 1), 0);
	ck_assert_int_eq(next_done(other, &done), 0);
	ck_assert_int_eq(done.result, -EKEYREVOKED);
	ck_assert(all_bytes(dst, UNTOUCHED, PAGE));
	ck_assert_uint_eq(image.pieces, 0);
	read_and_check(reader, &KEY, &image, 0, 16);

	/* Exported to it instead. */
	tp_unexport(both.s.tp, &KEY);
	ck_assert_int_eq(export_to(&both.s, third.id, &KEY, &image), 0);
	read_and_check(other, &KEY, &image, 0, 16);
	ck_assert_int_eq(post(reader, &KEY, 0, 1, dst, 2), 0);
	ck_assert_int_eq(next_done(reader, &done), 0);
	ck_assert_int_eq(done.result, -EKEYREVOKED);
	reader->tp->ops->close(reader);
	other->tp->ops->close(other);
	tp_unexport(both.s.tp, &KEY);
	node_stop(&third);
	both_stop(&both);
	image_free(&image);
}
END_TEST

/* A request for an exported key that was posted later is answered before the next one of a reader
   that has made up key after key. */
START_TEST(who_is_refused_again_and_again_rests)
{
	const struct tp_key made_up = {.segment = 5000, .grant = {1}};
	struct tp_conn *bad, *good;
	unsigned int overtaken = 0;
	uint8_t dst[PAGE];
	struct image image;
	struct tp_done done;
	struct both both;

	both_start(&both);
	image_make(&image, 16, 0);
	export_image(&both, &KEY, &image);
	bad = open_to(&both.t, 1, TP_DEMAND);
	good = open_to(&both.t, 1, TP_DEMAND);
	for (int i = 0; i < TP_QUEUE_MAX + 20; i++) {
		bool first;

		ck_assert_int_eq(post(bad, &made_up, 0, 1, dst, 1), 0);
		read_and_check(good, &KEY, &image, 0, 1);
		first = bad->tp->ops->reap(bad, &done, 1, 0) == 1;
		if (!first)
			ck_assert_int_eq(next_done(bad, &done), 0);
		ck_assert_int_eq(done.result, -EKEYREVOKED);
		overtaken += !first && i >= TP_QUEUE_MAX;
	}
	ck_assert_uint_gt(overtaken, 0);
	read_and_check(bad, &KEY, &image, 0, 16); /* it is only slower */
	bad->tp->ops->close(bad);
	good->tp->ops->close(good);
	tp_unexport(both.s.tp, &KEY);
	both_stop(&both);
	image_free(&image);
}
END_TEST

START_TEST(another_incarnation_is_proof)
{
	struct ramp_err err = {0};
	struct both both;
	struct tp_conn *conn;
	uint8_t dst[PAGE];

	both_start(&both);
	ck_assert_int_eq(both.t.tp->ops->connect(both.t.tp, 1, 0x52, TP_DEMAND, &conn, &err), 0);
	ck_assert_uint_eq(conn->tp->ops->incarnation(conn), 0);
	ck_assert_int_eq(post(conn, &KEY, 0, 1, dst, 1), -ENOTCONN);

	ck_assert_int_eq(settle(conn, &err), TP_FAILED);
	ck_assert_uint_eq(conn->tp->ops->incarnation(conn), 0x51);
	ck_assert_int_eq(err.code, ESTALE);
	ck_assert_int_eq(conn->tp->ops->reap(conn, NULL, 0, 0), -ENOTCONN);
	conn->tp->ops->close(conn);

	ck_assert_int_eq(both.t.tp->ops->connect(both.t.tp, 1, 0x51, TP_DEMAND, &conn, &err), 0);
	ck_assert_int_eq(settle(conn, &err), TP_READY);
	conn->tp->ops->close(conn);
	ck_assert_int_eq(both.t.tp->ops->connect(both.t.tp, 9, 0, TP_DEMAND, &conn, &err),
			 -EHOSTUNREACH);
	both_stop(&both);
}
END_TEST

START_TEST(a_source_without_transport)
{
	struct ramp_err err = {0};
	struct both both;
	struct tp_conn *conn;

	both_start(&both);
	both.s.tp->ops->stop(both.s.tp);
	both.s.tp = NULL;
	ck_assert_int_eq(both.t.tp->ops->connect(both.t.tp, 1, 0, TP_DEMAND, &conn, &err), 0);
	if (settle(conn, &err) == TP_READY) { /* proved, and then closed at the door */
		struct tp_done done;

		ck_assert_int_eq(next_done(conn, &done), -ENOTCONN);
	}
	conn->tp->ops->close(conn);
	both_stop(&both);
}
END_TEST

/* ---- unexport ----------------------------------------------------------------------------- */

struct reader {
	pthread_t thread;
	struct both *both;
	enum tp_class class;
	_Atomic bool stop;
	_Atomic unsigned int reads, revoked, lost, poisoned;
};

#define POISON 0xFF /* page_byte is never this */

static void *reader_main(void *arg)
{
	struct reader *r = arg;
	struct tp_conn *conn = open_to(&r->both->t, 1, r->class);
	uint8_t *dst = malloc(TP_READ_MAX_BYTES);
	struct tp_done done;

	while (!r->stop) {
		int rc = post(conn, &KEY, 0, 512, dst, 1);

		do {
			if (!rc)
				rc = next_done(conn, &done);
			if (!rc && done.result == 0 &&
			    memchr(dst + done.offset, POISON, (size_t)done.len))
				r->poisoned++;
		} while (!rc && done.more);
		if (rc) { /* cut: connect again */
			r->lost++;
			conn->tp->ops->close(conn);
			conn = open_to(&r->both->t, 1, r->class);
		} else if (done.result) {
			ck_assert_int_eq(done.result, -EKEYREVOKED);
			r->revoked++;
		} else {
			r->reads++;
		}
	}
	conn->tp->ops->close(conn);
	free(dst);
	return NULL;
}

/* No reader sees bytes that are stored after tp_unexport has returned, and the export is never
   asked again. */
START_TEST(unexport_under_load)
{
	struct reader readers[3] = {{0}};
	struct image image;
	struct both both;

	node_streams = (unsigned)_i;
	both_start(&both);
	image_make(&image, 512, 0);
	for (int i = 0; i < 3; i++) {
		readers[i].both = &both;
		readers[i].class = i ? TP_PREFETCH : TP_DEMAND;
		ck_assert_int_eq(pthread_create(&readers[i].thread, NULL, reader_main, &readers[i]),
				 0);
	}
	for (int round = 0; round < 100; round++) {
		unsigned int before = readers[0].reads + readers[1].reads;

		image.over = false;
		export_image(&both, &KEY, &image);
		if (round % 2)
			wait_until(readers[0].reads + readers[1].reads > before);
		else
			usleep((useconds_t)round * 20);
		tp_unexport(both.s.tp, &KEY);
		image.over = true;
		ck_assert_uint_eq(image.held, 0);
		memset(image.mem, POISON, 512 * PAGE);
		usleep(200);
		for (size_t i = 0; i < 512; i++)
			memset(image.mem + i * PAGE, page_byte(i), PAGE);
	}
	for (int i = 0; i < 3; i++) {
		readers[i].stop = true;
		pthread_join(readers[i].thread, NULL);
		ck_assert_uint_eq(readers[i].poisoned, 0);
	}
	ck_assert_uint_gt(readers[0].revoked + readers[1].revoked + readers[2].revoked, 0);
	ck_assert_uint_eq(image.late, 0);
	both_stop(&both);
	image_free(&image);
}
END_TEST

/* A reader that asked for much and takes nothing is cut, and unexport blocks no longer than its
   contract says. */
START_TEST(unexport_cuts_a_reader_that_stands_still)
{
	struct image image;
	struct both both;
	struct tp_conn *slow, *other;
	struct tp_stats stats;
	uint8_t *dst = malloc(TP_READ_MAX_BYTES);
	struct tp_key second = KEY;
	struct tp_done done;

	both_start(&both);
	image_make(&image, 512, 0);
	export_image(&both, &KEY, &image);
	second.segment++;
	export_image(&both, &second, &image);
	slow = open_to(&both.t, 1, TP_PREFETCH);
	other = open_to(&both.t, 1, TP_DEMAND);
	for (int i = 0; i < TP_QUEUE_MAX; i++)
		ck_assert_int_eq(post(slow, &KEY, 0, 512, dst, 1), 0);
	wait_until(image.held == 1); /* the socket is full, a piece is half sent */
	read_and_check(other, &second, &image, 0, 512);

	tp_unexport(both.s.tp, &KEY);

	ck_assert_uint_eq(image.held, 0);
	tp_get_stats(both.s.tp, &stats);
	ck_assert_uint_eq(stats.cut, 1);
	ck_assert_uint_eq(stats.connections, 1);
	while (next_done(slow, &done) == 0)
		ck_assert_int_eq(done.result, 0);	/* it had arrived before */
	read_and_check(other, &second, &image, 0, 512); /* the other one lives */
	slow->tp->ops->close(slow);
	other->tp->ops->close(other);
	tp_unexport(both.s.tp, &second);
	both_stop(&both);
	image_free(&image);
	free(dst);
}
END_TEST

/* ---- demand before prefetch ---------------------------------------------------------------- */

START_TEST(demand_while_prefetch_is_saturated)
{
	struct image image;
	struct both both;
	struct tp_conn *prefetch[2], *demand;
	struct tp_done done[16];
	uint8_t *dst = malloc(TP_READ_MAX_BYTES);
	uint64_t prefetched = 0;

	both_start(&both);
	image_make(&image, 4096, 0);
	export_image(&both, &KEY, &image);
	for (int i = 0; i < 2; i++) {
		prefetch[i] = open_to(&both.t, 1, TP_PREFETCH);
		for (int k = 0; k < TP_QUEUE_MAX; k++)
			ck_assert_int_eq(post(prefetch[i], &KEY, 512, 512, dst, 1), 0);
	}
	demand = open_to(&both.t, 1, TP_DEMAND);

	/* prefetch[1] never takes a byte; prefetch[0] takes a piece at times. */
	for (uint64_t i = 0; i < 500; i++) {
		int n;

		read_and_check(demand, &KEY, &image, i * 8, 1 + i % 8);
		n = prefetch[0]->tp->ops->reap(prefetch[0], done, 16, 64 << 10);
		ck_assert_int_ge(n, 0);
		for (int k = 0; k < n; k++) {
			/* the rest of the last turn, too little to hand over, and a turn */
			ck_assert_uint_le(done[k].len, 2 * (64 << 10));
			prefetched += done[k].len;
		}
	}
	ck_assert_uint_gt(prefetched, 0);
	/* All of it was still under way: the demands did not wait for it. */
	ck_assert_uint_lt(prefetched, (uint64_t)TP_QUEUE_MAX * TP_READ_MAX_BYTES);
	for (int i = 0; i < 2; i++)
		prefetch[i]->tp->ops->close(prefetch[i]);
	demand->tp->ops->close(demand);
	tp_unexport(both.s.tp, &KEY);
	both_stop(&both);
	image_free(&image);
	free(dst);
}
END_TEST

static sem_t in_piece, go_on, in_demand;
static _Atomic unsigned int demands;

static void stop_once(struct image *image)
{
	if (image->pieces == 1) {
		sem_post(&in_piece);
		sem_wait(&go_on);
	}
}

static void stop_in_second_demand(struct image *image)
{
	(void)image;
	if (demands++ == 0)
		return;
	sem_post(&in_demand);
	sem_wait(&go_on);
}

/* The serve thread is in the first piece of prefetch, with eight MiB to come, when a demand
   arrives: the demand is the next that it serves, or the one after. */
START_TEST(a_demand_waits_for_one_piece)
{
	struct image far, near;
	struct both both;
	struct tp_conn *prefetch, *demand;
	uint8_t *dst = malloc(TP_READ_MAX_BYTES), page[PAGE];
	struct tp_key second = KEY;
	struct tp_stats before, after;
	struct tp_done done;

	sem_init(&in_piece, 0, 0);
	sem_init(&go_on, 0, 0);
	sem_init(&in_demand, 0, 0);
	demands = 0;
	both_start(&both);
	image_make(&far, 512, 0);
	far.asked = stop_once;
	image_make(&near, 16, 0);
	near.asked = stop_in_second_demand;
	export_image(&both, &KEY, &far);
	second.segment++;
	export_image(&both, &second, &near);
	prefetch = open_to(&both.t, 1, TP_PREFETCH);
	demand = open_to(&both.t, 1, TP_DEMAND);
	ck_assert_int_eq(post(demand, &second, 0, 1, page, 1), 0);
	ck_assert_int_eq(next_done(demand, &done), 0); /* the connection is in place */

	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(post(prefetch, &KEY, 0, 512, dst, 1), 0);
	sem_wait(&in_piece);
	tp_get_stats(both.s.tp, &before);
	ck_assert_int_eq(post(demand, &second, 0, 1, page, 1), 0);
	sem_post(&go_on);
	sem_wait(&in_demand);
	tp_get_stats(both.s.tp, &after);
	sem_post(&go_on);
	ck_assert_int_eq(next_done(demand, &done), 0);

	ck_assert_uint_eq(demands, 2);
	ck_assert_uint_le(after.served_bytes - before.served_bytes, 2 * (64 << 10));
	for (int ended = 0; ended < 4; ended += !done.more)
		ck_assert_int_eq(next_done(prefetch, &done), 0);
	prefetch->tp->ops->close(prefetch);
	demand->tp->ops->close(demand);
	tp_unexport(both.s.tp, &KEY);
	tp_unexport(both.s.tp, &second);
	both_stop(&both);
	image_free(&far);
	image_free(&near);
	free(dst);
}
END_TEST

/* ---- memory that cannot be touched ---------------------------------------------------------- */

START_TEST(a_dst_that_cannot_be_written)
{
	struct ramp_err err = {0};
	struct image image;
	struct both both;
	struct tp_conn *conn;
	struct tp_done done;
	void *dst = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	both_start(&both);
	image_make(&image, 16, 0);
	export_image(&both, &KEY, &image);
	conn = open_to(&both.t, 1, TP_DEMAND);
	ck_assert_int_eq(post(conn, &KEY, 0, 1, dst, 1), 0);

	ck_assert_int_eq(next_done(conn, &done), -ENOTCONN);
	ck_assert_int_eq(conn->tp->ops->state(conn, &err), TP_FAILED);
	ck_assert_int_eq(err.code, EFAULT);
	ck_assert_int_eq(post(conn, &KEY, 0, 1, dst, 1), -ENOTCONN);
	conn->tp->ops->close(conn);
	tp_unexport(both.s.tp, &KEY);
	both_stop(&both);
	image_free(&image);
	munmap(dst, PAGE);
}
END_TEST

START_TEST(exported_memory_that_cannot_be_read)
{
	uint8_t dst[4 * PAGE];
	struct image image;
	struct both both;
	struct tp_conn *conn;
	struct tp_done done;

	both_start(&both);
	image_make(&image, 16, 0);
	export_image(&both, &KEY, &image);
	mprotect(image.mem + 2 * PAGE, PAGE, PROT_NONE);
	conn = open_to(&both.t, 1, TP_DEMAND);

	ck_assert_int_eq(post(conn, &KEY, 0, 4, dst, 1), 0);
	ck_assert_int_eq(next_done(conn, &done), -ENOTCONN);
	conn->tp->ops->close(conn);
	wait_until(image.held == 0);

	conn = open_to(&both.t, 1, TP_DEMAND);
	read_and_check(conn, &KEY, &image, 4, 12);
	conn->tp->ops->close(conn);
	tp_unexport(both.s.tp, &KEY);
	both_stop(&both);
	image_free(&image);
}
END_TEST

/* ---- a line that cuts, a peer that lies ------------------------------------------------------ */

#define HELLO_TO_CLIENT 164
#define REPLY_BYTES	40
#define REPLY_MORE_AT	17

struct meddler {
	uint64_t at; /* in the stream to the client */
	enum { CUT, ALTER } what;
	uint8_t mask; /* of the bits altered */
	_Atomic bool done;
};

static bool meddle(void *arg, unsigned int connection, enum way way, uint64_t offset,
		   uint8_t *bytes, size_t *len, size_t cap)
{
	struct meddler *m = arg;

	(void)cap;
	(void)connection;
	if (way != TO_CLIENT || m->at < offset || m->at >= offset + *len || m->done)
		return true;
	m->done = true;
	if (m->what == ALTER) {
		bytes[m->at - offset] ^= m->mask;
		return true;
	}
	*len = (size_t)(m->at - offset);
	return false;
}

/* Source and target, with a man in the middle of the target's data connections. */
static struct middle *in_between(struct both *both, struct meddler *meddler)
{
	struct middle *middle = middle_start(both->s.port, meddle, meddler);

	/* The source has dialed, so this changes only where data connections go. */
	node_know(&both->t, 1, middle_port(middle));
	return middle;
}

START_TEST(cut_in_the_middle_of_a_payload)
{
	struct meddler meddler = {.at = HELLO_TO_CLIENT + REPLY_BYTES + 100000, .what = CUT};
	uint8_t *dst = malloc(TP_READ_MAX_BYTES);
	struct image image;
	struct both both;
	struct tp_conn *conn;
	struct tp_done done;
	struct middle *middle;
	int rc;

	both_start(&both);
	image_make(&image, 512, 0);
	export_image(&both, &KEY, &image);
	middle = in_between(&both, &meddler);
	conn = open_to(&both.t, 1, TP_DEMAND);
	memset(dst, UNTOUCHED, TP_READ_MAX_BYTES);

	ck_assert_int_eq(post(conn, &KEY, 0, 512, dst, 1), 0);
	while ((rc = next_done(conn, &done)) == 0) {
		check_done(&image, &done, 0, dst); /* whole pages before the cut */
		ck_assert_uint_le(done.offset + done.len, 100000);
		ck_assert(done.more);
	}
	ck_assert_int_eq(rc, -ENOTCONN);
	ck_assert(all_bytes(dst + 100000, UNTOUCHED, TP_READ_MAX_BYTES - 100000));
	conn->tp->ops->close(conn);

	conn = open_to(&both.t, 1, TP_DEMAND); /* and once more */
	read_and_check(conn, &KEY, &image, 0, 512);
	conn->tp->ops->close(conn);
	wait_until(image.held == 0);
	tp_unexport(both.s.tp, &KEY);
	middle_stop(middle);
	both_stop(&both);
	image_free(&image);
	free(dst);
}
END_TEST

/* Each byte of a reply's header altered: the connection ends, and not a byte is stored. A page that
   is awaited alone comes with its header: its place holds zeros then, like that of any other page
   to come. */
static void lie_about(uint32_t pages)
{
	uint8_t memory[6 * PAGE], *dst = memory + 2 * PAGE;
	struct image image;
	struct both both;

	both_start(&both);
	image_make(&image, 16, 0);
	export_image(&both, &KEY, &image);
	for (uint64_t at = 0; at <= REPLY_BYTES; at++) {
		/* The last time only the flag that more follows. */
		struct meddler meddler = {
			.at = HELLO_TO_CLIENT + (at < REPLY_BYTES ? at : REPLY_MORE_AT),
			.what = ALTER,
			.mask = at < REPLY_BYTES ? 0x55 : 1,
		};
		struct middle *middle = in_between(&both, &meddler);
		struct tp_conn *conn = open_to(&both.t, 1, TP_DEMAND);
		struct ramp_err err = {0};
		struct tp_done done;

		memset(memory, UNTOUCHED, sizeof(memory));
		ck_assert_int_eq(post(conn, &KEY, 3, pages, dst, 1), 0);
		ck_assert_int_eq(next_done(conn, &done), -ENOTCONN);
		ck_assert_int_eq(conn->tp->ops->state(conn, &err), TP_FAILED);
		ck_assert_int_eq(err.code, EPROTO);
		if (pages == 1 && dst[0] == 0) {
			ck_assert(all_bytes(dst, 0, PAGE));
			memset(dst, UNTOUCHED, PAGE);
		}
		ck_assert(all_bytes(memory, UNTOUCHED, sizeof(memory)));
		conn->tp->ops->close(conn);
		middle_stop(middle);
	}
	tp_unexport(both.s.tp, &KEY);
	both_stop(&both);
	image_free(&image);
}

START_TEST(replies_that_lie)
{
	lie_about(1);
	lie_about(2);
}
END_TEST

/* The identity by which a socket of the test's own proves itself. */
static void identify(struct hello_self *self)
{
	uint8_t key[32];

	*self = (struct hello_self){.node = 2, .incarnation = 0x71};
	memset(key, 'k', sizeof(key));
	memset(self->cluster_id, 'c', sizeof(self->cluster_id));
	ck_assert_int_eq(hello_self_init(self, key, NULL), 0);
}

static int hello_on(struct hello *hello, int fd, struct ramp_err *err)
{
	struct stream stream = stream_plain(fd);

	return hello_run(hello, &stream, err);
}

static int proved(struct both *both, const struct hello_self *self)
{
	int fd = raw_connect(both->s.port), rc;
	struct ramp_err err = {0};
	struct hello hello;

	hello_dial(&hello, self, 1, 0, HELLO_DEMAND);
	while ((rc = hello_on(&hello, fd, &err)) == -EAGAIN)
		usleep(100);
	ck_assert_msg(rc == 0, "%s", err.text);
	return fd;
}

/* A peer that has proved itself, and then sends `bytes` as its requests. */
static void proved_and_then(struct both *both, const struct hello_self *self, const uint8_t *bytes,
			    size_t len)
{
	struct tp_stats before, after;
	uint8_t answer[64];
	int fd;

	tp_get_stats(both->s.tp, &before);
	fd = proved(both, self);
	if (len)
		ck_assert_int_eq(send(fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
	shutdown(fd, SHUT_WR);
	ck_assert_int_le(recv(fd, answer, sizeof(answer), 0), 0); /* not one byte comes back */
	close(fd);
	do {
		usleep(1000);
		tp_get_stats(both->s.tp, &after);
	} while (after.connections);
	ck_assert_uint_eq(after.rejected, before.rejected + (len ? 1 : 0));
}

START_TEST(requests_that_lie)
{
	struct hello_self self;
	uint8_t request[TCP_REQUEST_BYTES];
	struct both both;
	struct wire_w w;

	both_start(&both);
	identify(&self);

	for (int i = 0; i < 6; i++) {
		static const uint32_t magics[] = {1,	      0x51524d52, 0x51524d52,
						  0x51524d52, 0x51524d52, 0x51524d52};
		static const uint32_t lens[] = {4096, 0,   4095, TP_READ_MAX_BYTES + 4096,
						4096, 4096};
		static const uint64_t offsets[] = {0, 0, 0, 0, 5, UINT64_MAX - 4095};

		memset(request, 0, sizeof(request));
		wire_w_init(&w, request, sizeof(request));
		wire_put_u32(&w, magics[i]);
		wire_put_u32(&w, lens[i]);
		w.len = TCP_REQUEST_BYTES - 8;
		wire_put_u64(&w, offsets[i]);
		proved_and_then(&both, &self, request, sizeof(request));
	}
	proved_and_then(&both, &self, request, 30); /* truncated */
	proved_and_then(&both, &self, NULL, 0);	    /* a plain end */
	both_stop(&both);
}
END_TEST

/* A child of the source, as between fork and exec: it has copies of all descriptors. */
static pid_t child_that_holds(int ends[2])
{
	pid_t pid;
	char byte;

	ck_assert_int_eq(pipe(ends), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		close(ends[1]);
		_exit(read(ends[0], &byte, 1) != 0);
	}
	return pid;
}

START_TEST(a_dropped_connection_is_over_whoever_holds_its_descriptor)
{
	static const uint8_t nonsense[TCP_REQUEST_BYTES];
	struct hello_self self;
	struct tp_stats stats;
	struct tp_conn *conn;
	struct image image;
	struct both both;
	int fd, ends[2], status, at_once = 1;
	pid_t child;

	both_start(&both);
	identify(&self);
	image_make(&image, 64, 0);
	export_image(&both, &KEY, &image);
	fd = proved(&both, &self);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once));
	wait_until((tp_get_stats(both.s.tp, &stats), stats.connections == 1));
	child = child_that_holds(ends);
	ck_assert_int_eq(send(fd, nonsense, sizeof(nonsense), MSG_NOSIGNAL), sizeof(nonsense));
	wait_until((tp_get_stats(both.s.tp, &stats), stats.connections == 0));

	/* It still takes our bytes; the source has nothing to do with it any more. */
	ck_assert_int_eq(send(fd, nonsense, sizeof(nonsense), MSG_NOSIGNAL), sizeof(nonsense));
	conn = open_to(&both.t, 1, TP_DEMAND);
	read_and_check(conn, &KEY, &image, 0, 64);
	tp_get_stats(both.s.tp, &stats);
	ck_assert_uint_eq(stats.connections, 1);
	ck_assert_uint_eq(stats.rejected, 1);
	conn->tp->ops->close(conn);
	close(ends[1]);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	close(ends[0]);
	close(fd);
	tp_unexport(both.s.tp, &KEY);
	both_stop(&both);
	image_free(&image);
}
END_TEST

/* ---- many at once, and the end ------------------------------------------------------------ */

struct worker {
	pthread_t thread;
	struct both *both;
	struct image *image;
	struct tp_key key;
	enum tp_class class;
};

static void *worker_main(void *arg)
{
	struct worker *w = arg;

	for (int round = 0; round < 5; round++) {
		struct tp_conn *conn = open_to(&w->both->t, 1, w->class);

		for (uint64_t page = 0; page < 480; page += 16)
			read_and_check(conn, &w->key, w->image, page, 32);
		conn->tp->ops->close(conn);
	}
	return NULL;
}

START_TEST(many_connections)
{
	struct worker workers[8];
	struct image image;
	struct both both;

	node_streams = (unsigned)_i;
	both_start(&both);
	image_make(&image, 512, 9);
	for (uint64_t i = 0; i < 8; i++) {
		workers[i] =
			(struct worker){0, &both, &image, KEY, i % 2 ? TP_PREFETCH : TP_DEMAND};
		workers[i].key.segment += i;
		export_image(&both, &workers[i].key, &image);
		ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]),
				 0);
	}
	for (int i = 0; i < 8; i++) {
		pthread_join(workers[i].thread, NULL);
		tp_unexport(both.s.tp, &workers[i].key);
	}
	both_stop(&both);
	image_free(&image);
}
END_TEST

static _Atomic pid_t asked_by; /* the serve thread that asked last */

static void note_thread(struct image *image)
{
	(void)image;
	asked_by = gettid();
}

static pid_t served_by(struct both *both, enum tp_class class, struct image *image,
		       struct tp_conn **conn)
{
	*conn = open_to(&both->t, 1, class);
	read_and_check(*conn, &KEY, image, 0, 8);
	return asked_by;
}

/* Demand has the first one, and one connection for prefetch has it, too; others go to the others. */
START_TEST(each_serve_thread_has_its_share)
{
	struct tp_conn *prefetch[5], *demand[2];
	pid_t by[5], first[2];
	struct tp_stats stats;
	struct image image;
	struct both both;

	node_streams = 3;
	both_start(&both);
	image_make(&image, 16, 0);
	image.asked = note_thread;
	export_image(&both, &KEY, &image);
	for (int i = 0; i < 2; i++)
		first[i] = served_by(&both, TP_DEMAND, &image, &demand[i]);
	ck_assert_int_eq(first[0], first[1]);
	for (int i = 0; i < 3; i++)
		by[i] = served_by(&both, TP_PREFETCH, &image, &prefetch[i]);
	ck_assert_int_eq(by[0], first[0]);
	ck_assert(by[1] != by[0] && by[2] != by[0] && by[1] != by[2]);
	/* A place that is free again is taken first. */
	prefetch[1]->tp->ops->close(prefetch[1]);
	wait_until((tp_get_stats(both.s.tp, &stats), stats.connections) == 4);
	for (int i = 3; i < 5; i++)
		by[i] = served_by(&both, TP_PREFETCH, &image, &prefetch[i]);
	ck_assert_int_eq(by[3], by[1]);
	ck_assert_int_eq(by[4], by[0]);
	for (int i = 0; i < 5; i++)
		if (i != 1)
			prefetch[i]->tp->ops->close(prefetch[i]);
	for (int i = 0; i < 2; i++)
		demand[i]->tp->ops->close(demand[i]);
	tp_unexport(both.s.tp, &KEY);
	tp_get_stats(both.s.tp, &stats);
	ck_assert_uint_eq(stats.served_reads, 7);
	both_stop(&both);
	image_free(&image);
}
END_TEST

START_TEST(a_source_that_ends)
{
	struct image image;
	struct both both;
	struct tp_conn *conn;
	uint8_t *dst = malloc(TP_READ_MAX_BYTES);
	struct tp_done done;

	both_start(&both);
	image_make(&image, 512, 0);
	export_image(&both, &KEY, &image);
	conn = open_to(&both.t, 1, TP_PREFETCH);
	for (int i = 0; i < TP_QUEUE_MAX; i++)
		ck_assert_int_eq(post(conn, &KEY, 0, 512, dst, 1), 0);
	wait_until(image.held == 1);

	node_stop(&both.s);

	ck_assert_uint_eq(image.held, 0);
	while (next_done(conn, &done) == 0)
		ck_assert_int_eq(done.result, 0);
	conn->tp->ops->close(conn);
	node_stop(&both.t);
	image_free(&image);
	free(dst);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tcp");
	TCase *tc = tcase_create("reads");

	tcase_add_loop_test(tc, data_of_many_sizes, 0, 2);
	tcase_add_loop_test(tc, data_and_holes, 0, 2);
	tcase_add_loop_test(tc, holes_alone, 0, 2);
	tcase_add_test(tc, the_other_way_round);
	tcase_add_loop_test(tc, many_in_flight, 0, 2);
	tcase_add_test(tc, reads_that_make_no_sense);
	tcase_add_loop_test(tc, the_choice_of_a_transport, 0, 3);
	tcase_add_test(tc, errors_of_the_source);
	tcase_add_test(tc, a_key_is_good_for_its_reader_alone);
	tcase_add_test(tc, who_is_refused_again_and_again_rests);
	tcase_add_test(tc, another_incarnation_is_proof);
	tcase_add_test(tc, a_source_without_transport);
	tcase_add_loop_test(tc, unexport_under_load, 1, 3);
	tcase_add_test(tc, unexport_cuts_a_reader_that_stands_still);
	tcase_add_test(tc, demand_while_prefetch_is_saturated);
	tcase_add_test(tc, a_demand_waits_for_one_piece);
	tcase_add_test(tc, a_dst_that_cannot_be_written);
	tcase_add_test(tc, exported_memory_that_cannot_be_read);
	tcase_add_test(tc, cut_in_the_middle_of_a_payload);
	tcase_add_test(tc, replies_that_lie);
	tcase_add_test(tc, requests_that_lie);
	tcase_add_test(tc, a_dropped_connection_is_over_whoever_holds_its_descriptor);
	tcase_add_loop_test(tc, many_connections, 1, 4);
	tcase_add_test(tc, each_serve_thread_has_its_share);
	tcase_add_test(tc, a_source_that_ends);
	tcase_set_timeout(tc, 60);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
