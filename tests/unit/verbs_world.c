/*
 * Two nodes and a device in this process. See verbs_world.h.
 */
#include "verbs_world.h"

#include <dirent.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <check.h>

#include "base/log.h"
#include "fake_rdma.h"

/* ---- a source's memory --------------------------------------------------------------------- */

static int image_fd;
static uint8_t *image;

bool no_hole;

static bool in_hole(uint64_t page)
{
	return !no_hole && page >= HOLE && page < HOLE + 16;
}

static int image_piece(void *arg, uint64_t offset, size_t len, const void **data, uint64_t *out_len)
{
	bool hole = in_hole(offset / PAGE);
	uint64_t n = 0;

	(void)arg;
	while (n < len && in_hole((offset + n) / PAGE) == hole)
		n += PAGE;
	*data = hole ? NULL : image + offset;
	*out_len = n;
	return 0;
}

static void image_done(void *arg, const void *data, size_t len, size_t left)
{
	(void)arg;
	(void)data;
	(void)len;
	(void)left;
}

atomic_bool live;
atomic_uint live_looks;

static int image_next_run(void *arg, uint64_t from, uint64_t *offset, uint64_t *len)
{
	uint64_t page = from / PAGE;

	(void)arg;
	if (atomic_load(&live))
		atomic_fetch_add(&live_looks, 1);
	if (page >= PAGES || atomic_load(&live))
		return 0;
	if (in_hole(page))
		page = HOLE + 16;
	*offset = page * PAGE;
	*len = ((page < HOLE && !no_hole ? HOLE : PAGES) - page) * PAGE;
	return 1;
}

static const struct tp_export_ops image_ops = {
	.piece = image_piece, .done = image_done, .next_run = image_next_run};

/* ---- the log ------------------------------------------------------------------------------- */

static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;
static char all_said[256 << 10];
static size_t said_len;

void __wrap_log_line(enum log_level level, const char *fmt, ...);

void __wrap_log_line(enum log_level level, const char *fmt, ...)
{
	static const char *const levels[] = {"error", "warning", "info", "debug"};
	char line[1024];
	va_list args;
	int len;

	va_start(args, fmt);
	len = snprintf(line, sizeof(line), "%s: ", levels[level]);
	vsnprintf(line + len, sizeof(line) - (size_t)len, fmt, args);
	va_end(args);
	fprintf(stderr, "rampfs: %s\n", line);
	pthread_mutex_lock(&said_lock);
	if (said_len + strlen(line) + 2 < sizeof(all_said))
		said_len += (size_t)sprintf(all_said + said_len, "%s\n", line);
	pthread_mutex_unlock(&said_lock);
}

unsigned said(const char *text)
{
	unsigned n = 0;

	pthread_mutex_lock(&said_lock);
	for (const char *at = all_said; (at = strstr(at, text)); at++)
		n++;
	pthread_mutex_unlock(&said_lock);
	return n;
}

/* ---- two nodes ----------------------------------------------------------------------------- */

struct node s, t;
struct tp_key key;
uint8_t *dst;
struct tp_conn *conn;
struct ramp_err err;

void open_node(struct node *node, ramp_node_t id, enum transport_choice choice)
{
	const struct node_identity who = {.key = 'k', .cluster = 'c', .incarnation = 0x50 + id};
	struct transport_config config = {.choice = choice, .address = "127.0.0.1:7"};

	*node = (struct node){0};
	node_start(node, id, who);
	config.peers = node->peers;
	config.loop = node->loop;
	ck_assert_msg(transport_open(&config, &node->tp, &err) == 0, "%s", err.text);
}

void export_to(ramp_node_t reader)
{
	const struct tp_export export = {
		.key = key, .reader = reader, .map_fd = image_fd, .size = BYTES, .ops = &image_ops};

	ck_assert_int_eq(s.tp->ops->export(s.tp, &export, &err), 0);
}

static unsigned threads_before;

static unsigned count_threads(void)
{
	DIR *tasks = opendir("/proc/self/task");
	unsigned n = 0;

	while (readdir(tasks))
		n++;
	closedir(tasks);
	return n - 2;
}

unsigned threads(void)
{
	return count_threads() - threads_before;
}

