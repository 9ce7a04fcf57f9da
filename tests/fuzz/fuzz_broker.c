/*
 * The broker (broker.c, which has both sides of the protocol and is compiled in here): what one of
 * its threads reads from a client, and what the daemon reads from it, over real sockets with real
 * descriptors.
 *
 * The input, repeatedly: a byte that says which side sends (odd: the broker itself, as it never
 * would), the number of descriptors (a byte), the kind of each (a byte), the length (a byte), the
 * message.
 *
 * A client gets exactly one answer, and of the descriptors that it sends, only a userfaultfd
 * reaches the daemon. The daemon is told of every message that is well-formed, ends the connection
 * at the first that is not, and keeps no descriptor that it does not pass on.
 */
#include <limits.h>
#include <linux/userfaultfd.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include "fuzz.h"

#include "programs/client/broker.c"

#define SENT_MAX   3
#define LOOK_AGAIN 256 /* inputs between two looks at the open descriptors */

enum kind { USERFAULTFD, MEMFD, NOTHING, EVENTFD, EPOLL, SOCKET, KINDS };

static int kinds[KINDS]; /* one of each kind */
static struct loop *loop;

/* The last event that the daemon got. */
static struct {
	unsigned int times;
	uint64_t client;
	bool ended, lost, got; /* got: a userfaultfd */
	bool second;
	int why;
} heard;

/* ---- in place of listener.c ----------------------------------------------------------------- */

static void on_uffd(void *arg, uint64_t client, int fd, int why)
{
	(void)arg;
	heard.times++;
	heard.client = client;
	heard.why = why;
	heard.got = fd >= 0;
	if (fd >= 0)
		close(fd);
}

/* Comes before the first one, which alone is counted; from a broker it may come alone. */
static void on_second(void *arg, uint64_t client, int fd)
{
	(void)arg;
	heard.second = true;
	heard.client = client;
	close(fd);
}

static void on_ended(void *arg, uint64_t id)
{
	(void)arg;
	heard.times++;
	heard.client = id;
	heard.ended = true;
}

static void on_lost(void *arg)
{
	(void)arg;
	heard.times++;
	heard.lost = true;
}

static const struct broker_ops ops = {
	.uffd = on_uffd, .second = on_second, .ended = on_ended, .lost = on_lost};

/* ---- messages ------------------------------------------------------------------------------- */

struct message {
	uint8_t bytes[256];
	size_t len;
	enum kind kind[SENT_MAX];
	unsigned int n_fds;
};

static void take_message(struct fuzz_in *in, struct message *m)
{
	m->n_fds = fuzz_u8(in) % (SENT_MAX + 1);
	for (unsigned int i = 0; i < m->n_fds; i++)
		m->kind[i] = fuzz_u8(in) % KINDS;
	m->len = fuzz_u8(in);
	for (size_t i = 0; i < m->len; i++)
		m->bytes[i] = fuzz_u8(in);
}

static void send_message(int sock, const struct message *m)
{
	struct iovec io = {(void *)m->bytes, m->len};
	union {
		char bytes[CMSG_SPACE(sizeof(int) * SENT_MAX)];
		struct cmsghdr align;
	} control = {{0}};
	struct msghdr msg = {.msg_iov = &io, .msg_iovlen = 1};
	struct cmsghdr *c = &control.align;

	if (m->n_fds) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * m->n_fds);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * m->n_fds);
		for (unsigned int i = 0; i < m->n_fds; i++)
			memcpy(CMSG_DATA(c) + i * sizeof(int), &kinds[m->kind[i]], sizeof(int));
	}
	fuzz_rule(sendmsg(sock, &msg, MSG_NOSIGNAL) == (ssize_t)m->len);
}

/* Does what a thread of the broker does with a client's message. */
static void ask_stranger(int broker, uint64_t client, const struct message *m)
{
	int door[2], fds[FDS_MAX];
	size_t n;

	fuzz_rule(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, door) == 0);
	send_message(door[1], m);
	n = serve_door(broker, client, door[0], fds);
	fuzz_rule(n == m->n_fds);
	for (size_t i = 0; i < n; i++)
		close(fds[i]);
	close(door[0]);
	close(door[1]);
}

static void check_stranger(uint64_t client, const struct message *m)
{
	bool right = m->len == 1 && m->bytes[0] == SESSION_VERSION && m->n_fds;
	int why = !m->len ? EPIPE : !right ? EBADMSG : m->kind[0] != USERFAULTFD ? EBADF : 0;

	fuzz_rule(heard.times == 1 && heard.client == client && heard.why == why);
	fuzz_rule(!heard.ended && !heard.lost && heard.got == !why);
	fuzz_rule(heard.second == (!why && m->n_fds > 1 && m->kind[1] == USERFAULTFD));
}

