/*
 * In a guest: a source's keys on a real device, in the hands of its reader and of others. Three nodes in this
 * process, each with an address of its own; rdma.cmake has --wrap for queue_post, which puts other keys in.
 * Whatever a READ is refused, the bytes come over TCP, and are right. One source has a process of its own.
 *
 *   test_rdma_keys HOST HOST HOST
 */
#include "rdma_world.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define PAGES	  ((size_t)1024)
#define BYTES	  (PAGES * PAGE)
#define FORBIDDEN 0xEE /* a byte of no image */

/* ---- the READs ----------------------------------------------------------------------------- */

enum forgery { NONE, WRONG_KEY, WRONG_ADDRESS, BEHIND_THE_END, TAKEN };

static _Atomic int forgery;	    /* of all READs from now on */
static struct message_region last;  /* of the last READ that was no forgery */
static struct message_region taken; /* for TAKEN */
static atomic_uint posted;

int __real_queue_post(struct queue *queue, unsigned slot, const struct message_region *from,
		      uint64_t offset, void *at, uint32_t len);
int __wrap_queue_post(struct queue *queue, unsigned slot, const struct message_region *from,
		      uint64_t offset, void *at, uint32_t len);

int __wrap_queue_post(struct queue *queue, unsigned slot, const struct message_region *from,
		      uint64_t offset, void *at, uint32_t len)
{
	struct message_region forged = *from;

	atomic_fetch_add(&posted, 1);
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

/* ---- a source that is killed ----------------------------------------------------------------- */

/* Node 1, in a process of its own. Its segment's bytes are this process', too. */
struct source {
	pid_t pid;
	int to;
	struct image image;
};

static void source_main(struct image *image, int to)
{
	uint16_t reader;
	char go;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (read(to, &reader, sizeof(reader)) != sizeof(reader))
		_exit(1);
	rdma_open(0);
	image_export(image, 2);
	if (write(to, &rdma_nodes[0].port, sizeof(uint16_t)) < 0 || read(to, &go, 1) != 1)
		_exit(1);
	node_know(&rdma_nodes[0], 2, reader);
	for (;;)
		pause();
}

/* Forks, so before a node is started here. It does nothing yet. */
static void source_make(struct source *source, ramp_segment_t id, uint8_t salt)
{
	int pair[2];

	image_make(&source->image, id, salt, BYTES);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	source->pid = fork();
	ck_assert_int_ge(source->pid, 0);
	if (source->pid == 0) {
		close(pair[0]);
		source_main(&source->image, pair[1]);
	}
	close(pair[1]);
	source->to = pair[0];
}

/* Starts it; the reader knows it. */
static void source_join(const struct source *source)
{
	struct node *reader = &rdma_nodes[1];
	uint16_t port;

	ck_assert_int_eq(write(source->to, &reader->port, sizeof(port)), sizeof(port));
	ck_assert_int_eq(read(source->to, &port, sizeof(port)), sizeof(port));
	node_know(reader, 1, port);
	ck_assert_int_eq(write(source->to, "", 1), 1);
	wait_until(peer_up(reader->peers, 1));
}

static void source_kill(const struct source *source)
{
	ck_assert_int_eq(kill(source->pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(source->pid, NULL, 0), source->pid);
}

/* True: the one read that is under way has ended well. */
static bool ends_well(struct tp_conn *conn)
{
	struct tp_done done = {0};
	int n = 0;

	for (int turn = 0; n == 0 && turn < 3000; turn++) {
		n = conn->tp->ops->reap(conn, &done, 1, 0);
		if (n == 0)
			usleep(20000);
	}
	ck_assert_int_ne(n, 0);
	return n > 0 && done.result == 0;
}

/* A READ of a process that has been killed, by a connection that was good: no byte comes. Nor does one of the next
   process, with the address and the key of the first. */
START_TEST(a_source_that_was_killed)
{
	static uint8_t dst[64 * 4096];
	struct source first, next;
	struct tp_conn *conn;
	uint64_t reads, again;
	unsigned before;

	source_make(&first, 5000, 1);
	source_make(&next, 5001, 2);
	rdma_open(1);
	source_join(&first);
	conn = rdma_link(1, TP_DEMAND);
	rdma_until(1, conn, &first.image, dst);
	taken = last;
	source_kill(&first);
	memset(first.image.at, FORBIDDEN, BYTES);
	reads = rdma_figures(1, 0).reads;
	before = atomic_load(&posted);
	rdma_post_read(conn, &first.image.key, 0, 16, dst);
	ck_assert_uint_eq(atomic_load(&posted), before + 1);
	sleep(1); /* in which it would be done */
	ck_assert(!ends_well(conn));
	check_none(dst, 16 * PAGE);
	ck_assert_uint_eq(rdma_figures(1, 0).reads, reads);
	conn->tp->ops->close(conn);
	node_forget(&rdma_nodes[1], 1);

	source_join(&next);
	conn = rdma_link(1, TP_DEMAND);
	rdma_until(1, conn, &next.image, dst);
	again = rdma_figures(1, 0).again;
	atomic_store(&forgery, TAKEN);
	for (int i = 0; i < 600 && rdma_figures(1, 0).again == again; i++) {
		ck_assert_int_eq(rdma_read(conn, &next.image.key, 0, 16, dst), 0);
		ck_assert_int_eq(memcmp(dst, next.image.at, 16 * PAGE), 0);
	}
	ck_assert_uint_gt(rdma_figures(1, 0).again, again);
	conn->tp->ops->close(conn);
	node_stop(&rdma_nodes[1]);
	source_kill(&next);
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
	tcase_add_test(c, a_source_that_was_killed);
	return rdma_run(c);
}
