/*
 * In a guest: a source's keys on a real device, in the hands of its reader and of others. Three nodes in this
 * process, each with an address of its own; rdma.cmake has --wrap for queue_post, which puts other keys in.
 * Whatever a READ is refused, the bytes come over TCP, and are right.
 *
 *   test_rdma_keys HOST HOST HOST
 */
#include "rdma_world.h"

#define PAGES	  ((size_t)1024)
#define BYTES	  (PAGES * PAGE)
#define FORBIDDEN 0xEE /* a byte of no image */

/* ---- the READs ----------------------------------------------------------------------------- */

enum forgery { NONE, WRONG_KEY, WRONG_ADDRESS, BEHIND_THE_END, TAKEN };

static _Atomic int forgery;	    /* of all READs from now on */
static struct message_region last;  /* of the last READ that was no forgery */
static struct message_region taken; /* for TAKEN */

int __real_queue_post(struct queue *queue, unsigned slot, const struct message_region *from,
		      uint64_t offset, void *at, uint32_t len);
int __wrap_queue_post(struct queue *queue, unsigned slot, const struct message_region *from,
		      uint64_t offset, void *at, uint32_t len);

int __wrap_queue_post(struct queue *queue, unsigned slot, const struct message_region *from,
		      uint64_t offset, void *at, uint32_t len)
{
	struct message_region forged = *from;

	switch (atomic_load(&forgery)) {
	case NONE:
		last = *from;
		break;
	case WRONG_KEY:
		forged.rkey ^= 0x5a00;
		break;
	case WRONG_ADDRESS:
		forged.address -= BYTES;
		break;
	case BEHIND_THE_END:
		forged.address += from->len - (offset - from->offset);
		break;
	default:
		forged.address = taken.address;
		forged.rkey = taken.rkey;
		break;
	}
	return __real_queue_post(queue, slot, &forged, offset, at, len);
}

static void check_none(const uint8_t *dst, size_t len)
{
	ck_assert_ptr_null(memchr(dst, FORBIDDEN, len));
}

/* ---- what is refused ----------------------------------------------------------------------- */

START_TEST(a_key_that_is_not_right)
{
	static uint8_t dst[64 * 4096];
	struct image image;
	struct tp_conn *conn;
	uint64_t reads, again;

	rdma_begin();
	image_make(&image, 5000, 1, BYTES);
	image_export(&image, 2);
	conn = rdma_link(1, _i % 2 ? TP_DEMAND : TP_PREFETCH);
	rdma_until(1, conn, &image, dst);
	reads = rdma_figures(1, 0).reads;
	again = rdma_figures(1, 0).again;
	atomic_store(&forgery, WRONG_KEY + _i / 2);
	for (int i = 0; i < 600 && rdma_figures(1, 0).again == again; i++) {
		ck_assert_int_eq(rdma_read(conn, &image.key, 100, 16, dst), 0);
		ck_assert_int_eq(memcmp(dst, image.at + 100 * PAGE, 16 * PAGE), 0);
	}
	ck_assert_uint_gt(rdma_figures(1, 0).again, again);
	ck_assert_uint_eq(rdma_figures(1, 0).reads, reads);
	atomic_store(&forgery, NONE);
	rdma_until(1, conn, &image, dst);
	conn->tp->ops->close(conn);
	image_free(&image);
	rdma_end();
}
END_TEST

/* Memory that was registered once is read by no READ after unexport, though the reader has address and key, and
   another registration is there. */
START_TEST(a_key_that_has_been_taken_back)
{
	static uint8_t dst[64 * 4096];
	struct image old, image;
	struct tp_conn *conn;
	uint64_t again;

	rdma_begin();
	image_make(&old, 5000, 1, BYTES);
	image_make(&image, 5001, 2, BYTES);
	image_export(&old, 2);
	conn = rdma_link(1, TP_DEMAND);
	rdma_until(1, conn, &old, dst);
	taken = last;
	rdma_nodes[0].tp->ops->unexport(rdma_nodes[0].tp, &old.key);
	memset(old.at, FORBIDDEN, BYTES);
	ck_assert_int_ne(rdma_read(conn, &old.key, 0, 16, dst), 0);
	check_none(dst, 16 * PAGE);
	image_export(&image, 2);
	rdma_until(1, conn, &image, dst);
	ck_assert_uint_ne(last.address, taken.address);
	again = rdma_figures(1, 0).again;
	atomic_store(&forgery, TAKEN);
	for (int i = 0; i < 600 && rdma_figures(1, 0).again == again; i++) {
		ck_assert_int_eq(rdma_read(conn, &image.key, 0, 16, dst), 0);
		ck_assert_int_eq(memcmp(dst, image.at, 16 * PAGE), 0);
	}
	ck_assert_uint_gt(rdma_figures(1, 0).again, again);
	atomic_store(&forgery, NONE);
	conn->tp->ops->close(conn);
	image_free(&image);
	image_free(&old);
	rdma_end();
}
END_TEST

/* A third node, which may read something of its own, has the address and the key of what another may. */
START_TEST(another_node_with_the_right_key)
{
	static uint8_t dst[64 * 4096];
	struct image secret, own;
	struct tp_conn *reader, *other;
	uint64_t again;

	rdma_begin();
	image_make(&secret, 5000, 1, BYTES);
	image_make(&own, 5001, 2, BYTES);
	image_export(&secret, 2);
	image_export(&own, 3);
	reader = rdma_link(1, TP_DEMAND);
	other = rdma_link(2, TP_DEMAND);
	rdma_until(2, other, &own, dst);
	rdma_until(1, reader, &secret, dst);
	taken = last;
	again = rdma_figures(2, 0).again;
	atomic_store(&forgery, TAKEN);
	for (int i = 0; i < 600 && rdma_figures(2, 0).again == again; i++) {
		ck_assert_int_eq(rdma_read(other, &own.key, 0, 16, dst), 0);
		ck_assert_int_eq(memcmp(dst, own.at, 16 * PAGE), 0);
	}
	ck_assert_uint_gt(rdma_figures(2, 0).again, again);
	/* It is good for its reader all the while. */
	atomic_store(&forgery, NONE);
	rdma_until(1, reader, &secret, dst);
	reader->tp->ops->close(reader);
	other->tp->ops->close(other);
	image_free(&own);
	image_free(&secret);
	rdma_end();
}
END_TEST

int main(int argc, char **argv)
{
	TCase *c = tcase_create("keys");

	if (argc != NODES + 1)
		return 2;
	for (int i = 0; i < NODES; i++)
		rdma_hosts[i] = argv[i + 1];
	tcase_add_loop_test(c, a_key_that_is_not_right, 0, 6);
	tcase_add_test(c, a_key_that_has_been_taken_back);
	tcase_add_test(c, another_node_with_the_right_key);
	return rdma_run(c);
}