static void *end_at_once(void *arg)
{
	*(pid_t *)arg = gettid();
	return NULL;
}

/* With the first thread ThreadSanitizer begins threads of its own. */
static void note_threads(void)
{
	pthread_t first;
	char task[64];
	pid_t tid;

	ck_assert_int_eq(pthread_create(&first, NULL, end_at_once, &tid), 0);
	pthread_join(first, NULL);
	snprintf(task, sizeof(task), "/proc/self/task/%d", (int)tid);
	wait_until(access(task, F_OK) != 0);
	threads_before = count_threads();
}

void world_begin(enum transport_choice choice_s, enum transport_choice choice_t)
{
	note_threads();
	image_fd = memfd_create("image", MFD_CLOEXEC);
	ck_assert_int_eq(ftruncate(image_fd, (off_t)BYTES), 0);
	image = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, image_fd, 0);
	dst = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (size_t i = 0; i < PAGES; i++)
		if (!in_hole(i))
			memset(image + i * PAGE, (int)(i * 37 % 251 + 1), PAGE);
	key = tp_key_of_attempt(5000, (struct ramp_attempt){3, ramp_random64()});
	open_node(&s, 1, choice_s);
	open_node(&t, 2, choice_t);
	nodes_join(&s, &t);
	export_to(2);
}

void link_to_source(enum tp_class class)
{
	ck_assert_int_eq(t.tp->ops->connect(t.tp, 1, 0x51, class, &conn, &err), 0);
	wait_until(t.tp->ops->state(conn, &err) != TP_CONNECTING);
	ck_assert_msg(t.tp->ops->state(conn, &err) == TP_READY, "%s", err.text);
}

void world_end(void)
{
	if (conn)
		t.tp->ops->close(conn);
	conn = NULL;
	s.tp->ops->unexport(s.tp, &key);
	ck_assert_uint_eq(fake_rdma.regions, 0);
	node_stop(&t);
	node_stop(&s);
	ck_assert_uint_eq(fake_rdma.objects, 0);
	wait_until(threads() == 0);
	munmap(image, BYTES);
	munmap(dst, BYTES);
	close(image_fd);
}

struct tp_peer figures(struct node *node, ramp_node_t of)
{
	struct tp_peer peer = {.node = of};

	node->tp->ops->peer(node->tp, &peer);
	return peer;
}

int reap_all(unsigned n)
{
	struct tp_done done[4];
	struct pollfd pollfd = {.events = POLLIN};
	uint32_t events;
	int result = 0;

	for (int turn = 0; n && turn < 2000; turn++) {
		int got = t.tp->ops->reap(conn, done, 4, 0);

		if (got < 0)
			return got;
		for (int i = 0; i < got; i++) {
			result = done[i].result ? done[i].result : result;
			n -= !done[i].more;
		}
		pollfd.fd = t.tp->ops->fd(conn, &events);
		if (n && !got)
			poll(&pollfd, 1, 20);
	}
	ck_assert_uint_eq(n, 0);
	return result;
}

void post(size_t first, size_t count)
{
	const struct tp_read read = {.key = key,
				     .offset = first * PAGE,
				     .len = (uint32_t)(count * PAGE),
				     .dst = dst + first * PAGE,
				     .cookie = first};

	memset(dst + first * PAGE, 0, count * PAGE);
	ck_assert_int_eq(t.tp->ops->read(conn, &read), 0);
}

void check_pages(size_t first, size_t count)
{
	ck_assert_int_eq(memcmp(dst + first * PAGE, image + first * PAGE, count * PAGE), 0);
}

void read_pages(size_t first, size_t count)
{
	post(first, count);
	ck_assert_int_eq(reap_all(1), 0);
	check_pages(first, count);
}

bool is_rdma(void)
{
	struct tp_done done;

	t.tp->ops->state(conn, NULL);
	t.tp->ops->reap(conn, &done, 1, 0);
	return t.tp->ops->lands(conn, &key, 0);
}

void world_begin_rdma(enum tp_class class)
{
	world_begin(TRANSPORT_AUTO, TRANSPORT_VERBS);
	link_to_source(class);
	read_pages(0, 1);
	wait_until(is_rdma() && t.tp->ops->lands(conn, &key, (HOLE + 16) * PAGE));
}