static void check_broker(const struct message *m)
{
	struct wire_r r;
	uint64_t client;
	uint32_t why;

	fuzz_rule(heard.times + heard.second == 1 && heard.lost == (m->len != MESSAGE_BYTES));
	if (heard.lost)
		return;
	wire_r_init(&r, m->bytes, m->len);
	client = wire_get_u64(&r);
	why = wire_get_u32(&r);
	fuzz_rule(heard.client == client && heard.second == (why == SECOND && m->n_fds));
	if (heard.second)
		return;
	fuzz_rule(heard.ended == (why == ENDED && !m->n_fds));
	fuzz_rule(heard.ended || (heard.got == (m->n_fds > 0) && (heard.got || heard.why)));
}

static struct broker *begin(int *theirs)
{
	struct broker *d = calloc(1, sizeof(*d));
	int pair[2];

	fuzz_rule(d && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	d->loop = loop;
	d->ops = &ops;
	d->sock = pair[0];
	d->pid = INT_MAX; /* no child of this process has it */
	d->handles = 2;
	fuzz_rule(uv_poll_init(loop_uv(loop), &d->poll, d->sock) == 0);
	uv_timer_init(loop_uv(loop), &d->again);
	d->poll.data = d->again.data = d;
	uv_poll_start(&d->poll, UV_READABLE | UV_DISCONNECT, on_door);
	*theirs = pair[1];
	return d;
}

static void open_kinds(void)
{
	kinds[USERFAULTFD] =
		(int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	kinds[MEMFD] = fuzz_file("", 0);
	kinds[NOTHING] = open("/dev/null", O_RDWR | O_CLOEXEC);
	kinds[EVENTFD] = eventfd(0, EFD_CLOEXEC);
	kinds[EPOLL] = epoll_create1(EPOLL_CLOEXEC);
	kinds[SOCKET] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	for (int i = 0; i < KINDS; i++)
		fuzz_rule(kinds[i] >= 0);
	fuzz_rule(loop_open(&loop, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static unsigned int inputs, open_before;
	struct fuzz_in in = {data, size};
	struct broker *d;
	int broker;

	if (!loop)
		open_kinds();
	d = begin(&broker);
	for (uint64_t client = 1; in.left && d->sock >= 0; client++) {
		bool by_broker = fuzz_u8(&in) & 1;
		struct message m;

		take_message(&in, &m);
		memset(&heard, 0, sizeof(heard));
		if (by_broker)
			send_message(broker, &m);
		else
			ask_stranger(broker, client, &m);
		uv_run(loop_uv(loop), UV_RUN_NOWAIT);
		if (by_broker)
			check_broker(&m);
		else
			check_stranger(client, &m);
	}
	broker_close(d);
	close(broker);
	uv_run(loop_uv(loop), UV_RUN_NOWAIT);
	if (inputs++ % LOOK_AGAIN == 1) {
		fuzz_rule(!open_before || fuzz_open_files() == open_before);
		open_before = fuzz_open_files();
	}
	return 0;
}

void fuzz_seeds(void)
{
	static const uint8_t given[] = {0, 1, USERFAULTFD, 1, SESSION_VERSION};
	static const uint8_t other[] = {0, 1, MEMFD, 1, SESSION_VERSION};
	static const uint8_t many[] = {0, 3, USERFAULTFD, MEMFD, SOCKET, 1, SESSION_VERSION};
	static const uint8_t two[] = {0, 2, USERFAULTFD, USERFAULTFD, 1, SESSION_VERSION};
	static const uint8_t none[] = {0, 0, 1, SESSION_VERSION, 0, 0, 0};
	uint8_t bytes[64] = {1, 1, USERFAULTFD, MESSAGE_BYTES, 7};

	fuzz_seed("given", given, sizeof(given));
	fuzz_seed("another-kind", other, sizeof(other));
	fuzz_seed("more-than-one", many, sizeof(many));
	fuzz_seed("two", two, sizeof(two));
	fuzz_seed("none", none, sizeof(none));
	fuzz_seed("passed-on", bytes, 4 + MESSAGE_BYTES);
	bytes[1] = 0;
	bytes[2] = MESSAGE_BYTES;
	bytes[3] = 7;
	memset(bytes + 11, 0xff, 4);
	fuzz_seed("ended", bytes, 3 + MESSAGE_BYTES);
	bytes[2] = MESSAGE_BYTES - 1;
	fuzz_seed("cut", bytes, 3 + MESSAGE_BYTES - 1);
	bytes[1] = 2;
	bytes[2] = bytes[3] = MEMFD;
	bytes[4] = MESSAGE_BYTES;
	fuzz_seed("two-from-the-broker", bytes, 5 + MESSAGE_BYTES);
}
